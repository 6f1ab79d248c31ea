"""A list of keys in a large table: 1,000 random keys of 20 million compacted rows, by ``id IN (...)``.

Beside it Arrow's dataset scan of the same files with the same filter, which uses the same cores and statistics, and the
least that any reader without an index of pages can do: decoding the key column of every row group, since each holds
some of the keys. Budget: 0.3 s on the clock at 20 million rows, in proportion to the rows otherwise.

usage: python -m benchmarks key_list [--quick | --tiny]
"""

import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.harness import measure, sized
from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable

PEER: Final = "Arrow's dataset scan"
KEYS_ONLY: Final = "decoding the key column"
ROWS_OF_A_KEY: Final = 20_000
ROWS_AT_ONCE: Final = 4_000_000
BUDGET_SECONDS, BUDGET_ROWS = 0.3, 20_000_000
COLUMNS: Final = ["id", "a", "v", "text"]


def make_table(root: str, rows: int) -> FileTable:
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("v", pa.float64()), ("text", pa.string())])
    table = FileCatalog(root).create_table("bench.t", schema, primary_key=["id"], options={"bucket": "2"})
    random = np.random.default_rng(23)
    words = pa.array([f"text {number}" for number in range(977)])
    for first in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - first)
        text = words.take(pa.array(random.integers(0, len(words), count)))
        columns = {"a": random.integers(0, 2**50, count), "v": random.random(count), "text": text}
        table.write(pa.table({"id": pa.array(np.arange(first, first + count)), **columns}))
    table.compact(full=True)
    return table


def main() -> None:
    rows, repeats = sized((20_000_000, 5), quick=(4_000_000, 3), tiny=(20_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        table = make_table(root, rows)
        keys = np.random.default_rng(29).choice(rows, max(1, rows // ROWS_OF_A_KEY), replace=False)
        text = f"id IN ({', '.join(map(str, keys.tolist()))})"
        read = table.read()
        splits = read.plan().splits
        paths = [table.store.file_path(each.partition, each.bucket, file) for each in splits for file in each.files]
        wanted = ds.field("id").isin(pa.array(keys))

        def look_up() -> None:
            assert table.read().to_arrow(filter=text).num_rows == len(keys)

        def scan() -> None:
            assert ds.dataset(paths).to_table(columns=COLUMNS, filter=wanted).num_rows == len(keys)

        def decode() -> None:
            with ThreadPoolExecutor(2) as pool:
                found = pool.map(lambda path: pq.ParquetFile(path).read(["id"], use_threads=False).num_rows, paths)
                assert sum(found) == rows

        variants = {"look up": look_up, PEER: scan, KEYS_ONLY: decode}
        found = measure("key_list", variants, rows=rows, repeats=repeats)
        seconds = statistics.median(found.seconds["look up"])
        budget = round(BUDGET_SECONDS * rows / BUDGET_ROWS, 4)
        facts = {
            "keys": len(keys),
            "cost_to_keys": round(1 / found.ratio("look up", KEYS_ONLY), 2),
            "cpu_seconds": {name: [round(each, 4) for each in values] for name, values in found.cpu_seconds.items()},
        }
        print(found.line(peer=PEER, budget=budget, met=seconds <= budget, **facts), flush=True)


if __name__ == "__main__":
    main()
