"""Branches: making, listing, renaming and deleting them, with every fault on the way."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from filestore.branch.branches import Branch, create_branch, delete_branch, list_branches, read_branch, rename_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.evolution.schema_change import AddColumn, RemoveOption, SetOption
from filestore.layout.branch_state import Operation, Work, begin_work
from filestore.system_tables import SYSTEM_TABLES
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag, expired_tags, rename_tag, replace_tag
from filestore.types.data_types import data_type_of
from lsm.errors import ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError
from tests.support.faults import Disks, FaultyFileIO, MemoryFileIO, Nth, When, fail_points, paused_before
from tests.support.roots import files_there, used_files
from tests.support.tables import (
    KEY_SCHEMA,
    copied,
    expire_all_but,
    key_table,
    key_values,
    memory_catalog,
    reopened,
    rows,
)

ALL = [(1, 10), (2, 20), (3, 30), (4, 40)]


def filled(io: MemoryFileIO | None = None, **options: str) -> FileTable:
    """Four snapshots of one row each; tag ``t1`` is the second."""
    table = key_table(io or MemoryFileIO(), **options)
    for pair in ALL:
        table.write(rows(pair))
    create_tag(table.store, "t1", snapshot_id=2)
    return table


def under(table: FileTable, directory: str) -> list[str]:
    start = f"{table.store.paths.root}/{directory}/"
    return sorted(path.removeprefix(start) for path in table.store.io.files if path.startswith(start))  # type: ignore[attr-defined]


def test_a_branch_from_a_tag_copies_the_tag_its_snapshot_and_its_schemas() -> None:
    """BR-07, BR-17, BR-19, BR-20, BR-22, BR-23, BR-34: no row is copied, and main stays where it was."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    for number in range(1, 13):
        if number in (4, 9):
            change = AddColumn(path=(f"c{number}",), type=data_type_of(pa.int64(), nullable=True))
            catalog.alter_table("db.t", [change])
            table = catalog.table("db.t")
        table.write(pa.table({name: [number] for name in table.schema.column_names}))
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    for branch, tag, snapshot_id, schema_id in (("b1", "tag-1", 4, 1), ("b2", "tag-7", 7, 1), ("b3", "tag-11", 11, 2)):
        create_tag(table.store, tag, snapshot_id=snapshot_id)
        assert create_branch(table.store, branch, tag=tag) == Branch(name=branch, tag=tag, snapshot_id=snapshot_id)
        schemas = [f"schema/schema-{each}" for each in range(schema_id + 1)]
        assert under(table, f"branch/branch-{branch}") == [
            "ORIGIN", *schemas, f"snapshot/snapshot-{snapshot_id}", f"tag/tag-{tag}"
        ]  # fmt: skip
        assert key_values(table.on_branch(branch)) == [(each, each) for each in range(1, snapshot_id + 1)]
        assert table.on_branch(branch).schema == table.store.schema_of(schema_id)
    after = table.store.io.files  # type: ignore[attr-defined]
    assert {path: after[path] for path in before} == before
    assert [path for path in after.keys() - before if "bucket-" in path or "/manifest/" in path] == []
    assert [each.name for each in list_branches(table.store)] == ["b1", "b2", "b3"]


def test_a_branch_reads_writes_tags_and_alters_by_itself() -> None:
    """BR-09 to BR-11, BR-13, BR-24: main sees nothing of it, and the branch nothing of main."""
    table = filled()
    create_branch(table.store, "dev", tag="t1")
    branch = table.on_branch("dev")
    branch.write(rows((1, 11), (7, 70)))
    create_tag(branch.store, "mine")
    table.write(rows((5, 50)))
    assert key_values(branch) == [(1, 11), (2, 20), (7, 70)]
    assert key_values(branch, tag="t1") == key_values(branch, snapshot_id=2) == ALL[:2]
    assert key_values(branch, tag="mine") == key_values(branch)
    assert key_values(table) == [*ALL, (5, 50)]
    assert table.store.snapshots.tag_names() == ["t1"]


