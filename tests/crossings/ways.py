"""Every way to read a table, compared with what the oracle knows of its states."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from engine import procedures
from engine.follow.live import LiveCopy
from filestore.changelog.version_changes import plan_versions, read_versions
from filestore.diff.version_range import Bound, find_range
from lsm.row_kind import ROW_KIND_SYMBOLS
from tests.crossings.filters import matches, text_of
from tests.crossings.iceberg import iceberg
from tests.crossings.operations import refusable
from tests.crossings.oracle import Column, MismatchError, canonical, expect
from tests.crossings.play import MAIN, NAME, Line, Play, SkippedError, State, comparable, counted
from tests.crossings.streams import expect_followed, follow, streams_are_whole
from tests.support.tails import adopt, write_log_only


def rows(play: Play, columns: Sequence[str] | None = None, filter: Any = None, branch: str = MAIN) -> None:
    """A batch read of the newest state, of some columns, of rows that match."""
    line = play.line(branch)
    if columns is not None and line.content.loose:
        columns = [*play.shape.key, *(each for each in columns if each not in play.shape.key)]
    wanted = _chosen(line, columns)
    names = None if columns is None else [each.name for each in wanted]
    text = None if filter is None else text_of(filter, line.content.slots())
    found = line.table.read().to_arrow(columns=names, filter=text)
    expect(_projected(play, line, wanted, filter), line.content.known(counted(found, wanted), wanted))


def _chosen(line: Line, slots: Sequence[str] | None) -> tuple[Column, ...]:
    columns = {each.slot: each for each in line.content.columns}
    if slots is None:
        return tuple(columns.values())
    found = tuple(columns[slot] for slot in slots if slot in columns)
    if not found:
        raise SkippedError
    return found


def _projected(play: Play, line: Line, columns: Sequence[Column], filter: Any) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for values, count in line.content.values(now_ms=play.clock.ms):
        if filter is None or matches(filter, values):
            found[tuple(canonical(values.get(each.slot)) for each in columns)] += count
    return found


def snapshot(play: Play, at: int, branch: str = MAIN) -> None:
    """An older snapshot, by its number."""
    line = play.line(branch)
    number, state = _state(line, at)
    if number == line.newest_id:
        raise SkippedError
    expect(state.rows, play.read(line.table, state.content.columns, snapshot_id=number))


def tagged(play: Play, name: str) -> None:
    """A tag."""
    state = play.main.tags.get(name)
    if state is None or play.main.tag_ids[name] >= play.main.newest_id:
        raise SkippedError
    expect(state.rows, play.read(play.main.table, state.content.columns, tag=name))


def saved(play: Play, at: int) -> None:
    """A savepoint."""
    number = sorted(play.main.saves)[at % len(play.main.saves)] if play.main.saves else 0
    state = play.main.saves.get(number)
    if state is None or state is play.main.states.get(play.main.newest_id):
        raise SkippedError
    expect(state.rows, play.read(play.main.table, state.content.columns, version=f"savepoint.{number}"))


def at_time(play: Play, at: int) -> None:
    """The state of a moment."""
    line = play.main
    known = [(moment, number) for moment, number in play.times if number in line.states and number != line.newest_id]
    if not known:
        raise SkippedError
    moment, number = known[at % len(known)]
    state = line.states[number]
    expect(state.rows, play.read(line.table, state.content.columns, timestamp=moment))


def audit_log(play: Play) -> None:
    """The newest rows with their kinds, of a system table."""
    found = play.catalog.system_table(f"{NAME}$audit_log").to_arrow()
    if {*found["rowkind"].to_pylist()} - {"+I"}:
        raise MismatchError(f"kinds={found['rowkind'].to_pylist()}")
    columns = play.main.content.columns
    rows = play.main.content.known(counted(found.drop_columns(["rowkind"]), columns), columns)
    expect(play.newest_rows(play.main), rows)


def union(play: Play) -> None:
    """The newest snapshot and what the log has behind it."""
    if not play.shape.has_log:
        raise SkippedError
    with refusable("the log cannot be merged over the files"):
        found = play.main.table.read(options={"scan.log.union": "true"}).to_arrow()
    play.main.content.narrowed(counted(found, play.main.content.columns), play.clock.ms, complete=True)


def live(play: Play) -> None:
    """A copy in memory."""
    if not play.shape.has_key or not play.main.states or not streams_are_whole(play):
        raise SkippedError
    with play.main.table.live() as copy:
        _expect_copied(play, copy)


def _expect_copied(play: Play, copy: LiveCopy) -> None:
    slots = [each.slot for each in play.main.content.columns]
    expect_followed(play, [dict(zip(slots, row, strict=True)) for row in comparable(copy.to_arrow())])


def may_be_ahead(play: Play) -> bool:
    """Whether the log may have rows that no snapshot has, and the next writer takes them."""
    shape = play.shape
    is_given = shape.has_log and shape.has_key and not (shape.is_exact_log or shape.log_is_as_given or shape.is_late)
    return is_given and play.cell["consistency"] != "eventual" and "op" not in shape.types


def ahead(play: Play, rows: list[Mapping[str, Any]], kinds: list[str] | None = None) -> None:
    """A writer dies when its rows are in the log and in no snapshot: who reads the log has them, then all have them."""
    line = play.main
    if not may_be_ahead(play) or not line.states:
        raise SkippedError
    columns, given = line.content.columns, kinds or ["+I"] * len(rows)
    records = [(kind, play.values(row, columns)) for row, kind in zip(rows, given, strict=True)]
    news = play.arrow(rows, columns, kinds)
    with line.table.live() if streams_are_whole(play) else nullcontext() as copy:
        write_log_only(line.table, news)
        before, after = line.content, line.content.written(records, now_ms=play.clock.ms)
        line.content = after
        with suppress(SkippedError):
            union(play)
        line.content = before
        committed = adopt(line.table, news.slice(0, 0))
        play.observe(line, after, is_all_seen=True)
        if copy is not None:
            copy.wait_for(line.table.handle_of(committed))
            _expect_copied(play, copy)


def difference(play: Play, before: int, after: int) -> None:
    """What differs between two snapshots, by key: the exact net difference; both may have other columns."""
    line = play.main
    (one, then), (two, now) = _states_without_expired_rows(play, before, after)
    found = line.table.diff(one, two).to_arrow()
    _expect_difference(play, then, now, found)


def incremental(play: Play, before: int, after: int, changelog: bool = True) -> None:
    """The same as a batch read; without kinds the rows that came and changed."""
    line = play.main
    (one, then), (two, now) = _states_without_expired_rows(play, before, after)
    if one >= two:
        raise SkippedError
    options = {"incremental-between": f"{one},{two}", **({"read.changelog": "true"} if changelog else {})}
    found = line.table.read(options=options).to_arrow()
    if changelog:
        _expect_difference(play, then, now, found)
    else:
        changes = _net(play, then, now)
        wanted = Counter({row: count for (kind, row), count in changes.items() if kind in ("+I", "+U")})
        expect(wanted, counted(found, now.content.columns))


def each_version(play: Play, before: int, after: int) -> None:
    """What each version behind a state changed, up to another one: as Spark's ``CHANGES`` reads it."""
    line, is_early = play.main, play.shape.is_late and play.cell["bucket"] != "postponed"
    (one, _), (two, last) = _states_without_expired_rows(play, before, after)
    if one >= two or any(number not in line.states for number in range(one, two)):
        raise SkippedError
    if play.shape.is_compacted_late and not is_early:
        raise SkippedError  # which commit gave a row its bucket is not known
    places = sorted(line.states)
    _states_without_expired_rows(play, *range(places.index(one), places.index(two)))
    found = find_range(line.table.files, Bound(version=str(one), is_inclusive=False), Bound(version=str(two)))
    columns, wanted, shown, unknown = last.content.columns, Counter[Any](), Counter[Any](), set[Any]()
    for number in range(one + 1, two + 1):
        states = [line.states[each] for each in (number - 1, number)]
        if is_early:  # rows count from their commit on, also where reads wait for a compaction
            states, loose = zip(*(_with_all_rows(each) for each in states), strict=True)
            unknown.update((number, key) for each in loose for key in each)
        wanted.update({(number, *change): count for change, count in _net(play, *states, columns).items()})
    for split in plan_versions(found.table.store, found.steps):
        for each in read_versions(found.table, split):
            rows = counted_rows(pa.Table.from_batches([each.rows]), columns)
            kinds = ROW_KIND_SYMBOLS.take(each.kinds).to_pylist()
            shown.update(zip(each.versions.to_pylist(), kinds, rows, strict=True))
    if unknown:
        at = [next(place for place, each in enumerate(columns) if each.slot == slot) for slot in play.shape.key]
        wanted, shown = (
            Counter({each: n for each, n in side.items() if (each[0], tuple(each[2][p] for p in at)) not in unknown})
            for side in (wanted, shown)
        )
    expect(wanted, shown)


