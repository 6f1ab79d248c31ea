"""Tables from the whole space of options, short histories of everything that is done to them, and every way to read.

``python -m tests.crossings --seconds 3600``: prints one line of JSON at the end, or when a signal ends it, and fails
when a history did. A failed one is printed in its smallest form, with the command that replays it.
"""

import argparse
import json
import logging
import os
import sys
import time

from tests.crossings.campaign import Campaign
from tests.crossings.history import History
from tests.crossings.run import replayed
from tests.crossings.shrink import shrunk
from tests.histories.__main__ import ended_by_signals, histories_of


def main(arguments: list[str]) -> int:
    """Returns 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.crossings", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: ten minutes)")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="histories at most (default: as time allows)")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed (default: the time)")
    parser.add_argument("--replay", default="", metavar="JSON", help="one history, as it is printed")
    parser.add_argument("--shrink", action="store_true", help="with --replay: make it small")
    given = parser.parse_args(arguments)
    os.fsync = lambda fd: None  # no history cuts the power
    logging.disable(logging.CRITICAL)
    if given.replay:
        return _replay(given.replay, is_shrunk=given.shrink)
    campaign = Campaign(given.first)
    with ended_by_signals():
        kinds = {"crossings": campaign.history}
        found = histories_of(kinds, first=given.first, count=given.count, seconds=given.seconds)
    print(json.dumps({**found, "covered": campaign.coverage.counts()}))
    return 1 if found["failed"] else 0


def _replay(text: str, *, is_shrunk: bool) -> int:
    found = replayed(History.parse(text)).violation
    if found is None:
        print("nothing is wrong")
        return 0
    print(shrunk(found) if is_shrunk else found)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