def test_an_empty_branch_has_the_schemas_only() -> None:
    """BR-07: as Paimon's createBranch(name) makes it."""
    table = filled()
    assert create_branch(table.store, "empty") == Branch(name="empty", tag=None, snapshot_id=None)
    assert under(table, "branch/branch-empty") == ["ORIGIN", "schema/schema-0"]
    table.on_branch("empty").write(rows((9, 90)))
    assert key_values(table.on_branch("empty")) == [(9, 90)]


def test_a_branch_from_a_snapshot_gets_a_tag_of_its_own() -> None:
    """Trap 14: other engines' expiry of main spares what a tag of main keeps, and nothing else."""
    table = filled(**{"tag.default-time-retained": "1 d"})
    assert create_branch(table.store, "dev", snapshot_id=3) == Branch(name="dev", tag="branch-dev", snapshot_id=3)
    assert table.store.snapshots.tag("branch-dev").id == 3
    expire_all_but(table, keep=1)
    assert key_values(table.on_branch("dev")) == ALL[:3]


def test_a_branch_of_a_table_with_a_log_has_none_or_its_own() -> None:
    """BR-22; idea 12: offsets of main's log mean nothing in the branch, and its schemas know nothing of a topic."""
    table = key_table(bucket="1")
    schema = replace(table.schema, options={**table.schema.options, "log.kafka.bootstrap.servers": "nowhere:1"})
    table.store.io.replace(table.store.paths.schema(0), schema.to_json().encode())
    table.write(rows(*ALL))
    snapshot = replace(table.store.snapshots.read(1), log_offsets={0: 4})
    table.store.io.replace(table.store.paths.snapshot(1), snapshot.to_json().encode())
    table = reopened(table, table.store.io)
    assert table.store.has_log
    create_tag(table.store, "t1", retained_ms=86_400_000)
    create_branch(table.store, "dev", tag="t1")
    branch = table.on_branch("dev")
    assert not branch.store.has_log
    assert branch.store.schemas.latest() == schema
    assert branch.store.snapshots.read(1) == replace(snapshot, log_offsets={})
    assert b"tagCreateTime" not in table.store.io.read_bytes(branch.store.paths.snapshot(1))
    create_branch(table.store, "own", tag="t1", log=lambda: {"log.kafka.topic": "db.t.own"})
    own = table.on_branch("own")
    assert own.store.has_log
    assert own.options.log_topic == "db.t.own"
    assert own.store.snapshots.read(1).log_offsets == own.store.snapshots.tag("t1").log_offsets == {0: 0}
    assert own.store.schemas.latest() == schema
    assert b"tagCreateTime" in table.store.io.read_bytes(own.store.paths.tag("t1"))
    with pytest.raises(InvalidInputError, match=r"its own log or none: option=log.system=none"):
        create_branch(table.store, "x", tag="t1", options={"log.system": "none"})
    with pytest.raises(InvalidInputError, match="unknown option"):
        create_branch(table.store, "x", tag="t1", options={"nonsense": "1"})


@pytest.mark.parametrize("name", ["", " ", "a.b", "a/b", "main", "12", " x", "a\nb"])
def test_a_name_that_no_branch_can_have(name: str) -> None:
    """BR-41."""
    table = filled()
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="branch"):
        create_branch(table.store, name, tag="t1")
    assert table.store.io.files == before  # type: ignore[attr-defined]


def test_what_cannot_be_made_is_refused_and_leaves_nothing() -> None:
    """BR-05, BR-06: only from a tag or a snapshot."""
    table = filled()
    create_branch(table.store, "dev", tag="t1")
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="exists already"):
        create_branch(table.store, "dev", snapshot_id=3)
    assert create_branch(table.store, "dev", snapshot_id=3, ignore_if_exists=True) == read_branch(table.store, "dev")
    with pytest.raises(InvalidInputError, match="no such tag"):
        create_branch(table.store, "x", tag="nope")
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        create_branch(table.store, "x", snapshot_id=77)
    with pytest.raises(InvalidInputError, match="a tag or a snapshot"):
        create_branch(table.store, "x", tag="t1", snapshot_id=2)
    with pytest.raises(InvalidInputError, match="no such branch"):
        read_branch(table.store, "x")
    assert table.store.io.files == before  # type: ignore[attr-defined]


