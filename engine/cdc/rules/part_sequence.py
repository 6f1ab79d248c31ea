"""The schema parts of one source table in order of their offsets, and the columns of the table that hold each: pure.

A part describes the source table until the next one. So each topic partition has a sequence of *runs*: from an offset
on, rows are of this part. A part that comes back (a column dropped and added again) begins a run of its own, because
its column is another one: existing rows of the source have no value in it. A run is planned once and remembered, so
that a replay finds the same columns; it may be forgotten when the table has all its rows, and its name is never used
again. So a batch may have any number of parts.

A source that only appends columns says more by their order: a column behind one that it has preceded was dropped and
added, though no record lies between, and a new name before a column that stays was not added, but renamed or let in.

Partitions of one topic have no common order of offsets: their runs are put in order of the source's moments, and a part
that one of them meets late comes between those that others have met. Where records have crossed a part that their
columns did not survive, the table waits.

Source tables that share one table have sequences of their own, and share columns by their names.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.cdc.rules.names import name_in_table
from engine.cdc.rules.widening import has_digits, has_place_for, rounds, wider
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, SchemaChange
from filestore.types.data_types import DataField, DataType, parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.words import IndexArray

CHANGE_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("evolve", "ignore", "fail"),
    "widen": ("evolve", "ignore", "fail"),
    "retype": ("new-column", "ignore", "fail"),
    "drop": ("keep", "drop", "fail"),
    "truncate": ("apply", "ignore", "fail"),
}
"""The words that a rule for each kind of change may have; the first one is the default."""
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "evolve": {},
    "lenient": {},
    "ignore": {"add": "ignore", "widen": "ignore", "retype": "ignore", "truncate": "ignore"},
    "fail": dict.fromkeys(CHANGE_KINDS, "fail"),
}
"""One word for all kinds, as what differs from the defaults."""
_KEPT_RUNS: Final = 8  # of each partition, also when the table has their rows
_KEPT_PLANS: Final = 64
_AMID: Final = (
    "its place before a column that stays says that it was not added: it has had another name, or was left out"
)
_AGAIN: Final = "its place says that it was dropped and added, or has got the name of another column"
_FORMER_KEPT_RUNS: Final = 8  # in states without numbers of runs, where more of them may have been


SourceMoment = tuple[int, int]
"""When a change was made in the source: milliseconds, and the place in its log within one."""
CanWiden = Callable[[str, DataType], bool]
"""Whether a column of the table, by name, can get a type."""


def always(_: str, __: DataType) -> bool:
    """Any column can get any type: for callers without a table that could refuse a type."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartColumn:
    """A column of a schema part, in the table's types."""

    name: str  # in the source
    type: DataType
    default: str | None = None
    unknown: str = ""  # why it is not known what rows from before the column have; "": the default, or null
    is_certain: bool = False  # the source has said that they have the default


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPart:
    """A part met in a topic partition, at the first record that has it after another one."""

    position: str  # topic/partition
    offset: int
    digest: str
    columns: tuple[PartColumn, ...]
    has_changes: bool = True  # its records are not only rows of a snapshot
    moment: SourceMoment | None = None  # of the record
    is_end: bool = False  # the last record of neighbours that have the part, whose first one has been met
    is_ordered: bool = False  # by moments: the topic has several partitions, whose offsets have no common order
    is_appended: bool = False  # the source puts each new column behind all others, as PostgreSQL does
    table: str = "TABLE"  # for messages
    source: str = "SCHEMA.TABLE"  # for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSequence:
    """The schema parts of a source table that were met. A plan maps columns of the source to columns of the table."""

    live: Mapping[str, str] = field(default_factory=dict)  # of the newest part
    former: tuple[str, ...] = ()  # source columns that have been there
    changed: tuple[str, ...] = ()  # source columns that changes have had, not only rows of snapshots
    used: tuple[str, ...] = ()  # columns of the table that a plan has had
    types: Mapping[str, str] = field(default_factory=dict)  # of the newest part's columns that may have digits to lose
    plans: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by run name: digest, digest#2, ...
    runs: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)  # by position: (offset, run name)
    numbers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by position: how often a digest began
    begins: Mapping[str, Mapping[str, SourceMoment]] = field(default_factory=dict)  # by topic and run: its least moment
    ends: Mapping[str, SourceMoment] = field(default_factory=dict)  # by position: the greatest moment that is known

    def run_of_rows(
        self, position: str, digest: str, offsets: IndexArray, *, table: str = "TABLE"
    ) -> tuple[list[str], IndexArray]:
        """The runs of a part in a partition, and for each offset the index of its run.

        Raises:
            CorruptDataError: a row comes before all runs of its part that are known.
        """
        runs = [run for run in self.runs.get(position, ()) if _digest_of(run[1]) == digest]
        found = np.searchsorted(np.array([start for start, _ in runs], np.int64), offsets, side="right") - 1
        if found.size and found.min() < 0:
            raise CorruptDataError(
                f"the columns of a record are not known any more: at={position} offset={offsets[int(found.argmin())]} "
                f"fix='fluvial cdc resnapshot {table}'"
            )
        return [name for _, name in runs], found

    def run_at(self, position: str, offsets: IndexArray) -> tuple[list[str], IndexArray]:
        """The runs of a partition, and for each offset the index of the newest one; -1 where none is known."""
        runs = self.runs.get(position, ())
        starts = np.array([start for start, _ in runs], np.int64)
        return [name for _, name in runs], np.searchsorted(starts, offsets, side="right") - 1

    def added_after(self, run: str, others: Iterable["PartSequence"] = ()) -> frozenset[str]:
        """The columns of the table that came after a run, to a source table that had its rows already.

        So do those that other source tables have brought, and this one never had.
        """
        brought = {column for each in others for column in each.used} - {*self.used}
        names = list(self.plans)
        place = names.index(run)
        before = {column for name in names[: place + 1] for column in self.plans[name].values()}
        after = {column for name in names[place + 1 :] for column in self.plans[name].values()}
        return frozenset((after - before) | brought)

    def behind(self, stood: Mapping[str, int]) -> "PartSequence":
        """Without runs and plans that no row needs behind these offsets by position.

        Where there are several partitions, plans stay for those that meet a part later.
        """
        runs = dict(self.runs)
        for position, own in self.runs.items():
            passed = sum(start <= stood.get(position, 0) for start, _ in own)
            runs[position] = own[max(0, min(passed - 1, len(own) - _KEPT_RUNS)) :]
        newest = list(self.plans)[-_KEPT_PLANS if len(runs) == 1 else 0 :]
        needed = {name for own in runs.values() for _, name in own} | set(newest)
        plans = {name: plan for name, plan in self.plans.items() if name in needed}
        begins = {topic: {name: at for name, at in own.items() if name in plans} for topic, own in self.begins.items()}
        return replace(self, runs=runs, plans=plans, begins=begins)

    def without(self, topics: Collection[str]) -> "PartSequence":
        """Without the runs of topics whose offsets count from 0 again; their numbers stay."""
        return replace(self, runs={at: own for at, own in self.runs.items() if at.rpartition("/")[0] not in topics})

    def without_columns(self, columns: Collection[str]) -> "PartSequence":
        """Without columns of the table that are dropped."""
        if not columns:
            return self
        return replace(
            self,
            live=_without(self.live, columns),
            used=tuple(each for each in self.used if each not in columns),
            plans={name: _without(plan, columns) for name, plan in self.plans.items()},
        )

    def of_topic(self, is_own: Callable[[str], bool]) -> "PartSequence":
        """The sequence of one of several source tables, from the common one of an earlier version; by its topics."""
        runs = {position: own for position, own in self.runs.items() if is_own(_topic(position))}
        newest = [own[-1][1] for own in runs.values() if own]
        return replace(self, runs=runs, live=self.plans[newest[-1]]) if newest else self

    def to_json(self) -> dict[str, Any]:
        """The value as JSON values, for the file of the table's state."""
        return {
            "live": dict(self.live),
            "former": list(self.former),
            "changed": list(self.changed),
            "used": list(self.used),
            "types": dict(self.types),
            "plans": {name: dict(plan) for name, plan in self.plans.items()},
            "runs": {position: [list(run) for run in runs] for position, runs in self.runs.items()},
            "numbers": {position: dict(numbers) for position, numbers in self.numbers.items()},
            "begins": {topic: {name: list(at) for name, at in own.items()} for topic, own in self.begins.items()},
            "ends": {position: list(at) for position, at in self.ends.items()},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "PartSequence":
        """The inverse of ``to_json``; what states of earlier versions lack is taken from their runs and plans."""
        plans: Mapping[str, Mapping[str, str]] = body["plans"]
        runs = {position: tuple((int(at), name) for at, name in runs) for position, runs in body["runs"].items()}
        columns = dict.fromkeys(column for plan in (*plans.values(), body["live"]) for column in plan.values())
        return cls(
            live=body["live"],
            former=tuple(body["former"]),
            changed=tuple(body.get("changed", body["former"])),
            used=tuple(body.get("used", columns)),
            types=body.get("types", {}),
            plans=plans,
            runs=runs,
            begins={
                topic: {name: (at[0], at[1]) for name, at in own.items()}
                for topic, own in body.get("begins", {}).items()
            },
            ends={position: (at[0], at[1]) for position, at in body.get("ends", {}).items()},
            numbers=body.get("numbers") or {position: _numbers(own, plans) for position, own in runs.items()},
        )


class KeyTypeError(InvalidInputError):
    """A source table has a key of another type than its table."""

    def __init__(self, text: str, column: str = "", wanted: str = "") -> None:
        super().__init__(text)
        self.column = column  # of the table
        self.wanted = wanted  # the type, as it is written


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedPart:
    """One part passed through: the changes of the table, and what is known then."""

    changes: tuple[SchemaChange, ...]
    sequence: PartSequence
    before: Mapping[str, str] = field(default_factory=dict)  # by new column: what rows from before it have, and why
    unknown: Mapping[str, str] = field(default_factory=dict)  # those that have another value in the source
    nulls: tuple[str, ...] = ()  # new columns that are null there; a default that the database computes is in no record


def made_again(table: str, offset: int) -> str:
    """The advice for a table whose rows cannot follow the source at an offset: make it again."""
    return (
        f"run fluvial cdc resnapshot {table} --drop; or by hand: "
        f"send the connector the signal execute-snapshot for the source table, drop {table}, and run: "
        f"fluvial cdc skip {table} --until {offset}"
    )


def pass_through(
    sequence: PartSequence,
    seen: SeenPart,
    fields: Sequence[DataField],
    *,
    keys: Sequence[str],
    renamed: Mapping[str, str],
    rules: Mapping[str, str],
    counts_rows: bool = False,
    can_widen: CanWiden = always,
    others: Sequence[PartSequence] = (),
    reserved: Collection[str] = (),
) -> PassedPart:
    """The table after one part; parts come in order of offsets within a position.

    Args:
        sequence: what is known.
        seen: the part.
        fields: columns of the table now.
        keys: columns of the table that are never replaced.
        renamed: names in the table by names in the source.
        rules: by kind of change; kinds that are missing have their default.
        counts_rows: whether rows are known by all their values, which then must be those of the source.
        can_widen: whether the table's column can get a type that holds all its values; else another column does.
        others: what is known of the other source tables of the table.
        reserved: columns of the table with values that are none of a column of the source.

    Raises:
        InvalidInputError: a rule says ``fail``, or the table cannot follow: it is to be created again.
    """
    if seen.has_changes:
        names = dict.fromkeys((*sequence.changed, *(each.name for each in seen.columns)))
        sequence = replace(sequence, changed=tuple(names))
    before = [name for start, name in sequence.runs.get(seen.position, ()) if start <= seen.offset]
    current = before[-1] if before else None
    is_ordered = seen.is_ordered and seen.moment is not None and not _is_tied(sequence, seen, seen.moment)
    seen = replace(seen, is_ordered=is_ordered)
    is_same = current is not None and _digest_of(current) == seen.digest
    if is_ordered and seen.moment is not None:
        if seen.is_end and is_same and current is not None:
            _check_own(sequence, seen, current, seen.moment)
        name = _name_at(sequence, seen, seen.moment)
    else:
        name = current if is_same and current is not None else _next_name(sequence, seen)
    sequence = _with_moment(sequence, seen, name)
    if name == current:
        # a replay, or the same part in the next batch, perhaps with another rule
        changes = _widened(sequence, seen, name, fields, rules=rules, can_widen=can_widen)
        if counts_rows:
            _check_values(replace(sequence, live={}), seen, changes, {}, {})
        return PassedPart(changes=tuple(changes), sequence=sequence)
    if name in sequence.plans:  # another partition has brought it
        return PassedPart(changes=(), sequence=_with_run(sequence, seen, name))
    if (later := _later(sequence, seen, name)) is not None:
        return _between(sequence, seen, name, later, fields, keys=keys, renamed=renamed, rules=rules, others=others)
    if rules.get("drop") != "drop":
        _check_generated(sequence, seen, counts_rows=counts_rows)
    step = _planned(
        sequence,
        seen,
        fields,
        keys=keys,
        renamed=renamed,
        rules=rules,
        can_widen=can_widen,
        others=others,
        reserved=reserved,
    )
    changes, plan = step.changes, step.plan
    if counts_rows:
        _check_values(sequence, seen, changes, plan, step.unknown)
    kept = sequence.without_columns({each.path[0] for each in changes if isinstance(each, DropColumn)})
    grown = replace(
        kept,
        live=plan,
        former=tuple(dict.fromkeys((*sequence.former, *(each.name for each in seen.columns)))),
        used=tuple(dict.fromkeys((*kept.used, *plan.values()))),
        types={each.name: str(replace(each.type, nullable=True)) for each in seen.columns if has_digits(each.type)},
        plans={**kept.plans, name: plan},
    )
    _check_others(grown, seen, name)
    return PassedPart(
        changes=tuple(changes),
        sequence=_with_run(grown, seen, name),
        before=step.before,
        unknown=step.unknown,
        nulls=tuple(step.nulls),
    )


def leave_out(sequence: PartSequence, names: Collection[str]) -> PassedPart:
    """The table without the columns of these source columns, which the job's rules leave out now."""
    gone = [column for name, column in sequence.live.items() if name in names]
    if not gone:
        return PassedPart(changes=(), sequence=sequence)
    left = sequence.without_columns(gone)
    former = tuple(each for each in sequence.former if each not in names)
    return PassedPart(changes=tuple(DropColumn((each,)) for each in gone), sequence=replace(left, former=former))


def _check_generated(sequence: PartSequence, seen: SeenPart, *, counts_rows: bool) -> None:
    """Refuse a part without columns that only rows of snapshots have had.

    They were dropped, or the source computes them: then the values of rows that change are not in the records.

    Raises: InvalidInputError.
    """
    gone = sequence.live.keys() - {each.name for each in seen.columns} - set(sequence.changed)
    if not gone or not seen.has_changes:
        return
    patterns = ", ".join(f"'{re.escape(f'{seen.source}.{each}')}'" for each in sorted(gone))
    then = f"fluvial cdc resnapshot {seen.table} --drop --writers-stopped" if counts_rows else ""
    raise InvalidInputError(
        f"a column is in the rows of a snapshot and not in the changes: it is a generated one, whose values changes "
        f"do not have, or was dropped: column={','.join(sorted(gone))} topic={seen.position} offset={seen.offset} "
        f'fix="write columns: {{exclude: [{patterns}]}}, or source.dsn, which knows generated ones, start the job '
        f'again, and: {then or f"fluvial cdc resume {seen.table}"}"'
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """The columns of a part of which their places say more than their names."""

    again: frozenset[str] = frozenset()  # columns that were dropped and added again
    amid: frozenset[str] = frozenset()  # new names of columns that were not added
    gone: frozenset[str] = frozenset()  # names that are no longer there, and may be those of added ones


@dataclass(slots=True)
class _Planned:
    """The columns of a part in the table, and what that takes; the rest as in ``PassedPart``."""

    changes: list[SchemaChange] = field(default_factory=list)
    plan: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    nulls: list[str] = field(default_factory=list)

    def tell_before(self, name: str, kind: str, column: PartColumn) -> None:
        """Note what rows from before a new column of the table have in it."""
        if column.is_certain and kind == "add":
            return
        if kind == "retype":
            self.before[name] = "null, because no record has their values of the new type"
        elif column.unknown:
            self.before[name] = self.unknown[name] = f"null, because {column.unknown}"
        elif column.default is not None:
            self.before[name] = f"the default of this record: {column.default}"
        else:
            self.nulls.append(name)

    def tell_places(self, name: str, column: PartColumn, places: _Places, before: Mapping[str, DataType]) -> None:
        """Note that a new column of the table came back, or may be one that has left.

        Args:
            name: of the column in the table.
            column: of the part.
            places: what they say.
            before: the types that the table has for the columns of the part before, by name in the source.
        """
        others = [each for each in sorted(places.gone & before.keys()) if has_place_for(before[each], column.type)]
        is_null = name in self.nulls
        if is_null and (others or column.name in places.again):
            self.nulls.remove(name)
        if column.name in places.again:
            self.before[name] = f"{column.default or 'null'}, because {_AGAIN}"
        elif is_null and others:
            value = f"null, because it may be a new name of {','.join(others)}, which is not in the changes any more"
            self.before[name] = self.unknown[name] = value

    def tell_rounded(self, name: str, before: str | None, column: PartColumn) -> None:
        """Note that the source has rounded the values of rows from before a new type, which no record shows."""
        if before is not None and rounds(parse_data_type(before), column.type):
            value = f"{before}, which the source has made {replace(column.type, nullable=True)}"
            self.before[name] = self.unknown[name] = value

    def tell_joined(self, known: DataField, column: PartColumn) -> None:
        """Note what rows from before a column have in it, where another source table has brought it."""
        if column.unknown or known.initial_default != column.default:
            value = "null" if known.initial_default is None else f"the default {known.initial_default}"
            why = column.unknown or f"the default of this record is {column.default or 'null'}"
            self.before[known.name] = self.unknown[known.name] = f"{value}, from another source table; {why}"


def _planned(
    sequence: PartSequence,
    seen: SeenPart,
    fields: Sequence[DataField],
    *,
    keys: Sequence[str],
    renamed: Mapping[str, str],
    rules: Mapping[str, str],
    can_widen: CanWiden,
    others: Sequence[PartSequence],
    reserved: Collection[str],
) -> _Planned:
    known = {each.name: each.type for each in fields}
    by_places = _by_places(sequence, seen, keys=keys, renamed=renamed)
    again, amid = by_places.again, by_places.amid
    foreign = {*sequence.used, *_numbered(others, renamed), *reserved}  # they have columns of other names
    taken = {*_taken(sequence, others, renamed), *keys}
    shared = {column for each in others for column in each.used}
    found = _Planned()
    changes, plan = found.changes, found.plan
    before = {name: known[column] for name, column in sequence.live.items() if column in known}
    for column in seen.columns:
        wanted = name_in_table(column.name, renamed)
        own = None if column.name in again else sequence.live.get(column.name)
        column = replace(column, unknown=column.unknown or _AMID, is_certain=False) if column.name in amid else column
        if own is None and column.name not in sequence.former and wanted in known and wanted not in foreign:
            own = wanted  # of another source table, or of a table that is older than this job
        joins = column.name not in sequence.live and own in shared
        if own is not None and has_place_for(known[own], column.type):
            plan[column.name] = own
            found.tell_rounded(own, sequence.types.get(column.name), column)
            continue
        grown = None if own is None else wider(known[own], column.type)
        if own is not None and grown is not None and can_widen(own, grown):
            if _rule("widen", rules, seen, column) == "evolve":
                changes.append(ChangeType((own,), replace(grown, nullable=True)))
                known[own] = grown
            plan[column.name] = own
            continue
        if own in keys:
            raise KeyTypeError(
                f"the type of a key column has changed: column={own} type={known[own or wanted]} given={column.type} "
                f"topic={seen.position} offset={seen.offset} fix='{made_again(seen.table, seen.offset)}'",
                own or wanted,
                str(replace(column.type, nullable=True)),
            )
        kind = "add" if own is None or joins else "retype"
        if _rule(kind, rules, seen, column) == "ignore":
            continue
        default = column.default if kind == "add" and column.name not in amid else None
        free = _free(wanted, known, column.type, {*taken, *plan.values(), *_with_other_default(fields, default)})
        plan[column.name] = free
        if free not in known:
            found.tell_before(free, kind, column)
            found.tell_places(free, column, by_places, before)
            new = AddColumn(path=(free,), type=replace(column.type, nullable=True), initial_default=default)
            changes.append(new)
            known[free] = column.type
    for column in seen.columns if sequence.live else ():
        joined = next((each for each in fields if each.name == plan.get(column.name)), None)
        if joined is not None and joined.name in shared and column.name not in sequence.live:
            found.tell_joined(joined, column)
    changes += _dropped(sequence, seen, known, again, rules=rules, others=others)
    return found


def _by_places(sequence: PartSequence, seen: SeenPart, *, keys: Sequence[str], renamed: Mapping[str, str]) -> _Places:
    """Look at the places of columns; those of keys are never other ones."""
    names = [each.name for each in seen.columns]
    places = {name: place for place, name in enumerate(sequence.live)}
    gone = places.keys() - {*names}
    if not seen.is_appended:
        return _Places(gone=frozenset(gone))
    kept = [name for name in names if name in places]
    jumps = (at for at, (one, two) in enumerate(pairwise(kept), 1) if places[one] > places[two])
    begin = next(jumps, len(kept))
    again = {name for name in kept[begin:] if name_in_table(name, renamed) not in keys}
    stays = [name for name in kept if name not in again]
    last = max(map(names.index, stays), default=0)
    end = max((places[name] for name in stays), default=-1)
    return _Places(
        again=frozenset(again),
        amid=frozenset(name for name in names[:last] if name not in places),
        gone=frozenset(name for name in gone if places[name] > end),
    )


def _widened(
    sequence: PartSequence,
    seen: SeenPart,
    name: str,
    fields: Sequence[DataField],
    *,
    rules: Mapping[str, str],
    can_widen: CanWiden,
) -> list[SchemaChange]:
    """The changes of columns that an earlier rule has kept narrow."""
    known, plan = {each.name: each.type for each in fields}, sequence.plans.get(name, {})
    found: list[SchemaChange] = []
    for column in seen.columns:
        own = plan.get(column.name)
        if own not in known or has_place_for(known[own], column.type):
            continue
        grown = wider(known[own], column.type)
        if grown is not None and can_widen(own, grown) and _rule("widen", rules, seen, column) == "evolve":
            found.append(ChangeType((own,), replace(grown, nullable=True)))
    return found


def _dropped(
    sequence: PartSequence,
    seen: SeenPart,
    known: Mapping[str, DataType],
    again: Collection[str],
    *,
    rules: Mapping[str, str],
    others: Sequence[PartSequence],
) -> list[SchemaChange]:
    """The changes that drop columns that are not in a part, or came back, unless another source table has them."""
    live = {column for each in others for column in each.live.values()}
    found: list[SchemaChange] = []
    for gone in sequence.live.keys() - {each.name for each in seen.columns if each.name not in again}:
        column = sequence.live[gone]
        word = _rule("drop", rules, seen, PartColumn(name=gone, type=known[column]))
        if word == "drop" and column not in live:
            found.append(DropColumn((column,)))
    return found


def _check_values(
    sequence: PartSequence,
    seen: SeenPart,
    changes: Sequence[SchemaChange],
    plan: Mapping[str, str],
    unknown: Mapping[str, str],
) -> None:
    """Check a schema change of a table without a key. Raises: InvalidInputError: old rows could not be found again."""
    wrong = [f"{each.path[0]} has another type" for each in changes if isinstance(each, ChangeType)]
    for name, column in plan.items() if sequence.live else ():
        given = next(each for each in seen.columns if each.name == name)
        if name not in sequence.live and given.default is not None:
            wrong.append(f"{name} has a default")
        elif name not in sequence.live and given.unknown:
            wrong.append(f"{name} has values: {given.unknown}")
        elif column in unknown:
            wrong.append(f"{name} has values: {unknown[column]}")
        elif sequence.live.get(name, column) != column:
            wrong.append(f"{name} has another type")
    wrong += [f"{name} is gone" for name in sorted(sequence.live.keys() - {each.name for each in seen.columns})]
    if wrong:
        raise InvalidInputError(
            f"rows without a key are known by all their values, and those of old rows have changed in the source: "
            f"changes='{', '.join(wrong)}' topic={seen.position} offset={seen.offset} "
            f"fix='stop the writers of the source table, then: "
            f"fluvial cdc resnapshot {seen.table} --drop --writers-stopped'"
        )


def _rule(kind: str, rules: Mapping[str, str], seen: SeenPart, column: PartColumn) -> str:
    word = rules.get(kind, CHANGE_KINDS[kind][0])
    if word == "fail":
        raise InvalidInputError(
            f"the schema of the source has changed: kind={kind} column={column.name} type={column.type} "
            f"topic={seen.position} offset={seen.offset} schema-changes.{kind}=fail "
            f"fix='set it to {CHANGE_KINDS[kind][0]}, start the job again, and: fluvial cdc resume {seen.table}'"
        )
    return word


def _free(name: str, known: Mapping[str, DataType], wanted: DataType, used: Collection[str]) -> str:
    """The name, or the name with the first free number after it: ``c_2``.

    A column of this type that no plan uses was added for this part by a run that died before it saved its state.
    """
    taken = {each.lower() for each in known}
    number, free = 2, name
    while free.lower() in taken:
        if number > 2 and free in known and free not in used and has_place_for(known[free], wanted):
            return free
        free = f"{name}_{number}"
        number += 1
    return free


def _own_names(sequence: PartSequence, renamed: Mapping[str, str]) -> frozenset[str]:
    """The columns of the table that have the names of columns of a source table."""
    return frozenset(name_in_table(each, renamed) for each in sequence.former)


def _numbered(others: Iterable[PartSequence], renamed: Mapping[str, str]) -> frozenset[str]:
    """The columns of the table in which other source tables have a column of another name: ``c_2``."""
    return frozenset(column for each in others for column in {*each.used} - _own_names(each, renamed))


def _taken(sequence: PartSequence, others: Iterable[PartSequence], renamed: Mapping[str, str]) -> frozenset[str]:
    """The columns that cannot hold a numbered one of a source table: those that it has, and names of others."""
    return frozenset(sequence.used).union(*(_own_names(each, renamed) for each in others))


def _with_other_default(fields: Iterable[DataField], default: str | None) -> frozenset[str]:
    """The columns of the table in which rows from before have another value."""
    return frozenset(each.name for each in fields if each.initial_default != default)


def _next_name(sequence: PartSequence, seen: SeenPart) -> str:
    """The run's name: a digest that has been there gets a number, which is the same in every partition."""
    count = sequence.numbers.get(seen.position, {}).get(seen.digest, 0)
    return seen.digest if count == 0 else f"{seen.digest}#{count + 1}"


def _topic(position: str) -> str:
    return position.rpartition("/")[0]


def _timeline(sequence: PartSequence, seen: SeenPart) -> list[tuple[SourceMoment, str]]:
    """The runs of a topic in order of the source."""
    return sorted((at, name) for name, at in sequence.begins.get(_topic(seen.position), {}).items())


def _is_tied(sequence: PartSequence, seen: SeenPart, moment: SourceMoment) -> bool:
    """Whether another part has begun at a moment, so that moments say no order."""
    return any(at == moment and _digest_of(name) != seen.digest for at, name in _timeline(sequence, seen))


def _name_at(sequence: PartSequence, seen: SeenPart, moment: SourceMoment) -> str:
    """The run of a part at a moment: one beside it in the timeline, or a new one between others."""
    line = _timeline(sequence, seen)
    beside = [name for at, name in line if at <= moment][-1:] + [name for at, name in line if at > moment][:1]
    same = [name for name in beside if _digest_of(name) == seen.digest]
    if same:
        return same[0]
    taken = [int(name.partition("#")[2] or 1) for name in sequence.plans if _digest_of(name) == seen.digest]
    return f"{seen.digest}#{max(taken) + 1}" if taken else seen.digest


def _later(sequence: PartSequence, seen: SeenPart, name: str) -> str | None:
    """The run that follows one in the timeline of its topic; None: it is the newest, or the topic has no timeline."""
    if not seen.is_ordered:
        return None
    names = [each for _, each in _timeline(sequence, seen)]
    return next(iter(names[names.index(name) + 1 :]), None)


def _with_moment(sequence: PartSequence, seen: SeenPart, name: str) -> PartSequence:
    """The sequence that knows when a run has been met."""
    if seen.moment is None:
        return sequence
    topic, at = _topic(seen.position), seen.moment
    own = sequence.begins.get(topic, {})
    return replace(
        sequence,
        begins={**sequence.begins, topic: {**own, name: min(at, own.get(name, at))}},
        ends={**sequence.ends, seen.position: max(at, sequence.ends.get(seen.position, at))},
    )


def _between(
    sequence: PartSequence,
    seen: SeenPart,
    name: str,
    later: str,
    fields: Sequence[DataField],
    *,
    keys: Sequence[str],
    renamed: Mapping[str, str],
    rules: Mapping[str, str],
    others: Sequence[PartSequence],
) -> PassedPart:
    """The table after a part that another partition has left behind: columns are those of the runs beside it.

    The table's newest columns stay. A column that no run beside it has is added, and is none of the newest.
    """
    names = [each for _, each in _timeline(sequence, seen)]
    earlier = dict(sequence.plans.get(names[names.index(name) - 1], {})) if names[0] != name else {}
    known = {each.name: each.type for each in fields}
    taken = {*_taken(sequence, others, renamed), *keys}
    plan: dict[str, str] = {}
    changes: list[SchemaChange] = []
    for column in seen.columns:
        beside = [each[column.name] for each in (earlier, sequence.plans[later]) if column.name in each]
        fitting = [each for each in beside if has_place_for(known[each], column.type)]
        if fitting:
            plan[column.name] = fitting[0]
            continue
        wanted = name_in_table(column.name, renamed)
        if wanted in keys:
            raise _refused_order(seen, f"key column {column.name} has had another type", later)
        if _rule("retype" if beside else "add", rules, seen, column) == "ignore":
            continue
        free = _free(wanted, known, column.type, {*taken, *plan.values(), *_with_other_default(fields, None)})
        plan[column.name] = free
        if free not in known:
            changes.append(AddColumn(path=(free,), type=replace(column.type, nullable=True)))
            known[free] = column.type
    gone = [each for each, own in earlier.items() if each not in plan and sequence.plans[later].get(each) == own]
    if gone:
        raise _refused_order(seen, f"column {gone[0]} was dropped, and added again", later)
    order = list(sequence.plans)
    at = order.index(later)
    plans = {each: plan if each == name else sequence.plans[each] for each in (*order[:at], name, *order[at:])}
    grown = replace(
        sequence,
        former=tuple(dict.fromkeys((*sequence.former, *(each.name for each in seen.columns)))),
        used=tuple(dict.fromkeys((*sequence.used, *plan.values()))),
        plans=plans,
    )
    _check_others(grown, seen, name)
    return PassedPart(changes=tuple(changes), sequence=_with_run(grown, seen, name))


def _check_own(sequence: PartSequence, seen: SeenPart, current: str, moment: SourceMoment) -> None:
    """Check the records of a partition between two moments that have the same part.

    Raises: InvalidInputError: other partitions have a part between that its columns did not survive: which of the
        records came before that is not known.
    """
    begin = sequence.begins.get(_topic(seen.position), {}).get(current, moment)
    begin = max(begin, sequence.ends.get(seen.position, begin))
    for at, between in _timeline(sequence, seen):
        lost = _lost(sequence, current, between)
        if begin < at <= moment and lost:
            raise _refused_order(seen, f"column {lost[0]} was dropped, or got another type, and came back", between)


def _check_others(sequence: PartSequence, seen: SeenPart, name: str) -> None:
    """Check the records of other partitions that are later than a new part, and have been taken for earlier ones.

    Raises: InvalidInputError: they have other columns.
    """
    begin = sequence.begins.get(_topic(seen.position), {}).get(name)
    for position, end in sequence.ends.items():
        current = next((run for _, run in reversed(sequence.runs.get(position, ()))), None)
        if not seen.is_ordered or begin is None or current is None or position == seen.position:
            continue
        own = sequence.begins.get(_topic(seen.position), {}).get(current, begin)
        if _topic(position) == _topic(seen.position) and own < begin <= end:
            differing = [*_lost(sequence, current, name), *_lost(sequence, name, current)]
            if differing:
                raise _refused_order(seen, f"column {differing[0]} was added or dropped, and not for long", current)


def _lost(sequence: PartSequence, run: str, other: str) -> list[str]:
    """The columns of a run that another one does not have, or has as other columns."""
    plan = sequence.plans.get(other, {})
    return [name for name, column in sequence.plans.get(run, {}).items() if plan.get(name) != column]


def _refused_order(seen: SeenPart, what: str, run: str) -> InvalidInputError:
    return InvalidInputError(
        f"columns have changed in a topic of several partitions, and which records came before is not known: "
        f"change='{what}' part={run} topic={seen.position} offset={seen.offset} "
        f"fix='{made_again(seen.table, seen.offset)}'"
    )


def _numbers(runs: Sequence[tuple[int, str]], plans: Iterable[str]) -> dict[str, int]:
    """Count the runs of each digest in a partition, from the runs and plans that an earlier version has kept."""
    found: dict[str, int] = {}
    for name in [*(name for _, name in runs), *(plans if len(runs) >= _FORMER_KEPT_RUNS else ())]:
        found[_digest_of(name)] = max(found.get(_digest_of(name), 0), int(name.partition("#")[2] or 1))
    return found


def _digest_of(name: str) -> str:
    return name.partition("#")[0]


def _without(plan: Mapping[str, str], columns: Collection[str]) -> dict[str, str]:
    return {name: column for name, column in plan.items() if column not in columns}


def _with_run(sequence: PartSequence, seen: SeenPart, name: str) -> PartSequence:
    runs = tuple(sorted((*sequence.runs.get(seen.position, ()), (seen.offset, name))))
    own = sequence.numbers.get(seen.position, {})
    numbers = {**own, seen.digest: own.get(seen.digest, 0) + 1}
    return replace(
        sequence, runs={**sequence.runs, seen.position: runs}, numbers={**sequence.numbers, seen.position: numbers}
    )
