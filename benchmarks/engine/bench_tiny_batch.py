"""Latency of micro-batches of 100 rows through both writers, beside a ``foreachBatch`` that does nothing.

``sink`` is ``foreachBatch(sink(table))``, ``format`` is ``writeStream.format("fluvial")``; log off and on; ``crossing``
is a function that takes the rows to a Python worker and keeps nothing. Besides the trigger's time, which needs a quiet
machine: processor time of a batch in all processes, the broker among them. Budgets: 60 and 80 ms beyond the floor.

usage: python -m benchmarks tiny_batch [--quick | --tiny]
"""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.harness import commit, machine, sized
from engine import Catalog, Table, session, sink
from engine.broker.broker import Broker
from engine.spark.session import checkpoint_settings

ROWS = 100
BUDGETS_MS = {"log_off": 60, "log_on": 80}
WARM_UP = sized(8, quick=8, tiny=1)
SCHEMA = pa.schema([("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def nothing(_: DataFrame, __: int) -> None:
    """Spark's own trigger: offsets and commits of the checkpoint, a plan that nobody runs."""


def only_cross(frame: DataFrame, _: int) -> None:
    frame.mapInArrow(count_rows, "rows long").collect()


Write = Callable[[DataStreamWriter], DataStreamWriter]


@dataclass(frozen=True, slots=True)
class Triggers:
    """Those of one writer, behind the warm-up."""

    ms: list[int]
    cpu_ms: float  # of one, in all processes

    def facts(self, floor: "Triggers", budget_ms: int | None) -> dict[str, Any]:
        """Figures of the line; without a budget there is nothing to meet."""
        found: dict[str, Any] = {
            "median_ms": statistics.median(self.ms),
            "p90_ms": statistics.quantiles(self.ms, n=10)[-1],
            "cpu_ms": round(self.cpu_ms, 1),
        }
        if budget_ms is not None:
            beyond = statistics.median(self.ms) - statistics.median(floor.ms)
            found |= {"beyond_floor_ms": max(0.0, beyond), "budget": budget_ms, "met": beyond <= budget_ms}
        return found


def cpu_ms() -> float:
    """Processor time of this process and all below it until now."""
    seconds, waiting = 0.0, [psutil.Process()]
    while waiting:
        process = waiting.pop()
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
            waiting += process.children()
    return 1000 * seconds


def triggers(spark: SparkSession, write: Write, checkpoint: str, batches: int) -> Triggers:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    changes = source.selectExpr("value", "timestamp AS at")
    with checkpoint_settings(spark, checkpoint):
        query = write(changes.writeStream).option("checkpointLocation", checkpoint).start()
    found: dict[int, int] = {}
    warm: tuple[int, float] | None = None
    while len(found) < batches + WARM_UP and query.isActive:
        for progress in query.recentProgress:
            found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        if warm is None and len(found) >= WARM_UP:
            warm = len(found), cpu_ms()
        time.sleep(0.1)
    assert warm is not None, query.exception()
    spent = (cpu_ms() - warm[1]) / max(1, len(found) - warm[0])
    query.stop()
    return Triggers([ms for batch, ms in sorted(found.items()) if batch >= WARM_UP], spent)


def by_sink(table: Table) -> Write:
    return lambda stream: stream.foreachBatch(sink(table))


def by_format(catalog: Catalog, table: Table) -> Write:
    return lambda stream: stream.format("fluvial").options(warehouse=catalog.warehouse, table=table.name)


def main() -> None:
    batches = sized(60, quick=10, tiny=2)
    conf = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}
    spark = session("bench", "local[2]", conf)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        catalog = Catalog(f"{root}/warehouse")
        logged = {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
        writes: dict[str, Write] = {
            "floor": lambda stream: stream.foreachBatch(nothing),
            "crossing": lambda stream: stream.foreachBatch(only_cross),
        }
        budgets: dict[str, int] = {}
        for writer in ("sink", "format"):
            for log, options in {"log_off": {}, "log_on": logged}.items():
                name = f"{writer}_{log}"
                budgets[name] = BUDGETS_MS[log]
                table = catalog.create_table(
                    f"bench.{name}", SCHEMA, primary_key=["value"], options={"bucket": "2", **options}
                )
                writes[name] = by_sink(table) if writer == "sink" else by_format(catalog, table)
        found = {name: triggers(spark, write, f"{root}/checkpoint-{name}", batches) for name, write in writes.items()}
    spark.stop()
    facts = {name: each.facts(found["floor"], budgets.get(name)) for name, each in found.items()}
    line = {
        "benchmark": "tiny_batch",
        "commit": commit(),
        "machine": machine(),
        "rows": ROWS,
        "peer": "foreachBatch with an empty function",
        **facts,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
