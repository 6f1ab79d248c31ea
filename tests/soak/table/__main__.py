"""Races of processes on one table, at natural speed: writers, compaction, expiry, tags, branches and the rest.

``python -m tests.soak.table --minutes 10``: prints one line of JSON, and fails when a table is not as it must be. Then
the directory stays, and a round like the one that failed is run by what was printed for it.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Final

from tests.histories.__main__ import ended_by_signals
from tests.soak.table.kinds import KINDS
from tests.soak.table.race import OTHERS, Facts, Race, Round

_SHOWN: Final = ("deeds", "refused", "strikes", "found")


def run_round(planned: Round, *, keep: bool) -> tuple[Facts, str | None]:
    """What happened, and what was wrong; says both on the error output."""
    home = Path(tempfile.mkdtemp(prefix="fluvial-race-"))
    print(f"round: {planned} home={home}", file=sys.stderr, flush=True)
    race, began_s, wrong = Race(home, planned), time.monotonic(), None
    try:
        race.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is printed with what runs the round again
        wrong = f"{type(error).__name__}: {error}"
        print(f"failed: {planned} home={home}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
    if wrong is None and not keep:
        shutil.rmtree(home)
    facts = race.facts
    print(
        f"  {time.monotonic() - began_s:.0f} s  deeds {facts.deeds.total()}  refused {facts.refused.total()}  "
        f"strikes {facts.strikes.total()}  looks {facts.looks}  left by the killed: {dict(facts.found) or 'nothing'}, "
        f"{facts.orphans} files",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    return facts, wrong


def main(arguments: list[str]) -> int:
    """Returns 1 if a round failed; it is the last one."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.table", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="rounds begin for so long (default: 1)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a round, until it is compared (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each next one has the next")
    parser.add_argument("--kind", choices=sorted(KINDS), help="of every table (default: by turns)")
    parser.add_argument(
        "--with", dest="others", help=f"who takes part, with commas, of {', '.join(OTHERS)}; '': no one"
    )
    parser.add_argument("--calm", action="store_true", help="nobody is killed or frozen")
    parser.add_argument("--pace", type=float, default=0.01, help="seconds between two operations of a process")
    parser.add_argument(
        "--keep", action="store_true", help="also keep the directories of rounds in which all was right"
    )
    given = parser.parse_args(arguments)
    others = None if given.others is None else tuple(each for each in given.others.split(",") if each)
    more = {"kind": given.kind, "others": others, "pace_s": given.pace, "with_strikes": not given.calm}
    until_s, seed, failed, orphans = time.monotonic() + 60 * given.minutes, given.seed, [], 0
    totals: dict[str, Counter[str]] = {name: Counter() for name in _SHOWN}
    with ended_by_signals():
        while not failed and (seed == given.seed or time.monotonic() < until_s):
            planned = Round.planned(seed, seconds=given.seconds, **more)
            facts, wrong = run_round(planned, keep=given.keep)
            failed += [] if wrong is None else [{"round": str(planned), "error": wrong[:1000]}]
            for name, total in totals.items():
                total.update(getattr(facts, name))
            orphans, seed = orphans + facts.orphans, seed + 1
    counts = {name: dict(total.most_common()) for name, total in totals.items()}
    rounds = {"first": given.seed, "rounds": seed - given.seed, "failed": failed}
    print(json.dumps({"benchmark": "soak-table", **rounds, **counts, "orphans": orphans}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