def test_the_tag_of_a_branch_stays() -> None:
    """BR-06: it is what protects the branch from other engines."""
    table = filled()
    create_branch(table.store, "dev", tag="t1")
    for change in (
        lambda: delete_tag(table.store, "t1"), lambda: rename_tag(table.store, "t1", "t2"),
        lambda: replace_tag(table.store, "t1", snapshot_id=3),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="delete the branch first"):
            change()
    assert expired_tags(table.store, older_than_ms=2**60) == []


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("arguments", [{"tag": "t1"}, {"snapshot_id": 3}, {}])
def test_a_branch_that_could_not_be_made_is_made_by_the_next_call(arguments: dict[str, object], when: When) -> None:
    """BR-07: nobody sees half a branch, whatever fails; the same call completes it."""
    start = filled()
    clean = copied(start)
    io = FaultyFileIO(clean.store.io)
    make(reopened(clean, io), arguments)
    wanted = (read_branch(clean.store, "dev"), key_values(clean.on_branch("dev")))
    disks = Disks()
    for fail_at in fail_points(io, when):
        disk = copied(start)
        faulty = FaultyFileIO(disk.store.io, fail_at=fail_at, when=when)
        is_made = True
        try:
            make(reopened(disk, faulty), arguments)
        except FluvialError:
            is_made = False
        if not disks.is_new(disk.store.io, is_made):
            continue
        if not is_made:
            if list_branches(disk.store):
                assert (read_branch(disk.store, "dev"), key_values(disk.on_branch("dev"))) == wanted
            else:
                with pytest.raises(InvalidInputError, match="no such branch"):
                    disk.on_branch("dev")
            expire_all_but(disk, keep=1)  # an expiry in between takes nothing from it
            if "snapshot_id" not in arguments or disk.store.snapshots.tag_names() != ["t1"]:
                make(disk, {**arguments, "ignore_if_exists": True})
            else:
                continue  # the snapshot was not protected yet
        assert (read_branch(disk.store, "dev"), key_values(disk.on_branch("dev"))) == wanted
        assert used_files(disk) <= files_there(disk)


def make(table: FileTable, arguments: dict[str, object]) -> None:
    create_branch(table.store, "dev", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["create_exclusive", "replace", "list_names", "delete"])
@pytest.mark.parametrize("rival", ["expiry", "delete_tag"])
def test_what_a_branch_needs_cannot_go_while_it_is_made(rival: str, operation: str) -> None:
    """BR-49: either the branch is whole, or it was refused; never a branch with missing files."""
    table = filled()
    expire_all_but(table, keep=1)

    def act() -> None:
        if rival == "expiry":
            expire_all_but(table, keep=1)
        else:
            delete_tag(table.store, "t1")

    with paused_before(table.store.io, operation, _quietly(act)) as io:
        try:
            create_branch(reopened(table, io).store, "dev", tag="t1")
        except (ConflictError, InvalidInputError):
            assert list_branches(table.store) == []
        else:
            assert key_values(table.on_branch("dev")) == ALL[:2]


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_branch_made_while_its_tag_is_deleted(nth: int) -> None:
    """BR-49: the other way round: the maker comes at each step of the deletion."""
    table = filled()
    expire_all_but(table, keep=1)
    made: list[Branch] = []

    def act() -> None:
        made.append(create_branch(table.store, "dev", tag="t1"))

    io = Nth(table.store.io, nth, _quietly(act), of=("delete", "list_names"))
    _quietly(lambda: delete_tag(reopened(table, io).store, "t1"))()  # type: ignore[arg-type]
    if made:
        assert key_values(table.on_branch("dev")) == ALL[:2]


# ---- deleting and renaming


def grown(io: MemoryFileIO | None = None) -> FileTable:
    """Branch ``dev`` of snapshot 3 with commits, a compaction and a tag of its own; main went on."""
    table = filled(io)
    create_branch(table.store, "dev", snapshot_id=3)
    branch = table.on_branch("dev")
    branch.write(rows((1, 11), (8, 80)))
    create_tag(branch.store, "mine")
    branch.compact(full=True)
    table.write(rows((5, 50)))
    expire_all_but(table, keep=1)
    return table


