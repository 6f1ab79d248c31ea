"""Which files Iceberg readers see of a state, and what a commit changes of them.

They cannot merge: of a table with a key they see the top level, or with 64-bit deletion vectors in version 3 all that
is above level 0, where each row is live once or marked as deleted. Source: Paimon IcebergCommitCallback.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from filestore.iceberg.entries import (
    CommitId,
    FileKey,
    IcebergRecord,
    added,
    data_file,
    iceberg_value,
    key_of,
    vector_file,
)
from filestore.iceberg.manifests import manifest_form
from filestore.iceberg.schema import iceberg_columns
from filestore.index.deletion_vectors import FILE_VERSION, MAGIC_64
from filestore.layout.locations import absolute_path
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.snapshot_files import deletion_indexes, live_files
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError

FilePlace = tuple[tuple[Any, ...], int]
"""Iceberg's partition values and a bucket."""


@dataclass(slots=True)
class FileChanges:
    """The changes of a commit to the files that Iceberg readers see."""

    data: list[IcebergRecord] = field(default_factory=list)  # new entries
    vectors: list[IcebergRecord] = field(default_factory=list)
    removed_data: dict[FileKey, FilePlace] = field(default_factory=dict)
    removed_vectors: dict[FileKey, FilePlace] = field(default_factory=dict)


