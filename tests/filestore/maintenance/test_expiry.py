"""Which snapshots expire, and what goes with them."""

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO, LocalFileIO
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.partitions import drop_partitions
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.record_files import decoded_records
from filestore.options.table_options import TableOptions
from filestore.scan.live_files import LiveFiles
from filestore.scan.snapshot_files import manifests_of
from filestore.snapshot.retention import Retention, expiry_end
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO, Nth, When
from tests.support.roots import files_there, used_files
from tests.support.tables import KEY_SCHEMA, check_metadata, content, key_table, reopened, rows

FOREVER = 10**15
ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=FOREVER, limit=1000)


def keep(count: int, *, limit: int = 1000) -> Retention:
    return Retention(min_count=1, max_count=count, age_ms=FOREVER, limit=limit)


def expire(table: FileTable, retention: Retention = ALL_BUT_ONE, **more: int | None) -> list[int]:
    return [step.snapshot.id for step in expire_snapshots(table.store, retention, **more)]  # type: ignore[arg-type]


def trigger(run_count: int) -> dict[str, str]:
    return {"num-sorted-run.compaction-trigger": str(run_count)}


def with_commits(table: FileTable, commits: int) -> FileTable:
    for turn in range(commits):
        table.write(rows((turn % 3, turn)))
    return table


# ---- which


def end(ages: Sequence[int], *, held_from: int | None = None, **bounds: int) -> int:
    """Snapshots 1, 2, …, of these ages at time 100."""
    retention = Retention(**{"min_count": 1, "max_count": 99, "age_ms": 10, "limit": 50} | bounds)
    return expiry_end(
        earliest=1,
        latest=len(ages),
        retention=retention,
        before_ms=100 - retention.age_ms,
        held_from=held_from,
        time_ms_of=lambda each: 100 - ages[each - 1],
    )


@pytest.mark.parametrize(
    ("ages", "more", "expected"),
    [
        ([90, 80, 70], {}, 3),  # the newest stays, however old
        ([90, 80, 70], {"min_count": 2}, 2),
        ([90, 80, 70], {"min_count": 5}, 1),
        ([90, 5, 3], {}, 1),  # replaced 5 ago: until then readers saw it
        ([90, 11, 3], {}, 2),
        ([3, 2, 1], {}, 1),
        ([3, 2, 1], {"max_count": 2}, 2),  # more than so many go whatever their age
        ([90, 80, 70, 60], {"limit": 2}, 3),
        ([90, 80, 70], {"held_from": 2}, 2),
        ([3, 2, 1], {"max_count": 1, "held_from": 1}, 1),  # somebody needs it: neither age nor number counts
    ],
)
def test_what_is_old_goes_between_the_least_and_the_most(
    ages: Sequence[int], more: dict[str, int], expected: int
) -> None:
    """snapshot.num-retained.min, .max, snapshot.time-retained, snapshot.expire.limit."""
    assert end(ages, **more) == expected


@pytest.mark.sweep
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12).map(lambda ages: sorted(ages, reverse=True)),
    st.integers(1, 6), st.integers(0, 8), st.integers(1, 6), st.none() | st.integers(1, 14),
)  # fmt: skip
def test_the_end_of_expiry_keeps_every_promise(
    ages: list[int], least: int, more: int, limit: int, held_from: int | None
) -> None:
    stays = end(ages, min_count=least, max_count=least + more, limit=limit, held_from=held_from)
    latest = len(ages)
    assert 1 <= stays <= max(1, latest - least + 1)
    assert stays - 1 <= limit
    assert held_from is None or stays <= max(held_from, 1)
    for gone in range(1, stays):
        assert ages[gone] > 10 or gone <= latest - (least + more)
    is_free = stays < latest - least + 1 and stays - 1 < limit and (held_from is None or stays < held_from)
    assert not (is_free and ages[stays] > 10)


def test_retention_comes_from_the_options() -> None:
    """A changelog lives as long as its snapshot, so the longer of both lives counts."""
    options = {"snapshot.num-retained.min": "3", "changelog.num-retained.min": "5", "changelog.time-retained": "2 d"}
    found = Retention.of(TableOptions.parse(options))
    assert (found.min_count, found.age_ms, found.limit) == (5, 2 * 86_400_000, 50)
    with pytest.raises(InvalidInputError, match="retain_min=3 retain_max=2"):
        Retention(min_count=3, max_count=2, age_ms=0, limit=1)


