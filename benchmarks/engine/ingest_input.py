"""The input of the ingest benchmark: Parquet files of random upserts, one for each micro-batch."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 7


def write_input(directory: Path, *, batches: int, rows: int, keys: int) -> None:
    """Write ``batches`` files of ``rows`` upserts over ``keys`` keys; Spark takes them in the order of their times."""
    directory.mkdir(parents=True)
    random = np.random.default_rng(SEED)
    categories = pa.array([f"category-{number}" for number in range(50)])
    for batch in range(batches):
        table = pa.table(
            {
                "id": random.integers(0, keys, rows),
                "quantity": random.integers(0, 1000, rows).astype(np.int32),
                "price": random.random(rows) * 100,
                "category": categories.take(pa.array(random.integers(0, 50, rows))),
                "note": pa.array([f"note {number:016x}" for number in random.integers(0, 2**63, rows)]),
                "at": pa.array(
                    random.integers(1_700_000_000_000_000, 1_710_000_000_000_000, rows), pa.timestamp("us", tz="UTC")
                ),
            }
        )
        file = directory / f"part-{batch:04d}.parquet"
        pq.write_table(table, file)
        os.utime(file, (1.7e9 + batch, 1.7e9 + batch))
