"""Reassembles shredded VARIANT values, of which some fields are stored as columns.

A group has ``value``, the encoded rest, and ``typed_value``: a column of one type, a group for each field of an object,
or a list of such groups. Where both are null there is no value; an object may have fields in both. The metadata of a
value is a list of names; objects refer to their fields by index in it.

Source: parquet-format VariantShredding, as Paimon and Spark write it; VariantEncoding, "Metadata encoding".
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.variant.containers import arrays, object_parts, objects
from filestore.variant.ragged import cut_out, flat_bytes, malformed, numbers_at, places_from, starts_of
from filestore.variant.scalars import NULL_VALUE, encoded
from lsm.keys.words import IndexArray

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
