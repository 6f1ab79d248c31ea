"""A process that is paused anywhere in a commit, while others change the history of its table.

What was acknowledged is in the table, the table can be read and written, and what was refused is not in it. The sweeps
pause before every single operation on the file system.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.commit.confirmation import GoneError, confirm, take_back_unless_followed
from filestore.commit.succession import Parent, Standing, Surroundings, standing
from filestore.evolution.schema_change import SetOption
from filestore.io.file_io import LocalFileIO
from filestore.io.memory_files import MemoryFiles
from filestore.maintenance.history_repair import read_history, repair_history
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot_store import SnapshotStore
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, OutcomeUnknownError
from tests.support.faults import CountedNames, Disks, ManualClock, MemoryFileIO, Nth
from tests.support.tables import (
    KEY_SCHEMA,
    check_metadata,
    committable_of,
    content,
    copied,
    key_table,
    memory_catalog,
    reopened,
    rows,
)

KEEP_ONE = Retention(min_count=1, max_count=1, age_ms=10**15, limit=99)


def three_commits(**options: str) -> FileTable:
    """Snapshots 1 to 3 with the keys 1 to 3; their values are the same."""
    table = key_table(bucket="1", **{"write-only": "true", **options})
    for key in (1, 2, 3):
        table.write(rows((key, key)))
    return table


_three_commits = cache(three_commits)


def five_more_then_expire(table: FileTable) -> None:
    """Snapshots 4 to 8, of which only the last stays."""
    for key in range(4, 9):
        table.write(rows((key, key)))
    list(expire_snapshots(table.store, KEEP_ONE))


def back_to_the_first(table: FileTable) -> None:
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(1)))


def back_and_forth(table: FileTable) -> None:
    """The ids 2 and 3 belong to other snapshots afterwards."""
    back_to_the_first(table)
    for key in (12, 13):
        table.write(rows((key, key)))


def another_writer(table: FileTable) -> None:
    table.write(rows((4, 4)))


Action = Callable[[FileTable], None]


def paused_at(
    nth: int, action: Action, attempt: Callable[[FileTable], object], before: Callable[[], FileTable] = _three_commits
) -> tuple[FileTable, bool, object]:
    """The table, whether the action ran, and the result or error of an attempt paused before its n-th operation."""
    table = copied(before())
    io = Nth(table.store.io, 0, lambda: action(table))
    paused = reopened(table, io)  # type: ignore[arg-type]
    io.left = nth
    try:
        return table, io.left <= 0, attempt(paused)
    except FluvialError as error:
        return table, io.left <= 0, error
    finally:
        io.left = -1


def sweep(
    action: Action,
    attempt: Callable[[FileTable], object],
    check: Callable[[FileTable, object], None],
    before: Callable[[], FileTable] = _three_commits,
) -> int:
    """Pause an attempt before each of its operations, and check every end. Returns how many operations there are."""
    disks = Disks()
    for nth in range(1, 200):
        probe: list[bool] = []

        def once(table: FileTable, probe: list[bool] = probe) -> None:
            probe.append(True)
            action(table)

        table, _, result = paused_at(nth, once, attempt, before)
        if not probe:
            assert not isinstance(result, FluvialError)
            return nth - 1
        if not disks.is_new(table.store.io, repr(result)):
            continue
        try:
            check(table, result)
            table.write(rows((50, 50)))
            assert content(table)[50] == 50
            check_metadata(table)
        except (AssertionError, FluvialError, OSError) as error:
            raise AssertionError(f"paused before operation {nth}, which ended in {result!r}: {error}") from error
    raise AssertionError("the attempt does not end")


def write_42(table: FileTable) -> object:
    return table.write(rows((42, 42)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("action", "others"),
    [
        (five_more_then_expire, {*range(1, 9)}),
        (back_to_the_first, {1}),
        (back_and_forth, {1, 12, 13}),
        (another_writer, {1, 2, 3, 4}),
    ],
)
@pytest.mark.sweep
def test_a_write_that_is_paused_anywhere_is_in_the_table_or_refused(action: Action, others: set[int]) -> None:
    def check(table: FileTable, result: object) -> None:
        seen = {*content(table)}
        if isinstance(result, OutcomeUnknownError):
            assert seen in (others, others | {42})
        elif isinstance(result, FluvialError):
            assert seen == others
        else:
            assert seen == others | {42}

    assert sweep(action, write_42, check) > 15


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("action", "others"),
    [(five_more_then_expire, {*range(1, 9)}), (back_to_the_first, {1}), (back_and_forth, {1, 12, 13})],
)
@pytest.mark.sweep
def test_a_compaction_that_is_paused_anywhere_loses_nothing(action: Action, others: set[int]) -> None:
    def check(table: FileTable, result: object) -> None:
        assert {*content(table)} == others

    assert sweep(action, lambda table: table.compact(full=True), check) > 15


class DeadBefore:
    """A file system of a process that dies right before it deletes a file."""

    def __init__(self, inner: object, path: str) -> None:
        self._inner, self._path = inner, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete(self, path: str) -> None:
        if path == self._path:
            raise ProcessDied
        self._inner.delete(path)  # type: ignore[attr-defined]


def five_more_then_half_an_expiry(table: FileTable) -> None:
    """Snapshots 4 to 8; 3 is there, and its files are not."""
    for key in range(4, 9):
        table.write(rows((key, key)))
    io = DeadBefore(table.store.io, table.store.paths.snapshot(3))
    with suppress(ProcessDied):
        list(expire_snapshots(reopened(table, io).store, KEEP_ONE))  # type: ignore[arg-type]
    assert {3, 4} < {*table.store.snapshots.ids()}


@pytest.mark.sweep
@pytest.mark.parametrize("merges", ["2", "30"])
@pytest.mark.parametrize("attempt", [write_42, lambda table: table.compact(full=True)], ids=["write", "compact"])
def test_no_writer_takes_files_for_lost_that_an_expiry_has_just_deleted(
    attempt: Callable[[FileTable], object], merges: str
) -> None:
    """soak: the newest snapshot that a commit saw is still there, but expires, and its manifests are gone."""

    def check(table: FileTable, result: object) -> None:
        assert not isinstance(result, CorruptDataError)
        assert {*content(table)} - {42} == {*range(1, 9)}
        list(expire_snapshots(table.store, KEEP_ONE))  # the next one completes it

    def before() -> FileTable:
        return _three_commits(**{"manifest.merge-min-count": merges})

    assert sweep(five_more_then_half_an_expiry, attempt, check, before=before) > 15


@pytest.mark.long
@pytest.mark.sweep
def test_a_rollback_that_is_paused_anywhere_never_loses_an_acknowledged_write() -> None:
    """The write comes while the rollback is paused: one of both is refused, or the write comes first or last."""
    refused = []

    def write_or_be_refused(table: FileTable) -> None:
        refused.clear()
        try:
            another_writer(table)
        except ConflictError as error:
            refused.append(error)

    def check(table: FileTable, result: object) -> None:
        seen = {*content(table)}
        if isinstance(result, FluvialError):
            assert isinstance(result, ConflictError)
            assert (seen, refused) == ({1, 2, 3, 4}, [])
        else:
            assert seen == {1} if refused else seen in ({1}, {1, 4})

    sweep(write_or_be_refused, lambda table: back_to_the_first(table), check)


@pytest.mark.sweep
def test_a_tag_that_comes_while_a_rollback_is_paused_anywhere_is_whole_or_refused() -> None:
    def tag_the_newest(table: FileTable) -> None:
        with suppress(InvalidInputError, ConflictError):
            create_tag(table.store, "newest", snapshot_id=3)

    def check(table: FileTable, result: object) -> None:
        is_tagged = "newest" in table.store.snapshots.tag_names()
        assert {*content(table)} == ({1, 2, 3} if isinstance(result, FluvialError) else {1})
        if is_tagged:
            assert content(table, tag="newest") == {1: 1, 2: 2, 3: 3}
        list(expire_snapshots(table.store, KEEP_ONE))

    assert sweep(tag_the_newest, lambda table: back_to_the_first(table), check) > 15


def test_an_expired_number_is_not_published_again() -> None:
    """The reproduction of the finding: the commit follows snapshot 8, hints and history are whole."""
    table = three_commits()
    io = Nth(table.store.io, 1, lambda: five_more_then_expire(table), of=("create_exclusive",))
    done = reopened(table, io).write(rows((999, 42)))  # type: ignore[arg-type]
    snapshots = table.store.snapshots
    assert done.snapshot is not None
    assert done.snapshot.id == 9
    assert snapshots.ids() == [8, 9]
    assert snapshots.hints() == (8, 9)
    assert content(table) == {**{key: key for key in range(1, 9)}, 999: 42}
    assert snapshots.read(9).parent == snapshots.read(8).uuid


def test_a_commit_that_expired_before_it_was_acknowledged_is_acknowledged() -> None:
    """Paused after the creation: it was visible, the others followed it, and its rows stay."""
    table = three_commits()
    io = Nth(table.store.io, 1, lambda: five_more_then_expire(table), of=("replace",))  # the hint LATEST
    done = reopened(table, io).write(rows((42, 42)))  # type: ignore[arg-type]
    assert done.snapshot is not None
    assert done.snapshot.id == 4
    assert table.store.snapshots.ids() == [9]
    assert table.store.snapshots.hints() == (9, 9), "the late hint was set right again"
    assert 42 in content(table)


def test_a_commit_that_was_rolled_back_before_it_was_acknowledged_is_said_to_be_gone() -> None:
    table = three_commits()
    io = Nth(table.store.io, 1, lambda: back_to_the_first(table), of=("replace",))
    with pytest.raises(GoneError, match=r"removed by a rollback, a drop or a rename .*fix=open the table again"):
        reopened(table, io).write(rows((42, 42)))  # type: ignore[arg-type]
    assert content(table) == {1: 1}


# ---- another table under the name


def local_catalog(directory: Path) -> FileCatalog:
    return FileCatalog(str(directory), io=LocalFileIO(), clock=ManualClock(), names=CountedNames())


def local_table(catalog: FileCatalog) -> FileTable:
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    for key in (1, 2, 3):
        table.write(rows((key, key)))
    return table


def drop(catalog: FileCatalog) -> None:
    catalog.drop_table("db.t")


def drop_and_create(catalog: FileCatalog) -> None:
    catalog.drop_table("db.t")
    local_table(catalog)


def drop_and_create_empty(catalog: FileCatalog) -> None:
    catalog.drop_table("db.t")
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})


def rename(catalog: FileCatalog) -> None:
    catalog.rename_table("db.t", "db.other")


@pytest.mark.parametrize("is_empty", [False, True], ids=["three commits", "no commit"])
@pytest.mark.parametrize("operation", ["create_exclusive", "replace_hint", "read_bytes"])
@pytest.mark.parametrize("action", [drop, drop_and_create, drop_and_create_empty, rename])
def test_a_commit_to_a_table_that_is_another_one_is_refused(
    tmp_path: Path, action: Callable[[FileCatalog], None], operation: str, is_empty: bool
) -> None:
    """Dropped, made again or renamed while the writer is paused around the creation of its snapshot."""
    catalog = local_catalog(tmp_path)
    if is_empty:
        table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    else:
        table = local_table(catalog)
    created = Nth(table.store.io, 1, lambda: setattr(late, "left", 1), of=("create_exclusive",))
    late = Nth(created, -1, lambda: action(catalog), of=(operation,))
    if operation == "create_exclusive":
        late.left = 1
    with pytest.raises((InvalidInputError, OutcomeUnknownError)) as raised:
        reopened(table, late).write(rows((42, 42)))  # type: ignore[arg-type]
    names = catalog.list_tables("db")
    assert names == {drop: [], rename: ["other"]}.get(action, ["t"])
    for name in names:
        found = catalog.table(f"db.{name}")
        seen = {*content(found)}
        assert 42 not in seen or isinstance(raised.value, OutcomeUnknownError)
        found.write(rows((50, 50)))
        assert content(found)[50] == 50
        check_metadata(found)
    if action in (drop, rename):
        local_table(catalog)  # the name is free: nothing is left under it


# ---- under a lock


@pytest.mark.parametrize(
    ("action", "others"),
    [(five_more_then_expire, {*range(1, 9)}), (back_to_the_first, {1}), (back_and_forth, {1, 12, 13})],
)
def test_a_lock_does_not_hide_that_the_history_changed(tmp_path: Path, action: Action, others: set[int]) -> None:
    """The number was chosen before the lock was taken; the pause is between the two."""
    catalog = local_catalog(tmp_path)
    options = {"bucket": "1", "write-only": "true", "commit.lock": "file"}
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    for key in (1, 2, 3):
        table.write(rows((key, key)))
    io = Nth(table.store.io, 1, lambda: action(table), of=("list_names",))  # of schemas, the last look before the lock
    try:
        reopened(table, io).write(rows((42, 42)))  # type: ignore[arg-type]
        others = others | {42}
    except ConflictError:
        pass
    assert {*content(table)} == others
    table.write(rows((50, 50)))
    assert content(table)[50] == 50
    check_metadata(table)


# ---- hints


@pytest.mark.sweep
def test_a_commit_that_came_into_a_table_made_again_stays_where_another_engine_follows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files were deleted below the commit that followed, and the new table could not be read."""
    monkeypatch.setattr(SnapshotStore, "is_of_other_table", lambda self, snapshot: False)
    options, ends = {"bucket": "1", "write-only": "true"}, set()
    for nth in count(1):
        catalog = memory_catalog()
        io = Nth(
            catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options).store.io, 0, lambda: None
        )
        old = FileTable(reopened(catalog.table("db.t"), io).store.as_found)  # type: ignore[arg-type]
        catalog.drop_table("db.t")  # since it looked
        new = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
        followed = []

        def follow(new: FileTable = new, followed: list[int] = followed) -> None:
            if new.store.snapshots.exists(1):
                followed.append(new.write(rows((2, 2))).snapshot.id)  # type: ignore[union-attr]

        io.left, io.action = nth, follow
        with pytest.raises((GoneError, ConflictError, InvalidInputError)) as raised:
            old.write(rows((1, 1)))
        is_there = followed == [2]
        assert isinstance(raised.value, GoneError) == is_there
        new.write(rows((3, 3)))
        assert content(new) == {**({1: 1, 2: 2} if is_there else {}), **({2: 2} if followed else {}), 3: 3}
        check_metadata(new)
        ends.add(is_there)
        if io.left > 0:
            break
    assert ends == {True, False}


