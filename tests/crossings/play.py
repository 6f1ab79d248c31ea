"""A history while it runs: the table, and beside it what the oracle knows of each of its states."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from engine.table import Table
from lsm.errors import InvalidInputError
from tests.crossings.covering import Cell
from tests.crossings.history import Step
from tests.crossings.oracle import Column, Content, MismatchError, canonical
from tests.crossings.space import SPACE, shape_of, value_of
from tests.crossings.world import MemoryCatalog

NAME: Final = "d.t"
MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class State:
    """A snapshot as it was first read."""

    content: Content
    rows: Counter[tuple[Any, ...]]
    at_ms: int


@dataclass
class Line:
    """A branch: its table, and what is known of its states."""

    table: Table
    content: Content
    states: dict[int, State] = field(default_factory=dict)
    tags: dict[str, State] = field(default_factory=dict)
    tag_ids: dict[str, int] = field(default_factory=dict)
    saves: dict[int, State] = field(default_factory=dict)
    base: Content | None = None  # of a branch: what it has in common with main

    @property
    def newest_id(self) -> int:
        """The newest snapshot; 0: none."""
        return max(self.states, default=0)


class SkippedError(Exception):
    """A step that has no meaning here, such as the deletion of a tag that there is not: nothing happens."""


class Play:
    """A table and its oracle; ``step`` does one thing to both, and compares."""

    def __init__(self, cell: Cell, place: MemoryCatalog) -> None:
        """Make the table.

        Raises:
            MismatchError: the product refuses what no rule refuses, or the other way about.
        """
        self.cell, self.catalog, self.shape = cell, place, shape_of(cell)
        self.clock = place.clock
        self.followers: dict[str, Any] = {}
        self.serial = 0
        table = self._created()
        columns = tuple(Column(name, name, kind) for name, kind in self.shape.types.items())
        self.lines: dict[str, Line] = {MAIN: Line(table, Content(self.shape, columns))}
        self.times: list[tuple[int, int]] = []  # a moment, and the newest snapshot then
        self.written: list[Mapping[str, Any]] = []  # rows as they were given, for those who take them back
        self.given: dict[tuple[Any, ...], Mapping[str, Any]] = {}  # the newest of each key
        self.expired: set[tuple[Any, ...]] = set()  # what followers may keep: no change says that a row has expired

    def _created(self) -> Table:
        refusals, shape = SPACE.refusals(self.cell), self.shape
        try:
            table = self.catalog.create_table(
                NAME, shape.schema, primary_key=shape.key, partition_by=shape.partition, options=shape.options
            )
        except InvalidInputError as error:
            if any(rule.message in str(error) for rule in refusals):
                raise RefusedError(str(error)) from error
            raise
        if refusals:
            raise MismatchError(f"not refused: {[rule.name for rule in refusals]}")
        return table

    @property
    def main(self) -> Line:
        """The main branch."""
        return self.lines[MAIN]

    def line(self, name: str = MAIN) -> Line:
        """A branch. Raises: SkippedError."""
        if name not in self.lines:
            raise SkippedError
        return self.lines[name]

    # ---- rows

    def values(self, row: Mapping[str, Any], columns: tuple[Column, ...]) -> dict[str, Any]:
        """A given row as a reader would get its values, by slot."""
        return {
            each.slot: pa.array([value_of(self.shape, each.slot, row.get(each.slot))], each.type).to_pylist()[0]
            for each in columns
        }

    def arrow(self, rows: list[Mapping[str, Any]], columns: tuple[Column, ...], kinds: list[str] | None) -> pa.Table:
        """Given rows as a writer takes them; a kind each, in a column of its own or of the table."""
        named = {
            each.name: pa.array([value_of(self.shape, each.slot, row.get(each.slot)) for row in rows], each.type)
            for each in columns
        }
        table = pa.table(named)
        if kinds is not None and "op" not in {each.slot for each in columns}:
            table = table.append_column("_row_kind", pa.array(kinds, pa.string()))
        return table

    def read(self, table: Table, columns: tuple[Column, ...], **how: Any) -> Counter[tuple[Any, ...]]:
        """All rows of a state, comparable. Raises: MismatchError: its columns are others."""
        return counted(table.read(**how).to_arrow(), columns)

    # ---- what happened

    def after(self, step: Step) -> None:
        """A step is done: what later ones refer to."""
        name, given = step
        self.catalog.cluster.settle()
        if name in ("write", "overwrite", "grow") and given.get("branch", MAIN) == MAIN:
            kinds = given.get("kinds") or ["+I"] * len(given["rows"])
            for row, kind in zip(given["rows"], kinds, strict=True):
                key = tuple(row.get(slot) for slot in self.shape.key)
                if kind in ("+I", "+U"):
                    self.written.append(row)
                    self.given[key] = row
                else:
                    self.given.pop(key, None)
        if self.main.states:
            self.times.append((self.clock.ms, self.main.newest_id))

    def observe(self, line: Line, after: Content, *, is_all_seen: bool = False) -> None:
        """Compare each new snapshot, and the newest, with what an operation should have made of the rows."""
        store, now, is_late = line.table.store, self.clock.ms, self.shape.is_late
        after = after.passed(now)
        if line is self.main:
            self.expired |= line.content.expired(now) | after.expired(now)
        final = after.all_seen() if is_all_seen or not is_late else after
        ids = store.snapshots.ids()
        for number in ids:
            if number in line.states:
                continue
            rows = self.read(line.table, after.columns, snapshot_id=number)
            is_last = number == ids[-1]
            candidates = (final,) if is_last else (after,) if is_late else (after, line.content)
            narrowed = _first_fitting(candidates, rows, now)
            line.states[number] = State(narrowed, rows, now)
            if is_last:
                final = narrowed
            elif is_late:
                after = narrowed
        line.content = final.narrowed(self.read(line.table, final.columns), self.clock.ms)

    def newest_rows(self, line: Line) -> Counter[tuple[Any, ...]]:
        """What a read of the newest state must show now."""
        return line.content.rows(now_ms=self.clock.ms)


class RefusedError(Exception):
    """The product refuses the table, as a rule says."""


def _first_fitting(candidates: Sequence[Content], rows: Counter[tuple[Any, ...]], now_ms: int) -> Content:
    """What a snapshot shows: of a commit before the one that changes rows, what there was."""
    for content in candidates[:-1]:
        with suppress(MismatchError):
            return content.narrowed(rows, now_ms)
    return candidates[-1].narrowed(rows, now_ms)


def counted(found: pa.Table, columns: tuple[Column, ...]) -> Counter[tuple[Any, ...]]:
    """Rows, comparable."""
    names = [each.name for each in columns]
    if found.schema.names != names:
        raise MismatchError(f"columns={found.schema.names} expected={names}")
    return Counter(comparable(found))


def comparable(found: pa.Table | pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows as tuples of comparable values, in order."""
    columns = [[canonical(value) for value in column.to_pylist()] for column in found.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * found.num_rows
