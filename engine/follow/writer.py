"""``Table.writer``: many small writes of a service as few commits, each exactly once by the writer's name and a number.

A thread commits what has come, as a query of Spark commits its micro-batches: the commit user is the name, the batch is
the highest number in it. So whatever a retry puts together, all numbers up to the newest committed one are known.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self, TypedDict

import pyarrow as pa

from engine.lineage.batch_origin import batch_origin
from engine.lineage.origins import CommitOrigin
from engine.log.bucket_log import check_not_ahead
from engine.log.table_log import TableLog
from engine.request.branch_choice import at_branch
from engine.request.commit_handle import CommitHandle
from engine.request.writer_options import TABLE_WRITE_KEYS, WriterOptions
from engine.types.rows import ROW_KIND_COLUMN, change_parts
from engine.write.session import KeepingRunner, Upkeep, WriteSession
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import ExpiredCommits
from filestore.commit.history import CommitHistory
from filestore.commit.table_commit import CommitResult
from filestore.predicate.row_rules import check_rules, refuse_broken
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import (
    CommittedError,
    FluvialError,
    InvalidInputError,
    OutcomeUnknownError,
    TakenOverError,
    UnavailableError,
)
from lsm.retry import pauses
from lsm.row_kind import ROW_KIND_SYMBOLS

# ---- Small writes that wait to be committed together, with their numbers: no clock, no thread, no table


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmallWrite:
    """Rows of one call."""

    number: int
    rows: pa.RecordBatch  # (n,) the table's columns and _row_kind
    done: Future[CommitHandle]
    since_s: float  # when it came


@dataclass(slots=True, kw_only=True)
class WriteQueue:
    """The writes of one writer in the order of their numbers. Not thread-safe."""

    last_number: int  # newest committed
    half_done: int = 0  # of an earlier run, see ``half_done_number``
    waiting: deque[SmallWrite] = field(default_factory=deque)
    row_count: int = 0
    size_bytes: int = 0
    _open: dict[int, SmallWrite] = field(default_factory=dict)  # not answered
    _refused: set[int] = field(default_factory=set)
    _highest: int = 0

    @property
    def next_number(self) -> int:
        """The number for a write that was given none."""
        return max(self._highest, self.last_number, self.half_done) + 1

    def known(self, number: int) -> SmallWrite | int | None:
        """The state of a number: its write if it is not answered yet, the number itself when it is committed.

        Raises: InvalidInputError: it was refused, or a later one came first.
        """
        if number in self._open:
            return self._open[number]
        if number in self._refused:
            raise InvalidInputError(
                f"the number was refused, and is used up: number={number} fix=give corrected rows the next number"
            )
        if number <= self.last_number:
            return number
        if number < self._highest:
            raise InvalidInputError(
                f"numbers of a writer rise: number={number} newest={self._highest} "
                "fix='write in the order of the numbers, from one place for each name'"
            )
        return None

    def add(self, write: SmallWrite) -> None:
        """Take a write whose number is not known. Raises: InvalidInputError: an earlier run's commit comes first."""
        if self.half_done and write.number > self.half_done and self.half_done not in self._open:
            raise InvalidInputError(
                f"an earlier run's commit is half done: number={write.number} half_done={self.half_done} "
                f"last_number={self.last_number} fix='write again what was not acknowledged, up to that number, first'"
            )
        self.waiting.append(write)
        self._open[write.number] = write
        self._highest = write.number
        self.row_count += write.rows.num_rows
        self.size_bytes += write.rows.nbytes

    def due_s(self, *, max_rows: int, max_bytes: int, max_delay_s: float, is_flush: bool) -> float | None:
        """When the next commit is due, by the clock of the writes; None: not before another write comes."""
        if not self.waiting:
            return None
        if self.half_done:
            return 0.0 if self.half_done in self._open else None
        if is_flush or self.row_count >= max_rows or self.size_bytes >= max_bytes:
            return 0.0
        return self.waiting[0].since_s + max_delay_s

    def take(self, *, max_rows: int, max_bytes: int) -> list[SmallWrite]:
        """The writes of the next commit: one at least, within the limits; a half done one exactly."""
        taken: list[SmallWrite] = []
        rows = size = 0
        while self.waiting:
            first = self.waiting[0]
            rows, size = rows + first.rows.num_rows, size + first.rows.nbytes
            is_full = first.number > self.half_done if self.half_done else rows > max_rows or size > max_bytes
            if taken and is_full:
                break
            taken.append(self.waiting.popleft())
            self.row_count -= first.rows.num_rows
            self.size_bytes -= first.rows.nbytes
        return taken

    def put_back(self, writes: list[SmallWrite]) -> None:
        """Writes that were taken are to be committed in another grouping."""
        self.waiting.extendleft(reversed(writes))
        self.row_count += sum(each.rows.num_rows for each in writes)
        self.size_bytes += sum(each.rows.nbytes for each in writes)

    def committed(self, writes: list[SmallWrite]) -> None:
        """Taken writes are in the table."""
        self.last_number = max(self.last_number, writes[-1].number)
        self.half_done = 0
        for each in writes:
            self._open.pop(each.number, None)

    def refused(self, write: SmallWrite) -> None:
        """A taken write cannot be committed, and nothing of it is visible."""
        self._open.pop(write.number, None)
        self._refused.add(write.number)

    def unanswered(self) -> Mapping[int, SmallWrite]:
        """All that is not answered, taken or not."""
        return dict(self._open)


