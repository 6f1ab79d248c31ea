"""What Iceberg metadata costs a commit: one row written, and one bucket compacted, in a table of 1,000 files.

    python -m benchmarks.layout.bench_iceberg [--quick | --tiny]

Two tables that differ in `metadata.iceberg.storage` alone take turns. A line each for an append (it adds an entry) and
a compaction (it also removes some, which are in one of many manifests). The budget: 15 ms of processor time, or 10 %
more.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable

import pyarrow as pa

from benchmarks.harness import measure, sized
from filestore.catalog.catalog import FileCatalog
from filestore.compact.compactor import compact_buckets
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable

WITH, WITHOUT = "with Iceberg metadata", "without"
BUDGET_MS = 15.0
BUDGET_RATIO = 1.1
SCHEMA = pa.schema([(name, pa.int64()) for name in ("id", "a", "b", "c")] + [("v", pa.string())])


def rows(ids: range) -> pa.Table:
    return pa.table({**{name: list(ids) for name in SCHEMA.names[:4]}, "v": [f"value-{n}" for n in ids]}, schema=SCHEMA)


def filled(catalog: FileCatalog, name: str, files: int, **options: str) -> FileTable:
    """A table with so many files, in as many buckets."""
    options = {"bucket": str(files), "bucket-key": "id", "bucket-append-ordered": "false", **options}
    table = catalog.create_table(f"bench.{name}", SCHEMA, options=options)
    table.write(rows(range(files * 8)))
    return table


def commit_line(name: str, tables: dict[str, FileTable], act: Callable[[FileTable], object], repeats: int) -> str:
    """What a commit costs with and without."""

    def before_each() -> None:
        for table in tables.values():
            table.write(rows(range(5, 6)))

    work = {key: (lambda table=table: act(table)) for key, table in tables.items()}
    found = measure(name, work, rows=1, repeats=repeats, before_each=before_each if act is compacted else None)
    more = [one - two for one, two in zip(found.cpu_seconds[WITH], found.cpu_seconds[WITHOUT], strict=True)]
    more_ms = round(statistics.median(more) * 1_000, 1)
    ratio = round(1 / found.cpu_ratio(WITH, WITHOUT), 2)
    met = "--tiny" in sys.argv[1:] or more_ms <= BUDGET_MS or ratio <= BUDGET_RATIO
    return found.line(peer=WITHOUT, added_ms=more_ms, cost_ratio=ratio, budget=BUDGET_MS, met=met)


def written(table: FileTable) -> None:
    table.write(rows(range(5, 6)))


def compacted(table: FileTable) -> None:
    live = LiveFiles.latest(table.store)
    most = max(live.buckets(), key=live.file_count)
    compact_buckets(table.store, full=True, keep=lambda key: key == most)


def main() -> None:
    files, repeats = sized((1_000, 15), quick=(1_000, 7), tiny=(20, 1))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
        catalog = FileCatalog(root)
        tables = {
            WITH: filled(catalog, "shown", files, **{"metadata.iceberg.storage": "table-location"}),
            WITHOUT: filled(catalog, "hidden", files),
        }
        print(commit_line("iceberg_append", tables, written, repeats), flush=True)
        print(commit_line("iceberg_compaction", tables, compacted, repeats), flush=True)


if __name__ == "__main__":
    main()
