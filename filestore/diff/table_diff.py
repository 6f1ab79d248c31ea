"""The difference of two states of a table: the changes that turn the rows of one into those of the other.

States are any versions that ``filestore.refs.versions`` can express, also of different branches and with different
columns. It is exact and net: rows both added and removed in between are not part of it. Files that both states share
are not read, and the rest is compared bucket by bucket in key order, so memory does not grow with the table.
Source: Paimon's ``incremental-between`` with scan mode diff.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from filestore.changelog.compared_states import Changes, ComparedStates
from filestore.changelog.equal_rows import without_equal_rows
from filestore.changelog.snapshot_changes import ChangeSplit, plan_diff, read_changes
from filestore.diff.columns import ColumnChange, ShownStates, column_changes, shown_together
from filestore.refs.versions import Version, as_of, find_version, parse_version
from filestore.scan.table_scan import TableScan
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table import FileTable, TableRead
from lsm.errors import InvalidInputError
from lsm.merge.row_diff import differs
from lsm.row_kind import RowKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiff:
    """Two fixed states, which can be compared repeatedly. Concurrent writes do not affect it."""

    shown: ShownStates  # how both are shown
    before: Snapshot | None  # None: the empty table
    after: Snapshot
    columns: tuple[ColumnChange, ...]  # columns that differ

    @property
    def table(self) -> FileTable:
        """With the schema of the rows: the columns of the later state, of types that hold the values of both."""
        return self.shown.table

    def plan(self) -> tuple[ChangeSplit, ...]:
        """Independent splits to read. Raises: FileNotFoundError when a state has expired in the meantime."""
        store = self.shown.after.store
        return plan_diff(
            store, self.before, self.after, least_level=TableScan(store).min_level, shows_same=self.shown.shows_same
        )

    def read(self, split: ChangeSplit) -> Changes:
        """The changes of a split, see ``filestore.changelog.snapshot_changes.read_changes``; equal rows cancel out."""
        if self.table.store.has_key or not (split.before and split.after):
            yield from self._changes(split)
            return
        yield from without_equal_rows(
            partial(self._changes, split),
            self.table.schema.fields,
            row_count=split.row_count,
            budget_bytes=self.table.options.sort_spill_buffer_size_bytes,
        )

    def _changes(self, split: ChangeSplit) -> Changes:
        shown = self.shown
        compared = ComparedStates(before=shown.before, after=shown.after, shows_same=shown.shows_same)
        return read_changes(self.table, split, states=compared)

    def changes(self) -> Changes:
        """All changes: rows with the columns of the later state, and their (n,) int8 kinds."""
        for split in self.plan():
            yield from self.read(split)


@dataclass(slots=True, kw_only=True)
class DiffSummary:
    """Counts of the differences."""

    inserted: int = 0
    deleted: int = 0
    updated: int = 0  # keys; always 0 without a primary key
    changed_values: Counter[str] = field(default_factory=Counter)  # by column, among updated keys
    columns: tuple[ColumnChange, ...] = ()


def open_diff(table: FileTable, before: Version | str, after: Version | str) -> TableDiff:
    """Resolve two versions.

    Args:
        table: the table; versions without a branch refer to its branch.
        before: ``0``, or a time before the first commit, is the empty table.
        after: version after the changes; may be older than ``before``.

    Raises:
        InvalidInputError: there is no such version, or their keys differ.
    """
    found, start = _find(table, after), _find(table, before)
    if found is None or found.snapshot is None:
        raise InvalidInputError(
            f"the empty table can only come first: table={table.name} before={before} after={after}"
        )
    then = found.table if start is None else start.table
    return TableDiff(
        shown=shown_together(then, found.table),
        before=None if start is None else start.snapshot,
        after=found.snapshot,
        columns=column_changes(then, found.table),
    )


def summarized(diff: TableDiff) -> DiffSummary:
    """Count the differences by row and by column."""
    summary = DiffSummary(columns=diff.columns)
    names = [name for name in diff.table.schema.column_names if name not in diff.table.schema.primary_keys]
    for old, new in _pairs(diff.changes(), summary):
        for name in names:
            count = int(np.count_nonzero(differs(old.column(name), new.column(name))))
            if count:
                summary.changed_values[name] += count
    return summary


def _pairs(changes: Changes, summary: DiffSummary) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Updated rows before and after, (n,) each; other changes are only counted."""
    waiting: list[pa.RecordBatch] = []  # -U rows with their +U in the next batch
    for rows, kinds in changes:
        numbers = np.asarray(kinds)
        summary.inserted += int(np.count_nonzero(numbers == RowKind.INSERT))
        summary.deleted += int(np.count_nonzero(numbers == RowKind.DELETE))
        old = _taken([*waiting, _chosen(rows, numbers, RowKind.UPDATE_BEFORE)])
        new = _chosen(rows, numbers, RowKind.UPDATE_AFTER)
        summary.updated += new.num_rows
        waiting = [old.slice(new.num_rows)] if old.num_rows > new.num_rows else []
        if new.num_rows:
            yield old.slice(0, new.num_rows), new


def _chosen(rows: pa.RecordBatch, numbers: np.ndarray, kind: RowKind) -> pa.RecordBatch:
    return rows.filter(pa.array(numbers == kind))


def _taken(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _find(table: FileTable, wanted: Version | str) -> TableRead | None:
    """The version's state; None: the empty table."""
    version = parse_version(table.store, wanted) if isinstance(wanted, str) else wanted
    there = table if version.branch in (None, table.store.paths.branch) else table.on_branch(version.branch)
    if version.snapshot_id == 0:
        return None
    is_whole = there.store.snapshots.earliest_id() in (None, FIRST_SNAPSHOT_ID)
    if version.time_ms is not None and is_whole and as_of(there.store, version.time_ms) is None:
        return None
    return table.read_found(find_version(table.store, version))
