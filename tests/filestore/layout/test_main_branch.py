"""Main takes over a branch (fast-forward), or another branch becomes main; with every fault and race on the way."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch, list_branches, rename_branch
from filestore.branch.fast_forward import FastForward, fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn, SetOption
from filestore.layout.branch_state import MAIN_BRANCH_FILE, main_branch
from filestore.maintenance.verification import verify_files
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import data_type_of
from lsm.errors import ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError
from tests.support.faults import Disks, FaultyFileIO, MemoryFileIO, Nth, When, fail_points
from tests.support.roots import files_there, used_files
from tests.support.tables import KEY_SCHEMA, WAREHOUSE, expire_all_but, key_table, key_values, rows

BASE = [(1, 10), (2, 20)]
NUMBER = data_type_of(pa.int64(), nullable=True)


def on(table: FileTable, io: object) -> FileTable:
    return FileTable.open("db.t", table.store.paths.root, io=io, clock=table.store.clock, names=table.store.names)  # type: ignore[arg-type]


def copied(table: FileTable) -> FileTable:
    return on(table, MemoryFileIO(table.store.io.files))  # type: ignore[attr-defined]


def catalog_of(table: FileTable) -> FileCatalog:
    return FileCatalog(WAREHOUSE, io=table.store.io, clock=table.store.clock, names=table.store.names)


def under(table: FileTable) -> set[str]:
    start = f"{table.store.paths.root}/"
    return {path.removeprefix(start).split("/")[0] for path in table.store.io.files}  # type: ignore[attr-defined]


@cache
def _start() -> FileTable:
    table = key_table(MemoryFileIO())
    table.write(rows((1, 9)))
    create_tag(table.store, "old")
    table.write(rows(*BASE))
    create_tag(table.store, "t")
    create_branch(table.store, "dev", tag="t")
    branch = table.on_branch("dev")
    branch.write(rows((1, 11)))
    branch.write(rows((3, 30)))
    create_tag(branch.store, "mine")
    branch.compact(full=True)
    return table


def start() -> FileTable:
    """Snapshots 1 and 2 in main, tags ``old`` and ``t``; from ``t`` branch ``dev`` with 3, 4, 5 and tag ``mine``."""
    return copied(_start())


DEV = [(1, 11), (2, 20), (3, 30)]


@cache
def _small() -> FileTable:
    table = key_table(MemoryFileIO())
    table.write(rows(*BASE))
    create_tag(table.store, "t")
    create_branch(table.store, "dev", tag="t")
    table.on_branch("dev").write(rows((1, 11), (3, 30)))
    create_tag(table.on_branch("dev").store, "mine")
    return table


def small() -> FileTable:
    """Snapshot 1 and tag ``t`` in main; from ``t`` branch ``dev`` with 2 and tag ``mine``."""
    return copied(_small())


# ---- fast-forward


def test_main_takes_over_snapshots_tags_and_schemas_of_a_branch() -> None:
    """BR-15, BR-27, BR-28: under the same numbers, without copying a file; both live on by themselves."""
    table = start()
    catalog_of(table).alter_table("db.t", [AddColumn(path=("w",), type=NUMBER)], branch="dev")
    before = files_there(table)
    assert fast_forward(table.store, "dev") == FastForward(branch="dev", published=(3, 4, 5))
    assert files_there(table) == before
    table = on(table, table.store.io)
    assert key_values(table) == DEV
    assert key_values(table, tag="mine") == key_values(table, snapshot_id=4) == DEV
    assert table.store.snapshots.ids() == [1, 2, 3, 4, 5]
    assert table.store.snapshots.tag_names() == ["mine", "old", "t"]
    branch = table.on_branch("dev")
    assert table.store.snapshots.read(5) == branch.store.snapshots.read(5)
    branch.write(rows((4, 40)).append_column("w", pa.array([1], pa.int64())))
    table.write(rows((5, 50)).append_column("w", pa.array([1], pa.int64())))
    assert key_values(branch) == [*DEV, (4, 40)]
    assert key_values(table) == [*DEV, (5, 50)]
    for side in (table, branch):
        side.compact(full=True)
        expire_all_but(side, keep=1)
    assert used_files(table) == files_there(table)
    delete_branch(table.store, "dev")
    assert key_values(table) == [*DEV, (5, 50)]
    assert used_files(table) == files_there(table)


def test_a_main_that_went_on_is_not_overwritten() -> None:
    """Trap 6: by its commits, nor by its compactions, whose numbers streams have passed; force says so."""
    table = start()
    table.write(rows((7, 70)))
    create_tag(table.store, "later")
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    with pytest.raises(ConflictError, match=r"newer=\[3\] count=1"):
        fast_forward(table.store, "dev")
    assert table.store.io.files == before  # type: ignore[attr-defined]
    assert fast_forward(table.store, "dev", force=True) == FastForward(branch="dev", published=(3, 4, 5), removed=(3,))
    assert key_values(table) == DEV
    assert table.store.snapshots.tag_names() == ["mine", "old", "t"]
    assert used_files(table) == files_there(table)
    assert MAIN_BRANCH_FILE not in under(table)
    table.write(rows((8, 80)))
    assert key_values(table) == [*DEV, (8, 80)]
    assert fast_forward(start().store, "dev").removed == ()


def test_what_main_had_expired_is_not_expired_of_the_branch() -> None:
    """BR-26, BR-49: the claim of main's expiry was about snapshots that are taken back."""
    table = start()
    for number in range(7, 12):
        table.write(rows((number, 70)))
    expire_all_but(table, keep=1)
    fast_forward(table.store, "dev", force=True)
    assert table.store.snapshots.ids() == [3, 4, 5]
    assert key_values(table, snapshot_id=3) == [(1, 11), (2, 20)]
    create_tag(table.store, "three", snapshot_id=3)
    expire_all_but(table, keep=2)
    assert table.store.snapshots.ids() == [4, 5]
    assert used_files(table) == files_there(table)


