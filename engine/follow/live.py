"""``Table.live``: a copy of a table in memory that follows it, for services that look rows up."""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, Self, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.follow.choices import FollowRequest, StreamChoices
from engine.follow.position import FollowPosition
from engine.follow.stream import StreamedChanges, TableStream
from engine.request.commit_handle import CommitHandle
from engine.stream.position.position import Phase
from filestore.compact.awaited import is_awaited
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate, columns_of
from filestore.table import FileTable
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

# ---- Rows by key, in memory: an index of keys over immutable chunks of Arrow.
#
# A change appends its rows as a chunk and points the index to them. Rows without an index entry are dropped when
# there are as many of them as rows with one; small chunks are merged. Reading a single row as Python values takes
# a microsecond or two, and no lock.


_FORMATS: Final[dict[Any, str]] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.float32(): "f",
    pa.float64(): "d",
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

_Read = Callable[[int], Any]


class RowChunk:
    """(n,) rows of one batch."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        """Prepare to read single rows."""
        self.rows = rows
        self.readers = [(name, _reader(column)) for name, column in zip(rows.schema.names, rows.columns, strict=True)]

    def row(self, index: int) -> dict[str, Any]:
        """One row by column names, in Python's types."""
        return {name: read(index) for name, read in self.readers}


def _reader(column: pa.Array) -> _Read:
    """Reads single values of a column: from its buffers where that is simple, else through Arrow's scalars."""
    read = _plain_reader(column)
    if read is None:
        return lambda index: column[index].as_py()
    if not column.null_count:
        return read
    validity, first = memoryview(column.buffers()[0]), column.offset

    def nullable(index: int) -> Any:
        place = first + index
        return read(index) if validity[place >> 3] >> (place & 7) & 1 else None

    return nullable


def _plain_reader(column: pa.Array) -> _Read | None:
    kind, first = column.type, column.offset
    if len(column) == 0 or kind.num_fields:
        return None
    if kind in _FORMATS:
        numbers = _numbers(column.buffers()[1], _FORMATS[kind], column)
        of_row: _Read = numbers.__getitem__
        return of_row
    if pa.types.is_date32(kind):
        days, of_day = _numbers(column.buffers()[1], "i", column), date.fromordinal
        return lambda index: of_day(_EPOCH_DAY + days[index])
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        moments = _numbers(column.buffers()[1], "q", column)
        return lambda index: _EPOCH + timedelta(microseconds=moments[index])
    if pa.types.is_boolean(kind):
        bits = memoryview(column.buffers()[1])
        return lambda index: bool(bits[first + index >> 3] >> (first + index & 7) & 1)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _bytes_reader(column, is_text=pa.types.is_string(kind))
    return None


def _numbers(buffer: pa.Buffer, form: Any, column: pa.Array) -> Any:
    return memoryview(buffer).cast("B").cast(form)[column.offset : column.offset + len(column)]


def _bytes_reader(column: pa.Array, *, is_text: bool) -> _Read | None:
    _, starts, data = column.buffers()
    if data is None:
        return None
    ends = memoryview(starts).cast("B").cast("i")[column.offset : column.offset + len(column) + 1]
    body = memoryview(data).cast("B")
    if is_text:
        return lambda index: str(body[ends[index] : ends[index + 1]], "utf-8")
    return lambda index: bytes(body[ends[index] : ends[index + 1]])


_SHIFT: Final = 32
_MASK: Final = (1 << _SHIFT) - 1
_MOST_CHUNKS: Final = 256
_SMALL: Final = 1 << 16  # rows of a chunk that is joined with others
_DEAD_ROWS: Final = 1 << 16  # so many, and as many as live ones, are dropped


