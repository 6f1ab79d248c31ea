"""Forks beside whatever deletes files: a snapshot in a number that was freed proves nothing about the history.

A writer was overtaken: it planned on a snapshot that has expired since, and publishes into a number that is free again.
It dies there, or it goes on and takes its snapshot back.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.branch.fast_forward import fast_forward
from filestore.maintenance.history_repair import read_history, repair_history
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.tag.automatic_tags import create_batch_tag
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, expired_tags, replace_tag
from lsm.errors import ConflictError, CorruptDataError, FluvialError
from tests.support.roots import check_orphans_go
from tests.support.tables import committable_of, content, expire_all_but, key_table, newest_snapshot, rows

DAY_MS = 86_400_000
Act = Callable[[FileTable], object]


class Killed(BaseException):
    """The process is dead."""


class Overtaken:
    """Files of a writer that is paused before it creates its first snapshot; perhaps it dies behind the creation."""

    def __init__(self, inner: Any, *, before: Callable[[], object], behind: Callable[[], object], dies: bool) -> None:
        self.inner, self.before, self.behind, self.dies = inner, before, behind, dies
        self.has_published = self.is_dead = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation: Callable[..., Any] = getattr(self.inner, name)

        def call(*arguments: Any) -> Any:
            if self.is_dead:
                raise Killed
            if name != "create_exclusive" or "/snapshot/snapshot-" not in arguments[0] or self.has_published:
                return operation(*arguments)
            self.has_published = True
            self.before()
            made = operation(*arguments)
            assert made, f"the number was not free: {arguments[0]}"
            self.behind()
            self.is_dead = self.dies
            if self.is_dead:
                raise Killed
            return made

        return call


def on_files(table: FileTable, io: Any) -> FileTable:
    """The same table and branch through other files; its schema may be a newer one."""
    store = table.store
    return FileTable.open(
        table.name, store.paths.root, branch=store.paths.branch, io=io, clock=store.clock, names=store.names
    )


def nothing(table: FileTable) -> None:
    """Does nothing."""


def compact(table: FileTable) -> object:
    return table.compact(full=True)


def overwrite(table: FileTable) -> object:
    """An ordinary writer whose snapshot has none of the files before it; key 90 stands for its rows."""
    return table.overwrite(rows((90, 90)), {})


def append(table: FileTable) -> object:
    return table.write(rows((91, 91)))


WRITERS: Mapping[str, Act] = {"compaction": compact, "overwrite": overwrite}  # without the files before them
ALL_WRITERS = {**WRITERS, "append": append}


def publish_late(
    table: FileTable, writer: Act, *, meanwhile: Act, behind: Act = nothing, dies: bool
) -> FluvialError | None:
    """A writer publishes after ``meanwhile``, which frees its number; returns what it was refused with."""
    io = Overtaken(table.store.io, before=lambda: meanwhile(table), behind=lambda: behind(table), dies=dies)
    try:
        writer(on_files(table, io))
    except Killed:
        pass
    except FluvialError as error:
        return error
    assert io.has_published
    return None


def commit_rows(table: FileTable) -> None:
    """The next snapshot, with a row of its number."""
    number = (table.store.snapshots.latest_id() or 0) + 1
    table.write(rows((number, number)))


def forked_table(**options: str) -> FileTable:
    options = {"write-only": "true", **options}
    return key_table(None, bucket="1", **options)


# ---- what a history looks like when the fork is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where forks are: a writer that planned on snapshot n publishes n + 1 once all but the newest have expired."""

    planned: tuple[int, ...]  # of each writer
    tags: tuple[int, ...]  # snapshots with a tag t<n>
    last: int  # newest snapshot
    kept: int = 1  # newest snapshots that have not expired


SHAPES: Mapping[str, Shape] = {
    "right of the tag, below the oldest": Shape(planned=(3,), tags=(3,), last=5),
    "right of the tag": Shape(planned=(3,), tags=(3,), last=9, kept=3),
    "left of the tag": Shape(planned=(3,), tags=(5,), last=9, kept=2),
    "at the tag": Shape(planned=(3,), tags=(4,), last=8, kept=2),
    "at the tag, below the oldest": Shape(planned=(3,), tags=(4,), last=5),
    "between tags": Shape(planned=(4,), tags=(3, 7), last=9, kept=2),
    "between tags, beside both": Shape(planned=(3,), tags=(3, 5), last=8, kept=2),
    "two of them": Shape(planned=(3, 4), tags=(3, 6), last=9, kept=2),
    "two of them around a tag": Shape(planned=(3, 5), tags=(5,), last=8, kept=2),
    "three of them below the oldest": Shape(planned=(3, 4, 5), tags=(2, 3, 4), last=7),
}


