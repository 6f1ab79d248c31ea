"""The demo on one machine: a broker, a million changes, one job file, and the result read back and verified.

1. A Kafka broker is started in ``.demo/broker``.
2. The history of 336,776 flights is published to a topic, as Debezium would do.
3. ``fluvial run conf/flights.yaml`` ingests it into the table ``nyc.flights``: its log and its files.
4. The table is read from its files, from its log and with pypaimon, and compared with the data set read by pandas.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.demo.flights import ChangeStream, FlightStep, change_stream, read_flights
from benchmarks.demo.live import job_command, run_live
from benchmarks.demo.publish import publish_flights
from benchmarks.demo.readers import check_equal, expected_flights, fold_log, read_table, read_with_peer
from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.cli.output import grid
from engine.log.table_log import default_topic
from engine.monitor.inspection import TableState, inspect_table
from engine.monitor.lag_report import log_lags
from engine.runtime.units import size_text
from engine.table import Table
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import FluvialError

CONFIG: Final = "conf/flights.yaml"
DEMO_TABLE: Final = "nyc.flights"
TOPIC: Final = "nyc-flight-changes"
PARTITION_COUNT: Final = 4

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """The directories of the demo."""

    root: Path

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def spark_log(self) -> Path:
        return self.root / "spark.log"

    def environment(self, bootstrap_servers: str) -> dict[str, str]:
        """The variables of ``conf/flights.yaml``."""
        return {
            "DEMO_WAREHOUSE": str(self.warehouse),
            "DEMO_CHECKPOINT": str(self.checkpoints / "flights"),
            "DEMO_TOPIC": TOPIC,
            "DEMO_KAFKA": bootstrap_servers,
        }


class _Story:
    """Prints numbered steps with their times."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self._start_s = time.monotonic()
        self._count = 0

    def step(self, words: str, work: Callable[[], _T], result: Callable[[_T], str] = lambda _: "") -> _T:
        """Print the step, do it, and print its result."""
        self._count += 1
        self.out.print(f"[bold]{self._count}. {words}[/bold]")
        start_s = time.monotonic()
        value = work()
        seconds = time.monotonic() - start_s
        self.out.print(f"   {result(value)} [dim]({seconds:.1f} s)[/dim]".replace("    ", "   "))
        return value

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._start_s


