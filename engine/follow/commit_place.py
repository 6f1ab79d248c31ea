"""What the table and its log know of a writer's numbers: the newest that is committed, and one that is half done."""

from engine.log.bucket_log import check_not_ahead
from engine.log.table_log import TableLog
from filestore.commit.expired_commits import ExpiredCommits
from filestore.commit.history import CommitHistory
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore


def last_number(store: TableStore, name: str) -> int:
    """The newest committed number of a writer; 0: none. Those of expired snapshots count."""
    newest = CommitHistory(store, name).newest(store.snapshots.latest())
    if newest is not None:
        return int(newest.commit_identifier)
    return ExpiredCommits(store).newest(name) or 0


def half_done_number(table: FileTable, name: str, last: int) -> int:
    """The number of a writer's commit that is in the log of some buckets and in no snapshot; 0: there is none.

    Its other buckets need the same rows: so exactly the writes up to this number have to come again.

    Args:
        table: opened.
        name: of the writer.
        last: its newest committed number.

    Raises:
        CorruptDataError: the last record is another program's, and in no snapshot.
        UnavailableError: the brokers do not answer.
    """
    log = TableLog.of(table)
    if log is None:
        return 0
    found, known = 0, table.store.log_offsets_at(table.store.snapshots.latest()) or {}
    for bucket, end in log.end_offsets().items():
        if end > log.first_offset:
            tail = log.tail(bucket)
            check_not_ahead(log, tail, known.get(bucket, 0))
            marker = tail.marker
            if marker is not None and marker.is_final and marker.query == name and marker.batch > last:
                found = max(found, marker.batch)
    return found


def committed_snapshot(store: TableStore, name: str, number: int) -> Snapshot | None:
    """The snapshot that has a number's rows, or proves it; None: it is not committed."""
    return CommitHistory(store, name).find(store.snapshots.latest(), number)