def test_a_deleted_branch_takes_its_files_with_it_and_no_others() -> None:
    """BR-08, BR-25, BR-35; Trap 5: Paimon leaks them."""
    table = filled()
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    create_branch(table.store, "dev", tag="t1")
    branch = table.on_branch("dev")
    branch.write(rows((1, 11)))
    branch.compact(full=True)
    planned = delete_branch(table.store, "dev", dry_run=True)
    assert key_values(branch) == [(1, 11), (2, 20)]
    deleted = delete_branch(table.store, "dev")
    assert deleted == planned
    assert deleted.branch == Branch(name="dev", tag="t1", snapshot_id=2)
    assert deleted.size_bytes > 0
    assert len(deleted.data) == 2
    assert table.store.io.files == before  # type: ignore[attr-defined]
    assert [delete_tag(table.store, "t1").tag.name] == ["t1"]


def test_a_deleted_branch_frees_what_main_had_left_to_it() -> None:
    """BR-49: and the tag that was made for it goes too."""
    table = grown()
    delete_branch(table.store, "dev")
    assert table.store.snapshots.tag_names() == ["t1"]
    assert key_values(table, tag="t1") == ALL[:2]
    assert used_files(table) == files_there(table)


def test_a_tag_that_two_branches_began_at_stays_for_the_other() -> None:
    """Trap 14: also when it was made for the one that is renamed, or goes."""
    table = filled()
    create_branch(table.store, "one", snapshot_id=3)
    create_branch(table.store, "two", tag="branch-one")
    assert rename_branch(table.store, "one", "first").tag == "branch-one"
    delete_branch(table.store, "first")
    assert table.store.snapshots.tag("branch-one").id == 3
    expire_all_but(table, keep=1)
    assert key_values(table.on_branch("two")) == ALL[:3]


def test_what_cannot_be_deleted_or_renamed_is_refused() -> None:
    """BR-05."""
    table = grown()
    create_branch(table.store, "other", tag="t1")
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    for change in (
        lambda: delete_branch(table.store, "main"), lambda: delete_branch(table.store, "nope"),
        lambda: rename_branch(table.store, "main", "x"), lambda: rename_branch(table.store, "nope", "x"),
        lambda: rename_branch(table.store, "dev", "other"), lambda: rename_branch(table.store, "dev", "a.b"),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            change()
    assert table.store.io.files == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.RENAME, Operation.MERGE, Operation.FAST_FORWARD])
def test_an_operation_that_began_when_its_branch_had_become_main_is_nobodys(operation: Operation) -> None:
    """Its process died before it saw that: a rename that was run again emptied main; a fast-forward stopped expiry."""
    old = grown()
    replace_main(old.store, "dev")
    main = reopened(old, old.store.io)
    before, io, paths = key_values(main), main.store.io, main.store.paths
    arguments = {"target": "fix"} if operation is Operation.RENAME else {}
    begin_work(io, paths, Work(operation=operation, arguments=arguments))
    if operation is Operation.RENAME:
        begin_work(io, paths.with_branch("fix"), Work(operation=operation, arguments={"source": "dev"}))
    calls: dict[Operation, Callable[[], object]] = {
        Operation.DELETE: lambda: delete_branch(main.store, "dev"),
        Operation.RENAME: lambda: rename_branch(main.store, "dev", "fix"),
        Operation.MERGE: lambda: merge_branch(main.store, "dev"),
        Operation.FAST_FORWARD: lambda: fast_forward(main.store, "dev"),
    }
    main.write(rows((7, 7)))
    assert expire_all_but(main, keep=1)
    with pytest.raises(InvalidInputError):
        calls[operation]()
    assert key_values(reopened(old, io)) == sorted([*before, (7, 7)])
    assert not [path for path in io.files if path.endswith("/OPERATION")]  # type: ignore[attr-defined]


