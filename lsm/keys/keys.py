"""Key order: of single keys as values, and of whole key columns.

The order is that of data files: numbers numeric, ``false < true``, strings and binaries by unsigned bytes, floats as
Java compares them (``-0.0 < 0.0``, NaN greatest), columns from left to right.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.words import BoolArray, IndexArray, NumberPart, Part, number_parts_of, parts_of, stable_order
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND

KeyTuple: TypeAlias = tuple[Any, ...]
"""Comparable internal values of the key columns: Python's tuple order equals key order."""


def comparable(value: object) -> object:
    """An internal value in a form that Python compares in key order.

    Only floats change: to the 64 bits of the double, ordered like Java's ``Double.compare``. A FLOAT equals the same
    number as DOUBLE.
    """
    if not isinstance(value, float):
        return value
    if value != value:
        return 0xFFF8_0000_0000_0000
    bits: int = struct.unpack(">Q", struct.pack(">d", value))[0]
    return bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63)


def internal_value(scalar: pa.Scalar) -> object:
    """The internal value of an Arrow scalar: temporal values as integers in the unit of the type, null as None."""
    value: object = scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()
    return value


def key_at(columns: Sequence[pa.Array], row_index: int) -> KeyTuple:
    """The key at one row of the key columns."""
    return tuple(comparable(internal_value(column[row_index])) for column in columns)


def rows_before(columns: Sequence[pa.Array], key: KeyTuple, *, inclusive: bool) -> int:
    """Number of rows of sorted key columns before `key`; with `inclusive`, also those equal to it."""
    low, high = 0, len(columns[0])
    for column, wanted in zip(columns[:-1], key[:-1], strict=True):
        low, high = (_place(column, wanted, low, high, inclusive=side) for side in (False, True))
    return _place(columns[-1], key[-1], low, high, inclusive=inclusive)


def _place(column: pa.Array, wanted: Any, low: int, high: int, *, inclusive: bool) -> int:
    """Where a value belongs among the sorted rows from ``low`` to ``high``; behind equal ones with `inclusive`."""
    if pa.types.is_signed_integer(column.type) and column.null_count == 0:
        found = column.to_numpy()[low:high].searchsorted(wanted, "right" if inclusive else "left")
        return low + int(found)
    search = bisect_right if inclusive else bisect_left
    return search(_Values(column), wanted, low, high)


class _Values(Sequence[object]):
    """A column as a sequence of comparable values, for bisect."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        return comparable(internal_value(self._column[index]))


def key_order(columns: Sequence[pa.Array], *, presorted: bool) -> tuple[IndexArray, BoolArray]:
    """The stable order of rows by key.

    Args:
        columns: at least one key column, each (n,), no nulls.
        presorted: the rows are a few concatenated sorted runs; affects only speed.

    Returns:
        (n,) row indices in key order, rows of one key in input order; and (n,) whether an ordered row starts a
        new key.

    Raises:
        InvalidInputError: a key is null, or of an unorderable type.
    """
    parts: list[Part] = []
    for index, column in enumerate(columns):
        if column.null_count:
            raise InvalidInputError(f"a key is null: key_column_index={index} null_count={column.null_count}")
        parts += parts_of(column)
    return stable_order(parts, len(columns[0]), presorted=presorted)


def order_by_sequence(
    order: IndexArray, starts: BoolArray, sequences: Sequence[pa.Array], *, descending: bool | Sequence[bool] = False
) -> IndexArray:
    """The order with the rows of each key sorted by their sequences, oldest first.

    Args:
        order: (n,) rows in key order; rows that tie on every sequence keep their order.
        starts: (n,) whether an ordered row starts a new key.
        sequences: most significant first, over all rows (not only ordered ones); null is oldest in either
            direction.
        descending: smaller is newer; one flag for all sequences or one each.

    Returns:
        (n,) the order; `order` itself if it is already right, which is a cheap check.
    """
    directions = [descending] * len(sequences) if isinstance(descending, bool) else descending
    undecided = ~starts[1:]
    wrong = np.zeros(len(undecided), np.bool_)
    parts: list[Part] = []
    for column, is_descending in zip(sequences, directions, strict=True):
        # Later sequences matter when rows tie, or when rows must move and may then tie with others.
        if not (undecided.any() or wrong.any()):
            break
        for part in number_parts_of(column, descending=is_descending):
            values = part.values[order]
            wrong |= undecided & (values[1:] < values[:-1])
            undecided &= values[1:] == values[:-1]
            parts.append(part)
    if not wrong.any():
        return order
    groups = np.cumsum(starts) - 1
    affected = np.zeros(int(groups[-1]) + 1, np.bool_)
    affected[groups[1:][wrong]] = True
    chosen = np.flatnonzero(affected[groups])
    rows = order[chosen]
    resort_parts: list[Part] = [NumberPart(groups[chosen].view(np.uint64)), *(part.take(rows) for part in parts)]
    repaired = order.copy()
    repaired[chosen] = rows[stable_order(resort_parts, len(rows), presorted=False)[0]]
    return repaired


def newest_last(
    rows: pa.Table, order: IndexArray, starts: BoolArray, sequence_names: Sequence[str], *, descending: bool = False
) -> IndexArray:
    """The order with the rows of each key sorted from oldest to newest.

    Args:
        rows: include the sequence fields, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
        order: (n,) rows in key order.
        starts: (n,) whether an ordered row starts a new key.
        sequence_names: the table's sequence fields, most significant first.
        descending: smaller values of the sequence fields are newer.
    """
    columns = [one_chunk(rows.column(name)) for name in (*sequence_names, SEQUENCE_NUMBER)]
    is_retract = pc.bit_wise_and(one_chunk(rows.column(VALUE_KIND)), pa.scalar(1, pa.int8()))
    directions = [descending] * len(sequence_names) + [False, True]
    return order_by_sequence(order, starts, [*columns, is_retract], descending=directions)
