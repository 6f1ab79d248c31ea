"""Merge engines: 10 overlapping runs of one bucket read with each engine, beside streaming the same files unmerged.

The rows of ``merge_read``: an int key and eight columns, each with a function of its own in aggregation, a third of
their values null in partial-update. Budgets in processor time, times the floor: deduplicate 1.9, partial-update 2.9,
aggregation 2.6.

usage: python -m benchmarks engines [--quick | --tiny]
"""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.filestore.bench_merge_read import FLOOR
from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of
from filestore.catalog.catalog import FileCatalog
from filestore.read.split_read import BucketFiles, read_split
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable

RUNS = 10
BUDGETS = {"deduplicate": 1.9, "partial-update": 2.9, "aggregation": 2.6}
FUNCTIONS = {
    "i32": "count", "i64": "max", "d1": "sum", "d2": "min", "few": "last_non_null_value", "many": "first_value",
    "text": "last_value", "at": "max",
}  # fmt: skip
ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "first-row": {},
    "partial-update": {},
    "aggregation": {f"fields.{name}.aggregate-function": function for name, function in FUNCTIONS.items()},
}
NULL_RATIO = 1 / 3  # of the values that a partial update leaves as they were


def some_null(rows: pa.Table, random: np.random.Generator) -> pa.Table:
    columns = [
        column.combine_chunks().take(pa.array(np.arange(len(rows)), mask=random.random(len(rows)) < NULL_RATIO))
        for column in rows.columns[1:]
    ]
    return pa.table([rows.column(0), *columns], names=rows.column_names)


def table_of(root: Path, engine: str, rows: int) -> FileTable:
    random = np.random.default_rng(SEED)
    options = {
        "bucket": "1",
        "merge-engine": engine,
        "write-buffer-size": "4 gb",
        "num-sorted-run.compaction-trigger": "1000",
        "write-only": "true",
    }
    table = FileCatalog(str(root)).create_table(
        f"bench.{engine}",
        rows_of("int", np.arange(1), random).schema,
        primary_key=["k"],
        options=options | dict(ENGINES[engine]),
    )
    for _ in range(RUNS):
        keys = np.unique(random.integers(0, rows // 2, rows // RUNS))
        rows_of_run = rows_of("int", keys, random)
        table.write(some_null(rows_of_run, random) if engine == "partial-update" else rows_of_run)
    return table


def merged(table: FileTable) -> int:
    """All levels: of first-row, a reader would wait for the compaction that does the same."""
    splits = TableScan(table.store, all_levels=True).plan().splits
    return sum(batch.num_rows for split in splits for batch in read_split(table, split))


def streamed(table: FileTable) -> int:
    rows = 0
    for split in TableScan(table.store, all_levels=True).plan().splits:
        files = BucketFiles(table=table.store, partition=split.partition, bucket=split.bucket, files=split.files)
        for file in split.files:
            rows += sum(batch.num_rows for batch in files.read(file, table.schema.column_names, with_system=True))
    return rows


def main() -> None:
    rows, repeats = sized((5_000_000, 5), quick=(1_000_000, 2), tiny=(4_000, 1))
    for engine in ENGINES:
        with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
            table = table_of(Path(root), engine, rows)
            variants = {"fluvial": partial(merged, table), FLOOR: partial(streamed, table)}
            found = measure("engines", variants, rows=streamed(table), repeats=repeats)
            cost = round(1 / found.cpu_ratio("fluvial", FLOOR), 2)
            budget = {"budget": BUDGETS[engine], "met": cost <= BUDGETS[engine]} if engine in BUDGETS else {}
            print(found.line(peer=FLOOR, state=engine, runs=RUNS, cost_to_floor=cost, **budget), flush=True)


if __name__ == "__main__":
    main()
