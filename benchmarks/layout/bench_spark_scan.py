"""Merge reads in Spark beside Spark's own scan of the same raw files: wide tables, long texts, deletion vectors.

``Table.dataframe`` of a compacted table, and of one in which one row in 22 was replaced since, with deletion vectors:
of 60 columns three are read; of texts of 1 kB the lengths; seven columns whole. The peer is ``spark.read.parquet`` of
the files of the snapshot, which gives replaced rows too. Budget: 1.1 times its time on the clock, for each; beside it
processor time of all processes, which is steadier on a busy machine, and what Spark takes if a query only asks for the
number of each row (``numbered_to_parquet``), without which it cannot drop any.

usage: python -m benchmarks spark_scan [--quick | --tiny]
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.engine.bench_tiny_batch import cpu_ms
from benchmarks.harness import commit, machine, sized
from engine import Catalog, Table, session
from engine.types.spark_types import spark_schema

BUDGET = 1.1
PEER = "spark.read.parquet of the raw files"
COLUMNS = 60
RUNS, PART = 4, 20  # of so many rows one is replaced
MARKS = {
    "deletion-vectors.enabled": "true",
    "compaction.max-size-amplification-percent": "1000000",
    "num-sorted-run.compaction-trigger": "10",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of rows, and what is read of them."""

    rows_of: Callable[[np.ndarray, np.random.Generator], pa.Table]
    read: Callable[[DataFrame], DataFrame]
    share: int  # of the rows of a run


def wide(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    values = {f"c{number}": random.integers(0, 1000, len(ids)) for number in range(COLUMNS - 1)}
    return pa.table({"id": ids, **values})


def long(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    letters = random.integers(97, 123, len(ids) * 1000, np.uint8).tobytes()
    offsets = pa.py_buffer(np.arange(0, len(letters) + 1, 1000, np.int32))
    texts = pa.StringArray.from_buffers(len(ids), offsets, pa.py_buffer(letters))
    return pa.table({"id": ids, "text": texts, "v": random.random(len(ids))})


def narrow(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    numbers = {f"v{number}": random.integers(0, 10**9, len(ids)) for number in range(4)}
    texts = {f"t{number}": pa.array(random.integers(0, 10**6, len(ids)).astype(str)) for number in range(2)}
    return pa.table({"id": ids, **numbers, **texts})


def three(frame: DataFrame) -> DataFrame:
    return frame.agg(F.sum("c1"), F.max("c30"), F.avg("c58"))


def lengths(frame: DataFrame) -> DataFrame:
    return frame.agg(F.sum(F.length("text")), F.max("v"))


def seven(frame: DataFrame) -> DataFrame:
    return frame.agg(*(F.max(name) for name in frame.columns))


CASES: Mapping[str, Case] = {
    "60 columns": Case(rows_of=wide, read=three, share=1),
    "1 kB texts": Case(rows_of=long, read=lengths, share=8),
    "7 columns": Case(rows_of=narrow, read=seven, share=1),
}


def filled(root: str, name: str, case: Case, rows: int, options: Mapping[str, str]) -> Table:
    """All rows compacted; with deletion vectors, over them a part in a few runs, which are looked up and marked."""
    random = np.random.default_rng(11)
    schema = case.rows_of(np.arange(1), random).schema
    given = {"bucket": "2", "write-only": "true", **options}
    table = Catalog(root).create_table(name, schema, primary_key=["id"], options=given)
    for first in range(0, rows, 250_000):
        table.write(case.rows_of(np.arange(first, min(first + 250_000, rows)), random))
    table.compact(full=True)
    for number in range(RUNS if options else 0):
        count = max(rows // PART // 2 ** (number + 1), 1)
        table.write(case.rows_of(np.unique(random.integers(0, rows, count)), random))
        table.compact()
    return table


def raw(spark: SparkSession, table: Table) -> DataFrame:
    store = table.store
    files = [
        store.file_path(split.partition, split.bucket, file)
        for split in table.read().plan().splits
        for file in split.files
    ]
    return spark.read.schema(spark_schema(table.schema.fields)).parquet(*files)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the clock, and of all processes."""
    start, spent = time.perf_counter(), cpu_ms()
    work()
    return time.perf_counter() - start, max(cpu_ms() - spent, 0.0) / 1000


def measured(spark: SparkSession, table: Table, case: Case, repeats: int, warm_ups: int) -> dict[str, object]:
    work = {
        "fluvial": lambda: case.read(table.dataframe(spark)).collect(),
        PEER: lambda: case.read(raw(spark, table)).collect(),
        "numbered": lambda: case.read(raw(spark, table).where("_metadata.row_index >= 0")).collect(),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for turn in range(warm_ups + repeats):
        for name, each in work.items():
            times = timed(each)
            if turn >= warm_ups:
                found[name].append(times)

    def cost_of(name: str, at: int) -> float:
        pairs = zip(found[name], found[PEER], strict=True)
        return round(statistics.median(own[at] / max(other[at], 1e-3) for own, other in pairs), 2)

    cost = cost_of("fluvial", 0)
    medians = {
        name: [round(statistics.median(part), 3) for part in zip(*times, strict=True)] for name, times in found.items()
    }
    facts = {"cost_to_parquet": cost, "cpu_cost_to_parquet": cost_of("fluvial", 1)}
    facts["numbered_to_parquet"] = cost_of("numbered", 0)
    return {**facts, "seconds_and_cpu_seconds": medians, "budget": BUDGET, "met": cost <= BUDGET}


def main() -> None:
    rows, repeats, warm_ups = sized((4_000_000, 7, 3), quick=(200_000, 5, 2), tiny=(2_000, 1, 0))
    spark = session("bench", "local[2]", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        for kind, options in {"": {}, ", deletion vectors": MARKS}.items():
            for number, (name, case) in enumerate(CASES.items()):
                table = filled(root, f"bench.t{number}{len(options)}", case, rows // case.share, options)
                figures[f"{name}{kind}"] = measured(spark, table, case, repeats, warm_ups)
    spark.stop()
    line = {"benchmark": "spark_scan", "commit": commit(), "machine": machine(), "rows": rows, "peer": PEER}
    print(json.dumps({**line, **figures}))


if __name__ == "__main__":
    main()
