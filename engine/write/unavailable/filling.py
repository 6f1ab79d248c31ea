"""Rows of which a source left values out, as Debezium does with large values that an update did not change.

``_unavailable`` has their columns by row. A value is that of the newest earlier row of the key in the batch, else that
of the newest snapshot; only rows with a mask are looked up. An update of a key that no row is known of cannot be
filled, and is refused rather than written with a null that would be taken for the source's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.write.unavailable.newest_rows import EarlierRows, SnapshotRows, places_among
from filestore.table_view import TableView
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

UNKNOWN_KEY: Final = "no row of the key is known, from which the values that the source left out could be taken"
_KIND: Final = "_KIND"

Refuse = Callable[[pa.RecordBatch, Sequence[str]], None]
"""Given the rows that cannot be filled, with null for what is missing, and the reason for each. Picklable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOnUnknownKeys:
    """The default: the batch is refused."""

    table: str
    key_names: Sequence[str]

    def __call__(self, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Raises: InvalidInputError."""
        key = {name: rows.column(name)[0].as_py() for name in self.key_names}
        raise InvalidInputError(
            f"an update cannot be completed: table={self.table} key={key} rows={rows.num_rows} reason='{reasons[0]}' "
            "fix='set REPLICA IDENTITY FULL at the source, or take a new snapshot of its table'"
        )


class Filling:
    """Fills the rows of one task's share of a batch, in their order."""

    def __init__(self, table: TableView, refuse: Refuse | None = None) -> None:
        """Prepare; nothing is read before a row has a mask.

        Args:
            table: where the rows go.
            refuse: gets rows that cannot be filled, which are left out; None: they fail the batch.
        """
        self._names = tuple(table.schema.primary_keys)
        self._refuse = refuse or FailOnUnknownKeys(table=table.name, key_names=self._names)
        self._table = table
        self._earlier = EarlierRows(table.store, table.store.options.write_buffer_bytes)
        self._snapshot = SnapshotRows(table.store)
        self._unsorted: list[tuple[pa.RecordBatch, pa.Array]] = []  # rows that no look-up has needed yet
        self._unsorted_bytes = 0

    def filled(self, rows: pa.RecordBatch, kinds: pa.Array, marks: pa.Array | None) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows without gaps; of a key's rows, those of earlier calls are older.

        Args:
            rows: the table's columns.
            kinds: (n,) int8.
            marks: (n,) list<string>: names of the columns that were left out, or null; deletes need none. None: nothing
                was left out.

        Raises:
            InvalidInputError: a mask names no column, or the table cannot be filled.
        """
        masks = {} if marks is None else _masks(marks, kinds)
        if self._table.options.merge_engine == "partial-update":
            return rows, kinds  # a null leaves the column alone
        if masks:
            self._check(masks)
            rows, kinds = self._completed(rows, kinds, masks)
        if self._names and self._table.row_counts is None:
            self._remember(rows, kinds)
        return rows, kinds

    def _check(self, masks: dict[str, BoolArray]) -> None:
        table = self._table
        unknown = [name for name in masks if name not in table.schema.column_names or name in self._names]
        engine = table.options.merge_engine
        if unknown or not self._names or engine != "deduplicate" or table.store.options.bucket == -2:
            raise InvalidInputError(
                f"values that the source left out cannot be filled in: table={table.name} columns={list(masks)} "
                f"primary_key={list(self._names)} merge-engine={engine} bucket={table.store.options.bucket} "
                "fix='set REPLICA IDENTITY FULL at the source; filling needs a table with a primary key, "
                "merge-engine=deduplicate or partial-update, and a bucket other than -2'"
            )

    def _remember(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Keep rows whose values later ones may have left out; most batches have none, so nothing is sorted yet."""
        self._unsorted.append((rows, kinds))
        self._unsorted_bytes += rows.nbytes
        if self._unsorted_bytes > self._table.store.options.write_buffer_bytes:
            self._sort()

    def _sort(self) -> None:
        """Of each key the newest row."""
        for rows, kinds in self._unsorted:
            if rows.num_rows:
                order, starts = key_order([rows.column(name) for name in self._names], presorted=False)
                newest = np.sort(order[np.append(starts[1:], True)])
                self._earlier.add(pa.Table.from_batches([rows.append_column(_KIND, kinds)]).take(pa.array(newest)))
        self._unsorted, self._unsorted_bytes = [], 0

    def _completed(
        self, rows: pa.RecordBatch, kinds: pa.Array, masks: dict[str, BoolArray]
    ) -> tuple[pa.RecordBatch, pa.Array]:
        order, starts = key_order([rows.column(name) for name in self._names], presorted=False)
        is_delete = np.asarray(kinds) == RowKind.DELETE
        sources = {name: _sources(order, starts, mask) for name, mask in masks.items()}
        groups = np.empty(len(order), np.int64)
        groups[order] = np.cumsum(starts) - 1
        lacking = np.zeros(len(order), bool)
        for name, mask in masks.items():
            lacking |= mask & (sources[name] < 0)
        base, base_of_group = self._base(rows, order[starts], np.unique(groups[lacking]))
        refused = np.zeros(len(order), bool)
        columns = []
        for field in rows.schema:
            column = rows.column(field.name)
            if field.name not in masks:
                columns.append(column)
                continue
            mask = masks[field.name]
            from_rows = sources[field.name]
            from_base = base_of_group[groups]
            is_gone = (from_rows >= 0) & is_delete[from_rows]
            refused |= mask & (is_gone | ((from_rows < 0) & (from_base < 0)))
            places = np.where(from_rows >= 0, from_rows, from_base + rows.num_rows)
            places = np.where(mask, np.where(refused, np.arange(len(order)), places), np.arange(len(order)))
            columns.append(_joined(column, base, field).take(pa.array(places)))
        done = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        if refused.any():
            at = pa.array(refused)
            self._refuse(done.filter(at), [UNKNOWN_KEY] * int(refused.sum()))
            done, kinds = done.filter(pc.invert(at)), kinds.filter(pc.invert(at))
        return done, kinds

    def _base(
        self, rows: pa.RecordBatch, firsts: IndexArray, wanted: IndexArray
    ) -> tuple[pa.Table | None, NDArray[np.int64]]:
        """What was there before these rows, and its row by number of key; -1: nothing.

        Args:
            rows: of the batch.
            firsts: (g,) a row of each key.
            wanted: numbers of the keys that are asked for.
        """
        places = np.full(len(firsts), -1)
        if not len(wanted):
            return None, places
        keys = pa.Table.from_batches([rows.select(list(self._names)).take(pa.array(firsts[wanted]))])
        found = []
        self._sort()
        earlier = self._earlier.find(keys)
        rest = keys
        if earlier is not None and earlier.num_rows:
            known = places_among(earlier.select(list(self._names)), keys)
            rest = keys.take(pa.array(np.setdiff1d(np.arange(keys.num_rows), known)))
            is_there = np.asarray(one_chunk(earlier.column(_KIND))) != RowKind.DELETE
            found.append(earlier.filter(pa.array(is_there)).drop_columns([_KIND]))
        if rest.num_rows:
            found.append(self._snapshot.find(rest))
        base = pa.concat_tables(found, promote_options="default").combine_chunks()
        at = places_among(base.select(list(self._names)), keys)
        places[wanted[at]] = np.arange(base.num_rows)
        return base, places


def _masks(marks: pa.Array, kinds: pa.Array) -> dict[str, BoolArray]:
    """By column the rows that lack its value; deletes need none."""
    marks = marks.combine_chunks() if isinstance(marks, pa.ChunkedArray) else marks
    rows = np.asarray(pc.list_parent_indices(marks))
    names = pc.list_flatten(marks).cast(pa.string())
    needed = np.asarray(kinds) != RowKind.DELETE
    masks = {}
    for name in names.unique().drop_null().to_pylist():
        mask = np.zeros(len(marks), bool)
        mask[rows[np.asarray(pc.equal(names, name).fill_null(False))]] = True
        if (mask & needed).any():
            masks[name] = mask & needed
    return masks


def _sources(order: IndexArray, starts: BoolArray, mask: BoolArray) -> IndexArray:
    """(n,) for each row the newest row of its key that has the value, be it itself; -1: none here has."""
    places = np.arange(len(order))
    newest = np.maximum.accumulate(np.where(mask[order], -1, places))
    first = np.maximum.accumulate(np.where(starts, places, 0))
    found = np.empty(len(order), np.int64)
    found[order] = np.where(newest >= first, order[newest], -1)
    return found


def _joined(column: pa.Array, base: pa.Table | None, field: pa.Field) -> pa.Array:
    if base is None:
        return column
    values = one_chunk(base.column(field.name)) if field.name in base.column_names else pa.nulls(len(base), field.type)
    return pa.concat_arrays([column, values.cast(field.type)])
