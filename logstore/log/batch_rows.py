"""Which records of a bucket are rows of the table's batches: all others are left out. Decides alone.

Who may write to a topic can put records among a table's. A batch ends with its marker, which has the number of the
batch's rows, and where the log ended when its writer began: what lies between that end and its first row is another
program's. What lies before that end the table knew: batches, and what another engine wrote and a snapshot has. So a
marker decides on everything before it; a record behind the last marker is undecided until the next one is seen.

Where compaction of the topic has removed a marker, the rows of its batch are before the end that the next marker has,
and are kept.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException, Message
from numpy.typing import NDArray

from logstore.log.control_record import header_of
from logstore.log.marker import CommitMarker, decode_marker
from logstore.log.marker_key import MarkerKey
from lsm.errors import CorruptDataError

OffsetRun = tuple[int, int]
"""Offsets: the first, and the one behind the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decision about a bucket up to an offset."""

    end_offset: int  # every record before it is decided
    strangers: OffsetRun  # those of them that are no rows of the table; may be empty


def own_marker(
    header: bytes | None, offset: int, *, bucket: int, table_id: str, key: MarkerKey | None
) -> CommitMarker | None:
    """The marker that a table's writer put into the header of the record at an offset; None: it is no such marker.

    Args:
        header: of the record.
        offset: of the record.
        bucket: of the record.
        table_id: the table.
        key: of its log; None: it has none. If this user may not read its secret, any signature is taken.
    """
    if header is None or (key is not None and key.secret is not None and not key.has_signed(header, bucket)):
        return None
    try:
        marker = decode_marker(header, record_offset=offset)
    except CorruptDataError:
        return None
    is_of_time_of_key = key is None or marker.after is not None
    return marker if marker.table_id in (None, table_id) and is_of_time_of_key else None


def is_copy(marker: CommitMarker, last: CommitMarker | None) -> bool:
    """Whether a marker is older than the last one: a marker of an earlier format can be copied to later offsets."""
    if marker.after is None or last is None:
        return False
    return marker.after < last.end_offset and not _is_next_chunk(marker, last)


def decided_by(marker: CommitMarker, last: CommitMarker | None = None) -> Decided:
    """The decision that a marker brings; ``last``: the one before it, if it was seen."""
    first = _first_row(marker, last)
    known = 0 if marker.after is None else marker.after
    return Decided(
        end_offset=marker.end_offset, strangers=(min(first, max(known, 0 if last is None else last.end_offset)), first)
    )


def decided_ahead(
    offset: int,
    *,
    end: int | None,
    markers: Callable[[int, int], Iterator[CommitMarker | None]],
    log_end: Callable[[], int],
) -> Decided:
    """The decision about a record, and later ones without a marker, from the records that follow.

    Args:
        offset: offset of the record.
        end: end of the first later batch that a snapshot has; None: no snapshot has one.
        markers: of the records between two offsets that have a header, in order; None: it is no marker of the table.
        log_end: the end of the bucket.
    """
    if end is not None:
        marker = next(markers(end - 1, end), None)
        if marker is not None and (marker.after is None or marker.after <= offset):
            return decided_by(marker)
    until = max(offset + 1, log_end()) if end is None else end
    marker = next(filter(None, markers(offset, until)), None)  # a snapshot has expired, or a batch has died
    if marker is not None:
        return decided_by(marker)
    # what a snapshot has is another engine's, or compaction of the topic has removed the marker
    return Decided(end_offset=until, strangers=(offset if end is None else until, until))


def _first_row(marker: CommitMarker, last: CommitMarker | None) -> int:
    """Offset of the first row that one transaction wrote before its marker."""
    first = marker.end_offset - marker.row_count
    if marker.start_offset == first:
        return first  # the whole batch, or its first chunk
    return first + last.row_count if last is not None and _is_next_chunk(marker, last) else marker.start_offset


def _is_next_chunk(marker: CommitMarker, last: CommitMarker) -> bool:
    return not last.is_final and last.start_offset == marker.start_offset and last.row_count < marker.row_count


class BatchRows:
    """Leaves out what is not the table's, of one range of a bucket. It holds at most two batches that are undecided."""

    def __init__(
        self, *, marker_at: Callable[[bytes | None, int], CommitMarker | None], look_ahead: Callable[[int], Decided]
    ) -> None:
        """Make a filter that has read nothing yet.

        Args:
            marker_at: the table's marker in the header of the record at an offset, see ``own_marker``.
            look_ahead: decides about the record at an offset, and about later ones, from the records that follow.
        """
        self._marker_at, self._look_ahead = marker_at, look_ahead
        self._end = 0  # every record before it is decided
        self._strangers: deque[OffsetRun] = deque()
        self._last: CommitMarker | None = None
        self.left_out = 0  # records

    def watched(self, records: Iterable[list[Any]]) -> Iterator[list[Any]]:
        """Pass messages through in the order of the log, and note their markers."""
        for messages in records:
            self._look_at(messages)
            yield messages

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the table, and control records, of batches of messages that were watched.

        Args:
            batches: with ``offset``.

        Raises: KafkaException of ``batches``, once all that came before it is decided and returned.
        """
        held: deque[pa.RecordBatch] = deque()
        failure = None
        try:
            for batch in batches:
                held.append(batch)
                yield from self._decided(held)
                if len(held) > 1:
                    self._decide_first(held)
                    yield from self._decided(held)
        except KafkaException as error:
            failure = error
        while held:
            self._decide_first(held)
            yield from self._decided(held)
        if failure is not None:
            raise failure

    def _look_at(self, messages: list[Any]) -> None:
        if messages[-1].offset() < self._end:
            return
        headers = [*map(Message.headers, messages)]
        if not any(headers):
            return
        for message, found in zip(messages, headers, strict=True):
            marker = self._marker_at(header_of(message), message.offset()) if found else None
            if marker is not None and not is_copy(marker, self._last):
                if marker.end_offset > self._end:
                    self._decide(decided_by(marker, self._last))
                self._last = marker

    def _decide_first(self, held: deque[pa.RecordBatch]) -> None:
        self._decide(self._look_ahead(held[0]["offset"][0].as_py()))

    def _decide(self, known: Decided) -> None:
        first, behind = max(self._end, known.strangers[0]), known.strangers[1]
        if first < behind:
            self._strangers.append((first, behind))
        self._end = max(self._end, known.end_offset)

    def _decided(self, held: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while held and held[0]["offset"][0].as_py() < self._end:
            batch = held.popleft()
            offsets = batch["offset"].to_numpy()
            if offsets[-1] >= self._end:
                place = int(np.searchsorted(offsets, self._end))
                held.appendleft(batch.slice(place))
                batch, offsets = batch.slice(0, place), offsets[:place]
            rows = self._rows_of(batch, offsets)
            if rows.num_rows:
                yield rows

    def _rows_of(self, batch: pa.RecordBatch, offsets: NDArray[np.int64]) -> pa.RecordBatch:
        while self._strangers and self._strangers[0][1] <= offsets[0]:
            self._strangers.popleft()
        runs = [run for run in self._strangers if run[0] <= offsets[-1]]
        if not runs:
            return batch
        is_row = ~np.logical_or.reduce([(offsets >= start) & (offsets < stop) for start, stop in runs])
        self.left_out += int(np.count_nonzero(~is_row))
        return batch.filter(pa.array(is_row))