class ProcessDied(BaseException):
    """The process ends here."""


class StoppedClock(ManualClock):
    """Always the same time."""

    def now_ms(self) -> int:
        return self.ms


def without_uuid(catalog: FileCatalog, ids: Sequence[int]) -> FileTable:
    """The table, with a version 1 of its schema; these versions are as Java writes them, which skips unknown keys."""
    catalog.alter_table("db.t", [SetOption("snapshot.num-retained.max", "99")])
    table = catalog.table("db.t")
    for path in map(table.store.paths.schema, ids):
        body = json.loads(table.store.io.read_bytes(path))
        del body["fluvialTableUuid"]
        table.store.io.replace(path, json.dumps(body).encode())
    return catalog.table("db.t")


def dead_in_a_table_made_again(
    commits: int, *, written: int = 0, paused_before: str = "snapshot", java: Sequence[int] | None = None
) -> FileTable:
    """The new table, after a handle of the former one published into it, and died before it looked behind that.

    ``paused_before``: what the handle has not written yet when the table is made again, "snapshot" or "all files".
    ``java``: the versions of the schema that Java wrote; None: there is one, and not by Java.
    """

    def switch() -> None:
        if java and 0 in java:
            table.store.clock.sleep(0.001)
        drop_and_create_empty(catalog)
        if java is not None:
            without_uuid(catalog, java)
        for key in range(written):
            catalog.table("db.t").write(rows((10 + key, 0)))

    def publishes() -> None:
        late.left = 2

    def die() -> None:
        raise ProcessDied

    catalog = memory_catalog()
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
    if java is not None:
        table = without_uuid(catalog, java)
    for key in range(commits):
        table.write(rows((key, key)))
    late = Nth(table.store.io, -1, die)
    creating = Nth(late, 1, publishes, of=("create_exclusive",))
    io = Nth(creating, -1, switch, of=("create_exclusive",) if paused_before == "snapshot" else None)
    old = FileTable(reopened(table, io).store.as_found)  # type: ignore[arg-type]  # it looked before that
    io.left = 1
    with pytest.raises(ProcessDied):
        old.write(rows((1, 1)))
    return catalog.table("db.t")


