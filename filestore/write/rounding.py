"""``write.round-values``: values brought to the precision of their column before they are checked.

Times are rounded towards the past, decimals half up to the column's scale, DOUBLE to the nearest FLOAT. Values outside
the column's range stay as they are and are refused by the check that follows.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_NANOS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def rounded(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values, still in their own type, such that a checked cast to ``wanted`` changes none of them.

    Args:
        array: (n,) of any type; nested fields are matched by name.
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
    if types.is_nested(given) and types.is_nested(wanted):
        return _rounded_inside(array, wanted)
    return array


def inexact_floats(given: pa.Array, found: pa.Array) -> pa.Array | None:
    """The first array of DOUBLE values, at any depth, with one that its cast to FLOAT changed; None: there is none.

    Args:
        given: the values.
        found: the same values after the cast to the column's type.
    """
    types = pa.types
    if types.is_float64(given.type) and types.is_float32(found.type):
        changed = pc.and_not(pc.not_equal(found.cast(pa.float64()), given), pc.is_nan(given))
        return given.filter(changed) if pc.any(changed).as_py() else None
    if not types.is_nested(given.type):
        return None
    for one, other in _children(given, found):
        changed_inside = inexact_floats(one, other)
        if changed_inside is not None:
            return changed_inside
    return None


def _is_finer(given: pa.DataType, wanted: pa.DataType) -> bool:
    return _NANOS[given.unit] < _NANOS[wanted.unit]


def _children(given: pa.Array, found: pa.Array) -> Sequence[tuple[pa.Array, pa.Array]]:
    """The parts of nested values before and after a cast, without those below a null."""
    types = pa.types
    if types.is_struct(given.type):
        names = [field.name for field in given.type]
        fields = [field.name for field in found.type]
        return [(pc.struct_field(given, name), pc.struct_field(found, name)) for name in names if name in fields]
    if types.is_map(given.type):
        return [(given.keys, found.keys), (given.items, found.items)]
    return [(pc.list_flatten(given), pc.list_flatten(found))]


def _rounded_inside(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Only children are replaced: offsets and null bitmaps are those of the array."""
    types = pa.types
    if types.is_struct(array.type) and types.is_struct(wanted):
        names = [field.name for field in wanted]
        inner = [
            rounded(array.field(index), wanted.field(field.name).type) if field.name in names else array.field(index)
            for index, field in enumerate(array.type)
        ]
        fields = [field.with_type(child.type) for field, child in zip(array.type, inner, strict=True)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(inner, fields=fields, mask=mask) if inner else array
    if types.is_map(array.type) and types.is_map(wanted):
        keys, items = rounded(array.keys, wanted.key_type), rounded(array.items, wanted.item_type)
        target = pa.map_(array.type.key_field.with_type(keys.type), array.type.item_field.with_type(items.type))
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return _with_child(array, target, entries)
    if types.is_map(array.type) or types.is_struct(array.type) or not types.is_list(wanted):
        return array
    if not types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    values = rounded(array.values, wanted.value_type)
    return _with_child(array, pa.list_(array.type.value_field.with_type(values.type)), values)


def _with_child(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, children=[child]
    )
