"""Changes that outlive their snapshots: expiry beside those that Java keeps, and those that it keeps itself."""

import tarfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import SetOption
from filestore.maintenance.changelog_expiry import expire_changelogs
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.live_references import changelog_references
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import CorruptDataError, FluvialError, UnavailableError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, When
from tests.support.roots import files_there, used_files
from tests.support.rows import row_dicts
from tests.support.tables import key_table, reopened, rows

ARCHIVE: Final = Path(__file__).parents[2] / "golden" / "decoupled-1.4.2.tar.gz"
PRODUCERS: Final = ("lookup", "input", "none", "fullcompaction")
ONE: Final = Retention(min_count=1, max_count=1, age_ms=0, limit=100)
KEPT: Final = {"changelog.num-retained.max": "5", "changelog.num-retained.min": "5"}


@cache
def java_files() -> Mapping[str, bytes]:
    """Java 1.4.2 wrote nine times with snapshot.num-retained.max=2 and changelog.num-retained.max=6."""
    with tarfile.open(ARCHIVE) as archive:
        members = [each for each in archive.getmembers() if each.isfile()]
        return {f"/warehouse/{each.name}": archive.extractfile(each).read() for each in members}  # type: ignore[union-attr]


def of_java(producer: str) -> FileTable:
    root = f"/warehouse/db.db/{producer}"
    clock = ManualClock(ms=2_000_000_000_000)
    own = {path: body for path, body in java_files().items() if path.startswith(f"{root}/")}
    return FileTable.open(f"db.{producer}", root, io=MemoryFileIO(own), clock=clock, names=CountedNames())


def changelog_ids(table: FileTable) -> list[int]:
    return sorted(each.snapshot_id for each in changelog_references(table.store))


def is_without_hole(table: FileTable) -> bool:
    """What Java's next commit reads: changelogs, each behind the one before, up to the snapshots."""
    ids = table.store.snapshots.ids()
    known = sorted({*changelog_ids(table), *ids})
    return known == list(range(known[0], ids[-1] + 1))


def problems_of(table: FileTable) -> list[str]:
    return [str(each) for each in verify_files(table.store, progress=lambda done, of: None)]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_healthy_table_of_java_has_nothing_to_report_and_expires(producer: str) -> None:
    """Issue 1, finding 1: what Java deletes of the lists of an expired snapshot is not needed by its changelog."""
    table = of_java(producer)
    assert changelog_ids(table)
    assert problems_of(table) == []
    left = files_there(table) - used_files(table)  # by Java itself
    for number in range(12):
        table.write(pa.table({"k": pa.array([number % 4], pa.int32()), "v": pa.array([number], pa.int32())}))
        table.compact(full=number % 3 == 0)
    expected = row_dicts(table, "k")
    assert list(expire_snapshots(table.store, Retention.of(table.options), before_ms=1 << 60)) != []
    assert is_without_hole(table)
    assert problems_of(table) == []
    assert row_dicts(table, "k") == expected
    list(expire_snapshots(table.store, ONE))
    list(expire_changelogs(table.store, ONE))
    assert changelog_ids(table) == []
    assert files_there(table) - used_files(table) <= left
    assert row_dicts(table, "k") == expected


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_changes_that_the_options_keep_outlive_the_snapshots_that_a_caller_expires(producer: str) -> None:
    table = key_table(**{"bucket": "1", "changelog-producer": producer, **KEPT})
    for number in range(8):
        table.write(rows((number % 3, number)))
        table.compact(full=number % 2 == 0)
    latest, expected = table.store.snapshots.ids()[-1], row_dicts(table)
    seen = [step.snapshot.id for step in expire_snapshots(table.store, ONE, dry_run=True)]
    assert [step.snapshot.id for step in expire_snapshots(table.store, ONE)] == seen == list(range(1, latest))
    assert changelog_ids(table) == list(range(latest - 4, latest))
    assert problems_of(table) == []
    table.write(rows((9, 9)))
    list(expire_snapshots(table.store, ONE))
    assert changelog_ids(table) == list(range(latest - 4, latest + 1))
    list(expire_changelogs(table.store, ONE.of_changes(table.options)))
    assert changelog_ids(table) == list(range(latest - 3, latest + 1))
    assert is_without_hole(table)
    list(expire_changelogs(table.store, ONE))
    assert files_there(table) == used_files(table)
    assert row_dicts(table) == [*expected, {"id": 9, "v": 9}]


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_snapshots_whose_changes_no_option_keeps_take_older_changelogs_with_them(producer: str) -> None:
    table = of_java(producer)
    for number in range(9):
        table.write(pa.table({"k": pa.array([number % 4], pa.int32()), "v": pa.array([number], pa.int32())}))
    before = changelog_ids(table)
    first = min(table.store.snapshots.ids())
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=8, age_ms=0, limit=100)))
    assert before[-1] == first - 1
    assert min(table.store.snapshots.ids()) > first
    assert is_without_hole(table)
    assert not {*before} & {*changelog_ids(table)}