@pytest.mark.parametrize("commits", [0, 3])
@pytest.mark.sweep
def test_no_commit_of_a_former_table_is_in_the_one_made_again_under_its_name(commits: int) -> None:
    """Wherever the old handle is paused: nothing of it is read, followed or kept, and what is new stays."""
    options, ends = {"bucket": "1", "write-only": "true"}, set()
    for nth in count(1):
        catalog = memory_catalog()
        first = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
        for key in range(commits):
            first.write(rows((key, key)))
        io = Nth(first.store.io, 0, lambda: None)
        old = reopened(first, io)  # type: ignore[arg-type]

        def replaced_and_written(catalog: FileCatalog = catalog) -> None:
            drop_and_create_empty(catalog)
            catalog.table("db.t").write(rows((2, 2)))

        io.left, io.action = nth, replaced_and_written
        try:
            old.write(rows((1, 1)))
            ends.add("acknowledged")  # before the drop
        except (FluvialError, FileNotFoundError) as error:  # or a file went as it was written
            ends.add(type(error).__name__)
        if io.left > 0:
            break
        new = catalog.table("db.t")
        new.write(rows((3, 3)))
        assert content(new) == {2: 2, 3: 3}, f"paused before operation {nth}"
        check_metadata(new)
    assert ends >= {"acknowledged", "GoneError"}


