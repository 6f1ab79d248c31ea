"""Reassembles shredded VARIANT values, of which some fields are stored as columns.

A group has ``value``, the encoded rest, and ``typed_value``: a column of one type, a group for each field of an object,
or a list of such groups. Where both are null there is no value; an object may have fields in both. The metadata of a
value is a list of names; objects refer to their fields by index in it.

Source: parquet-format VariantShredding, as Paimon and Spark write it; VariantEncoding, "Metadata encoding".
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.words import IndexArray

# ---- Arrays of byte strings and lists as flat NumPy arrays with offsets


Bytes: TypeAlias = NDArray[np.uint8]

_MOST_BYTES = 4  # of a number in a container


def malformed(reason: str) -> CorruptDataError:
    """The error for malformed stored values."""
    return CorruptDataError(f"a VARIANT is malformed: reason='{reason}'")


def starts_of(counts: IndexArray) -> IndexArray:
    """(n + 1,) where each of n lists begins, and where the last one ends."""
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found


def places_from(starts: IndexArray, counts: IndexArray, steps: IndexArray | int = 1) -> IndexArray:
    """For each of n lists the ``counts`` positions from its start on, ``steps`` apart, one list after the other."""
    begins = starts_of(counts)
    found: IndexArray = np.arange(begins[-1], dtype=np.int64) - np.repeat(begins[:-1], counts)
    found *= steps if isinstance(steps, int) else np.repeat(steps, counts)
    found += np.repeat(starts, counts)
    return found


def flat_bytes(values: pa.Array) -> tuple[Bytes, IndexArray]:
    """The bytes of an array of byte strings, and the n + 1 offsets in them; a null is an empty one."""
    if not len(values):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    large = values.cast(pa.large_binary())
    offsets: IndexArray = np.frombuffer(large.buffers()[1], np.int64, len(large) + 1, large.offset * 8)
    data = large.buffers()[2]
    return np.frombuffer(b"" if data is None else data, np.uint8), offsets


def byte_strings(data: Bytes, offsets: IndexArray) -> pa.Array:
    """(n,) byte strings of flat bytes and n + 1 offsets."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def cut_out(data: Bytes, starts: IndexArray, ends: IndexArray) -> pa.Array:
    """(n,) byte strings from anywhere in flat bytes. Raises: CorruptDataError: one is not inside."""
    if len(starts) and (starts.min() < 0 or ends.max() > len(data) or (ends < starts).any()):
        raise malformed("a part is outside of its value")
    lengths = ends - starts
    return byte_strings(data[places_from(starts, lengths)], starts_of(lengths))


def numbers_at(data: Bytes, places: IndexArray, widths: IndexArray) -> IndexArray:
    """(n,) unsigned numbers of 1 to 4 bytes, lowest byte first. Raises: CorruptDataError: one is not inside."""
    if len(places) and (places.min() < 0 or (places + widths).max() > len(data)):
        raise malformed("it ends too early")
    found = np.zeros(len(places), np.int64)
    for index in range(_MOST_BYTES):
        inside = widths > index
        found[inside] |= data[places[inside] + index].astype(np.int64) << (8 * index)
    return found


def number_bytes(numbers: IndexArray, widths: IndexArray) -> Bytes:
    """Flat: the lowest 1 to 8 bytes of each number, lowest byte first."""
    every = np.ascontiguousarray(numbers.astype("<i8")).view(np.uint8).reshape(-1, 8)
    return every[np.arange(8) < widths[:, None]]


def width_of(numbers: IndexArray) -> IndexArray:
    """(n,) how many of 1 to 4 bytes hold each number."""
    return 1 + (numbers > 0xFF).astype(np.int64) + (numbers > 0xFFFF) + (numbers > 0xFFFFFF)


# ---- Objects and arrays of VARIANT: taken apart, and made of their parts
# Behind its first byte a container has the number of its parts, for an object their names as places in the metadata, in
# the order of the names, then where each part begins, then the parts.
# Source: parquet-format VariantEncoding, "Value Data for Object", "Value Data for Array".


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


# ---- Reassembles shredded VARIANT values, of which some fields are stored as columns


_VERSION = 1