def test_main_schemas_that_are_newer_go_with_force() -> None:
    """BR-26."""
    table = start()
    catalog_of(table).alter_table("db.t", [AddColumn(path=("mine",), type=NUMBER)])
    on(table, table.store.io).write(rows((7, 70)).append_column("mine", pa.array([1], pa.int64())))
    catalog_of(table).alter_table("db.t", [AddColumn(path=("theirs",), type=NUMBER)], branch="dev")
    fast_forward(table.store, "dev", force=True)
    assert on(table, table.store.io).schema.column_names == ("id", "v", "theirs")
    assert key_values(on(table, table.store.io)) == DEV


def test_what_cannot_be_taken_over_is_refused() -> None:
    """BR-15: nothing has changed then, and main takes commits as before."""
    table = start()
    branch = table.on_branch("dev")
    table.write(rows((7, 70)))
    create_tag(table.store, "later")
    create_branch(table.store, "more", tag="later")
    with pytest.raises(InvalidInputError, match="delete the branch first"):
        fast_forward(table.store, "dev", force=True)
    delete_branch(table.store, "more")
    expire_all_but(branch, keep=1)
    for force in (True, False):
        with pytest.raises(InvalidInputError, match="have expired that main would need"):
            fast_forward(table.store, "dev", force=force)
    with pytest.raises(InvalidInputError, match="no such branch"):
        fast_forward(table.store, "nope")
    clash = start()
    create_tag(clash.store, "mine", snapshot_id=1)
    with pytest.raises(InvalidInputError, match="main has another tag of this name"):
        fast_forward(clash.store, "dev", force=True)
    assert clash.store.snapshots.ids() == [1, 2]
    table.write(rows((8, 80)))
    assert key_values(table) == [*BASE, (7, 70), (8, 80)]


def test_nothing_is_left_to_take_over() -> None:
    """BR-28: twice is once; and what the branch did since comes next."""
    table = start()
    fast_forward(table.store, "dev")
    assert fast_forward(table.store, "dev") == FastForward(branch="dev", published=())
    table.on_branch("dev").write(rows((9, 90)))
    assert fast_forward(table.store, "dev").published == (6,)
    assert key_values(table) == [*DEV, (9, 90)]


