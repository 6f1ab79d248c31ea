"""The live part of the demo: New Year's Day is replayed while two queries run, and its changes are printed.

One process runs the job of ``conf/flights.yaml``, now endless; the other reads the table with
``readStream.format("fluvial")``, which delivers a change less than a second after its commit.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from rich.console import Console

from benchmarks.demo.flights import ChangeStream, FlightStep, change_stream, read_flights
from benchmarks.demo.publish import publish_flights
from engine.runtime.spark_log import spark_output
from engine.spark.session import checkpoint_settings, session
from engine.table import Table
from logstore.kafka.clients import KafkaProperties
from lsm.errors import UnavailableError

LIVE_YEAR: Final = 2014
_FLIGHTS: Final = 400
_FIRST: Final = 5
_SLICES: Final = 40
_SLICE_S: Final = 0.25
_LINES_PER_BATCH: Final = 4
_START_S: Final = 300.0  # of a machine that does other work too
_COLUMNS: Final = ("carrier", "flight", "origin", "dest", "sched_dep_time", "dep_delay", "arr_delay")


@dataclass(slots=True)
class LiveResult:
    """Totals of the delivered changes."""

    change_count: int = 0
    batch_count: int = 0
    seconds: float = 0.0
    lag_records: int = 0


def run_live(
    table: Table, topic: str, properties: KafkaProperties, job: list[str], home: Path, out: Console
) -> LiveResult:
    """Publish a day's changes over some seconds, and print them as the table's reader receives them.

    Args:
        table: a table with a log.
        topic: the topic that the job reads.
        properties: properties of the broker.
        job: command that runs the job until it is interrupted.
        home: directory for checkpoints and Spark's log.
        out: console to print to.

    Raises:
        UnavailableError: the job exited, or its changes do not arrive.
    """
    stream = new_years_day()
    wanted = int(pc.sum(pc.not_equal(stream.step, int(FlightStep.TOMBSTONE))).as_py())
    printer = _Printer(out)
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    log = str(home / "live.log")
    with spark_output(log), subprocess.Popen(job, stdout=subprocess.DEVNULL, env=dict(os.environ)) as running:
        try:
            spark = session("fluvial-demo-live", "local[2]", conf)
            options = {
                "warehouse": str(Path(table.store.paths.root).parents[1]),
                "table": table.name,
                "log.scan": "latest",
                "read.changelog": "true",
                "log.scan.normalize": "true",
            }
            frame = spark.readStream.format("fluvial").options(**options).load()
            checkpoint = str(home / "live-reader")
            with checkpoint_settings(spark, checkpoint):
                query = frame.writeStream.foreachBatch(printer).option("checkpointLocation", checkpoint).start()
            _until(lambda: query.lastProgress is not None, running)
            start_s = time.monotonic()
            publish_flights(stream.part(0, _FIRST), properties, topic)
            _until(lambda: printer.result.change_count > 0, running)  # both queries are running
            _publish_slowly(stream.part(_FIRST, len(stream)), properties, topic)
            _until(lambda: printer.result.change_count >= wanted, running)
            printer.result.seconds = time.monotonic() - start_s
            printer.result.lag_records = _lag_of(query.lastProgress)
            query.stop()
            spark.stop()
        finally:
            running.send_signal(signal.SIGTERM)
    return printer.result


def new_years_day() -> ChangeStream:
    """The first flights of the year, moved to the next year."""
    flights = read_flights().slice(0, _FLIGHTS)
    index = flights.schema.get_field_index("year")
    field = flights.schema.field(index)
    years = pa.array(np.full(flights.num_rows, LIVE_YEAR, np.int32))
    return change_stream(flights.set_column(index, field, years))


class _Printer:
    """A ``foreachBatch`` function that prints a few rows of every batch."""

    def __init__(self, out: Console) -> None:
        self.result = LiveResult()
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, frame: DataFrame, _batch: int) -> None:
        shown = frame.filter("_row_kind <> '-U'").select("_row_kind", *_COLUMNS)
        rows = shown.toArrow().to_pylist()
        if not rows:
            return
        with self._lock:
            self.result.change_count += len(rows)
            self.result.batch_count += 1
        for row in rows[:_LINES_PER_BATCH]:
            self._out.print(f"   {_line(row)}")
        if len(rows) > _LINES_PER_BATCH:
            self._out.print(f"   [dim]… and {len(rows) - _LINES_PER_BATCH} more changes in this micro-batch[/dim]")


def _line(row: Mapping[str, Any]) -> str:
    colour = {"-D": "red", "+U": "yellow"}.get(row["_row_kind"], "green")
    kind = f"[{colour}]{row['_row_kind']}[/{colour}]"
    name = f"{row['carrier']}{row['flight']:<5} {row['origin']}→{row['dest']} at {row['sched_dep_time']:04}"
    if row["_row_kind"] == "-D":
        return f"{kind} {name}  cancelled"
    if row["dep_delay"] is None:
        return f"{kind} {name}  scheduled"
    if row["arr_delay"] is None:
        return f"{kind} {name}  departed, {_minutes(row['dep_delay'])}"
    return f"{kind} {name}  arrived, {_minutes(row['arr_delay'])}"


def _minutes(delay: int) -> str:
    return "on time" if delay == 0 else f"{abs(delay)} min {'late' if delay > 0 else 'early'}"


def _publish_slowly(stream: ChangeStream, properties: KafkaProperties, topic: str) -> None:
    """Publish the changes in slices of equal size over some seconds."""
    bounds = np.linspace(0, len(stream), _SLICES + 1).astype(int)
    for start, end in itertools.pairwise(bounds):
        publish_flights(stream.part(int(start), int(end)), properties, topic)
        time.sleep(_SLICE_S)


def _until(condition: Any, running: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _START_S
    while not condition():
        if running.poll() is not None:
            raise UnavailableError(f"the job ended before its changes arrived: exit_code={running.returncode}")
        if time.monotonic() > deadline:
            raise UnavailableError(f"changes do not arrive: timeout_s={_START_S:g} fix=look at Spark's log")
        time.sleep(0.05)


def _lag_of(progress: Mapping[str, Any] | None) -> int:
    latest = None if progress is None else json.loads(progress["sources"][0]["latestOffset"])
    return 0 if latest is None else int(latest["lag_records"])


def job_command(config: str, spark_log: Path) -> list[str]:
    """The job as an endless process, a micro-batch as soon as there are changes."""
    trigger = 'pipelines.flights.trigger={"processing-time": "100 milliseconds"}'
    return [
        sys.executable,
        "-m",
        "engine.cli",
        "run",
        config,
        "--quiet",
        "--spark-log",
        str(spark_log),
        "--set",
        trigger,
    ]
