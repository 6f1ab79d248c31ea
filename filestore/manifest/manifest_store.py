"""Reading and writing of manifest files, which list the data files that each commit added and deleted.

Every known size is verified before contents are used: a truncated manifest would silently lose rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from filestore.io.byte_cache import DEFAULT_BYTES, ByteCache
from filestore.io.file_io import FileIO, NameSource
from filestore.io.places import is_below
from filestore.layout.paths import TablePaths
from filestore.manifest.avro_schemas import (
    INDEX_MANIFEST_SCHEMA,
    MANIFEST_LIST_SCHEMA,
    MANIFEST_SCHEMA,
    WIDE_LIST_SCHEMA,
)
from filestore.manifest.entries import EntryKind, FileIdentity, ManifestEntry, live_entries
from filestore.manifest.entry_building import entries_at
from filestore.manifest.entry_columns import (
    KEPT_ENTRIES,
    Encoded,
    EntryColumns,
    columns_of_entries,
    encoded_of_entries,
    encoded_of_file,
    entry_columns_of,
)
from filestore.manifest.lists import IndexManifestEntry, ManifestFileMeta, describe_manifest, manifest_meta
from filestore.manifest.live_rows import ChosenEntries
from filestore.manifest.record_files import (
    RecordFormat,
    corrupt_as,
    decoded_records,
    encoded_record_bytes,
    record_bytes,
    widened,
)
from filestore.snapshot.lost_files import FileRole, missing_file
from filestore.snapshot.snapshot import Snapshot
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, InvalidInputError

# ---- Entries by their place in columns: enough to merge manifests, and to copy them byte for byte


class EntryRow(NamedTuple):
    """One entry of some columns."""

    kind: EntryKind
    identity: tuple[object, ...]  # equal where ``ManifestEntry.identity`` is
    columns: EntryColumns
    row: int


def entry_rows(columns: EntryColumns) -> list[EntryRow]:
    """All entries, in file order."""
    everything = np.arange(len(columns))
    names = columns.texts(columns.names, everything).to_pylist()
    partitions = map(columns.partitions.__getitem__, columns.partition_codes.tolist())
    rests: list[object] = [None] * len(columns)
    odd = np.flatnonzero(~columns.is_plain)
    for row, entry in zip(odd.tolist(), entries_at(columns, odd), strict=True):
        rests[row] = (entry.file.extra_files, entry.file.embedded_index, entry.file.external_path)
    identities = zip(names, partitions, columns.buckets.tolist(), columns.levels.tolist(), rests, strict=True)
    kinds = map(tuple(EntryKind).__getitem__, columns.kinds.tolist())
    return [*map(EntryRow._make, zip(kinds, identities, repeat(columns), everything.tolist(), strict=False))]


def encoded_rows(rows: Sequence[EntryRow]) -> bytes:
    """The entries as they are stored, one after the other."""
    return b"".join(columns.encoded(places) for columns, places in _by_columns(rows))


def entries_of_rows(rows: Sequence[EntryRow]) -> list[ManifestEntry]:
    """The entries as objects, in this order."""
    return [entry for columns, places in _by_columns(rows) for entry in entries_at(columns, places)]


def describe_rows(
    file_name: str, size_bytes: int, rows: Sequence[EntryRow], partition_types: Sequence[DataType]
) -> ManifestFileMeta:
    """The metadata of a manifest with these entries (at least one) for a manifest list."""
    counts: dict[bytes, int] = {}
    bounds: list[tuple[int, int, int, int, int]] = []
    for columns, places in _by_columns(rows):
        per_partition = np.bincount(columns.partition_codes[places], minlength=len(columns.partitions)).tolist()
        for partition, count in zip(columns.partitions, per_partition, strict=True):
            if count:
                counts[partition] = counts.get(partition, 0) + count
        buckets, levels = columns.buckets[places], columns.levels[places]
        bounds.append(
            (
                int(columns.schema_ids[places].max()),
                int(buckets.min()),
                int(buckets.max()),
                int(levels.min()),
                int(levels.max()),
            )
        )
    schema_ids, low_buckets, high_buckets, low_levels, high_levels = zip(*bounds, strict=True)
    return manifest_meta(
        file_name,
        size_bytes,
        added_count=sum(row.kind is EntryKind.ADD for row in rows),
        entry_count=len(rows),
        partition_counts=counts,
        partition_types=partition_types,
        schema_id=max(schema_ids),
        buckets=(min(low_buckets), max(high_buckets)),
        levels=(min(low_levels), max(high_levels)),
    )


def _by_columns(rows: Sequence[EntryRow]) -> Iterable[tuple[EntryColumns, np.ndarray]]:
    """Rows of one columns object that follow each other, as it and their places."""
    for _, group in groupby(rows, lambda row: id(row.columns)):
        together = list(group)
        yield together[0].columns, np.array([row.row for row in together], np.int64)


# ---- Reading and writing of manifest files, which list the data files that each commit added and deleted


T = TypeVar("T")

_SIZE_OF: Final = attrgetter("size_bytes")
_FEW_ENTRIES: Final = 64  # so many are decoded about as fast one by one as as columns
_SMALL_BYTES: Final = 32 << 10  # of a file
_IDLE_S: Final = 600.0  # a manifest that was merged away is not read again: a job of weeks would keep every one
_BYTES_OF_RECORD: Final = 1 << 10  # about, as an object
# What small files hold, by their bytes, for all tables of the process: one that is opened again, or on another branch,
# reads the files again and decodes none of them again.
_SMALL: Final[ByteCache[Any]] = ByteCache(DEFAULT_BYTES // 8, size_of=_SIZE_OF, idle_s=_IDLE_S)


@dataclass(frozen=True, slots=True)
class _Records:
    records: tuple[Any, ...]  # immutable
    size_bytes: int


class ManifestStore:
    """Reads and writes manifests, manifest lists and index manifests of one table.

    A missing file is ``MissingFileError``: its snapshot may have expired since it was read.
    """

    def __init__(
        self,
        io: FileIO,
        paths: TablePaths,
        names: NameSource,
        *,
        partition_types: Sequence[DataType],
        compression: str = "zstd",
        format: RecordFormat = "avro",
        external_roots: Sequence[str] = (),
    ) -> None:
        """Create it without reading.

        Args:
            io: file system of the table.
            paths: of the table.
            names: of new files.
            partition_types: types of the partition columns.
            compression: of new files.
            format: of new files; those that are there are read in any.
            external_roots: directories outside of the table in which its files may lie, see ``external_roots``.
        """
        self._io = io
        self._paths = paths
        self._names = names
        self._partition_types = tuple(partition_types)
        self._compression = compression
        self._format: RecordFormat = format
        self._external_roots = tuple(external_roots)
        self._cache: ByteCache[Any] = ByteCache(size_of=_SIZE_OF, idle_s=_IDLE_S)
        # small manifests together: others with every commit
        self._joined: ByteCache[Any] = ByteCache(DEFAULT_BYTES // 8, size_of=_SIZE_OF, idle_s=_IDLE_S)

    def write_manifest(self, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        """Write a manifest with these entries in this order.

        Raises: InvalidInputError for no entries; ConflictError, UnavailableError from the file system.
        """
        if not entries:
            raise InvalidInputError("a manifest needs at least one entry")
        columns = _read_back(entries)
        if columns.unknown:
            name, size_bytes = self._write_wide(entries)
            return describe_manifest(name, size_bytes, entries, self._partition_types)
        encoded = Encoded(len(columns), columns.encoded(np.arange(len(columns))))
        body = encoded_record_bytes(
            MANIFEST_SCHEMA, encoded.count, encoded.body, compression=self._compression, format=self._format
        )
        name = self._write("manifest", body)
        if len(body) <= _SMALL_BYTES:  # the next commit reads these bytes
            _SMALL.keep((ManifestEntry.from_avro, body), _kept(entries, body))
            _SMALL.keep(body, encoded)
            _SMALL.keep((encoded.body,), columns)
        return describe_manifest(name, len(body), entries, self._partition_types)

    def write_rows(self, rows: Sequence[EntryRow]) -> ManifestFileMeta:
        """Write a manifest with copies of these entries in this order; see ``write_manifest``."""
        if not rows:
            raise InvalidInputError("a manifest needs at least one entry")
        if any(row.columns.unknown for row in rows):
            name, size_bytes = self._write_wide(entries_of_rows(rows))
            return describe_rows(name, size_bytes, rows, self._partition_types)
        body = encoded_record_bytes(
            MANIFEST_SCHEMA, len(rows), encoded_rows(rows), compression=self._compression, format=self._format
        )
        name = self._write("manifest", body)
        return describe_rows(name, len(body), rows, self._partition_types)

    def _write_wide(self, entries: Sequence[ManifestEntry]) -> tuple[str, int]:
        """A manifest with what a later version of Paimon notes of its entries. Returns: its name, and exact size."""
        records = [entry.to_avro() for entry in entries]
        schema = widened(MANIFEST_SCHEMA, records, format=self._format)
        body = record_bytes(schema, records, compression=self._compression, format=self._format)
        return self._write("manifest", body), len(body)

    def read_rows(self, manifest: ManifestFileMeta) -> list[EntryRow]:
        """All entries of a manifest, in file order, to be written again. Raises: as ``read_manifest``."""
        return [row for each in self.read_columns([manifest]) for row in entry_rows(each)]

    def read_manifest(self, manifest: ManifestFileMeta | str) -> list[ManifestEntry]:
        """All entries of a manifest, in file order.

        Args:
            manifest: metadata from a list, to verify size and number of entries; or only the name.

        Raises:
            CorruptDataError: the file is truncated, corrupt, or does not match the list; the message names it.
            MissingFileError: there is no such file.
        """
        if isinstance(manifest, str):
            return self._decoded(manifest, self._body(manifest, None))
        if _entry_count(manifest) > _FEW_ENTRIES:
            parts = [ChosenEntries(each, np.arange(len(each))) for each in self.read_columns([manifest])]
            return self.entries_of(parts, source=self._paths.manifest(manifest.file_name))
        entries = self._decoded_of(manifest)
        self._check_counts(manifest, sum(entry.kind is EntryKind.ADD for entry in entries), len(entries))
        return entries

    def read_columns(self, manifests: Sequence[ManifestFileMeta]) -> list[EntryColumns]:
        """All entries of manifests as columns, in order; small manifests that follow each other come as one.

        Raises: as ``read_manifest``.
        """
        found = []
        for is_small, group in groupby(manifests, lambda each: _entry_count(each) <= _FEW_ENTRIES):
            for together in [list(group)] if is_small else [[each] for each in group]:
                names = tuple(each.file_name for each in together)
                known = self._joined if is_small else self._cache
                found.append(known.get(names, partial(self._columns, together)))
        return found

    def entries_of(self, parts: Iterable[ChosenEntries], *, source: str | None = None) -> list[ManifestEntry]:
        """Entries that were read as columns, as objects; ``source`` for messages.

        Raises: CorruptDataError: a name is none, or a path is outside of the table.
        """
        found: list[ManifestEntry] = []
        try:
            for part in parts:
                entries = part.entries()
                if not part.columns.is_plain[part.rows].all():
                    for path in filter(None, (each.file.external_path for each in entries)):
                        self._check_external(path)
                found += entries
        except ValueError as error:
            raise CorruptDataError(
                f"manifest entries cannot be decoded: file={source or self._paths.manifest_dir} error={error!r}"
            ) from error
        return found

    def write_list(self, manifests: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list, chronological, possibly empty. Returns its name and exact size."""
        records = [each.to_avro() for each in manifests]
        is_wide = any(each.total_buckets is not None or each.extra_files is not None for each in manifests)
        schema = WIDE_LIST_SCHEMA if is_wide else MANIFEST_LIST_SCHEMA
        return self._write_records("manifest-list", schema, records, ManifestFileMeta.from_avro)

    def read_list(self, name: str, size_bytes: int | None) -> list[ManifestFileMeta]:
        """The manifests of a list, chronological.

        Args:
            name: name from the snapshot.
            size_bytes: size from the snapshot; None if its writer did not record sizes.

        Raises:
            CorruptDataError: the file is truncated or corrupt; the message names it.
            MissingFileError: there is no such file.
        """
        body = self._body(name, size_bytes)
        return _records(body, self._paths.manifest(name), ManifestFileMeta.from_avro, WIDE_LIST_SCHEMA)

    def extends(self, snapshot: Snapshot, before: Snapshot) -> bool:
        """Whether the files of a snapshot before its own changes are exactly those of another one.

        Writers of other engines name no parent; but what a commit is made on top of is its base list.

        Raises: CorruptDataError, MissingFileError: as ``read_list``.
        """
        base, delta = self._lists_of(snapshot)
        known = [each for manifests in self._lists_of(before) for each in manifests]
        names = {each.file_name for each in known}
        if names in ({each.file_name for each in base}, {each.file_name for each in (*base, *delta)}):
            return True  # the latter: it has no changes, and the same lists
        return self._live_of(base) == self._live_of(known)  # manifests were merged

    def write_index_manifest(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Write the complete list of index files of a snapshot. Returns its name."""
        records = [entry.to_avro() for entry in entries]
        return self._write_records("index-manifest", INDEX_MANIFEST_SCHEMA, records, IndexManifestEntry.from_avro)[0]

    def read_index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """All index files of a snapshot. Raises: CorruptDataError naming the file; MissingFileError."""
        body = self._body(name, None)
        entries = _records(body, self._paths.manifest(name), IndexManifestEntry.from_avro, INDEX_MANIFEST_SCHEMA)
        return self._allowed(entries, lambda entry: entry.external_path)

    def _lists_of(self, snapshot: Snapshot) -> tuple[list[ManifestFileMeta], list[ManifestFileMeta]]:
        return (
            self.read_list(snapshot.base_manifest_list, snapshot.base_manifest_list_size),
            self.read_list(snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
        )

    def _live_of(self, manifests: Sequence[ManifestFileMeta]) -> set[FileIdentity]:
        return {each.identity for each in live_entries([e for m in manifests for e in self.read_manifest(m)])}

    def _allowed(self, found: list[T], path_of: Callable[[T], str | None]) -> list[T]:
        """The records of a file, none of which leads out of the table to where its opener allows none."""
        for path in filter(None, map(path_of, found)):
            self._check_external(path)
        return found

    def _check_external(self, path: str) -> None:
        """Raises: InvalidInputError for a path outside of the table that its opener does not allow."""
        if not is_below(path, self._external_roots):
            raise InvalidInputError(
                f"a file of the table lies outside of its directory, where who opens it allows none: path={path!r} "
                f"table={self._paths.root} option=external-paths.allowed "
                f"value={','.join(self._external_roots) or None} "
                f"fix='set the catalog option external-paths.allowed={path.rpartition('/')[0]} if you trust the table'"
            )

    def _write_records(
        self,
        prefix: str,
        schema: Any,
        records: Sequence[dict[str, Any]],
        decode: Callable[[Mapping[str, Any]], Any],
    ) -> tuple[str, int]:
        """Write them, and know what a reader of these bytes decodes: the next commit is one."""
        schema = widened(schema, records, format=self._format)
        body = record_bytes(schema, records, compression=self._compression, format=self._format)
        name = self._write(prefix, body)
        if len(body) <= _SMALL_BYTES:
            _SMALL.keep((decode, body), _kept(map(decode, records), body))
        return name, len(body)

    def _manifest_body(self, count: int, encoded: bytes) -> bytes:
        return encoded_record_bytes(MANIFEST_SCHEMA, count, encoded, compression=self._compression, format=self._format)

    def _write(self, prefix: str, body: bytes) -> str:
        name = f"{prefix}-{self._names.uuid()}-0"
        self._io.write_new(self._paths.manifest(name), body)
        return name

    def _columns(self, manifests: Sequence[ManifestFileMeta]) -> EntryColumns:
        if _entry_count(manifests[0]) > _FEW_ENTRIES:
            encoded = [self._encoded(manifests[0])]
        else:
            encoded = [self._cache.get(each.file_name, partial(self._encoded, each)) for each in manifests]
        try:
            if sum(each.count for each in encoded) > KEPT_ENTRIES or any(each.unknown for each in encoded):
                columns = entry_columns_of(encoded)
            else:
                columns = _SMALL.get(tuple(each.body for each in encoded), partial(entry_columns_of, encoded))
            if columns is None:  # bytes that are no entries, which is an error, or look like too many
                columns = columns_of_entries([entry for each in manifests for entry in self._decoded_of(each)])
        except ValueError as error:
            files = ",".join(self._paths.manifest(each.file_name) for each in manifests)
            raise CorruptDataError(f"manifest entries cannot be decoded: file={files} error={error!r}") from error
        ends = np.cumsum([each.count for each in encoded])
        for manifest, end, each in zip(manifests, ends.tolist(), encoded, strict=True):
            added = int((columns.kinds[end - each.count : end] == EntryKind.ADD).sum())
            self._check_counts(manifest, added, each.count)
        return columns

    def _encoded(self, manifest: ManifestFileMeta) -> Encoded:
        body = self._body(manifest.file_name, manifest.size_bytes)
        with corrupt_as(self._paths.manifest(manifest.file_name), body):
            if len(body) > _SMALL_BYTES:
                encoded = encoded_of_file(body)
            else:
                encoded = _SMALL.get(body, partial(encoded_of_file, body))
        return encoded_of_entries(self._decoded(manifest.file_name, body)) if encoded is None else encoded

    def _decoded_of(self, manifest: ManifestFileMeta) -> list[ManifestEntry]:
        return self._decoded(manifest.file_name, self._body(manifest.file_name, manifest.size_bytes))

    def _decoded(self, name: str, body: bytes) -> list[ManifestEntry]:
        entries = _records(body, self._paths.manifest(name), ManifestEntry.from_avro, MANIFEST_SCHEMA)
        return self._allowed(entries, lambda entry: entry.file.external_path)

    def _check_counts(self, manifest: ManifestFileMeta, added: int, count: int) -> None:
        if (added, count - added) != (manifest.added_count, manifest.deleted_count):
            raise CorruptDataError(
                f"manifest entries do not match its list: file={self._paths.manifest(manifest.file_name)} "
                f"added={added} deleted={count - added} "
                f"expected_added={manifest.added_count} expected_deleted={manifest.deleted_count}"
            )

    def _body(self, name: str, size_bytes: int | None) -> bytes:
        path = self._paths.manifest(name)
        try:
            body = self._io.read_bytes(path)
        except FileNotFoundError as error:
            role = FileRole.INDEX if name.startswith("index-manifest") else FileRole.MANIFEST
            raise missing_file(path, role) from error
        if size_bytes is not None and len(body) != size_bytes:
            raise CorruptDataError(
                f"file does not have its recorded size: file={path} "
                f"size_bytes={len(body)} expected_size_bytes={size_bytes}"
            )
        return body


def _records(body: bytes, source: str, decode: Callable[[Mapping[str, Any]], T], known: Any) -> list[T]:
    """As ``decoded_records``; ``decode`` makes of equal records equal objects, which no reader changes."""

    def decoded() -> _Records:
        return _kept(decoded_records(body, source=source, decode=decode, known=known), body)

    return list((_SMALL.get((decode, body), decoded) if len(body) <= _SMALL_BYTES else decoded()).records)


def _read_back(entries: Sequence[ManifestEntry]) -> EntryColumns:
    """The entries as a reader has them, before anything is written: what no reader takes is never published.

    Raises: InvalidInputError: a reader would refuse them.
    """
    try:
        return columns_of_entries(entries)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidInputError(
            f"a manifest cannot hold these files: count={len(entries)} first={entries[0].file.file_name} "
            f"error={error!r} fix='nothing was committed: write with other options, and report this'"
        ) from error


def _kept(records: Iterable[Any], body: bytes) -> _Records:
    found = tuple(records)
    return _Records(found, len(body) + _BYTES_OF_RECORD * len(found))


def _entry_count(manifest: ManifestFileMeta) -> int:
    return manifest.added_count + manifest.deleted_count
