"""Histories of branches that failed once, as ``test_branch_histories`` found them, cut down to what matters."""

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.layout.branch_names import is_merge_tag
from filestore.maintenance.partitions import drop_partitions
from filestore.maintenance.rewriting import restore
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag, expired_tags, rename_tag, replace_tag
from lsm.errors import ConflictError, InvalidInputError
from lsm.row_kind import RowKind
from tests.filestore.refs.test_file_references import SCHEMA
from tests.support.roots import files_there, used_files
from tests.support.rows import rows_by
from tests.support.tables import expire_all_but, key_table, key_values, memory_catalog, reopened, rows


def main_ahead_of(*branches: str) -> FileTable:
    """A snapshot with rows 1 and 2 from which the branches begin, and two more with rows 3 and 4."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    for name in branches:
        create_branch(table.store, name, snapshot_id=1)
    table.write(rows((3, 30)))
    table.write(rows((4, 40)))
    return table


def branch_of_other_engine(table: FileTable, name: str, tag: str) -> FileTable:
    """As Paimon makes one from a tag: schema, tag and snapshot are copied, and nothing else says its origin."""
    paths, there = table.store.paths, table.store.paths.with_branch(name)
    snapshot = table.store.snapshots.tag(tag)
    for source, target in (
        (paths.schema(0), there.schema(0)),
        (paths.tag(tag), there.tag(tag)),
        (paths.tag(tag), there.snapshot(snapshot.id)),
    ):
        table.store.io.replace(target, table.store.io.read_bytes(source))
    return table.on_branch(name)


def changed(*values: tuple[str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in values], schema=SCHEMA)


def test_force_brings_back_a_state_that_has_expired_in_main() -> None:
    """Main became empty, and its next commit was snapshot 1 once more."""
    table = main_ahead_of("dev")
    expire_all_but(table, 1)
    done = fast_forward(table.store, "dev", force=True)
    assert (done.removed, done.published, done.common_id) == ((3,), (), 1)
    assert (table.store.snapshots.ids(), table.store.snapshots.hints()) == ([1], (1, 1))
    assert key_values(table) == [(1, 10), (2, 20)]
    table.write(rows((5, 50)))
    assert table.store.snapshots.ids() == [1, 2]
    create_tag(table.store, "again", snapshot_id=1)
    assert used_files(table) == files_there(table)


def test_what_an_expiry_had_claimed_is_free_after_a_forced_fast_forward() -> None:
    """The hint said 3 once there was a snapshot 3 again, so that snapshot 2 counted as expired."""
    table = main_ahead_of("dev")
    expire_all_but(table, 1)
    table.store.io.delete_tree(table.store.paths.expiry_dir)  # as when another engine expires: the hint is all there is
    table.on_branch("dev").write(rows((2, 21)))
    assert fast_forward(table.store, "dev", force=True).published == (2,)
    table.write(rows((5, 50)))
    assert table.store.snapshots.ids() == [2, 3]
    assert table.store.snapshots.claimed_up_to() <= 2
    create_tag(table.store, "kept", snapshot_id=2)
    assert key_values(table, tag="kept") == [(1, 10), (2, 21)]


def test_a_merge_that_a_forced_fast_forward_took_back_is_made_again() -> None:
    """The branch's rows counted as merged although they were no longer in main."""
    table = main_ahead_of("dev", "other")
    table.on_branch("dev").write(rows((2, 21)))
    assert merge_branch(table.store, "dev").snapshot is not None
    expire_all_but(table, 1)
    fast_forward(table.store, "other", force=True)
    assert key_values(table) == [(1, 10), (2, 20)]
    table.on_branch("dev").write(rows((6, 60)))
    table.write(rows((7, 70)))
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 10), (2, 21), (6, 60), (7, 70)]


def test_a_bucket_that_main_emptied_gets_the_rows_of_the_branch() -> None:
    """With deletion vectors: the merge ended with an error that was none of Fluvial's."""
    options = {"bucket": "1", "deletion-vectors.enabled": "true"}
    table = memory_catalog().create_table("db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"], options=options)
    table.write(changed(("a", 1, 1), ("b", 1, 1)))
    create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
    table.on_branch("dev").write(changed(("a", 2, 2)))
    partition = next(key.partition for key in LiveFiles.latest(table.store).buckets())
    drop_partitions(table.store, [partition])
    merge_branch(table.store, "dev")
    assert sorted(rows_by(["p", "id"], table)) == [("a", 2), ("b", 1)]