# ---- what goes with them


def test_what_is_left_can_be_read_and_nothing_else_is_there() -> None:
    """SP-02: every commit is a snapshot that can be read until it expires."""
    table = with_commits(key_table(bucket="1", **trigger(3)), 8)
    table.compact(full=True)
    table.write(rows((7, 7)))
    before = content(table)
    assert expire(table, keep(2)) == list(range(1, 9))
    assert table.store.snapshots.ids() == [9, 10]
    assert table.store.snapshots.earliest_id() == 9
    assert table.store.io.read_bytes(table.store.paths.earliest_hint) == b"9"
    assert content(table) == before
    assert content(table, snapshot_id=9) == {0: 6, 1: 7, 2: 5}
    check_metadata(table)
    assert files_there(table) == used_files(table)
    assert expire(table, keep(2)) == []


def test_a_file_that_only_moved_to_another_level_stays() -> None:
    table = with_commits(key_table(bucket="1", **{"compaction.small-file-ratio": "0"}), 1)
    table.compact(full=True)
    (name,) = [
        file.file_name
        for key in LiveFiles.latest(table.store).buckets()
        for file in LiveFiles.latest(table.store).files(key)
    ]
    expire(table)
    assert [path for path in files_there(table) if path.endswith(name)]
    assert content(table) == {0: 0}


def test_changelog_files_go_with_their_snapshot() -> None:
    table = with_commits(key_table(bucket="1", changelog_producer="input"), 3)
    assert len([path for path in files_there(table) if "/changelog-" in path]) == 3
    expire(table)
    assert len([path for path in files_there(table) if "/changelog-" in path]) == 1
    assert files_there(table) == used_files(table)


def test_time_decides_by_when_a_snapshot_was_replaced() -> None:
    table = with_commits(key_table(bucket="1"), 4)
    third = table.store.snapshots.read(3)
    roomy = Retention(min_count=1, max_count=99, age_ms=FOREVER, limit=99)
    assert expire(table, roomy) == []
    assert expire(table, roomy, before_ms=third.time_ms) == [1]
    assert expire(table, roomy, before_ms=third.time_ms + 1) == [2]


def test_a_dry_run_says_what_a_run_does() -> None:
    table = with_commits(key_table(bucket="1", **trigger(2)), 6)
    table.compact()
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    reported = list(expire_snapshots(table.store, keep(2), dry_run=True))
    assert table.store.io.files == before  # type: ignore[attr-defined]
    assert list(expire_snapshots(table.store, keep(2))) == reported
    gone = {*before} - {*table.store.io.files}  # type: ignore[attr-defined]
    said = {path for step in reported for path in (*(f.path for f in step.data), *step.metadata.all)}
    assert gone == said | {table.store.paths.snapshot(step.snapshot.id) for step in reported}
    assert sum(step.size_bytes for step in reported) == sum(len(before[f.path]) for step in reported for f in step.data)


# ---- who holds


def test_a_consumer_keeps_what_it_wants_next() -> None:
    """FL-57: and the base of its differences, which is a consumer as well."""
    table = with_commits(key_table(bucket="1"), 6)
    table.store.consumers.write("etl", 5)
    table.store.consumers.write("etl.base", 4)
    assert expire(table) == [1, 2, 3]
    table.store.consumers.delete("etl.base")
    assert expire(table) == [4]
    table.store.consumers.delete("etl")
    assert expire(table) == [5]


def test_the_last_snapshot_that_knows_the_log_stays_while_newer_ones_do_not() -> None:
    """FL-30: other engines do not carry the offsets on; without them nobody knows where the log begins."""
    table = with_commits(key_table(bucket="1"), 5)
    with_log = FileTable.open(
        table.name, table.store.paths.root, io=table.store.io, clock=table.store.clock, names=table.store.names,
        options={"log.system": "kafka", "log.kafka.bootstrap.servers": "nowhere:1"},
    )  # fmt: skip
    path = table.store.paths.snapshot(2)
    body = table.store.io.read_bytes(path).replace(b'"timeMillis"', b'"logOffsets": {"0": 7}, "timeMillis"')
    table.store.io.files[path] = body  # type: ignore[attr-defined]
    assert expire(with_log) == [1]
    assert expire(table) == [2, 3, 4]


