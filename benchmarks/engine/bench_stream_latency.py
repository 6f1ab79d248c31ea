"""Commit-to-row latency of the hybrid source: two Spark queries on this machine, 1,000 rows per second.

One query writes Spark's rate source into a table with a log, the other reads it with ``readStream.format("fluvial")``
into ``foreachBatch``; then another one as ``STREAM t CHANGES``, from files. The latency of a row is the time from the
return of the commit that made it visible to the moment when the reader's function has it. Beside it the time between
two commits, what Spark's triggers took of the reader's time (``trigger_ms``: latest offset, log of offsets, plan,
function, commit), and what they take where the same function gets Spark's own rate source, and nothing else runs
(``bare_trigger_ms``). Budgets: p50 60 ms, p99 150 ms; of ``CHANGES`` p99 a second.

usage: python -m benchmarks stream_latency [--quick | --tiny]
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harness import commit, machine, sized
from engine import Catalog, Table, install, session, sink
from engine.broker.broker import Broker
from engine.spark.session import checkpoint_settings

BUDGETS_MS = {"fluvial": (60, 150), "CHANGES": (500, 1000)}  # p50 and p99, by reader
ROWS_PER_S = 1000
BUCKETS = 2
PATIENCE_S = 60.0
WARM_UP_COMMITS = 2
LEAST_COMMITS = 5
SCHEMA = pa.schema([("id", pa.int64()), ("sent", pa.timestamp("us")), ("text", pa.string())])


PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets", "triggerExecution")


class Timeline:
    """When the rows up to a number were committed, and when they were read."""

    def __init__(self) -> None:
        self.trigger_ms: dict[str, float] = {}  # medians of the reader's triggers
        self.committed: list[tuple[int, int, float]] = []  # first id, last id, time
        self.seen: list[tuple[int, int, float]] = []
        self.lock = threading.Lock()

    def read(self, frame: DataFrame, _batch: int) -> None:
        """The function of a query that reads."""
        rows = frame.select("id").toArrow()
        moment = time.time()
        if rows.num_rows:
            numbers = rows.column("id").to_pylist()
            with self.lock:
                self.seen.append((min(numbers), max(numbers), moment))

    def latencies(self) -> list[float]:
        """Seconds from commit to row, one for each row behind the first commits, which warm up."""
        seen_at: dict[int, float] = {}
        for first, last, moment in self.seen:
            for number in range(first, last + 1):
                seen_at.setdefault(number, moment)
        return [
            seen_at[number] - moment
            for first, last, moment in self.committed[max(WARM_UP_COMMITS, len(self.committed) // 4) :]
            for number in range(first, last + 1)
            if number in seen_at
        ]


def changes_of(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS_PER_S).option("numPartitions", 1).load()
    return rate.select(
        F.col("value").alias("id"),
        F.col("timestamp").cast("timestamp_ntz").alias("sent"),
        F.lit("x" * 50).alias("text"),
    )


def started(
    spark: SparkSession, frame: DataFrame, function: Callable[[DataFrame, int], None], checkpoint: Path
) -> StreamingQuery:
    with checkpoint_settings(spark, str(checkpoint)):
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
        return writer.start()


def trigger_ms(query: StreamingQuery) -> dict[str, float]:
    """Medians of what a query's triggers with rows took, without the first ones."""
    found = [each for each in query.recentProgress if each["numInputRows"]][WARM_UP_COMMITS:]
    return {part: statistics.median(each["durationMs"].get(part, 0) for each in found) for part in PARTS if found}


def bare(spark: SparkSession, root: Path, seconds: float) -> dict[str, float]:
    """The triggers of a query that only takes the same rows from Spark's rate source to the same function."""
    timeline = Timeline()
    query = started(spark, changes_of(spark), timeline.read, root / "checkpoints" / "bare")
    until(lambda: len(timeline.seen) >= LEAST_COMMITS)
    time.sleep(seconds / 2)
    found = trigger_ms(query)
    stop(query)
    return found


def ids_of(frame: DataFrame) -> tuple[int, int] | None:
    found = frame.agg(F.min("id"), F.max("id")).collect()[0]
    return None if found[0] is None else (found[0], found[1])


def reading(spark: SparkSession, table: Table, root: Path, reader: str) -> DataFrame:
    if reader == "CHANGES":
        return spark.sql(f"SELECT * FROM STREAM fluvial.{table.name} CHANGES FROM VERSION 0")
    options = {"warehouse": str(root), "table": table.name, "read.changelog": "true"}
    return spark.readStream.format("fluvial").options(**options).load()


def run(spark: SparkSession, table: Table, root: Path, seconds: float, reader: str) -> Timeline:
    timeline = Timeline()
    write = sink(table)

    def written(frame: DataFrame, batch: int) -> None:
        frame.persist()
        ids = ids_of(frame)  # before: behind the commit it would compete with the reader
        write(frame, batch)
        moment = time.time()
        frame.unpersist()
        if ids is not None:
            with timeline.lock:
                timeline.committed.append((*ids, moment))

    queries = []
    readers = (("reader", reading(spark, table, root, reader), timeline.read), ("writer", changes_of(spark), written))
    for name, frame, function in readers:
        queries.append(started(spark, frame, function, root / "checkpoints" / reader / name))
    until(lambda: bool(timeline.committed and timeline.seen))
    time.sleep(seconds)
    until(lambda: len(timeline.committed) >= LEAST_COMMITS)
    stop(queries[1])
    last = timeline.committed[-1][1]
    until(lambda: timeline.seen[-1][1] >= last)
    timeline.trigger_ms = trigger_ms(queries[0])
    stop(queries[0])
    write.close()
    return timeline


def stop(query: StreamingQuery) -> None:
    """End a query that runs. A batch that this cuts off may fail, which is no error of the query."""
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> None:
    seconds = sized(60.0, quick=20.0, tiny=0.0)
    spark = session("bench", "local[2]", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        options = {"bucket": str(BUCKETS), "log.kafka.bootstrap.servers": broker.bootstrap_servers}
        catalog = Catalog(root)
        install(spark, catalog)
        found: dict[str, Timeline] = {}
        for reader in BUDGETS_MS:
            table = catalog.create_table(f"bench.{reader.lower()}", SCHEMA, primary_key=["id"], options=options)
            found[reader] = run(spark, table, Path(root), seconds, reader)
        bare_ms = bare(spark, Path(root), seconds)
    spark.stop()
    for reader, timeline in found.items():
        show(reader, timeline, bare_ms)


def show(reader: str, timeline: Timeline, bare_ms: dict[str, float]) -> None:
    found = sorted(timeline.latencies())
    commits = [moment for _, _, moment in timeline.committed]
    intervals = [later - earlier for earlier, later in pairwise(commits)]
    budget, budget_p99 = BUDGETS_MS[reader]
    p50_ms, p99_ms = round(statistics.median(found) * 1000), round(found[int(len(found) * 0.99)] * 1000)
    print(
        json.dumps(
            {
                "benchmark": "stream_latency",
                "reader": reader,
                "commit": commit(),
                "machine": machine(),
                "rows": len(found),
                "rows_per_s": ROWS_PER_S,
                "peer": "the writer's own interval between commits",
                "peer_p50_ms": round(statistics.median(intervals) * 1000),
                "p50_ms": p50_ms,
                "p90_ms": round(found[int(len(found) * 0.9)] * 1000),
                "p99_ms": p99_ms,
                "trigger_ms": timeline.trigger_ms,
                "bare_trigger_ms": bare_ms,
                "budget": budget,
                "budget_p99_ms": budget_p99,
                "met": p50_ms <= budget and p99_ms <= budget_p99,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