def forked(table: FileTable, shape: Shape, writer: Act, *, behind: Act = nothing, dies: bool) -> None:
    """Bring a table into a shape.

    Args:
        table: a new one.
        shape: the shape.
        writer: what is overtaken.
        behind: done while all forks are there, before the last writer goes on.
        dies: whether the last writer dies; the others do.
    """

    def grow(waiting: Sequence[int], table: FileTable) -> None:
        """To where the next writer plans, which is overtaken like the one before it."""
        while (table.store.snapshots.latest_id() or 0) < (waiting or [shape.last])[0]:
            commit_rows(table)
            newest = newest_snapshot(table).id
            if newest in shape.tags:
                create_tag(table.store, f"t{newest}")
        if not waiting:
            expire_all_but(table, shape.kept)
            return
        is_outermost = len(waiting) == len(shape.planned)
        publish_late(
            table, writer, meanwhile=partial(grow, waiting[1:]), behind=behind if is_outermost else nothing,
            dies=dies or not is_outermost,
        )  # fmt: skip

    grow(shape.planned, table)


Contents = Mapping[str, Mapping[int, Any]]


def states(table: FileTable) -> Contents:
    """What everything holds that can be asked for, by a name that is used once; forks cannot."""
    snapshots = table.store.snapshots
    named: dict[str, Mapping[int, Any]] = {"newest": content(table)}
    found = (snapshots.read(each) for each in snapshots.line().ids)
    named |= {each.identity: content(table, snapshot_id=each.id) for each in found}
    tags = (each for each in snapshots.tag_names() if not each.startswith("fork-of-snapshot-"))
    return named | {f"{each} at {snapshots.tag(each).id}": content(table, tag=each) for each in tags}


class Watched:
    """What a table held before something was deleted, to be compared with what it holds then."""

    def __init__(self, table: FileTable) -> None:
        self.table, self.before = table, states(table)

    def check(self, *, newest: Mapping[int, Any] | None = None) -> None:
        """Everything that is left reads as it did.

        Args:
            newest: rows of the newest state; None: those of before.
        """
        now = states(self.table)
        assert now["newest"] == (self.before["newest"] if newest is None else newest)
        left = now.keys() & self.before.keys() - {"newest"}
        assert {each: now[each] for each in left} == {each: self.before[each] for each in left}

    def check_repaired(self, *, newest: Mapping[int, Any] | None = None) -> None:
        """Also when forks are repaired, their tags deleted, and orphans removed, behind which no file is unused."""
        self.check(newest=newest)
        list(repair_history(self.table.store))
        self.check(newest=newest)
        assert read_history(self.table.store).forks == ()
        for name in self.table.store.snapshots.tag_names():
            if name.startswith("fork-of-snapshot-"):
                delete_tag(self.table.store, name)
                self.check(newest=newest)
        check_orphans_go(self.table)
        self.check(newest=newest)
        self.table.write(rows((50, 50)))
        assert content(self.table)[50] == 50


def rows_behind(writer: Act, before: Mapping[int, Any], *, dies: bool) -> Mapping[int, Any]:
    """The newest rows once a writer has gone on."""
    if dies or writer is compact:
        return before
    return {90: 90} if writer is overwrite else {**before, 91: 91}


def check_deletion(
    shape: Shape,
    writer: Act,
    delete: Act,
    *,
    dies: bool,
    new: Callable[[], FileTable] = forked_table,
    newest: Mapping[int, Any] | None = None,
) -> None:
    """A deletion beside the forks of a shape takes nothing that is needed, whether their writer dies or goes on.

    Args:
        shape: of the history.
        writer: what was overtaken.
        delete: the deletion.
        dies: whether it dies behind the creation of its snapshot.
        new: makes the table.
        newest: rows of the newest state behind the deletion; None: those of before.
    """
    table, watched = new(), []

    def watch_and_delete(table: FileTable) -> None:
        watched.append(Watched(table))
        delete(table)
        watched[0].check(newest=newest)

    if dies:
        forked(table, shape, writer, dies=True)
        watch_and_delete(table)
    else:
        forked(table, shape, writer, behind=watch_and_delete, dies=False)
    now = watched[0].before["newest"] if newest is None else newest
    watched[0].check_repaired(newest=rows_behind(writer, now, dies=dies))


