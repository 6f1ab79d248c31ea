"""The tail of a log without the records of what bypassed it, which the files have: see ``log.overwrite``.

Such records are the last of their bucket until a snapshot knows them, because no batch is written before.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from engine.log.table_log import TableLog
from filestore.changelog.log_gap import is_sync, is_sync_user, log_gap
from filestore.snapshot.change_tracking import offsets_before
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError

_MOST_SNAPSHOTS: Final = 100


def without_bypassed(
    store: TableStore, log: TableLog, snapshot: Snapshot | None, ranges: Sequence[LogRange]
) -> tuple[LogRange, ...]:
    """Ranges of a log behind a snapshot that have only batches.

    Args:
        store: the table.
        log: its log.
        snapshot: the ranges begin at its offsets.
        ranges: non-empty, one per bucket.

    Returns:
        Non-empty ranges, by bucket.

    Raises:
        InvalidInputError: a range of a table without a key has such records between batches.
        CorruptDataError: another producer writes to the topic.
        UnavailableError: the brokers do not answer.
    """
    if snapshot is None or not ranges or log_gap(store, snapshot) is None:
        return tuple(ranges)
    known = _known(store, snapshot)
    found = []
    for each in ranges:
        start, end = _pending(log, each) if known is None else known.get(each.bucket, (each.end_offset, 0))
        if start >= each.end_offset or end <= each.start_offset:
            found.append(each)
        elif each.end_offset <= end:
            if start > each.start_offset:
                found.append(LogRange(bucket=each.bucket, start_offset=each.start_offset, end_offset=start))
        elif log.key_names:
            found.append(each)  # rows that the files have replace themselves
        else:
            raise InvalidInputError(
                f"the log has changes of an overwrite between these offsets: table={store.name} bucket={each.bucket} "
                f"range={each.start_offset}..{each.end_offset} changes={start}..{end} "
                "fix='ask for offsets of one snapshot, or for a snapshot'"
            )
    return tuple(found)


def _known(store: TableStore, snapshot: Snapshot) -> Mapping[int, tuple[int, int]] | None:
    """The records by bucket, if a later snapshot has them; None: there is none."""
    latest_id = store.snapshots.latest_id() or 0
    for snapshot_id in range(snapshot.id + 1, min(latest_id, snapshot.id + _MOST_SNAPSHOTS) + 1):
        found = store.snapshots.find(snapshot_id)
        if found is not None and is_sync(found):
            starts = offsets_before(found, found.log_offsets)
            return {bucket: (start, found.log_offsets[bucket]) for bucket, start in starts.items()}
    return None


def _pending(log: TableLog, log_range: LogRange) -> tuple[int, int]:
    """The records at the end of a bucket that no snapshot has yet; empty if that is a batch."""
    marker = log.tail(log_range.bucket).marker
    if marker is None or not is_sync_user(marker.query):
        return log_range.end_offset, 0
    # the range may end behind the commit marker
    return marker.start_offset, max(marker.end_offset, log_range.end_offset)
