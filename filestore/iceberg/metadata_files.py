"""The files of Iceberg metadata: reading, writing and deleting them.

Source: Paimon IcebergPathFactory; Iceberg HadoopTableOperations.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from filestore.iceberg.entries import IcebergRecord
from filestore.iceberg.manifests import (
    ManifestForm,
    live_entries_of,
    manifest_bytes,
    manifest_list_bytes,
    manifest_name,
    manifest_record,
    records_of,
)
from filestore.iceberg.metadata import Metadata
from filestore.iceberg.places import HINT, hinted_version, metadata_directory
from filestore.iceberg.rest_catalog import announce_version
from filestore.io.file_io import delete_leftover, write_hint
from filestore.options.table.iceberg import REST_CATALOG
from filestore.table_store import TableStore

_SUFFIX: Final = ".metadata.json"


class IcebergFiles:
    """The metadata files of one table. What a failed attempt wrote is deleted by ``discard``."""

    def __init__(self, store: TableStore) -> None:
        """Of a table. Raises: as ``metadata_directory``."""
        self.directory = metadata_directory(store)
        self._store = store
        self._io = store.io
        self._uuid = store.names.uuid()
        self._compression = store.options.iceberg_manifest_compression
        self._written: list[str] = []

    def newest(self, *, by_hint: bool) -> Metadata | None:
        """The newest metadata; None: there is none.

        Args:
            by_hint: the version that the hint names, if there is one; a writer that died may not have come to it.

        Raises:
            CorruptDataError: it cannot be read.
        """
        hinted = hinted_version(self._io, self.directory) if by_hint else None
        if hinted is not None and (found := self.find(hinted)) is not None:
            return found
        for version in sorted(self.versions(), reverse=True):
            if (found := self.find(version)) is not None:
                return found
        return None

    def find(self, version: int) -> Metadata | None:
        """One version of the metadata. Raises: CorruptDataError."""
        path = self.metadata_path(version)
        try:
            return Metadata.parse(self._io.read_bytes(path), source=path)
        except FileNotFoundError:
            return None

    def versions(self) -> list[int]:
        """The numbers of all versions that are there."""
        names = self._io.list_names(self.directory)
        texts = [name.removesuffix(_SUFFIX)[1:] for name in names if name.startswith("v") and name.endswith(_SUFFIX)]
        return [int(text) for text in texts if text.isdecimal()]

    def metadata_path(self, version: int) -> str:
        """The path of a version."""
        return f"{self.directory}/v{version}{_SUFFIX}"

    def read_list(self, path: str) -> list[IcebergRecord]:
        """The lines of a manifest list. Raises: CorruptDataError, FileNotFoundError."""
        return records_of(self._io.read_bytes(path), source=path)

    def read_entries(self, form: ManifestForm, manifest: IcebergRecord) -> list[IcebergRecord]:
        """The live entries of a manifest. Raises: CorruptDataError, FileNotFoundError."""
        path = manifest["manifest_path"]
        return live_entries_of(form, self._io.read_bytes(path), first_row_id=manifest.get("first_row_id"), source=path)

    def write_manifest(
        self, form: ManifestForm, entries: Sequence[IcebergRecord], content: int, snapshot_id: int
    ) -> IcebergRecord:
        """Write a manifest. Returns its line for a list."""
        body = manifest_bytes(form, entries, content, compression=self._compression)
        path = self._write(manifest_name(self._uuid, len(self._written), entries), body)
        return manifest_record(form, path, len(body), entries, content, snapshot_id)

    def write_list(
        self, lines: Sequence[IcebergRecord], *, version: int, snapshot_id: int, parent_id: int | None
    ) -> str:
        """Write a manifest list. Returns its path."""
        body = manifest_list_bytes(
            lines, version=version, snapshot_id=snapshot_id, parent_id=parent_id, compression=self._compression
        )
        return self._write(f"snap-{snapshot_id}-{len(self._written)}-{self._uuid}.avro", body)

    def publish(self, metadata: Metadata, *, replaces: bool) -> bool:
        """Make a version readable; False when another writer did.

        Args:
            metadata: the version.
            replaces: a file of this version may be there, and goes.
        """
        path, body = self.metadata_path(metadata.snapshot_id), metadata.to_json()
        written, self._written = self._written, []  # whatever fails now, readers may have found them
        if replaces:
            self._io.replace(path, body)
        elif not self._io.create_exclusive(path, body):
            self._written = written
            return False
        self.point_to(metadata)
        return True

    def point_to(self, metadata: Metadata) -> None:
        """Note a version as the newest: first in the REST catalog, if there is one."""
        version = metadata.snapshot_id
        if self._store.options.iceberg_storage == REST_CATALOG:
            announce_version(self._store, metadata, self.metadata_path(version))
        if hinted_version(self._io, self.directory) != version:
            write_hint(self._io, f"{self.directory}/{HINT}", str(version).encode())

    def discard(self) -> None:
        """Delete what no metadata refers to."""
        self.delete(self._written)
        self._written.clear()

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that no reader needs; those that cannot be deleted stay."""
        for path in paths:
            delete_leftover(self._io, path)

    def delete_all(self) -> None:
        """Delete the metadata of a table that was here before."""
        self._io.delete_tree(self.directory)

    def _write(self, name: str, body: bytes) -> str:
        path = f"{self.directory}/{name}"
        self._written.append(path)
        self._io.write_new(path, body)
        return path
