"""Rows of which a source left values out, as Debezium does with large values that an update did not change.

``_unavailable`` has their columns by row. A value is that of the newest earlier row of the key in the batch, else that
of the newest snapshot; only rows with a mask are looked up. An update of a key that no row is known of cannot be
filled, and is refused rather than written with a null that would be taken for the source's.

An update may change the key: it comes as a delete and an insert that names the old key. Its values are those of the row
that the delete removed. The delete must have come before it, in this batch: the rows of the old key have then been
seen, and the values are the newest. Where another task has seen them, one task writes the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.write.unavailable.moved_rows import Chains, MovedRows
from engine.write.unavailable.newest_rows import EarlierRows, SnapshotRows, places_among
from filestore.table_view import TableView
from logstore.format.source.unavailable import columns_of_masks
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

UNKNOWN_KEY: Final = "no row of the key is known, from which the values that the source left out could be taken"
LOST_KEY: Final = "the row had another key, whose delete has not come before it in this batch: its values are lost"
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

    def __init__(self, table: TableView, refuse: Refuse | None = None, *, task_count: int = 1) -> None:
        """Prepare; nothing is read before a row has a mask.

        Args:
            table: where the rows go.
            refuse: gets rows that cannot be filled, which are left out; None: they fail the batch.
            task_count: the batch's, of which each has the buckets of one remainder.
        """
        self._task_count = task_count
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
            marks: (n,) list<string>: names of the columns that were left out, or null; deletes need none. With them
                may be the old key (``logstore.format.source.old_keys``). None: nothing was left out.

        Raises:
            InvalidInputError: a mask names no column, or the table cannot be filled.
            MovedBetweenTasksError: one task can fill the batch, several cannot.
        """
        masks = {} if marks is None else _masks(marks, kinds)
        moved = MovedRows.of(marks, rows, self._table, self._task_count) if masks else None
        if self._table.options.merge_engine == "partial-update":
            if moved is None:
                return rows, kinds  # a null leaves the column alone
            return self._without(rows, kinds, moved.is_moved, LOST_KEY)
        if masks:
            self._check(masks)
            rows, kinds = self._completed(rows, kinds, masks, moved)
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
        """The newest row of each key, and for a deleted key also the newest row before its deletes."""
        for rows, kinds in self._unsorted:
            if rows.num_rows:
                order, starts = key_order([rows.column(name) for name in self._names], presorted=False)
                table = pa.Table.from_batches([rows.append_column(_KIND, kinds)])
                is_living = np.asarray(kinds)[order] != RowKind.DELETE
                is_newest = np.append(starts[1:], True)
                groups = np.cumsum(starts) - 1
                living = np.full(int(groups[-1]) + 1, -1)
                living[groups[is_living]] = np.flatnonzero(is_living)  # the last of each wins
                former = living[groups[is_newest & ~is_living]]
                self._earlier.add(
                    table.take(pa.array(np.sort(order[is_newest]))),
                    former=table.take(pa.array(order[former[former >= 0]])),
                )
        self._unsorted, self._unsorted_bytes = [], 0

    def _completed(
        self, rows: pa.RecordBatch, kinds: pa.Array, masks: dict[str, BoolArray], moved: MovedRows | None
    ) -> tuple[pa.RecordBatch, pa.Array]:
        count = rows.num_rows
        keys = pa.Table.from_batches([rows.select(list(self._names))])
        if moved is not None:
            keys = pa.concat_tables([keys, moved.keys.cast(keys.schema)])
        chains = Chains.of(keys, count, np.asarray(kinds) == RowKind.DELETE, moved)
        sources = {name: chains.sources(mask) for name, mask in masks.items()}
        wanted = np.unique(np.concatenate([sources[name][mask] for name, mask in masks.items()]))
        base, places = self._base(keys, chains, wanted[(wanted >= count) & (wanted < chains.nowhere)])
        refused = np.zeros(count, bool)
        columns = []
        if moved is not None and moved.deleted is not None:
            refused |= ~self._are_deleted(rows, base, moved, places[chains.previous[:count]])
        for field in rows.schema:
            column = rows.column(field.name)
            if field.name in masks:
                mask, at = masks[field.name], places[sources[field.name]]
                is_gone = (at >= 0) & (at < count) & chains.is_delete[np.clip(at, 0, count - 1)]
                refused |= mask & (is_gone | (at < 0))
                taken = np.where(mask & (at >= 0), at, np.arange(count))
                column = _joined(column, base, field).take(pa.array(taken))
            columns.append(column)
        done = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        is_moved = np.zeros(count, bool) if moved is None else moved.is_moved
        done, kinds = self._without(done, kinds, refused, UNKNOWN_KEY, is_moved)
        return done, kinds

    def _without(
        self, rows: pa.RecordBatch, kinds: pa.Array, refused: BoolArray, reason: str, is_moved: BoolArray | None = None
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows that are not refused."""
        if not refused.any():
            return rows, kinds
        reasons = np.full(rows.num_rows, reason, object)
        if is_moved is not None:
            reasons[is_moved] = LOST_KEY
        at = pa.array(refused)
        self._refuse(rows.filter(at), reasons[refused].tolist())
        return rows.filter(pc.invert(at)), kinds.filter(pc.invert(at))

    def _are_deleted(self, rows: pa.RecordBatch, base: pa.Table | None, moved: MovedRows, at: IndexArray) -> BoolArray:
        """(n,) whether the row of the old key is marked as deleted; true for rows without an old key."""
        field = rows.schema.field(str(moved.deleted))
        values = _joined(rows.column(field.name), base, field).take(pa.array(np.maximum(at, 0)))
        return ~moved.is_moved | (np.asarray(values.fill_null(False)) & (at >= 0))

    def _base(self, keys: pa.Table, chains: Chains, wanted: IndexArray) -> tuple[pa.Table | None, IndexArray]:
        """What was there before these rows, and the place of each node among the rows and what follows them.

        Args:
            keys: of the rows and of old keys.
            chains: of them.
            wanted: the nodes that are asked for, each before the first row of a key here.
        """
        places = np.append(np.arange(chains.count), np.full(chains.nowhere + 1 - chains.count, -1))
        if not len(wanted):
            return None, places
        self._sort()
        found, size = list[pa.Table](), chains.count
        is_former = wanted >= chains.former
        for nodes, former in ((wanted[~is_former], False), (wanted[is_former], True)):
            if not len(nodes):
                continue
            groups = nodes - (chains.former if former else chains.count)
            asked = keys.take(pa.array(chains.first_of_group[groups])).combine_chunks()
            rows = self._known(asked, former=former).combine_chunks()
            at = places_among(rows.select(list(self._names)), asked)
            places[nodes[at]] = size + np.arange(rows.num_rows)
            size += rows.num_rows
            found.append(rows)
        return pa.concat_tables(found, promote_options="default").combine_chunks(), places

    def _known(self, keys: pa.Table, *, former: bool) -> pa.Table:
        """The newest rows of keys before these rows; ``former``: those that a delete of this batch removed."""
        names, found = list(self._names), list[pa.Table]()
        earlier = self._earlier.find(keys)
        rest = keys.slice(0, 0) if former else keys
        if earlier is not None and earlier.num_rows:
            at = places_among(earlier.select(names), keys)
            is_there = np.asarray(one_chunk(earlier.column(_KIND))) != RowKind.DELETE
            if former:
                rest = keys.take(pa.array(at[~is_there]))
                removed = self._earlier.find(rest, is_living=True) if rest.num_rows else None
                if removed is not None and removed.num_rows:
                    known = places_among(removed.select(names), rest)
                    rest = rest.take(pa.array(np.setdiff1d(np.arange(rest.num_rows), known)))
                    found.append(removed.drop_columns([_KIND]))
            else:
                rest = keys.take(pa.array(np.setdiff1d(np.arange(keys.num_rows), at)))
                found.append(earlier.filter(pa.array(is_there)).drop_columns([_KIND]))
        if rest.num_rows or not found:
            found.append(self._snapshot.find(rest))
        return pa.concat_tables(found, promote_options="default")


def _masks(marks: pa.Array, kinds: pa.Array) -> dict[str, BoolArray]:
    """For each column, the rows that lack its value; deletes need none."""
    needed = np.asarray(kinds) != RowKind.DELETE
    found = {name: mask & needed for name, mask in columns_of_masks(marks).items()}
    return {name: mask for name, mask in found.items() if mask.any()}


def _joined(column: pa.Array, base: pa.Table | None, field: pa.Field) -> pa.Array:
    if base is None:
        return column
    values = one_chunk(base.column(field.name)) if field.name in base.column_names else pa.nulls(len(base), field.type)
    return pa.concat_arrays([column, values.cast(field.type)])
