"""A write of many small buckets: 100,000 rows into 1,000 partitions of one bucket, which is 1,000 files.

Beside it the same files written by Arrow alone: sorted parts of the rows, each into a synced file in a new directory.
Budget: a second on the clock, for two cores.

usage: python -m benchmarks many_buckets [--quick | --tiny]
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import measure, sized
from filestore.catalog.catalog import FileCatalog

PEER: Final = "Arrow alone"
BUDGET: Final = 1.0


def rows_of(count: int, partitions: int) -> pa.Table:
    random = np.random.default_rng(17)
    texts = pa.array([f"text {number}" for number in range(977)])
    return pa.table(
        {
            "dt": pa.array([f"p{number:05d}" for number in random.integers(0, partitions, count).tolist()]),
            "id": pa.array(np.arange(count)),
            "v": pa.array(random.random(count)),
            "text": texts.take(pa.array(random.integers(0, len(texts), count))),
        }
    )


def write_table(root: str, rows: pa.Table) -> None:
    table = FileCatalog(root).create_table(
        "bench.t", rows.schema, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "1"}
    )
    table.write(rows)


def write_files(root: str, rows: pa.Table) -> None:
    ordered = rows.sort_by([("dt", "ascending"), ("id", "ascending")])
    counts = ordered.group_by("dt", use_threads=False).aggregate([("id", "count")])["id_count"].to_pylist()
    first = 0
    for number, count in enumerate(counts):
        directory = Path(root) / str(number)
        directory.mkdir()
        with (directory / "data.parquet").open("wb") as sink:
            pq.write_table(ordered.slice(first, count), sink, compression="zstd")
            sink.flush()
            os.fsync(sink.fileno())
        first += count


def main() -> None:
    (count, partitions), repeats = sized(((100_000, 1000), 5), quick=((100_000, 1000), 2), tiny=((1000, 10), 1))
    rows = rows_of(count, partitions)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:

        def empty() -> None:
            shutil.rmtree(root)
            Path(root).mkdir()

        variants = {"write": lambda: write_table(root, rows), PEER: lambda: write_files(root, rows)}
        found = measure("many_buckets", variants, rows=count, repeats=repeats, before_each=empty)
        seconds = sorted(found.seconds["write"])[repeats // 2 if len(found.seconds["write"]) > 1 else 0]
        cpu_seconds = {name: [round(value, 3) for value in values] for name, values in found.cpu_seconds.items()}
        facts = {"buckets": partitions, "cpu_seconds": cpu_seconds}
        print(found.line(peer=PEER, budget=BUDGET, met=seconds <= BUDGET, **facts), flush=True)


if __name__ == "__main__":
    main()