@dataclass(frozen=True, slots=True)
class NameLists:
    """The different lists of names of a column, L of them with E names together, of which N are different.

    Names have numbers in the order of their bytes, which is the order of the fields of an object.
    """

    of_row: IndexArray  # (n,) the list of each row; -1: the row is null
    names: pa.Array  # (N,) in order
    entries: IndexArray  # (E,) the number of each name, list after list
    starts: IndexArray  # (L + 1,) where each list begins
    _pairs: IndexArray  # (E,) list and number as one, in order
    _places: IndexArray  # (E,) the place in its list of each of them

    @classmethod
    def of(cls, metadata: pa.Array) -> "NameLists":
        """Those of a column of metadata. Raises: CorruptDataError: one has another version or ends too early."""
        lists = metadata.cast(pa.large_binary()).dictionary_encode()
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        data, offsets = flat_bytes(lists.dictionary)
        begins, ends = offsets[:-1], offsets[1:]
        if (begins == ends).any():
            raise malformed("it has no metadata")
        heads = data[begins].astype(np.int64)
        if (heads & 15 != _VERSION).any():
            raise malformed("its metadata has another version")
        widths = (heads >> 6) + 1
        counts = numbers_at(data, begins + 1, widths)
        if (begins + 1 + widths * (counts + 2) > ends).any():
            raise malformed("its metadata ends too early")
        offset_count = counts + 1
        inside = numbers_at(
            data, places_from(begins + 1 + widths, offset_count, widths), np.repeat(widths, offset_count)
        )
        texts = inside + np.repeat(begins + 1 + widths * (counts + 2), offset_count)
        if (texts > np.repeat(ends, offset_count)).any():
            raise malformed("its metadata ends too early")
        rows = starts_of(offset_count)
        firsts = np.delete(np.arange(rows[-1]), rows[1:] - 1)
        found = cut_out(data, texts[firsts], texts[firsts + 1])
        different = pc.unique(found)
        different = different.take(pc.array_sort_indices(different))
        entries = pc.index_in(found, different).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = np.repeat(np.arange(len(counts)), counts) * max(len(different), 1) + entries
        order = np.argsort(pairs, kind="stable")
        starts = starts_of(counts)
        places = np.arange(len(entries)) - np.repeat(starts[:-1], counts)
        of_row = pc.fill_null(lists.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(of_row, different, entries, starts, pairs[order], places[order])

    def number(self, name: str) -> int | None:
        """The number of a name; None: no row has it."""
        found = pc.index_in(pa.array([name.encode()], pa.large_binary()), self.names)[0].as_py()
        return None if found is None else int(found)

    def places(self, lists: IndexArray, numbers: IndexArray) -> IndexArray:
        """(n,) places of names in lists. Raises: CorruptDataError: a list has not the name."""
        wanted = lists * max(len(self.names), 1) + numbers
        found = np.searchsorted(self._pairs, wanted)
        if len(wanted) and (found.max() >= len(self._pairs) or (self._pairs[found] != wanted).any()):
            raise malformed("its metadata lacks the name of a shredded field")
        places: IndexArray = self._places[found]
        return places

    def numbers(self, lists: IndexArray, places: IndexArray) -> IndexArray:
        """(n,) numbers of names by places in lists. Raises: CorruptDataError: a list has no such place."""
        found = self.starts[lists] + places
        if (found >= self.starts[lists + 1]).any():
            raise malformed("a field has no name in its metadata")
        numbers: IndexArray = self.entries[found]
        return numbers


VALUE_PART: Final = "value"
TYPED_PART: Final = "typed_value"
METADATA_PART: Final = "metadata"

_KIND: Final = pa.large_binary()


def put_together(column: pa.StructArray) -> pa.Array:
    """The whole values of a column.

    Args:
        column: (n,) with the fields ``metadata``, ``typed_value``, and mostly ``value``; the metadata holds all names.

    Returns:
        (n,) byte strings, which belong to the same metadata; null where the row is.

    Raises:
        CorruptDataError: parts that do not fit each other or their metadata.
        InvalidInputError: a column of a type that no shredded value has.
    """
    parts = _fields(column)
    if parts[METADATA_PART].null_count > column.null_count:
        raise malformed("it has no metadata")
    names = NameLists.of(parts[METADATA_PART])
    found = _values(parts, names, names.of_row)
    return pc.if_else(column.is_valid(), pc.fill_null(found, NULL_VALUE), pa.scalar(None, _KIND))


def _fields(group: pa.StructArray) -> dict[str, pa.Array]:
    """The fields of a group, null where the group is. Raises: CorruptDataError: it is none."""
    if not pa.types.is_struct(group.type):
        raise malformed(f"a part is no group but {group.type}")
    return dict(zip([field.name for field in group.type], group.flatten(), strict=True))


def _values(parts: dict[str, pa.Array], names: NameLists, lists: IndexArray) -> pa.Array:
    """(n,) values of a group; null where there is none. ``lists`` has the list of names of each."""
    typed = parts.get(TYPED_PART)
    value = parts[VALUE_PART].cast(_KIND) if VALUE_PART in parts else pa.nulls(len(lists), _KIND)
    if typed is None:
        return value
    if pa.types.is_struct(typed.type):
        return _objects(typed, value, names, lists)
    if pc.any(pc.and_(typed.is_valid(), value.is_valid())).as_py():
        raise malformed("it has two values")
    return pc.coalesce(_arrays(typed, names, lists) if _is_list(typed.type) else encoded(typed), value)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _arrays(typed: pa.Array, names: NameLists, lists: IndexArray) -> pa.Array:
    counts = pc.fill_null(pc.list_value_length(typed), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = _values(_fields(typed.flatten()), names, np.repeat(lists, counts))
    made = arrays(counts, pc.fill_null(elements, NULL_VALUE))
    return pc.if_else(typed.is_valid(), made, pa.scalar(None, _KIND))


def _objects(typed: pa.StructArray, value: pa.Array, names: NameLists, lists: IndexArray) -> pa.Array:
    """Objects of the fields that are columns, and of those in ``value``."""
    is_object = typed.is_valid()
    rows, numbers, places, parts = [], [], [], []
    for name, group in _fields(typed).items():
        found = _values(_fields(group), names, lists)
        (present,) = np.nonzero(found.is_valid().to_numpy(zero_copy_only=False))
        number = names.number(name)
        if not len(present):
            continue
        if number is None:
            raise malformed("its metadata lacks the name of a shredded field")
        rows.append(present)
        numbers.append(np.full(len(present), number, np.int64))
        places.append(names.places(lists[present], numbers[-1]))
        parts.append(found.drop_null())
    has_rest = pc.and_(is_object, value.is_valid())
    if pc.any(has_rest).as_py():
        (with_rest,) = np.nonzero(has_rest.to_numpy(zero_copy_only=False))
        index, more, rest = object_parts(value.filter(has_rest))
        rows.append(with_rest[index])
        places.append(more)
        numbers.append(names.numbers(lists[rows[-1]], more))
        parts.append(rest)
    counts = np.zeros(len(lists), np.int64)
    if not rows:
        made = objects(counts, counts[:0], pa.nulls(0, _KIND))
    else:
        row, name_number = np.concatenate(rows), np.concatenate(numbers)
        order = np.lexsort((name_number, row))
        if ((row[order][1:] == row[order][:-1]) & (name_number[order][1:] == name_number[order][:-1])).any():
            raise malformed("it has a field twice")
        counts = np.bincount(row, minlength=len(lists)).astype(np.int64)
        made = objects(counts, np.concatenate(places)[order], pa.concat_arrays(parts).take(pa.array(order)))
    return pc.if_else(is_object, made, value)


# ---- Columns of one type as VARIANT values, in the shortest form, as Spark and Paimon build them
#
# A value begins with a byte: two bits say of which kind it is, six which type, or the length of a short text. Source:
# parquet-format VariantEncoding, "Value encoding"; VariantShredding, "Shredded Value Types".


NULL_VALUE: Final = b"\x00"

_TRUE, _FALSE, _INTEGERS = 1, 2, {1: 3, 2: 4, 4: 5, 8: 6}
_DOUBLE, _DECIMALS, _DATE, _FLOAT, _BINARY, _TEXT, _UUID = 7, {4: 8, 8: 9, 16: 10}, 11, 14, 15, 16, 20
_MOST_SHORT: Final = 63  # bytes of a text whose length is in the first byte
_DIGITS: Final = {4: 9, 8: 18}  # of a decimal by the bytes that hold it
_UUID_BYTES: Final = 16
_TIMES: Final = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}
_TIME: Final = 17


def encoded(values: pa.Array) -> pa.Array:
    """The values of a column, as byte strings; null where it is null.

    Raises:
        InvalidInputError: a type that no shredded value has.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        return encoded(values.storage)
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.large_binary())
    if pa.types.is_boolean(kind):
        made = pc.if_else(values, bytes([_TRUE << 2]), bytes([_FALSE << 2])).cast(pa.large_binary())
    elif pa.types.is_integer(kind):
        made = _integers(pc.fill_null(values.cast(pa.int64()), 0).to_numpy())
    elif pa.types.is_decimal(kind) and kind.bit_width <= 128:
        made = _decimals(values)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        made = _texts(pc.fill_null(values, "").cast(pa.large_binary()))
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        made = _sized(_BINARY, pc.fill_null(values.cast(pa.large_binary()), b""))
    else:
        made = _fixed(values)
    return pc.if_else(values.is_valid(), made, pa.scalar(None, pa.large_binary())) if values.null_count else made


def _integers(values: NDArray[np.int64]) -> pa.Array:
    widths = np.full(len(values), 8, np.int64)
    for width, kind in ((4, np.int32), (2, np.int16), (1, np.int8)):
        widths[(values >= np.iinfo(kind).min) & (values <= np.iinfo(kind).max)] = width
    heads = np.zeros(9, np.uint8)
    heads[[*_INTEGERS]] = [each << 2 for each in _INTEGERS.values()]
    return _behind(heads[widths], number_bytes(values, widths), widths)


def _decimals(values: pa.Array) -> pa.Array:
    """Scale in a byte, then the digits as a number of 4, 8 or 16 bytes."""
    scale = values.type.scale
    wide = pc.fill_null(values.cast(pa.decimal128(38, scale)), 0)
    words = np.frombuffer(wide.buffers()[1], np.int64, 2 * len(wide), wide.offset * 16).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    is_long = high == (low >> 63)  # the upper half repeats the sign
    widths = np.full(len(wide), 16, np.int64)
    for width, digits in sorted(_DIGITS.items(), reverse=True):
        widths[is_long & (low < 10**digits) & (low > -(10**digits))] = width
    heads = np.zeros(17, np.uint8)
    heads[[*_DECIMALS]] = [each << 2 for each in _DECIMALS.values()]
    every = np.empty((len(wide), 17), np.uint8)
    every[:, 0] = scale
    every[:, 1:] = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 16)
    return _behind(heads[widths], every[np.arange(17) <= widths[:, None]], widths + 1)


def _texts(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values)
    is_short = pc.less_equal(lengths, _MOST_SHORT)
    sizes = pc.if_else(is_short, lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    heads = byte_strings((sizes << 2 | 1).astype(np.uint8), np.arange(len(values) + 1))
    return pc.if_else(is_short, end_to_end(heads, values), _sized(_TEXT, values))


def _sized(kind: int, values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    every = np.empty((len(values), 5), np.uint8)
    every[:, 0] = kind << 2
    every[:, 1:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return end_to_end(byte_strings(every.ravel(), np.arange(len(values) + 1) * 5), values)


def _fixed(values: pa.Array) -> pa.Array:
    """Types whose values have one length, as they lie in memory. Raises: InvalidInputError: another type."""
    kind = values.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        head, plain = (_FLOAT if pa.types.is_float32(kind) else _DOUBLE), values
    elif pa.types.is_date(kind):
        head, plain = _DATE, values.cast(pa.date32())
    elif pa.types.is_time(kind):
        head, plain = _TIME, values.cast(pa.time64("us"))
    elif pa.types.is_timestamp(kind):
        unit = "ns" if kind.unit == "ns" else "us"
        head, plain = _TIMES[unit, kind.tz is not None], values.cast(pa.timestamp(unit, kind.tz))
    elif pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        head, plain = _UUID, values
    else:
        raise InvalidInputError(f"no shredded VARIANT has parts of this type: type={kind}")
    width = plain.type.byte_width
    every = np.empty((len(plain), 1 + width), np.uint8)
    every[:, 0] = head << 2
    every[:, 1:] = np.frombuffer(plain.buffers()[1], np.uint8, width * len(plain), width * plain.offset).reshape(
        -1, width
    )
    return byte_strings(every.ravel(), np.arange(len(plain) + 1) * (1 + width))


def _behind(heads: Bytes, data: Bytes, widths: IndexArray) -> pa.Array:
    """Byte strings of one byte each, and of what is behind it."""
    return end_to_end(byte_strings(heads, np.arange(len(heads) + 1)), byte_strings(data, starts_of(widths)))


def end_to_end(*parts: pa.Array) -> pa.Array:
    """Byte strings, one behind the other."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))
