"""Random statements and conditions of all types on tables of each kind, against plain Parquet rewritten by SELECT.

``python -m tests.statements --seconds 3600``: prints one line of JSON at the end, or when a signal ends it, and fails
when a history did. A failed one says the command that repeats it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import engine
from engine import Catalog
from tests.histories.__main__ import ended_by_signals, histories_of
from tests.statements.play import KINDS, play


def main(arguments: list[str]) -> int:
    """Returns 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: ten minutes)")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="seeds at most (default: as time allows)")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed (default: the time)")
    parser.add_argument("--only", default="", choices=["", *KINDS], help="one kind of table")
    given = parser.parse_args(arguments)
    os.fsync = lambda fd: None  # no history cuts the power
    with tempfile.TemporaryDirectory() as home:
        conf = {
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.adaptive.enabled": "false",
        }
        conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        spark = engine.session("statements", "local[1]", conf | {"spark.sql.warehouse.dir": f"{home}/spark"})
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        catalog = Catalog(str(Path(home) / "warehouse"))
        engine.install(spark, catalog)
        spark.sql("CREATE DATABASE fluvial.st")
        kinds = {kind: partial(play, spark, catalog, kind) for kind in KINDS if given.only in ("", kind)}
        with ended_by_signals():
            found = histories_of(kinds, first=given.first, count=given.count, seconds=given.seconds)
        spark.stop()
    print(json.dumps(found))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
