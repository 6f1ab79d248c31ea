"""Records of one Avro schema as columns, read by a cursor in each record.

Every step reads one field of all records, then all cursors move on. A record that is not one gets a mark and no
error: records have no length, so a reader may set cursors at places that only look like the start of one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lsm.keys.words import BoolArray, IndexArray
from lsm.varints import read_varint, read_varints, word_view

PADDING: Final = 24
"""Zero bytes that must follow the records, so that a word can be read at every place."""

EncodedBytes: TypeAlias = NDArray[np.uint8]

_CONTINUES: Final = 0x80  # bytes of a varint before its last are not below it
_FEW_LISTS: Final = 64  # for which a loop over items is about as fast as one over positions
_HAS_VALUE: Final = 2  # the branch of a union, zigzag encoded; null is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a record; those of nested records are in its place, their names joined by dots."""

    name: str
    kind: str  # "number", "bytes" or "array"
    is_nullable: bool  # a union with null as its first branch
    item: "Field | None" = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """(n,) values; arbitrary where not valid, None: all are."""

    values: NDArray[np.int64]
    valid: BoolArray | None


@dataclass(frozen=True, slots=True)
class Spans:
    """(n,) places of the first byte and behind the last, in the bytes that were read; empty where not valid."""

    starts: IndexArray
    ends: IndexArray
    valid: BoolArray | None


@dataclass(frozen=True, slots=True)
class Lists:
    """(n,) counts, and the items of all lists, one list after the other; None: the column is not wanted."""

    counts: IndexArray
    items: "Numbers | Spans | None"
    valid: BoolArray | None


