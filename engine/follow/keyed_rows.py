"""Rows by key, in memory: an index of keys over immutable chunks of Arrow.

A change appends its rows as a chunk and points the index to them. Rows without an index entry are dropped when there
are as many of them as rows with one; small chunks are merged. Reading a single row as Python values takes a microsecond
or two, and no lock.
"""

from collections.abc import Callable, Hashable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