@pytest.mark.parametrize(
    ("java", "paused_before"), [(None, "snapshot"), ([1], "snapshot"), ([1], "all files"), ([0, 1], "snapshot")]
)
@pytest.mark.parametrize("commits", [0, 3])
def test_a_table_made_again_is_empty_and_writable_beside_what_a_dead_handle_left_in_it(
    commits: int, java: Sequence[int] | None, paused_before: str
) -> None:
    """Seed 3004121: a commit followed it, and the new table could not be read; also one that Java altered, or made."""
    new = dead_in_a_table_made_again(commits, java=java, paused_before=paused_before)
    left = 1 if paused_before == "all files" else commits + 1
    assert new.store.snapshots.ids() == [left]
    assert new.store.snapshots.latest() is None
    assert new.store.snapshots.earliest_id() is None
    assert content(new) == {}
    assert [each.id for each in read_history(new.store).forks] == [left]
    new.write(rows((2, 2)))
    assert (new.store.snapshots.ids(), content(new)) == ([1], {2: 2})
    check_metadata(new)


@pytest.mark.parametrize(
    ("commits", "written", "paused_before"),
    [(0, 0, "snapshot"), (0, 0, "all files"), (1, 1, "snapshot"), (3, 1, "snapshot")],
)
def test_what_a_dead_handle_left_in_a_table_made_again_stops_nothing(
    commits: int, written: int, paused_before: str
) -> None:
    """Its number is the next one or a later one, and its files may be there or gone with the former table."""
    new = dead_in_a_table_made_again(commits, written=written, paused_before=paused_before)
    store, here = new.store, {10 + key: 0 for key in range(written)}
    assert (content(new), list(expire_snapshots(store, KEEP_ONE))) == (here, [])
    find_orphans(store, before_ms=2**60)
    done = [(step.action, step.subject) for step in repair_history(store)]
    assert done[:1] == [("remove fork", f"snapshot {commits + 1}")]
    assert store.snapshots.tag_names() == [], "its rows are of another table"
    stray = dead_in_a_table_made_again(commits, written=written, paused_before=paused_before)
    for key in (1, 2, 3):
        stray.write(rows((key, key)))
    assert content(stray) == {**here, 1: 1, 2: 2, 3: 3}
    check_metadata(stray)