def test_a_renamed_branch_is_the_same_by_another_name() -> None:
    """BR-08: its tags, snapshots and the tag that protects it come along; main is as it was."""
    table = grown()
    before = key_values(table.on_branch("dev"))
    ids = table.on_branch("dev").store.snapshots.ids()
    assert rename_branch(table.store, "dev", "fix") == Branch(name="fix", tag="branch-fix", snapshot_id=3)
    assert [each.name for each in list_branches(table.store)] == ["fix"]
    branch = table.on_branch("fix")
    assert (key_values(branch), branch.store.snapshots.ids()) == (before, ids)
    assert branch.store.snapshots.tag_names() == ["branch-fix", "mine"]
    assert table.store.snapshots.tag_names() == ["branch-fix", "t1"]
    create_branch(table.store, "dev", snapshot_id=5)
    delete_branch(table.store, "fix")
    delete_branch(table.store, "dev")
    assert used_files(table) == files_there(table)


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("action", ["delete", "rename"])
def test_an_interrupted_change_of_a_branch_is_completed_by_the_next_call(action: str, when: When) -> None:
    """BR-08, BR-49: at every moment main and its tags are whole; the branch is there or not, never in between."""

    def run(table: FileTable) -> None:
        if action == "delete":
            delete_branch(table.store, "dev")
        else:
            rename_branch(table.store, "dev", "fix")

    start = grown()
    clean = copied(start)
    io = FaultyFileIO(clean.store.io)
    run(reopened(clean, io))
    wanted = [(each, key_values(clean.on_branch(each.name))) for each in list_branches(clean.store)]
    whole, disks = key_values(start.on_branch("dev")), Disks()
    for fail_at in fail_points(io, when):
        disk = copied(start)
        with suppress(FluvialError):
            run(reopened(disk, FaultyFileIO(disk.store.io, fail_at=fail_at, when=when)))
        if not disks.is_new(disk.store.io):
            continue
        assert key_values(disk) == [*ALL, (5, 50)]
        assert key_values(disk, tag="t1") == ALL[:2]
        for each in list_branches(disk.store):
            assert key_values(disk.on_branch(each.name)) == whole
        expire_all_but(disk, keep=1)
        with suppress(InvalidInputError):  # it was done, and only the answer got lost
            run(disk)
        assert [(each, key_values(disk.on_branch(each.name))) for each in list_branches(disk.store)] == wanted
        assert used_files(disk) == files_there(disk), fail_at


@pytest.mark.parametrize("change", ["delete", "rename"])
@pytest.mark.parametrize("nth", range(1, 25))
def test_a_writer_whose_branch_went_is_told(change: str, nth: int) -> None:
    """BR-14, BR-28: no commit is acknowledged that nobody sees, and none comes back as a trap."""
    table = filled()
    create_branch(table.store, "dev", tag="t1")

    def act() -> None:
        if change == "delete":
            delete_branch(table.store, "dev")
        else:
            rename_branch(table.store, "dev", "fix")

    writer = FileTable(replace(table.on_branch("dev").store, io=Nth(table.store.io, nth, act)))
    failure: FluvialError | None = None
    try:
        writer.write(rows((1, 11)))
    except FluvialError as error:
        failure = error
    if failure is not None:
        assert isinstance(failure, OutcomeUnknownError) or re.search("gone|missing", str(failure)), failure
        assert under(table, "branch/branch-dev") == []
    elif change == "rename":
        assert key_values(table.on_branch("fix")) == [(1, 11), (2, 20)]
    assert key_values(table) == ALL