dying = pytest.mark.parametrize("dies", [True, False], ids=["dies", "goes on"])
by_writers = pytest.mark.parametrize("writer", WRITERS)
by_all_writers = pytest.mark.parametrize("writer", ALL_WRITERS)
in_shapes = pytest.mark.parametrize("shape", SHAPES)


# ---- tags


def delete_tags(table: FileTable) -> None:
    for name in table.store.snapshots.tag_names():
        delete_tag(table.store, name)


def delete_tags_backwards(table: FileTable) -> None:
    for name in reversed(table.store.snapshots.tag_names()):
        delete_tag(table.store, name)


def delete_first_tag(table: FileTable) -> None:
    delete_tag(table.store, table.store.snapshots.tag_names()[0])


def move_tags(table: FileTable) -> None:
    for name in table.store.snapshots.tag_names():
        replace_tag(table.store, name)


def test_the_reproduction_of_the_finding() -> None:
    """Snapshots 1 and 2, a tag at 2; a compaction publishes 3, which was freed, and is killed there."""
    shape = Shape(planned=(2,), tags=(2,), last=4)
    check_deletion(shape, compact, delete_tags, dies=True)


@pytest.mark.sampled(6)
@pytest.mark.sweep
@dying
@by_writers
@in_shapes
@pytest.mark.parametrize("delete", [delete_tags, delete_tags_backwards, delete_first_tag, move_tags])
def test_a_tag_that_goes_beside_forks_takes_nothing_that_is_needed(
    delete: Act, shape: str, writer: str, dies: bool
) -> None:
    check_deletion(SHAPES[shape], ALL_WRITERS[writer], delete, dies=dies)


@pytest.mark.sweep
@dying
@by_all_writers
def test_an_automatic_tag_that_is_one_too_many_takes_nothing_that_is_needed(writer: str, dies: bool) -> None:
    """``tag.num-retained-max``."""
    options = {"tag.automatic-creation": "batch", "tag.num-retained-max": "1"}

    def tag_the_next_day(table: FileTable) -> None:
        table.store.clock.sleep(DAY_MS / 1000)
        commit_rows(table)
        (first,) = table.store.snapshots.tag_names()
        found = create_batch_tag(table.store, newest_snapshot(table))
        assert found.deleted == (first,)

    def tagged() -> FileTable:
        table = forked_table(**options)
        for _ in range(3):
            commit_rows(table)
        create_batch_tag(table.store, newest_snapshot(table))
        return table

    shape = Shape(planned=(3,), tags=(), last=8, kept=2)
    after = {key: key for key in range(1, 10)}
    check_deletion(shape, ALL_WRITERS[writer], tag_the_next_day, dies=dies, new=tagged, newest=after)


@pytest.mark.sweep
@dying
@by_all_writers
def test_a_tag_whose_time_is_over_takes_nothing_that_is_needed(writer: str, dies: bool) -> None:
    """``tag.default-time-retained``."""

    def delete_what_is_over(table: FileTable) -> None:
        table.store.clock.sleep(DAY_MS / 1000)
        over = expired_tags(table.store)
        assert [each.name for each in over] == ["t3", "t7"]
        for each in over:
            delete_tag(table.store, each.name)

    new = partial(forked_table, **{"tag.default-time-retained": "1 h"})
    check_deletion(SHAPES["between tags"], ALL_WRITERS[writer], delete_what_is_over, dies=dies, new=new)


@pytest.mark.sweep
@dying
@by_all_writers
@pytest.mark.parametrize("delete", [compact, append, overwrite])
def test_a_late_writer_beside_changes_of_the_same_files_takes_nothing(delete: Act, writer: str, dies: bool) -> None:
    """The line loses the files of the tag, which stays: so nothing of it goes before it does."""

    def change_and_delete(table: FileTable) -> None:
        create_tag(table.store, "new")
        delete(table)
        expire_all_but(table, 1)
        delete_tag(table.store, "new")
        delete_tag(table.store, "t3")

    newest: Mapping[Act, Mapping[int, Any] | None] = {
        compact: None,
        append: {**{key: key for key in range(1, 6)}, 91: 91},
        overwrite: {90: 90},
    }
    shape = SHAPES["right of the tag, below the oldest"]
    check_deletion(shape, ALL_WRITERS[writer], change_and_delete, dies=dies, newest=newest[delete])


