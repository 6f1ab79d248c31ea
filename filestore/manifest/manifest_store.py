"""Manifest files of a table: which data files each commit added and took away.

Every size that is known is checked before a byte is believed: a short manifest would silently be a smaller table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from filestore.io.file_io import FileIO, NameSource
from filestore.layout.paths import TablePaths
from filestore.manifest.avro_files import avro_bytes, avro_records
from filestore.manifest.avro_schemas import INDEX_MANIFEST_SCHEMA, MANIFEST_LIST_SCHEMA, MANIFEST_SCHEMA
from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, ManifestFileMeta, describe_manifest
from filestore.types.data_types import DataType
from lsm.errors import CorruptDataError, InvalidInputError

T = TypeVar("T")


class ManifestStore:
    """Reads and writes manifests, manifest lists and index manifests of one table.

    A missing file is ``FileNotFoundError``: its snapshot may have expired since it was read.
    """

    def __init__(
        self,
        io: FileIO,
        paths: TablePaths,
        names: NameSource,
        *,
        partition_types: Sequence[DataType],
        compression: str = "zstd",
    ) -> None:
        self._io = io
        self._paths = paths
        self._names = names
        self._partition_types = tuple(partition_types)
        self._compression = compression

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
            manifest: as a list names it, then its size and the number of entries are checked; or only its name.

        Raises:
            CorruptDataError: the file is truncated, garbled, or not what the list says; the message names it.
            FileNotFoundError: there is no such file.
        """
        if isinstance(manifest, str):
            return self._read(manifest, None, ManifestEntry.from_avro)
        entries = self._read(manifest.file_name, manifest.size_bytes, ManifestEntry.from_avro)
        added = sum(entry.kind is EntryKind.ADD for entry in entries)
        if (added, len(entries) - added) != (manifest.added_count, manifest.deleted_count):
            raise CorruptDataError(
                f"manifest holds other entries than its list says: file={self._paths.manifest(manifest.file_name)} "
                f"added={added} deleted={len(entries) - added} "
                f"expected_added={manifest.added_count} expected_deleted={manifest.deleted_count}"
            )
        return entries

    def write_list(self, manifests: Sequence[ManifestFileMeta]) -> tuple[str, int]:
        """Write a manifest list, chronological, maybe empty. Returns its name and exact size."""
        return self._write("manifest-list", MANIFEST_LIST_SCHEMA, [each.to_avro() for each in manifests])

    def read_list(self, name: str, size_bytes: int | None) -> list[ManifestFileMeta]:
        """The manifests of a list, chronological.

        Args:
            name: as the snapshot gives it.
            size_bytes: as the snapshot gives it; None when its writer did not know sizes.

        Raises:
            CorruptDataError: the file is truncated or garbled; the message names it.
            FileNotFoundError: there is no such file.
        """
        return self._read(name, size_bytes, ManifestFileMeta.from_avro)

    def write_index_manifest(self, entries: Sequence[IndexManifestEntry]) -> str:
        """Write the complete list of index files of a snapshot. Returns its name."""
        return self._write("index-manifest", INDEX_MANIFEST_SCHEMA, [entry.to_avro() for entry in entries])[0]

    def read_index_manifest(self, name: str) -> list[IndexManifestEntry]:
        """All index files of a snapshot. Raises: CorruptDataError naming the file; FileNotFoundError."""
        return self._read(name, None, IndexManifestEntry.from_avro)

    def _write(self, prefix: str, schema: Any, records: Sequence[dict[str, Any]]) -> tuple[str, int]:
        name = f"{prefix}-{self._names.uuid()}-0"
        body = avro_bytes(schema, records, compression=self._compression)
        self._io.write_new(self._paths.manifest(name), body)
        return name, len(body)

    def _read(self, name: str, size_bytes: int | None, decode: Callable[[Mapping[str, Any]], T]) -> list[T]:
        path = self._paths.manifest(name)
        body = self._io.read_bytes(path)
        if size_bytes is not None and len(body) != size_bytes:
            raise CorruptDataError(
                f"file has another size than its reader was told: file={path} "
                f"size_bytes={len(body)} expected_size_bytes={size_bytes}"
            )
        return avro_records(body, source=path, decode=decode)
