"""Merging branches into main: bucket by bucket, in one commit, with every fault and race on the way."""

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch, rename_branch
from filestore.branch.key_places import KeyConflict
from filestore.branch.merge import MergeResult, interrupted_merges, merge_branch
from filestore.branch.merge_history import MERGED_BRANCH_KEY
from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.maintenance.rewriting import rescale
from filestore.snapshot.change_tracking import UNLOGGED_KEY
from filestore.snapshot.snapshot import CHANGES_KEY, CommitKind
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import data_type_of
from lsm.errors import CommittedError, ConflictError, FluvialError, InvalidInputError, OutcomeUnknownError
from lsm.row_kind import RowKind
from tests.support.faults import Disks, FaultyFileIO, Nth, When, fail_points, paused_before
from tests.support.roots import files_there, used_files
from tests.support.rows import sorted_rows, write_rows
from tests.support.tables import copied, expire_all_but, key_table, memory_catalog, reopened, rows

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.int64())])
NUMBER = data_type_of(pa.int64(), nullable=True)


def partitioned(*, has_key: bool = True, **options: str) -> FileTable:
    """Partitions a, b, c with one row each, all of version 0; tag ``t`` holds that."""
    key = ["p", "id"] if has_key else []
    table = memory_catalog().create_table("db.t", SCHEMA, primary_key=key, partition_by=["p"], options=options)
    write_rows(table, ("a", 1, 0), ("b", 1, 0), ("c", 1, 0))
    create_tag(table.store, "t")
    return table


def with_branch(table: FileTable, name: str = "dev") -> FileTable:
    create_branch(table.store, name, tag="t")
    return table.on_branch(name)


def test_a_bucket_that_one_side_changed_is_as_that_side_left_it() -> None:
    """BR-15, BR-36: in one commit, and the branch stays as it was."""
    table = partitioned()
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7), ("a", 2, 7))
    branch.overwrite(pa.Table.from_pylist([], schema=SCHEMA), {"p": "c"})
    write_rows(table, ("b", 1, 8))
    before, theirs = table.store.snapshots.latest_id() or 0, sorted_rows(branch)
    done = merge_branch(table.store, "dev")
    assert sorted_rows(table) == [("a", 1, 7), ("a", 2, 7), ("b", 1, 8)]
    assert table.store.snapshots.latest_id() == before + 1
    assert done.snapshot == table.store.snapshots.latest()
    assert (done.bucket_count, done.file_count) == (2, 1)
    assert done.snapshot is not None
    assert done.snapshot.commit_kind is CommitKind.OVERWRITE
    assert done.snapshot.properties[CHANGES_KEY] == "files"
    assert done.snapshot.properties[MERGED_BRANCH_KEY] == "dev"
    assert sorted_rows(branch) == theirs
    write_rows(branch, ("b", 9, 9))
    write_rows(table, ("c", 5, 5))
    assert ("b", 9, 9) not in sorted_rows(table)


def test_streams_get_the_difference_of_a_merge() -> None:
    """BR-15; FL-29, FL-33: from the files, whatever the branch compacted."""
    table = partitioned()
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7), ("b", 2, 7))
    branch.compact(full=True)
    table.compact(full=True)
    previous = table.store.snapshots.latest()
    done = merge_branch(table.store, "dev")
    assert done.snapshot is not None
    changes = [
        (RowKind(kind.as_py()).name, row["p"], row["id"], row["v"])
        for split in plan_changes(table.store, previous, done.snapshot)
        for rows, kinds in read_changes(table, split)
        for row, kind in zip(rows.to_pylist(), kinds, strict=True)
    ]
    assert sorted(changes) == [
        ("INSERT", "b", 2, 7), ("UPDATE_AFTER", "a", 1, 7), ("UPDATE_BEFORE", "a", 1, 0)
    ]  # fmt: skip