# ---- savepoints


def saved(*, at: int) -> FileTable:
    """A table with a savepoint, of a snapshot of its own."""
    table = forked_table()
    for _ in range(at - 1):
        commit_rows(table)
    create_savepoint(table.store, compact=False)
    assert newest_snapshot(table).id == at
    return table


def delete_savepoints(table: FileTable) -> None:
    for each in list_savepoints(table.store):
        delete_savepoint(table.store, each.id)


@pytest.mark.sweep
@dying
@by_all_writers
@pytest.mark.parametrize(
    "shape",
    [
        Shape(planned=(3,), tags=(), last=5),
        Shape(planned=(3,), tags=(), last=9, kept=3),
        Shape(planned=(4,), tags=(), last=9, kept=3),
        Shape(planned=(4, 5), tags=(6,), last=9),
    ],
    ids=["beside it, below the oldest", "beside it", "further", "two of them"],
)
def test_a_savepoint_that_is_deleted_beside_forks_takes_nothing_that_is_needed(
    shape: Shape, writer: str, dies: bool
) -> None:
    check_deletion(shape, ALL_WRITERS[writer], delete_savepoints, dies=dies, new=partial(saved, at=3))


# ---- expiry, orphans, rollback


def expire_more(table: FileTable) -> None:
    commit_rows(table)
    commit_rows(table)
    assert expire_all_but(table, 1)


@pytest.mark.sampled(4)
@pytest.mark.sweep
@dying
@by_writers
@in_shapes
def test_an_expiry_beside_forks_takes_nothing_that_is_needed(shape: str, writer: str, dies: bool) -> None:
    last = SHAPES[shape].last + 2
    newest = {key: key for key in range(1, last + 1)}
    check_deletion(SHAPES[shape], ALL_WRITERS[writer], expire_more, dies=dies, newest=newest)


def clean(table: FileTable) -> None:
    """Of what is older than the clock: so nothing of a writer that goes on."""
    store = table.store
    delete_orphans(store, find_orphans(store, before_ms=store.clock.now_ms() - DAY_MS), progress=lambda done, of: None)


@pytest.mark.sampled(3)
@pytest.mark.sweep
@dying
@by_writers
@in_shapes
def test_cleaning_beside_forks_takes_nothing_that_is_needed(shape: str, writer: str, dies: bool) -> None:
    check_deletion(SHAPES[shape], ALL_WRITERS[writer], clean, dies=dies)


def roll_back_one(table: FileTable) -> None:
    before = table.store.snapshots.read(newest_snapshot(table).id - 1)
    roll_back(table.store, plan_rollback(table.store, before))


def roll_back_to_tag(table: FileTable) -> None:
    name = table.store.snapshots.tag_names()[0]
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.tag(name)))


@pytest.mark.sampled(6)
@pytest.mark.sweep
@dying
@by_writers
@pytest.mark.parametrize("delete", [roll_back_one, roll_back_to_tag])
@in_shapes
def test_a_rollback_beside_forks_takes_nothing_that_is_needed(shape: str, delete: Act, writer: str, dies: bool) -> None:
    """A fork behind its target is removed with the rest; one in the number of an expired target gives way to it."""
    wanted = SHAPES[shape]
    if delete is roll_back_one:
        wanted = replace(wanted, kept=max(wanted.kept, 2))
        if {each + 1 for each in wanted.planned} & {wanted.last - 1}:
            return  # not freed
    target = wanted.last - 1 if delete is roll_back_one else min(wanted.tags)
    newest = {key: key for key in range(1, target + 1)}
    table, watched = forked_table(), list[Watched]()

    def watch_and_delete(table: FileTable) -> None:
        watched.append(Watched(table))
        delete(table)
        watched[0].check(newest=newest)
        assert newest_snapshot(table).id == target

    if dies:
        forked(table, wanted, ALL_WRITERS[writer], dies=True)
        watch_and_delete(table)
        watched[0].check_repaired(newest=newest)
    else:
        forked(table, wanted, ALL_WRITERS[writer], behind=watch_and_delete, dies=False)
        behind = rows_behind(ALL_WRITERS[writer], newest, dies=False)
        watched[0].check_repaired(newest=newest if content(table) == newest else behind)


