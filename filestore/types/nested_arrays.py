"""Nested arrays taken apart and put together: their parts without what no row has, and slots below nulls.

Arrow lets a list have values that none of its rows shows, a view show some of them twice, and a part below a null be
anything: also null where the part is NOT NULL. Writers of files look at every slot.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.types.data_types import BYTES, NESTED_ROOTS, VARIANT_ARROW, DataField, DataType, walk
from filestore.types.identity_cache import cached_by_identity
from lsm.errors import InvalidInputError

_MOST_ITEMS: Final = 2**31 - 1  # of a list column in one array


def list_parts(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Of a list of any kind: (n + 1,) offsets from 0, and the elements of its lists, one list after the other.

    Raises: InvalidInputError: the elements are too many for one array.
    """
    return _offsets(array), array.flatten()


def map_parts_of(array: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.Array]:
    """(n + 1,) offsets from 0, keys and values of its maps, one map after the other."""
    keys, values = (
        pa.Array.from_buffers(
            pa.list_(part.type), len(array), array.buffers()[:2], array.null_count, array.offset, children=[part]
        )
        for part in (array.keys, array.items)
    )
    return _offsets(keys), keys.flatten(), values.flatten()


def list_of(array: pa.Array, offsets: pa.Array, elements: pa.Array, target: pa.DataType) -> pa.Array:
    """A list of a type, null where an array is."""
    return pa.ListArray.from_arrays(offsets, elements, type=target, mask=_mask(array))


def map_of(array: pa.Array, offsets: pa.Array, keys: pa.Array, values: pa.Array, target: pa.DataType) -> pa.Array:
    """A map of a type, null where an array is."""
    return pa.MapArray.from_arrays(offsets, keys, values, type=target, mask=_mask(array))


def struct_of(array: pa.Array, parts: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    """A struct of a type with at least one field, null where an array is."""
    return pa.StructArray.from_arrays(parts, fields=list(target), mask=_mask(array))


def with_slots(array: pa.Array, data_type: DataType, name: str) -> pa.Array:
    """The same values, with something in each slot of a NOT NULL part that is below a null.

    Args:
        array: of the Arrow type of ``data_type``.
        data_type: of the column.
        name: of the column.

    Raises:
        InvalidInputError: a NOT NULL part is null, and all that it is a part of is there.
    """
    if data_type.root not in _WITH_PARTS or not _has_required_parts(data_type):
        return array
    if data_type.root in _STRUCTS:
        parts = []
        for part, field in zip(array.flatten(), _fields_of(data_type), strict=True):
            inner = f"{name}.{field.name}"
            check_present(part, field.type, inner, within=array)
            part = with_slots(part, field.type, inner)
            parts.append(part if field.type.nullable else _without_nulls(part))
        return struct_of(array, parts, array.type)
    if pa.types.is_map(array.type):
        offsets, keys, values = map_parts_of(array)
        check_present(keys, _key_of(data_type), f"{name}.key")
        keys = with_slots(keys, _key_of(data_type), f"{name}.key")
        if data_type.value is not None:
            check_present(values, data_type.value, f"{name}.value")
            values = with_slots(values, data_type.value, f"{name}.value")
        return map_of(array, offsets, keys, values, array.type)
    offsets, elements = list_parts(array)
    assert data_type.element is not None
    check_present(elements, data_type.element, f"{name}.element")
    return list_of(array, offsets, with_slots(elements, data_type.element, f"{name}.element"), array.type)


def check_present(part: pa.Array, data_type: DataType, name: str, *, within: pa.Array | None = None) -> None:
    """Refuse nulls in a NOT NULL part, or column.

    Args:
        part: (n,) null also where what it is a part of is null.
        data_type: of the part.
        name: of the part.
        within: (n,) what it is a part of; None: nothing, or nothing that is null.

    Raises: InvalidInputError.
    """
    if data_type.nullable or part.null_count == (0 if within is None else within.null_count):
        return
    is_lost = pc.is_null(part) if within is None else pc.and_(pc.is_null(part), pc.is_valid(within))
    raise InvalidInputError(
        f"null in a NOT NULL column: column={name} row={pc.index(is_lost, pa.scalar(True)).as_py()} type={data_type} "
        "fix='fill or filter the nulls'"
    )


_STRUCTS: Final = frozenset({"ROW", "VARIANT"})
_WITH_PARTS: Final = NESTED_ROOTS | {"VARIANT"}
_PARTS_OF_VARIANT: Final = tuple(
    DataField(id=place, name=field.name, type=replace(BYTES, nullable=False))
    for place, field in enumerate(VARIANT_ARROW)
)


def _fields_of(data_type: DataType) -> tuple[DataField, ...]:
    return _PARTS_OF_VARIANT if data_type.root == "VARIANT" else data_type.fields


def _key_of(data_type: DataType) -> DataType:
    key = data_type.key if data_type.root == "MAP" else data_type.element
    assert key is not None
    return replace(key, nullable=False)


@cached_by_identity(256)
def _has_required_parts(data_type: DataType) -> bool:
    """Whether a part is NOT NULL, at any depth, keys of maps aside."""
    parts = [
        inner
        for part in walk(data_type)
        for inner in (part.element, part.value, *(field.type for field in _fields_of(part)))
    ]
    return any(inner is not None and not inner.nullable for inner in parts)


def _without_nulls(part: pa.Array) -> pa.Array:
    """Something in the place of each null."""
    if not part.null_count:
        return part
    if pa.types.is_struct(part.type):
        inner = [part.field(place) for place in range(part.type.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=list(part.type))
    if pa.types.is_map(part.type):
        offsets, keys, values = map_parts_of(part)
        return pa.MapArray.from_arrays(offsets, keys, values, type=part.type)
    if pa.types.is_list(part.type):
        offsets, elements = list_parts(part)
        return pa.ListArray.from_arrays(offsets, elements, type=part.type)
    return pc.fill_null(part, _zero(part.type))


@lru_cache(256)
def _zero(kind: pa.DataType) -> pa.Scalar:
    """A number 0, an empty text, the first moment: what nulls have in memory."""
    null = pa.nulls(1, kind)
    return pa.Array.from_buffers(kind, 1, [None, *null.buffers()[1:]], 0)[0]


def _offsets(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _MOST_ITEMS:
        raise InvalidInputError(
            f"too many items in one write: items={offsets[-1]} most={_MOST_ITEMS} fix='write smaller batches'"
        )
    return pa.array(offsets, pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