def test_the_log_of_main_goes_on_behind_a_merge() -> None:
    """BR-15; Decisions 16, 17: its offsets are carried on and streams are sent to the files, wherever it is run."""
    table = key_table(bucket="1")
    options = {**table.schema.options, "log.kafka.bootstrap.servers": "nowhere:1"}
    table.store.io.replace(table.store.paths.schema(0), replace(table.schema, options=options).to_json().encode())
    table = reopened(table, table.store.io)
    table.write(rows((1, 10)))
    logged = replace(table.store.snapshots.read(1), log_offsets={0: 7})
    table.store.io.replace(table.store.paths.snapshot(1), logged.to_json().encode())
    create_branch(table.store, "dev", snapshot_id=1)
    branch = table.on_branch("dev")
    branch.write(rows((2, 20)))
    done = merge_branch(branch.store, "dev").snapshot
    assert done is not None
    assert done.log_offsets == {0: 7}
    assert (done.properties[CHANGES_KEY], done.properties[UNLOGGED_KEY]) == ("files", "2")


def test_both_sides_changed_a_bucket_of_a_table_with_a_key() -> None:
    """Trap 6: other keys of both stay; a key that both changed differently is refused by name, and forced alone."""
    table = partitioned()
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7), ("b", 1, 7))
    write_rows(table, ("a", 2, 8), ("c", 2, 8))
    merge_branch(table.store, "dev")
    assert sorted_rows(table) == [("a", 1, 7), ("a", 2, 8), ("b", 1, 7), ("c", 1, 0), ("c", 2, 8)]
    write_rows(branch, ("a", 1, 9), ("a", 3, 9))
    write_rows(table, ("a", 1, 5), ("a", 4, 5))
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    with pytest.raises(ConflictError, match=r"keys=\[\{'p': 'a', 'id': 1\}\] count=1"):
        merge_branch(table.store, "dev")
    preview = merge_branch(table.store, "dev", dry_run=True)
    assert preview.conflicts == (KeyConflict(key={"p": "a", "id": 1}, base={"v": 7}, main={"v": 5}, branch={"v": 9}),)
    assert (preview.conflict_count, preview.snapshot) == (1, None)
    assert table.store.io.files == before  # type: ignore[attr-defined]
    assert merge_branch(table.store, "dev", force=True).conflicts == preview.conflicts
    rows_of_a = [(1, 9), (2, 8), (3, 9), (4, 5)]
    assert sorted_rows(table) == [*(("a", *row) for row in rows_of_a), ("b", 1, 7), ("c", 1, 0), ("c", 2, 8)]


def test_new_rows_of_both_sides_are_united_in_a_table_without_a_key() -> None:
    """BR-04, BR-15: whatever either side has compacted; each row once, however often it is merged."""
    table = partitioned(has_key=False, **{"compaction.min.file-num": "2"})
    branch = with_branch(table)
    write_rows(branch, ("a", 2, 7))
    write_rows(branch, ("a", 3, 7))
    branch.compact(full=True)
    write_rows(table, ("a", 4, 8))
    table.compact(full=True)
    united = [("a", 1, 0), ("a", 2, 7), ("a", 3, 7), ("a", 4, 8), ("b", 1, 0), ("c", 1, 0)]
    done = merge_branch(table.store, "dev")
    assert sorted_rows(table) == united
    assert done.snapshot is not None
    assert done.snapshot.commit_kind is CommitKind.APPEND
    assert merge_branch(table.store, "dev") == MergeResult(branch="dev", snapshot=None)
    write_rows(branch, ("a", 5, 7))
    write_rows(table, ("b", 5, 8))
    merge_branch(table.store, "dev")
    assert sorted_rows(table) == sorted([*united, ("a", 5, 7), ("b", 5, 8)])


