"""Changelogs that Java kept longer than their snapshots go, and nothing else does."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from filestore.maintenance.changelog_expiry import ExpiredChangelog, expire_changelogs
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from lsm.errors import CorruptDataError, UnavailableError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.roots import files_there, used_files
from tests.support.rows import row_dicts
from tests.support.tables import content, key_table, rows

GOLDEN = Path(__file__).parents[2] / "golden/java-1.4.2/db.db/decoupled"
ROOT = "/warehouse/db.db/decoupled"
KEEP_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=100)


@cache
def golden_files() -> Mapping[str, bytes]:
    """Written by Java: snapshot 3, and the changelogs 1 and 2."""
    return {
        f"{ROOT}/{path.relative_to(GOLDEN).as_posix()}": path.read_bytes()
        for path in GOLDEN.rglob("*")
        if path.is_file()
    }


def opened(io: Any) -> FileTable:
    return FileTable.open("db.decoupled", ROOT, io=io, clock=ManualClock(), names=CountedNames())


def expire(table: FileTable, retention: Retention = KEEP_ONE, **arguments: Any) -> list[ExpiredChangelog]:
    return list(expire_changelogs(table.store, retention, **arguments))


def test_what_goes_is_what_only_it_used() -> None:
    io = MemoryFileIO(golden_files())
    table, before = opened(io), row_dicts(opened(io))
    assert expire(table, dry_run=True) == expire(opened(MemoryFileIO(golden_files())))
    assert io.files == golden_files()
    (first,) = expire(table, Retention(min_count=2, max_count=2, age_ms=0, limit=100))
    assert first.changelog_id == 1
    assert [path.rpartition("/")[2].split("-")[0] for path in first.data_files] == ["changelog"]
    assert io.files[f"{ROOT}/changelog/EARLIEST"] == b"2"
    (second,) = expire(table)
    assert second.changelog_id == 2
    assert not [path for path in io.files if path.startswith(f"{ROOT}/changelog/")]
    assert files_there(table) == used_files(table)
    assert row_dicts(opened(io)) == before
    assert expire(table) == []


@pytest.mark.parametrize(
    ("retention", "before_ms", "gone"),
    [
        (Retention(min_count=3, max_count=3, age_ms=0, limit=100), None, []),
        (Retention(min_count=1, max_count=9, age_ms=0, limit=100), 0, []),
        (Retention(min_count=1, max_count=9, age_ms=0, limit=100), 1 << 60, [1, 2]),
        (Retention(min_count=1, max_count=1, age_ms=0, limit=1), None, [1]),
    ],
)
def test_numbers_and_times_say_what_stays(retention: Retention, before_ms: int | None, gone: list[int]) -> None:
    table = opened(MemoryFileIO(golden_files()))
    assert [each.changelog_id for each in expire(table, retention, before_ms=before_ms)] == gone


def test_files_that_a_snapshot_still_has_stay() -> None:
    """Without a changelog producer, a changelog is what its commit added: files that may be live."""
    table = key_table(bucket="1")
    for number in range(3):
        table.write(rows((number, number)))
    files: dict[str, bytes] = table.store.io.files  # type: ignore[attr-defined]
    files[table.store.paths.changelog(1)] = files.pop(table.store.paths.snapshot(1))
    table.store.snapshots.write_earliest_hint(2)
    (gone,) = expire(table)
    assert (gone.changelog_id, gone.data_files) == (1, ())
    assert content(table) == {0: 0, 1: 1, 2: 2}
    assert files_there(table) == used_files(table)


def test_a_consumer_holds_what_it_has_not_read() -> None:
    table = opened(MemoryFileIO(golden_files()))
    table.store.consumers.write("slow", 2)
    assert [each.changelog_id for each in expire(table)] == [1]


def operations() -> int:
    counting = FaultyFileIO(MemoryFileIO(golden_files()))
    expire(opened(counting))
    return counting.calls


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fail_at", range(1, operations() + 1))
def test_one_that_dies_is_finished_by_the_next(fail_at: int, when: When) -> None:
    io = MemoryFileIO(golden_files())
    table = opened(io)
    with suppress(UnavailableError, CorruptDataError):
        expire(opened(FaultyFileIO(io, fail_at=fail_at, when=when)))
    assert row_dicts(table, "k") == row_dicts(opened(MemoryFileIO(golden_files())))
    expire(table)
    assert files_there(table) == used_files(table)
    assert not [path for path in io.files if path.startswith(f"{ROOT}/changelog/changelog-")]