class KeyedRows:
    """At most one row of each key. One thread changes it; ``get`` may be called by any."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        """No rows.

        Args:
            schema: of the rows.
            key: its columns; keys are single values, or tuples of several.
        """
        self.schema = schema
        self._key = tuple(key)
        self._places: dict[Hashable, int] = {}  # key -> number of the chunk, and of the row in it
        self._chunks: dict[int, RowChunk] = {}
        self._next = 0
        self._dead = 0
        self._left: list[int] = []  # chunks that readers may still be in

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._places

    def get(self, key: Hashable) -> dict[str, Any] | None:
        """The row of a key; None: there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        index = place & 0xFFFFFFFF
        return {name: read(index) for name, read in self._chunks[place >> 32].readers}  # without a call: this is hot

    def apply(self, rows: pa.RecordBatch, is_add: NDArray[np.bool_]) -> None:
        """Add, replace and delete rows, in their order.

        Args:
            rows: (n,) of the schema; of deleted ones only the key matters.
            is_add: (n,) False: the key's row is deleted.
        """
        keys, count = self._keys(rows), rows.num_rows
        first, before = self._next << _SHIFT, len(self._places)
        if is_add.all():
            self._append(rows)
            self._places.update(zip(keys, range(first, first + count), strict=True))
            self._dead += count - (len(self._places) - before)
        else:
            self._append(rows.filter(pa.array(is_add)))
            place = first
            for key, adds in zip(keys, is_add.tolist(), strict=True):
                if adds:
                    self._dead += key in self._places
                    self._places[key] = place
                    place += 1
                else:
                    self._dead += self._places.pop(key, None) is not None
        count_of_chunks = len(self._chunks) - len(self._left)
        if count_of_chunks > _MOST_CHUNKS or self._dead > max(_DEAD_ROWS, len(self._places)):
            self._compact()

    def taken(self) -> "list[tuple[RowChunk, NDArray[np.int64]]]":
        """The rows as they are now, which later changes do not touch: chunks, and (n,) row numbers of each."""
        places = np.fromiter(self._places.values(), np.int64, len(self._places))
        places.sort()
        numbers = places >> _SHIFT
        found, starts = np.unique(numbers, return_index=True)
        pieces = np.split(places & _MASK, starts[1:]) if len(found) else []
        return [(self._chunks[int(number)], rows) for number, rows in zip(found, pieces, strict=True)]

    def _keys(self, rows: pa.RecordBatch) -> list[Any]:
        columns = [rows.column(name).to_pylist() for name in self._key]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _append(self, rows: pa.RecordBatch) -> None:
        self._chunks[self._next] = RowChunk(rows)
        self._next += 1

    def _compact(self) -> None:
        """Merge chunks that are small, or have few live rows; release the chunks that the last call replaced."""
        for number in self._left:
            del self._chunks[number]
        alive = {id(chunk): rows for chunk, rows in self.taken()}
        none = np.zeros(0, np.int64)
        chosen = []
        for number, chunk in self._chunks.items():
            count = len(alive.get(id(chunk), none))
            if chunk.rows.num_rows <= _SMALL or count * 2 < chunk.rows.num_rows:
                chosen.append(number)
        kept = [
            self._chunks[number].rows.take(pa.array(alive.get(id(self._chunks[number]), none))) for number in chosen
        ]
        for rows in pa.Table.from_batches(kept, self.schema).combine_chunks().to_batches() if kept else []:
            first = self._next << _SHIFT
            self._append(rows)
            keys = self._keys(rows)
            self._places.update(zip(keys, range(first, first + len(keys)), strict=True))
        self._left = chosen
        self._dead = 0


# ---- ``Table.live``: a copy of a table in memory that follows it, for services that look rows up


logger = logging.getLogger("fluvial.follow")

_ROWS_SHOWN: Final = 4096  # converted at once
_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.005
_OPTIONS: Final = {
    "read.stream.maxRowsPerTrigger": str(1 << 40),  # positions are those of commits
    "log.on-offset-lost": "resnapshot",  # a copy can be filled again
    "streaming-read-overwrite": "true",
}

OnChange = Callable[[StreamedChanges], object]


class LiveChoices(TypedDict, total=False):
    """Named arguments of ``Table.live``; each may be left out."""

    columns: Sequence[str] | None  # beside the key; None: all
    filter: str | None  # SQL text, on any columns
    options: Mapping[str, str] | None  # of streams, such as log.on-offset-lost
    timeout_s: float  # for the first filling, 600


@dataclass(frozen=True, slots=True)
class _Wanted:
    names: list[str]
    predicate: Predicate | None  # of rows; None: all, or the stream filters by key


