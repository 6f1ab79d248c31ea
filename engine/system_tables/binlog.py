"""Rows of ``t$binlog``: each column an array, an update one row with old and new values. Source: Paimon BinlogTable.

A ``-U`` and the following ``+U`` are one row ``+U`` of ``[before, after]``; all other rows have arrays of one value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from filestore.types.data_types import DataField, DataType

_BEFORE, _AFTER = "-U", "+U"


def binlog_fields(fields: Sequence[DataField]) -> tuple[DataField, ...]:
    """Columns of a table as arrays of their values."""
    return tuple(
        DataField(id=field.id, name=field.name, type=DataType(root="ARRAY", element=replace(field.type, nullable=True)))
        for field in fields
    )


def arrays_of_one(rows: pa.RecordBatch, kind_name: str) -> pa.RecordBatch:
    """Rows without updates as rows of the binlog; a column named ``kind_name`` is unchanged."""
    offsets = pa.array(np.arange(rows.num_rows + 1, dtype=np.int32))
    arrays = [
        column if name == kind_name else pa.ListArray.from_arrays(offsets, _whole(column))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def packed(batches: Iterator[pa.RecordBatch], kind_name: str) -> Iterator[pa.RecordBatch]:
    """Rows with their kinds as rows of the binlog.

    Args:
        batches: rows in order, with their kinds in a text column of this name.
        kind_name: the column that is unchanged.
    """
    waiting: pa.RecordBatch | None = None  # a -U at the end of a batch
    for batch in batches:
        rows = batch if waiting is None else pa.concat_batches([waiting, batch])
        waiting = None
        if rows.num_rows and rows.column(kind_name)[-1].as_py() == _BEFORE:
            rows, waiting = rows.slice(0, rows.num_rows - 1), rows.slice(rows.num_rows - 1)
        if rows.num_rows:
            yield _packed(rows, kind_name)
    if waiting is not None:
        yield _packed(waiting, kind_name)


def _packed(rows: pa.RecordBatch, kind_name: str) -> pa.RecordBatch:
    kinds = np.asarray(rows.column(kind_name).to_numpy(zero_copy_only=False))
    follows = np.zeros(rows.num_rows, np.bool_)
    follows[1:] = (kinds[:-1] == _BEFORE) & (kinds[1:] == _AFTER)
    starts = np.flatnonzero(~follows)
    offsets = pa.array(np.append(starts, rows.num_rows).astype(np.int32))
    last = np.append(starts[1:], rows.num_rows) - 1
    arrays = [
        pa.array(kinds[last], pa.string()) if name == kind_name else pa.ListArray.from_arrays(offsets, _whole(column))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _whole(column: pa.Array) -> pa.Array:
    """Without an offset, which an array of arrays would apply twice."""
    return pa.concat_arrays([column]) if column.offset else column
