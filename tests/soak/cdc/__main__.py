"""Years in the life of a captured database: migrations of every kind, kills, tables equal at each stop.

``python -m tests.soak.cdc --minutes 60``: prints one line of JSON, and fails when a table is not what its source is. A
year like the one that failed is run by its seed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from engine.broker.broker import Broker
from tests.histories.__main__ import ended_by_signals
from tests.soak.cdc.year import Year, facts_of
from tests.stores.debezium import PostgresSource
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.postgres import Postgres

TOTALS = ("migrations", "strikes", "mended")


def main(arguments: list[str]) -> int:
    """Returns 1 if a year failed; it is the last one."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.cdc", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="years begin for so long (default: 1)")
    parser.add_argument("--weeks", type=int, default=40, help="migrations of a year (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the first year; each next one has the next")
    given = parser.parse_args(arguments)
    until_s, seed, stops = time.monotonic() + 60 * given.minutes, given.seed, 0
    totals: dict[str, Counter[str]] = {name: Counter() for name in TOTALS}
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fluvial-year-")))
        broker = stack.enter_context(Broker(home / "broker"))
        (home / "connect").mkdir()
        connect = stack.enter_context(KafkaConnect(home / "connect", broker.bootstrap_servers))
        server = Postgres()
        url = stack.enter_context(server)
        while seed == given.seed or time.monotonic() < until_s:
            print(f"year: --seed {seed} --weeks {given.weeks}", file=sys.stderr, flush=True)
            with closing(PostgresSource(f"year{seed}", url, connect, broker.bootstrap_servers)) as source:
                year = Year(source, server, broker, home / str(seed), seed=seed)
                year.weeks(year.drawn(given.weeks))
            facts = dict(facts_of(year))
            print(f"  {facts}", file=sys.stderr, flush=True)
            for name, total in totals.items():
                total.update(facts[name])
            stops, seed = stops + facts["stops"], seed + 1
    counts = {name: dict(total.most_common()) for name, total in totals.items()}
    print(
        json.dumps({"benchmark": "soak-cdc", "first": given.seed, "years": seed - given.seed, "stops": stops, **counts})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