def test_a_tag_keeps_its_files_and_no_others() -> None:
    """TAG-04, TAG-54..TAG-56, TAG-64: what was added and removed between two tags goes."""
    table = key_table(bucket="1", **trigger(2))
    contents = {}
    for turn in range(12):
        table.write(rows((turn % 3, turn)))
        if turn % 2:
            table.compact(full=True)
        if turn in (3, 8):
            create_tag(table.store, f"t{turn}")
            contents[f"t{turn}"] = content(table)
    expire(table)
    assert {name: content(table, tag=name) for name in contents} == contents
    assert files_there(table) == used_files(table)
    delete_tag(table.store, "t3")
    assert files_there(table) == used_files(table)
    assert content(table, tag="t8") == contents["t8"]
    delete_tag(table.store, "t8")
    assert files_there(table) == used_files(table)


def test_a_snapshot_that_is_about_to_go_cannot_be_tagged() -> None:
    """Whoever is first wins: a tag is either seen by the expiry, or refused."""
    table = with_commits(key_table(bucket="1"), 4)
    table.store.snapshots.claim_up_to(3)
    with pytest.raises(Exception, match=r"expired while it was tagged: .*snapshot=2 earliest=3"):
        create_tag(table.store, "late", snapshot_id=2)
    assert table.store.snapshots.tag_names() == []
    create_tag(table.store, "fine", snapshot_id=3)
    table.store.snapshots.claim_up_to(2)
    assert table.store.snapshots.claimed_up_to() == 3


def test_nothing_goes_while_a_tag_cannot_be_read() -> None:
    """design.md 5: a step whose outcome is unknown never deletes."""
    table = with_commits(key_table(bucket="1", **trigger(2)), 4)
    create_tag(table.store, "broken", snapshot_id=1)
    expire(table)
    table.compact(full=True)
    table.write(rows((1, 1)))
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.tag("broken").delta_manifest_list))
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    with pytest.raises(CorruptDataError, match=r"reference=tag broken .*fix=delete that tag"):
        expire(table)
    claims = (table.store.paths.earliest_hint, table.store.paths.expiry_dir)
    kept = {path for path in before if not path.startswith(claims)}
    assert kept <= {*table.store.io.files}  # type: ignore[attr-defined]
    delete_tag(table.store, "broken")
    assert expire(table)
    assert content(table) == {0: 3, 1: 1, 2: 2}


@pytest.mark.parametrize("name", ["java-1.4.2/dedup", "java-1.4.2/lookup", "pypaimon-2.1.0/pk"])
def test_tables_of_old_writers_are_tagged_and_expired_without_knowing_who_committed_a_file(
    name: str, tmp_path: Path
) -> None:
    """TAG-42, TAG-43, TAG-44, TAG-45, TAG-46, TAG-65: entries of version 2 have no commit snapshot; none is needed.

    Our answer to "walk all data files of all tags": by the commit that removes a file and the snapshots that are
    tagged, the one tag is known that can have it (FORMAT.md, decision 33); so version 2 is all that is written.
    """
    writer, directory = name.split("/")
    golden = Path(__file__).parents[2] / "golden" / writer / "db.db" / directory
    shutil.copytree(golden, tmp_path / "t")
    table = FileTable.open("db.t", str(tmp_path / "t"))
    first, latest = table.store.snapshots.ids()[0], table.store.snapshots.latest_id()
    assert latest is not None
    before = {each: table.read(snapshot_id=each).to_arrow().to_pylist() for each in (first, latest)}
    create_tag(table.store, "old", snapshot_id=first)
    assert expire(table) == list(range(first, latest))
    assert table.read(tag="old").to_arrow().to_pylist() == before[first]
    assert table.read().to_arrow().to_pylist() == before[latest]
    manifest = manifests_of(table.store, table.store.snapshots.tag("old"))[0]
    body = Path(table.store.paths.manifest(manifest.file_name)).read_bytes()
    records = decoded_records(body, source="manifest", decode=dict)
    assert {record["_VERSION"] for record in records} == {2}
    assert "_COMMIT_SNAPSHOT" not in records[0]["_FILE"]
    delete_tag(table.store, "old")
    assert table.read().to_arrow().to_pylist() == before[latest]
    assert find_orphans(table.store, before_ms=FOREVER) == []


# ---- faults, races


@cache
def aged_files() -> Mapping[str, bytes]:
    """Of a table with snapshots to expire, a tag, a compaction and changelogs."""
    table = with_commits(key_table(bucket="1", changelog_producer="input", **trigger(2)), 4)
    create_tag(table.store, "kept", snapshot_id=2)
    table.compact(full=True)
    table.write(rows((9, 9)))
    return table.store.io.files  # type: ignore[attr-defined, no-any-return]


