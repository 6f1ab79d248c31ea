"""Objects and arrays of VARIANT: taken apart, and made of their parts.

Behind its first byte a container has the number of its parts, for an object their names as places in the metadata, in
the order of the names, then where each part begins, then the parts.
Source: parquet-format VariantEncoding, "Value Data for Object", "Value Data for Array".
"""

from typing import Final

import numpy as np
import pyarrow as pa

from filestore.variant.ragged import (
    Bytes,
    byte_strings,
    cut_out,
    flat_bytes,
    malformed,
    number_bytes,
    numbers_at,
    places_from,
    starts_of,
    width_of,
)
from filestore.variant.scalars import end_to_end
from lsm.keys.words import IndexArray

_OBJECT, _ARRAY = 2, 3
_LARGE: Final = 0xFF  # parts; with more, their number has four bytes


def object_parts(values: pa.Array) -> tuple[IndexArray, IndexArray, pa.Array]:
    """The fields of objects, object after object: its index, the place of the name, and the value.

    Args:
        values: (n,) byte strings without nulls.

    Raises:
        CorruptDataError: one is no object, or ends too early.
    """
    data, offsets = flat_bytes(values)
    begins, ends = offsets[:-1], offsets[1:]
    if (begins == ends).any():
        raise malformed("a value is empty")
    heads = data[begins].astype(np.int64)
    if (heads & 3 != _OBJECT).any():
        raise malformed("beside shredded fields is a value that is no object")
    offset_widths, place_widths = (heads >> 2 & 3) + 1, (heads >> 4 & 3) + 1
    count_widths = np.where(heads >> 6 & 1, 4, 1)
    counts = numbers_at(data, begins + 1, count_widths)
    places_at = begins + 1 + count_widths
    offsets_at = places_at + counts * place_widths
    parts_at = offsets_at + (counts + 1) * offset_widths
    if (parts_at > ends).any():
        raise malformed("it ends too early")
    index = np.repeat(np.arange(len(counts)), counts)
    places = numbers_at(data, places_from(places_at, counts, place_widths), np.repeat(place_widths, counts))
    begun = numbers_at(data, places_from(offsets_at, counts, offset_widths), np.repeat(offset_widths, counts))
    sizes = numbers_at(data, offsets_at + counts * offset_widths, offset_widths)
    if (parts_at + sizes > ends).any():
        raise malformed("it ends too early")
    starts = begun + np.repeat(parts_at, counts)
    order = np.lexsort((starts, index))  # parts may lie in another order than their names
    stops = np.empty_like(starts)
    following = np.append(starts[order][1:], 0)
    lasts = (starts_of(counts)[1:] - 1)[counts > 0]
    following[lasts] = (parts_at + sizes)[counts > 0]
    stops[order] = following
    return index, places, cut_out(data, starts, stops)


def objects(counts: IndexArray, places: IndexArray, parts: pa.Array) -> pa.Array:
    """(n,) objects of fields that are in the order of objects and names.

    Args:
        counts: (n,) fields of each object.
        places: (sum of counts,) of their names.
        parts: (sum of counts,) their values, without nulls.
    """
    begins = starts_of(counts)
    widest = np.zeros(len(counts), np.int64)
    filled = counts > 0
    if len(places):
        widest[filled] = np.maximum.reduceat(places, begins[:-1][filled])
    widths = width_of(widest)
    named = byte_strings(number_bytes(places, np.repeat(widths, counts)), starts_of(counts * widths))
    return _containers(_OBJECT, counts, parts, named, widths)


def arrays(counts: IndexArray, parts: pa.Array) -> pa.Array:
    """(n,) arrays of elements that are in order; ``counts`` and ``parts`` as of ``objects``."""
    return _containers(_ARRAY, counts, parts, None, None)


def _containers(
    kind: int, counts: IndexArray, parts: pa.Array, named: pa.Array | None, name_widths: IndexArray | None
) -> pa.Array:
    data, offsets = flat_bytes(parts)
    begins = starts_of(counts)
    bounds = offsets[begins]
    widths = width_of(bounds[1:] - bounds[:-1])
    begun = offsets[places_from(begins[:-1], counts + 1)] - np.repeat(bounds[:-1], counts + 1)
    places = byte_strings(number_bytes(begun, np.repeat(widths, counts + 1)), starts_of((counts + 1) * widths))
    is_large = (counts > _LARGE).astype(np.int64)
    forms = widths - 1 | is_large << 2
    if name_widths is not None:
        forms = widths - 1 | name_widths - 1 << 2 | is_large << 4
    heads = _heads((forms << 2 | kind).astype(np.uint8), counts, is_large)
    return end_to_end(heads, *([named] if named is not None else []), places, byte_strings(data, bounds))


def _heads(forms: Bytes, counts: IndexArray, is_large: IndexArray) -> pa.Array:
    widths = 2 + 3 * is_large
    return byte_strings(number_bytes(counts << 8 | forms, widths), starts_of(widths))