def test_a_rollback_to_a_fork_is_refused() -> None:
    table = forked_table()
    forked(table, SHAPES["right of the tag"], compact, dies=True)
    with pytest.raises(ConflictError, match=r"not in the history.*snapshot=4 earliest=7 latest=9 fix="):
        plan_rollback(table.store, table.store.snapshots.read(4))


# ---- what a fork is taken for


@dying
def test_a_fork_cannot_be_tagged(dies: bool) -> None:
    def tag(table: FileTable) -> None:
        with pytest.raises(ConflictError, match=r"expired|not in the history"):
            create_tag(table.store, "fork", snapshot_id=4)
        assert "fork" not in table.store.snapshots.tag_names()

    check_deletion(SHAPES["right of the tag"], compact, tag, dies=dies)


def test_nobody_takes_a_fork_for_the_state_of_a_time() -> None:
    """Automatic tags wanted to tag it for good, and never made another one; time travel read it."""
    table = forked_table(**{"tag.automatic-creation": "process-time", "tag.creation-period": "hourly"})
    forked(table, SHAPES["right of the tag"], compact, dies=True)
    fork = table.store.snapshots.read(4)
    snapshots = table.store.snapshots
    assert snapshots.as_of(fork.time_ms, now_ms=table.store.clock.now_ms()) is None
    assert snapshots.line().ids == [7, 8, 9]
    assert (snapshots.earliest_id(), snapshots.latest_id()) == (7, 9)


# ---- branches


def on_dev(table: FileTable) -> FileTable:
    create_tag(table.store, "start")
    create_branch(table.store, "dev", tag="start")
    return table.on_branch("dev")


@pytest.mark.sampled(4)
@pytest.mark.sweep
@dying
@by_writers
@pytest.mark.parametrize("shape", ["right of the tag", "between tags, beside both", "two of them", "at the tag"])
def test_forks_on_a_branch_are_forks_there(shape: str, writer: str, dies: bool) -> None:
    """The branch has the files of main, and main those of the branch's first snapshot."""

    def branched() -> FileTable:
        table = forked_table()
        commit_rows(table)
        return on_dev(table)

    def delete_all(table: FileTable) -> None:
        for name in table.store.snapshots.tag_names():
            if name != "start":
                delete_tag(table.store, name)

    check_deletion(SHAPES[shape], ALL_WRITERS[writer], delete_all, dies=dies, new=branched)


@pytest.mark.sampled(4)
@pytest.mark.sweep
@dying
@by_writers
@pytest.mark.parametrize("shape", ["right of the tag", "between tags, beside both", "two of them"])
def test_a_branch_that_is_deleted_beside_forks_of_main_takes_nothing_that_is_needed(
    shape: str, writer: str, dies: bool
) -> None:
    def with_branch() -> FileTable:
        table = forked_table()
        commit_rows(table)
        commit_rows(table)
        on_dev(table).write(rows((70, 70)))
        return table

    def delete_it(table: FileTable) -> None:
        delete_branch(table.store, "dev")
        delete_tag(table.store, "start")
        delete_tags(table)

    check_deletion(SHAPES[shape], ALL_WRITERS[writer], delete_it, dies=dies, new=with_branch)


@pytest.mark.sweep
@by_all_writers
def test_a_branch_with_forks_is_deleted_with_them(writer: str) -> None:
    table = forked_table()
    commit_rows(table)
    dev = on_dev(table)
    forked(dev, SHAPES["right of the tag"], ALL_WRITERS[writer], dies=True)
    watched = Watched(table)
    delete_branch(table.store, "dev")
    watched.check_repaired()


@pytest.mark.sweep
def test_a_fork_of_a_branch_is_not_published_in_main() -> None:
    """Behind a rollback of the branch: its writer was to take it back, and its rows were never acknowledged."""
    table = forked_table()
    commit_rows(table)
    dev = on_dev(table)

    def go_back(dev: FileTable) -> None:
        roll_back(dev.store, plan_rollback(dev.store, dev.store.snapshots.read(2)))

    commit_rows(dev)
    commit_rows(dev)
    publish_late(dev, append, meanwhile=go_back, dies=True)
    assert dev.store.snapshots.ids() == [1, 2, 4]
    assert fast_forward(table.store, "dev").published == (2,)
    assert content(table) == {1: 1, 2: 2}
    table.write(rows((3, 3)))
    assert content(table) == {1: 1, 2: 2, 3: 3}