def operations() -> int:
    io = MemoryFileIO(aged_files())
    counting = FaultyFileIO(io)
    expire(reopened(key_table_at(io), counting), keep(2))  # type: ignore[arg-type]
    return counting.calls


def key_table_at(io: MemoryFileIO) -> FileTable:
    return FileTable.open("db.t", "/warehouse/db.db/t", io=io, clock=ManualClock(), names=CountedNames())


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("fail_at", range(1, operations() + 1))
def test_an_expiry_that_dies_leaves_a_table_that_reads_right_and_the_next_one_finishes(
    fail_at: int, when: When
) -> None:
    io = MemoryFileIO(aged_files())
    table = key_table_at(io)
    faulty = FaultyFileIO(io, fail_at=fail_at, when=when)
    try:
        expire(reopened(table, faulty), keep(2))  # type: ignore[arg-type]
    except (UnavailableError, CorruptDataError):
        assert faulty.calls >= fail_at
    assert content(table) == {0: 3, 1: 1, 2: 2, 9: 9}
    assert content(table, tag="kept") == {0: 0, 1: 1}
    earliest = table.store.snapshots.earliest_id()
    assert earliest is not None
    for snapshot_id in range(earliest, 7):
        content(table, snapshot_id=snapshot_id)  # whatever the hint still offers can be read
    expire(table, keep(2))
    assert table.store.snapshots.ids() == [5, 6]
    assert files_there(table) == used_files(table)
    assert content(table, tag="kept") == {0: 0, 1: 1}


@pytest.mark.parametrize("pause", ["read_bytes", "delete", "list_names", "replace", "exists"])
@pytest.mark.parametrize("retention", [keep(1), keep(3)])
def test_two_processes_may_expire_at_once(pause: str, retention: Retention) -> None:
    """One runs through while the other stands at its first operation of a kind, and at each later one."""
    for skipped in range(12):
        io = MemoryFileIO(aged_files())
        table = key_table_at(io)
        paused = paused_at(io, pause, skipped, lambda: expire(key_table_at(io), retention))  # noqa: B023
        expire(reopened(table, paused), keep(2))
        expire(table, keep(2))
        assert content(table) == {0: 3, 1: 1, 2: 2, 9: 9}
        assert content(table, tag="kept") == {0: 0, 1: 1}
        assert files_there(table) == used_files(table)


def paused_at(io: MemoryFileIO, operation: str, skipped: int, action: Callable[[], object]) -> FileIO:
    """A file system that runs ``action`` before an operation, after some others of its kind."""
    left = [skipped]

    class Pausing:
        def __getattr__(self, name: str) -> Callable[..., object]:
            inner = getattr(io, name)

            def call(*arguments: object) -> object:
                if name == operation:
                    left[0] -= 1
                    if left[0] == -1:
                        action()
                return inner(*arguments)

            return call

    return Pausing()  # type: ignore[return-value]


@cache
def files_of_branches() -> dict[str, bytes]:
    """Main and ``dev`` with snapshots of their own to expire, and a tag of main that only it needs."""
    table = key_table(MemoryFileIO(), bucket="1", **trigger(2))
    table.write(rows((1, 0)))
    create_tag(table.store, "old")
    for value in (1, 2):
        table.write(rows((1, value)))
    create_branch(table.store, "dev", snapshot_id=2)
    for each, key in ((table, 2), (table.on_branch("dev"), 3)):
        for value in range(3):
            each.write(rows((key, value)))
            each.compact(full=True)
    return dict(table.store.io.files)  # type: ignore[attr-defined]


