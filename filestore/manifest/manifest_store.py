"""Reading and writing of manifest files, which list the data files that each commit added and deleted.

Every known size is verified before contents are used: a truncated manifest would silently lose rows.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from filestore.io.file_io import FileIO, NameSource
from filestore.layout.file_names import is_below
from filestore.layout.paths import TablePaths
from filestore.manifest.avro_files import avro_bytes, avro_records
from filestore.manifest.avro_schemas import INDEX_MANIFEST_SCHEMA, MANIFEST_LIST_SCHEMA, MANIFEST_SCHEMA
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, ManifestFileMeta, describe_manifest
from filestore.snapshot.lost_files import FileRole, missing_file
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, InvalidInputError

T = TypeVar("T")


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
        external_roots: Sequence[str] = (),
    ) -> None:
        """Create it without reading.

        Args:
            io: file system of the table.
            paths: of the table.
            names: of new files.
            partition_types: types of the partition columns.
            compression: of new files.
            external_roots: directories outside of the table in which its data files may lie, by its options.
        """
        self._io = io
        self._paths = paths
        self._names = names
        self._partition_types = tuple(partition_types)
        self._compression = compression
        self._external_roots = tuple(external_roots)

    def write_manifest(self, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        """Write a manifest with these entries in this order.

        Raises: InvalidInputError for no entries; ConflictError, UnavailableError from the file system.
        """
        if not entries:
            raise InvalidInputError("a manifest needs at least one entry")
        name, size_bytes = self._write("manifest", MANIFEST_SCHEMA, [entry.to_avro() for entry in entries])
        return describe_manifest(name, size_bytes, entries, self._partition_types)

    def read_manifest(self, manifest: ManifestFileMeta | str) -> list[ManifestEntry]:
        """All entries of a manifest, in file order.

        Args:
            manifest: metadata from a list, to verify size and number of entries; or only the name.

        Raises:
            CorruptDataError: the file is truncated, corrupt, or does not match the list; the message names it.
            MissingFileError: there is no such file.
        """
        if isinstance(manifest, str):
            return self._read(manifest, None, self._entry)
        entries = self._read(manifest.file_name, manifest.size_bytes, self._entry)
        added = sum(entry.kind is EntryKind.ADD for entry in entries)
        if (added, len(entries) - added) != (manifest.added_count, manifest.deleted_count):
            raise CorruptDataError(
                f"manifest entries do not match its list: file={self._paths.manifest(manifest.file_name)} "
                f"added={added} deleted={len(entries) - added} "
                f"expected_added={manifest.added_count} expected_deleted={manifest.deleted_count}"
            )
        return entries

    def write_list(self, manifests: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list, chronological, possibly empty. Returns its name and exact size."""
        return self._write("manifest-list", MANIFEST_LIST_SCHEMA, [each.to_avro() for each in manifests])

    def read_list(self, name: str, size_bytes: int | None) -> list[ManifestFileMeta]:
        """The manifests of a list, chronological.

        Args:
            name: name from the snapshot.
            size_bytes: size from the snapshot; None if its writer did not record sizes.

        Raises:
            CorruptDataError: the file is truncated or corrupt; the message names it.
            MissingFileError: there is no such file.
        """
        return self._read(name, size_bytes, ManifestFileMeta.from_avro)

    def write_index_manifest(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Write the complete list of index files of a snapshot. Returns its name."""
        return self._write("index-manifest", INDEX_MANIFEST_SCHEMA, [entry.to_avro() for entry in entries])[0]

    def read_index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """All index files of a snapshot. Raises: CorruptDataError naming the file; MissingFileError."""
        return self._read(name, None, self._index_entry)

    def _entry(self, record: Mapping[str, Any]) -> ManifestEntry:
        entry = ManifestEntry.from_avro(record)
        if entry.file.external_path is not None:
            self._check_external(entry.file.external_path)
        return entry

    def _index_entry(self, record: Mapping[str, Any]) -> IndexManifestEntry:
        entry = IndexManifestEntry.from_avro(record)
        if entry.external_path is not None:
            self._check_external(entry.external_path)
        return entry

    def _check_external(self, path: str) -> None:
        """Raises: ValueError for a path outside of the table that its options do not allow."""
        if not is_below(path, self._external_roots):
            raise ValueError(
                f"external path is not below a root of the table: path={path!r} "
                f"option=data-file.external-paths value={','.join(self._external_roots) or None} "
                "fix='add its directory to that option, if the table really has files there'"
            )

    def _write(self, prefix: str, schema: Any, records: Sequence[dict[str, Any]]) -> tuple[str, int]:
        name = f"{prefix}-{self._names.uuid()}-0"
        body = avro_bytes(schema, records, compression=self._compression)
        self._io.write_new(self._paths.manifest(name), body)
        return name, len(body)

    def _read(self, name: str, size_bytes: int | None, decode: Callable[[Mapping[str, Any]], T]) -> list[T]:
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
        return avro_records(body, source=path, decode=decode)
