"""Tables without a key that count their rows, beside deduplicating tables with a key and the same columns.

Two cases: writing rows of which one in ten takes an older one back, and reading 10 overlapping runs of them merged.
The peer's key is a number that two in ten rows have twice; here rows are distinguished by a hash of all nine columns,
which the files hold as well (``size_to_peer``).
usage: python -m benchmarks keyless [--quick | --tiny]
"""

import tempfile

import numpy as np
import pyarrow as pa

from benchmarks.harness import measure, sized
from benchmarks.lsm_tables import SEED, rows_of
from filestore.catalog.catalog import FileCatalog
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable

RUNS = 10
PEER = "deduplicate"
WRITE_BUDGET = 3.0
READ_BUDGET = 2.0


def batches_of(rows: int) -> list[tuple[pa.Table, pa.Array]]:
    """Runs of rows; a tenth of each are deletes of rows of the run before."""
    random = np.random.default_rng(SEED)
    found: list[tuple[pa.Table, pa.Array]] = []
    for number in range(RUNS):
        fresh = rows_of("int", random.integers(0, rows, rows // RUNS), random)
        gone = found[-1][0].slice(0, len(fresh) // 10) if number else fresh.slice(0, 0)
        kinds = np.r_[np.zeros(len(fresh), np.int8), np.full(len(gone), 3, np.int8)]
        found.append((pa.concat_tables([fresh, gone]).combine_chunks(), pa.array(kinds)))
    return found


def write(table: FileTable, batches: list[tuple[pa.Table, pa.Array]]) -> None:
    for rows, kinds in batches:
        table.write(rows, kinds)


def read(table: FileTable) -> None:
    for _ in table.read().to_batches():
        pass


def size_of(table: FileTable) -> int:
    live = LiveFiles.latest(table.store)
    return sum(file.size_bytes for key in live.buckets() for file in live.files(key))


def main() -> None:
    rows, repeats = sized((2_000_000, 3), quick=(200_000, 2), tiny=(10_000, 1))
    batches = batches_of(rows)
    count = sum(len(each) for each, _ in batches)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        catalog = FileCatalog(root)
        made = 0

        def new(**more: str) -> FileTable:
            nonlocal made
            made += 1
            options = {"bucket": "1", "write-buffer-size": "4 gb", "write-only": "true", **more}
            key = () if "row-counts" in more else ("k",)
            return catalog.create_table(f"bench.t{made}", batches[0][0].schema, primary_key=key, options=options)

        counting = {"row-counts": "true"}
        work = {"fluvial": lambda: write(new(**counting), batches[:1]), PEER: lambda: write(new(), batches[:1])}
        found = measure("keyless_write", work, rows=len(batches[0][0]), repeats=repeats)
        ratio = round(1 / found.cpu_ratio("fluvial", PEER), 2)
        print(found.line(peer=PEER, cost_to_peer=ratio, budget=WRITE_BUDGET, met=ratio <= WRITE_BUDGET), flush=True)
        counted, keyed = new(**counting), new()
        write(counted, batches)
        write(keyed, batches)
        work = {"fluvial": lambda: read(counted), PEER: lambda: read(keyed)}
        found = measure("keyless_merge_read", work, rows=count, repeats=repeats)
        ratio = round(1 / found.cpu_ratio("fluvial", PEER), 2)
        size = round(size_of(counted) / size_of(keyed), 2)
        print(
            found.line(peer=PEER, cost_to_peer=ratio, size_to_peer=size, budget=READ_BUDGET, met=ratio <= READ_BUDGET),
            flush=True,
        )


if __name__ == "__main__":
    main()