Column: TypeAlias = Numbers | Spans | Lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What stands at some places."""

    columns: Mapping[str, Column]
    ends: IndexArray  # (n,) behind each record
    is_bad: BoolArray  # (n,) there is no record here


def flat_fields(schema: Mapping[str, Any], prefix: str = "") -> tuple[Field, ...]:
    """The fields of a record schema: int, long, string, bytes, arrays of nullable numbers or of texts, and records."""
    found: list[Field] = []
    for field in schema["fields"]:
        name, kind = prefix + field["name"], field["type"]
        if isinstance(kind, Mapping) and kind["type"] == "record":
            found += flat_fields(kind, f"{name}.")
        else:
            found.append(_field(name, kind))
    return tuple(found)


def _field(name: str, kind: Any) -> Field:
    is_nullable = isinstance(kind, list)
    if is_nullable:
        null, kind = kind
        assert null == "null"
    if isinstance(kind, Mapping) and kind["type"] == "array":
        return Field(name=name, kind="array", is_nullable=is_nullable, item=_field(name, kind["items"]))
    plain = kind["type"] if isinstance(kind, Mapping) else kind
    return Field(name=name, kind=_KINDS[plain], is_nullable=is_nullable)


_KINDS: Final = {"int": "number", "long": "number", "string": "bytes", "bytes": "bytes"}


def walk_records(
    data: EncodedBytes, starts: IndexArray, fields: Sequence[Field], wanted: Collection[str] | None = None
) -> Records:
    """Read a record at every place.

    Args:
        data: bytes, then at least PADDING zeros.
        starts: (n,) places before the padding.
        fields: of the records.
        wanted: names of the columns to return; None is all.
    """
    walk = _Walk(data, starts)
    columns = {}
    for field in fields:
        is_wanted = wanted is None or field.name in wanted
        column = walk.read(field, None, keeps_items=is_wanted)
        if is_wanted:
            columns[field.name] = column
    return Records(columns=columns, ends=walk.places, is_bad=walk.is_bad)


class _Walk:
    def __init__(self, data: EncodedBytes, starts: IndexArray) -> None:
        self._data, self._words = data, word_view(data)
        self._size = len(data) - PADDING
        self.places = starts
        self.is_bad = np.zeros(len(starts), np.bool_)

    def read(self, field: Field, present: BoolArray | None, *, keeps_items: bool = True) -> Column:
        valid = self._branches(present) if field.is_nullable else present
        if field.kind == "array":
            assert field.item is not None
            return self._lists(field.item, valid, keeps_items=keeps_items)
        numbers = self._numbers(valid)
        if field.kind == "number":
            return Numbers(numbers, valid)
        if valid is not None:
            numbers = numbers * valid
        return self._spans(numbers, valid)

    def _spans(self, sizes: IndexArray, valid: BoolArray | None) -> Spans:
        self._mark((sizes < 0) | (sizes > self._size))
        starts = self.places
        self._move(np.minimum(np.maximum(sizes, 0), self._size))
        return Spans(starts, self.places, valid)

    def _branches(self, present: BoolArray | None) -> BoolArray | None:
        """Which values are not null; None: all."""
        here = self._data[self.places]
        is_branch = (here | _HAS_VALUE) == _HAS_VALUE
        self._mark(~is_branch if present is None else ~is_branch & present)
        self._move(1 if present is None else present.astype(np.int64))
        valid: BoolArray = here == _HAS_VALUE
        if present is not None:
            valid &= present
        return None if valid.all() else valid

    def _numbers(self, present: BoolArray | None) -> NDArray[np.int64]:
        here = self._data[self.places]
        lengths: Any = 1
        if len(here) and here.max() < _CONTINUES:
            unsigned = here.astype(np.int64)
            numbers = (unsigned >> 1) ^ -(unsigned & 1)
        else:
            numbers, lengths, too_long = read_varints(self._words, self.places)
            if too_long is not None:
                self._mark(too_long if present is None else too_long & present)
        self._move(lengths if present is None else lengths * present)
        return numbers

    def _lists(self, item: Field, present: BoolArray | None, *, keeps_items: bool) -> Lists:
        counts = self._numbers(present)
        if present is not None:
            counts = counts * present
        # an item has a byte, so what is longer than the rest of the bytes is no list
        is_odd = (counts < 0) | (counts > self._size - self.places)
        counts[is_odd | self.is_bad] = 0
        if counts.sum() > self._size:  # nor are all of them, as records do not overlap; likely the longest are none
            order = np.argsort(counts)
            is_odd[order[np.cumsum(counts[order]) > self._size]] = True
            counts[is_odd] = 0
        self._mark(is_odd)
        items = self._items(item, counts)
        # an array ends with an empty block; without items it is that block
        here = counts > 0
        ends = self._numbers(None if here.all() else here)
        self._mark((ends != 0) & here)
        return Lists(counts, items if keeps_items else None, present)

    def _items(self, item: Field, counts: IndexArray) -> Numbers | Spans:
        """The next item of every list that is not over; where few are left, each of them to its end."""
        found, valid = np.zeros((2, counts.sum()), np.int64), np.ones(counts.sum(), np.bool_)
        ends = np.cumsum(counts)
        at, rows = ends - counts, np.flatnonzero(counts)
        self.places = self.places.copy()
        while len(rows) > _FEW_LISTS:
            walk, here = _Walk(self._data, self.places[rows]), at[rows]
            column = walk.read(item, None)
            if isinstance(column, Spans):
                found[0, here], found[1, here] = column.starts, column.ends
            elif isinstance(column, Numbers):
                found[0, here] = column.values
            if column.valid is not None:
                valid[here] = column.valid
            self.places[rows], self.is_bad[rows], at[rows] = walk.places, walk.is_bad, here + 1
            rows = rows[~walk.is_bad & (here + 1 < ends[rows])]
        for row in rows.tolist():
            rest = slice(at[row], ends[row])
            try:
                read = _read_items(self._data, item, int(self.places[row]), rest.stop - rest.start)
            except ValueError:
                self.is_bad[row] = True
            else:
                found[:, rest], valid[rest], self.places[row] = np.array(read[0]).T, read[1], read[2]
        is_valid = None if valid.all() else valid
        return Numbers(found[0], is_valid) if item.kind == "number" else Spans(found[0], found[1], is_valid)

    def _mark(self, is_bad: BoolArray) -> None:
        self.is_bad |= is_bad

    def _move(self, lengths: Any) -> None:
        places = self.places + lengths
        if len(places) and places.max() > self._size:
            self._mark(places > self._size)
            places = np.minimum(places, self._size)
        self.places = places


def _read_items(data: EncodedBytes, item: Field, at: int, count: int) -> tuple[list[tuple[int, int]], list[bool], int]:
    """The numbers, each with a 0, or the spans of the items from a place on; which are valid; the place behind them.

    Raises: ValueError: there are no such items.
    """
    view, size = data.data, len(data) - PADDING
    found, valid = [], []
    for _ in range(count):
        if at >= size or (item.is_nullable and view[at] not in (0, _HAS_VALUE)):
            raise ValueError("not an item")
        valid.append(not item.is_nullable or view[at] == _HAS_VALUE)
        at += item.is_nullable
        number, end = read_varint(view, at) if valid[-1] else (0, at)
        if item.kind == "number":
            found.append((number, 0))
            at = end
        elif number < 0:
            raise ValueError("not a size")
        else:
            found.append((end, end + number))
            at = end + number
    if at > size:
        raise ValueError("behind the end")
    return found, valid, at