@pytest.mark.parametrize("action", [drop, drop_and_create_empty])
@pytest.mark.sweep
def test_an_expiry_that_is_paused_leaves_nothing_in_a_table_made_again(
    action: Callable[[FileCatalog], None],
) -> None:
    """No claim, hint or note of a committed batch; where the table was dropped, its name is free. (Seed 15001158)"""
    for nth in count(1):
        catalog = memory_catalog()
        table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
        for batch in (1, 2):
            table.new_commit("query").commit(committable_of(table, batch, rows((batch, batch))))
        for key in (3, 4):
            table.write(rows((key, key)))
        io = Nth(table.store.io, 0, lambda: None, of=("replace", "delete"))
        paused = reopened(table, io)  # type: ignore[arg-type]
        io.left, io.action = nth, lambda catalog=catalog: action(catalog)  # type: ignore[misc]
        with suppress(FluvialError, FileNotFoundError):
            list(expire_snapshots(paused.store, KEEP_ONE))
        if io.left > 0:
            break
        if action is drop:  # the name is free
            catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"})
        new = catalog.table("db.t")
        assert new.new_commit("query").filter_committed([1]) == [1]
        for key in range(5):
            new.write(rows((key, key)))
        create_tag(new.store, "first", snapshot_id=1)
        assert (new.store.snapshots.earliest_id(), new.store.snapshots.claimed_up_to()) == (1, 1), f"before {nth}"
        check_metadata(new)
    assert nth > 5


def dead_expiry_in_a_table_made_again(nth: int, *, written: int, is_expired: bool) -> tuple[FileTable, bool]:
    """The new table, in which the expiry of a former one died right behind the n-th thing that it wrote or deleted.

    Returns: the table, and whether the expiry came so far.
    """

    def switch() -> None:
        drop_and_create_empty(catalog)
        new = catalog.table("db.t")
        for batch in range(1, written + 1):
            new.new_commit("query").commit(committable_of(new, batch, rows((batch, batch))))
        if is_expired:
            list(expire_snapshots(new.store, replace(KEEP_ONE, max_count=3)))
        dying.left = 2  # behind the one that is about to be done

    def die() -> None:
        raise ProcessDied

    catalog = FileCatalog("/warehouse", io=MemoryFiles(), clock=ManualClock(), names=CountedNames())
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for batch in (21, 22):
        table.new_commit("query").commit(committable_of(table, batch, rows((batch, batch))))
    for key in (3, 4):
        table.write(rows((key, key)))
    dying = Nth(table.store.io, -1, die)
    io = Nth(dying, -1, switch, of=("replace", "delete"))
    expiring = reopened(table, io)  # type: ignore[arg-type]
    io.left = nth
    with suppress(ProcessDied, FluvialError):
        list(expire_snapshots(expiring.store, KEEP_ONE))
    return catalog.table("db.t"), io.left <= 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("written", "is_expired"), [(0, False), (2, False), (6, False), (6, True)])