def test_a_bucket_that_both_sides_emptied_stays_empty() -> None:
    """The merge ended with an error that was none of Fluvial's."""
    table = memory_catalog().create_table(
        "db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"], options={"bucket": "1"}
    )
    table.write(changed(("a", 1, 1), ("b", 1, 1)))
    create_branch(table.store, "dev", snapshot_id=1)
    partition = next(key.partition for key in LiveFiles.latest(table.store).buckets())
    for side in (table, table.on_branch("dev")):
        side.write(changed(("a", 3, 3)))
        side.compact(full=True)
        drop_partitions(side.store, [partition])
    table.on_branch("dev").write(changed(("b", 2, 2)))
    expire_all_but(table, 1)
    merge_branch(table.store, "dev")
    assert sorted(rows_by(["p", "id"], table)) == [("b", 1), ("b", 2)]


def test_a_merge_by_key_keeps_rows_that_wait_for_a_compaction() -> None:
    """It is the compaction that they wait for: histories ``vectors 30013`` and ``vectors 30032`` said otherwise."""
    table = key_table(bucket="1", **{"deletion-vectors.enabled": "true", "write-only": "true"})
    table.write(rows((1, 10), (2, 20)))
    table.compact(full=True)
    create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
    there = table.on_branch("dev")
    there.write(rows((1, 11), (4, 40)))
    table.write(rows((2, 21)))
    assert (key_values(table), key_values(there)) == ([(1, 10), (2, 20)], [(1, 10), (2, 20)])
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 11), (2, 21), (4, 40)]


@pytest.mark.parametrize("expired", ["branch", "main", "both"])
def test_what_a_fast_forward_published_stays_in_common_when_it_expires(expired: str) -> None:
    """A merge began at the older state: key 1 was as then in main, so the branch won, and key 2 was a conflict."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    create_branch(table.store, "dev", snapshot_id=1)
    there = table.on_branch("dev")
    for value in (11, 12):
        there.write(rows((1, value), (2, value)))
    assert fast_forward(table.store, "dev").published == (2, 3)
    there.write(rows((1, 13), (3, 30)))
    table.write(rows((1, 10), (2, 14)))
    for each in {"branch": [there], "main": [table], "both": [there, table]}[expired]:
        expire_all_but(each, 1)
    found = merge_branch(table.store, "dev", dry_run=True)
    assert (found.conflict_count, [each.key for each in found.conflicts]) == (1, [{"id": 1}])
    with pytest.raises(ConflictError, match="1"):
        merge_branch(table.store, "dev")
    merge_branch(table.store, "dev", force=True)
    assert key_values(table) == [(1, 13), (2, 14), (3, 30)]
    assert merge_branch(table.store, "dev").snapshot is None
    delete_branch(table.store, "dev")
    assert used_files(table) == files_there(table)


def test_what_a_fast_forward_published_and_a_rollback_took_back_is_not_in_common() -> None:
    """It is merged as before; a tag of the branch, by which it keeps what it shares, does not stop the rollback."""
    table = main_ahead_of("dev")
    there = table.on_branch("dev")
    there.write(rows((1, 11)))
    create_tag(there.store, "own")
    fast_forward(table.store, "dev", force=True)
    there.write(rows((3, 33)))
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(1)))
    table.write(rows((4, 40)))
    expire_all_but(there, 1)
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 11), (2, 20), (3, 33), (4, 40)]


@pytest.mark.parametrize("expired", ["none", "branch", "main", "both"])
def test_main_that_went_back_to_a_published_snapshot_has_it_in_common_or_says_so(expired: str) -> None:
    """A merge began at the older state without a word: row 3, deleted on the branch since, stayed in main."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    create_branch(table.store, "dev", snapshot_id=1)
    there = table.on_branch("dev")
    there.write(rows((3, 30)))
    there.write(rows((1, 11)))
    assert fast_forward(table.store, "dev").published == (2, 3)
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(2)))
    there.write(rows((3, 30)), pa.array([RowKind.DELETE], pa.int8()))
    table.write(rows((2, 22)))
    for each in {"none": [], "branch": [there], "main": [table], "both": [there, table]}[expired]:
        expire_all_but(each, 1)
    if expired in ("main", "both"):  # main may have gone back further
        with pytest.raises(ConflictError, match="has expired"):
            merge_branch(table.store, "dev")
        assert key_values(table) == [(1, 10), (2, 22), (3, 30)]
    else:
        merge_branch(table.store, "dev")
        assert key_values(table) == [(1, 11), (2, 22)]


def test_a_branch_that_began_empty_has_in_common_what_it_published() -> None:
    """Its second fast-forward was refused, and a merge began at the empty table: a row deleted on the branch stayed."""
    table = key_table()
    create_branch(table.store, "dev")
    there = table.on_branch("dev")
    there.write(rows((1, 10), (2, 20)))
    assert fast_forward(table.store, "dev").published == (1,)
    there.write(rows((1, 11)))
    assert fast_forward(table.store, "dev").published == (2,)
    assert fast_forward(table.store, "dev").published == ()
    there.write(rows((1, 12)))
    table.write(rows((2, 21)))
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 12), (2, 21)]