def test_a_writer_of_main_that_comes_between_stops_it() -> None:
    """Trap 6: before the first snapshot of the branch; nothing is published then. Behind it the writer waits."""
    outcomes = set()

    def act() -> None:
        if 3 not in table.store.snapshots.ids():
            table.write(rows((7, 70)))
        else:
            with pytest.raises(ConflictError, match="a fast-forward is publishing its snapshots"):
                table.write(rows((7, 70)))
            outcomes.add("the writer waits")

    for operation_count in range(1, 8):
        table = start()
        before = key_values(table)
        io = Nth(table.store.io, operation_count, act, of=("create_exclusive",))
        try:
            fast_forward(on(table, io).store, "dev")
        except ConflictError:
            assert key_values(table) == sorted([*before, (7, 70)])
            outcomes.add("the writer comes first")
        else:
            assert set(DEV) <= set(key_values(table))
        ids = table.store.snapshots.ids()
        assert ids == list(range(1, len(ids) + 1))
        table.write(rows((8, 80)))
        assert used_files(table) <= files_there(table)
    assert outcomes == {"the writer waits", "the writer comes first"}


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("force", [False, True])
def test_a_fast_forward_that_dies_is_completed_by_the_next_call(force: bool, when: When) -> None:
    """BR-15, BR-26, BR-27: whatever fails; main is at every moment one of the states on the way."""

    def prepared() -> FileTable:
        table = small()
        if force:
            table.write(rows((7, 70)))
            create_tag(table.store, "later")
        return table

    states = [BASE, [*BASE, (7, 70)], DEV]
    first = prepared()
    clean = copied(first)
    io = FaultyFileIO(clean.store.io)
    fast_forward(on(clean, io).store, "dev", force=force)
    disks = Disks()
    for fail_at in fail_points(io, when):
        disk = copied(first)
        with suppress(FluvialError):
            fast_forward(on(disk, FaultyFileIO(disk.store.io, fail_at=fail_at, when=when)).store, "dev", force=force)
        if not disks.is_new(disk.store.io):
            continue
        assert key_values(on(disk, disk.store.io)) in states, fail_at
        assert key_values(disk.on_branch("dev")) == DEV
        fast_forward(on(disk, disk.store.io).store, "dev", force=force)
        assert key_values(on(disk, disk.store.io)) == DEV
        assert disk.store.snapshots.tag_names() == ["mine", "t"]
        disk.write(rows((8, 80)))  # main is not sealed any more
        assert used_files(disk) <= files_there(disk), fail_at
        assert len(files_there(disk) - used_files(disk)) <= 8  # orphans of what died, and no more


# ---- another branch becomes main


def test_a_branch_becomes_main_and_the_old_main_goes() -> None:
    """BR-16, BR-29 to BR-33 (BR-30), BR-37: with main's history before it began; nothing of the branch moves."""
    table = start()
    table.write(rows((7, 70)))
    create_tag(table.store, "later")
    create_branch(table.store, "other", tag="later")
    branch = table.on_branch("dev")
    inside = {path: body for path, body in table.store.io.files.items() if "/branch-dev/" in path}  # type: ignore[attr-defined]
    done = replace_main(table.store, "dev")
    assert (done.main, done.dropped, done.snapshot_count) == ("dev", "main", 3)
    after = table.store.io.files  # type: ignore[attr-defined]
    assert {path: after[path] for path in inside} == inside
    assert main_branch(table.store.io, table.store.paths.root) == "dev"
    assert {"schema", "snapshot", "tag"} & under(table) == set()
    replaced = catalog_of(table).table("db.t")
    assert key_values(replaced) == key_values(branch) == DEV
    assert replaced.store.snapshots.ids() == [1, 2, 3, 4, 5]
    assert replaced.store.snapshots.tag_names() == ["mine", "old", "t"]
    assert key_values(replaced, tag="old") == [(1, 9)]
    assert key_values(replaced.on_branch("main")) == DEV
    assert [each.name for each in list_branches(replaced.store)] == ["other"]
    assert key_values(replaced.on_branch("other")) == [*BASE, (7, 70)]
    branch.write(rows((4, 40)))
    assert key_values(replaced) == [*DEV, (4, 40)]
    assert used_files(replaced) == files_there(replaced)


def test_a_table_whose_main_was_replaced_is_a_table_like_others() -> None:
    """BR-18, BR-21: it is listed, opened, altered, branched, merged, renamed, replaced again and dropped."""
    table = start()
    replace_main(table.store, "dev")
    catalog = catalog_of(table)
    assert catalog.list_tables("db") == ["t"]
    assert catalog.table_exists("db.t")
    with pytest.raises(InvalidInputError, match="exists already"):
        catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    assert catalog.create_table("db.t", KEY_SCHEMA, if_not_exists=True).store.snapshots.latest_id() == 5
    catalog.alter_table("db.t", [SetOption("num-sorted-run.compaction-trigger", "7")])
    opened = catalog.table("db.t")
    assert opened.schema.options["num-sorted-run.compaction-trigger"] == "7"
    create_branch(opened.store, "next", snapshot_id=5)
    opened.on_branch("next").write(rows((6, 60)))
    replace_main(opened.store, "next")
    assert key_values(catalog.table("db.t")) == [*DEV, (6, 60)]
    assert list_branches(catalog.table("db.t").store) == []
    assert used_files(catalog.table("db.t")) == files_there(table)
    with pytest.raises(InvalidInputError, match="main branch already"):
        replace_main(catalog.table("db.t").store, "next")
    with pytest.raises(InvalidInputError, match="cannot be deleted"):
        delete_branch(catalog.table("db.t").store, "next")
    catalog.drop_table("db.t")
    assert not catalog.table_exists("db.t")
    assert table.store.io.files == {}  # type: ignore[attr-defined]