def _quietly(action: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with suppress(ConflictError, InvalidInputError):
            action()

    return run


def test_force_of_a_branch_without_commits_brings_main_back() -> None:
    """L1, BR-26: main's commits since the branch began are deleted, as force says; an empty branch is refused."""
    table = filled()
    latest = table.store.snapshots.latest_id() or 0
    wanted = key_values(table)
    create_branch(table.store, "good", snapshot_id=latest)
    create_branch(table.store, "empty")
    table.write(rows((1, -1), (99, 99)))
    assert fast_forward(table.store, "good").published == ()
    assert (99, 99) in key_values(table)
    with pytest.raises(InvalidInputError, match="the branch is empty"):
        fast_forward(table.store, "empty", force=True)
    done = fast_forward(table.store, "good", force=True)
    assert (done.removed, done.published) == ((latest + 1,), ())
    assert key_values(table) == wanted
    assert used_files(table) == files_there(table)


def test_the_branch_that_reads_fall_back_to_stays() -> None:
    """M6: it is neither deleted nor renamed, and the option names one that exists."""
    catalog = memory_catalog()
    key = "scan.fallback-branch"
    with pytest.raises(InvalidInputError, match="a new table has no branches"):
        catalog.create_table("db.u", KEY_SCHEMA, primary_key=["id"], options={key: "raw"})
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    with pytest.raises(InvalidInputError, match="no such branch"):
        catalog.alter_table("db.t", [SetOption(key, "raw")])
    create_branch(table.store, "raw")
    catalog.alter_table("db.t", [SetOption(key, "raw")])
    for act in (lambda: delete_branch(table.store, "raw"), lambda: rename_branch(table.store, "raw", "new")):
        with pytest.raises(InvalidInputError, match=r"batch reads take partitions from this branch: .*of=main"):
            act()
    catalog.alter_table("db.t", [RemoveOption(key)])
    delete_branch(table.store, "raw")


def test_main_is_the_branch_that_replaced_it() -> None:
    """M7: also in versions that name it."""
    table = filled()
    create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
    branch = table.on_branch("dev")
    branch.write(rows((1, -1)))
    create_tag(branch.store, "mine")
    replace_main(table.store, "dev")
    now = reopened(table, table.store.io)
    for version in ("main.latest", "main.mine", "dev.mine", "mine"):
        assert key_values(now, version=version) == key_values(branch)


def family() -> tuple[FileTable, FileTable, FileTable]:
    """Main, a branch ``dev`` of its newest snapshot with one more commit, and a branch ``fix`` of that one."""
    table = filled()
    create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
    dev = table.on_branch("dev")
    dev.write(rows((1, -1)))
    create_branch(dev.store, "fix", snapshot_id=dev.store.snapshots.latest_id())
    return table, dev, table.on_branch("fix")


def test_a_branch_of_a_branch_is_merged_into_its_parent() -> None:
    """Issue 16 point 6: and from there into main, beside commits of both."""
    table, dev, fix = family()
    assert key_values(fix) == key_values(dev) != key_values(table)
    fix.write(rows((2, -2)))
    dev.write(rows((3, -3)))
    before = key_values(table)
    merge_branch(table.store, "fix")
    assert {(1, -1), (2, -2), (3, -3)} <= {*key_values(dev)}
    assert key_values(table) == before
    table.write(rows((4, -4)))
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, -1), (2, -2), (3, -3), (4, -4)]
    with pytest.raises(InvalidInputError, match=r"created from another branch: .*parent=dev fix=merge it"):
        fast_forward(table.store, "fix")
    assert used_files(table) == files_there(table)


def test_a_parent_stays_and_keeps_what_its_children_need() -> None:
    """Issue 16 point 6: tags of the parent too, whatever expires; both go without leftovers."""
    table, dev, fix = family()
    wanted = key_values(fix)
    for act in (lambda: delete_branch(table.store, "dev"), lambda: rename_branch(table.store, "dev", "new")):
        with pytest.raises(InvalidInputError, match=r"were created from this branch: .*branches=\['fix'\]"):
            act()
    with pytest.raises(InvalidInputError, match="a branch was created from this tag"):
        delete_tag(dev.store, "branch-fix")
    for side in (table, dev):
        side.write(rows((1, 5), (9, 9)))
        side.compact(full=True)
        expire_all_but(side, keep=1)
    assert key_values(fix) == wanted
    rename_branch(table.store, "fix", "better")
    assert key_values(table.on_branch("better")) == wanted
    assert {"branch-better", "branch-fix"} & {*dev.store.snapshots.tag_names()} == {"branch-better"}
    delete_branch(table.store, "better")
    assert "branch-better" not in dev.store.snapshots.tag_names()
    delete_branch(table.store, "dev")
    assert used_files(table) == files_there(table)


def test_the_children_of_a_branch_that_became_main_are_mains() -> None:
    """Issue 16 point 6: also when it was moved into the table's directory."""
    table, dev, fix = family()
    fix.write(rows((2, -2)))
    replace_main(table.store, "dev")
    merge_branch(reopened(table, table.store.io).store, "fix")
    assert (2, -2) in key_values(dev)
    replace_main(table.store, "main")
    fix.write(rows((3, -3)))
    now = reopened(table, table.store.io)
    merge_branch(now.store, "fix")
    assert {(2, -2), (3, -3)} <= {*key_values(now)}
    assert used_files(now) == files_there(now)


