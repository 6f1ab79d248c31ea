"""Deleting single rows of a table without a key, by deletion vectors.

Such rows are known by their place only: a data file and their number in it. Callers read rows with their places; one
commit then deletes some of these, and adds the rows that replace them. It conflicts with other writers that rewrote one
of the files meanwhile, or deleted rows of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.datafile.row_positions import placed_rows
from filestore.index.deletion_vector_changes import change_index
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.predicate import Predicate, columns_of
from filestore.scan.data_split import DataSplit
from filestore.scan.live_files import BucketKey
from filestore.scan.snapshot_files import deletion_indexes
from filestore.scan.table_scan import Filter, TableScan
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.undo import undoing, undoing_unless_visible

FILE_FIELD: Final = pa.field("_fluvial_file", pa.string(), nullable=False)
ROW_FIELD: Final = pa.field("_fluvial_row", pa.int64(), nullable=False)

DeletedPositions = Mapping[str, Positions]
"""Rows to delete, by name of the data file."""


def check_deletable(store: TableStore) -> None:
    """Refuse tables without deletion vectors, and those with a key. Raises: InvalidInputError: what to change."""
    if store.has_key or not store.options.deletion_vectors_enabled:
        raise InvalidInputError(
            f"rows of this table cannot be deleted by their place: table={store.name} "
            f"deletion-vectors.enabled={str(store.options.deletion_vectors_enabled).lower()} "
            "fix=a table without a key, and ALTER TABLE ... SET ('deletion-vectors.enabled' = 'true')"
        )


def read_with_places(
    store: TableStore, split: DataSplit, columns: Sequence[str], filter: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a split that match, with the two columns that say where they are.

    Args:
        store: opened with the schema of the returned rows.
        split: of a plan of this table; of a filtered plan only together with that filter.
        columns: to return, in this order.
        filter: rows for which it is not true are left out.

    Yields:
        Batches of these columns, ``FILE_FIELD`` and ``ROW_FIELD``; none of them empty.
    """
    deleted = read_deletion_vectors(store, split.deletion_vectors)
    tested = columns_of(filter) if filter is not None else frozenset()
    names = [name for name in store.schema.column_names if name in {*columns, *tested}]
    schema = pa.schema([*store.schema.arrow_schema_of(columns), FILE_FIELD, ROW_FIELD])
    for file in split.files:
        gone = deleted.get(file.file_name, NO_POSITIONS)
        for read in placed_rows(store, split.partition, split.bucket, file, names, with_system=False, span=filter):
            kept = np.ones(read.rows.num_rows, np.bool_)
            if filter is not None:
                kept &= np.asarray(filter_mask(filter, read.rows).fill_null(False))
            kept[read.found(gone)] = False
            chosen = np.flatnonzero(kept)
            if len(chosen):
                rows = read.rows.take(pa.array(chosen))
                name = pa.repeat(pa.scalar(file.file_name, pa.string()), len(chosen))
                arrays = [*(rows.column(column) for column in columns), name, pa.array(read.first + chosen)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def united_deletes(places: Iterable[tuple[str, Positions]]) -> dict[str, Positions]:
    """Rows by file name, each once and ascending."""
    found: defaultdict[str, list[Positions]] = defaultdict(list)
    for name, positions in places:
        found[name].append(positions)
    return {name: np.unique(np.concatenate(parts)) for name, parts in found.items()}


def replace_rows(
    store: TableStore,
    snapshot: Snapshot,
    splits: Iterable[DataSplit],
    deletes: DeletedPositions,
    *,
    added: Sequence[CommitMessage] = (),
    commit_user: str | None = None,
    committable: Committable | None = None,
) -> CommitResult:
    """Delete rows and add others, in one commit; nothing is left behind when it is refused.

    Args:
        store: see ``check_deletable``.
        snapshot: in which the rows were found.
        splits: those that were read: where the files are.
        deletes: rows to delete.
        added: new files; they are deleted when the commit is refused.
        commit_user: None is a fresh one.
        committable: identifier, changes and properties of the commit.

    Raises:
        ConflictError: files with these rows were rewritten meanwhile, or rows of them deleted: look for the rows again.
        OutcomeUnknownError: it may be visible: look at the newest snapshot.
    """
    check_deletable(store)
    places = {file.file_name: split for split in splits for file in split.files}
    by_bucket: defaultdict[BucketKey, dict[str, Positions]] = defaultdict(dict)
    totals: dict[BucketKey, int] = {}
    for name, positions in deletes.items():
        split = places[name]
        by_bucket[BucketKey(split.partition, split.bucket)][name] = positions
        totals[BucketKey(split.partition, split.bucket)] = split.total_buckets
    indexes = deletion_indexes(store, snapshot)
    messages = list(added)
    with undoing(lambda: discard(store, messages)):
        for key, files in by_bucket.items():
            change = change_index(store, key.partition, key.bucket, indexes.get(key, ()), positions=files)
            messages.append(
                CommitMessage(
                    partition=key.partition,
                    bucket=key.bucket,
                    total_buckets=totals[key],
                    index_before=change.before,
                    index_after=change.after,
                )
            )
    base = committable or Committable(identifier=BATCH_IDENTIFIER)
    commit = TableCommit(store, commit_user or store.new_commit_user(), history_start=snapshot.id)
    with undoing_unless_visible(lambda: discard(store, messages)):
        return commit.replace_rows(replace(base, messages=messages, base=snapshot.ref))


def delete_rows(store: TableStore, filter: Filter) -> CommitResult:
    """Delete the rows that match, in this process. Raises: as ``replace_rows``."""
    check_deletable(store)
    plan = TableScan(store).plan(filter=filter)
    if plan.snapshot is None:
        return CommitResult(snapshot=None)
    found = (each for split in plan.splits for each in read_with_places(store, split, (), plan.filter))
    deletes = united_deletes((each.column(0)[0].as_py(), each.column(1).to_numpy()) for each in found)
    return replace_rows(store, plan.snapshot, plan.splits, deletes)
