"""A range of a table's log without what is not the table's; and what retention has removed of it.

The first offset in the log is looked at by planners, and again by tasks when the broker refuses an offset, because
retention continues. What lay in the gap is in no case known to the broker: snapshots and markers show it. They also
show which records are rows of the table's batches, see ``batch_rows``.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final

import pyarrow as pa

from engine.log.table_log import TableLog
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, carried_offsets, with_befores
from filestore.table_store import TableStore
from logstore.log.batch_rows import BatchRows, Decided, decided_ahead, own_marker
from logstore.log.kept_consumers import RangeConsumers
from logstore.log.log_reader import MARKER, RecordsLostError, read_range
from logstore.log.marker import CommitMarker, read_marker, read_tail
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError

# ---- Decides whether a gap in a bucket's offsets, whose records were removed, contained rows of the table. Pure
#
# Commit markers, aborted rows, their abort markers, and records of other programs take offsets too. So a reader whose
# next record was removed has lost data only if the gap contained a committed row:
#
# * The end of a batch, which snapshots record, has the batch's last row directly before it, its commit marker at it.
# * A writer begins a batch when every earlier one is in a snapshot. So in transactional mode the first batch behind a
#   position ends at the next snapshot's offset; or it is the only one that no snapshot has yet, the last of the log.
#   Its marker has its start. A batch that retention removed before its commit counts as aborted: it is written again.
# * In eventual mode there are visible rows of batches that no snapshot has, any number of them: only the commit marker
#   behind a snapshot's offset is known to be no row.


class GapContent(Enum):
    """The content of a gap."""

    NOTHING = "nothing"
    ROWS = "rows"
    NOT_WHOLE_HISTORY = "not-whole-history"  # not known: the snapshots that would show it have expired
    NOT_IN_SNAPSHOTS = "not-in-snapshots"  # not known: rows are visible before a snapshot has them
    NOT_IN_LOG = "not-in-log"  # not known: the batch behind the gap is gone as well, with its start


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEnds:
    """The ends of batches around a position, by the table's snapshots."""

    before: int | None  # the last one at or before the position; 0: none; None: its snapshots have expired
    behind: int | None  # the first one behind the position; None: none

    @classmethod
    def around(cls, position: int, newest_first: Iterable[int]) -> "BatchEnds":
        """The ends around a position.

        Args:
            position: next offset of a reader.
            newest_first: a bucket's offsets in the snapshots; 0 at last if no snapshot has expired. Consumed lazily.
        """
        behind = None
        for end in newest_first:
            if end <= position:
                return cls(before=end, behind=behind)
            behind = end
        return cls(before=None, behind=behind)


def gap_content(
    position: int, until: int, *, ends: BatchEnds, batch_start: int | None, is_eventual: bool
) -> GapContent:
    """The content of ``[position, until)`` of a bucket's log.

    Args:
        position: next offset of a reader.
        until: end of the gap, exclusive.
        ends: of the batches around the position.
        batch_start: the first offset of the first batch behind the position, by its marker: the batch that ends at
            ``ends.behind``, or else the last one of the log. None: its marker was removed, or there is no batch.
        is_eventual: rows are visible before a snapshot has them.
    """
    if until <= position:
        return GapContent.NOTHING
    if ends.behind is not None and ends.behind <= until:
        return GapContent.ROWS
    if 0 < position == ends.before == until - 1:
        return GapContent.NOTHING  # the commit marker
    if is_eventual:
        return GapContent.NOT_IN_SNAPSHOTS
    if batch_start is not None and batch_start < until:
        return GapContent.ROWS
    if ends.before is None:
        return GapContent.NOT_WHOLE_HISTORY
    if ends.behind is not None and batch_start is None:
        return GapContent.NOT_IN_LOG
    return GapContent.NOTHING


# ---- A range of a table's log without what is not the table's; and what retention has removed of it


logger = logging.getLogger("fluvial.log")

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
    """The committed records of a range in offset order, as ``read_range`` returns them.

    Records that retention removed are skipped if no row was among them. In a log with a key, records of other programs
    are skipped too. ``kept`` are the consumers of a reader that follows the log.

    Raises:
        OffsetLostError: rows are lost, or may be.
        CorruptDataError: the log is shorter than before, or the topic was deleted.
        UnavailableError: no progress in time.
    """
    rows = None if log.key is None else _batch_rows(store, log, wanted.bucket)
    while True:
        try:
            yield from read_range(
                log.properties, topic=log.topic, log_range=wanted, columns=columns, kept=kept, rows=rows
            )
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
            break
    if rows is not None and rows.left_out:
        logger.warning(
            "records of other programs in the log are left out: table=%s topic=%s bucket=%d range=%d..%d records=%d "
            "fix='fluvial verify --rows counts them; let only writers of the table write to the topic'",
            store.name, log.topic, wanted.bucket, wanted.start_offset, wanted.end_offset, rows.left_out,
        )  # fmt: skip


def end_of_batches(log: TableLog, bucket: int, start: int, end: int) -> int:
    """The end of the last batch, or chunk of one, between two offsets of a bucket; ``start``: there is none.

    Of a log without a key nothing is known: that is ``end``. Raises: UnavailableError: no progress in time.
    """
    if log.key is None or end - start <= 1:
        return end
    with suppress(CorruptDataError):  # the last record is no batch's
        tail = replace(log, key=None if log.key.secret is None else log.key).tail(bucket)
        if not tail.is_foreign:
            return end
    return max((each.end_offset for each in _markers(log, bucket, start, end) if each is not None), default=start)


def _markers(log: TableLog, bucket: int, start: int, end: int) -> Iterator[CommitMarker | None]:
    """The markers of records with a header between two offsets, in order; None: it is no marker of the table."""
    wanted = LogRange(bucket=bucket, start_offset=start, end_offset=end)
    for records in read_range(
        log.properties, topic=log.topic, log_range=wanted, columns=("offset", MARKER.name), is_one=end - start == 1
    ):
        found = records.filter(records[MARKER.name].is_valid())
        for header, offset in zip(found[MARKER.name].to_pylist(), found["offset"].to_pylist(), strict=True):
            yield own_marker(header, offset, bucket=bucket, table_id=log.table_id, key=log.key)


def _batch_rows(store: TableStore, log: TableLog, bucket: int) -> BatchRows:
    def look_ahead(offset: int) -> Decided:
        end = _end_behind(store, bucket, log.generation, offset)
        markers = partial(_markers, log, bucket)
        try:
            return decided_ahead(offset, end=end, markers=markers, log_end=lambda: log.end_offsets()[bucket])
        except RecordsLostError as lost:
            return Decided(end_offset=max(offset + 1, lost.earliest_offset), strangers=(0, 0))

    return BatchRows(
        marker_at=partial(own_marker, bucket=bucket, table_id=log.table_id, key=log.key), look_ahead=look_ahead
    )


def _end_behind(store: TableStore, bucket: int, generation: int, offset: int) -> int | None:
    """The end of the first batch behind an offset, by the snapshots that are left; None: none has one."""
    snapshots = store.snapshots

    def end_at(snapshot_id: int) -> int:
        found = carried_offsets(snapshots.back_from(snapshots.find(snapshot_id)), generation)
        return (found or {}).get(bucket, 0)

    last, first = snapshots.latest_id(), snapshots.earliest_id()
    if last is None or first is None or end_at(last) <= offset:
        return None
    step = 1
    while last - step >= first and end_at(last - step) > offset:  # what readers ask for is mostly new
        last, step = last - step, step * 2
    before = range(max(first, last - step), last)
    return end_at([*before, last][bisect_right(before, offset, key=end_at)])


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
