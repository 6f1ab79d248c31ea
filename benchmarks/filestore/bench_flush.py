"""Flush: rows as they arrive to a sorted level-0 file, beside writing the same sorted rows with pyarrow alone.

usage: python -m benchmarks flush [--quick | --tiny]
"""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import KEYS, SEED, rows_of
from filestore.catalog.catalog import FileCatalog

FLOOR = "pq.write_table of the sorted rows"


def main() -> None:
    sizes = sized((10_000, 100_000, 1_000_000), quick=(10_000, 100_000), tiny=(1_000,))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        for kind in KEYS:
            for size in sizes:
                random = np.random.default_rng(SEED)
                rows = rows_of(kind, random.integers(0, size, size), random)
                options = {"bucket": "1", "write-buffer-size": "4 gb"}
                table = FileCatalog(root).create_table(
                    f"bench.{kind}{size}", rows.schema, primary_key=["k"], options=options
                )
                ordered = rows.sort_by("k")
                plain = Path(root) / "plain.parquet"

                def flush(table=table, rows=rows) -> None:  # type: ignore[no-untyped-def]
                    writer = table.new_write(max_sequence_numbers={})
                    writer.write(rows)
                    writer.flush()
                    writer.abort()

                def write(ordered=ordered, plain=plain) -> None:  # type: ignore[no-untyped-def]
                    pq.write_table(ordered, plain, compression="zstd", compression_level=1)

                found = measure("flush", {"fluvial": flush, FLOOR: write}, rows=size)
                cost = round(1 / found.cpu_ratio("fluvial", FLOOR), 2)
                print(found.line(peer=FLOOR, keys=kind, cost_to_floor=cost), flush=True)
                shutil.rmtree(table.store.paths.root)


if __name__ == "__main__":
    main()