def main(arguments: Sequence[str]) -> int:
    """Run the demonstration; 0 when every reader agrees."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--dir", default=".demo", help="directory of the demo (default: %(default)s)")
    parser.add_argument("--flights", type=int, help="number of flights, from the start of the year")
    parser.add_argument("--no-live", action="store_true", help="skip the live part")
    given = parser.parse_args(arguments)
    home = _Home(root=Path(given.dir))
    out = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    try:
        _run(home, given.flights, _Story(out), live=not given.no_live)
    except FluvialError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _run(home: _Home, flight_count: int | None, story: _Story, *, live: bool) -> None:
    # start with an empty table, else all changes would already be ingested
    for directory in (home.warehouse, home.checkpoints):
        shutil.rmtree(directory, ignore_errors=True)
    home.root.mkdir(parents=True, exist_ok=True)

    broker = Broker(home.broker)
    try:
        story.step(
            f"Starting a Kafka broker in {home.broker}",
            broker.start,
            lambda started: f"it listens on {started.bootstrap_servers}",
        )
        properties = KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})
        stream = change_stream(read_flights().slice(0, flight_count))
        size_bytes = story.step(
            f"Publishing {len(stream):,} changes of {stream.flights.num_rows:,} flights to topic {TOPIC}",
            lambda: _publish(stream, properties, story.out),
            lambda size: f"{_counts_text(stream)}; {size_text(size)} of JSON",
        )
        results = story.step(
            f"fluvial run {CONFIG}",
            lambda: _ingest(home, broker.bootstrap_servers),
            lambda found: _result_text(found[0]),
        )
        options = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
        table = Catalog(str(home.warehouse), options=options).table(DEMO_TABLE)
        _check(story, home, table, flight_count)
        _summary(story, table, stream, results[0], size_bytes)
        if live:
            _live(story, home, table, broker.bootstrap_servers)
    finally:
        broker.stop()
    _what_next(story, home)


def _live(story: _Story, home: _Home, table: Table, bootstrap_servers: str) -> None:
    os.environ |= home.environment(bootstrap_servers)
    properties = KafkaProperties.parse({"bootstrap.servers": bootstrap_servers})
    job = job_command(CONFIG, home.root / "spark-live.log")
    story.step(
        'New Year\'s Day 2014, live: fluvial run in one process, readStream.format("fluvial") in another',
        lambda: run_live(table, TOPIC, properties, job, home.checkpoints, story.out),
        lambda found: (
            f"[green]{found.change_count:,} changes in {found.batch_count} micro-batches[/green], "
            f"{found.lag_records} behind at the end"
        ),
    )


def _publish(stream: ChangeStream, properties: KafkaProperties, out: Console) -> int:
    topics = LogTopics(properties)
    topics.delete_topic(TOPIC)
    topics.delete_topic(default_topic(DEMO_TABLE))  # the log of an earlier run's table, now without files
    topics.create_topic(TOPIC, bucket_count=PARTITION_COUNT)
    columns = (SpinnerColumn(), BarColumn(bar_width=30), TextColumn("{task.completed:,} changes"), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as bars:
        task = bars.add_task("", total=len(stream))
        return publish_flights(stream, properties, TOPIC, on_sent=lambda count: bars.advance(task, count))


def _ingest(home: _Home, bootstrap_servers: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "engine.cli", "run", CONFIG, "--spark-log", str(home.spark_log), "--json"]
    environment = {**os.environ, **home.environment(bootstrap_servers)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise FluvialError(f"the job failed, see above: exit_code={done.returncode} spark_log={home.spark_log}")
    return list(json.loads(done.stdout))


def _check(story: _Story, home: _Home, table: Table, flight_count: int | None) -> None:
    expected = expected_flights(flight_count)

    def same(found: pa.Table, reader: str) -> str:
        check_equal(found, expected, reader=reader)
        return f"[green]{found.num_rows:,} flights, all {found.num_columns} columns as pandas has them[/green]"

    story.step("Reading the table from its files", lambda: read_table(table), lambda rows: same(rows, "files"))
    story.step(
        "Reading the log and keeping the last change of each flight",
        lambda: fold_log(table),
        lambda found: f"{found[1]:,} changes; {same(found[0], 'log')}",
    )
    story.step(
        "Reading the table with pypaimon",
        lambda: read_with_peer(home.warehouse, DEMO_TABLE),
        lambda rows: same(rows, "pypaimon"),
    )


def _summary(story: _Story, table: Table, stream: ChangeStream, result: Mapping[str, Any], size_bytes: int) -> None:
    state = inspect_table(table.store, snapshot_limit=1)
    rate = result["row_count"] / result["seconds"]
    lag = sum(each["lag"] for each in log_lags(table))
    seconds = f"{result['seconds']:.1f} s after Spark's start"
    rows = [
        ("changes taken in", f"{result['row_count']:,} in {result['batch_count']} micro-batches"),
        ("speed", f"{rate:,.0f} changes/s into log and files ({seconds})"),
        ("files", f"{size_text(state.size_bytes)} of Parquet, from {size_text(size_bytes)} of JSON"),
        ("buckets", f"{len(state.buckets)} in {len({each.partition for each in state.buckets})} partitions"),
        ("runs per bucket", _runs_text(state)),
        ("log lag", f"{lag} records in the log that the newest snapshot does not have"),
        ("all in all", f"{story.seconds:.0f} s"),
    ]
    story.out.print(grid(DEMO_TABLE, ("", ""), rows))


def _runs_text(state: TableState) -> str:
    counts = sorted(len(each.runs) for each in state.buckets)
    return f"{counts[0]} to {counts[-1]}, half have at most {counts[len(counts) // 2]}" if counts else "none"


def _what_next(story: _Story, home: _Home) -> None:
    place = f"--warehouse {home.warehouse} {DEMO_TABLE}"
    condition = "carrier = 'HA' and arr_delay > 60"
    for line in (
        "[bold]What to try next[/bold]",
        f'   fluvial read {place} --columns month,day,carrier,flight,dest,arr_delay --filter "{condition}"',
        f"   fluvial inspect {place}",
        f"   fluvial compact {place} --full",
        f"   fluvial broker start --dir {home.broker}   and then   fluvial lag {place}",
        f"   less {CONFIG} conf/orders.yaml",
    ):
        story.out.print(line, soft_wrap=True)


def _counts_text(stream: ChangeStream) -> str:
    words = {
        FlightStep.SCHEDULED: "scheduled",
        FlightStep.DEPARTED: "departed",
        FlightStep.ARRIVED: "arrived",
        FlightStep.CORRECTED: "corrected",
        FlightStep.CANCELLED: "cancelled",
    }
    return ", ".join(f"{stream.counts[step]:,} {word}" for step, word in words.items())


def _result_text(result: Mapping[str, Any]) -> str:
    rate = result["row_count"] / result["seconds"]
    return f"{result['row_count']:,} changes in {result['batch_count']} micro-batches, {rate:,.0f} changes/s"