@pytest.mark.sweep
@pytest.mark.parametrize("ending", [("t1", "t4"), ("t4", "t1"), ("t1", "t4", "t7")])
def test_tags_that_end_at_any_place_of_an_expiry_leave_no_file(ending: tuple[str, ...]) -> None:
    """The expiry keeps files for a tag, and the deletion of that tag keeps them for the snapshots."""
    made = key_table(bucket="1", **trigger(2))
    for turn in range(9):
        made.write(rows((turn % 3, turn)))
        if turn in (1, 4, 7):
            create_tag(made.store, f"t{turn}")
    files = dict(made.store.io.files)  # type: ignore[attr-defined]
    for nth in range(1, 2000):
        io, reached = MemoryFileIO(dict(files)), []

        def delete_tags() -> None:
            reached.append(nth)  # noqa: B023
            for name in ending:
                delete_tag(key_table_at(io).store, name)  # noqa: B023

        expire(reopened(key_table_at(io), Nth(io, nth, delete_tags)))  # type: ignore[arg-type]
        table = key_table_at(io)
        assert files_there(table) == used_files(table), nth
        if not reached:
            break
    else:
        pytest.fail("the sweep did not end")
    assert nth > 20


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("first", ["dev", "main"])
def test_branches_expire_side_by_side_and_no_one_says_corrupt(first: str) -> None:
    """versions.md M5: an expiry deletes lists before snapshot files, and those of other branches did not find them."""
    for nth in range(1, 1000):
        io, reached = MemoryFileIO(files_of_branches()), []

        def others() -> None:
            reached.append(nth)  # noqa: B023
            table = key_table_at(io)  # noqa: B023
            expire(table.on_branch("dev"), keep(2))
            expire(table, keep(2))
            delete_tag(table.store, "old")
            expire(table.on_branch("dev"), keep(1))
            if nth % 2:  # noqa: B023
                raise KeyboardInterrupt  # it dies there

        with suppress(KeyboardInterrupt):
            expire(reopened(key_table_at(io), Nth(io, nth, others, of=("delete",))).on_branch(first), keep(1))  # type: ignore[arg-type]
        table = key_table_at(io)
        if not reached:
            break
        for branch in ("main", "dev"):
            expire(table.on_branch(branch), keep(1))
        assert (content(table), content(table.on_branch("dev"))) == ({1: 2, 2: 2}, {1: 1, 3: 2})
        assert files_there(table) == used_files(table)
    else:
        pytest.fail("the sweep did not end")
    assert nth > 5


@pytest.mark.sweep
def test_threads_that_expire_while_others_write_lose_nothing(tmp_path: Path) -> None:
    """FL-102: readers of the newest snapshot are never in the way of an expiry."""
    table = FileCatalog(str(tmp_path)).create_table(
        "db.t", KEY_SCHEMA, primary_key=["id"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3", "commit.max-retries": "50"},
    )  # fmt: skip
    errors: list[BaseException] = []
    is_done = threading.Event()

    def repeat(work: Callable[[FileTable], object]) -> None:
        mine = FileTable.open("db.t", table.store.paths.root)
        try:
            while not is_done.is_set():
                work(mine)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [
        threading.Thread(target=repeat, args=(lambda each: expire(each, keep(3)),)),
        threading.Thread(target=repeat, args=(lambda each: expire(each, keep(5)),)),
    ]
    for thread in threads:
        thread.start()
    for turn in range(25):
        table.write(rows((turn % 7, turn)))
        if turn % 5 == 4:
            table.compact()
    is_done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert content(table) == {each % 7: each for each in range(18, 25)}
    expire(table, keep(2))
    on_disk = {
        str(path) for path in Path(table.store.paths.root).rglob("*") if path.is_file() and path.parent.name != "schema"
    }
    claims = {path for path in on_disk if path.startswith(table.store.paths.expiry_dir)}
    assert len(claims) == 1
    assert on_disk - claims - {table.store.paths.latest_hint, table.store.paths.earliest_hint} == used_files(table) | {
        table.store.paths.snapshot(each) for each in table.store.snapshots.ids()
    }


def test_empty_directories_go_where_that_is_asked_for(tmp_path: Path) -> None:
    """snapshot.clean-empty-directories."""
    schema = pa.schema([("day", pa.string()), ("hour", pa.int32()), ("id", pa.int64())])
    for setting, expected in (("true", set()), ("false", {"day=a"})):
        table = FileCatalog(str(tmp_path / setting), io=LocalFileIO()).create_table(
            "db.t", schema, primary_key=["day", "hour", "id"], partition_by=["day", "hour"],
            options={"bucket": "1", "snapshot.clean-empty-directories": setting},
        )  # fmt: skip
        table.write(pa.table([["a"], pa.array([1], pa.int32()), [1]], schema=schema))
        drop_partitions(table.store, [key.partition for key in LiveFiles.latest(table.store).buckets()])
        expire(table)
        found = {path.name for path in Path(table.store.paths.root).iterdir() if path.name.startswith("day=")}
        assert found == expected