@pytest.mark.sweep
def test_what_a_dead_expiry_left_in_a_table_made_again_stops_nothing(written: int, is_expired: bool) -> None:
    """Its claim, hint and notes are of another history: snapshots are tagged, and batches written, as without them."""
    for nth in count(1):
        table, is_done = dead_expiry_in_a_table_made_again(nth, written=written, is_expired=is_expired)
        if not is_done:
            break
        store, first = table.store, 4 if is_expired else 1
        for batch in range(written + 1, 8):
            assert table.new_commit("query").filter_committed([batch, 22]) == [batch, 22], f"behind {nth}"
            table.new_commit("query").commit(committable_of(table, batch, rows((batch, batch))))
        assert (store.snapshots.earliest_id(), store.snapshots.claimed_up_to()) == (first, first), f"behind {nth}"
        create_tag(store, "first", snapshot_id=first)
        roll_back(store, plan_rollback(store, store.snapshots.read(6)))
        assert content(table) == {key: key for key in range(1, 7)}
        table.write(rows((9, 9)))
        assert [step.snapshot.id for step in expire_snapshots(store, KEEP_ONE)] == [*range(first, 7)]
        assert store.snapshots.claimed_up_to() == 7
        assert table.new_commit("query").filter_committed([6, 7]) == [7], "noted, wherever the other one died"
        list(repair_history(store))
        assert [each.id for each in store.snapshots.claims.refs()] == [7]
        check_metadata(table)
    assert nth > 3


def test_a_table_made_again_at_the_same_time_is_another_one() -> None:
    """Its first schema is equal to that of the former table, but for its id."""
    catalog = FileCatalog("/warehouse", io=MemoryFileIO(), clock=StoppedClock(), names=CountedNames())
    options = {"bucket": "1"}
    old = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    catalog.drop_table("db.t")
    new = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    assert old.store.schema == new.store.schema
    with pytest.raises(InvalidInputError, match="made again since it was opened"):
        old.write(rows((1, 1)))
    assert content(new) == {}


def test_a_wrong_earliest_hint_deletes_nothing() -> None:
    table = three_commits()
    create_tag(table.store, "first", snapshot_id=1)
    table.store.snapshots.write_earliest_hint(3)
    keep_all = Retention(min_count=10, max_count=10, age_ms=10**15, limit=99)
    assert list(expire_snapshots(table.store, keep_all)) == []
    assert table.store.snapshots.ids() == [1, 2, 3]


def test_an_interrupted_expiry_is_completed_by_its_claim() -> None:
    table = three_commits()
    table.store.snapshots.claim_up_to(3)
    table.store.snapshots.write_earliest_hint(1)
    keep_all = Retention(min_count=10, max_count=10, age_ms=10**15, limit=99)
    assert [step.snapshot.id for step in expire_snapshots(table.store, keep_all)] == [1, 2]


def test_a_claim_is_never_lowered() -> None:
    table = three_commits()
    table.store.snapshots.claim_up_to(3)
    table.store.snapshots.claim_up_to(2)
    assert (table.store.snapshots.claimed_up_to(), table.store.snapshots.claims.highest_id()) == (3, 3)


def test_a_claim_of_a_history_that_was_rolled_back_deletes_nothing() -> None:
    """A restored directory, for example: the snapshot that the claim names is another one."""
    table = three_commits()
    table.store.snapshots.claim_up_to(3)
    third = table.store.snapshots.read(3)
    table.store.io.delete(table.store.paths.snapshot(3))
    table.store.io.replace(table.store.paths.snapshot(3), replace(third, uuid="another").to_json().encode())
    assert table.store.snapshots.claimed_up_to() == 1


def test_a_latest_hint_below_the_earliest_is_not_believed() -> None:
    """A fork that another engine left in an expired number."""
    table = three_commits()
    five_more_then_expire(table)
    snapshots, io = table.store.snapshots, table.store.io
    fork = io.read_bytes(table.store.paths.snapshot(8)).replace(b'"id": 8', b'"id": 4')
    io.write_new(table.store.paths.snapshot(4), fork)
    io.replace(table.store.paths.latest_hint, b"4")
    assert snapshots.latest_id() == 8


