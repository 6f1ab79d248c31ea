"""Merge read: overlapping runs of one bucket, beside streaming the same files without merging through the same reader.

Budgets at 10 runs: 1.6 times the floor for int keys, 2.2 times for string keys; at most 350 MB, whatever the rows.

usage: python -m benchmarks merge_read [--quick | --tiny]
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement, measure, run_in_child, sized
from benchmarks.lsm_tables import KEYS, table_of_runs
from filestore.read.split_read import BucketFiles, read_split
from filestore.scan.data_split import DataSplit
from filestore.table import FileTable

BUDGETS = {("int", 10): 1.6, ("string", 10): 2.2}
MEMORY_BUDGET = 350 * 2**20


def splits_of(table: FileTable) -> tuple[DataSplit, ...]:
    return table.read().plan().splits


def merged(table: FileTable) -> int:
    return sum(batch.num_rows for split in splits_of(table) for batch in read_split(table, split))


def streamed(table: FileTable) -> int:
    rows = 0
    for split in splits_of(table):
        files = BucketFiles(table=table.store, partition=split.partition, bucket=split.bucket, files=split.files)
        for file in split.files:
            rows += sum(batch.num_rows for batch in files.read(file, table.schema.column_names, with_system=True))
    return rows


def merge_in_child(root: str, kind: str, runs: int, rows: int) -> int:
    """Reads a table that exists; in a process of its own."""
    return merged(FileTable.open("bench.t", f"{root}/bench.db/{kind}{runs}x{rows}"))


def main() -> None:
    rows, repeats = sized((5_000_000, 5), quick=(400_000, 2), tiny=(4_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        for kind in KEYS:
            for runs in sized((2, 10, 50), quick=(2, 10, 50), tiny=(10,)):
                table = table_of_runs(Path(root), kind=kind, runs=runs, rows=rows)
                small = table_of_runs(Path(root), kind=kind, runs=runs, rows=rows // 4)
                found = measure("merge_read", variants(table), rows=streamed(table), repeats=repeats)
                memory = [
                    run_in_child(merge_in_child, root, kind, runs, n).peak_memory_bytes for n in (rows // 4, rows)
                ]
                print(found.line(peer=FLOOR, **facts(found, kind, runs, memory)), flush=True)
                del table, small


FLOOR = "stream the files"


def variants(table: FileTable) -> dict[str, Callable[[], object]]:
    return {"fluvial": lambda: merged(table), FLOOR: lambda: streamed(table)}


def facts(found: Measurement, kind: str, runs: int, memory: list[int]) -> dict[str, Any]:
    cost = round(1 / found.cpu_ratio("fluvial", FLOOR), 2)
    line: dict[str, Any] = {"keys": kind, "runs": runs, "cost_to_floor": cost, "peak_memory_quarter_and_whole": memory}
    if (kind, runs) in BUDGETS:
        budget = BUDGETS[kind, runs]
        line |= {
            "budget": budget,
            "met": cost <= budget,
            "memory_budget": MEMORY_BUDGET,
            "memory_met": memory[1] <= MEMORY_BUDGET,
        }
    return line


if __name__ == "__main__":
    main()
