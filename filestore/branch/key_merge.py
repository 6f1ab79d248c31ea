"""Merging a bucket by key: what the branch changed since the common state is written on top of main.

Where the changed rows of both sides are known as files, only these are read; where a key is in both of them, or the
files are not known, the three states are compared. Rows reach main as new level-0 files; where the merge engine would
make something else of them, the bucket is written again as it should be. Memory is bounded by the merges of the three
sides and by ``write-buffer-size``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.branch.key_places import (
    LISTED,
    Conflicts,
    KeyConflict,
    KeyPlace,
    MergeTables,
    ValuesByName,
    narrowed_place,
)
from filestore.commit.committable import discard
from filestore.index.deletion_vector_changes import change_index
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry
from filestore.read.split_read import BucketFiles
from filestore.scan.bucket_states import BucketState
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey
from filestore.schema.row_counts import HIDDEN_NAMES
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.table_write import TableWrite
from lsm.errors import InvalidInputError
from lsm.keys.keys import newest_last
from lsm.merge.row_count import ROW_COUNT
from lsm.merge.three_way import DECISION_FIELD, SIDE_FIELD, KeyDecision, MergeSide, merge_changed, merge_three
from lsm.row_kind import SEQUENCE_NUMBER_FIELD, VALUE_KIND, RowKind, repeated_kind
from lsm.undo import undoing


@dataclass(slots=True)
class MergedKeys:
    """The result for one place."""

    messages: tuple[CommitMessage, ...] = ()
    conflicts: Conflicts = field(default_factory=Conflicts)

    @property
    def files(self) -> Iterator[tuple[bytes, int, DataFileMeta]]:
        """The written files, with their buckets."""
        return ((each.partition, each.bucket, file) for each in self.messages for file in each.compact_after)


def merge_keys(tables: MergeTables, place: KeyPlace, *, force: bool) -> MergedKeys:
    """Merge one place.

    Args:
        tables: see there.
        place: see there.
        force: keys that both changed differently get the branch's row.

    Returns:
        Messages with the new files as ``compact_after``; none with a conflict that is not forced.

    Raises:
        InvalidInputError: the rows could only be written by rewriting buckets that keys are assigned to one by one.
        FileNotFoundError: a state has expired meanwhile.
    """
    merge = _Merge(tables, place, force=force)
    if place.main_changes is not None and place.branch_changes is not None:
        found = merge.run(merge.by_changes())
        if found.conflicts.count == 0:
            return found
        merge.discard(found)
    if _takes_new_rows(tables.main):
        try:
            return merge.run(merge.by_states())
        except _NeedsRewriteError:
            pass
    if tables.main.has_dynamic_buckets:
        raise InvalidInputError(
            f"both sides changed a partition, and its rows cannot be written one by one: table={tables.main.name} "
            f"partition={tables.main.partition_values(place.partition)} bucket=-1 "
            f"merge-engine={tables.main.options.merge_engine} fix='write the rows of the branch to main'"
        )
    return merge.rewrite()


def takes_changes(store: TableStore) -> bool:
    """Whether the files of a table's commits alone say what each key became."""
    options = store.options
    return (
        store.has_key
        and not store.counts_rows
        and options.merge_engine == "deduplicate"
        and not options.sequence_fields
        and not options.ignore_delete
        and not options.deletion_vectors_enabled
    )


_BASE, _MAIN, _BRANCH = MergeSide


class _NeedsRewriteError(Exception):
    """The merge engine would make something else of new rows."""