def _with_all_rows(state: State) -> tuple[State, set[tuple[Any, ...]]]:
    """A state with the rows that wait for a compaction, and the keys of which that is not known, comparable."""
    content, unknown = state.content, set(state.content.loose)
    rows: Counter[tuple[Any, ...]] = Counter()
    for key in content.stories:
        found = {content.shown(values) for values, _ in content.possible(key, complete=True)}
        if len(found) > 1:
            unknown.add(key)
        rows.update(each for each in found if each is not None and key not in unknown)
    return replace(state, rows=rows), {tuple(canonical(each) for each in key) for key in unknown}


def _states_without_expired_rows(play: Play, *places: int) -> list[tuple[int, State]]:
    """Of expired rows a difference may have any; a sum of rows below zero is in no state, but in a difference."""
    found = [_state(play.main, at) for at in places]
    contents = [state.content for _, state in found]
    if any(each.expired(play.clock.ms) or any(count < 0 for _, count in each.bag.values()) for each in contents):
        raise SkippedError
    return found


def _expect_difference(play: Play, then: State, now: State, found: pa.Table) -> None:
    kinds = found["_row_kind"].to_pylist()
    rows = list(counted_rows(found.drop_columns(["_row_kind"]), now.content.columns))
    expect(_net(play, then, now), Counter(zip(kinds, rows, strict=True)))


