"""``Table.stream``: the changes of a table for a Python program: a snapshot, then the log from exactly its offsets.

Planning is that of Spark's stream (``engine.stream``): the same starts, the same hand-over, the same order, the same
answer to lost data. Nothing is read before the program asks for it, so a slow program slows down its stream alone.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from engine.follow.choices import FollowRequest, StartPlace
from engine.follow.position import FollowPosition
from engine.follow.reading import BatchReading
from engine.log.retention import OffsetLostError
from engine.stream.partitions import partitions_of
from engine.stream.position.position import Position
from engine.stream.rows import ChangePiece, LogPiece, SnapshotPiece, StreamPiece, StreamRows
from engine.stream.watch import TableWatch
from filestore.io.object_store import is_remote_path
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.log.kept_consumers import KeptConsumers
from lsm.errors import CorruptDataError
from lsm.retry import pauses

_FIRST_LOOK_S: Final = 0.003  # after the newest change
_LONGEST_S: Final = 0.015  # between two looks at a table on a disk
_LONGEST_REMOTE_S: Final = 0.5  # where each look is a request that costs
_EVENTUAL_LOOK_S: Final = 0.02  # at the end of the log, a request
_FULL_LOOK_S: Final = 1.0  # also without a new snapshot: was the table rolled back?


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedChanges:
    """Rows of a stream in the order of their changes; of a whole snapshot in any order."""

    rows: pa.RecordBatch  # (n,) the wanted columns, then _row_kind: +I -U +U -D; n may be 0
    position: FollowPosition  # after these rows: keep it with what you made of them
    is_complete: bool  # the position is one of the table: all that belongs together has come

    @property
    def kinds(self) -> pa.Array:
        """(n,) ``+I -U +U -D`` texts."""
        return self.rows.column(self.rows.num_columns - 1)


class TableStream(Iterator[StreamedChanges], AsyncIterator[StreamedChanges]):
    """Iterate it, or use ``async for``; ``stop`` may be called from anywhere. Close it, or use ``with``."""

    def __init__(self, request: FollowRequest) -> None:
        """Made by ``Table.stream``, which begins here; no row is read yet."""
        self._options = options = request.stream
        self._request = request
        self.start: StartPlace = request.start
        self._rows = StreamRows.of(options)
        self._reading = request.reading
        self.stopped = threading.Event()  # set: the iteration ends
        self._is_eventual = options.log is not None and options.log.is_eventual and not options.waits_for_commits
        self._kept = KeptConsumers(waits_for_end=self._is_eventual)
        self._looks_again_s = _LONGEST_REMOTE_S if is_remote_path(options.table.store.paths.root) else _LONGEST_S
        self._found_s = time.monotonic()  # when something came last
        self._until_s = None if request.timeout_s is None else self._found_s + request.timeout_s
        self.current_id = 0  # newest snapshot of which everything was delivered, at the last look
        self.current_s = float("-inf")  # when nothing was left to deliver; by the monotonic clock
        self._watch = TableWatch(options)
        if not request.follow:
            self._watch.stop_at_now()
        self._begin = self._watch.with_commit(self._watch.begin()) if request.position is None else request.position.at
        self._watch.record_start(self._begin)
        self._run = self._changes()

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the wanted columns, then ``_row_kind``."""
        return self._request.stream.schema

    def stop(self) -> None:
        """End the iteration after the rows that are being delivered; from any thread, or a signal handler."""
        self.stopped.set()

    def close(self) -> None:
        """Stop, and close connections. Not while another thread iterates: call ``stop`` for that."""
        self.stop()
        self._run.close()
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __iter__(self) -> "TableStream":
        return self

    def __next__(self) -> StreamedChanges:
        """The next rows; waits for them.

        Raises:
            ConflictError: another program uses the stream's consumer.
            CorruptDataError: needed data is lost, and ``log.on-offset-lost`` does not say how to continue.
            InvalidInputError: there is no such start; the table's schema changed in a way that cannot be followed.
            UnavailableError: the brokers do not answer. Begin again at the last position.
        """
        return next(self._run)

    def __aiter__(self) -> "TableStream":
        return self

    async def __anext__(self) -> StreamedChanges:
        """As ``__next__``, in a thread; a cancelled task ends the stream."""
        step = asyncio.ensure_future(asyncio.to_thread(next, self._run, None))
        try:
            found = await asyncio.shield(step)
        except asyncio.CancelledError:
            self.stop()
            with suppress(asyncio.CancelledError):
                await step  # the thread ends soon, and the stream can be closed then
            raise
        if found is None:
            raise StopAsyncIteration
        return found

    # ---- the stream

    def _changes(self) -> Generator[StreamedChanges]:
        watch, given = self._watch, self._request.position
        here = watch.pinned(self._begin)
        if given is None:
            yield self._at(here)  # a program that ends now continues here, not at a later start
        if given is not None and given.to is not None:
            here = yield from self._batch(watch, here, given.to, given)
            watch.record_progress(here)
        while not self._is_over():
            end = watch.next(here)
            if end == here:
                self.current_id, self.current_s = watch.newest_id, time.monotonic()
                watch.keep_alive(here)
                if watch.is_bounded or not self._wait_for_more(watch):
                    return
                continue
            here = yield from self._batch(watch, here, end)
            self._found_s = time.monotonic()
            watch.record_progress(here)

    def _at(self, here: Position) -> StreamedChanges:
        return StreamedChanges(
            rows=pa.RecordBatch.from_pylist([], schema=self.schema), position=FollowPosition(at=here), is_complete=True
        )

    def _batch(
        self, watch: TableWatch, start: Position, end: Position, given: FollowPosition | None = None
    ) -> Generator[StreamedChanges, None, Position]:
        """Deliver what lies between two positions, or the rest behind a given one; returns the position behind it."""
        count = skipped = 0 if given is None else given.row_count
        waiting: pa.RecordBatch | None = None
        reading, read = self._reading, self._rows
        try:
            view = watch.check_history(end)
            steps = watch.planned_steps(start, end)
            before = None if given is None else given.reading
            tracking = watch.newest_schema if before is None else before.tracking(self._options.table)
            reading = reading.of_batch(steps, tracking.id)
            if before is not None:
                reading, read = before.repeated(reading, read)
            base_of = view.history.base_of if self._options.normalizes else None
            parts = partitions_of(steps, view.history, view.table_log, base_of, tracking)
            pieces = [piece for part in parts for piece in part if self._is_wanted(piece)]
            for rows in self._sized(read.read(pieces, self._kept), skipped):
                if waiting is not None:
                    count += waiting.num_rows
                    yield self._within(start, end, waiting, count, reading)
                    watch.keep_alive(start)
                waiting = rows
        except (OffsetLostError, SnapshotExpiredError) as loss:
            if waiting is not None:
                count += waiting.num_rows
                yield self._within(start, end, waiting, count, reading)
            there = watch.continued(start, loss, is_between=count > 0)
            yield self._at(there.place)
            return there.place
        if waiting is None:
            yield self._at(end.place)
        else:
            yield StreamedChanges(rows=waiting, position=FollowPosition(at=end.place), is_complete=True)
        return end.place

    def _within(
        self, start: Position, end: Position, rows: pa.RecordBatch, count: int, reading: BatchReading
    ) -> StreamedChanges:
        position = FollowPosition(at=start.place, to=end, row_count=count, reading=reading)
        return StreamedChanges(rows=rows, position=position, is_complete=False)

    def _sized(self, batches: Iterator[pa.RecordBatch], skipped: int) -> Iterator[pa.RecordBatch]:
        """Batches without the first rows, none longer than asked for.

        Raises: CorruptDataError: there are fewer rows than were delivered before.
        """
        left = skipped
        for rows in batches:
            if left >= rows.num_rows:
                left -= rows.num_rows
                continue
            rows, left = rows.slice(left), 0
            size = self._request.max_rows or rows.num_rows
            for first in range(0, rows.num_rows, size):
                yield rows.slice(first, size)
        if left:
            raise CorruptDataError(
                f"a batch has fewer rows than were delivered of it: table={self._options.table.name} "
                f'delivered={skipped} found={skipped - left} fix=start with the position\'s part "at", or at a snapshot'
            )

    def _is_wanted(self, piece: StreamPiece) -> bool:
        index, count = self._request.share
        match piece:
            case SnapshotPiece() | ChangePiece():
                bucket = piece.split.bucket
            case LogPiece():
                bucket = piece.log_range.bucket
        return max(bucket, 0) % count == index

    def _is_over(self) -> bool:
        return self.stopped.is_set() or (self._until_s is not None and time.monotonic() >= self._until_s)

    def _wait_for_more(self, watch: TableWatch) -> bool:
        """Wait until the table may have changed; False: the stream ends."""
        looks_s = pauses(_EVENTUAL_LOOK_S if self._is_eventual else _FIRST_LOOK_S, self._looks_again_s)
        full_s = time.monotonic() + _FULL_LOOK_S
        idle_s = self._request.idle_s
        while True:
            now_s = time.monotonic()
            if self._is_over() or (idle_s is not None and now_s - self._found_s >= idle_s):
                return False
            if self.stopped.wait(next(looks_s)):
                return False
            if now_s >= full_s or watch.has_news():
                return True
            self.current_s = now_s
