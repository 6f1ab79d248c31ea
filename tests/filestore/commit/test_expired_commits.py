"""A writer that was away for longer than its snapshots were kept knows what it committed."""

import pytest

from filestore.commit.expired_commits import ExpiredCommits
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from lsm.errors import CorruptDataError
from tests.support.tables import committable_of, content, key_table, rows

ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def expired_table() -> FileTable:
    """``query/1`` committed batches 4 and 5, then others wrote, and all but the newest snapshot expired."""
    table = key_table(bucket="1")
    for batch in (4, 5):
        table.new_commit("query/1").commit(committable_of(table, batch, rows((batch, batch))))
    table.write(rows((1, 1)))
    table.compact(full=True)
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    return table


def test_a_batch_whose_snapshot_expired_is_not_committed_again() -> None:
    """FL-72: identifiers of one writer rise, so all up to the newest are done."""
    table = expired_table()
    latest_id = table.store.snapshots.latest_id()
    commit = table.new_commit("query/1")
    assert commit.filter_committed([3, 4, 5, 6]) == [6]
    for batch in (4, 5):
        done = commit.commit(committable_of(table, batch, rows((batch, 99))))
        assert done.already_committed
    assert table.store.snapshots.latest_id() == latest_id
    assert not commit.commit(committable_of(table, 6, rows((6, 6)))).already_committed
    assert content(table) == {1: 1, 4: 4, 5: 5, 6: 6}
    assert table.new_commit("query/2").filter_committed([5]) == [5]


def test_only_a_writer_without_snapshots_has_a_note() -> None:
    table = key_table(bucket="1")
    for batch in range(4):
        table.new_commit("alive").commit(committable_of(table, batch, rows((batch, batch))))
    list(expire_snapshots(table.store, ALL_BUT_ONE, dry_run=True))
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert ExpiredCommits(table.store).newest("alive") is None
    table.write(rows((9, 9)))  # a batch job: its user never comes back
    table.write(rows((9, 9)))
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert ExpiredCommits(table.store).newest("alive") == 3
    assert table.store.io.list_names("/warehouse/db.db/t/expired-commits") == [f"alive.{table.store.life()[-8:]}"]


def test_a_note_that_cannot_be_read_is_named() -> None:
    table = expired_table()
    table.store.io.replace(f"/warehouse/db.db/t/expired-commits/query%2F1.{table.store.life()[-8:]}", b"{}")
    with pytest.raises(CorruptDataError, match=r"note of a writer cannot be decoded: file=.*query%2F1"):
        table.new_commit("query/1").find_committed(5)
