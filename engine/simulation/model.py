"""What tables must contain: a model of one catalog, and the effect of each operation on it.

A second, simple implementation: dictionaries and no files. ModelRows are integers by integer key.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

ModelRows = Mapping[int, int]
Frozen = tuple[tuple[int, int], ...]

MAIN: Final = "main"
_NUMBERED: Final = 2
"""First commits of a created table that are remembered: snapshots up to this number are of one of them."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """A table: the rows of its branches, its tags and its savepoints."""

    main: str = MAIN  # name of the main branch
    branches: tuple[tuple[str, Frozen], ...] = ((MAIN, ()),)  # by name
    bases: tuple[tuple[str, Frozen], ...] = ()  # rows of main that a branch has in common with it
    tags: tuple[tuple[str, int, Frozen], ...] = ()  # name, snapshot and rows
    savepoints: tuple[Frozen, ...] = ()  # in no order of their numbers
    early: tuple[Frozen, ...] | None = None  # main after its first commits; None: it has the snapshots of the setup

    def rows(self, branch: str) -> dict[int, int] | None:
        """The rows of a branch; None: there is no such branch."""
        return next((dict(rows) for name, rows in self.branches if name == branch), None)

    def base(self, branch: str) -> dict[int, int]:
        """The rows that a branch had in common with main at last."""
        return next((dict(rows) for name, rows in self.bases if name == branch), {})

    def with_rows(self, branch: str, rows: ModelRows) -> "ModelTable":
        """The table with other rows in a branch."""
        changed = replace(self, branches=_entered(self.branches, branch, frozen(rows)))
        if self.early is None or branch != self.main or len(self.early) >= _NUMBERED:
            return changed
        return replace(changed, early=(*self.early, frozen(rows)))

    def with_base(self, branch: str, rows: ModelRows) -> "ModelTable":
        """The table with other common rows of a branch."""
        return replace(self, bases=_entered(self.bases, branch, frozen(rows)))

    def without_branch(self, branch: str) -> "ModelTable":
        """The table without a branch."""
        return replace(
            self,
            branches=tuple(each for each in self.branches if each[0] != branch),
            bases=tuple(each for each in self.bases if each[0] != branch),
        )

    @property
    def visible(self) -> "ModelTable":
        """The table without what cannot be observed."""
        return replace(self, bases=(), early=None)

    @property
    def unnumbered(self) -> "ModelTable":
        """The table with main alone."""
        return replace(self, tags=(), branches=tuple(each for each in self.branches if each[0] == self.main))


Catalogue = tuple[tuple[str, ModelTable], ...]
"""Tables by name."""

Effect = Callable[[Catalogue], Catalogue | None]
"""What an operation does; None: it cannot succeed in this state."""


def frozen(rows: ModelRows) -> Frozen:
    """Rows as a value, by key."""
    return tuple(sorted(rows.items()))


def unchanged(catalogue: Catalogue) -> Catalogue:
    """The effect of what changes no row: compactions, expiry, cleaning, reading."""
    return catalogue


def on_table(table: str, change: Callable[[ModelTable], ModelTable | None]) -> Effect:
    """An effect on one table; impossible where there is none."""

    def effect(catalogue: Catalogue) -> Catalogue | None:
        known = dict(catalogue).get(table)
        changed = None if known is None else change(known)
        return None if changed is None else _with_table(catalogue, table, changed)

    return effect


def on_either(tables: tuple[str, str], change: Callable[[ModelTable], ModelTable | None]) -> Effect:
    """An effect on a table that may have been renamed meanwhile."""

    def effect(catalogue: Catalogue) -> Catalogue | None:
        return next((done for table in tables if (done := on_table(table, change)(catalogue)) is not None), None)

    return effect


def put(
    rows: ModelRows, *, branch: str = MAIN, removed: frozenset[int] = frozenset()
) -> Callable[..., ModelTable | None]:
    """Rows come or change, keys go."""

    def change(table: ModelTable) -> ModelTable | None:
        where = table.main if branch == MAIN else branch
        known = table.rows(where)
        if known is None:
            return None
        left = {key: value for key, value in known.items() if key not in removed}
        return table.with_rows(where, {**left, **rows})

    return change


def overwrite(rows: ModelRows, *, branch: str = MAIN) -> Callable[..., ModelTable | None]:
    """All rows are replaced."""
    return lambda table: table.with_rows(table.main if branch == MAIN else branch, rows)


def rolled_back(snapshot: int, rows: ModelRows, *, compactions: int = 0) -> Callable[..., ModelTable | None]:
    """The table goes back to a snapshot; later tags go.

    Args:
        snapshot: its number.
        rows: of the snapshot with this number in the table that histories begin with.
        compactions: how many of the snapshots up to this one changed no rows, in a table that was created since.
    """

    def change(table: ModelTable) -> ModelTable | None:
        early, tags = table.early, tuple(each for each in table.tags if each[1] <= snapshot)
        if early is None:
            return None if compactions else replace(table.with_rows(table.main, rows), tags=tags)
        left = early[: snapshot - compactions]
        if len(left) < snapshot - compactions:
            return None
        return replace(table.with_rows(table.main, dict(left[-1])), tags=tags, early=left)

    return change


def tag(name: str, snapshot: int, rows: ModelRows, *, replaces: bool = False) -> Callable[..., ModelTable | None]:
    """A tag of a snapshot."""

    def change(table: ModelTable) -> ModelTable | None:
        others = tuple(each for each in table.tags if each[0] != name)
        if (len(others) < len(table.tags)) is not replaces:
            return None
        return replace(table, tags=tuple(sorted((*others, (name, snapshot, frozen(rows))))))

    return change


def tag_renamed(name: str, target: str, *, keeps: bool = False) -> Callable[..., ModelTable | None]:
    """A tag gets another name; ``keeps``: and has its old one still, as its process died in between."""

    def change(table: ModelTable) -> ModelTable | None:
        named = {each[0]: each for each in table.tags}
        if name not in named or target in named:
            return None
        others = (each for each in table.tags if each[0] != name or keeps)
        return replace(table, tags=tuple(sorted((*others, (target, *named[name][1:])))))

    return change


def untag(name: str) -> Callable[..., ModelTable | None]:
    """Delete a tag; a missing one may have been deleted twice at once."""
    return lambda table: replace(table, tags=tuple(each for each in table.tags if each[0] != name))


def save(table: ModelTable) -> ModelTable | None:
    """A savepoint of the newest state."""
    rows = table.rows(table.main)
    return None if rows is None else replace(table, savepoints=tuple(sorted((*table.savepoints, frozen(rows)))))


def unsave(rows: ModelRows) -> Callable[..., ModelTable | None]:
    """Delete a savepoint of these rows; a missing one may have been deleted twice at once."""

    def change(table: ModelTable) -> ModelTable | None:
        left = list(table.savepoints)
        if frozen(rows) in left:
            left.remove(frozen(rows))
        return replace(table, savepoints=tuple(left))

    return change


def branch_off(name: str, rows: ModelRows) -> Callable[..., ModelTable | None]:
    """A branch that begins with these rows of main."""

    def change(table: ModelTable) -> ModelTable | None:
        if table.rows(name) is not None:
            return None
        return table.with_rows(name, rows).with_base(name, rows)

    return change


def branch_deleted(name: str) -> Callable[..., ModelTable | None]:
    """Delete a branch."""
    return lambda table: None if table.main == name else table.without_branch(name)


def merge(name: str) -> Callable[..., ModelTable | None]:
    """What changed in a branch changes in main; refused where main changed the same key differently."""

    def change(table: ModelTable) -> ModelTable | None:
        main, on_branch, base = table.rows(table.main), table.rows(name), table.base(name)
        if main is None or on_branch is None:
            return None
        changed = {key for key in {*base, *on_branch} if base.get(key) != on_branch.get(key)}
        if any(main.get(key) not in (base.get(key), on_branch.get(key)) for key in changed):
            return None
        merged = {key: value for key, value in main.items() if key in on_branch or key not in base}
        merged |= {key: value for key, value in on_branch.items() if base.get(key) != value}
        return table.with_rows(table.main, merged).with_base(name, on_branch)

    return change


def main_replaced(name: str) -> Callable[..., ModelTable | None]:
    """A branch becomes main, and the old main goes; refused where main has a savepoint.

    Savepoints of the common history would stay, but here none is: each publishes a snapshot of its own behind the
    branch's origin, after which main cannot be fast-forwarded.

    Where it is main already, this one has completed another one that switched main and was interrupted.
    """

    def change(table: ModelTable) -> ModelTable | None:
        if table.main == name:
            return table
        if table.rows(name) is None or table.savepoints:
            return None
        return replace(table.without_branch(table.main), main=name, bases=())

    return change


def create(table: str) -> Effect:
    """A table without rows."""

    def effect(catalogue: Catalogue) -> Catalogue | None:
        return None if table in dict(catalogue) else _with_table(catalogue, table, ModelTable(early=()))

    return effect


def drop(table: str) -> Effect:
    """Drop a table; a missing one may have been dropped twice at once."""
    return lambda catalogue: tuple(each for each in catalogue if each[0] != table)


def rename(table: str, target: str) -> Effect:
    """A table gets another name."""

    def effect(catalogue: Catalogue) -> Catalogue | None:
        tables = dict(catalogue)
        if table not in tables or target in tables:
            return None
        tables[target] = tables.pop(table)
        return tuple(sorted(tables.items()))

    return effect


@dataclass(slots=True)
class Deed:
    """One operation of a history, as its caller saw it."""

    actor: int
    name: str
    effect: Effect
    began: int  # step
    otherwise: tuple[Effect, ...] = ()  # effects that it may have instead
    ended: int = 0
    is_acknowledged: bool = False
    may_be_done: bool = False  # not acknowledged, but the caller cannot exclude that it took effect
    error: str | None = None
    published: int | None = None  # step in which its rows became visible; None: some step between
    attempts: int = field(default=1)
    rows: ModelRows = field(default_factory=dict)  # that it adds to a log


def possible_states(start: Catalogue, deeds: list[Deed]) -> set[Catalogue]:
    """Every state that some order of the operations leads to, if each takes effect at one moment between its ends.

    Acknowledged operations have taken effect, those of unknown outcome may have, all others have not.
    """
    orders = _Orders(deeds)
    seen = {(orders.all, orders.number(start))}
    waiting = list(seen)
    found: set[Catalogue] = set()
    while waiting:
        left, state = waiting.pop()
        if not left:
            found.add(orders.states[state])
        for index, is_optional, is_next in orders.choices(left):
            rest = left & ~(1 << index)
            following = orders.after(index, state) if is_next else ()
            for each in (*following, state) if is_optional else following:
                if (rest, each) not in seen:
                    seen.add((rest, each))
                    waiting.append((rest, each))
    return found


class _Orders:
    """The orders of operations; states have numbers and sets of operations are bits, as many orders lead to few."""

    def __init__(self, deeds: list[Deed]) -> None:
        self.states: list[Catalogue] = []  # by number
        self._deeds = deeds
        self._spans = {
            index: (deed.began, deed.ended) if deed.published is None else (deed.published, deed.published)
            for index, deed in enumerate(deeds)
            if deed.is_acknowledged or deed.may_be_done
        }
        self._numbers: dict[Catalogue, int] = {}
        self._after: dict[tuple[int, int], tuple[int, ...]] = {}
        self._choices: dict[int, list[tuple[int, bool, bool]]] = {}
        self.all = sum(1 << index for index in self._spans)

    def number(self, state: Catalogue) -> int:
        """Of a state."""
        known = self._numbers.setdefault(state, len(self.states))
        if known == len(self.states):
            self.states.append(state)
        return known

    def after(self, index: int, state: int) -> tuple[int, ...]:
        """The states that an operation leads to from a state."""
        known = self._after.get((index, state))
        if known is None:
            deed, before = self._deeds[index], self.states[state]
            done = (effect(before) for effect in (deed.effect, *deed.otherwise))
            known = self._after[index, state] = tuple(self.number(each) for each in done if each is not None)
        return known

    def choices(self, left: int) -> list[tuple[int, bool, bool]]:
        """Operations that are left, by index; whether each may be left out, and whether it may be the next."""
        known = self._choices.get(left)
        if known is None:
            deeds, spans = self._deeds, self._spans
            open_ = [index for index in spans if left >> index & 1]
            must = min((spans[index][1] for index in open_ if deeds[index].is_acknowledged), default=None)
            known = self._choices[left] = [
                (index, not deeds[index].is_acknowledged, must is None or spans[index][0] <= must) for index in open_
            ]
        return known


def visible(catalogue: Catalogue, *, with_tags: bool = True) -> Catalogue:
    """What of a state can be observed.

    Args:
        catalogue: the state.
        with_tags: False where numbers of snapshots were used again: then tags, and branches that began at such a
            number, may be of either.
    """
    return tuple((name, table.visible if with_tags else table.visible.unnumbered) for name, table in catalogue)


def _with_table(catalogue: Catalogue, name: str, table: ModelTable) -> Catalogue:
    return tuple(sorted({**dict(catalogue), name: table}.items(), key=lambda each: each[0]))


def _entered(known: tuple[tuple[str, Frozen], ...], name: str, rows: Frozen) -> tuple[tuple[str, Frozen], ...]:
    return tuple(sorted({**dict(known), name: rows}.items()))
