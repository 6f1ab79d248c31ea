"""What a table must show: dictionaries, and a fold of all rows of a key that is written from the rules of the page.

A table may forget: a compaction drops what a delete, or expiry, has ended. Whether one has run when a later row comes
is not known, so of each key there may be several stories, and what a first read shows says which of them it was. Every
other way to read must then show the same.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa

from tests.crossings.space import BEGAN_MS, EXPIRES_AFTER_S, Shape
from tests.lsm.row_engines import aggregated, partially_updated

Values = Mapping[str, Any]
"""Values by slot: the column as it was called when it came, whatever it is called by now."""
Key = tuple[Any, ...]

RETRACTS: Final = ("-U", "-D")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of today."""

    slot: str
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A row that was written; no other one is equal."""

    kind: str
    values: Values


@dataclass(frozen=True, slots=True)
class Story:
    """The records of a key, oldest first, and how many of them are seen at least."""

    records: tuple[Record, ...]
    seen: int


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of one state, and its columns."""

    shape: Shape
    columns: tuple[Column, ...]
    stories: Mapping[Key, tuple[Story, ...]] = field(default_factory=dict)
    bag: Mapping[Key, tuple[Values, int]] = field(
        default_factory=dict
    )  # by all values: a row and how often it is there
    loose: frozenset[Key] = frozenset()  # keys of which nothing is known

    # ---- changes

    def written(self, records: Iterable[tuple[str, Values]], *, now_ms: int) -> "Content":
        """After a write."""
        found = self
        for kind, values in records:
            found = found._added(kind, values)
        return found.passed(now_ms)

    def _added(self, kind: str, values: Values) -> "Content":
        shape = self.shape
        if kind in RETRACTS and shape.cell["deletes"] == "ignored":
            return self
        if kind == "-U" and shape.cell["deletes"] == "no -U":
            return self
        if not shape.has_key:
            return self._counted(values, -1 if kind in RETRACTS else 1)
        key = tuple(values[name] for name in shape.key)
        known = self.stories.get(key, (Story((), 0),))
        record = Record(kind, _cleared(shape, kind, values))
        after = tuple(_behind(shape, story, record) for story in known)
        found = replace(self, stories={**self.stories, key: after})
        return replace(found, loose=self.loose | {key}) if is_loose(shape, known, record) else found

    def _counted(self, values: Values, step: int) -> "Content":
        row = tuple(sorted((slot, canonical(value)) for slot, value in values.items() if value is not None))
        kept = {key: each for key, each in self.bag.items() if key != row}
        count = self.bag.get(row, (values, 0))[1] + step
        return replace(self, bag={**kept, row: (values, count)} if count else kept)

    def passed(self, now_ms: int) -> "Content":
        """As of now: what has ended may have been forgotten."""
        return replace(
            self, stories={key: _with_forgotten(self.shape, each, now_ms) for key, each in self.stories.items()}
        )

    def without(self, goes: Any) -> "Content":
        """Without rows for which a test of their values is true."""
        stories = {
            key: each for key, each in self.stories.items() if not goes(dict(zip(self.shape.key, key, strict=True)))
        }
        return replace(self, stories=stories, bag={key: each for key, each in self.bag.items() if not goes(each[0])})

    def all_seen(self, keys: Collection[Key] | None = None) -> "Content":
        """After a compaction of everything, or where rows (of these keys) are seen at once."""
        seen = {
            key: tuple(Story(s.records, len(s.records)) for s in each)
            for key, each in self.stories.items()
            if keys is None or key in keys
        }
        return replace(self, stories={**self.stories, **seen})

    def collapsed(self, rows: Mapping[Key, Values | None]) -> "Content":
        """With these rows in place of the stories of their keys."""
        stories = dict(self.stories)
        for key, values in rows.items():
            stories[key] = (Story((), 0) if values is None else Story((Record("+I", values),), 1),)
        return replace(self, stories=stories)

    # ---- what it shows

    def possible(self, key: Key, *, complete: bool = False) -> list[tuple[Values | None, Story]]:
        """The rows that a key may show, each with the story that it is of."""
        found: list[tuple[Values | None, Story]] = []
        for story in self.stories.get(key, (Story((), 0),)):
            most = len(story.records)
            for seen in range(most if complete else story.seen, most + 1):
                found.append((fold(self.shape, story.records[:seen]), replace(story, seen=seen)))
        return found

    def shown(self, values: Values | None) -> tuple[Any, ...] | None:
        """A row as a reader gets it, comparable."""
        return None if values is None else tuple(canonical(values.get(column.slot)) for column in self.columns)

    def rows(self, *, now_ms: int | None = None) -> Counter[tuple[Any, ...]]:
        """The rows, of a state of which each story is known; without those that have expired by now."""
        found: Counter[tuple[Any, ...]] = Counter()
        for values, count in self.values(now_ms=now_ms):
            shown = self.shown(values)
            assert shown is not None
            found[shown] += count
        return found

    def values(self, *, now_ms: int | None = None) -> list[tuple[Values, int]]:
        """The rows by slot, and how often each is there."""
        if not self.shape.has_key:
            bag = ((values, count) for values, count in self.bag.values() if count > 0)
            return [each for each in bag if now_ms is None or not is_expired(self.shape, each[0], now_ms)]
        firsts = (self.possible(key)[0][0] for key in self.stories if key not in self.loose)
        return [
            (row, 1)
            for row in firsts
            if row is not None and (now_ms is None or not is_expired(self.shape, row, now_ms))
        ]

    def expired(self, now_ms: int) -> set[tuple[Any, ...]]:
        """Keys, or without one rows, of what is too old, comparable; a key of which nothing is known may be."""
        if self.shape.cell["expiry"] == "none":
            return set()
        if not self.shape.has_key:
            bag = ((key, values) for key, (values, _) in self.bag.items())
            return {key for key, values in bag if is_expired(self.shape, values, now_ms)}
        known = ((key, values) for key in self.stories for values, _ in self.possible(key))
        loose = ((key, r.values) for key in self.loose for each in self.stories.get(key, ()) for r in each.records)
        return {
            tuple(canonical(each) for each in key)
            for key, values in (*known, *loose)
            if values is not None and is_expired(self.shape, values, now_ms)
        }

    def narrowed(self, found: Counter[tuple[Any, ...]], now_ms: int, *, complete: bool = False) -> "Content":
        """Only the stories that this first read of a state can be of.

        Raises:
            Mismatch: it is of none.
        """
        if not self.shape.has_key:
            expect(self.rows(now_ms=now_ms), found)
            return self
        by_key = self._by_key(found)
        stories: dict[Key, tuple[Story, ...]] = {}
        missing: Counter[Any] = Counter()
        surplus: Counter[Any] = Counter()
        for key in self.stories:
            row = by_key.pop(tuple(canonical(each) for each in key), None)
            if key in self.loose:
                stories[key] = self.stories[key]
                continue
            possible = self.possible(key, complete=complete)
            shown = [(self._visible(values, now_ms), story) for values, story in possible]
            kept = list({story.records: story for each, story in reversed(shown) if each == row}.values())
            if not kept:
                missing.update(["one of", *{repr(each) for each, _ in shown}])
                surplus.update([repr(row)])
            stories[key] = tuple(reversed(kept))
        surplus.update(repr(row) for row in by_key.values())
        if missing or surplus:
            raise MismatchError(f"expected={sorted(missing)} found={sorted(surplus)}")
        return replace(self, stories=stories)

    def _visible(self, values: Values | None, now_ms: int) -> tuple[Any, ...] | None:
        return None if values is None or is_expired(self.shape, values, now_ms) else self.shown(values)

    def _by_key(self, found: Counter[tuple[Any, ...]]) -> dict[Key, tuple[Any, ...]]:
        places = [next(at for at, each in enumerate(self.columns) if each.slot == slot) for slot in self.shape.key]
        by_key: dict[Key, tuple[Any, ...]] = {}
        for row, count in found.items():
            key = tuple(row[place] for place in places)
            if count > 1 or key in by_key:
                raise MismatchError(f"a key is there twice: rows={[row, by_key.get(key)]}")
            by_key[key] = row
        return by_key

    # ---- columns

    def known(self, found: Counter[tuple[Any, ...]], columns: Sequence[Column]) -> Counter[tuple[Any, ...]]:
        """Read rows without those of keys of which nothing is known."""
        if not self.loose:
            return found
        slots = [each.slot for each in columns]
        places = [slots.index(slot) for slot in self.shape.key]
        loose = {tuple(canonical(each) for each in key) for key in self.loose}
        return Counter({row: n for row, n in found.items() if tuple(row[place] for place in places) not in loose})

    def slots(self) -> dict[str, str]:
        """Slots by the name of today."""
        return {column.name: column.slot for column in self.columns}


