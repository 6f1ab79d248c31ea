"""Aggregates of strings, arrays and maps. No operand is null, every key has at least one.

Source: Paimon FieldListaggAgg, FieldCollectAgg, FieldMergeMapAgg.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsm.aggregate.operands import OperandKeys, Operands
from lsm.keys.words import BoolArray, IndexArray, NumberPart, Part, number_parts_of, stable_order


def listagg(operands: Operands, *, delimiter: str, distinct: bool) -> pa.Array:
    """(k,) the strings joined, without empty ones; with `distinct` also without parts that occurred before."""
    kind = operands.values.type
    filled = operands.where(pc.greater(pc.binary_length(operands.values), 0).to_numpy(zero_copy_only=False))
    if not len(filled.rows):
        return pa.array([""] * operands.key_count, kind)
    lists = _lists(filled.dense(), filled.values)
    if distinct:
        joined = pa.array([_join_distinct(texts, delimiter) for texts in lists.to_pylist()], kind)
    else:
        joined = pc.binary_join(lists, delimiter).cast(kind)
    return filled.spread(joined).fill_null("")


def _join_distinct(texts: Sequence[str], delimiter: str) -> str:
    # The first string is kept unchanged, even with duplicate parts.
    joined = texts[0]
    seen = set(joined.split(delimiter or " "))
    for text in texts[1:]:
        for part in text.split(delimiter or " "):
            if part and part not in seen:
                seen.add(part)
                joined += delimiter + part
    return joined


def collect(operands: Operands, *, distinct: bool) -> pa.Array:
    """(k,) the arrays concatenated; a retract removes the first occurrence of each of its elements."""
    kind = operands.values.type
    if operands.retracts.any() or (distinct and pa.types.is_nested(kind.value_type)):
        return _collect_one_by_one(operands, distinct=distinct)
    elements = operands.values.flatten()
    sizes = pc.list_value_length(operands.values).to_numpy(zero_copy_only=False)
    flat = Operands(
        column=elements,
        rows=np.arange(len(elements)),
        keys=OperandKeys(np.repeat(operands.keys.numbers, sizes), operands.key_count),
        retracts=np.zeros(len(elements), np.bool_),
    )
    if distinct and len(elements):
        parts: list[Part] = [NumberPart(flat.keys.numbers.view(np.uint64)), *number_parts_of(elements)]
        order, starts = stable_order(parts, len(elements), presorted=False)
        is_first = np.zeros(len(elements), np.bool_)
        is_first[order[starts]] = True
        flat = flat.where(is_first)
    return _lists(flat, flat.values).cast(kind)


def _collect_one_by_one(operands: Operands, *, distinct: bool) -> pa.Array:
    """`collect` for any element type, by equality of Python values."""
    results: list[list[Any] | None] = [None] * operands.key_count
    steps = zip(operands.keys.numbers.tolist(), operands.values.to_pylist(), operands.retracts.tolist(), strict=True)
    for key, elements, is_retract in steps:
        result = results[key]
        if is_retract:
            # A retract before the first insert is dropped; it does not cancel later inserts.
            results[key] = None if result is None else _without(result, elements)
        else:
            result = result or []
            results[key] = _unique([*result, *elements]) if distinct else [*result, *elements]
    return pa.array(results, operands.values.type)


def _without(elements: list[Any], removed: list[Any]) -> list[Any]:
    left = list(removed)
    kept = []
    for element in elements:
        if element in left:
            left.remove(element)
        else:
            kept.append(element)
    return kept


def _unique(elements: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for element in elements:
        if element not in unique:
            unique.append(element)
    return unique


def merge_map(operands: Operands) -> pa.Array:
    """(k,) the union of the maps, later values win; a retract removes the keys of its map."""
    kind = operands.values.type
    maps = operands.values
    sizes = np.diff(maps.offsets.to_numpy())
    low, high = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    map_keys, items = maps.keys[low:high], maps.items[low:high]
    keys = np.repeat(operands.keys.numbers, sizes)
    entries = np.empty(0, np.int64)
    if len(map_keys):
        parts: list[Part] = [NumberPart(keys.view(np.uint64)), *number_parts_of(map_keys)]
        order, starts = stable_order(parts, len(keys), presorted=False)
        latest = order[_ends(starts)]
        entries = latest[~np.repeat(operands.retracts, sizes)[latest]]
    offsets = np.searchsorted(keys[entries], np.arange(operands.key_count + 1))
    merged = pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), map_keys.take(pa.array(entries)), items.take(pa.array(entries)), type=kind
    )
    # A key with only retracts gets null, not an empty map.
    gives = np.logical_or.reduceat(~operands.retracts, operands.keys.firsts)
    return merged if gives.all() else merged.take(pa.array(np.arange(len(gives)), mask=~gives))


def _ends(starts: BoolArray) -> BoolArray:
    return np.append(starts[1:], True)


def _lists(operands: Operands, elements: pa.Array) -> pa.ListArray:
    """(k,) the elements as one list per key."""
    offsets: IndexArray = np.searchsorted(operands.keys.numbers, np.arange(operands.key_count + 1))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements)