class LiveCopy:
    """Rows by key as of one position of the table, kept up to date by a thread. Close it, or use ``with``.

    After an error that trying again cannot mend, every method raises it.
    """

    def __init__(self, table: FileTable, choices: LiveChoices) -> None:
        """Made by ``Table.live``; returns when the copy is filled."""
        if not table.schema.primary_keys:
            raise InvalidInputError(
                f"rows are kept by their key: table={table.name} primary-key=none fix=follow it with table.stream()"
            )
        self._table = table
        self._wanted, self._request = _understood(table, choices)
        self._lock = threading.Condition()
        self._position: FollowPosition | None = None  # of the rows
        self._received: FollowPosition | None = None  # where the thread continues after an error
        self._failure: FluvialError | None = None
        self._listeners: list[OnChange] = []
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._stream = TableStream(self._request)
        self._rows = self._no_rows()
        self._filling: KeyedRows | None = self._rows  # with the rows of a snapshot, until it is whole
        self._thread = threading.Thread(target=self._follow, name=f"fluvial-live-{table.name}", daemon=True)
        self._thread.start()
        timeout_s = choices.get("timeout_s", 600.0)
        try:
            self._wait_until_filled(timeout_s)
        except BaseException:
            self.close()
            raise

    def _wait_until_filled(self, timeout_s: float) -> None:
        if not self._filled.wait(timeout_s):
            raise UnavailableError(f"the copy is not filled yet: table={self._table.name} timeout_s={timeout_s:g}")
        self._check()

    # ---- rows

    def get(self, key: Hashable) -> dict[str, Any] | None:
        """The row of a key, by column names; None: there is none. Of a key of several columns: a tuple."""
        if self._failure is not None:
            raise self._failure
        return self._rows.get(key)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._rows

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows as of one position, in any order."""
        for batch in self.to_arrow().to_batches(max_chunksize=_ROWS_SHOWN):
            yield from batch.to_pylist()

    def to_arrow(self) -> pa.Table:
        """All rows as of one position, in any order."""
        self._check()
        with self._lock:
            taken = self._rows.taken()
        return pa.Table.from_batches(
            [chunk.rows.take(pa.array(numbers)) for chunk, numbers in taken], schema=self._rows.schema
        )

    # ---- position

    @property
    def position(self) -> FollowPosition:
        """Position of the rows in the table's history."""
        assert self._position is not None, "the copy is filled"
        return self._position

    @property
    def age_s(self) -> float:
        """Seconds since the copy was known to be equal to the table."""
        return time.monotonic() - self._stream.current_s

    def on_change(self, callback: OnChange) -> None:
        """Call a function with all further changes, in order, when they are in the copy.

        It gets the stream's rows: updates may be without ``-U``, and rows that a filter leaves out are among them.
        After a loss (``log.on-offset-lost``) those of the snapshot come before they are in the copy. The thread that
        follows the table calls it, and waits for it.
        """
        with self._lock:
            self._listeners.append(callback)

    def wait_for(self, handle: CommitHandle | str, timeout_s: float = 60.0) -> None:
        """Return once the copy has a commit: read your writes. Raises: UnavailableError, naming what it has."""
        wanted = CommitHandle.parse(handle) if isinstance(handle, str) else handle
        store = self._table.store
        wanted.check_history(store)
        wanted_id = wanted.snapshot_id
        if is_awaited(store):  # its rows came with the compaction behind it
            wanted_id = max(wanted_id, store.snapshots.latest_id() or 0)
        until_s = time.monotonic() + timeout_s
        with self._lock:
            while (found := max(self.position.snapshot_id, self._stream.current_id)) < wanted_id:
                self._check()
                if time.monotonic() >= until_s:
                    raise UnavailableError(
                        f"the copy does not have a commit yet: table={self._table.name} snapshot={found} "
                        f"wanted_snapshot={wanted.snapshot_id} timeout_s={timeout_s:g}"
                    )
                self._lock.wait(_LOOK_S)

    def close(self) -> None:
        """Stop following, and forget the rows."""
        self._closed.set()
        self._stream.stop()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # ---- the thread

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                if self._stream.stopped.is_set():
                    self._stream = TableStream(self._request.at(self._received))
                    if self._closed.is_set():
                        return  # ``close`` may have stopped the one before
                self._follow_stream()
            except UnavailableError as error:
                logger.warning("a copy in memory waits for its table: table=%s reason=%s", self._table.name, error)
                self._stream.stopped.wait(_RETRY_S)
                self._stream.close()
            except FluvialError as error:
                self._fail(error)
                return
            except Exception as error:  # noqa: BLE001 - of this thread, which is joined later
                self._fail(UnavailableError(f"the copy cannot be kept: table={self._table.name} reason={error!r}"))
                return

    def _fail(self, error: FluvialError) -> None:
        logger.error("a copy in memory ends: table=%s reason=%s", self._table.name, error)
        self._failure = error
        self._filled.set()

    def _follow_stream(self) -> None:
        pending: list[StreamedChanges] = []
        for changes in self._stream:
            if self._closed.is_set():
                return
            if _begins_whole(changes):
                self._filling = self._no_rows()
            if self._filling is not None:
                self._fill(self._filling, changes)
                continue
            pending.append(changes)
            if changes.is_complete:
                self._apply(pending)
                pending = []

    def _fill(self, filling: KeyedRows, changes: StreamedChanges) -> None:
        """Add rows of a snapshot; when it is whole, its rows are the copy's."""
        if changes.rows.num_rows:
            filling.apply(*self._kept(changes))
        self._received = changes.position
        if self._filled.is_set():
            self._call([changes])
        if changes.is_complete and changes.position.at.phase is Phase.LOG:
            with self._lock:
                self._rows, self._filling, self._position = filling, None, changes.position
                self._lock.notify_all()
            self._filled.set()

    def _apply(self, pending: Sequence[StreamedChanges]) -> None:
        """All changes between two positions at once."""
        with self._lock:
            for changes in pending:
                if changes.rows.num_rows:
                    self._rows.apply(*self._kept(changes))
            self._position = self._received = pending[-1].position
            self._lock.notify_all()
        self._call(pending)

    def _call(self, found: Sequence[StreamedChanges]) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for changes in found:
            for listener in listeners if changes.rows.num_rows else ():
                try:
                    listener(changes)
                except Exception:
                    logger.exception("a callback of a copy in memory failed: table=%s", self._table.name)

    def _no_rows(self) -> KeyedRows:
        fields = [self._stream.schema.field(name) for name in self._wanted.names]
        return KeyedRows(pa.schema(fields), self._table.schema.primary_keys)

    def _kept(self, changes: StreamedChanges) -> tuple[pa.RecordBatch, Any]:
        """Rows in the copy's columns, and which of them are added: a row that does not match leaves the copy."""
        is_add = pc.is_in(changes.kinds, pa.array(["+I", "+U"]))
        if self._wanted.predicate is not None:
            is_add = pc.and_(is_add, pc.fill_null(filter_mask(self._wanted.predicate, changes.rows), False))
        return changes.rows.select(self._wanted.names), np.asarray(is_add.to_numpy(zero_copy_only=False))