# ---- other engines, which name no parents


def without_parents(table: FileTable, *, above: int) -> None:
    """The snapshots behind a number as other engines write them: they name no parent, and no claim names the first."""
    store = table.store
    for snapshot_id in store.snapshots.ids():
        if snapshot_id > above:
            found = store.snapshots.read(snapshot_id)
            names = {key: text for key, text in found.properties.items() if not key.startswith("fluvial.")}
            plain = replace(found, properties=names)
            store.io.replace(store.paths.snapshot(snapshot_id), plain.to_json().encode())
    for claim in store.snapshots.claims.refs():
        store.snapshots.claims.remove(claim)


@pytest.mark.sampled(4)
@pytest.mark.sweep
@by_writers
@in_shapes
@pytest.mark.parametrize("delete", [delete_tags, delete_tags_backwards, expire_more, clean])
def test_forks_below_snapshots_of_other_engines_are_forks_too(delete: Act, shape: str, writer: str) -> None:
    """Whose base lists show what they follow; Java's expiry claims nothing, and leaves its hint."""
    wanted = SHAPES[shape]
    table = forked_table(**{"manifest.merge-min-count": "3"})
    forked(table, wanted, ALL_WRITERS[writer], dies=True)
    without_parents(table, above=max(wanted.planned) + 1)
    first = wanted.last - wanted.kept + 1
    assert table.store.snapshots.line().ids == [*range(first, wanted.last + 1)]
    watched = Watched(table)
    delete(table)
    newest = {key: key for key in range(1, newest_snapshot(table).id + 1)}
    watched.check(newest=newest)
    watched.check_repaired(newest=newest)


@pytest.mark.sweep
def test_a_fork_that_only_takes_files_away_is_not_taken_for_what_another_engine_follows() -> None:
    """All that it holds is in the next snapshot as well, but that one was not made on top of it."""
    table = forked_table()
    forked(table, Shape(planned=(3,), tags=(3,), last=5, kept=1), take_rows_away, dies=True)
    without_parents(table, above=4)
    watched = Watched(table)
    delete_tags(table)
    watched.check_repaired()


def take_rows_away(table: FileTable) -> object:
    return table.overwrite(rows(), {})


def test_a_batch_in_a_fork_below_another_engine_is_not_committed() -> None:
    """A stream that starts again found it there, and left it out."""
    table = forked_table()
    for _ in range(3):
        commit_rows(table)
    publish_late(
        table,
        lambda late: late.new_commit("query").commit(committable_of(late, 7, rows((91, 91)))),
        meanwhile=partial(grow_to, 6),
        dies=True,
    )
    without_parents(table, above=4)
    commit_here = table.new_commit("query")
    assert commit_here.filter_committed([7]) == [7]
    assert commit_here.commit(committable_of(table, 7, rows((91, 91)))).already_committed is False
    assert content(table)[91] == 91


def grow_to(last: int, table: FileTable, *, kept: int = 2) -> None:
    """Others commit up to a snapshot, and expire all but the newest."""
    while (table.store.snapshots.latest_id() or 0) < last:
        commit_rows(table)
    expire_all_but(table, kept)


# ---- forks that no writer of today leaves


def put_fork(table: FileTable, *, at: int, of: Snapshot) -> None:
    """A snapshot of an earlier one, in the place of whatever has the number."""
    fork = replace(of, id=at, uuid=f"f{of.uuid}")
    table.store.io.replace(table.store.paths.snapshot(at), fork.to_json().encode())