class VisibleFiles:
    """The files of a table's snapshots that Iceberg readers see."""

    def __init__(self, store: TableStore, newest: TableSchema, version: int) -> None:
        """Of a table and its newest schema, in a version of Iceberg's format.

        Raises: InvalidInputError for columns that it cannot have.
        """
        self._store = store
        self.form = manifest_form(iceberg_columns(newest, version), version)
        self._version = version
        options = store.options
        self.has_vectors = version >= 3 and options.deletion_vectors_enabled and options.deletion_vectors_bitmap64
        if options.deletion_vectors_enabled and not store.has_key and not self.has_vectors:
            raise InvalidInputError(
                "rows are deleted by vectors that Iceberg readers would not see: "
                f"deletion-vectors.bitmap64={str(options.deletion_vectors_bitmap64).lower()} "
                f"metadata.iceberg.format-version={version} "
                "fix='set metadata.iceberg.format-version=3 and deletion-vectors.bitmap64=true'"
            )
        self._least_level = 0 if not store.has_key else 1 if self.has_vectors else store.level_count - 1

    @property
    def rule(self) -> str:
        """What decides which files are seen; metadata of another rule is created again."""
        return f"level>={self._least_level} vectors={str(self.has_vectors).lower()}"

    def all_of(self, snapshot: Snapshot, at: CommitId) -> FileChanges:
        """All files of a snapshot, as new ones; ``at`` is its name in Iceberg."""
        changes = FileChanges()
        entries = live_files(self._store, snapshot, min_level=self._least_level)
        self._add(changes, [entry for entry in entries if entry.bucket >= 0], at)
        if self.has_vectors:
            self._add_vectors(changes, [each for group in self._indexes(snapshot).values() for each in group], at)
        return changes

    def changes_of(
        self, before: Snapshot, snapshot: Snapshot, delta: Iterable[ManifestEntry], at: CommitId
    ) -> FileChanges:
        """The changes of a snapshot to its predecessor."""
        store, changes = self._store, FileChanges()
        gone: dict[str, ManifestEntry] = {}
        new: dict[str, ManifestEntry] = {}
        for entry in delta:
            if entry.bucket < 0 or entry.file.level < self._least_level:
                continue
            path = absolute_path(store.file_path(entry.partition, entry.bucket, entry.file))
            (new if entry.kind is EntryKind.ADD else gone)[path] = entry
        for path in new.keys() & gone.keys():  # a change of its level
            del new[path], gone[path]
        self._add(changes, new.values(), at)
        for path, entry in gone.items():
            changes.removed_data[FileKey(path)] = self._place(entry.partition, entry.bucket)
        if self.has_vectors and before.index_manifest != snapshot.index_manifest:
            old, current = self._indexes(before), self._indexes(snapshot)
            for key in {*old, *current}:
                one, two = old.get(key, ()), current.get(key, ())
                for index in _without(one, two):
                    place = self._place(index.partition, index.bucket)
                    changes.removed_vectors.update((key_of(record), place) for record in self._vector_records(index))
                self._add_vectors(changes, _without(two, one), at)
        return changes

    def _indexes(self, snapshot: Snapshot) -> Mapping[tuple[bytes, int], Sequence[IndexManifestEntry]]:
        return deletion_indexes(self._store, snapshot)

    def _add(self, changes: FileChanges, entries: Iterable[ManifestEntry], at: CommitId) -> None:
        store = self._store
        for entry in entries:
            path = absolute_path(store.file_path(entry.partition, entry.bucket, entry.file))
            if self.has_vectors and entry.file.external_path is not None:  # vectors know names, Iceberg's whole paths
                raise InvalidInputError(
                    f"Iceberg readers would not find the vectors of a file at an external place: table={store.name} "
                    f"path={path} option=data-file.external-paths.strategy "
                    "fix='set it to none and compact the table fully, or metadata.iceberg.storage=disabled'"
                )
            schema = store.schema_of(entry.file.schema_id)
            record = data_file(path, entry.file, self._partition(entry.partition), schema, self._version)
            changes.data.append(added(record, at))

    def _add_vectors(self, changes: FileChanges, entries: Iterable[IndexManifestEntry], at: CommitId) -> None:
        for entry in entries:
            self._check_wide(entry)
            changes.vectors += [added(record, at) for record in self._vector_records(entry)]

    def _vector_records(self, entry: IndexManifestEntry) -> Iterable[IcebergRecord]:
        store = self._store
        path, partition = absolute_path(store.index_path(entry)), self._partition(entry.partition)
        directory = absolute_path(store.bucket_dir(entry.partition, entry.bucket))
        for vector in entry.index_vectors:
            yield vector_file(path, entry.size_bytes, vector, f"{directory}/{vector.data_file_name}", partition)

    def _check_wide(self, entry: IndexManifestEntry) -> None:
        """Raises: InvalidInputError for 32-bit vectors, which only Paimon has; CorruptDataError."""
        path = self._store.index_path(entry)
        with self._store.io.open_input(path) as file:
            for vector in entry.index_vectors:
                if file.read_at(1, 0) != bytes([FILE_VERSION]):
                    raise CorruptDataError(f"deletion vector file of an unknown version: path={path}")
                if file.read_at(len(MAGIC_64), vector.offset + 4) != MAGIC_64:
                    raise InvalidInputError(
                        f"a deletion vector has 32 bits, which Iceberg readers do not know: path={path} "
                        "fix='compact the table fully once: new vectors have 64'"
                    )

    def _partition(self, partition: bytes) -> IcebergRecord:
        return dict(zip(self.form.partition_names, self._values(partition), strict=True))

    def _values(self, partition: bytes) -> tuple[Any, ...]:
        store = self._store
        values = zip(store.partition_values(partition), store.partition_types, strict=True)
        return tuple(iceberg_value(value, kind) for value, kind in values)

    def _place(self, partition: bytes, bucket: int) -> FilePlace:
        return self._values(partition), bucket


def _without(
    entries: Sequence[IndexManifestEntry], others: Sequence[IndexManifestEntry]
) -> Iterable[IndexManifestEntry]:
    """The entries with the vectors that no other has: an index file may be kept for some of its vectors."""
    known = {(each.file_name, vector) for each in others for vector in each.index_vectors}
    for each in entries:
        vectors = tuple(vector for vector in each.index_vectors if (each.file_name, vector) not in known)
        if vectors:
            yield replace(each, deletion_vectors=vectors)