def test_a_table_that_was_opened_before_knows_which_branch_is_main() -> None:
    """BR-05: what was opened on the old main does not delete the new one."""
    stale = start()
    replace_main(on(stale, stale.store.io).store, "dev")
    for change in (lambda: delete_branch(stale.store, "dev"), lambda: rename_branch(stale.store, "dev", "x")):
        with pytest.raises(InvalidInputError, match="main branch cannot be"):
            change()
    with pytest.raises(InvalidInputError, match="no such branch to create another one from"):
        create_branch(stale.store, "x", tag="t")
    assert key_values(on(stale, stale.store.io)) == DEV


def test_what_died_at_a_branch_is_told() -> None:
    """BR-49: verify names it, until it is run again."""
    table = start()
    table.write(rows((7, 70)))
    clean = copied(table)
    io = FaultyFileIO(clean.store.io)
    fast_forward(on(clean, io).store, "dev", force=True)
    sealed = next(call for call, line in enumerate(io.log, 1) if line.startswith("delete") and "snapshot-3" in line)
    with pytest.raises(FluvialError):
        fast_forward(on(table, FaultyFileIO(table.store.io, fail_at=sealed)).store, "dev", force=True)
    found = list(verify_files(table.store, progress=lambda done, of: None))
    assert [each.subject for each in found if each.check == "branch"] == ["main", "dev"]
    with pytest.raises(OutcomeUnknownError, match="is being taken back"):
        table.write(rows((8, 80)))
    fast_forward(on(table, table.store.io).store, "dev", force=True)
    assert list(verify_files(table.store, progress=lambda done, of: None)) == []


def test_main_moves_back_into_the_directory_of_the_table() -> None:
    """BR-20, BR-50: then it is a table as every other, and no file says otherwise."""
    table = start()
    replace_main(table.store, "dev")
    replaced = on(table, table.store.io)
    create_branch(replaced.store, "other", tag="mine")
    replace_main(replaced.store, "main")
    back = on(table, table.store.io)
    assert back.store.paths.branch == "main"
    assert MAIN_BRANCH_FILE not in under(back)
    assert key_values(back) == DEV
    assert back.store.snapshots.ids() == [1, 2, 3, 4, 5]
    assert back.store.snapshots.tag_names() == ["mine", "old", "t"]
    assert [each.name for each in list_branches(back.store)] == ["other"]
    back.write(rows((4, 40)))
    assert key_values(back) == [*DEV, (4, 40)]
    delete_branch(back.store, "other")
    assert used_files(back) == files_there(back)
    with pytest.raises(InvalidInputError, match="main branch already"):
        replace_main(back.store, "main")