@pytest.mark.sweep
@pytest.mark.parametrize("at", [5, 6, 7, 8])
@pytest.mark.parametrize("delete", [delete_tags, delete_tags_backwards, clean, roll_back_one])
def test_a_fork_between_kept_snapshots_takes_nothing_with_it(delete: Act, at: int) -> None:
    """As a store that overwrites, or hands, leave it: the newest is intact, and so is all that follows the fork."""
    table = forked_table()
    for _ in range(3):
        commit_rows(table)
    create_tag(table.store, "t3")
    publish_late(table, compact, meanwhile=partial(grow_to, 8, kept=4), dies=True)
    fork = table.store.snapshots.read(4)
    for number in (9, 10):
        commit_rows(table)
        create_tag(table.store, f"t{number}")
    table.store.delete_snapshot(fork)
    put_fork(table, at=at, of=fork)
    delete(table)
    end = newest_snapshot(table).id
    assert content(table) == {key: key for key in range(1, end + 1)}
    for snapshot_id in range(at + 1, end + 1):
        assert content(table, snapshot_id=snapshot_id) == {key: key for key in range(1, snapshot_id + 1)}


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_an_expiry_stops_before_a_fork_between_kept_snapshots_or_refuses(kept: int) -> None:
    """It follows the snapshot before it, and removes its files, which all behind it have."""
    table = forked_table()
    for _ in range(6):
        commit_rows(table)
    whole = dict(table.store.io.files)  # type: ignore[attr-defined]
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(3)))
    table.compact(full=True)
    fork = table.store.snapshots.read(4)
    table.store.io.files |= whole  # type: ignore[attr-defined]
    table.store.io.replace(table.store.paths.snapshot(4), fork.to_json().encode())
    with suppress(CorruptDataError):
        expire_all_but(table, kept)
    assert content(table) == {key: key for key in range(1, 7)}
    for snapshot_id in (5, 6):
        if table.store.snapshots.exists(snapshot_id):
            assert content(table, snapshot_id=snapshot_id) == {key: key for key in range(1, snapshot_id + 1)}


def test_the_tag_of_a_fork_is_no_neighbour_also_where_another_branch_made_it() -> None:
    """A repair made it on a branch; fast-forward does not publish it, and its name alone says what it is."""
    table = forked_table()
    forked(table, Shape(planned=(3,), tags=(3, 6), last=9), compact, dies=True)
    list(repair_history(table.store))
    (fork,) = (each for each in table.store.snapshots.tag_names() if each.startswith("fork-"))
    table.store.snapshots.removed.remove(table.store.snapshots.tag(fork).identity)
    delete_tags_but(table, fork)
    assert content(table, tag=fork) == {1: 1, 2: 2, 3: 3}
    assert content(table) == {key: key for key in range(1, 10)}


def delete_tags_but(table: FileTable, kept: str) -> None:
    for name in table.store.snapshots.tag_names():
        if name != kept:
            delete_tag(table.store, name)


def test_tags_that_contradict_each_other_decide_nothing_alone() -> None:
    """One of them is of a fork, as an older version may have left it: nothing shows which."""
    table = forked_table()
    forked(table, SHAPES["at the tag"], compact, dies=True)
    fork = table.store.snapshots.read(4)
    table.store.io.write_new(table.store.paths.tag("wrong"), fork.to_json().encode())
    table.store.delete_snapshot(fork)
    delete_tag(table.store, "t4")
    assert content(table) == {key: key for key in range(1, 9)}
    assert content(table, tag="wrong") == {1: 1, 2: 2, 3: 3}
    delete_tag(table.store, "wrong")
    assert content(table) == {key: key for key in range(1, 9)}


# ---- the price


class Counting:
    """Counts the operations on files."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation: Callable[..., Any] = getattr(self.inner, name)

        def call(*arguments: Any) -> Any:
            self.calls += 1
            return operation(*arguments)

        return call


@pytest.mark.sweep
@pytest.mark.parametrize("has_fork", [False, True], ids=["no fork", "fork"])
@pytest.mark.parametrize("deletes_tag", [True, False], ids=["tag", "expiry"])
def test_the_proof_costs_the_same_beside_ten_snapshots_and_a_hundred(deletes_tag: bool, has_fork: bool) -> None:
    """Not one read more for each snapshot that is kept, as there may be 10,000."""
    calls = []
    for kept in (10, 100):
        table = forked_table(**{"snapshot.num-retained.max": "1000"})
        shape = Shape(planned=(3,), tags=(3,), last=kept + 5, kept=kept)
        forked(table, shape, compact, dies=True)
        if not has_fork:
            table.store.delete_snapshot(table.store.snapshots.read(4))
        counting = Counting(table.store.io)
        counted, counting.calls = on_files(table, counting), 0
        delete_first_tag(counted) if deletes_tag else expire_all_but(counted, kept - 2)
        calls.append(counting.calls)
    assert calls[0] == calls[1]