# ---- What the table and its log know of a writer's numbers: the newest that is committed, and one that is half done


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


# ---- ``Table.writer``: many small writes of a service as few commits, each exactly once by the writer's name and a
# number


logger = logging.getLogger("fluvial.follow")

_AHEAD: Final = 4  # times max_bytes may wait before ``write`` waits
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 2.0


class WriterChoices(TypedDict, total=False):
    """Named arguments of ``Table.writer``; each may be left out."""

    max_rows: int  # of a commit, 100,000
    max_bytes: int  # of a commit in memory, 32 MiB; four times as much may wait
    max_delay_s: float  # a write waits so long for others, 0.1
    timeout_s: float  # a commit is tried again for so long, 60
    options: Mapping[str, str] | None  # see ``Table.write``


class TableWriter:
    """Writes from any thread, and from asyncio. Use ``with``: its end commits what waits.

    After an error that trying again did not mend the writer is broken: open it again, and write again what was not
    acknowledged.
    """

    def __init__(self, table: FileTable, name: str, choices: WriterChoices) -> None:
        """Made by ``Table.writer``."""
        options = WriterOptions.parse(choices.get("options"), TABLE_WRITE_KEYS)
        self._table, self._options = at_branch(table, options.branch), options
        self._store = self._table.store
        if not name or "\0" in name:
            raise InvalidInputError(f"a writer needs a name, which stays the same over restarts: name={name!r}")
        self._name = name
        self._limits = {"max_rows": choices.get("max_rows", 100_000), "max_bytes": choices.get("max_bytes", 32 << 20)}
        self._max_delay_s, self._timeout_s = choices.get("max_delay_s", 0.1), choices.get("timeout_s", 60.0)
        if min(self._limits.values()) < 1 or self._max_delay_s < 0:
            raise InvalidInputError(
                f"limits of a commit are positive: {self._limits} max_delay_s={self._max_delay_s} fix=raise them"
            )
        last = last_number(self._store, name)
        self._queue = WriteQueue(last_number=last, half_done=half_done_number(self._table, name, last))
        self._session: WriteSession[Sequence[pa.RecordBatch]] | None = None
        self._changed = threading.Condition()
        self._is_numbered: bool | None = None  # whether the caller gives numbers
        self._flushes_to = 0  # everything up to this number is due
        self._is_closing = False
        self._failure: FluvialError | None = None
        self._thread = threading.Thread(target=self._run, name=f"fluvial-writer-{name}", daemon=True)
        self._thread.start()

    @property
    def last_number(self) -> int:
        """The newest committed number; 0: none. After a restart continue behind it."""
        with self._changed:
            return self._queue.last_number

    @property
    def half_done_number(self) -> int:
        """A commit that an earlier run began: write again all from ``last_number`` up to here, first. 0: there is none.

        Only where a table has a log, and the caller gives numbers.
        """
        with self._changed:
            return self._queue.half_done

    def write(self, rows: pa.Table | pa.RecordBatch, *, number: int | None = None) -> Future[CommitHandle]:
        """Give rows to the next commit; waits while too much waits already.

        Args:
            rows: the table's columns by name; nullable ones may be missing. A column ``_row_kind`` gives kinds.
            number: from 1, rising; a number that is committed is not written again. None: the writer counts, and a
                write of which the answer was lost may come twice.

        Returns: the commit's handle, once the rows are visible.

        Raises:
            InvalidInputError: a row that the table cannot hold, or a number out of order; nothing is written.
            FluvialError: the writer is broken or closed.
        """
        batch = self._checked(rows)
        with self._changed:
            self._check_open()
            if self._is_numbered is None:
                self._is_numbered = number is not None
                if number is None and self._queue.half_done:
                    self._finish_half_done()
            if self._is_numbered != (number is not None):
                raise InvalidInputError(
                    f"either all writes of a writer have numbers, or none: name={self._name} number={number}"
                )
            while self._queue.size_bytes > _AHEAD * self._limits["max_bytes"]:
                self._changed.wait()
                self._check_open()
            chosen = self._queue.next_number if number is None else number
            if not 0 < chosen < BATCH_IDENTIFIER:
                raise InvalidInputError(f"numbers of a writer begin at 1: number={chosen}")
            known = self._queue.known(chosen)
            if isinstance(known, SmallWrite):
                return known.done
            done: Future[CommitHandle] = Future()
            if known is None:
                self._queue.add(SmallWrite(number=chosen, rows=batch, done=done, since_s=time.monotonic()))
                self._changed.notify_all()
                return done
        done.set_result(self._handle(committed_snapshot(self._store, self._name, chosen)))
        return done

    async def send(self, rows: pa.Table | pa.RecordBatch, *, number: int | None = None) -> CommitHandle:
        """As ``write``, and wait until the rows are visible."""
        with self._changed:
            is_full = self._queue.size_bytes > _AHEAD * self._limits["max_bytes"]
        if is_full:
            done = await asyncio.to_thread(partial(self.write, rows, number=number))
        else:
            done = self.write(rows, number=number)
        return await asyncio.wrap_future(done)

    def flush(self) -> None:
        """Commit what waits, now. Raises: FluvialError: a write failed."""
        with self._changed:
            self._check_open()
            waiting = list(self._queue.unanswered().values())
            if waiting:
                self._flushes_to = waiting[-1].number
                self._changed.notify_all()
        for each in waiting:
            each.done.result()

    def close(self) -> None:
        """Commit what waits, wait for the compaction that runs, and stop. Errors are in the answers."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
        if raised[0] is None and self._failure is not None:
            raise self._failure

    # ---- rows

    def _checked(self, rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the table's types, with their kinds; one batch."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        found = []
        for batch in table.combine_chunks().to_batches():
            plain, kinds, _ = change_parts(batch, self._table)
            refuse_broken(  # others' rows are in the same commit
                check_rules(schema := self._table.schema),
                plain,
                kinds,
                table=self._table.name,
                keys=schema.primary_keys,
            )
            texts = pa.repeat("+I", len(plain)) if kinds is None else ROW_KIND_SYMBOLS.take(kinds)
            found.append(plain.append_column(ROW_KIND_COLUMN, texts))
        if not found:
            raise InvalidInputError(f"a write has at least one row: name={self._name} rows=0")
        return pa.Table.from_batches(found).combine_chunks().to_batches()[0]

    def _handle(self, snapshot: Snapshot | None) -> CommitHandle:
        return CommitHandle.of(CommitResult(snapshot=snapshot, already_committed=True), self._store)

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closing:
            raise InvalidInputError(f"the writer is closed: name={self._name} fix=open it again")

    # ---- the thread

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    taken = self._wait_for_group()
                if not taken:
                    return
                self._commit(taken)
        except FluvialError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - of this thread
            self._fail(UnavailableError(f"a writer ends: table={self._table.name} name={self._name} reason={error!r}"))
        finally:
            if self._session is not None:
                self._session.close()

    def _wait_for_group(self) -> list[SmallWrite]:
        """The writes of the next commit; none: the writer is closed."""
        while True:
            first = self._queue.waiting[0].number if self._queue.waiting else 0
            is_flush = self._is_closing or 0 < first <= self._flushes_to
            due_s = self._queue.due_s(max_delay_s=self._max_delay_s, is_flush=is_flush, **self._limits)
            left_s = None if due_s is None else due_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                taken = self._queue.take(**self._limits)
                self._changed.notify_all()
                return taken
            if self._is_closing:
                if self._queue.waiting:  # up to a half done number, which never came
                    raise UnavailableError(
                        f"an earlier run's commit is still half done: name={self._name} "
                        f"half_done={self._queue.half_done} fix='write again all up to that number'"
                    )
                return []
            self._changed.wait(left_s)

    def _commit(self, taken: list[SmallWrite]) -> None:
        """Commit a group; tried again until it is known to be in the table."""
        until_s, waits_s = time.monotonic() + self._timeout_s, pauses(_FIRST_RETRY_S, _LONGEST_RETRY_S)
        rows = pa.Table.from_batches([each.rows for each in taken]).combine_chunks().to_batches()
        maybe: FluvialError | None = None  # of an attempt that may be visible, or is
        while True:
            try:
                result = self._opened().write(rows, batch_id=taken[-1].number)
            except InvalidInputError as error:
                self._reopen()
                if maybe is not None:
                    raise self._unknown(maybe, error) from error
                self._store.check_is_there()  # else no row was wrong: all that comes would be refused
                self._refuse(taken, error)
                return
            except TakenOverError:
                raise
            except FluvialError as error:
                self._reopen()
                if time.monotonic() >= until_s:
                    raise
                if isinstance(error, (CommittedError, OutcomeUnknownError)):
                    maybe = error
                logger.warning(
                    "a commit is tried again: table=%s name=%s reason=%s", self._table.name, self._name, error
                )
                try:
                    half_done = half_done_number(self._table, self._name, last_number(self._store, self._name))
                except InvalidInputError as gone:
                    raise self._unknown(maybe or error, gone) from gone
                if half_done and half_done != taken[-1].number:
                    with self._changed:
                        self._queue.half_done = half_done
                        self._queue.put_back(taken)
                    return
                time.sleep(next(waits_s))
            else:
                break
        handle = CommitHandle.of(result, self._store)
        with self._changed:
            self._queue.committed(taken)
            self._changed.notify_all()
        for each in taken:
            each.done.set_result(handle)

    def _unknown(self, earlier: FluvialError, error: InvalidInputError) -> FluvialError:
        """The error to raise when the table was dropped or renamed after an attempt, whose rows may be in it."""
        if isinstance(earlier, CommittedError):
            return earlier
        return OutcomeUnknownError(f"the last commit may be visible: name={self._name} reason={earlier} then={error}")

    def _refuse(self, taken: list[SmallWrite], error: InvalidInputError) -> None:
        """A row that the table cannot hold must not take others with it."""
        if len(taken) > 1 and not self._queue.half_done:
            for each in taken:
                self._commit([each])
            return
        for each in taken:
            with self._changed:
                self._queue.refused(each)
            each.done.set_exception(error)

    def _finish_half_done(self) -> None:
        """No one will write those numbers again: what the log has of them is all there is."""
        self._opened().write([], batch_id=self._queue.half_done)
        self._queue.last_number, self._queue.half_done = self._queue.half_done, 0

    def _opened(self) -> "WriteSession[Sequence[pa.RecordBatch]]":
        if self._session is None:
            self._session = WriteSession(
                self._table,
                KeepingRunner(),
                commit_user=self._name,
                options=self._options,
                upkeep=Upkeep.STREAM,
                origin=self._origin,
            )
        return self._session

    def _origin(self, batch_id: int, rows: object) -> CommitOrigin:
        return batch_origin(self._store, self._options.pipeline_name or self._name, f"{self._name}-{batch_id}")

    def _reopen(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _fail(self, error: FluvialError) -> None:
        logger.error("a writer is broken: table=%s name=%s reason=%s", self._table.name, self._name, error)
        with self._changed:
            self._failure = error
            waiting = self._queue.unanswered()
            self._changed.notify_all()
        for each in waiting.values():
            if not each.done.done():
                each.done.set_exception(error)
