"""Immutable rows in Arrow, of which single ones are read in a microsecond or two, as Python values."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

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
