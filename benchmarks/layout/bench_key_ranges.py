"""One large bucket read by eight tasks, by ranges of keys, beside one task that reads it whole.

    python -m benchmarks.layout.bench_key_ranges [--quick | --tiny]

Tasks are processes, as Spark's Python workers are. A line for each state: `compacted`, and `updates in one file`, a
later file of level 0 over half of the keys: what overlaps is one range, so half of the bucket is one task's. `ratio` is
of seconds on the clock, on two cores at most 2; `work_ratio` is the processor time of all tasks to that of the one.
`largest` is the part of the rows that one task has: no number of tasks is faster than its inverse.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.pool import Pool

import numpy as np
import pyarrow as pa

from benchmarks.harness import commit, machine, sized
from filestore.catalog.catalog import FileCatalog
from filestore.read.split_read import read_split
from filestore.table import FileTable

TASKS = 8
BUDGET = 1.6
COMPACTED = "compacted"
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "a", "b")] + [("v", pa.string())])


def rows(ids: np.ndarray, seed: int) -> pa.Table:  # type: ignore[type-arg]
    random = np.random.default_rng(seed)
    numbers = [random.integers(0, 1 << 40, len(ids)) for _ in range(2)]
    texts = pa.array([f"text-{number:06}" for number in range(10_000)]).take(
        pa.array(random.integers(0, 10_000, len(ids)))
    )
    return pa.table([pa.array(ids), *map(pa.array, numbers), texts], schema=SCHEMA)


def filled(root: str, count: int) -> None:
    """The compacted bucket, in ranges of about a sixteenth."""
    options = {"bucket": "1", "write-only": "true", "target-file-size": "2 mb"}
    options |= {"source.split.target-size": f"{count} b", "source.split.open-file-cost": "1 b"}
    table = FileCatalog(root).create_table("bench.t", SCHEMA, primary_key=["id"], options=options)
    step = max(count // 8, 1)
    for start in range(0, count, step):
        table.write(rows(np.arange(start, start + step), start))
    FileTable.open(table.name, table.store.paths.root, options={"write-only": "false"}).compact(full=True)


def read_part(root: str, part: int, parts: int) -> tuple[int, float]:
    """Rows of every so many-th split, and the processor time that it took."""
    began = time.process_time()
    table = FileCatalog(root).table("bench.t")
    target = {} if parts > 1 else {"source.split.target-size": "1 tb"}
    opened = FileTable.open(table.name, table.store.paths.root, options=target)
    splits = opened.read().plan().splits[part::parts]
    found = sum(batch.num_rows for split in splits for batch in read_split(opened, split))
    return found, time.process_time() - began


def timed(root: str, pool: Pool, parts: int) -> tuple[float, float, int]:
    began = time.perf_counter()
    found = pool.starmap(read_part, [(root, part, parts) for part in range(parts)], chunksize=1)
    return time.perf_counter() - began, sum(cpu for _, cpu in found), sum(count for count, _ in found)


def line(root: str, pool: Pool, state: str, count: int, repeats: int) -> str:
    """Both ways in turns, in one state."""
    kinds = {TASKS: "many", 1: "one"}
    seconds: dict[str, list[float]] = {name: [] for name in kinds.values()}
    work: dict[str, list[float]] = {name: [] for name in kinds.values()}
    counts = set()
    for turn in range(repeats + 1):  # the first warms up
        for parts, name in kinds.items():
            elapsed, cpu, found = timed(root, pool, parts)
            counts.add(found)
            if turn:
                seconds[name].append(elapsed)
                work[name].append(cpu)
    splits = [split.row_count for split in FileCatalog(root).table("bench.t").read().plan().splits]
    largest = round(max(splits) / sum(splits), 2)
    ratio = median_ratio(seconds["one"], seconds["many"])
    facts = {
        "benchmark": "key_ranges",
        "state": state,
        "commit": commit(),
        "machine": machine(),
        "rows": count,
        "peer": "one task",
        "tasks": TASKS,
        "splits": len(splits),
        "largest": largest,
        "ratio": ratio,
        "work_ratio": median_ratio(work["many"], work["one"]),
        "seconds_of_tasks": {name: [round(each, 3) for each in values] for name, values in seconds.items()},
        "rows_agree": len(counts) == 1,
    }
    if state == COMPACTED:
        facts |= {"budget": BUDGET, "met": "--tiny" in sys.argv[1:] or ratio >= BUDGET}
    return json.dumps(facts)


def main() -> None:
    count, repeats = sized((8_000_000, 5), quick=(2_000_000, 3), tiny=(4_000, 1))
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, context.Pool(cores) as pool:
        filled(root, count)
        print(line(root, pool, COMPACTED, count, repeats), flush=True)
        FileCatalog(root).table("bench.t").write(rows(np.arange(0, count // 2, 50), 1))
        print(line(root, pool, "updates in one file", count, repeats), flush=True)


def median_ratio(one: list[float], other: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(one, other, strict=True)), 2)


if __name__ == "__main__":
    main()
