"""Rescaling, restoring and forgetting files, when every operation fails once."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from filestore.maintenance.rewriting import lost_files, remove_lost_files, rescale, restore
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import FluvialError, InvalidInputError
from tests.support.faults import Disks, Nth, When
from tests.support.roots import check_orphans_go
from tests.support.tables import (
    check_metadata,
    content,
    copied,
    expire_all_but,
    failing_at,
    key_table,
    reopened,
    rows,
    sorted_rows,
)

OLD, NEW = {1: 1, 2: 2, 3: 3}, {1: 9, 2: 2, 5: 5}


def a_table() -> FileTable:
    """Snapshot 1 holds OLD, the newest one NEW."""
    table = key_table(bucket="2", **{"num-sorted-run.compaction-trigger": "2"})
    table.write(rows(*OLD.items()))
    table.write(rows((1, 9), (5, 5)))
    table.write(rows((3, 0)), pa.array(["-D"]))
    table.compact()
    assert content(table) == NEW
    return table


def rescaled(table: FileTable) -> None:
    rescale(table.store, table.with_options({"bucket": "3"}).store, keep=lambda _: True)


def restored(table: FileTable) -> None:
    restore(table.store, table.store.snapshots.read(1))


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize(("rewrite", "after"), [(rescaled, NEW), (restored, OLD)], ids=["rescale", "restore"])
def test_whatever_dies_the_rows_are_those_before_or_after(
    rewrite: Callable[[FileTable], None], after: dict[int, int | None], when: When
) -> None:
    before, disks = a_table(), Disks()
    for fail_at in range(1, 400):
        table, again, faulty = failing_at(before, fail_at, when)
        is_done = False
        try:
            rewrite(again)
            is_done = True
        except (FluvialError, OSError):
            assert faulty.calls >= fail_at
        if not disks.is_new(table.store.io, is_done) and faulty.calls >= fail_at:
            continue
        assert content(table) in ((after,) if is_done else (NEW, after))
        rewrite(table)
        assert content(table) == after
        assert content(table, snapshot_id=1) == OLD
        check_metadata(table)
        check_orphans_go(table)
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("the sweep did not end")


def test_what_is_in_the_right_buckets_already_stays() -> None:
    table = a_table()
    wide = table.with_options({"bucket": "3"})
    done, count = rescale(table.store, wide.store, keep=lambda _: True)
    assert count == 1
    assert done.snapshot is not None
    assert rescale(table.store, wide.store, keep=lambda _: True)[1] == 0
    assert rescale(table.store, wide.store, keep=lambda _: False)[1] == 0
    assert table.store.snapshots.latest_id() == done.snapshot.id


def test_the_column_of_kinds_says_nothing_about_rows_that_are_rewritten() -> None:
    """What a merge has left there is a value: null, or the kind of a row that is there all the same."""
    schema = pa.schema([pa.field("k", pa.int32(), nullable=False), ("op", pa.string())])
    table = key_table(schema=schema, primary_key=["k"], bucket="1", **{"rowkind.field": "op"})
    shown = {1: "-D", 2: None, 3: "-U", 4: "+I"}
    given = pa.table({"k": list(shown), "op": list(shown.values())}, schema=schema)
    table.write(given, pa.array(["+I"] * 4))
    rescaled(table)
    assert {row["k"]: row["op"] for row in table.read().to_arrow().to_pylist()} == shown


def test_a_state_of_other_buckets_is_not_restored() -> None:
    table = a_table()
    rescaled(table)
    with pytest.raises(InvalidInputError, match=r"the table has been rescaled since: .*snapshot=1 bucket=3 then=\[2\]"):
        restore(table.with_options({"bucket": "3"}).store, table.store.snapshots.read(1))


def test_a_lost_file_is_forgotten_once_and_not_when_somebody_replaced_it() -> None:
    table = a_table()
    live = LiveFiles.latest(table.store)
    key = next(iter(live.buckets()))
    file = live.files(key)[0]
    path = table.store.file_path(key.partition, key.bucket, file)
    body = table.store.io.read_bytes(path)
    table.store.io.delete(path)
    lost = lost_files(table.store)
    assert [(each.key, each.path) for each in lost.files] == [(key, path)]
    table.store.io.replace(path, body)  # somebody brings it back, and it is merged with others
    table.write(rows(*((each, each) for each in range(20))))
    table.compact(full=True)
    latest_id, rows_now = table.store.snapshots.latest_id(), content(table)
    remove_lost_files(table.store, lost)  # it is not in the table any more
    assert (table.store.snapshots.latest_id(), content(table)) == (latest_id, rows_now)
    live = LiveFiles.latest(table.store)
    table.store.io.delete(table.store.file_path(key.partition, key.bucket, live.files(key)[0]))
    lost = lost_files(table.store)
    done = remove_lost_files(table.store, lost)
    assert lost_files(table.store).files == ()
    assert remove_lost_files(table.store, lost).snapshot == done.snapshot
    check_metadata_of_newest(table)


def check_metadata_of_newest(table: FileTable) -> None:
    latest = table.store.snapshots.latest()
    assert latest is not None
    live = LiveFiles(table.store, latest)
    assert latest.total_record_count == sum(file.row_count for key in live.buckets() for file in live.files(key))


@pytest.mark.sweep
def test_a_restore_of_a_tag_that_is_deleted_meanwhile_is_complete_or_changes_nothing() -> None:
    before = a_table()
    create_tag(before.store, "old", snapshot_id=1)
    expire_all_but(before, 1)
    refused = 0
    for nth in range(1, 200):
        table = copied(before)
        wanted = table.store.snapshots.tag("old")
        deleting = Nth(table.store.io, 0, lambda table=table: delete_tag(table.store, "old"))  # type: ignore[misc]
        again = reopened(table, deleting)  # type: ignore[arg-type]
        deleting.left = nth
        try:
            restore(again.store, wanted)
        except SnapshotExpiredError:
            refused += 1
            assert content(reopened(table, table.store.io)) == NEW
        else:
            assert content(reopened(table, table.store.io)) == OLD
        if deleting.left > 0:
            break
    assert refused > 0
    assert deleting.left > 0


PARTS = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)


def in_each(parts: range, v: int, *, key: int = 1) -> pa.Table:
    """One row in each of the partitions."""
    return pa.table({"p": [*parts], "id": [key] * len(parts), "v": [v] * len(parts)}, schema=PARTS)


def compacted_in_one(table: FileTable) -> None:
    table.write(in_each(range(1), 5))
    table.compact(full=True)


def written_to_all(table: FileTable) -> None:
    table.write(in_each(range(2), 7, key=7))


def written_to_a_new_one(table: FileTable) -> None:
    table.write(in_each(range(3), 7, key=7))


def overwritten_whole(table: FileTable) -> None:
    table.overwrite(in_each(range(2), 7, key=7), {})


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("key", [("p", "id"), ()], ids=["keyed", "append"])
@pytest.mark.parametrize("other", [written_to_all, written_to_a_new_one, compacted_in_one, overwritten_whole])
def test_what_another_writer_commits_beside_a_restore_comes_whole_or_goes_whole(
    other: Callable[[FileTable], object], key: tuple[str, ...]
) -> None:
    """Partitions that were as wanted when the restore began may have other rows when it commits."""
    before = key_table(
        schema=PARTS, primary_key=key, partition_by=("p",), bucket="1", **({} if key else {"bucket-key": "id"})
    )
    before.write(in_each(range(2), 1))
    before.write(in_each(range(1), 2))  # so only one partition differs
    wanted = before.store.snapshots.read(1)
    then = sorted_rows(before, "p", "id", "v", snapshot_id=1)
    beside = copied(before)
    restore(beside.store, wanted)
    other(beside)
    later = sorted_rows(beside, "p", "id", "v")
    ends = set()
    for nth in range(1, 1000):
        table = copied(before)
        hook = Nth(table.store.io, 0, lambda table=table: other(table))  # type: ignore[misc]
        mine = reopened(table, hook)  # type: ignore[arg-type]
        hook.left = nth
        done, partitions = restore(mine.store, wanted)
        found = sorted_rows(reopened(table, table.store.io), "p", "id", "v")
        assert found in (then, later), nth
        assert done.snapshot is not None
        assert set(table.store.partition_values(each)[0] for each in partitions) >= {0}
        ends.add(str(found))
        check_orphans_go(table)
        if hook.left > 0:
            break
    assert hook.left > 0
    assert ends == {str(then)} | {str(later)}
