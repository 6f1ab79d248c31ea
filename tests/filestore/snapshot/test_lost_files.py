"""Every file that a table names, lost in turn: nobody sees a bare FileNotFoundError. (FL-14)"""

import pickle
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.io.file_io import LocalFileIO
from filestore.maintenance.rewriting import lost_files, remove_lost_files
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.verification import verify_files
from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.scan.snapshot_files import manifests_of
from filestore.scan.table_scan import TableScan
from filestore.snapshot.lost_files import (
    FileRole,
    LostFileError,
    MissingFileError,
    SnapshotExpiredError,
    missing_file,
    naming_missing_files,
)
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import CorruptDataError, FluvialError
from tests.support.faults import CountedNames, ManualClock
from tests.support.tables import KEY_SCHEMA, content, copied, expire_all_but, key_table, newest_snapshot, rows


def merged_table() -> FileTable:
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2)))
    table.compact(full=True)
    table.write(rows((2, 9)))
    return table


def table_with_vectors() -> FileTable:
    table = key_table(bucket="1", **{"deletion-vectors.enabled": "true"})
    table.write(rows(*((each, each) for each in range(20))))
    table.compact(full=True)
    table.write(rows((2, 9)))
    table.compact()
    return table


def stored_files(table: FileTable) -> list[str]:
    """Paths of all its data, index and manifest files."""
    root = table.store.paths.root
    return [
        f"{root}/{directory}/{name}"
        for directory in ("bucket-0", "index", "manifest")
        for name in table.store.io.list_names(f"{root}/{directory}")
    ]


TABLES = {"merged": merged_table, "vectors": table_with_vectors}
OPERATIONS: dict[str, Callable[[FileTable], object]] = {
    "read": content,
    "write": lambda table: table.write(rows((3, 3))),
    "compact": lambda table: table.compact(full=True),
    "tag": lambda table: create_tag(table.store, "eod"),
    "expire": lambda table: expire_all_but(table, 1),
    "delete all": lambda table: table.overwrite(rows()),
}


def error_of(operation: Callable[[FileTable], object], table: FileTable) -> FluvialError | None:
    try:
        operation(table)
    except FluvialError as error:
        return error
    return None


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES.keys())
def test_no_operation_ends_in_a_bare_error_about_a_file(
    made: Callable[[], FileTable], operation: Callable[[FileTable], object]
) -> None:
    original = made()
    found = 0
    for path in stored_files(original):
        table = copied(original)
        table.store.io.delete(path)
        error = error_of(operation, table)
        if error is None:
            continue
        found += 1
        assert isinstance(error, CorruptDataError)
        wanted = [path, "fix=", "fluvial verify"]
        if isinstance(error, LostFileError):
            assert error.filename == path
            wanted += ["table=db.t", "needed_by='snapshot ", "gives up its rows"]
        assert [part for part in wanted if part not in str(error)] == []
    assert found or operation is OPERATIONS["tag"], "a tag reads no file"


def on_disk(directory: Path) -> FileTable:
    """Of two buckets, of which one is empty, and two runs in the other."""
    catalog = FileCatalog(str(directory), io=LocalFileIO(), clock=ManualClock(), names=CountedNames())
    options = {"bucket": "2", "write-only": "true"}
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    for value in (1, 2):
        table.write(rows((1, value)))
    return table


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_a_lost_bucket_directory_is_an_error_where_its_files_are_needed(
    tmp_path: Path, operation: Callable[[FileTable], object]
) -> None:
    """What reads no data file works; what does says what gives up the rows, which then works too."""
    table = on_disk(tmp_path)
    (directory,) = [*Path(table.store.paths.root).glob("bucket-*")]
    rmtree(directory)
    error = error_of(operation, table)
    if error is None:
        assert operation in (OPERATIONS["write"], OPERATIONS["tag"], OPERATIONS["expire"], OPERATIONS["delete all"])
    else:
        assert isinstance(error, LostFileError)
        text = str(error)
        assert [part for part in (str(directory), "fix=", "remove-unexisting-files") if part not in text] == []
        assert operation in (OPERATIONS["read"], OPERATIONS["compact"])
    remove_lost_files(table.store, lost_files(table.store))
    table.compact(full=True)
    assert 1 not in content(table)


@pytest.mark.parametrize("operation", [OPERATIONS[each] for each in OPERATIONS if each != "tag"])  # it keeps files
def test_a_missing_directory_of_an_empty_bucket_is_no_loss(
    tmp_path: Path, operation: Callable[[FileTable], object]
) -> None:
    """Of a bucket that never had rows, and of one whose rows were deleted and expired."""
    table = on_disk(tmp_path)
    directories = Path(table.store.paths.root).glob("bucket-*")
    assert len([*directories]) == 1
    assert error_of(operation, table) is None
    table.overwrite(rows())
    expire_all_but(table, 1)
    for each in Path(table.store.paths.root).glob("bucket-*"):
        assert [*each.iterdir()] == []
        each.rmdir()
    assert content(table) == {}
    assert error_of(operation, table) is None
    assert [*verify_files(table.store, progress=lambda done, of: None)] == []
    table.write(rows((1, 1), (2, 2)))
    assert content(table).items() >= {1: 1, 2: 2}.items()


def test_a_snapshot_that_expired_while_it_was_read_is_no_lost_file() -> None:
    table = merged_table()
    splits = TableScan(table.store).plan().splits
    table.write(rows((5, 5)))
    table.compact(full=True)
    expire_all_but(table, 1)
    with pytest.raises(SnapshotExpiredError, match=r"expired while it was read: table=db.t snapshot=3 .*fix="):
        list(read_split(table, splits[0]))


def test_a_tag_needs_files_too() -> None:
    table = merged_table()
    create_tag(table.store, "eod")
    table.write(rows((5, 5)))
    expire_all_but(table, 1)
    with (
        pytest.raises(LostFileError, match="needed_by='tag eod'"),
        naming_missing_files(table.store.snapshots, table.name, 3),
    ):
        raise missing_file("/gone", FileRole.MANIFEST)


@pytest.mark.parametrize("kind", [MissingFileError, LostFileError, SnapshotExpiredError])
def test_missing_files_are_found_by_either_class_and_survive_a_process_boundary(kind: type[MissingFileError]) -> None:
    error = kind("a fact")
    error.filename = "/gone"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (kind, "a fact")
    assert isinstance(again, CorruptDataError)
    assert isinstance(again, FileNotFoundError)


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_files_of_a_snapshot_that_was_taken_back_are_not_called_lost_or_expired(writes: int) -> None:
    """Another snapshot may have its number since; nothing is to be restored or repaired."""
    table = key_table(bucket="1")
    for number in (1, 2, 3):
        table.write(rows((number, number)))
    before = newest_snapshot(table)
    (split,) = TableScan(table.store).plan(snapshot=before).splits
    (change,) = plan_changes(table.store, table.store.snapshots.read(2), before)
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(1)))
    for number in range(writes):
        table.write(rows((number, 7)))
    taken_back = r"snapshot was taken back, .* snapshot=3 earliest=1 .*read the "
    with pytest.raises(SnapshotExpiredError, match=taken_back):
        manifests_of(table.store, before)
    with pytest.raises(SnapshotExpiredError, match=taken_back):  # planned then, read by a task since
        list(read_split(table, DataSplit.from_json(split.to_json())))
    with pytest.raises(SnapshotExpiredError, match=taken_back):
        list(read_changes(table, change))