def counted_rows(found: pa.Table, columns: tuple[Column, ...]) -> list[tuple[Any, ...]]:
    """Rows in order, comparable."""
    counted(found.slice(0, 0), columns)
    return comparable(found)


def _net(
    play: Play, then: State, now: State, columns: Sequence[Column] | None = None
) -> Counter[tuple[str, tuple[Any, ...]]]:
    columns = now.content.columns if columns is None else columns
    if not play.shape.has_key:
        sides = [_bag(state, columns) for state in (then, now)]
        found = Counter({("-D", row): count for row, count in (sides[0] - sides[1]).items()})
        return found + Counter({("+I", row): count for row, count in (sides[1] - sides[0]).items()})
    old, new = ({key: row for key, row in _keyed(play, state, columns)} for state in (then, now))
    changes: Counter[tuple[str, tuple[Any, ...]]] = Counter()
    for key in {*old, *new}:
        was, is_ = old.get(key), new.get(key)
        if was == is_:
            continue
        if was is not None:
            changes["-U" if is_ is not None else "-D", was] += 1
        if is_ is not None:
            changes["+U" if was is not None else "+I", is_] += 1
    return changes


def _bag(state: State, columns: Sequence[Column]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in state.rows.items():
        found[_with_columns(state, row, columns)] += count
    return found


def _keyed(play: Play, state: State, columns: Sequence[Column]) -> Iterable[tuple[Any, tuple[Any, ...]]]:
    places = {each.slot: at for at, each in enumerate(state.content.columns)}
    for row in state.rows:
        yield tuple(row[places[slot]] for slot in play.shape.key), _with_columns(state, row, columns)


def _with_columns(state: State, row: tuple[Any, ...], columns: Sequence[Column]) -> tuple[Any, ...]:
    values = {each.slot: value for each, value in zip(state.content.columns, row, strict=True)}
    return tuple(values.get(each.slot) for each in columns)


def verify(play: Play) -> None:
    """Nothing is broken."""
    for line in play.lines.values():
        found = procedures.verify(line.table).to_pylist()
        if found:
            raise MismatchError(f"verify={found}")


def _state(line: Line, at: int) -> tuple[int, State]:
    if not line.states:
        raise SkippedError
    number = sorted(line.states)[at % len(line.states)]
    return number, line.states[number]


Way = Callable[..., None]
WAYS: Final[Mapping[str, Way]] = {
    each.__name__: each
    for each in (
        rows, snapshot, tagged, saved, at_time, audit_log, union, live, ahead, difference, incremental, each_version,
        verify, follow, iceberg,
    )
}  # fmt: skip
"""By name; each is called with the history as it is played, and the arguments of its step."""
