"""Tables in memory, and the shortest ways to fill them."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import Committable
from filestore.index.index_manifest import bucket_index
from filestore.io.file_io import FileIO
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.commit_message import CommitMessage
from filestore.options.table_options import TableOptions
from filestore.read.split_read import read_stored
from filestore.scan.live_files import LiveFiles
from filestore.scan.table_scan import TableScan
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.rows import sorted_rows

WAREHOUSE = "/warehouse"
KEY_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def memory_catalog(io: FileIO | None = None) -> FileCatalog:
    """A catalog whose files, clock and names belong to the test."""
    return FileCatalog(WAREHOUSE, io=io or MemoryFileIO(), clock=ManualClock(), names=CountedNames())


def key_table(
    io: FileIO | None = None,
    *,
    schema: pa.Schema = KEY_SCHEMA,
    primary_key: Sequence[str] = ("id",),
    partition_by: Sequence[str] = (),
    **options: str,
) -> FileTable:
    """A table ``db.t`` with a key; option keys with ``_`` for ``-``."""
    return memory_catalog(io).create_table(
        "db.t",
        schema,
        primary_key=primary_key,
        partition_by=partition_by,
        options={key if key in TableOptions.declared else key.replace("_", "-"): text for key, text in options.items()},
    )


def reopened(table: FileTable, io: FileIO) -> FileTable:
    """The same table through another file system object."""
    return FileTable.open(table.name, table.store.paths.root, io=io, clock=table.store.clock, names=table.store.names)


def copied(table: FileTable) -> FileTable:
    """The same table on another disk in memory; the next names and times of all copies are the same."""
    store = table.store
    io = MemoryFileIO(store.io.files)  # type: ignore[attr-defined]
    return FileTable.open(table.name, store.paths.root, io=io, clock=copy(store.clock), names=copy(store.names))


def failing_at(before: FileTable, fail_at: int, when: When) -> tuple[FileTable, FileTable, FaultyFileIO]:
    """A copy of a table, the same one through a file system whose n-th operation fails, and that file system."""
    table = copied(before)
    faulty = FaultyFileIO(table.store.io, when=when)
    failing = reopened(table, faulty)  # type: ignore[arg-type]
    faulty.calls, faulty.fail_at = 0, fail_at
    return table, failing, faulty


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    """Rows of KEY_SCHEMA."""
    return pa.table({"id": [pair[0] for pair in pairs], "v": [pair[1] for pair in pairs]}, schema=KEY_SCHEMA)


def messages_of(table: FileTable, data: pa.Table, kinds: Sequence[str] | None = None) -> list[CommitMessage]:
    """Files with these rows, numbered from the newest snapshot, not committed."""
    live = LiveFiles.latest(table.store)
    writer = table.new_write(
        max_sequence_numbers=live.max_sequence_numbers(), index=bucket_index(table.store, live.snapshot)
    )
    writer.write(data, None if kinds is None else pa.array(kinds))
    return writer.prepare_commit()


def committable_of(table: FileTable, identifier: int, data: pa.Table, **parts: Any) -> Committable:
    """A committable with these rows on top of the newest snapshot."""
    return Committable(
        identifier=identifier,
        messages=messages_of(table, data),
        base=table.store.snapshots.latest_ref(),
        **parts,
    )


def commit_batch(table: FileTable, user: str, identifier: int, data: pa.Table) -> None:
    """What a sink commits for a micro-batch: rows on top of the newest snapshot."""
    table.new_commit(user).commit(committable_of(table, identifier, data))


def newest_snapshot(table: FileTable) -> Snapshot:
    """The newest snapshot of a table that has one."""
    found = table.store.snapshots.latest()
    assert found is not None
    return found


def expire_all_but(table: FileTable, keep: int) -> list[int]:
    """Expire all snapshots but the newest ``keep``; the ids of those expired."""
    retention = Retention(min_count=keep, max_count=keep, age_ms=0, limit=1000)
    return [step.snapshot.id for step in expire_snapshots(table.store, retention)]


def key_values(table: FileTable, **travel: Any) -> list[tuple[int, int | None]]:
    """Sorted ``(id, v)`` of a table that has these columns; a key that is there twice shows."""
    return sorted_rows(table, "id", "v", **travel)


def content(table: FileTable, **travel: Any) -> dict[int, int | None]:
    """``{id: v}`` of a table of KEY_SCHEMA; fails when a key is there twice."""
    found = table.read(**travel).to_arrow(columns=["id", "v"]).to_pylist()
    by_id: Mapping[int, int | None] = {row["id"]: row["v"] for row in found}
    assert len(by_id) == len(found)
    return dict(by_id)


def stored_rows(store: TableStore) -> pa.Table:
    """Rows as the files hold them: of a counted table with their hashes and counts."""
    splits = TableScan(store).plan().splits
    batches = [batch for split in splits for batch in read_stored(store, split, columns=store.schema.column_names)]
    return pa.Table.from_batches(batches, schema=store.schema.arrow_schema)


def check_metadata(table: FileTable) -> None:
    """Every snapshot counts its records right, and its files have the sizes that it says."""
    for snapshot_id in table.store.snapshots.ids():
        snapshot = table.store.snapshots.read(snapshot_id)
        live = LiveFiles(table.store, snapshot)
        files = [(key, file) for key in live.all_buckets() for file in live.files(key)]
        assert snapshot.total_record_count == sum(file.row_count for _, file in files)
        for key, file in files:
            assert table.store.io.size_bytes(table.store.file_path(key.partition, key.bucket, file)) == file.size_bytes


def referenced_files(table: FileTable) -> set[str]:
    """Paths of the data files that any snapshot refers to."""
    views = [
        LiveFiles(table.store, table.store.snapshots.read(snapshot_id)) for snapshot_id in table.store.snapshots.ids()
    ]
    return {
        table.store.file_path(key.partition, key.bucket, file)
        for live in views
        for key in live.all_buckets()
        for file in live.files(key)
    }
