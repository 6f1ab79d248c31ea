"""The snapshot phase of a stream beside a batch read of the same rows, both through ``format("fluvial")``.

The first micro-batch of ``readStream`` delivers the whole table into ``foreachBatch``, where it is aggregated; the
peer is ``spark.read`` of the same columns, ``_row_kind`` among them, with the same aggregate. Query start and
checkpoint are not counted. Budget: 1.2 times the peer. The line also has the cost beside a batch read without
``_row_kind``: Spark turns every column of a Python source into rows, whether the query looks at it or not.

usage: python -m benchmarks stream_snapshot [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import commit, machine, peak_memory_bytes, sized
from benchmarks.lsm_tables import table_of_runs
from engine import session

BUDGET = 1.2
KINDS = {"read.changelog": "true"}
_numbers = count()


def aggregate(frame: DataFrame) -> None:
    frame.agg(F.count("*"), F.sum(F.col("i64").cast("double")), F.max("many"), F.avg("d1")).collect()


def timed_batch(spark: SparkSession, options: dict[str, str]) -> float:
    start = time.perf_counter()
    aggregate(spark.read.format("fluvial").options(**options).load())
    return time.perf_counter() - start


def timed_stream(spark: SparkSession, options: dict[str, str], root: Path, rows: int) -> float:
    """Seconds of the micro-batches that delivered rows, planning included."""
    spent: list[float] = []

    def take(frame: DataFrame, _batch: int) -> None:
        aggregate(frame)

    stream = spark.readStream.format("fluvial").options(**options).load()
    checkpoint = str(root / f"checkpoint-{next(_numbers)}")
    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress: Any = query.recentProgress
    assert sum(each["numInputRows"] for each in progress) == rows, [each["numInputRows"] for each in progress]
    for each in progress:
        if each["numInputRows"]:
            times = each["durationMs"]
            spent.append((times["addBatch"] + times.get("queryPlanning", 0)) / 1000)
    return sum(spent)


def ratio(found: dict[str, list[float]], peer: str) -> float:
    """Median of the stream's time to that of the read beside it."""
    return round(statistics.median(a / b for a, b in zip(found["fluvial stream"], found[peer], strict=True)), 2)


def main() -> None:
    rows, repeats, warm_ups = sized((12_000_000, 5, 1), quick=(400_000, 3, 1), tiny=(5_000, 1, 0))
    conf = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.memory": "4g"}
    spark = session("bench", "local[2]", conf)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        made = table_of_runs(Path(root), kind="int", runs=5, rows=rows)
        options = {"warehouse": root, "table": made.name}
        live = spark.read.format("fluvial").options(**options).load().count()
        found: dict[str, list[float]] = {"fluvial stream": [], "fluvial batch": [], "without kinds": []}
        for turn in range(warm_ups + repeats):
            seconds = {
                "without kinds": timed_batch(spark, options),
                "fluvial batch": timed_batch(spark, options | KINDS),
                "fluvial stream": timed_stream(spark, options | KINDS, Path(root), live),
            }
            if turn >= warm_ups:
                for name, value in seconds.items():
                    found[name].append(value)
    spark.stop()
    cost = ratio(found, "fluvial batch")
    line = {
        "benchmark": "stream_snapshot",
        "commit": commit(),
        "machine": machine(),
        "rows": live,
        "peer": "fluvial batch",
        "cost_to_floor": cost,
        "cost_without_kinds": ratio(found, "without kinds"),
        "round_seconds": {name: [round(value, 3) for value in values] for name, values in found.items()},
        "peak_memory_bytes": peak_memory_bytes(),
        "budget": BUDGET,
        "met": cost <= BUDGET,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
