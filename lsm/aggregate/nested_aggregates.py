"""Tables inside of a column: arrays of rows, and maps of rows with a time, of the operands of every key.

No operand is null, every key has at least one. A key with one operand keeps it as it is. Elements are named by their
place in the column, so no value is ever converted. Source: Paimon FieldNestedUpdateAgg, FieldNestedPartialUpdateAgg and
FieldMergeMapWithKeyTimeAgg; they give rows and entries in no order, these in the order of first appearance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.aggregate.operand_types import time_index
from lsm.aggregate.operands import Operands
from lsm.keys.words import BoolArray, IndexArray


def nested_update(operands: Operands, *, nested_key: Sequence[str], count_limit: int | None) -> pa.Array:
    """(k,) the rows of the arrays behind one another; of rows with the same nested key the newest.

    Args:
        operands: ARRAY<ROW>; a retract removes the rows that have its keys, or are equal to its rows.
        nested_key: columns of the rows; none: every row is kept.
        count_limit: an array that has so many rows takes no more; None is no limit.
    """
    elements = _Elements.of(operands)
    if count_limit is not None or operands.retracts.any():
        return _one_by_one(operands, elements, elements.codes(nested_key), bool(nested_key), count_limit)
    kept, owners = elements.mixed()
    if nested_key:
        groups = _Groups.of(elements, elements.codes(nested_key), kept, owners)
        kept, owners = groups.members[groups.lasts], groups.owners
    return elements.lists(kept, owners)


def nested_partial_update(operands: Operands, *, nested_key: Sequence[str]) -> pa.Array:
    """(k,) the rows of the arrays by their nested key; of each column the newest value that is not null."""
    elements = _Elements.of(operands)
    kept, owners = elements.mixed()
    if not len(kept):
        return elements.lists(kept, owners)
    groups = _Groups.of(elements, elements.codes(nested_key), kept, owners)
    children = []
    for index in range(elements.values.type.num_fields):
        child = elements.values.field(index)
        valid = child.is_valid().to_numpy(zero_copy_only=False)[groups.members]
        chosen = np.maximum.reduceat(np.where(valid, np.arange(len(valid)), -1), groups.firsts)
        children.append(child.take(pa.array(groups.members[chosen], mask=chosen < 0)))
    is_null = elements.values.is_null().take(pa.array(groups.members[groups.firsts]))
    rows = pa.StructArray.from_arrays(children, fields=list(elements.values.type), mask=is_null)
    return _Elements(rows, elements.owners, elements.is_mixed, elements.key_count, elements.kind).lists(
        np.arange(len(rows)), groups.owners
    )


def merge_map_with_keytime(operands: Operands, *, time_field: str | None) -> pa.Array:
    """(k,) the union of the maps: of the rows of a map key the one with the greatest time, of equal ones the oldest.

    Args:
        operands: MAP<…, ROW>. A null row removes the map key; a row without time changes nothing.
        time_field: STRING column of the rows, compared as text; None is the last one.
    """
    kind = operands.values.type
    maps = operands.values
    low, high = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    map_keys, items = maps.keys[low:high], maps.items[low:high]
    time_column = items.field(time_index(kind, time_field))
    times = pc.if_else(items.is_valid(), time_column, pa.scalar(None, time_column.type)).to_pylist()
    names, present = _codes(map_keys).tolist(), items.is_valid().to_pylist()
    results: list[dict[int, int] | None] = [None] * operands.key_count
    ends = (maps.offsets.to_numpy() - low).tolist()
    for owner, start, stop in zip(operands.keys.numbers.tolist(), ends[:-1], ends[1:], strict=True):
        result = results[owner]
        if result is None:
            results[owner] = {names[place]: place for place in range(start, stop)}
            continue
        for place in range(start, stop):
            there = result.get(names[place])
            if not present[place]:
                result.pop(names[place], None)
            elif times[place] is None:
                continue
            elif there is None or times[there] is None or _utf16(times[place]) > _utf16(times[there]):
                result[names[place]] = place
    entries = pa.array([place for result in results for place in (result or {}).values()], pa.int64())
    offsets = np.cumsum([0, *(len(result or {}) for result in results)])
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), map_keys.take(entries), items.take(entries), type=kind
    )


def _utf16(text: str) -> bytes:
    """Compares as Java's strings do."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Elements:
    """The rows in the arrays of all operands."""

    values: pa.StructArray  # (e,)
    owners: IndexArray  # (e,) number of the key
    is_mixed: BoolArray  # (k,) whether the key has more than one operand
    key_count: int
    kind: pa.DataType  # of the column

    @classmethod
    def of(cls, operands: Operands) -> "_Elements":
        kind = operands.values.type
        sizes = pc.list_value_length(operands.values).to_numpy(zero_copy_only=False)
        return cls(
            operands.values.flatten(),
            np.repeat(operands.keys.numbers, sizes),
            operands.keys.lasts > operands.keys.firsts,
            operands.key_count,
            kind,
        )

    def codes(self, names: Sequence[str]) -> IndexArray:
        """(e,) equal for rows that are equal in some columns; none: in all."""
        chosen = [self.values.field(name) for name in names] if names else self.values.flatten()
        return _combined([_codes(column) for column in chosen], len(self.values))

    def mixed(self) -> tuple[IndexArray, IndexArray]:
        """Places of the rows that count, and the keys that they are of: null rows go where arrays are put together."""
        valid = self.values.is_valid().to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(valid | ~self.is_mixed[self.owners])
        return kept, self.owners[kept]

    def lists(self, places: IndexArray, owners: IndexArray) -> pa.Array:
        """(k,) the rows at some places as one array for each key."""
        offsets = np.searchsorted(owners, np.arange(self.key_count + 1))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.values.take(pa.array(places)), self.kind)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows with equal nested keys within a key, in the order in which each first appeared."""

    members: IndexArray  # (m,) places of the rows, group by group, oldest first
    firsts: IndexArray  # (g,) where each group begins
    owners: IndexArray  # (g,) the key, never decreasing

    @classmethod
    def of(cls, elements: _Elements, codes: IndexArray, kept: IndexArray, owners: IndexArray) -> "_Groups":
        names = codes[kept]
        alone = ~elements.is_mixed[owners]
        names[alone] = len(codes) + kept[alone]  # what is not put together stays as it is, with equal keys in it
        order = np.lexsort((kept, names, owners))
        starts = np.ones(len(order), np.bool_)
        starts[1:] = (names[order[1:]] != names[order[:-1]]) | (owners[order[1:]] != owners[order[:-1]])
        appeared = np.repeat(order[starts], np.diff(np.append(np.flatnonzero(starts), len(order))))
        order = order[np.lexsort((order, appeared))]
        starts = np.ones(len(order), np.bool_)
        starts[1:] = (names[order[1:]] != names[order[:-1]]) | (owners[order[1:]] != owners[order[:-1]])
        firsts = np.flatnonzero(starts)
        return cls(kept[order], firsts, owners[order[firsts]])

    @property
    def lasts(self) -> IndexArray:
        """(g,) where each group ends."""
        return np.append(self.firsts, len(self.members))[1:] - 1


def _one_by_one(
    operands: Operands, elements: _Elements, codes: IndexArray, has_key: bool, count_limit: int | None
) -> pa.Array:
    """Nested updates whose order matters: with a limit or with retracts."""
    valid = elements.values.is_valid().to_pylist()
    names = codes.tolist()
    sizes = pc.list_value_length(operands.values).to_numpy(zero_copy_only=False)
    stops = np.cumsum(sizes)
    results: list[list[int] | None] = [None] * operands.key_count
    steps = zip(
        operands.keys.numbers.tolist(),
        (stops - sizes).tolist(),
        stops.tolist(),
        operands.retracts.tolist(),
        strict=True,
    )
    for owner, start, stop, is_retract in steps:
        there, given = results[owner], list(range(start, stop))
        if there is None:
            results[owner] = None if is_retract else given
        elif is_retract:
            gone = {names[place] for place in given if valid[place]}
            left = [place for place in there if valid[place] and names[place] not in gone]
            results[owner] = _newest(left, names) if has_key else left
        elif count_limit is None or len(there) < count_limit:
            room = None if count_limit is None else count_limit - len(there)
            both = [place for place in there if valid[place]] + [place for place in given if valid[place]][:room]
            results[owner] = _newest(both, names) if has_key else both
    places = np.array([place for result in results for place in result or ()], np.int64)
    owners = np.repeat(np.arange(operands.key_count), [len(result or ()) for result in results])
    lists = elements.lists(places, owners)
    absent = np.array([result is None for result in results])
    return lists.take(pa.array(np.arange(len(absent)), mask=absent)) if absent.any() else lists


def _newest(places: Sequence[int], names: Sequence[int]) -> list[int]:
    """Of rows with one name the last, where the first was."""
    return list({names[place]: place for place in places}.values())


def _codes(values: pa.Array) -> IndexArray:
    """(n,) numbers below n that are equal for equal values, nulls among them."""
    if pa.types.is_struct(values.type):
        children = [_codes(child) for child in values.flatten()]
        absent: IndexArray = values.is_null().to_numpy(zero_copy_only=False).astype(np.int64)
        return _combined([absent, *children], len(values))
    if pa.types.is_nested(values.type):
        values = pa.array([repr(value) for value in values.to_pylist()], pa.string())
    encoded = values.dictionary_encode(null_encoding="encode")
    codes: IndexArray = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _combined(codes: Sequence[IndexArray], count: int) -> IndexArray:
    """(n,) numbers below n that are equal where all of these are."""
    combined = np.zeros(count, np.int64)
    for each in codes:
        combined = np.unique(combined * (count + 1) + each, return_inverse=True)[1]
    return combined