@pytest.mark.parametrize("has_key", [True, False])
def test_a_dry_run_counts_what_the_run_does_and_names_the_columns_that_change(has_key: bool) -> None:
    table = partitioned(has_key=has_key)
    branch = with_branch(table)
    write_rows(branch, ("a", 2, 7), ("b", 2, 7))
    write_rows(table, ("a", 3, 8))
    publish_changes(
        branch.store,
        lambda _: [RenameColumn(path=("v",), name="w"), AddColumn(path=("note",), type=data_type_of(pa.string()))],
    )
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    planned = merge_branch(table.store, "dev", dry_run=True)
    assert table.store.io.files == before  # type: ignore[attr-defined]
    assert (planned.bucket_count, planned.file_count, planned.size_bytes > 0) == (2, 2, True)
    assert planned.schema_changes == ("renamed v to w", "added note STRING")
    assert replace(merge_branch(table.store, "dev"), snapshot=None) == planned
    assert merge_branch(table.store, "dev", dry_run=True) == MergeResult(branch="dev", snapshot=None)


def test_a_removal_is_of_the_files_that_the_branch_removed() -> None:
    """BR-15: what main added meanwhile stays; behind a compaction the files cannot be kept apart."""
    table = partitioned(has_key=False, **{"compaction.min.file-num": "2"})
    branch = with_branch(table)
    branch.overwrite(pa.Table.from_pylist([], schema=SCHEMA), {"p": "a"})
    write_rows(branch, ("a", 3, 7))
    write_rows(table, ("a", 4, 8))
    compacted = copied(table)
    merge_branch(table.store, "dev")
    assert sorted_rows(table) == [("a", 3, 7), ("a", 4, 8), ("b", 1, 0), ("c", 1, 0)]
    compacted.compact(full=True)
    preview = merge_branch(compacted.store, "dev", dry_run=True)
    assert (preview.conflict_count, len(preview.conflicting_buckets), preview.conflicts) == (1, 1, ())
    with pytest.raises(ConflictError, match=r"which have no key: .*count=1"):
        merge_branch(compacted.store, "dev")
    forced = merge_branch(compacted.store, "dev", force=True)
    assert sorted_rows(compacted) == [("a", 3, 7), ("b", 1, 0), ("c", 1, 0)]
    assert (forced.conflict_count, forced.conflicting_buckets) == (1, preview.conflicting_buckets), "what force decided"


def test_a_branch_is_merged_again_and_again() -> None:
    """BR-28, BR-36: what main got from this branch is no change of main's."""
    table = partitioned()
    branch = with_branch(table)
    for version in range(1, 5):
        write_rows(branch, ("a", 1, version))
        if version == 2:
            branch.compact(full=True)
        if version == 3:
            expire_all_but(branch, keep=1)  # what was merged is not known any more; the state is
            table.compact(full=True)
        merge_branch(table.store, "dev")
        assert sorted_rows(table) == [("a", 1, version), ("b", 1, 0), ("c", 1, 0)]
    write_rows(table, ("a", 1, 9))
    write_rows(branch, ("a", 2, 5))
    merge_branch(table.store, "dev")
    assert sorted_rows(table) == [("a", 1, 9), ("a", 2, 5), ("b", 1, 0), ("c", 1, 0)]
    write_rows(branch, ("a", 1, 8))  # main's row of it is none of the branch's
    with pytest.raises(ConflictError):
        merge_branch(table.store, "dev")


def test_a_merge_shares_no_new_file_so_either_side_can_expire() -> None:
    """BR-28, BR-49: nothing is missing after both expired and compacted, or the branch is gone."""
    table = partitioned()
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7), ("b", 2, 7))
    table.compact(full=True)
    expire_all_but(table, keep=1)
    merge_branch(table.store, "dev")
    wanted = sorted_rows(table)
    for side in (branch, table, branch):
        write_rows(side, ("c", 1, 0))
        side.compact(full=True)
        expire_all_but(side, keep=1)
        assert used_files(table) == files_there(table)
        assert sorted_rows(table) == sorted_rows(branch) == wanted
    delete_branch(table.store, "dev")
    assert sorted_rows(table) == wanted
    assert used_files(table) == files_there(table)


