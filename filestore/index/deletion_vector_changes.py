"""Changes of a bucket's deletion vectors when its files are removed, or rows of remaining files are deleted.

A vector is deleted with its data file. In bucketed tables all vectors of a bucket are in one index file, as in
Paimon, which would lose those of a second one. Without buckets only the changed index files are rewritten.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from filestore.index.deletion_vectors import (
    NO_POSITIONS,
    Positions,
    read_deletion_vectors,
    united,
    write_deletion_vectors,
)
from filestore.manifest.lists import DELETION_VECTORS, IndexManifestEntry, vectors_of_names
from filestore.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """The index entries to replace, and their replacements, for a ``CommitMessage``."""

    before: tuple[IndexManifestEntry, ...] = ()
    after: tuple[IndexManifestEntry, ...] = ()  # an entry that only loses vectors keeps its name


def change_index(
    store: TableStore,
    partition: bytes,
    bucket: int,
    entries: Sequence[IndexManifestEntry],
    *,
    removed: Collection[str] = (),
    positions: Mapping[str, Positions] | None = None,
) -> IndexChange:
    """Remove the vectors of some files, and delete rows of others.

    Args:
        store: the table.
        partition: BinaryRow bytes.
        bucket: bucket number; 0 for a table without buckets.
        entries: all current deletion vector entries of the bucket.
        removed: names of removed data files.
        positions: newly deleted positions (ascending) by name of remaining data files.
    """
    deletes = {name: rows for name, rows in (positions or {}).items() if len(rows)}
    names = {*removed, *deletes}
    has_buckets = store.has_key or store.options.bucket > 0
    touched = tuple(
        entry
        for entry in entries
        if (deletes and has_buckets) or any(each.data_file_name in names for each in entry.index_vectors)
    )
    if not deletes:
        return IndexChange(before=touched, after=vectors_of_names(lambda name: name not in names, touched))
    deleted = {name: rows for name, rows in read_deletion_vectors(store, touched).items() if name not in removed}
    for name, rows in deletes.items():
        deleted[name] = united(deleted.get(name, NO_POSITIONS), rows)
    return IndexChange(before=touched, after=(write_deletion_vectors(store, partition, bucket, deleted),))


def copy_index(
    store: TableStore, partition: bytes, bucket: int, entries: Sequence[IndexManifestEntry], names: Mapping[str, str]
) -> tuple[IndexManifestEntry, ...]:
    """Copy the vectors of copied files for their copies.

    Args:
        store: the table; the vectors may belong to another branch of it.
        partition: BinaryRow bytes.
        bucket: bucket number.
        entries: deletion vectors of the copied files, and possibly of others.
        names: names of the copies, by those of the originals.
    """
    deleted = read_deletion_vectors(store, vectors_of_names(names.__contains__, entries))
    copies = {names[name]: positions for name, positions in deleted.items()}
    return (write_deletion_vectors(store, partition, bucket, copies),) if copies else ()


def deleted_row_counts(entries: Collection[IndexManifestEntry]) -> Mapping[str, int]:
    """Number of deleted rows by data file name; 1 where it is unknown."""
    return {
        each.data_file_name: 1 if each.cardinality is None else each.cardinality
        for entry in entries
        if entry.index_type == DELETION_VECTORS
        for each in entry.index_vectors
    }