def test_the_tag_of_a_merge_goes_with_a_merge_or_its_branch_only() -> None:
    """Without it, and when main's merge has expired, a change that the branch took back would be in main for good."""
    table = main_ahead_of("dev")
    table.on_branch("dev").write(rows((1, 11)))
    assert merge_branch(table.store, "dev").snapshot is not None
    there = table.on_branch("dev").store
    (name,) = filter(is_merge_tag, there.snapshots.tag_names())
    for change in (delete_tag, lambda store, tag: rename_tag(store, tag, "x"), replace_tag):
        with pytest.raises(InvalidInputError, match="keeps what was merged last from this branch"):
            change(there, name)
    assert name not in [each.name for each in expired_tags(there, older_than_ms=2**62)]
    delete_branch(table.store, "dev")


def test_commits_follow_what_a_fast_forward_published_again() -> None:
    """Another branch's forced fast-forward had removed it: its note made every later commit one of a rollback."""
    table = key_table()
    table.write(rows((1, 10)))
    for name in ("dev", "other"):
        create_branch(table.store, name, snapshot_id=1)
    table.on_branch("dev").write(rows((1, 11)))
    assert fast_forward(table.store, "dev").published == (2,)
    assert fast_forward(table.store, "other", force=True).removed == (2,)
    assert fast_forward(table.store, "dev").published == (2,)
    table.write(rows((2, 20)))
    assert key_values(table) == [(1, 11), (2, 20)]


def test_a_branch_of_another_engine_has_its_origin_when_its_tag_is_deleted() -> None:
    """It counted as begun empty: a row that main deleted came back, and a fast-forward of nothing left a tag.

    History ``changelog 3052``.
    """
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    create_tag(table.store, "z")
    there = branch_of_other_engine(table, "dev", "z")
    delete_tag(there.store, "z")
    table.write(rows((3, 30)))
    assert fast_forward(table.store, "dev").published == ()
    assert there.store.snapshots.tag_names() == []
    with pytest.raises(InvalidInputError, match="a branch was created from this tag"):
        delete_tag(table.store, "z")
    there.write(rows((1, 11)))
    table.write(rows((2, 20)), kinds=pa.array(["-D"]))
    expire_all_but(table, 1)
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 11), (3, 30)]


def test_a_branch_that_another_engine_began_empty_stays_so_when_it_gets_a_tag() -> None:
    """Its first tag counted as that from which it was made, and nothing of it could be merged."""
    table = key_table()
    table.write(rows((1, 10)))
    paths = table.store.paths
    table.store.io.replace(paths.with_branch("dev").schema(0), table.store.io.read_bytes(paths.schema(0)))
    there = table.on_branch("dev")
    there.write(rows((2, 20)))
    create_tag(there.store, "own")
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 10), (2, 20)]


@pytest.mark.parametrize("how", ["fast-forward", "merge"])
def test_main_that_went_back_behind_what_had_expired_is_no_common_state(how: str) -> None:
    """A rollback removes what is there, so the expired state did not count as removed: key 1 was no conflict."""
    table = key_table()
    table.write(rows((1, 10)))
    create_tag(table.store, "t", snapshot_id=1)
    create_branch(table.store, "dev", snapshot_id=1)
    there = table.on_branch("dev")
    there.write(rows((1, 11)))
    if how == "merge":
        table.write(rows((5, 50)))
        merge_branch(table.store, "dev")
    else:
        assert fast_forward(table.store, "dev").published == (2,)
    table.write(rows((2, 20)))
    expire_all_but(table, 1)
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.tag("t")))
    for each in ((1, 12), (2, 21), (2, 22), (2, 23)):
        table.write(rows(each))
    there.write(rows((3, 30)))
    assert merge_branch(table.store, "dev", dry_run=True).conflict_count == 1
    expire_all_but(table, 1)
    with pytest.raises(ConflictError, match="has expired"):
        merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 12), (2, 23)]


