"""Tables for the benchmarks of the LSM tree: random rows in overlapping level-0 runs of one bucket."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable

KEYS = ("int", "string")
SEED = 3


def rows_of(kind: str, keys: np.ndarray, random: np.random.Generator) -> pa.Table:
    """Eleven columns, about 100 bytes a row in Arrow."""
    count = len(keys)
    words = pa.array([f"word-{number}" for number in range(10_000)])
    key = (
        pa.array(keys)
        if kind == "int"
        else pa.array([f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in keys.tolist()])
    )
    return pa.table(
        {
            "k": key,
            "i32": random.integers(0, 1000, count).astype(np.int32),
            "i64": random.integers(0, 2**50, count),
            "d1": random.random(count),
            "d2": random.random(count),
            "few": words.take(pa.array(random.integers(0, 20, count))),
            "many": words.take(pa.array(random.integers(0, 10_000, count))),
            "text": pa.array(random.integers(0, 2**62, count)).cast(pa.string()),
            "at": pa.array(random.integers(0, 2**50, count), pa.timestamp("us")),
        }
    )


def table_of_runs(root: Path, *, kind: str, runs: int, rows: int) -> FileTable:
    """A key table with one bucket of overlapping runs of ``rows / runs`` rows, many of them newer versions."""
    random = np.random.default_rng(SEED)
    schema = rows_of(kind, np.arange(1), random).schema
    options = {
        "bucket": "1",
        "write-buffer-size": "4 gb",
        "num-sorted-run.compaction-trigger": "1000",
        "write-only": "true",
    }
    table = FileCatalog(str(root)).create_table(
        f"bench.{kind}{runs}x{rows}", schema, primary_key=["k"], options=options
    )
    for _ in range(runs):
        keys = np.unique(random.integers(0, rows // 2, rows // runs))
        table.write(rows_of(kind, keys, random))
    return table