@pytest.mark.parametrize("hint", ["latest_hint", "earliest_hint"])
def test_a_hint_with_a_number_of_5000_digits_is_not_believed(hint: str) -> None:
    """Python refuses to make an int of it; it may be what is left of a damaged file."""
    table = three_commits()
    table.store.io.replace(getattr(table.store.paths, hint), b"7" * 5000)
    assert content(table) == {1: 1, 2: 2, 3: 3}
    another_writer(table)
    create_tag(table.store, "t")
    assert list(repair_history(table.store, dry_run=True)) == list(repair_history(table.store))
    assert table.store.snapshots.hints() == (1, 4)
    assert [step.snapshot.id for step in expire_snapshots(table.store, KEEP_ONE)] == [1, 2, 3]
    assert content(table) == {1: 1, 2: 2, 3: 3, 4: 4}


def test_the_latest_hint_is_never_lowered_by_a_commit() -> None:
    table = three_commits()
    table.store.snapshots.raise_latest_hint(2)
    assert table.store.snapshots.hints() == (1, 3)
    table.store.io.replace(table.store.paths.latest_hint, b"77")
    table.store.snapshots.raise_latest_hint(3)
    assert table.store.snapshots.hints() == (1, 3), "a hint of a snapshot that does not exist counts for nothing"


# ---- forks


@pytest.mark.parametrize("has_hint", [True, False])
def test_no_reader_and_no_commit_follows_a_fork(has_hint: bool) -> None:
    """A snapshot of a writer that died before it could take it back, with the next number."""
    table = three_commits()
    body = table.store.io.read_bytes(table.store.paths.snapshot(3)).replace(b'"id": 3', b'"id": 4')
    table.store.io.write_new(table.store.paths.snapshot(4), body)
    if not has_hint:
        table.store.io.delete(table.store.paths.latest_hint)
    assert table.store.snapshots.latest_id() == 3
    options = {"commit.max-retries": "1", "commit.min-retry-wait": "1 ms"}
    with pytest.raises(ConflictError, match=r"does not continue the history"):
        table.with_options(options).write(rows((5, 5)))


def test_a_hint_that_is_set_right_never_names_a_fork() -> None:
    """It would be trusted, and acknowledged commits after it would continue the fork."""
    table = three_commits()
    paths, io = table.store.paths, table.store.io
    io.write_new(paths.snapshot(4), io.read_bytes(paths.snapshot(3)).replace(b'"id": 3', b'"id": 4'))
    for hint in (b"2", b"77", b"x"):
        io.replace(paths.latest_hint, hint)
        table.store.snapshots.repair_latest_hint()
        assert table.store.snapshots.hints()[1] == 3
        assert table.store.snapshots.latest_id() == 3
    io.delete(paths.snapshot(4))
    another_writer(table)
    io.replace(paths.latest_hint, b"2")
    table.store.snapshots.repair_latest_hint()
    assert table.store.snapshots.hints()[1] == 4


def test_expiry_leaves_a_fork_alone() -> None:
    table = three_commits()
    five_more_then_expire(table)
    io, paths = table.store.io, table.store.paths
    fork = io.read_bytes(paths.snapshot(8)).replace(b'"id": 8', b'"id": 7')
    io.write_new(paths.snapshot(7), fork)
    table.write(rows((9, 9)))
    assert [step.snapshot.id for step in expire_snapshots(table.store, KEEP_ONE)] == [8]
    assert io.exists(paths.snapshot(7))
    assert {*content(table)} == {*range(1, 10)}