def test_a_branch_that_was_made_empty_is_merged() -> None:
    """BR-15: it has no common snapshot: both sides have changed all that they have."""
    table = partitioned()
    create_branch(table.store, "new")
    write_rows(table.on_branch("new"), ("d", 1, 7))
    merge_branch(table.store, "new")
    assert sorted_rows(table) == [("a", 1, 0), ("b", 1, 0), ("c", 1, 0), ("d", 1, 7)]


def test_a_schema_that_the_branch_changed_comes_along() -> None:
    """BR-10, BR-15: under the same ids, which its files name; what kept the branch apart from main stays there."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id", "p"], partition_by=["p"])
    write_rows(table, ("a", 1, 0))
    create_tag(table.store, "t")
    create_branch(table.store, "dev", tag="t", options={"num-sorted-run.compaction-trigger": "9"})
    assert [each.id for each in (table.schema, table.on_branch("dev").schema)] == [0, 1]
    catalog.alter_table("db.t", [AddColumn(path=("w",), type=NUMBER)], branch="dev")
    row = {"p": ["a"], "id": [2], "v": [7], "w": [70]}
    table.on_branch("dev").write(pa.table(row, schema=SCHEMA.append(pa.field("w", pa.int64()))))
    merge_branch(table.store, "dev")
    merged = catalog.table("db.t")
    assert merged.store.schemas.ids() == [0, 1, 2]
    assert merged.schema.options == table.schema.options
    assert merged.read().to_arrow().select(["id", "w"]).to_pylist() == [{"id": 1, "w": None}, {"id": 2, "w": 70}]
    table.on_branch("dev").write(pa.table({**row, "w": [71]}, schema=SCHEMA.append(pa.field("w", pa.int64()))))
    merge_branch(table.store, "dev")
    assert merged.read().to_arrow().select(["id", "w"]).to_pylist() == [{"id": 1, "w": None}, {"id": 2, "w": 71}]


@pytest.mark.parametrize(("decided", "left"), [("before", [0]), ("behind", [0, 1, 2])])
def test_a_refused_merge_leaves_no_schema_that_nothing_needs(decided: str, left: list[int]) -> None:
    """A writer publishes between the branch's schema versions and the merge's commit; then keys are in conflict.

    It decided on its schema before the versions were there, or behind that, and then it needs them.
    """
    table = partitioned()
    with_branch(table)
    for name in ("w", "x"):
        publish_changes(table.on_branch("dev").store, lambda _, name=name: [AddColumn(path=(name,), type=NUMBER)])
    write_rows(table.on_branch("dev"), ("a", 1, 7))

    ahead = copied(table)
    write_rows(ahead, ("a", 1, 8))
    there: dict[str, bytes] = table.store.io.files  # type: ignore[attr-defined]

    def act() -> None:
        assert table.store.schemas.ids() == [0, 1, 2]
        if decided == "before":
            there.update(ahead.store.io.files)  # type: ignore[attr-defined]
        else:
            write_rows(table, ("a", 1, 8))

    io = Nth(table.store.io, 2, act, of=("write_new",))  # behind the tag that holds what is merged
    with pytest.raises(ConflictError, match="same keys"):
        merge_branch(reopened(table, io).store, "dev")  # type: ignore[arg-type]
    assert table.store.schemas.ids() == left
    later = publish_changes(reopened(table, table.store.io).store, lambda _: [AddColumn(path=("y",), type=NUMBER)])
    assert later.id == left[-1] + 1


@pytest.mark.parametrize(("has_conflict", "left"), [(True, [0]), (False, [0, 1, 2])])
def test_a_merge_that_died_behind_its_schemas_leaves_none_that_nothing_needs_when_it_is_repeated(
    has_conflict: bool, left: list[int]
) -> None:
    """Between them and its commit; main has changed the same key since, or not."""
    table = partitioned()
    with_branch(table)
    for name in ("w", "x"):
        publish_changes(table.on_branch("dev").store, lambda _, name=name: [AddColumn(path=(name,), type=NUMBER)])
    write_rows(table.on_branch("dev"), ("a", 1, 7))
    ahead = copied(table)  # of a writer that has decided on its schema before
    write_rows(ahead, ("a", 1, 8))
    at_death: list[FileTable] = []
    io = Nth(table.store.io, 2, lambda: at_death.append(copied(table)), of=("write_new",))
    merge_branch(reopened(table, io).store, "dev")  # type: ignore[arg-type]
    (dead,) = at_death
    assert (dead.store.schemas.ids(), interrupted_merges(dead.store)) == ([0, 1, 2], ["dev"])
    if not has_conflict:
        assert merge_branch(dead.store, "dev").snapshot is not None
    else:
        dead.store.io.files.update(ahead.store.io.files)  # type: ignore[attr-defined]
        with pytest.raises(ConflictError, match="same keys"):
            merge_branch(dead.store, "dev")
    assert (dead.store.schemas.ids(), interrupted_merges(dead.store)) == (left, [])


def test_a_schema_that_main_changed_stays_and_one_that_both_changed_is_refused() -> None:
    """BR-10, BR-15."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id", "p"], partition_by=["p"])
    write_rows(table, ("a", 1, 0))
    create_tag(table.store, "t")
    create_branch(table.store, "dev", tag="t", options={"num-sorted-run.compaction-trigger": "9"})
    catalog.alter_table("db.t", [AddColumn(path=("mine",), type=NUMBER)])
    write_rows(table.on_branch("dev"), ("a", 2, 7))
    merge_branch(table.store, "dev")
    found = catalog.table("db.t").read().to_arrow().select(["id", "v", "mine"]).to_pylist()
    assert found == [{"id": 1, "v": 0, "mine": None}, {"id": 2, "v": 7, "mine": None}]
    catalog.alter_table("db.t", [AddColumn(path=("theirs",), type=NUMBER)], branch="dev")
    write_rows(table.on_branch("dev"), {"p": "a", "id": 3, "v": 7})
    with pytest.raises(ConflictError, match="both changed the schema"):
        merge_branch(table.store, "dev")
    with pytest.raises(ConflictError, match="both changed the schema"):
        merge_branch(table.store, "dev", force=True)


