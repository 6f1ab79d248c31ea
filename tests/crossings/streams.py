"""Programs that follow a table through a whole history, restarted at any row in any other form."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from engine.follow.position import FollowPosition
from filestore.scan.live_files import LiveFiles
from tests.crossings.filters import columns_of, matches, text_of
from tests.crossings.operations import refusable
from tests.crossings.oracle import MismatchError, canonical, expect, is_expired
from tests.crossings.play import Play, SkippedError, comparable

Change = tuple[str, dict[str, Any]]
"""Kind, and comparable values by slot."""


@dataclass
class Follower:
    """Where a program stands, and what it made of the rows that it got."""

    filter: Any
    position: str | None = None
    slots: frozenset[str] | None = None  # that it has of every row; None: all
    state: dict[Any, dict[str, Any]] = field(default_factory=dict)
    bag: Counter[Any] = field(default_factory=Counter)
    must_fail: bool = False
    may_fail: bool = False

    def went_back(self, number: int) -> None:
        """The table was rolled back to a snapshot."""
        place = self.place
        if place is None:
            return
        if place.to is None and place.at.snapshot_id > number:
            self.must_fail = True
        elif place.to is not None or place.at.newest_id > number:
            self.may_fail = True

    @property
    def place(self) -> FollowPosition | None:
        """Where it stands; None: it has not begun."""
        return None if self.position is None else FollowPosition.parse(self.position)

    def take(self, play: Play, change: Change) -> None:
        """Apply a change."""
        kind, values = change
        is_add = kind in ("+I", "+U")
        if not play.shape.has_key:
            row = tuple(sorted((slot, value) for slot, value in values.items() if value is not None))
            self.bag[row] += 1 if is_add else -1
            return
        key = tuple(values[slot] for slot in play.shape.key)
        if is_add:
            self.state[key] = values
        else:
            self.state.pop(key, None)

    def forget(self, slots: Iterable[str]) -> None:
        """Columns beside these were dropped: they are in no row any more."""
        kept = {*slots}
        bag: Counter[Any] = Counter()
        for row, count in self.bag.items():
            bag[tuple(each for each in row if each[0] in kept)] += count
        self.bag = bag

    def rows(self, play: Play) -> list[dict[str, Any]]:
        """What it has. Raises: MismatchError: a row was removed that had not come."""
        if play.shape.has_key:
            return list(self.state.values())
        early = [row for row, count in self.bag.items() if count < 0]
        if early and play.cell["rows"] != "counted":
            raise MismatchError(f"removed and never there: {early}")
        return [dict(row) for row, count in self.bag.items() for _ in range(count)]


def follow(
    play: Play, name: str, batches: int | None = None, columns: list[str] | None = None, filter: Any = None,
    **more: Any,
) -> None:  # fmt: skip
    """A follower goes on for some batches, or to the end; then it must have the table's rows.

    Args:
        play: the history.
        name: of the follower, which begins at its first step.
        batches: to take; None: all.
        columns: slots besides the key.
        filter: fixed at its first step.
        more: how it goes on, see ``_choices``.
    """
    line, kept = play.main, play.followers.get(name) or Follower(filter)
    if not line.states or filter != kept.filter or (more.get("normalize") and not play.shape.has_key):
        raise SkippedError
    if not streams_are_whole(play) or (
        filter and not columns_of(filter) <= {each.slot for each in line.content.columns}
    ):
        raise SkippedError
    slots = line.content.slots()
    kept.forget(slots.values())
    wanted = {*play.shape.key, *(columns or ())} if columns is not None and play.shape.has_key else {*slots.values()}
    names = [each for each, slot in slots.items() if slot in wanted]
    begin: Any = kept.position
    if begin is None and (start := more.get("start")) is not None:
        begin = sorted(line.states)[start % len(line.states)]
    may = _refusals(play, kept, more)
    with (
        refusable(*may, must=kept.must_fail),
        line.table.stream(begin, **_choices(name, kept, slots, names, more)) as stream,
    ):
        for number, changes in enumerate(stream, 1):
            for change in changes_of(changes.rows, slots):
                kept.take(play, change)
            kept.position = str(changes.position)
            if number == batches:
                break
    play.followers[name], kept.may_fail = kept, False
    if len(names) < len(slots):
        kept.slots = frozenset(wanted) if kept.slots is None else kept.slots & wanted
    if batches is None:
        expect_followed(play, kept.rows(play), kept.slots, kept.filter)


def _choices(
    name: str, kept: Follower, slots: Mapping[str, str], names: Sequence[str], more: Mapping[str, Any]
) -> dict[str, Any]:
    """How a stream is asked for.

    ``max_rows`` of a batch, ``trigger`` rows of the log for one, ``normalize`` completes changes by what they replace,
    ``start`` is a snapshot to begin at, with ``consumer`` the table keeps the place.
    """
    options = {"log.scan.normalize": "true"} if more.get("normalize") else {}
    if more.get("trigger") is not None:
        options["read.stream.maxRowsPerTrigger"] = str(more["trigger"])
    choices: dict[str, Any] = {"follow": False, "max_rows": more.get("max_rows"), "options": options}
    if len(names) < len(slots):
        choices["columns"] = names
    if more.get("consumer"):
        choices["consumer"] = name
    if kept.filter is not None:
        choices["filter"] = text_of(kept.filter, slots)
    return choices


def _refusals(play: Play, kept: Follower, more: Mapping[str, Any]) -> list[str]:
    """What the stream may say instead of going on."""
    place, may = kept.place, []
    if more.get("normalize") or kept.filter is not None:
        may += ["normaliz", "streaming-read-mode=file"]
    if place is None:
        return may
    if place.to is not None:
        may.append("asked for other rows")
    if place.snapshot_id < min(play.main.states) and not more.get("consumer"):
        may += ["expired", "is gone"]
    if kept.must_fail or kept.may_fail:
        may += ["rolled back", "cannot continue", "is gone", "expired"]
    return may


def changes_of(rows: pa.RecordBatch, slots: Mapping[str, str]) -> Iterator[Change]:
    """Changes of a batch; the kind is its last column."""
    kinds = rows.column(rows.num_columns - 1).to_pylist()
    names = [slots[name] for name in rows.schema.names[:-1]]
    for kind, row in zip(kinds, comparable(rows.select(rows.schema.names[:-1])), strict=True):
        yield kind, dict(zip(names, row, strict=True))


def expect_followed(
    play: Play, found: Sequence[Mapping[str, Any]], slots: frozenset[str] | None = None, filter: Any = None
) -> None:
    """What a follower has is what the table shows; rows that have expired are nothing to it.

    Where rows are seen late it may have them before.
    """
    line, key = play.main, play.shape.key
    kept = [each.slot for each in line.content.columns if slots is None or each.slot in slots]
    unknown = {_comparable(loose) for loose in line.content.loose}
    shown = [row for row in found if not key or tuple(row.get(slot) for slot in key) not in unknown]
    if play.shape.is_late:
        _expect_one_of(play, shown, kept, filter)
        return
    expired = play.expired | line.content.expired(play.clock.ms)
    wanted: Counter[tuple[Any, ...]] = Counter()
    for values, count in line.content.values(now_ms=play.clock.ms):
        if filter is None or matches(filter, values):
            wanted[_comparable(values.get(slot) for slot in kept)] += count
            expired.discard(_comparable(values[slot] for slot in key))
    rows = (row for row in shown if _identity(play, row) not in expired)
    expect(wanted, Counter(tuple(row.get(slot) for slot in kept) for row in rows))


def _identity(play: Play, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key; without one all values."""
    if play.shape.has_key:
        return tuple(row.get(slot) for slot in play.shape.key)
    return tuple(sorted((slot, value) for slot, value in row.items() if value is not None))


