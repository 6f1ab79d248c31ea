"""Scans of a table in which one row in 20 was replaced since it was compacted, and what the marks cost a compaction.

Three ways to have the same rows: marks (deletion vectors), merging while reading, and the raw files with the rows of
all runs, which is the floor. Then the compaction of the last replaced rows: it looks for their keys in the levels
below, which is all that it costs where the same one without marks only moves a file; beside reading these keys.
usage: python -m benchmarks deletion_vectors [--quick | --tiny]
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import discard
from filestore.compact.compactor import pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable

RUNS = 4
PART = 20  # of so many rows one is replaced
MERGED, FLOOR, BELOW = "merge while reading", "raw files", "read the keys below"
APART = {"compaction.max-size-amplification-percent": "1000000", "num-sorted-run.compaction-trigger": "10"}
MARKS = {"deletion-vectors.enabled": "true"}


def filled(root: Path, rows: int, options: dict[str, str]) -> FileTable:
    """All rows on the top level, and over them a part in a few runs, each on a level of its own."""
    random = np.random.default_rng(SEED)
    schema = rows_of("int", np.arange(1), random).schema
    given = {"bucket": "1", "write-buffer-size": "4 gb", "write-only": "true", **APART, **options}
    table = FileCatalog(str(root)).create_table("bench.t", schema, primary_key=["k"], options=given)
    table.write(rows_of("int", np.arange(rows), random))
    table.compact(full=True)
    for number in range(RUNS):
        count = max(rows // PART // 2 ** (number + 1), 1)  # smaller and smaller, so that none takes the one before
        table.write(rows_of("int", np.unique(random.integers(0, rows, count)), random))
        if number + 1 < RUNS and options:
            table.compact()
    return table


def scan(table: FileTable) -> int:
    return sum(batch.num_rows for batch in table.read().to_batches())


def scan_raw(table: FileTable) -> int:
    live = LiveFiles.latest(table.store)
    found = 0
    for key in live.buckets():
        for file in live.files(key):
            path = table.store.file_path(key.partition, key.bucket, file)
            source = pq.ParquetFile(path)
            for batch in source.iter_batches(65_536, columns=table.schema.column_names, use_threads=False):
                found += batch.num_rows
    return found


def compact(table: FileTable, task: CompactionTask) -> None:
    discard(table.store, [run_task(table.store, task)])


def read_keys(table: FileTable, task: CompactionTask) -> None:
    files = BucketFiles(table=table.store, partition=task.partition, bucket=task.bucket, files=task.lookup_files)
    for file in files.files:
        for _ in files.read(file, ["k"], with_system=False):
            pass


def main() -> None:
    rows, repeats = sized((5_000_000, 5), quick=(500_000, 3), tiny=(20_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        marked = filled(Path(root, "marked"), rows, MARKS)
        merged = filled(Path(root, "merged"), rows, {})
        [task] = pick_tasks(marked.store, LiveFiles.latest(marked.store))
        cost = measure(
            "deletion_vectors_compact",
            {"fluvial": lambda: compact(marked, task), BELOW: lambda: read_keys(marked, task)},
            rows=sum(file.row_count for file in task.lookup_files),
            repeats=repeats,
        )
        marked.compact()
        variants = {"fluvial": lambda: scan(marked), MERGED: lambda: scan(merged), FLOOR: lambda: scan_raw(marked)}
        assert scan(marked) == scan(merged) == rows
        found = measure("deletion_vectors_scan", variants, rows=rows, repeats=repeats)
        print(found.line(peer=MERGED, runs=RUNS, floor_ratio=round(found.cpu_ratio("fluvial", FLOOR), 2)), flush=True)
        new = sum(file.row_count for file in task.files)
        ratio = round(1 / cost.cpu_ratio("fluvial", BELOW), 2)
        print(cost.line(peer=BELOW, new_rows=new, cost_to_peer=ratio), flush=True)


if __name__ == "__main__":
    main()
