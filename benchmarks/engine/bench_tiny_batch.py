"""Latency of micro-batches of 100 rows through both writers, beside a ``foreachBatch`` that only crosses into Python.

``sink`` is ``foreachBatch(sink(table))``, ``format`` is ``writeStream.format("fluvial")``; log off and on.

usage: python -m benchmarks tiny_batch [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.harness import commit, machine, sized
from engine import Catalog, Table, session, sink
from engine.broker.broker import Broker
from engine.spark.session import checkpoint_settings

ROWS = 100
WARM_UP = sized(8, quick=8, tiny=1)
SCHEMA = pa.schema([("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def only_cross(frame: DataFrame, _: int) -> None:
    frame.mapInArrow(count_rows, "rows long").collect()


Write = Callable[[DataStreamWriter], DataStreamWriter]


def trigger_ms(spark: SparkSession, write: Write, checkpoint: str, batches: int) -> list[int]:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    changes = source.selectExpr("value", "timestamp AS at")
    with checkpoint_settings(spark, checkpoint):
        query = write(changes.writeStream).option("checkpointLocation", checkpoint).start()
    found: dict[int, int] = {}
    while len(found) < batches + WARM_UP and query.isActive:
        for progress in query.recentProgress:
            found[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
        time.sleep(0.1)
    query.stop()
    return [ms for batch, ms in sorted(found.items()) if batch >= WARM_UP]


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
        writes: dict[str, Write] = {"floor": lambda stream: stream.foreachBatch(only_cross)}
        for writer in ("sink", "format"):
            for log, options in {"log_off": {}, "log_on": logged}.items():
                name = f"{writer}_{log}"
                table = catalog.create_table(
                    f"bench.{name}", SCHEMA, primary_key=["value"], options={"bucket": "2", **options}
                )
                writes[name] = by_sink(table) if writer == "sink" else by_format(catalog, table)
        ms = {name: trigger_ms(spark, write, f"{root}/checkpoint-{name}", batches) for name, write in writes.items()}
    spark.stop()
    facts = {
        name: {"median_ms": statistics.median(values), "p90_ms": statistics.quantiles(values, n=10)[-1]}
        for name, values in ms.items()
    }
    line = {
        "benchmark": "tiny_batch",
        "commit": commit(),
        "machine": machine(),
        "rows": ROWS,
        "peer": "floor",
        "triggers": facts,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
