"""Rows in any form in which Python tools hold them, as Arrow batches.

Whatever exports Arrow's PyCapsule stream or array is taken as it is, batch by batch: what is larger than memory stays
so. Python's own lists and dicts become Arrow in memory, in the types of the table.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from engine.types.column_names import CaseRule
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import arrow_type
from lsm.errors import FluvialError, InvalidInputError

_INDEX: Final = re.compile(r"__index_level_\d+__")
"""The index of a pandas frame that has no name: where its rows were, not what they are."""


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Batches of one schema from this process."""

    schema: pa.Schema
    open: Callable[[], Iterator[pa.RecordBatch]]  # called once for each reading
    is_read_once: bool = False  # a stream: no second reading
    is_held: bool = True  # all rows are in memory

    def with_kinds(self, kinds: Any) -> "GivenRows":
        """The rows with a column ``_row_kind``. Raises: InvalidInputError: of a stream."""
        if not self.is_held:
            raise InvalidInputError(
                "kinds beside a stream cannot be matched with its rows: given=kinds "
                f"fix='give the rows a column {ROW_KIND_COLUMN}'"
            )
        rows = pa.Table.from_batches(self.open(), schema=self.schema)
        texts = kinds if isinstance(kinds, pa.Array | pa.ChunkedArray) else pa.array(kinds, pa.string())
        if len(texts) != rows.num_rows:
            raise InvalidInputError(f"one row kind per row is needed: rows={rows.num_rows} kinds={len(texts)}")
        return _of_table(rows.append_column(ROW_KIND_COLUMN, texts))

    def as_spelled(self, own: Sequence[str]) -> "GivenRows":
        """The rows with the table's names for columns that differ from them in case only."""
        names = dict(zip(self.schema.names, CaseRule().as_spelled(self.schema.names, own), strict=True))
        if all(given == meant for given, meant in names.items()):
            return self
        schema = pa.schema([field.with_name(names[field.name]) for field in self.schema], self.schema.metadata)
        return replace(self, schema=schema, open=lambda: (renamed(batch, names) for batch in self.open()))


