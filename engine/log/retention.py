"""What retention has removed of a table's log: rows that a reader needs, or only what lies between them.

The first offset in the log is looked at by planners, and again by tasks when the broker refuses an offset, because
retention continues. What lay in the gap is in no case known to the broker: snapshots and markers show it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from engine.log.table_log import TableLog
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, with_befores
from filestore.table_store import TableStore
from logstore.log.gap import BatchEnds, GapContent, gap_content
from logstore.log.kept_consumers import RangeConsumers
from logstore.log.log_reader import RecordsLostError, read_range
from logstore.log.marker import read_marker, read_tail
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError

_CAUSES: Final = {
    GapContent.ROWS: "retention removed them before they were read",
    GapContent.NOT_WHOLE_HISTORY: (
        "retention removed a part of the log, and the snapshots that would show that no row was in it have expired"
    ),
    GapContent.NOT_IN_SNAPSHOTS: (
        "retention removed a part of the log, and with log.consistency=eventual it may have held rows that no "
        "snapshot has"
    ),
    GapContent.NOT_IN_LOG: "retention removed them, and the batch behind them, which would show whether they were rows",
}


class OffsetLostError(CorruptDataError):
    """Rows that a reader still needs are no longer in the log, or may have been removed from it."""


def kept_ranges(
    store: TableStore, log: TableLog, wanted: Sequence[LogRange], *, earliest: Mapping[int, int]
) -> tuple[LogRange, ...]:
    """Ranges without what retention has removed of them, if nothing of it was a row.

    Args:
        store: the table.
        log: its log.
        wanted: what a reader needs.
        earliest: first offsets in the log by bucket, looked up before.

    Returns:
        One range for each wanted one; maybe empty.

    Raises:
        OffsetLostError: rows are lost, or may be. Names bucket, wanted and earliest offset, and the cause; no fix.
        CorruptDataError: another producer writes to the topic.
        UnavailableError: the brokers do not answer.
    """
    return tuple(_kept(store, log, each, earliest[each.bucket]) for each in wanted)


def kept_records(
    store: TableStore, log: TableLog, wanted: LogRange, *, columns: Sequence[str], kept: RangeConsumers | None = None
) -> Iterator[pa.RecordBatch]:
    """The committed records of a range in offset order, as ``read_range`` gives them; those left, if no row is lost.

    With ``kept`` by the consumers of a reader that follows the log.

    Raises:
        OffsetLostError: rows are lost, or may be.
        CorruptDataError: the log is shorter than it was, or the topic is gone.
        UnavailableError: no progress in time.
    """
    while True:
        try:
            yield from read_range(log.properties, topic=log.topic, log_range=wanted, columns=columns, kept=kept)
        except RecordsLostError as lost:
            if lost.wanted_offset >= lost.earliest_offset:
                raise  # shorter than it was
            left = LogRange(bucket=wanted.bucket, start_offset=lost.wanted_offset, end_offset=wanted.end_offset)
            try:
                wanted = _kept(store, log, left, lost.earliest_offset)
            except OffsetLostError as error:
                raise OffsetLostError(
                    f"{error} fix=start again: a read, or a stream with a new checkpoint; raise log.retention above "
                    "the longest pause of a reader"
                ) from lost
        else:
            return


def only_commit_marker(start: int, end: int) -> bool:
    """Whether nothing but a commit marker lies between a snapshot's offset and an end, so nothing has to be read."""
    ends = BatchEnds(before=start, behind=None)
    return gap_content(start, end, ends=ends, batch_start=None, is_eventual=True) is GapContent.NOTHING


def _kept(store: TableStore, log: TableLog, wanted: LogRange, earliest: int) -> LogRange:
    start, bucket = wanted.start_offset, wanted.bucket
    until = min(earliest, wanted.end_offset)
    if until <= start:
        return wanted
    # The last marker first: every batch before its own is in one of the snapshots that are read next.
    marker = (
        None
        if log.is_eventual
        else read_tail(log.properties, topic=log.topic, bucket=bucket, table_id=log.table_id).marker
    )
    ends = BatchEnds.around(start, _ends_of_batches(store, bucket, log.generation))
    if ends.behind is not None and (marker is None or marker.end_offset != ends.behind):
        is_left = ends.behind > earliest and not log.is_eventual
        marker = (
            read_marker(log.properties, topic=log.topic, bucket=bucket, end_offset=ends.behind, table_id=log.table_id)
            if is_left
            else None
        )
    content = gap_content(
        start,
        until,
        ends=ends,
        batch_start=None if marker is None else marker.start_offset,
        is_eventual=log.is_eventual,
    )
    if content is GapContent.NOTHING:
        return LogRange(bucket=bucket, start_offset=until, end_offset=wanted.end_offset)
    raise OffsetLostError(
        f"records of the log are lost: topic={log.topic} bucket={bucket} wanted_offset={start} "
        f"earliest_offset={earliest} cause={_CAUSES[content]}"
    )


def _ends_of_batches(store: TableStore, bucket: int, generation: int) -> Iterator[int]:
    """A bucket's offsets in the snapshots, newest first; 0 at last if none of this log's snapshots has expired."""
    oldest_id = FIRST_SNAPSHOT_ID
    for snapshot, look_up in with_befores(store.snapshots.back_from(store.snapshots.latest())):
        before = look_up() if snapshot.is_external else None
        if snapshot.log_offsets and snapshot.is_of_log(generation, before):  # not all engines carry them
            yield snapshot.log_offsets.get(bucket, 0)
        if snapshot.schema_id < generation:
            oldest_id = FIRST_SNAPSHOT_ID  # committed before there was this log
            break
        oldest_id = snapshot.id
    if oldest_id == FIRST_SNAPSHOT_ID:
        yield 0
