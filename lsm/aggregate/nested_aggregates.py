"""Aggregates of nested tables: arrays of rows, and maps of rows with a time.

No operand is null, every key has at least one. A key with one operand keeps it unchanged. Elements are identified by
their index in the column, so values are never converted. Source: Paimon FieldNestedUpdateAgg,
FieldNestedPartialUpdateAgg and FieldMergeMapWithKeyTimeAgg, without a defined order there; here by first appearance.
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
    """(k,) the arrays concatenated; of rows with the same nested key only the newest is kept.

    Args:
        operands: ARRAY<ROW>; a retract removes rows with its nested keys, or rows equal to its rows.
        nested_key: columns of the nested rows; empty: every row is kept.
        count_limit: maximum array length, further rows are dropped; None is no limit.
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
    """(k,) one row per nested key, each column with its newest non-null value."""
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
    """(k,) the union of the maps: per map key the row with the greatest time, on ties the oldest.

    Args:
        operands: MAP<…, ROW>. A null row removes the map key; a row with a null time is ignored.
        time_field: STRING column of the rows, compared as text; None: their last column.
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
            current = result.get(names[place])
            if not present[place]:
                result.pop(names[place], None)
            elif times[place] is None:
                continue
            elif current is None or times[current] is None or _utf16(times[place]) > _utf16(times[current]):
                result[names[place]] = place
    entries = pa.array([place for result in results for place in (result or {}).values()], pa.int64())
    offsets = np.cumsum([0, *(len(result or {}) for result in results)])
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), map_keys.take(entries), items.take(entries), type=kind
    )


def _utf16(text: str) -> bytes:
    """A sort key that orders strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Elements:
    """The rows in the arrays of all operands."""

    values: pa.StructArray  # (e,)
    owners: IndexArray  # (e,) key number
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
        """(e,) codes that are equal where rows are equal in the named columns; no names: in all columns."""
        chosen = [self.values.field(name) for name in names] if names else self.values.flatten()
        return _combined([_codes(column) for column in chosen], len(self.values))

    def mixed(self) -> tuple[IndexArray, IndexArray]:
        """Indices of the rows to keep and their keys; null rows are dropped from keys with more than one operand."""
        valid = self.values.is_valid().to_numpy(zero_copy_only=False)
        kept = np.flatnonzero(valid | ~self.is_mixed[self.owners])
        return kept, self.owners[kept]

    def lists(self, places: IndexArray, owners: IndexArray) -> pa.Array:
        """(k,) the rows at `places` as one array per key."""
        offsets = np.searchsorted(owners, np.arange(self.key_count + 1))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), self.values.take(pa.array(places)), self.kind)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows with equal nested keys within a key, in order of first appearance."""

    members: IndexArray  # (m,) row indices, group by group, oldest first
    firsts: IndexArray  # (g,) where each group begins
    owners: IndexArray  # (g,) the key, never decreasing

    @classmethod
    def of(cls, elements: _Elements, codes: IndexArray, kept: IndexArray, owners: IndexArray) -> "_Groups":
        names = codes[kept]
        alone = ~elements.is_mixed[owners]
        names[alone] = len(codes) + kept[alone]  # a single operand is kept unchanged, with its duplicate keys
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
    """Nested updates operand by operand: with a limit or retracts, their order matters."""
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
        current, added = results[owner], list(range(start, stop))
        if current is None:
            results[owner] = None if is_retract else added
        elif is_retract:
            removed = {names[place] for place in added if valid[place]}
            left = [place for place in current if valid[place] and names[place] not in removed]
            results[owner] = _newest(left, names) if has_key else left
        elif count_limit is None or len(current) < count_limit:
            room = None if count_limit is None else count_limit - len(current)
            both = [place for place in current if valid[place]] + [place for place in added if valid[place]][:room]
            results[owner] = _newest(both, names) if has_key else both
    places = np.array([place for result in results for place in result or ()], np.int64)
    owners = np.repeat(np.arange(operands.key_count), [len(result or ()) for result in results])
    lists = elements.lists(places, owners)
    absent = np.array([result is None for result in results])
    return lists.take(pa.array(np.arange(len(absent)), mask=absent)) if absent.any() else lists


def _newest(places: Sequence[int], names: Sequence[int]) -> list[int]:
    """Per name the last row, at the position of the first."""
    return list({names[place]: place for place in places}.values())


def _codes(values: pa.Array) -> IndexArray:
    """(n,) codes below n, equal for equal values; nulls equal each other."""
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
    """(n,) codes below n, equal where all given codes are equal."""
    combined = np.zeros(count, np.int64)
    for each in codes:
        combined = np.unique(combined * (count + 1) + each, return_inverse=True)[1]
    return combined
