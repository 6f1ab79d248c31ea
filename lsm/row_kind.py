"""The kind of a changed row, and the system columns that the LSM tree adds to the table's columns.

Source: Paimon spec "Data files"; the symbols are those of Flink's changelog.
"""

from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SEQUENCE_NUMBER: Final = "_SEQUENCE_NUMBER"
VALUE_KIND: Final = "_VALUE_KIND"
ROW_ID: Final = "_ROW_ID"
KEY_PREFIX: Final = "_KEY_"

SEQUENCE_NUMBER_FIELD: Final = pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False)
VALUE_KIND_FIELD: Final = pa.field(VALUE_KIND, pa.int8(), nullable=False)


class RowKind(IntEnum):
    """The kind of a change; data files store its number in ``_VALUE_KIND``."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        """The two characters shown to users: ``+I -U +U -D``."""
        return _SYMBOLS[self]

    @property
    def is_retract(self) -> bool:
        """True for ``-U`` and ``-D``: the row retracts an earlier one."""
        return self in (RowKind.UPDATE_BEFORE, RowKind.DELETE)


_SYMBOLS: Final = {RowKind.INSERT: "+I", RowKind.UPDATE_BEFORE: "-U", RowKind.UPDATE_AFTER: "+U", RowKind.DELETE: "-D"}
ROW_KIND_SYMBOLS: Final = pa.array([_SYMBOLS[kind] for kind in sorted(RowKind)], pa.string())
"""The symbols as an Arrow array, indexed by the number of the kind."""


def retracts(kinds: pa.Array) -> pa.BooleanArray:
    """(n,) whether each kind is ``-U`` or ``-D``; null where the kind is.

    Args:
        kinds: (n,) int8 numbers of kinds.
    """
    return pc.equal(pc.bit_wise_and(kinds, _RETRACT), _RETRACT)


_RETRACT: Final = pa.scalar(1, pa.int8())  # the bit of -U and -D


def repeated_kind(kind: RowKind, count: int) -> pa.Array:
    """(count,) int8: the number of one kind."""
    return pa.array(np.full(count, kind, np.int8))
