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
from lsm.varints import read_varints, word_view

PADDING: Final = 24
"""Zero bytes that must follow the records, so that a word can be read at every place."""

EncodedBytes: TypeAlias = NDArray[np.uint8]

_MOST_ITEMS: Final = 4096  # of an array; what has more is no record


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
    """(n,) counts, and for each position in a list a column of all records; arbitrary behind the end of a list."""

    counts: IndexArray
    items: Sequence["Column"]
    valid: BoolArray | None


Column: TypeAlias = Numbers | Spans | Lists


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What stands at some places."""

    columns: Mapping[str, Column]
    ends: IndexArray  # (n,) behind each record
    is_bad: BoolArray  # (n,) there is no record here


def flat_fields(schema: Mapping[str, Any], prefix: str = "") -> tuple[Field, ...]:
    """The fields of a record schema, which consists of int, long, string, bytes, arrays of them, and records."""
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
        column = walk.read(field, None)
        if wanted is None or field.name in wanted:
            columns[field.name] = column
    return Records(columns=columns, ends=walk.places, is_bad=walk.is_bad)


class _Walk:
    def __init__(self, data: EncodedBytes, starts: IndexArray) -> None:
        self._data, self._words = data, word_view(data)
        self._size = len(data) - PADDING
        self.places = starts
        self.is_bad = np.zeros(len(starts), np.bool_)

    def read(self, field: Field, present: BoolArray | None) -> Column:
        valid = self._branches(present) if field.is_nullable else present
        if field.kind == "array":
            assert field.item is not None
            return self._lists(field.item, valid)
        numbers = self._numbers(valid)
        if field.kind == "number":
            return Numbers(numbers, valid)
        if valid is not None:
            numbers = numbers * valid
        self._mark((numbers < 0) | (numbers > self._size))
        starts = self.places
        self._move(np.minimum(np.maximum(numbers, 0), self._size))
        return Spans(starts, self.places, valid)

    def _branches(self, present: BoolArray | None) -> BoolArray | None:
        """Which values are not null; None: all."""
        here = self._data[self.places]
        is_branch = (here | 2) == 2
        self._mark(~is_branch if present is None else ~is_branch & present)
        self._move(1 if present is None else present.astype(np.int64))
        valid: BoolArray = here == 2
        if present is not None:
            valid &= present
        return None if valid.all() else valid

    def _numbers(self, present: BoolArray | None) -> NDArray[np.int64]:
        here = self._data[self.places]
        lengths: Any = 1
        if len(here) and here.max() < 0x80:
            unsigned = here.astype(np.int64)
            numbers = (unsigned >> 1) ^ -(unsigned & 1)
        else:
            numbers, lengths, too_long = read_varints(self._words, self.places)
            if too_long is not None:
                self._mark(too_long if present is None else too_long & present)
        self._move(lengths if present is None else lengths * present)
        return numbers

    def _lists(self, item: Field, present: BoolArray | None) -> Lists:
        counts = self._numbers(present)
        if present is not None:
            counts = counts * present
        is_odd = (counts < 0) | (counts > _MOST_ITEMS)
        self._mark(is_odd)
        counts = np.where(is_odd, 0, counts)
        items = []
        for position in range(int(counts.max(initial=0))):
            here = counts > position
            items.append(self.read(item, None if here.all() else here))
        # an array ends with an empty block; without items it is that block
        here = counts > 0
        ends = self._numbers(None if here.all() else here)
        self._mark((ends != 0) & here)
        return Lists(counts, items, present)

    def _mark(self, is_bad: BoolArray) -> None:
        self.is_bad |= is_bad

    def _move(self, lengths: Any) -> None:
        places = self.places + lengths
        if len(places) and places.max() > self._size:
            self._mark(places > self._size)
            places = np.minimum(places, self._size)
        self.places = places
