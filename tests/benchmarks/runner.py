"""Runs benchmarks, one after the other, in a process of their own: with one Spark session and one broker for all.

A line of input names a benchmark; a line of JSON answers with what it printed, and with its error if it had one.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from engine.broker import broker


@contextlib.contextmanager
def shared_servers() -> Iterator[None]:
    """What benchmarks start and stop is started by the first that needs it, and stays. Their topics differ in name."""
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-broker-") as home:
        running = broker.Broker(home)

        def kept(*_: Any, **__: Any) -> contextlib.AbstractContextManager[broker.Broker]:
            return contextlib.nullcontext(running.start())  # which does nothing where it runs

        broker.Broker = kept  # type: ignore[assignment,misc]
        SparkSession.stop = lambda _: None
        try:
            yield
        finally:
            running.stop()


def outcome_of(name: str) -> dict[str, str]:
    """What a benchmark prints, and the text of its error, which may be none."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            importlib.import_module(f"benchmarks.{name}").main()
    except (Exception, SystemExit):  # noqa: BLE001  (the process edge: every failure becomes an answer)
        return {"printed": printed.getvalue(), "error": traceback.format_exc()}
    return {"printed": printed.getvalue(), "error": ""}


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # only answers are on standard output, whatever a library or a child prints
    sys.argv[1:] = ["--tiny"]
    with shared_servers():
        for line in sys.stdin:
            print(json.dumps(outcome_of(line.strip())), file=answers, flush=True)


if __name__ == "__main__":
    main()
