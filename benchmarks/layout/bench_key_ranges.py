"""One large bucket read by eight tasks, by ranges of keys, beside one task that reads it whole.

    python -m benchmarks.layout.bench_key_ranges [--quick | --tiny]

Tasks are processes, as Spark's Python workers are; the plan is made once, and its splits are sent to them. A line for
each state: `compacted`, `updates in one file` (a later file of level 0 over half of the keys) and `overlapping runs`
(five, each over all keys). `ratio` is of seconds on the clock with the plan, on two cores at most 2; `work_ratio` is of
the processor time of all tasks and of the one; `ratio_by_processor` is of the one and of the busier of two cores that
take the tasks in turn: the ratio where nothing else runs, without the plan.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.pool import Pool

import numpy as np
import pyarrow as pa

from benchmarks.harness import commit, machine, sized
from filestore.catalog.catalog import FileCatalog
from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable

TASKS = 8
BUDGET = 1.6
COMPACTED = "compacted"
RUNS = 5
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "a", "b")] + [("v", pa.string())])


def rows(ids: np.ndarray, seed: int) -> pa.Table:  # type: ignore[type-arg]
    random = np.random.default_rng(seed)
    numbers = [random.integers(0, 1 << 40, len(ids)) for _ in range(2)]
    texts = pa.array([f"text-{number:06}" for number in range(10_000)]).take(
        pa.array(random.integers(0, 10_000, len(ids)))
    )
    return pa.table([pa.array(ids), *map(pa.array, numbers), texts], schema=SCHEMA)


def filled(root: str, count: int) -> None:
    """The compacted bucket, in ranges of about an eighth."""
    options = {"bucket": "1", "write-only": "true", "target-file-size": "2 mb"}
    options |= {"source.split.target-size": f"{2 * count} b", "source.split.open-file-cost": "1 b"}
    table = FileCatalog(root).create_table("bench.t", SCHEMA, primary_key=["id"], options=options)
    step = max(count // 8, 1)
    for start in range(0, count, step):
        table.write(rows(np.arange(start, start + step), start))
    FileTable.open(table.name, table.store.paths.root, options={"write-only": "false"}).compact(full=True)


def read_splits(root: str, splits: Sequence[DataSplit]) -> tuple[int, float]:
    """Rows of some splits, and the processor time that it took."""
    began = time.process_time()
    table = FileCatalog(root).table("bench.t")
    found = sum(batch.num_rows for split in splits for batch in read_split(table, split))
    return found, time.process_time() - began


def planned(root: str, parts: int) -> list[list[DataSplit]]:
    """The splits of each task, alike in bytes."""
    table = FileCatalog(root).table("bench.t")
    if parts == 1:
        return [list(TableScan(table.store).plan().splits)]
    tasks: list[list[DataSplit]] = [[] for _ in range(parts)]
    for split in sorted(table.read().plan().splits, key=lambda each: -each.size_bytes):
        min(tasks, key=split_sizes).append(split)
    return tasks


def split_sizes(splits: Sequence[DataSplit]) -> int:
    return sum(split.size_bytes for split in splits)


def timed(root: str, pool: Pool, parts: int) -> tuple[float, list[float], int]:
    began = time.perf_counter()
    found = pool.starmap(read_splits, [(root, splits) for splits in planned(root, parts)], chunksize=1)
    return time.perf_counter() - began, [cpu for _, cpu in found], sum(count for count, _ in found)


def on_two_cores(work: Sequence[float]) -> float:
    """Seconds until tasks are done that two cores take in turn."""
    cores = [0.0, 0.0]
    for each in work:
        cores[cores.index(min(cores))] += each
    return max(cores)


def line(root: str, pool: Pool, state: str, count: int, repeats: int) -> str:
    """Both ways in turns, in one state."""
    kinds = {TASKS: "many", 1: "one"}
    seconds: dict[str, list[float]] = {name: [] for name in kinds.values()}
    work: dict[str, list[float]] = {name: [] for name in kinds.values()}
    alone: list[float] = []
    counts = set()
    for turn in range(repeats + 1):  # the first warms up
        for parts, name in kinds.items():
            elapsed, cpu, found = timed(root, pool, parts)
            counts.add(found)
            if turn:
                seconds[name].append(elapsed)
                work[name].append(sum(cpu))
            if turn and parts > 1:
                alone.append(on_two_cores(cpu))
    splits = [split.row_count for split in FileCatalog(root).table("bench.t").read().plan().splits]
    ratio, by_processor = median_ratio(seconds["one"], seconds["many"]), median_ratio(work["one"], alone)
    return json.dumps(
        {
            "benchmark": "key_ranges",
            "state": state,
            "commit": commit(),
            "machine": machine(),
            "rows": count,
            "peer": "one task",
            "tasks": TASKS,
            "splits": len(splits),
            "largest": round(max(splits) / sum(splits), 2),
            "ratio": ratio,
            "ratio_by_processor": by_processor,
            "work_ratio": median_ratio(work["many"], work["one"]),
            "seconds_of_tasks": {name: [round(each, 3) for each in values] for name, values in seconds.items()},
            "rows_agree": len(counts) == 1,
            "budget": BUDGET,
            "met": "--tiny" in sys.argv[1:] or min(ratio, by_processor) >= BUDGET,
        }
    )


def main() -> None:
    count, repeats = sized((8_000_000, 5), quick=(2_000_000, 3), tiny=(4_000, 1))
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, context.Pool(cores) as pool:
        filled(root, count)
        print(line(root, pool, COMPACTED, count, repeats), flush=True)
        FileCatalog(root).table("bench.t").write(rows(np.arange(0, count // 2, 50), 1))
        print(line(root, pool, "updates in one file", count, repeats), flush=True)
        for run in range(1, RUNS):
            FileCatalog(root).table("bench.t").write(rows(np.arange(run, count, RUNS), run))
        print(line(root, pool, "overlapping runs", count, repeats), flush=True)


def median_ratio(one: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)


if __name__ == "__main__":
    main()