# ---- the decision


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"parent": Parent.SAME}, Standing.PUBLISHED),
        ({"parent": Parent.OTHER, "has_older": True}, Standing.FORKED),
        ({"parent": Parent.MISSING}, Standing.PUBLISHED),  # the only snapshot
        ({"parent": Parent.MISSING, "has_newer": True}, Standing.FORKED),  # in a number that had expired
        ({"parent": Parent.MISSING, "has_newer": True, "is_followed": True}, Standing.PUBLISHED),
        ({"parent": Parent.MISSING, "has_newer": True, "is_first_kept": True}, Standing.PUBLISHED),
        ({"parent": Parent.MISSING, "has_older": True}, Standing.FORKED),  # in a number that was rolled back
        (
            {"parent": Parent.MISSING, "has_older": True, "is_first_kept": True},
            Standing.PUBLISHED,
        ),
        ({"parent": Parent.SAME, "is_same_table": False}, Standing.FORKED),
        ({"parent": Parent.SAME, "is_same_table": False, "is_there": False}, Standing.REMOVED),
        ({"parent": Parent.SAME, "is_there": False, "has_older": True}, Standing.REMOVED),  # rolled back to its parent
        ({"parent": Parent.MISSING, "is_there": False, "has_newer": True}, Standing.PUBLISHED),  # expired since
        ({"parent": Parent.MISSING, "is_there": False, "has_newer": True, "is_noted": True}, Standing.REMOVED),
        ({"parent": Parent.MISSING, "is_there": False}, Standing.REMOVED),
    ],
)
def test_where_a_created_snapshot_is(found: dict[str, object], expected: Standing) -> None:
    whole = {"is_same_table": True, "is_there": True, **found}
    assert standing(Surroundings(**whole)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_snapshot_is_taken_back_unless_a_commit_that_continues_it_follows(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is taken back, other writers may use its number and the next: it is not acknowledged for that."""
    table = copied(_three_commits())
    taken = table.store.snapshots.read(3)
    delete = type(table.store).delete_snapshot

    def delete_then_others(store: object, snapshot: object) -> bool:
        was_there = delete(store, snapshot)  # type: ignore[arg-type]
        for key in range(10, 10 + others):
            reopened(table, table.store.io).write(rows((key, key)))
        return was_there

    monkeypatch.setattr(type(table.store), "delete_snapshot", delete_then_others)
    assert take_back_unless_followed(table.store, taken)
    assert content(reopened(table, table.store.io)) == {key: key for key in (1, 2, *range(10, 10 + others))}


def test_a_snapshot_comes_back_when_a_commit_on_top_of_it_was_made_while_it_was_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = copied(_three_commits())
    taken, following = table.store.snapshots.read(2), table.store.snapshots.read(3)
    table.store.delete_snapshot(following)
    delete = type(table.store).delete_snapshot

    def delete_then_follow(store: object, snapshot: object) -> bool:
        was_there = delete(store, snapshot)  # type: ignore[arg-type]
        assert table.store.io.create_exclusive(table.store.paths.snapshot(3), following.to_json().encode())
        return was_there

    monkeypatch.setattr(type(table.store), "delete_snapshot", delete_then_follow)
    assert not take_back_unless_followed(table.store, taken)
    assert content(reopened(table, table.store.io)) == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(("left", "is_taken_back"), [((4,), False), ((1,), True), ((), True)])
def test_a_snapshot_that_is_gone_was_taken_back_unless_it_expired(left: tuple[int, ...], is_taken_back: bool) -> None:
    """Its commit must not be made again if others had gone on from it; else its files are its writer's again."""
    table = copied(_three_commits())
    table.write(rows((4, 4)))
    taken = table.store.snapshots.read(2)
    for each in {1, 2, 3, 4} - {*left}:
        table.store.io.delete(table.store.paths.snapshot(each))
    assert take_back_unless_followed(table.store, taken) is is_taken_back


def test_a_rollback_that_finds_a_snapshot_taken_back_leaves_it_to_its_writer() -> None:
    """Its files may be in the writer's next snapshot: neither they nor a note of them are touched."""
    table = copied(_three_commits())
    plan = plan_rollback(table.store, table.store.snapshots.read(1))
    last = table.store.snapshots.read(3)
    table.store.delete_snapshot(last)
    with pytest.raises(ConflictError, match="snapshot=3"):
        roll_back(table.store, plan)
    assert table.store.snapshots.removed.identities() == frozenset()
    assert noted_names(table) == []
    assert table.store.snapshots.publish(replace(last, uuid="again"))
    assert content(reopened(table, table.store.io)) == {1: 1, 2: 2, 3: 3}


def test_what_a_rollback_has_noted_is_not_committed_again_by_its_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer finds its parent leaving; before it takes its snapshot back, a second rollback has seen that one."""
    table = copied(_three_commits())
    parent, last = (table.store.snapshots.read(each) for each in (2, 3))
    delete = type(table.store).delete_snapshot
    table.store.snapshots.removed.add(parent.identity)

    def noted_then_deleted(store: object, snapshot: object) -> bool:
        table.store.snapshots.removed.add(last.identity)
        return delete(store, snapshot)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table.store), "delete_snapshot", noted_then_deleted)
    with pytest.raises(GoneError, match="removed by a rollback"):
        confirm(table.store, last, parent.ref, commit_user="w")


def noted_names(table: FileTable) -> list[str]:
    return table.store.io.list_names(f"{table.store.paths.root}/rollback")