def test_a_partition_that_was_rescaled_is_refused() -> None:
    """BR-15: buckets of different numbers of buckets do not hold the same keys."""
    table = partitioned(bucket="1")
    branch = with_branch(table)
    rescale(branch.store, branch.with_options({"bucket": "2"}).store, keep=lambda _: True)
    write_rows(branch.with_options({"bucket": "2"}), ("a", 2, 7))
    with pytest.raises(InvalidInputError, match="rescaled"):
        merge_branch(table.store, "dev", force=True)


def test_there_is_nothing_to_merge() -> None:
    """BR-15: no snapshot is made."""
    table = partitioned()
    branch = with_branch(table)
    branch.compact(full=True)
    write_rows(table, ("a", 1, 9))
    merge_branch(table.store, "dev")
    assert sorted_rows(table) == [("a", 1, 9), ("b", 1, 0), ("c", 1, 0)]
    with pytest.raises(InvalidInputError, match="no such branch"):
        merge_branch(table.store, "nope")


@cache
def diverged_table(*, has_key: bool) -> FileTable:
    """Both sides wrote; the branch's compaction moved nothing that can be taken as it is."""
    table = partitioned(has_key=has_key)
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7), ("a", 2, 7))
    write_rows(table, ("b", 4, 8), *([] if has_key else [("a", 4, 8)]))
    branch.compact(full=True)
    table.compact(full=True)
    return table


