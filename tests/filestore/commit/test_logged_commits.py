"""What others adopted from the log is not committed again, also when the snapshots in which they did so expired."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from lsm.errors import ConflictError
from tests.support.tables import committable_of, content, key_table, rows

ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def logged(table: FileTable, ends: Mapping[int, int], made: Committable) -> Committable:
    """The commit of a batch whose records end at these offsets."""
    return replace(made, log_offsets=dict(ends), log_ends=dict(ends), base=None)


def adopted_and_expired() -> tuple[FileTable, Committable]:
    """A job's batch that another writer has published, as its first, and that nothing but offsets shows."""
    table = key_table(bucket="1")
    job = logged(table, {0: 5}, committable_of(table, BATCH_IDENTIFIER, rows((1, 1))))
    table.new_commit("job").commit(job)
    later = logged(table, {0: 9}, committable_of(table, BATCH_IDENTIFIER, rows((1, 2))))
    table.new_commit("other").commit(later)
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    return table, job


def test_a_commit_that_the_offsets_of_the_table_are_beyond_is_committed_already() -> None:
    table, job = adopted_and_expired()
    before = table.store.snapshots.latest_id()
    assert table.new_commit("job").commit(job).already_committed
    assert table.store.snapshots.latest_id() == before
    assert content(table) == {1: 2}


def test_records_behind_the_offsets_of_the_table_are_committed() -> None:
    table, _ = adopted_and_expired()
    made = logged(table, {0: 10}, committable_of(table, BATCH_IDENTIFIER, rows((1, 3))))
    assert not table.new_commit("next").commit(made).already_committed
    assert content(table) == {1: 3}


def test_a_commit_of_which_a_part_is_published_is_refused() -> None:
    table, job = adopted_and_expired()
    part = replace(job, log_ends={0: 5, 1: 3}, log_offsets={0: 9, 1: 3})
    with pytest.raises(ConflictError, match=r"published a part of the commit: .* buckets=\[0\]: commit the other"):
        table.new_commit("job").commit(part)
    assert content(table) == {1: 2}