class _Merge:
    def __init__(self, tables: MergeTables, place: KeyPlace, *, force: bool) -> None:
        self._tables = tables
        self._place = place
        self._force = force
        self._columns = list(tables.main.schema.column_names)
        self._keys = tables.main.schema.trimmed_primary_keys
        self._section_bytes = max(tables.main.options.sort_spill_buffer_size_bytes // 4, 1)

    def by_changes(self) -> Iterator[pa.Table]:
        """The decided keys, by the rows of the commits only."""
        place = self._place
        return merge_changed(
            self._runs(self._tables.main, place.main_changes or (), drop_deletes=False),
            self._runs(self._tables.branch, place.branch_changes or (), drop_deletes=False),
            key_names=self._keys,
            section_bytes=self._section_bytes,
        )

    def by_states(self, *, keeps: bool = False) -> Iterator[pa.Table]:
        """The decided keys, by the three states; with ``keeps`` the rows that main keeps, too."""
        place = self._place if keeps else narrowed_place(self._tables.main, self._place)
        # what main deleted may still decide what a new row comes to
        has_sequence = bool(self._tables.main.options.sequence_fields) and _takes_new_rows(self._tables.main)
        return merge_three(
            self._runs(self._tables.branch, place.base),
            self._runs(self._tables.main, place.main, drop_deletes=not has_sequence),
            self._runs(self._tables.branch, place.branch),
            key_names=self._keys,
            keeps=keeps,
            section_bytes=self._section_bytes,
        )

    def run(self, decided: Iterable[pa.Table]) -> MergedKeys:
        """Write the decided keys as new rows on top of main's."""
        conflicts = Conflicts()
        changes = (self._changes(rows) for rows in self._settled(decided, conflicts))
        messages = self._written(changes, conflicts, self._tables.main, self._place.indexes)
        return MergedKeys(
            tuple(replace(each, new_files=(), compact_after=each.new_files) for each in messages), conflicts
        )

    def rewrite(self) -> MergedKeys:
        """Write a bucket again with the decided keys."""
        main, place, conflicts = self._tables.main, self._place, Conflicts()
        rows = (self._result(rows) for rows in self._settled(self.by_states(keeps=True), conflicts))
        written = self._written(rows, conflicts, main, ())
        if conflicts.count and not self._force:
            return MergedKeys((), conflicts)
        settled = [
            replace(each, new_files=tuple(replace(file, level=main.level_count - 1) for file in each.new_files))
            for each in written
        ]
        if not place.main:  # main has nothing there any more
            return MergedKeys(
                tuple(replace(each, new_files=(), compact_after=each.new_files) for each in settled), conflicts
            )
        (state,) = place.main
        new = tuple(file for each in settled for file in each.new_files)
        gone = {file.file_name for file in state.files}
        index = change_index(main, place.partition, state.bucket, place.indexes, removed=gone)
        message = CommitMessage(
            partition=place.partition,
            bucket=state.bucket,
            total_buckets=state.total_buckets,
            compact_before=state.files,
            compact_after=new,
            index_before=index.before,
            index_after=index.after,
        )
        return MergedKeys((message,), conflicts)

    def discard(self, found: MergedKeys) -> None:
        """Delete written files."""
        delete_merged(self._tables.main, found)

    def _settled(self, decided: Iterable[pa.Table], conflicts: Conflicts) -> Iterator[pa.Table]:
        """The decided keys; after a conflict, which is noted, only with ``force``."""
        for rows in decided:
            is_conflict = pc.equal(rows.column(DECISION_FIELD.name), int(KeyDecision.CONFLICT))
            if pc.any(is_conflict).as_py():
                self._note(rows.filter(is_conflict), conflicts)
            if self._force or not conflicts.count:
                yield rows

    def _changes(self, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
        """Rows to write on top of main's, and their kinds."""
        main, kinds = self._tables.main, _numbers(rows, VALUE_KIND)
        is_wanted = (_numbers(rows, SIDE_FIELD.name) != _BASE) & (
            _numbers(rows, DECISION_FIELD.name) != KeyDecision.KEEP
        )
        if main.counts_rows:
            rows, kinds = rows.filter(pa.array(is_wanted)), kinds[is_wanted]
            counts = _numbers(rows, ROW_COUNT)
            signed = pa.array(np.where(kinds & 1, -counts, counts))
            index = rows.schema.get_field_index(ROW_COUNT)
            rows = rows.set_column(index, rows.schema.field(index), signed)
            return rows.select(self._columns), repeated_kind(RowKind.INSERT, rows.num_rows)
        if main.options.sequence_fields:
            self._check_newer(rows.filter(pa.array(is_wanted)))
        is_wanted &= (kinds == RowKind.INSERT) | (kinds == RowKind.DELETE)
        rows, kinds = rows.filter(pa.array(is_wanted)), kinds[is_wanted]
        if main.options.ignore_delete and (kinds == RowKind.DELETE).any():
            raise _NeedsRewriteError
        return rows.select(self._columns), pa.array(kinds)

    def _check_newer(self, rows: pa.Table) -> None:
        """Raises: _NeedsRewriteError when a row of main would win over the branch's by its sequence."""
        options = self._tables.main.options
        kinds = _numbers(rows, VALUE_KIND)
        follows = np.flatnonzero((kinds == RowKind.UPDATE_BEFORE) | (kinds == RowKind.UPDATE_AFTER))
        if not len(follows):
            return
        pairs = rows.take(pa.array(np.stack([follows, follows + 1], axis=1).reshape(-1)))
        order = np.arange(pairs.num_rows)
        pairs = pairs.append_column(SEQUENCE_NUMBER_FIELD, pa.array(order))
        now = newest_last(pairs, order, order % 2 == 0, options.sequence_fields, descending=options.sequence_descending)
        if (now != order).any():
            raise _NeedsRewriteError

    def _result(self, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The rows that the bucket has afterwards."""
        is_row = (_numbers(rows, VALUE_KIND) == RowKind.INSERT) & (_numbers(rows, SIDE_FIELD.name) != _BASE)
        rows = rows.filter(pa.array(is_row))
        return rows.select(self._columns), repeated_kind(RowKind.INSERT, rows.num_rows)

    def _written(
        self,
        rows: Iterable[tuple[pa.Table, pa.Array]],
        conflicts: Conflicts,
        main: TableStore,
        indexes: Sequence[IndexManifestEntry],
    ) -> Sequence[CommitMessage]:
        """Messages with new files of these rows; none when there are conflicts that are not forced."""
        place = self._place
        known = {
            BucketKey(place.partition, state.bucket): max(file.max_sequence_number for file in state.files)
            for state in place.main
            if state.files
        }
        options = {"changelog-producer": "none"}  # streams get the difference of two states
        states = (*place.main, *place.branch)  # none of both: each has emptied the bucket, and no row is written
        if states and not main.has_dynamic_buckets:
            options["bucket"] = str(states[0].total_buckets)
        writer = TableWrite(
            TableView(main).with_options(options),
            max_sequence_numbers=lambda *key: known.get(BucketKey(*key), NO_SEQUENCE_NUMBER),
            index=indexes if main.has_dynamic_buckets else (),
            takes_stored_rows=True,
        )
        with undoing(writer.abort):
            for table, kinds in rows:
                if table.num_rows:
                    writer.write(table, kinds)
            if conflicts.count and not self._force:
                writer.abort()
                return ()
            return writer.prepare_commit()

    def _runs(
        self, store: TableStore, states: Sequence[BucketState], *, drop_deletes: bool = True
    ) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        names = [*self._columns, VALUE_KIND]

        def rows(state: BucketState) -> Iterator[pa.RecordBatch]:
            deleted = read_deletion_vectors(store, state.deletion_vectors)
            files = BucketFiles(
                table=store, partition=self._place.partition, bucket=state.bucket, files=state.files, deleted=deleted
            )
            for runs in files.sections():
                for found in files.merged(runs, self._columns, drop_deletes=drop_deletes):
                    yield from found.select(names).to_batches()

        return [partial(rows, state) for state in states]

    def _note(self, rows: pa.Table, conflicts: Conflicts) -> None:
        """Count the conflicting keys among these rows, and list the first of them."""
        sides = _numbers(rows, SIDE_FIELD.name)
        is_new = np.ones(rows.num_rows, np.bool_)
        is_new[1:] = sides[1:] <= sides[:-1]  # they ascend within a key, and no conflict has the branch's row alone
        starts = np.flatnonzero(is_new)
        listed = starts[: LISTED - len(conflicts.first)]
        stop = int(starts[len(listed)]) if len(listed) < len(starts) else rows.num_rows
        if len(listed):
            conflicts.first += self._listed(rows.slice(0, stop), listed.tolist())
        conflicts.count += len(starts)

    def _listed(self, rows: pa.Table, starts: Sequence[int]) -> list[KeyConflict]:
        store = self._tables.main
        shown = [name for name in self._columns if name not in HIDDEN_NAMES or not store.counts_rows]
        keys = shown if store.counts_rows else [name for name in shown if name in store.schema.primary_keys]
        sides, is_gone = _numbers(rows, SIDE_FIELD.name), _numbers(rows, VALUE_KIND) == RowKind.UPDATE_AFTER
        plain = rows.select([*shown, *([ROW_COUNT] if store.counts_rows else [])]).to_pylist()
        found = []
        for start, stop in zip(starts, [*starts[1:], len(plain)], strict=True):
            values: dict[int, ValuesByName] = {}
            for number in range(start, stop):
                row = plain[number]
                own = {"count": row[ROW_COUNT]} if store.counts_rows else {n: row[n] for n in shown if n not in keys}
                if not is_gone[number]:
                    values[int(sides[number])] = own
            key = {name: plain[start][name] for name in keys}
            found.append(
                KeyConflict(key=key, base=values.get(_BASE), main=values.get(_MAIN), branch=values.get(_BRANCH))
            )
        return found


def delete_merged(store: TableStore, found: MergedKeys) -> None:
    """Delete the files of a result that is not committed."""
    discard(store, found.messages)


def _takes_new_rows(store: TableStore) -> bool:
    """Whether a new row, or a delete, on top of the others is what its key has from then on; sequences aside."""
    options = store.options
    if options.deletion_vectors_enabled:
        return False
    return store.counts_rows or options.merge_engine == "deduplicate"


def _numbers(rows: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = rows.column(name).to_numpy()
    return numbers