class MismatchError(Exception):
    """A way of reading shows something else than the oracle."""


def expect(expected: Counter[Any], found: Counter[Any]) -> None:
    """Raises: MismatchError: rows are missing, or too many."""
    if expected != found:
        missing, surplus = expected - found, found - expected
        raise MismatchError(
            f"missing={sorted(map(repr, missing.elements()))} surplus={sorted(map(repr, surplus.elements()))}"
        )


def is_loose(shape: Shape, known: Sequence[Story], record: Record) -> bool:
    """Whether what becomes of a key depends on when compactions run, as pages say or as Paimon does.

    Rows that come late by the sequence into what folds values, or are retracted there; a retraction before its row; a
    row that no group takes. A partial update keeps the last values of its sequence that are not null, so a row may be
    older than the merged row of a file where it is as old as each row of its own. A retraction of a partial update may
    be the oldest row of a file: its values outside of the groups then are the first ones.
    """
    engine, is_first = shape.cell["engine"], any(not story.records for story in known)
    if engine not in ("aggregation", "partial-update"):
        return False
    newest = [_order(shape, each) for story in known for each in story.records]
    if engine == "partial-update":
        newest += [_merged_order(shape, story) for story in known if story.records]
    if any(_order(shape, record) < each for each in newest) or (record.kind in RETRACTS and shape.sequence):
        return True
    if engine == "aggregation":
        return record.kind in RETRACTS and shape.cell["functions"] not in ("sum", "count")
    is_outside = any(all(record.values.get(name) is None for name in group.sequence_names) for group in shape.groups)
    grouped = {*shape.key, "op", *(name for group in shape.groups for name in group.names)}
    fills = any(value is not None for name, value in record.values.items() if name not in grouped)
    return is_outside or (record.kind in RETRACTS and (is_first or fills))