def renamed(batch: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """Columns under other names; others stay."""
    return batch.rename_columns([names.get(name, name) for name in batch.schema.names])


def is_frame(rows: object) -> bool:
    """Whether the rows are a Spark frame, which tasks write."""
    return hasattr(rows, "sparkSession")


def given_rows(rows: Any, schema: TableSchema) -> GivenRows:
    """Rows in any form but a Spark frame.

    Args:
        rows: PyArrow tables, batches, readers, datasets and scanners; what has ``__arrow_c_stream__`` or
            ``__arrow_c_array__`` (Polars, pandas, DuckDB, DataFusion, ...); a dict of columns; a list of dicts or of
            batches; an iterator of batches.
        schema: of the table, for the types of dicts.

    Raises:
        InvalidInputError: another form, or values of dicts that are not of the column's type.
    """
    if isinstance(rows, GivenRows):
        return rows
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return _of_table(pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows)
    if isinstance(rows, pa.RecordBatchReader):
        return _of_reader(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return _of_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        return _of_table(pa.Table.from_batches([_exported(lambda: pa.record_batch(rows), rows)]))
    if hasattr(rows, "collect_batches"):  # a lazy frame of Polars
        return _of_lazy(rows)
    if isinstance(rows, Mapping):
        return _of_table(_table_of_columns(rows, schema))
    if _is_scanned(rows):
        return GivenRows(*_scanned(rows), is_held=False)
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        return _of_iterable(rows, schema)
    raise _unknown(rows)


def _unknown(rows: object) -> InvalidInputError:
    kind = f"{type(rows).__module__}.{type(rows).__qualname__}".removeprefix("builtins.")
    fix = (
        "collect it, as with frame.collect()"
        if hasattr(rows, "collect")
        else "convert them, as with pyarrow.table(...)"
    )
    return InvalidInputError(
        f"rows come as Arrow (__arrow_c_stream__), as dicts, or as a Spark frame: given={kind} fix='{fix}'"
    )


def _of_table(rows: pa.Table) -> GivenRows:
    return GivenRows(rows.schema, lambda: iter(rows.to_batches()))


def _of_reader(reader: pa.RecordBatchReader) -> GivenRows:
    return GivenRows(reader.schema, lambda: _read(reader), is_read_once=True, is_held=False)


def _of_stream(rows: Any) -> GivenRows:
    """Rows of another tool: what holds them exports them again for another reading."""
    exports = _Exports(rows, _exported(lambda: pa.RecordBatchReader.from_stream(rows), rows))
    is_held = hasattr(rows, "__len__")
    return GivenRows(exports.schema, exports.read, is_read_once=not is_held, is_held=is_held)


def _of_lazy(rows: Any) -> GivenRows:
    """A query of Polars, run while it is read, in bounded memory."""
    empty = _exported(lambda: pa.table(rows.head(0).collect()), rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in rows.collect_batches():
            yield from pa.table(frame).to_batches()

    return GivenRows(empty.schema, batches, is_read_once=True, is_held=False)


class _Exports:
    def __init__(self, rows: Any, first: pa.RecordBatchReader) -> None:
        self._rows, self._first = rows, first
        self._names = [name for name in first.schema.names if not _INDEX.fullmatch(name)]
        self.schema = pa.schema([first.schema.field(name) for name in self._names])

    def read(self) -> Iterator[pa.RecordBatch]:
        reader, self._first = self._first or pa.RecordBatchReader.from_stream(self._rows), None
        has_index = len(reader.schema) > len(self._names)
        for batch in _read(reader):
            yield batch.select(self._names) if has_index else batch


def _read(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. Raises: InvalidInputError: the tool that makes them failed."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except FluvialError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise InvalidInputError(
                f"the rows could not be read: reason={_line(error)!r} fix='see what makes them'"
            ) from error
        yield batch


def _exported(export: Callable[[], Any], rows: object) -> Any:
    try:
        return export()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"rows are not columns of Arrow: given={type(rows).__name__} reason={_line(error)!r} "
            "fix='convert them, as with pyarrow.table(...)'"
        ) from error


def _is_scanned(rows: object) -> bool:
    """Whether it is a dataset or a scanner of PyArrow, without importing them."""
    return any(each.__module__ == "pyarrow._dataset" for each in type(rows).__mro__) and hasattr(rows, "to_batches")


def _scanned(rows: Any) -> tuple[pa.Schema, Callable[[], Iterator[pa.RecordBatch]]]:
    schema = rows.projected_schema if hasattr(rows, "projected_schema") else rows.schema
    return schema, lambda: iter(rows.to_batches())


def _of_iterable(rows: Iterable[Any], schema: TableSchema) -> GivenRows:
    """A list of dicts or batches, or an iterator of batches."""
    if isinstance(rows, Sequence):
        if not rows or all(isinstance(each, Mapping) for each in rows):
            return _of_table(_table_of_dicts(rows, schema))
        if all(isinstance(each, pa.RecordBatch | pa.Table) for each in rows):
            first: Sequence[Any] = rows
            return GivenRows(first[0].schema, lambda: _batches(iter(first)))
        raise _unknown(rows[0])
    pieces = iter(rows)
    head = next(pieces, None)
    if head is None:
        return _of_table(_table_of_dicts([], schema))
    if not isinstance(head, pa.RecordBatch | pa.Table):
        raise _unknown(head)
    return GivenRows(head.schema, lambda: _batches(chain([head], pieces)), is_read_once=True, is_held=False)


def _batches(pieces: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        if isinstance(piece, pa.Table):
            yield from piece.to_batches()
        elif isinstance(piece, pa.RecordBatch):
            yield piece
        else:
            raise _unknown(piece)


def _table_of_dicts(rows: Sequence[Mapping[str, Any]], schema: TableSchema) -> pa.Table:
    """Rows as dicts; a key that a row lacks is null, and its kind ``+I``."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    absent = {} if ROW_KIND_COLUMN in schema.column_names else {ROW_KIND_COLUMN: "+I"}
    return _table_of_columns({name: [row.get(name, absent.get(name)) for row in rows] for name in names}, schema)


def _table_of_columns(columns: Mapping[str, Any], schema: TableSchema) -> pa.Table:
    known = {field.name: arrow_type(field.type) for field in schema.fields}
    types = {ROW_KIND_COLUMN: pa.string(), UNAVAILABLE_COLUMN: pa.list_(pa.string()), **known}
    meant = CaseRule().finder(types)
    arrays = [_array(name, values, types.get(meant(str(name)) or str(name))) for name, values in columns.items()]
    try:
        return pa.Table.from_arrays(arrays, names=[str(name) for name in columns])
    except pa.ArrowInvalid as error:
        lengths = {name: len(array) for name, array in zip(columns, arrays, strict=True)}
        raise InvalidInputError(
            f"columns have different lengths: lengths={lengths} fix='give each row a value'"
        ) from error


def _array(name: object, values: Any, wanted: pa.DataType | None) -> Any:
    """A column. Values in Arrow or NumPy keep their type: the writer casts them without loss, or refuses them."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidInputError(
            f"a dict of columns has a list for each: column={name} given={type(values).__name__} "
            "fix='for one row write [row], a list of dicts'"
        )
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else pa.array(values)
    try:
        return pa.array(values, None if hasattr(values, "dtype") else wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"a value does not fit the column: column={name} type={wanted} reason={_line(error)!r} "
            "fix='give values of that type'"
        ) from error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
