"""What a key went through: its rows of several versions, oldest first, as the changes from one to the next.

The rows of all versions are merged as runs, so the rows before all of them are read once, however many versions follow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lsm.keys.key_groups import one_chunk, take_rows
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge import SECTION_ROWS, RunSource, merge_runs
from lsm.merge.row_diff import Rows, rows_differ
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND, VALUE_KIND_FIELD, RowKind, repeated_kind

_BASE: Final = 0  # the sequence number is the version of a row; 0 is the state before the first
_RUN_ROWS: Final = 4096  # of each run in a section: with many runs, cutting costs more than merging


def diff_versions(
    base: Rows, versions: Sequence[Rows], *, key_names: Sequence[str], section_bytes: int
) -> Iterator[pa.Table]:
    """The changes that versions make, each with the number of its version.

    Args:
        base: the rows before the first version, in key order, every key once.
        versions: oldest first: the rows that each writes, in key order, every key once, with ``_VALUE_KIND``: +I and
            +U replace the key's row, -U and -D remove it. All batches share one schema but for this column.
        key_names: the key columns, most significant first.
        section_bytes: approximate size of the rows that are ordered at a time.

    Yields:
        Non-empty tables in key order, the changes of a key in the order of the versions: -D with the row that was
        removed, +I, -U and then +U; nothing for rows that are equal, see ``rows_differ``, nor for deletes of what is
        not there. ``_SEQUENCE_NUMBER`` is the version's index in ``versions``.
    """
    runs = [RunSource(min_key=None, open=partial(_of_base, base))]
    runs += [RunSource(min_key=None, open=partial(_numbered, rows, 1 + at)) for at, rows in enumerate(versions)]
    yield from merge_runs(
        runs,
        key_names=key_names,
        merge=_VersionDiff(frozenset(key_names)),
        drop_deletes=False,
        section_rows=max(SECTION_ROWS, _RUN_ROWS * len(runs)),
        section_bytes=section_bytes,
    )


@dataclass(frozen=True, slots=True)
class _VersionDiff:
    """Gets per key its row before and then those of the versions."""

    key_names: frozenset[str]

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """The changes of these keys."""
        versions = one_chunk(rows.column(SEQUENCE_NUMBER)).to_numpy()[order]
        adds = _adds(rows)[order]
        was_there = ~starts & np.roll(adds, 1)  # the row before, of the same key, is one
        rewritten = np.flatnonzero(was_there & adds)
        updated = rewritten[rows_differ(rows, order[rewritten - 1], order[rewritten], ignored=self.key_names)]
        inserted = np.flatnonzero(adds & ~was_there & (versions != _BASE))
        removed = np.flatnonzero(~adds & was_there)
        ends = np.concatenate([updated, updated, inserted, removed])  # the rows that make the changes
        shown = np.concatenate([updated - 1, updated, inserted, removed - 1])
        kinds = np.repeat(_KINDS, [len(updated), len(updated), len(inserted), len(removed)])
        in_order = np.argsort(2 * ends + (kinds == RowKind.UPDATE_AFTER), kind="stable")
        found = take_rows(rows, order[shown[in_order]])
        return _labelled(found, versions[ends[in_order]] - 1, kinds[in_order])

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The changes of keys that one run has: of a version its added rows."""
        versions = one_chunk(rows.column(SEQUENCE_NUMBER)).to_numpy()
        new = np.flatnonzero(_adds(rows) & (versions != _BASE))
        found = rows if len(new) == rows.num_rows else take_rows(rows, new)
        return _labelled(found, versions[new] - 1, np.full(len(new), RowKind.INSERT, np.int8))


_KINDS: Final = np.array([RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE], np.int8)


def _adds(rows: pa.Table) -> BoolArray:
    kinds = one_chunk(rows.column(VALUE_KIND)).to_numpy()
    found: BoolArray = (kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER)
    return found


def _labelled(rows: pa.Table, versions: np.ndarray, kinds: np.ndarray) -> pa.Table:
    at, of = (rows.schema.get_field_index(name) for name in (SEQUENCE_NUMBER, VALUE_KIND))
    return rows.set_column(at, SEQUENCE_NUMBER_FIELD, pa.array(versions)).set_column(
        of, VALUE_KIND_FIELD, pa.array(kinds)
    )


def _of_base(rows: Rows) -> Iterator[pa.RecordBatch]:
    for batch in rows():
        kinds = repeated_kind(RowKind.INSERT, batch.num_rows)
        yield _with_system(batch.columns, batch.schema, _BASE, kinds)


def _numbered(rows: Rows, version: int) -> Iterator[pa.RecordBatch]:
    for batch in rows():
        at = batch.schema.get_field_index(VALUE_KIND)
        others = [index for index in range(batch.num_columns) if index != at]
        schema = pa.schema([batch.schema.field(index) for index in others])
        yield _with_system([batch.column(index) for index in others], schema, version, batch.column(at))


def _with_system(columns: Sequence[pa.Array], schema: pa.Schema, version: int, kinds: pa.Array) -> pa.RecordBatch:
    numbers = pa.array(np.full(len(kinds), version, np.int64))
    full = schema.append(SEQUENCE_NUMBER_FIELD).append(VALUE_KIND_FIELD)
    return pa.RecordBatch.from_arrays([*columns, numbers, kinds], schema=full)
