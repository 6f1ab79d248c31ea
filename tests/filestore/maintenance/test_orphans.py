"""Files that belong to nobody, and only those."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.maintenance.orphans import OrphanFile, delete_orphans, find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.commit_message import CommitMessage
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import CorruptDataError
from tests.support.faults import MemoryFileIO, paused_before
from tests.support.roots import files_there, used_files
from tests.support.tables import content, key_table, messages_of, reopened, rows

FOREVER = 10**15


def orphans(table: FileTable, **more: object) -> set[str]:
    return {file.path for file in find_orphans(table.store, before_ms=FOREVER, **more)}  # type: ignore[arg-type]


def test_what_dead_writers_leave_is_found_and_nothing_else() -> None:
    table = key_table(bucket="2")
    table.write(rows((1, 1), (2, 2)))
    create_tag(table.store, "kept")
    table.write(rows((1, 9)))
    table.compact(full=True)
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=99)))
    before = used_files(table)
    dead = messages_of(table, rows((3, 3), (4, 4)))
    left = {
        f"{table.store.bucket_dir(each.partition, each.bucket)}/{file.file_name}"
        for each in dead
        for file in each.new_files
    }
    paths = table.store.paths
    left |= {
        paths.manifest("manifest-dead-0"), paths.manifest("manifest-list-dead-0"), paths.index("index-dead-0"),
        paths.statistics("stat-dead-0"), f"{paths.snapshot_dir}/.snapshot-9.x.tmp",
        f"{paths.schema_dir}/.schema-1.x.tmp",
        f"{paths.consumer_dir}/.consumer-a.x.tmp", f"{paths.root}/bucket-0/whatever",
        f"{paths.root}/ours/a/b.arrow",
    }  # fmt: skip
    others = {f"{paths.root}/notes.txt", f"{paths.root}/somewhere/data-x.parquet", paths.consumer("etl")}
    for path in {*left, *others} - {*table.store.io.files}:  # type: ignore[attr-defined]
        table.store.io.files[path] = b"x"  # type: ignore[attr-defined]
    found = find_orphans(table.store, before_ms=FOREVER, private_directories=[f"{paths.root}/ours"])
    assert {file.path for file in found} == left
    reported: list[tuple[int, int]] = []
    delete_orphans(table.store, found, progress=lambda done, of: reported.append((done, of)))
    assert reported[-1] == (len(left), len(left))
    assert before == used_files(table) == files_there(table)
    assert others <= {*table.store.io.files}  # type: ignore[attr-defined]
    assert content(table) == {1: 9, 2: 2}
    assert content(table, tag="kept") == {1: 1, 2: 2}


def test_young_files_belong_to_running_writers(tmp_path: Path) -> None:
    table = FileCatalog(str(tmp_path)).create_table(
        "db.t", pa.schema([("day", pa.string()), ("id", pa.int64())]), primary_key=["day", "id"], partition_by=["day"],
        options={"bucket": "1"},
    )  # fmt: skip
    table.write(pa.table({"day": ["a=b"], "id": [1]}))
    bucket = next(Path(table.store.paths.root).glob("day=*/bucket-0"))
    old, young = bucket / "data-old.parquet", bucket / "data-young.parquet"
    for path in (old, young):
        path.write_bytes(b"xx")
    then_s = time.time() - 7200
    os.utime(old, (then_s, then_s))
    for path in bucket.iterdir():
        if path not in (old, young):
            os.utime(path, (then_s, then_s))
    found = find_orphans(table.store, before_ms=round((then_s + 60) * 1000))
    assert found == [OrphanFile(path=str(old), size_bytes=2, modified_ms=found[0].modified_ms)]


def test_what_is_committed_while_it_is_looked_for_is_spared() -> None:
    """The candidates come first: whatever is used after that is seen as used."""
    for operation in ("list_names", "read_bytes", "modified_ms"):
        io = MemoryFileIO()
        table = key_table(io, bucket="1")
        table.write(rows((1, 1)))
        messages = messages_of(table, rows((2, 2)))

        def commit(table: FileTable = table, messages: list[CommitMessage] = messages) -> None:
            table.new_commit("other").commit(Committable(identifier=BATCH_IDENTIFIER, messages=messages))

        with paused_before(io, operation, commit) as paused:
            found = find_orphans(reopened(table, paused).store, before_ms=FOREVER)
        assert found == [], operation
        assert content(table) == {1: 1, 2: 2}


def test_files_that_somebody_is_still_to_commit_are_spared() -> None:
    table = key_table(bucket="1")
    (message,) = messages_of(table, rows((1, 1)))
    path = f"{table.store.bucket_dir(message.partition, message.bucket)}/{message.new_files[0].file_name}"
    assert orphans(table) == {path}
    assert orphans(table, spared=lambda: [path]) == set()


def test_nothing_is_an_orphan_while_something_cannot_be_read() -> None:
    """design.md 5: a step whose outcome is unknown never deletes."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "broken")
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.tag("broken").base_manifest_list))
    table.store.io.files[table.store.paths.manifest("manifest-dead-0")] = b"x"  # type: ignore[attr-defined]
    with pytest.raises(CorruptDataError, match="it is unknown which other files are in use"):
        orphans(table)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Of a bucket, a partition, a directory of metadata, or a file: what is behind one need not be the table's."""
    victim = tmp_path / "victim"
    victim.mkdir()
    names = ("data-1.parquet", "manifest-1", ".snapshot-1.x.tmp")
    for name in names:
        (victim / name).write_bytes(b"x")
    catalog = FileCatalog(str(tmp_path / "w"))
    table = catalog.create_table("d.t", pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by=["p"])
    table.write(pa.table({"id": [1], "p": ["a"]}))
    root = Path(table.store.paths.root)
    for place in ("p=a/bucket-1", "p=b", "p=a/bucket-0/data-0.parquet", "index", "statistics", "staging"):
        target = victim / names[0] if place.endswith("parquet") else victim
        (root / place).symlink_to(target)
    found = find_orphans(table.store, before_ms=FOREVER, private_directories=[str(root / "staging")])
    assert found == []
    assert sorted(path.name for path in victim.iterdir()) == sorted(names)
