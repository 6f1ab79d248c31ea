"""Rows as Spark or a user hands them over, turned into the table's rows and their kinds."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.datatypes import DataField, arrow_type
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.row_kind import ROW_KIND_OF_SYMBOL, RowKind

ROW_KIND_COLUMN: Final = "_row_kind"
_SYMBOLS: Final = pa.array(list(ROW_KIND_OF_SYMBOL))
_KINDS: Final = np.array([kind.value for kind in ROW_KIND_OF_SYMBOL.values()], np.int8)


def change_rows(batch: pa.RecordBatch, store: TableStore) -> tuple[pa.RecordBatch, pa.Array]:
    """The table's columns in its order and types, and the kind of each row.

    Kinds come from the column ``_row_kind``, else from the table's ``rowkind.field``, else every row is an insert.

    Args:
        batch: columns by name; nullable columns may be missing, others than the table's are refused.

    Returns:
        (n rows, (n,) int8 kinds).

    Raises:
        InvalidInputError: an unknown or missing column, a value that the column's type cannot hold, an unknown row kind.
    """
    schema = store.schema
    known = {field.name for field in schema.fields}
    unknown = [name for name in batch.schema.names if name not in known and name != ROW_KIND_COLUMN]
    if unknown:
        raise InvalidInputError(
            f"the table has no such column: table={store.name} column={unknown[0]} fix=drop or rename it"
        )
    columns = [_column(batch, field, store.name) for field in schema.fields]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)
    return rows, _kinds(batch, rows, store)


def _column(batch: pa.RecordBatch, field: DataField, table: str) -> pa.Array:
    wanted = arrow_type(field.type)
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        if not field.type.nullable:
            raise InvalidInputError(
                f"a column that may not be null is missing: table={table} column={field.name} fix=add it"
            )
        return pa.nulls(batch.num_rows, wanted)
    column = batch.column(index)
    if column.type == wanted:
        return column
    try:
        return _cast(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"value does not fit its column: table={table} column={field.name} given={column.type} wanted={field.type} "
            f"reason={error} fix=cast it before writing"
        ) from error


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Checked cast; times lose digits that the column's precision does not have, towards the past."""
    if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(wanted):
        if column.type.unit != wanted.unit:
            column = pc.floor_temporal(column, unit=_UNIT_NAMES[wanted.unit])
        return column.cast(wanted)
    if pa.types.is_time(column.type) and pa.types.is_time(wanted):
        return column.cast(wanted, safe=False)
    return column.cast(wanted)


_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}


def _kinds(batch: pa.RecordBatch, rows: pa.RecordBatch, store: TableStore) -> pa.Array:
    name = ROW_KIND_COLUMN if ROW_KIND_COLUMN in batch.schema.names else store.options.rowkind_field
    if name is None:
        return pa.array(np.zeros(rows.num_rows, np.int8))
    symbols = batch.column(batch.schema.get_field_index(name)).cast(pa.string())
    index = pc.index_in(symbols, value_set=_SYMBOLS)
    if index.null_count:
        bad = symbols.filter(pc.is_null(index))[0].as_py()
        raise InvalidInputError(
            f"unknown row kind: table={store.name} column={name} value={bad!r} fix=use one of {list(ROW_KIND_OF_SYMBOL)}"
        )
    kinds = pa.array(_KINDS[index.to_numpy()])
    if not store.has_key and pc.any(pc.not_equal(kinds, RowKind.INSERT.value)).as_py():
        raise InvalidInputError(
            f"a table without a primary key takes inserts only: table={store.name} column={name} fix=declare a primary key"
        )
    return kinds