@pytest.mark.sweep
@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_merge_that_dies_is_all_or_nothing(when: When, has_key: bool) -> None:
    """BR-15: at every moment main is as it was or merged, and the next merge completes it; no file is left over."""
    clean = copied(diverged_table(has_key=has_key))
    before, io = sorted_rows(clean), FaultyFileIO(clean.store.io)
    merge_branch(reopened(clean, io).store, "dev")
    after = sorted_rows(clean)
    assert after != before
    disks = Disks()
    for fail_at in fail_points(io, when):
        disk = copied(diverged_table(has_key=has_key))
        failure: FluvialError | None = None
        try:
            merge_branch(reopened(disk, FaultyFileIO(disk.store.io, fail_at=fail_at, when=when)).store, "dev")
        except FluvialError as error:
            failure = error
        if not disks.is_new(disk.store.io, type(failure)):
            continue
        assert sorted_rows(disk) in ([before, after] if failure else [after])
        merge_branch(disk.store, "dev")
        assert sorted_rows(disk) == after
        assert used_files(disk) <= files_there(disk)
        if not isinstance(failure, OutcomeUnknownError):  # one that was answered for certain cleans up, if it can
            assert len(files_there(disk) - used_files(disk)) <= 4
        delete_branch(disk.store, "dev")  # no operation is left at work


@pytest.mark.parametrize("rival", ["write elsewhere", "write here", "compact", "expire branch", "delete branch"])
@pytest.mark.parametrize("operation", ["open_output", "write_new", "create_exclusive"])
def test_live_writers_of_main_and_merges_lose_nothing(operation: str, rival: str) -> None:
    """BR-15; Trap 6: the second publisher decides again, or says that both changed a bucket."""
    table = copied(diverged_table(has_key=True))

    def act() -> None:
        if rival == "write elsewhere":
            write_rows(table, ("c", 9, 9))
        elif rival == "write here":
            write_rows(table, ("a", 9, 9))
        elif rival == "compact":
            write_rows(table, ("c", 9, 9))
            table.compact(full=True)
        elif rival == "expire branch":
            write_rows(table.on_branch("dev"), ("a", 1, 7))
            table.on_branch("dev").compact(full=True)
            expire_all_but(table.on_branch("dev"), keep=1)
        else:
            with suppress(ConflictError):
                delete_branch(table.store, "dev")

    with paused_before(table.store.io, operation, act) as io:
        try:
            merge_branch(reopened(table, io).store, "dev")
        except InvalidInputError:
            assert rival == "delete branch"
        else:
            assert ("a", 1, 7) in sorted_rows(table)
            assert (("a", 9, 9) in sorted_rows(table)) == (rival == "write here")
            assert (("c", 9, 9) in sorted_rows(table)) == (rival in ("write elsewhere", "compact"))
    expire_all_but(table, keep=1)
    sorted_rows(table)


def test_a_renamed_branch_is_known_again() -> None:
    """BR-28: its merges are still its own."""
    table = partitioned()
    branch = with_branch(table)
    write_rows(branch, ("a", 1, 7))
    merge_branch(table.store, "dev")
    rename_branch(table.store, "dev", "fix")
    assert merge_branch(table.store, "fix").snapshot is None
    write_rows(table.on_branch("fix"), ("a", 1, 8))
    merge_branch(table.store, "fix")
    assert ("a", 1, 8) in sorted_rows(table)


def test_a_merge_that_fails_behind_its_commit_says_so_and_merges_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    table = partitioned(has_key=False)
    write_rows(with_branch(table), ("a", 2, 1))

    def gone(*parts: object, **more: object) -> None:
        raise InvalidInputError("table is gone")

    with monkeypatch.context() as patched:
        patched.setattr("filestore.branch.merge.note_merged", gone)
        with pytest.raises(CommittedError, match=r"branch is merged: .*snapshot=2 .*is gone"):
            merge_branch(table.store, "dev")
    merged = [("a", 1, 0), ("a", 2, 1), ("b", 1, 0), ("c", 1, 0)]
    assert sorted_rows(table, "p", "id", "v") == merged
    assert interrupted_merges(table.store) == ["dev"]
    merge_branch(table.store, "dev")
    assert sorted_rows(table, "p", "id", "v") == merged
    assert interrupted_merges(table.store) == []
