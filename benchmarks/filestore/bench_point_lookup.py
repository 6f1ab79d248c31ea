"""Point lookup: single keys in a table of files that each span all keys, with bloom filters and without.

What a lookup costs without an index is the same read with ``file-index.read.enabled`` off. Budget: at least 3 times as
fast with 20 files of 250,000 rows.

usage: python -m benchmarks point_lookup [--quick | --tiny]
"""

import tempfile
import time

import numpy as np
import pyarrow as pa

from benchmarks.harness import measure, sized
from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable

FILES = 20
LOOKUPS = 20
BUDGET = 3.0
PEER = "without index"


def table_of_files(root: str, rows: int) -> tuple[FileTable, list[int], float, int]:
    """An append table in FILES commits of random keys, some of the keys, the seconds and the bytes that it took."""
    random = np.random.default_rng(11)
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("text", pa.string())])
    options = {"file-index.bloom-filter.columns": "k", "file-index.bloom-filter.k.fpp": "0.01"}
    table = FileCatalog(root).create_table("bench.t", schema, options=options)
    keys = random.permutation(rows * 4)[:rows]
    words = pa.array([f"word-{number}" for number in range(10_000)])
    began = time.perf_counter()
    for part in np.array_split(keys, FILES):
        text = words.take(pa.array(random.integers(0, 10_000, len(part))))
        numbers = random.integers(0, 2**50, len(part))
        table.write(pa.table({"k": part, "a": numbers, "b": random.random(len(part)), "text": text}))
    seconds = time.perf_counter() - began
    directory = table.store.bucket_dir(b"\x00" * 12, 0)
    names = [name for name in table.store.io.list_names(directory) if name.endswith(".index")]
    index_bytes = sum(table.store.io.size_bytes(f"{directory}/{name}") for name in names)
    return table, random.choice(keys, LOOKUPS, replace=False).tolist(), seconds, index_bytes


def look_up(table: FileTable, keys: list[int]) -> int:
    found = sum(table.read().to_arrow(filter=f"k = {key}").num_rows for key in keys)
    assert found == len(keys)
    return found


def main() -> None:
    rows, repeats = sized((5_000_000, 5), quick=(1_000_000, 2), tiny=(20_000, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        table, keys, seconds, index_bytes = table_of_files(root, rows)
        plain = table.with_options({"file-index.read.enabled": "false"})
        variants = {"with index": lambda: look_up(table, keys), PEER: lambda: look_up(plain, keys)}
        found = measure("point_lookup", variants, rows=LOOKUPS, repeats=repeats)
        ratio = round(found.ratio("with index", PEER), 2)
        facts = {"table_rows": rows, "files": FILES, "write_seconds": round(seconds, 2), "index_bytes": index_bytes}
        print(found.line(peer=PEER, budget=BUDGET, met=ratio >= BUDGET, **facts), flush=True)


if __name__ == "__main__":
    main()