def _behind(shape: Shape, story: Story, record: Record) -> Story:
    records = (*story.records, record)
    return Story(records, story.seen if shape.is_late else len(records))


def _with_forgotten(shape: Shape, stories: Sequence[Story], now_ms: int) -> tuple[Story, ...]:
    found = {story.records: story for story in stories}
    if any(each.kind in RETRACTS for story in stories for each in story.records) or shape.cell["expiry"] != "none":
        for story in stories:
            for cut in range(1, len(story.records) + 1):
                values = fold(shape, story.records[:cut])
                if values is None or is_expired(shape, values, now_ms):
                    rest = story.records[cut:]
                    found.setdefault(rest, Story(rest, max(story.seen - cut, 0)))
    return tuple(found.values())


def is_expired(shape: Shape, values: Values, now_ms: int) -> bool:
    """Whether a row is too old to be one of the table."""
    time = values.get("t")
    if shape.cell["expiry"] == "none" or time is None:
        return False
    seconds = time // 1000 if isinstance(time, int) and time >= 10**12 else time
    if isinstance(time, datetime):
        seconds = math.floor(time.replace(tzinfo=UTC).timestamp())
    return bool(seconds < now_ms // 1000 - EXPIRES_AFTER_S)


def fold(shape: Shape, records: Sequence[Record]) -> Values | None:
    """The row that the records of a key make; None: there is none."""
    if not records:
        return None
    ordered = sorted(records, key=partial(_order, shape))  # stable: by arrival among equals
    names = [name for name in shape.types if name not in shape.key]
    names += sorted({name for each in records for name in each.values} - {*names, *shape.key})
    key = {name: records[0].values[name] for name in shape.key}
    rows = [(each.kind, {name: each.values.get(name) for name in names}) for each in ordered]
    match shape.cell["engine"]:
        case "deduplicate":
            kind, row = rows[-1]
            return None if kind in RETRACTS else key | row
        case "first-row":
            return key | rows[0][1]
        case "aggregation":
            return _aggregated(shape, key, rows, names)
    kind, row = partially_updated(
        rows,
        names,
        groups=shape.groups,
        aggregates=shape.aggregates,
        remove_on_delete=shape.cell["deletes"] == "removing",
        removing=shape.removing,
    )
    return None if kind == "-D" else key | row


def _aggregated(
    shape: Shape, key: Values, rows: Sequence[tuple[str, dict[str, Any]]], names: Sequence[str]
) -> Values | None:
    specs = {
        name: shape.aggregates.get(name, shape.aggregate_of_others) for name in names if name not in shape.sequence
    }
    removes = shape.cell["deletes"] == "removing"
    kind, row = aggregated(
        [(kind, {n: v for n, v in values.items() if n in specs}) for kind, values in rows],
        specs,
        remove_on_delete=removes,
    )
    return None if kind == "-D" else {**key, **row, **{name: rows[-1][1][name] for name in shape.sequence}}


def _order(shape: Shape, record: Record) -> tuple[Any, ...]:
    sign = -1 if "descending" in shape.cell["sequence"] else 1
    values = [record.values.get(name) for name in shape.sequence]
    return tuple((value is not None, 0 if value is None else sign * value) for value in values)


def _merged_order(shape: Shape, story: Story) -> tuple[Any, ...]:
    """The order of a row into which a partial update merged those of a story."""
    merged: dict[str, Any] = {}
    for each in sorted(story.records, key=lambda each: _order(shape, each)):
        merged |= {name: each.values[name] for name in shape.sequence if each.values.get(name) is not None}
    return _order(shape, Record("+I", merged))


def _cleared(shape: Shape, kind: str, values: Values) -> Values:
    """A delete that removes the row carries nothing of it."""
    if (
        kind != "-D"
        or shape.cell["deletes"] != "removing"
        or shape.cell["engine"] not in ("partial-update", "aggregation")
    ):
        return values
    kept = {*shape.key, *shape.sequence, "op"}
    return {name: value if name in kept else None for name, value in values.items()}


def canonical(value: Any) -> Any:
    """A value that is equal to those that are the same to users: NaN to NaN, 0.0 not to -0.0, 1 not to True."""
    if value is None or isinstance(value, str | bytes) or type(value) is int:
        return value
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else ("float", value.hex())
    if isinstance(value, Mapping):
        return tuple((name, canonical(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(canonical(each) for each in value)
    return (type(value).__name__, str(value))


def moment_after(seconds: int) -> int:
    """Epoch milliseconds of a moment of a history."""
    return BEGAN_MS + seconds * 1000