def test_a_log_is_not_lost_by_the_way() -> None:
    """BR-16: streams of a table with a log would have to read files from now on; that has to be said."""
    table = start()
    for path in (table.store.paths.schema(0), table.store.paths.with_branch("dev").schema(0)):
        schema = table.store.schemas.read(0)
        options = {**schema.options, "bucket": "1", "log.kafka.bootstrap.servers": "nowhere:1"}
        table.store.io.replace(path, replace(schema, options=options).to_json().encode())
    table = on(table, table.store.io)
    with pytest.raises(InvalidInputError, match="main has a log and the branch has none"):
        replace_main(table.store, "dev")
    create_branch(table.store, "own", tag="t", log=lambda: {"log.kafka.topic": "db.t.own"})
    replace_main(table.store, "own")
    replaced = on(table, table.store.io)
    assert replaced.options.log_topic == "db.t.own"
    assert replaced.store.snapshots.read(1).log_offsets == {0: 0}
    replace_main(replaced.store, "main")
    assert on(table, table.store.io).options.log_topic == "db.t.own"
    replace_main(on(table, table.store.io).store, "dev", force=True)
    assert not on(table, table.store.io).store.has_log


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("target", "when"),
    [("dev", When.BEFORE), ("dev", When.AFTER), ("main", When.BEFORE), ("main", When.AFTER), ("next", When.AFTER)],
)
def test_a_replacement_that_dies_is_completed_by_the_next_call(target: str, when: When) -> None:
    """BR-16, BR-29 to BR-32: a reader that opens the table at any moment finds the old main or the new one, whole."""
    first = small()
    if target == "dev":
        first.write(rows((7, 70)))
    else:
        replace_main(first.store, "dev")
        first = on(first, first.store.io)
    if target == "next":
        create_branch(first.store, "next", tag="mine")
        first.on_branch("next").write(rows((6, 60)))
        first.write(rows((7, 70)))
    before = key_values(first)
    clean = copied(first)
    io = FaultyFileIO(clean.store.io)
    replace_main(on(clean, io).store, target)
    after = key_values(on(clean, clean.store.io))
    leftovers = files_there(clean) - used_files(on(clean, clean.store.io))
    assert not leftovers
    disks = Disks()
    for fail_at in fail_points(io, when):
        disk = copied(first)
        with suppress(FluvialError):
            replace_main(on(disk, FaultyFileIO(disk.store.io, fail_at=fail_at, when=when)).store, target)
        if not disks.is_new(disk.store.io):
            continue
        assert key_values(on(disk, disk.store.io)) in (before, after), fail_at
        try:
            replace_main(on(disk, disk.store.io).store, target)
        except InvalidInputError as error:
            assert "already" in str(error)  # noqa: PT017
        done = on(disk, disk.store.io)
        assert key_values(done) == after
        assert done.store.snapshots.ids() == on(clean, clean.store.io).store.snapshots.ids()
        assert used_files(done) == files_there(done), fail_at
        done.write(rows((8, 80)))


@pytest.mark.parametrize("target", ["dev", "main"])
@pytest.mark.parametrize("nth", range(2, 26, 2))
def test_a_writer_of_the_old_main_is_told(target: str, nth: int) -> None:
    """BR-32; Trap 6: no commit is acknowledged and lost, and no snapshot stays behind as a trap."""
    table = start()
    if target == "main":
        replace_main(table.store, "dev")
        table = on(table, table.store.io)
    acted: list[bool] = []

    def act() -> None:
        replace_main(on(table, table.store.io).store, target)
        acted.append(True)

    writer = FileTable(replace(table.store, io=Nth(table.store.io, nth, act)))
    old = table.store.paths
    failure: FluvialError | None = None
    try:
        writer.write(rows((7, 70)))
    except FluvialError as error:
        failure = error
    now = on(table, table.store.io)
    if not acted:
        assert failure is None
        return
    assert [path for path in table.store.io.files if path.startswith(f"{old.snapshot_dir}/snapshot-")] == []  # type: ignore[attr-defined]
    if failure is None:  # it was in time: main was replaced after it, and what main did since the branch began goes
        assert target == "dev" or (7, 70) in key_values(now)
    else:
        assert isinstance(failure, OutcomeUnknownError) or "gone" in str(failure) or "missing" in str(failure)
    assert used_files(now) <= files_there(now)
    now.write(rows((8, 80)))
    assert (8, 80) in key_values(now)


@pytest.mark.sweep
@pytest.mark.parametrize("side", ["main", "dev"])
@pytest.mark.parametrize("change", ["replace", "fast-forward", "rename"])
def test_an_expiry_at_the_same_moment_breaks_nothing(change: str, side: str) -> None:
    """BR-49: at whichever step it comes, everything that is left reads."""
    changes: dict[str, Callable[[FileTable], object]] = {
        "replace": lambda each: replace_main(each.store, "dev"),
        "fast-forward": lambda each: fast_forward(each.store, "dev"),
        "rename": lambda each: rename_branch(each.store, "dev", "fix"),
    }
    counted = FaultyFileIO(start().store.io)
    changes[change](on(_start(), counted))
    disks = Disks()
    for nth in range(1, counted.calls, 3):
        table = start()

        opened = table.on_branch(side)  # before the branch is renamed, say

        def act(opened: FileTable = opened) -> None:
            with suppress(InvalidInputError):  # the branch has gone
                expire_all_but(opened, keep=1)

        with suppress(ConflictError, InvalidInputError):
            changes[change](on(table, Nth(table.store.io, nth, act)))
        if not disks.is_new(table.store.io):
            continue
        now = on(table, table.store.io)
        for each in (now, *(now.on_branch(branch.name) for branch in list_branches(now.store))):
            for snapshot_id in each.store.snapshots.ids():
                key_values(each, snapshot_id=snapshot_id)
            for tag in each.store.snapshots.tag_names():
                key_values(each, tag=tag)
        assert used_files(now) <= files_there(now), nth