def merged_before_main_moves() -> FileTable:
    """``dev`` is main; ``fix``, which began with it, was merged: key 1 is 11. Since then main has taken that back."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    for name in ("dev", "fix"):
        create_branch(table.store, name, snapshot_id=1)
    replace_main(table.store, "dev")
    main = reopened(table, table.store.io)
    main.on_branch("fix").write(rows((1, 11)))
    merge_branch(main.store, "fix")
    main.write(rows((1, 10)))
    main.on_branch("fix").write(rows((2, 22)))
    return main


def test_a_merge_is_known_when_main_has_moved_and_forgotten_it() -> None:
    """``nested indexed 510014``: the name of main was another one then; key 1 came back, without a conflict."""
    table = merged_before_main_moves()
    replace_main(table.store, "main")
    now = reopened(table, table.store.io)
    expire_all_but(now, 1)
    merge_branch(now.store, "fix")
    assert key_values(now) == [(1, 10), (2, 22)]
    assert merge_branch(now.store, "fix").snapshot is None


def test_a_merge_into_a_replaced_main_is_made_again_in_another_one_of_its_name() -> None:
    """The rows of the branch were taken for rows of main, and came to be in no main at all."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    for name in ("dev", "fix"):
        create_branch(table.store, name, snapshot_id=1)
    table.on_branch("fix").write(rows((1, 11)))
    merge_branch(table.store, "fix")
    for name in ("dev", "main"):
        replace_main(table.store, name)
    now = reopened(table, table.store.io)
    for value in (30, 31):
        now.write(rows((3, value)))
    expire_all_but(now, 1)
    assert merge_branch(now.store, "fix").snapshot is not None
    assert key_values(now) == [(1, 11), (2, 20), (3, 31)]


def test_a_merge_that_another_main_may_have_is_no_reason_to_bring_rows_back() -> None:
    """What both mains had in common has the merge; that main's rollbacks are forgotten, so it may be another commit."""
    table = merged_before_main_moves()
    create_branch(table.store, "late", snapshot_id=table.store.snapshots.latest_id())
    replace_main(table.store, "late")
    now = reopened(table, table.store.io)
    for value in (30, 31):
        now.write(rows((3, value)))
    expire_all_but(now, 1)
    with pytest.raises(ConflictError, match="the state that was merged last has expired"):
        merge_branch(now.store, "fix")
    assert key_values(now) == [(1, 10), (2, 20), (3, 31)]


@pytest.mark.sweep
@pytest.mark.parametrize("written", [4, 3], ids=["another key", "the same key"])
def test_a_merge_that_main_took_back_and_forgot_is_not_made_again(written: int) -> None:
    """``moving files 500056``: main was as before the merge, which counted as no change; the row came back."""
    options = {"bucket": "1"}
    table = memory_catalog().create_table("db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"], options=options)
    table.write(changed(("b", 1, 1)))
    create_branch(table.store, "dev", snapshot_id=1)
    there = table.on_branch("dev")
    there.write(changed(("a", 3, 3)))
    merge_branch(table.store, "dev")
    restore(table.store, table.store.snapshots.read(1))
    expire_all_but(table, 1)
    there.write(changed(("a", written, 9)))
    there.compact(full=True)
    expire_all_but(there, 1)
    if written == 3:
        with pytest.raises(ConflictError, match="'id': 3"):
            merge_branch(table.store, "dev")
    merge_branch(table.store, "dev", force=written == 3)
    assert sorted(rows_by(["p", "id"], table)) == [("a", written), ("b", 1)]


def test_the_start_of_a_branch_that_let_go_of_it_is_that_of_mains_tag() -> None:
    """``nested lookup 520062``: a merge was refused, and main's tags went when the branch became main."""
    table = main_ahead_of("dev")
    create_tag(table.store, "eod", snapshot_id=1)
    there = table.on_branch("dev")
    for value in (50, 51):
        there.write(rows((5, value)))
    delete_tag(there.store, "branch-dev")
    expire_all_but(there, 1)
    merge_branch(table.store, "dev")
    assert key_values(table) == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 51)]
    replace_main(table.store, "dev")
    now = reopened(table, table.store.io)
    assert key_values(now) == [(1, 10), (2, 20), (5, 51)]
    assert "eod" in now.store.snapshots.tag_names()
    assert used_files(now) == files_there(now)


def test_tags_of_what_a_fast_forward_published_stay_when_the_branch_becomes_main() -> None:
    """``nested dynamic 520057``: main's snapshots had expired, and only a tag was left of what both had."""
    table = key_table()
    table.write(rows((1, 10)))
    create_branch(table.store, "dev", snapshot_id=1)
    there = table.on_branch("dev")
    there.write(rows((2, 20)))
    fast_forward(table.store, "dev")
    create_tag(table.store, "eod")
    for value in (30, 31):
        table.write(rows((3, value)))
    expire_all_but(table, 1)
    there.write(rows((2, 22)))
    merge_branch(table.store, "dev")
    replace_main(table.store, "dev")
    now = reopened(table, table.store.io)
    assert now.store.snapshots.tag("eod").id == 2
    assert used_files(now) == files_there(now)
