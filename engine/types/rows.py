"""Rows from Spark or a user, converted to the table's columns and row kinds."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filestore.hashing.buckets import bucket_ids
from filestore.table_view import TableView
from filestore.write.row_checks import conform_batch, row_kinds_of_column

ROW_KIND_COLUMN: Final = "_row_kind"


def change_rows(batch: pa.RecordBatch, table: TableView) -> tuple[pa.RecordBatch, pa.Array | None]:
    """The rows in the table's column order and types, and the kind of each row.

    Kinds come from the column ``_row_kind``, else from the table's ``rowkind.field``; None: all rows are inserts.

    Args:
        batch: columns by name; nullable columns may be missing, unknown columns are refused.
        table: the table.

    Returns:
        (n rows, (n,) int8 kinds or None).

    Raises:
        InvalidInputError: an unknown or missing column, a value out of its column's range, or an unknown row kind.
    """
    kinds = None
    index = batch.schema.get_field_index(ROW_KIND_COLUMN)
    if index >= 0 and ROW_KIND_COLUMN not in table.schema.column_names:
        kinds = row_kinds_of_column(batch.column(index).cast(pa.string()), ROW_KIND_COLUMN)
        batch = batch.select([name for name in batch.schema.names if name != ROW_KIND_COLUMN])
    rows = conform_batch(batch, table.schema, rounds=table.options.write_round_values)
    field = table.options.rowkind_field
    if kinds is None and field is not None:
        kinds = row_kinds_of_column(rows.column(field), field)
    return rows, kinds


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
