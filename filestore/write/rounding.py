"""``write.round-values``: values brought to the precision of their column before they are checked.

Times are rounded towards the past, decimals half up to the column's scale, DOUBLE to the nearest FLOAT. Values outside
the column's range stay as they are and are refused by the check that follows.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def rounded(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values, still in their own type, such that a checked cast to ``wanted`` changes none of them.

    Args:
        array: (n,) of any type that is not nested.
        wanted: type of the column.
    """
    given = array.type
    types = pa.types
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return pc.floor_temporal(array, unit=_UNIT_NAMES[wanted.unit]) if _is_finer(given, wanted) else array
    if types.is_time(given) and types.is_time(wanted):
        return array.cast(wanted, safe=False).cast(given) if _is_finer(given, wanted) else array
    if types.is_float64(given) and types.is_float32(wanted):
        near = array.cast(wanted)
        overflows = pc.and_(pc.is_inf(near), pc.is_finite(array))
        return pc.if_else(overflows, array, near.cast(given))
    if types.is_decimal(given) and types.is_decimal(wanted) and given.scale > wanted.scale:
        wide = array.cast(pa.decimal256(76, given.scale))  # rounding up may need one digit more
        return pc.round(wide, ndigits=wanted.scale, round_mode="half_towards_infinity")
    return array


def inexact_floats(given: pa.Array, found: pa.Array) -> pa.Array | None:
    """DOUBLE values that their cast to FLOAT changed; None: there are none, or the types are others.

    Args:
        given: the values.
        found: the same values after the cast to the column's type.
    """
    if not (pa.types.is_float64(given.type) and pa.types.is_float32(found.type)):
        return None
    changed = pc.and_not(pc.not_equal(found.cast(pa.float64()), given), pc.is_nan(given))
    return given.filter(changed) if pc.any(changed).as_py() else None


def _is_finer(given: pa.DataType, wanted: pa.DataType) -> bool:
    return _NANOS[given.unit] < _NANOS[wanted.unit]
