"""The changes of 100 versions of a table, as ``CHANGES`` reads them, beside reading the files that hold them.

The files are those of the plan: what each version added and, of a table with a key, the state before the first. Budget:
1.2 times reading the rows of these files: of an append table as they are stored, of a table with a key by key, as every
reader of the table does. Its line also has the cost beside decoding the files unmerged, which gives half as many rows
in no order. usage: python -m benchmarks version_changes
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.harness import measure, sized
from engine import Catalog, Table
from filestore.changelog.version_changes import VersionSplit, plan_versions, read_versions
from filestore.diff.version_range import Bound, find_range
from filestore.read.split_read import BucketFiles
from filestore.table import FileTable

BUDGET = 1.2
ENGINES = {"key": "deduplicate", "partial-update": "partial-update"}
PEER = "the files, unmerged"
BY_KEY = "the files, by key"
VERSIONS = sized(100, quick=100, tiny=10)


def batch(random: np.random.Generator, count: int, keys: int) -> pa.Table:
    ids = random.choice(keys, count, replace=False)
    return pa.table({"id": ids, "a": random.integers(0, 1000, count), "b": random.random(count), "c": ids.astype("U")})


def partial(random: np.random.Generator, rows: pa.Table) -> pa.Table:
    """The rows, each with a value in one of the last two columns."""
    is_first = random.random(rows.num_rows) < 0.5
    for name, is_absent in (("b", ~is_first), ("c", is_first)):
        absent = pa.array(is_absent)
        values = pc.if_else(absent, pa.scalar(None, rows[name].type), rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    return rows


def table_of_versions(root: str, *, kind: str, count: int) -> FileTable:
    """A first version with every key, and as many rows as all that follow; then ``VERSIONS`` more."""
    has_key = kind in ENGINES
    random, keys = np.random.default_rng(7), VERSIONS * count
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())])
    options = {"bucket": "1" if has_key else "-1", "write-only": "true", "snapshot.num-retained.min": "1000"}
    if has_key:
        options["merge-engine"] = ENGINES[kind]
    table = Catalog(root).create_table("db.t", schema, primary_key=["id"] if has_key else [], options=options)
    table.write(batch(random, keys, keys).cast(schema))
    for _ in range(VERSIONS):
        rows = batch(random, count, keys).cast(schema)
        table.write(partial(random, rows) if kind == "partial-update" else rows)
    return table.files


def changes(table: FileTable) -> int:
    found = find_range(table, Bound(version="2"), None)
    splits = plan_versions(found.table.store, found.steps)
    return sum(each.rows.num_rows for split in splits for each in read_versions(found.table, split))


def unmerged(table: FileTable, splits: Sequence[VersionSplit]) -> int:
    rows = 0
    for split in splits:
        place = split if split.step is None else split.step
        files = BucketFiles(table=table.store, partition=place.partition, bucket=place.bucket, files=split.files)
        for file in split.files:
            batches = files.read(file, table.schema.column_names, with_system=table.store.has_key)
            rows += sum(each.num_rows for each in batches)
    return rows


def by_key(table: FileTable) -> int:
    """The newest state is in the same files."""
    read = Table(table).read()
    return sum(each.num_rows for each in read.to_batches())


def main() -> None:
    appended, repeats, warm_ups = sized((100_000, 7, 1), quick=(10_000, 3, 1), tiny=(50, 1, 0))
    for kind in ("append", *ENGINES):
        count = max(appended // 10, 50) if kind in ENGINES else appended
        with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root:
            table = table_of_versions(str(Path(root) / "warehouse"), kind=kind, count=count)
            found = find_range(table, Bound(version="2"), None)
            splits = plan_versions(found.table.store, found.steps)
            rows = unmerged(table, splits)
            variants = {"fluvial": lambda t=table: changes(t), PEER: lambda t=table, s=splits: unmerged(t, s)}
            if kind in ENGINES:
                variants[BY_KEY] = lambda t=table: by_key(t)
            measured = measure("version_changes", variants, rows=rows, repeats=repeats, warm_ups=warm_ups)
            peer = BY_KEY if kind in ENGINES else PEER
            cost = round(1 / measured.cpu_ratio("fluvial", peer), 2)
            facts = {"state": kind, "cost_to_floor": cost, "budget": BUDGET, "met": cost <= BUDGET}
            facts |= {"cost_to_unmerged": round(1 / measured.cpu_ratio("fluvial", PEER), 2), "changes": changes(table)}
            print(measured.line(peer=peer, **facts), flush=True)


if __name__ == "__main__":
    main()
