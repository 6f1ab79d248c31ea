"""Compactions that write a changelog, beside the same compactions without one.

Three cases: a full compaction of 10 overlapping runs without an earlier changelog, so that every row is emitted; one of
the same rows on top of a compacted level, where most of it are updates; and level 0 with ``lookup``, with old rows
that lie in a level that is not rewritten, beside reading that level. Budget of the first: 1.6 times.
usage: python -m benchmarks changelog [--quick | --tiny]
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of, table_of_runs
from filestore.commit.committable import discard
from filestore.compact.compactor import pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable

BUDGET = 1.6
RUNS = 10
PLAIN = "without a changelog"
BELOW = "read the level below"
FEW = 100  # the rows of a level for one of a commit


def task_of(table: FileTable, *, full: bool) -> CompactionTask:
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), full=full)
    return task


def run(table: FileTable, task: CompactionTask) -> None:
    discard(table.store, [run_task(table.store, task)])


def read_below(table: FileTable, task: CompactionTask) -> None:
    files = BucketFiles(table=table.store, partition=task.partition, bucket=task.bucket, files=task.lookup_files)
    for file in files.files:
        for _ in files.read(file, table.schema.column_names, with_system=True):
            pass


def compare(name: str, table: FileTable, task: CompactionTask, *, rows: int, repeats: int) -> None:
    assert task.known_level is not None
    plain = replace(task, known_level=None, lookup_files=())
    peer, floor = (BELOW, lambda: read_below(table, task)) if task.lookup_files else (PLAIN, lambda: run(table, plain))
    found = measure(f"changelog_{name}", {"fluvial": lambda: run(table, task), peer: floor}, rows=rows, repeats=repeats)
    ratio = round(1 / found.cpu_ratio("fluvial", peer), 2)
    more = {"budget": BUDGET, "met": ratio <= BUDGET} if name == "full" else {}
    print(found.line(peer=peer, runs=len(task.files), cost_to_peer=ratio, **more), flush=True)


def main() -> None:
    rows, repeats = sized((5_000_000, 3), quick=(400_000, 2), tiny=(20_000, 1))
    random = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        made = table_of_runs(Path(root), kind="int", runs=RUNS, rows=rows)
        full = made.with_options({"changelog-producer": "full-compaction"})
        compare("full", full, task_of(full, full=True), rows=rows, repeats=repeats)
        made.compact(full=True)
        for _ in range(RUNS):
            keys = np.unique(random.integers(0, rows // 2, rows // RUNS))
            made.write(rows_of("int", keys, random))
        compare("update", full, task_of(full, full=True), rows=rows, repeats=repeats)
        made.compact(full=True)
        keys = np.unique(random.integers(0, rows // 2, rows // FEW))
        made.write(rows_of("int", keys, random))
        lookup = made.with_options(
            {"changelog-producer": "lookup", "compaction.max-size-amplification-percent": "1000000"}
        )
        compare("lookup", lookup, task_of(lookup, full=False), rows=len(keys), repeats=repeats)


if __name__ == "__main__":
    main()
