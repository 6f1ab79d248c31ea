"""Semi-joins of rows with keys: by hashing, or by binary search if both are sorted."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_at, key_order, rows_before
from lsm.keys.words import IndexArray

_MASK_TYPES: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_date)


def rows_with_keys(rows: pa.Table | pa.RecordBatch, keys: pa.Table) -> IndexArray:
    """(m,) ascending indices of the rows with a key among `keys`.

    Args:
        rows: include the key columns, without nulls.
        keys: (k,) key columns, in any order.
    """
    names = keys.column_names
    if len(names) == 1 and any(is_one(keys.schema.field(0).type) for is_one in _MASK_TYPES):
        found = pc.is_in(rows.column(names[0]), value_set=one_chunk(keys.column(0)))
        return np.flatnonzero(found.to_numpy() if isinstance(found, pa.ChunkedArray) else np.asarray(found))
    if rows.num_rows == 0 or len(keys) == 0:
        return np.zeros(0, np.int64)
    some = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    both = pa.concat_tables([keys, some.select(names).cast(keys.schema)])
    order, starts = key_order([one_chunk(column) for column in both.columns], presorted=True)
    numbers = np.cumsum(starts) - 1
    has_key = np.zeros(numbers[-1] + 1, np.bool_)
    has_key[numbers[order < len(keys)]] = True
    chosen = order[has_key[numbers]]
    return np.sort(chosen[chosen >= len(keys)] - len(keys))


def sorted_rows_with_keys(rows: pa.RecordBatch, keys: pa.Table) -> IndexArray:
    """`rows_with_keys` for rows and keys in key order, rows without duplicate keys: cost grows with the keys only.

    Args:
        rows: include the key columns, without nulls.
        keys: (k,) key columns.
    """
    if rows.num_rows == 0 or len(keys) == 0:
        return np.zeros(0, np.int64)
    names = keys.column_names
    columns = [one_chunk(column) for column in keys.columns]
    row_columns = [rows.column(name) for name in names]
    first = rows_before(columns, key_at(row_columns, 0), inclusive=False)
    stop = rows_before(columns, key_at(row_columns, rows.num_rows - 1), inclusive=True)
    if first == stop:
        return np.zeros(0, np.int64)
    wanted = keys.slice(first, stop - first)
    if len(names) > 1 or not pa.types.is_integer(wanted.schema.field(0).type):
        return rows_with_keys(rows, wanted)
    values = row_columns[0].to_numpy()
    searched = one_chunk(wanted.column(0)).to_numpy()
    places: IndexArray = np.searchsorted(values, searched)  # never past the last row: no wanted key is greater
    found: IndexArray = places[values[places] == searched]
    return found
