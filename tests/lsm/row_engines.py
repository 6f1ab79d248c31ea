"""Merge engines one row at a time: slow, plain, and written from the rules, not from the columns under test."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyroaring import BitMap

from lsm.aggregate.aggregates import FieldAggregate
from lsm.merge.partial_update import SequenceGroup

Row = tuple[str, dict[str, Any]]
"""(kind symbol, values without the key), oldest first."""


FIRST = object()
"""What is accumulated before the first value of ``first_value``, for which null counts."""


def start(specs: Mapping[str, FieldAggregate]) -> dict[str, Any]:
    """What is accumulated before the first row."""
    return {name: FIRST if spec.function == "first_value" else None for name, spec in specs.items()}


def add(spec: FieldAggregate, old: Any, new: Any) -> Any:
    """What an aggregate function makes of an accumulated and a new value."""
    function = spec.function
    if function == "last_value":
        return new
    if function == "first_value":
        return new if old is FIRST else old
    if new is None or old is None:
        return old if new is None else (list(dict.fromkeys(new)) if function == "collect" and spec.distinct else new)
    rules: Mapping[str, Callable[[Any, Any], Any]] = {
        "last_non_null_value": lambda old, new: new,
        "first_non_null_value": lambda old, new: old,
        "sum": lambda old, new: old + new,
        "count": lambda old, new: old + new,
        "product": lambda old, new: old * new,
        "max": max,
        "min": min,
        "bool_and": lambda old, new: old and new,
        "bool_or": lambda old, new: old or new,
        "listagg": lambda old, new: spec.delimiter.join(text for text in (old, new) if text),
        "collect": lambda old, new: list(dict.fromkeys(old + new)) if spec.distinct else old + new,
        "merge_map": lambda old, new: sorted((dict(old) | dict(new)).items()),
        "merge_map_with_keytime": lambda old, new: latest(spec, old, new),
        "nested_update": lambda old, new: updated(spec, old, new),
        "nested_partial_update": lambda old, new: filled(spec, old, new),
        "rbm32": lambda old, new: bytes_of_set(set_of_bytes(old) | set_of_bytes(new)),
    }
    return rules[function](old, new)


def set_of_bytes(data: bytes) -> set[int]:
    return set(BitMap.deserialize(data))


def bytes_of_set(numbers: set[int]) -> bytes:
    found = BitMap(sorted(numbers))
    found.run_optimize()
    return found.serialize()


def key_of(spec: FieldAggregate, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in spec.nested_key)


def updated(spec: FieldAggregate, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    if spec.count_limit is not None and len(old) >= spec.count_limit:
        return list(old)
    room = None if spec.count_limit is None else spec.count_limit - len(old)
    rows = [row for row in old if row is not None] + [row for row in new if row is not None][:room]
    return list({key_of(spec, row): row for row in rows}.values()) if spec.nested_key else rows


def left_over(spec: FieldAggregate, old: Sequence[Any], gone: Sequence[Any]) -> list[Any]:
    gone = [row for row in gone if row is not None]
    if not spec.nested_key:
        return [row for row in old if row is not None and row not in gone]
    keys = [key_of(spec, row) for row in gone]
    rows = {key_of(spec, row): row for row in old if row is not None}
    return [row for key, row in rows.items() if key not in keys]


def filled(spec: FieldAggregate, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    found: dict[Any, dict[str, Any]] = {}
    for row in (row for row in (*old, *new) if row is not None):
        there = found.setdefault(key_of(spec, row), dict.fromkeys(row))
        there |= {name: value for name, value in row.items() if value is not None}
    return list(found.values())


def latest(spec: FieldAggregate, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    found = dict(old)
    for key, row in new:
        if row is None:
            found.pop(key, None)
        elif row[spec.time_field] is not None:
            there = found.get(key)
            if there is None or there[spec.time_field] is None or row[spec.time_field] > there[spec.time_field]:
                found[key] = row
    return list(found.items())


def take_back(spec: FieldAggregate, old: Any, new: Any) -> Any:
    """What is left of an accumulated value when a value is taken back."""
    if spec.ignore_retract:
        return old
    if spec.function == "last_value":
        return None
    if new is None:
        return old
    if spec.function == "last_non_null_value":
        return None
    if spec.function in ("sum", "count"):
        return -new if old is None else old - new
    if old is None:
        return None
    if spec.function == "product":
        return int(old / new)
    if spec.function == "nested_update":
        return left_over(spec, old, new)
    if spec.function == "merge_map":
        return [(key, value) for key, value in old if key not in dict(new)]
    assert spec.function == "collect"
    left = list(old)
    for element in new:
        if element in left:
            left.remove(element)
    return left


def aggregated(
    rows: Sequence[Row], specs: Mapping[str, FieldAggregate], *, remove_on_delete: bool
) -> tuple[str, dict[str, Any]]:
    """Kind and values of one key with several rows."""
    values = start(specs)
    removed = False
    for kind, row in rows:
        removed = remove_on_delete and kind == "-D"
        if removed:
            values = dict(row)
            continue
        step = take_back if kind in ("-U", "-D") else add
        values = {name: step(spec, values[name], row[name]) for name, spec in specs.items()}
    values = {name: None if value is FIRST else value for name, value in values.items()}
    return "-D" if removed else "+I", values


def partially_updated(
    rows: Sequence[Row],
    names: Sequence[str],
    *,
    groups: Sequence[SequenceGroup] = (),
    aggregates: Mapping[str, FieldAggregate] | None = None,
    ignore_delete: bool = False,
    remove_on_delete: bool = False,
    removing: Sequence[str] = (),
) -> tuple[str, dict[str, Any]]:
    """Kind and values of one key with several rows that are not its oldest, by the rules of Paimon 1.4.

    But aggregates begin with nothing, and what a key of retracts only takes back is added up.
    """
    only_retracts = all(kind in ("-U", "-D") for kind, _ in rows)
    state = _PartialUpdate(names, groups, aggregates or {}, removing, only_retracts)
    grouped = {name for group in groups for name in group.names}
    removed, filled, met_add = False, False, False
    for kind, row in rows:
        removed = False
        if kind in ("-U", "-D"):
            if not filled:
                state.values, filled = row | dict.fromkeys(aggregates or ()), True
            if ignore_delete:
                continue
            if groups:
                removed = state.retract(kind, row)
            elif remove_on_delete and kind == "-D":
                removed, state.values = True, dict(row)
            continue
        filled = met_add = True
        for name in names:
            if name not in grouped and row[name] is not None:
                state.values[name] = row[name]
        state.update(row)
    return "-D" if removed or not met_add else "+I", state.values


class _PartialUpdate:
    def __init__(
        self,
        names: Sequence[str],
        groups: Sequence[SequenceGroup],
        aggregates: Mapping[str, FieldAggregate],
        removing: Sequence[str],
        adds_up: bool,
    ) -> None:
        self._adds_up = adds_up
        self.values: dict[str, Any] = dict.fromkeys(names)
        self._groups, self._aggregates, self._removing = groups, aggregates, removing

    def _is_newer(self, group: SequenceGroup, row: Mapping[str, Any]) -> bool:
        new, old = ([_null_first(each[name]) for name in group.sequence_names] for each in (row, self.values))
        return new >= old

    def update(self, row: Mapping[str, Any]) -> None:
        for group in self._groups:
            if all(row[name] is None for name in group.sequence_names):
                continue
            is_newer = self._is_newer(group, row)
            for name in group.names:
                spec = self._aggregates.get(name)
                if spec is None:
                    self.values[name] = row[name] if is_newer else self.values[name]
                else:
                    self._add(name, spec, row[name], is_newer=is_newer)

    def _add(self, name: str, spec: FieldAggregate, value: Any, *, is_newer: bool) -> None:
        in_order = is_newer or spec.function == "collect"
        old, new = (self.values[name], value) if in_order else (value, self.values[name])
        self.values[name] = add(spec, old, new)

    def retract(self, kind: str, row: Mapping[str, Any]) -> bool:
        touched = [group for group in self._groups if any(row[name] is not None for name in group.sequence_names)]
        newer = [group for group in touched if self._is_newer(group, row)]
        if kind == "-D" and any(name in self._removing for group in newer for name in group.sequence_names):
            self.values = dict(row)
            return True
        for group in touched:
            for name in group.names:
                spec = self._aggregates.get(name)
                if spec is not None and self._adds_up:
                    self._add(name, spec, row[name], is_newer=group in newer)
                elif spec is not None:
                    self.values[name] = take_back(spec, self.values[name], row[name])
                elif group in newer:
                    self.values[name] = row[name] if name in group.sequence_names else None
        return False


def _null_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)
