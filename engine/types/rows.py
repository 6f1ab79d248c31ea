"""Rows from Spark or a user, converted to the table's columns and row kinds."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.hashing.buckets import bucket_ids
from filestore.schema.table_schema import TableSchema
from filestore.table_view import TableView
from lsm.errors import InvalidInputError

ROW_KIND_COLUMN: Final = "_row_kind"
TRUNCATE_KIND: Final = "-T"
"""In ``_row_kind`` of a row without values: the source was truncated here. A table never holds such a row."""
UNAVAILABLE_COLUMN: Final = "_unavailable"
"""list<string>: the names of columns whose value the source left out of an update; null: none."""


def change_rows(
    batch: pa.RecordBatch, table: TableView, *, marks: pa.Array | None = None
) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The rows in the table's column order and types, and the kind of each row.

    Kinds come from the column ``_row_kind``, else from the table's ``rowkind.field``; None: all rows are inserts.

    Args:
        batch: columns by name; nullable columns may be missing, unknown columns are refused. A null becomes the default
            of its column.
        table: the table.
        marks: (n,) names of columns that are filled in later: but those of the key they may be null.

    Returns:
        (n rows, (n,) int8 kinds or None).

    Raises:
        InvalidInputError: an unknown or missing column, a value out of its column's range, or an unknown row kind.
    """
    from filestore.write.row_checks import conform_batch, row_kinds_of_column

    kinds = None
    index = batch.schema.get_field_index(ROW_KIND_COLUMN)
    if index >= 0 and ROW_KIND_COLUMN not in table.schema.column_names:
        kinds = _kinds_of(batch.column(index).cast(pa.string()))
        batch = batch.select([name for name in batch.schema.names if name != ROW_KIND_COLUMN])
    schema = table.schema if marks is None else _fillable(table.schema)
    rows = conform_batch(batch, schema, rounds=table.options.write_round_values, left_out=_left_out(schema, marks))
    field = table.options.rowkind_field
    if kinds is None and field is not None:
        kinds = row_kinds_of_column(rows.column(field), field)
    return rows, kinds


def _kinds_of(texts: pa.Array) -> pa.Array:
    from filestore.write.row_checks import row_kinds_of_column

    try:
        return row_kinds_of_column(texts, ROW_KIND_COLUMN)
    except InvalidInputError as error:
        if not pc.any(pc.equal(texts, TRUNCATE_KIND)).as_py():
            raise
        raise InvalidInputError(
            f"a truncate of the source is no row: column={ROW_KIND_COLUMN} value={TRUNCATE_KIND} "
            "fix='write the stream by foreachBatch(sink(table)), which empties the table; or leave out truncates=emit'"
        ) from error


def change_parts(batch: pa.RecordBatch, table: TableView) -> tuple[pa.RecordBatch, pa.Array | None, pa.Array | None]:
    """The rows and kinds of ``change_rows``, and the column ``_unavailable``; None: the batch has none.

    Raises:
        InvalidInputError: as ``change_rows``; a NOT NULL column may be null where it is filled in later.
    """
    index = batch.schema.get_field_index(UNAVAILABLE_COLUMN)
    if index < 0 or UNAVAILABLE_COLUMN in table.schema.column_names:
        return *change_rows(batch, table), None
    marks = batch.column(index)
    if not (pa.types.is_list(marks.type) or pa.types.is_null(marks.type)):
        raise InvalidInputError(
            f"names of columns are a list of texts: column={UNAVAILABLE_COLUMN} type={marks.type} fix='cast it'"
        )
    marks = marks.cast(pa.list_(pa.string()))
    return *change_rows(batch.drop_columns([UNAVAILABLE_COLUMN]), table, marks=marks), marks


def _left_out(schema: TableSchema, marks: pa.Array | None) -> dict[str, pa.Array]:
    """(n,) bool by column with a default: the rows whose value is filled in later."""
    names = [] if marks is None else [field.name for field in schema.fields if field.default_value is not None]
    return {name: _names(marks, name) for name in names}


def _names(marks: pa.Array, name: str) -> pa.Array:
    """(n,) whether a name is among the marks of a row."""
    found = np.zeros(len(marks), np.bool_)
    is_it = np.asarray(pc.fill_null(pc.equal(pc.list_flatten(marks), name), False))
    found[np.asarray(pc.list_parent_indices(marks))[is_it]] = True
    return pa.array(found)


def _fillable(schema: TableSchema) -> TableSchema:
    fields = tuple(
        field if field.name in schema.primary_keys else replace(field, type=replace(field.type, nullable=True))
        for field in schema.fields
    )
    return replace(schema, fields=fields)


def row_buckets(rows: pa.RecordBatch, table: TableView) -> NDArray[np.int32]:
    """(n,) bucket of every row of a table with fixed buckets; see ``bucket_places``."""
    schema, options = table.store.schema, table.options
    keyed = rows if table.row_counts is None else table.row_counts.hashed(rows)
    columns = [keyed.column(name) for name in schema.bucket_keys]
    types = [schema.field(name).type for name in schema.bucket_keys]
    return bucket_ids(columns, types, options.bucket, function=options.bucket_function)


def bucket_places(rows: pa.RecordBatch, table: TableView) -> Iterator[tuple[int, pa.Array | None]]:
    """The row numbers of each bucket, in arrival order.

    Args:
        rows: at least one; the table's columns.
        table: the table; without fixed buckets, bucket 0 is the only one.

    Yields:
        (bucket, row numbers) in ascending bucket order; row numbers None: all rows are in this bucket.
    """
    if table.options.bucket <= 1:
        yield 0, None
        return
    buckets = row_buckets(rows, table)
    first = int(buckets[0])
    if (buckets == first).all():
        yield first, None
        return
    order = np.argsort(buckets.astype(np.uint16), kind="stable")
    sorted_buckets = buckets[order]
    starts = np.flatnonzero(np.r_[True, sorted_buckets[1:] != sorted_buckets[:-1]])
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(sorted_buckets[start]), pa.array(order[start:end])