@pytest.mark.parametrize("before", ["none", "input", "lookup", "full-compaction"])
@pytest.mark.parametrize("after", ["none", "input", "lookup", "full-compaction"])
def test_another_producer_leaves_the_changes_that_are_kept(before: str, after: str) -> None:
    """What a kept change needs, its own commit says: the table may have got another producer since."""
    table = key_table(bucket="1", **{"write-only": "true", "changelog-producer": before, **KEPT})
    for key in (1, 2, 3):
        table.write(rows((key, key)))
        table.compact(full=True)
    list(expire_snapshots(table.store, ONE))
    kept = {path for path in files_there(table) if "/bucket-" in path}
    publish_changes(table.store, lambda _: [SetOption("changelog-producer", after)])
    again = reopened(table, table.store.io)
    again.write(rows((4, 4)))
    list(expire_snapshots(again.store, ONE))
    assert problems_of(again) == []
    assert kept <= files_there(again)
    for each in (table, again):  # a handle that was opened before decides alike
        assert [*find_orphans(each.store, before_ms=2**53)] == []


@pytest.mark.parametrize("is_tagged", [False, True])
@pytest.mark.parametrize("is_decoupled", [False, True])
def test_what_java_kept_for_a_changelog_goes_with_the_commit_that_removed_it(
    is_decoupled: bool, is_tagged: bool
) -> None:
    """Java leaves the data of an expired snapshot until the changelog of the compaction behind it goes."""
    options = KEPT if is_decoupled else {}
    table = key_table(bucket="1", **{"write-only": "true", **options})
    store = table.store
    table.write(rows((1, 1)))
    table.write(rows((2, 2)))
    if is_tagged:
        create_tag(store, "two", snapshot_id=2)
    table.compact(full=True)
    if is_tagged:
        create_tag(store, "three", snapshot_id=3)
    table.write(rows((4, 4)))
    kept = {path: body for path, body in store.io.files.items() if "/bucket-" in path}  # type: ignore[attr-defined]
    two = Retention(min_count=2, max_count=2, age_ms=0, limit=100)
    list(expire_snapshots(store, two, keeps_changelogs=False))
    gone = kept.keys() - store.io.files.keys()  # type: ignore[attr-defined]
    assert bool(gone) is not is_tagged
    store.io.files.update(kept)  # type: ignore[attr-defined]
    done = list(expire_snapshots(store, ONE, keeps_changelogs=False))
    assert {each.path for step in done for each in step.data} >= (gone if is_decoupled else set())
    assert files_there(table) - used_files(table) == (set() if is_decoupled else gone)
    if is_tagged:
        assert row_dicts(table, "id", tag="two") == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]


def test_an_expiry_that_is_refused_has_moved_and_claimed_nothing() -> None:
    io = MemoryFileIO()
    table = key_table(io, bucket="1")
    for number in range(6):
        table.write(rows((number, number)))
    create_tag(table.store, "old", snapshot_id=2)
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.tag("old").delta_manifest_list))
    before = dict(io.files)
    with pytest.raises(CorruptDataError, match="missing"):
        list(expire_snapshots(table.store, ONE))
    assert io.files == before


def built(io: MemoryFileIO | FaultyFileIO) -> FileTable:
    return FileTable.open("db.t", "/warehouse/db.db/t", io=io, clock=ManualClock(), names=CountedNames())


@cache
def kept_files() -> Mapping[str, bytes]:
    io = MemoryFileIO()
    table = key_table(io, **{"bucket": "1", "changelog-producer": "input", **KEPT})
    for number in range(7):
        table.write(rows((number % 3, number)))
    return dict(io.files)


def operations() -> int:
    counting = FaultyFileIO(MemoryFileIO(kept_files()))
    list(expire_snapshots(built(counting).store, ONE))
    return counting.calls


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fail_at", range(1, operations() + 1))
def test_one_that_dies_leaves_no_hole_and_is_finished_by_the_next(fail_at: int, when: When) -> None:
    io = MemoryFileIO(kept_files())
    with suppress(UnavailableError, FluvialError):
        list(expire_snapshots(built(FaultyFileIO(io, fail_at=fail_at, when=when)).store, ONE))
    table = built(io)
    list(expire_snapshots(table.store, ONE))
    assert changelog_ids(table) == [3, 4, 5, 6]
    assert is_without_hole(table)
    assert problems_of(table) == []
    assert row_dicts(table) == row_dicts(built(MemoryFileIO(kept_files())))
    list(expire_changelogs(table.store, ONE))
    assert files_there(table) == used_files(table)