def _understood(table: FileTable, choices: LiveChoices) -> tuple[_Wanted, FollowRequest]:
    """The copy's columns and its filter, and the stream that gives them: all of the newest snapshot, and what follows.

    A start that the table has for its streams, a consumer among them, is not the copy's.
    """
    columns, text = choices.get("columns"), choices.get("filter")
    keys = table.schema.primary_keys
    names = list(table.schema.column_names)
    if columns is not None:
        table.schema.fields_of(columns)
        names = [name for name in names if name in {*keys, *columns}]
    predicate = None
    if text is not None:
        from filestore.predicate.parser import parse_filter  # sqlglot is slow to import

        predicate = parse_filter(text, table.schema)
    needed = {*names, *(columns_of(predicate) if predicate is not None else ())}
    wanted: StreamChoices = {
        "columns": [name for name in table.schema.column_names if name in needed],
        "options": {**_OPTIONS, **(choices.get("options") or {})},
    }
    if predicate is not None and columns_of(predicate) <= {*keys}:
        wanted["filter"], predicate = text, None
    request = FollowRequest.parse(table, "full", wanted)
    consumer = request.stream.consumer_id if "consumer-id" in (choices.get("options") or {}) else None
    stream = replace(
        request.stream,
        waits_for_commits=True,  # the copy has whole commits only
        consumer_id=consumer,
        ignores_consumer=True,
    )
    return _Wanted(names, predicate), replace(request, stream=stream)


def _begins_whole(changes: StreamedChanges) -> bool:
    """Whether all rows of a snapshot come next: at the start, or after a loss."""
    at = changes.position.at
    is_from_nothing = at.phase is Phase.SNAPSHOT or (at.phase is Phase.FILES and at.snapshot_id == 0)
    return is_from_nothing and changes.is_complete and at.done == 0