def test_the_list_of_branches_says_what_each_was_created_from() -> None:
    """Issue 16 point 6."""
    table, dev, _ = family()

    def parents(side: FileTable) -> dict[str, str]:
        rows = SYSTEM_TABLES["branches"].read(side.store).to_pylist()
        return {each["name"]: each["parent"] for each in rows}

    assert parents(table) == parents(dev) == {"dev": "main", "fix": "dev"}
    replace_main(table.store, "dev")
    assert parents(reopened(table, table.store.io)) == {"dev": "dev", "fix": "dev"}  # it is main now, see ``is_main``
    replace_main(table.store, "main")
    assert parents(reopened(table, table.store.io)) == {"fix": "main"}


def test_another_branch_that_gets_the_name_of_a_parent_is_none() -> None:
    """History ``nested vectors 16``: the parent was moved into the table's directory."""
    table, _, fix = family()
    replace_main(table.store, "dev")
    replace_main(table.store, "main")
    now = reopened(table, table.store.io)
    create_branch(now.store, "dev", snapshot_id=now.store.snapshots.latest_id())
    fix.write(rows((2, -2)))
    merge_branch(now.store, "fix")
    assert (2, -2) in key_values(now)
    assert (2, -2) not in key_values(now.on_branch("dev"))
    delete_branch(now.store, "dev")
    assert [each.name for each in list_branches(now.store)] == ["fix"]


def test_the_tag_that_two_branches_of_a_former_parent_began_at_stays_for_the_other() -> None:
    """Their parent moved into the table's directory: both are main's, and so is the tag."""
    table, dev, _ = family()
    create_branch(dev.store, "odd", tag="branch-fix")
    replace_main(table.store, "dev")
    replace_main(table.store, "main")
    now = reopened(table, table.store.io)
    delete_branch(now.store, "fix")
    assert "branch-fix" in now.store.snapshots.tag_names()
    delete_branch(now.store, "odd")
    assert used_files(now) == files_there(now)


def test_a_branch_of_a_branch_is_not_made_main_before_its_parent() -> None:
    """Main's tags of what all three have in common went with the former main, without a word."""
    table, _, fix = family()
    create_tag(table.store, "eod")
    fix.write(rows((2, -2)))
    wanted = key_values(fix)
    with pytest.raises(InvalidInputError, match=r"created from another branch: .*parent=dev fix='merge it .*first"):
        replace_main(table.store, "fix")
    replace_main(table.store, "dev")
    replace_main(table.store, "fix")
    now = reopened(table, table.store.io)
    assert key_values(now) == wanted
    assert now.store.snapshots.find_tag("eod") is not None
    assert used_files(now) == files_there(now)


@pytest.mark.parametrize("name", ["merge", "fast-forward", "replace-main"])
@pytest.mark.parametrize("way", ["again", "delete"])
def test_what_died_on_a_branch_that_was_deleted_meanwhile_is_in_nobodys_way(name: str, way: str) -> None:
    """It was paused before its first file, and died behind it: the name is free after the same call, or a deletion."""
    calls: dict[str, Callable[[FileTable], object]] = {
        "merge": lambda table: merge_branch(table.store, "dev"),
        "fast-forward": lambda table: fast_forward(table.store, "dev"),
        "replace-main": lambda table: replace_main(table.store, "dev"),
    }
    table = filled()
    begin_work(table.store.io, table.store.paths.with_branch("dev"), Work(operation=Operation(name)))
    assert list_branches(table.store) == []
    with pytest.raises(ConflictError, match=r"incomplete branch: .*else delete the branch"):
        create_branch(table.store, "dev")
    if way == "delete":
        delete_branch(table.store, "dev")
    else:
        with pytest.raises(InvalidInputError, match="no such branch"):
            calls[name](table)
    assert under(table, "branch") == []
    create_branch(table.store, "dev")
    assert [each.name for each in list_branches(table.store)] == ["dev"]