def _comparable(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(canonical(value) for value in values)


def _expect_one_of(play: Play, found: Sequence[Mapping[str, Any]], kept: Sequence[str], filter: Any) -> None:
    """Each key has a row that it may show by now."""
    by_key = {tuple(row.get(slot) for slot in play.shape.key): tuple(row.get(slot) for slot in kept) for row in found}
    for key in play.main.content.stories:
        row = by_key.pop(_comparable(key), None)
        if key in play.main.content.loose:
            continue
        may: list[Any] = []
        for values, _ in play.main.content.possible(key):
            is_gone = values is None or is_expired(play.shape, values, play.clock.ms)
            if values is not None and (filter is None or matches(filter, values)):
                may.append(_comparable(values.get(slot) for slot in kept))
            if is_gone or (filter is not None and values is not None and not matches(filter, values)):
                may.append(None)
        if row not in may and not (None in may and _comparable(key) in play.expired):
            raise MismatchError(f"one of={may} found={row}")
    surplus = [row for key, row in by_key.items() if key not in play.expired]
    if surplus:
        raise MismatchError(f"surplus={sorted(map(repr, surplus))}")


def streams_are_whole(play: Play) -> bool:
    """Whether what followers get is, at its end, what a read shows."""
    cell = play.cell
    shows_at_once = cell["vectors"] in ("on", "wide") and cell["write-only"] == "no"
    if play.shape.is_late and play.shape.has_log:
        return shows_at_once
    if play.shape.is_exact_log and cell["streams"] == "file":  # what a restore put there comes with a compaction
        live = LiveFiles.latest(play.main.table.store)
        return all(file.level for key in live.buckets() for file in live.files(key))
    return cell["producer"] not in ("lookup", "full-compaction") or play.shape.is_exact_log or shows_at_once
