"""What becomes of the deletion vectors of a bucket when files of it go, or rows of files that stay are deleted.

A vector lives and dies with its data file. Of a table with buckets all vectors of a bucket are in one index file: so
does Paimon, which would lose those of a second one. Without buckets only the index files that change are written anew.
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
    """Index entries as they were read, and what takes their place; for a ``CommitMessage``."""

    before: tuple[IndexManifestEntry, ...] = ()
    after: tuple[IndexManifestEntry, ...] = ()  # one that only lost vectors keeps its name


def change_index(
    store: TableStore,
    partition: bytes,
    bucket: int,
    entries: Sequence[IndexManifestEntry],
    *,
    gone: Collection[str] = (),
    marks: Mapping[str, Positions] | None = None,
) -> IndexChange:
    """Take the vectors of some files away, and mark rows of others.

    Args:
        store: whose.
        partition: BinaryRow bytes.
        bucket: number; 0 of a table without buckets.
        entries: deletion vectors in force in the bucket: all of them.
        gone: names of data files that go.
        marks: by name of data files that stay, rows (ascending) that are deleted besides those that are already.
    """
    marks = {name: positions for name, positions in (marks or {}).items() if len(positions)}
    names = {*gone, *marks}
    has_buckets = store.has_key or store.options.bucket > 0
    touched = tuple(
        entry
        for entry in entries
        if (marks and has_buckets) or any(each.data_file_name in names for each in entry.index_vectors)
    )
    if not marks:
        return IndexChange(before=touched, after=vectors_of_names(lambda name: name not in names, touched))
    deleted = {name: rows for name, rows in read_deletion_vectors(store, touched).items() if name not in gone}
    for name, positions in marks.items():
        deleted[name] = united(deleted.get(name, NO_POSITIONS), positions)
    return IndexChange(before=touched, after=(write_deletion_vectors(store, partition, bucket, deleted),))


def copied_index(
    store: TableStore,
    partition: bytes,
    bucket: int,
    entries: Sequence[IndexManifestEntry],
    names: Mapping[str, str],
) -> tuple[IndexManifestEntry, ...]:
    """The vectors of files that were copied, for their copies.

    Args:
        store: whose; the vectors may be of another branch of it.
        partition: BinaryRow bytes.
        bucket: number.
        entries: deletion vectors of the files that were copied, and perhaps of others.
        names: of the copies, by those of the files.
    """
    deleted = read_deletion_vectors(store, vectors_of_names(names.__contains__, entries))
    copies = {names[name]: positions for name, positions in deleted.items()}
    return (write_deletion_vectors(store, partition, bucket, copies),) if copies else ()


def deleted_row_counts(entries: Collection[IndexManifestEntry]) -> Mapping[str, int]:
    """Deleted rows by name of the data file; 1 where their number is not known."""
    return {
        each.data_file_name: 1 if each.cardinality is None else each.cardinality
        for entry in entries
        if entry.index_type == DELETION_VECTORS
        for each in entry.index_vectors
    }
