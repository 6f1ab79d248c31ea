"""The files of Iceberg metadata: reading, writing and deleting them.

Source: Paimon IcebergPathFactory; Iceberg HadoopTableOperations.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from filestore.iceberg.entries import CommitId, IcebergRecord
from filestore.iceberg.manifests import (
    ManifestForm,
    live_entries_of,
    manifest_bytes,
    manifest_list_bytes,
    manifest_name,
    manifest_record,
    records_of,
)
from filestore.iceberg.metadata import Json, Metadata
from filestore.iceberg.places import HINT, METADATA_SUFFIX, hinted_version, metadata_directory, path_here
from filestore.iceberg.rest_catalog import announce_version
from filestore.io.file_io import delete_leftover, write_hint
from filestore.options.table.iceberg import REST_CATALOG
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError


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
        texts = [
            name.removesuffix(METADATA_SUFFIX)[1:]
            for name in names
            if name.startswith("v") and name.endswith(METADATA_SUFFIX)
        ]
        return [int(text) for text in texts if text.isdecimal()]

    def metadata_path(self, version: int) -> str:
        """The path of a version."""
        return f"{self.directory}/v{version}{METADATA_SUFFIX}"

    def read_list(self, path: str) -> list[IcebergRecord]:
        """The lines of a manifest list. Raises: CorruptDataError, FileNotFoundError."""
        return records_of(self._read(path), source=path)

    def read_entries(self, form: ManifestForm, manifest: IcebergRecord) -> list[IcebergRecord]:
        """The live entries of a manifest. Raises: CorruptDataError, FileNotFoundError."""
        path = manifest["manifest_path"]
        return live_entries_of(form, self._read(path), first_row_id=manifest.get("first_row_id"), source=path)

    def write_manifest(
        self, form: ManifestForm, entries: Sequence[IcebergRecord], content: int, at: CommitId
    ) -> IcebergRecord:
        """Write a manifest. Returns its line for a list."""
        body = manifest_bytes(form, entries, content, compression=self._compression)
        path = self._write(manifest_name(self._uuid, len(self._written), entries), body)
        return manifest_record(form, path, len(body), entries, content, at)

    def write_list(self, lines: Sequence[IcebergRecord], *, version: int, at: CommitId, parent_id: int | None) -> str:
        """Write a manifest list. Returns its path."""
        body = manifest_list_bytes(lines, version=version, at=at, parent_id=parent_id, compression=self._compression)
        return self._write(f"snap-{at.snapshot_id}-{len(self._written)}-{self._uuid}.avro", body)

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

    def point_to(self, metadata: Metadata) -> bool:
        """Note a version as the newest: first in the REST catalog, if there is one. Returns: whether the hint moved."""
        version = metadata.snapshot_id
        if self._store.options.iceberg_storage == REST_CATALOG:
            announce_version(self._store, metadata, self.metadata_path(version))
        if hinted_version(self._io, self.directory) == version:
            return False
        write_hint(self._io, f"{self.directory}/{HINT}", str(version).encode())
        return True

    def written_count(self) -> int:
        """How many manifests and lists no metadata refers to yet."""
        return len(self._written)

    def discard(self, start: int = 0) -> None:
        """Delete what no metadata refers to, from the ``start``-th on that was written."""
        self.delete(self._written[start:])
        del self._written[start:]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files of the metadata that no reader needs; those that cannot be deleted stay."""
        for path in paths:
            with suppress(ValueError):  # what metadata names is none of its files
                delete_leftover(self._io, path_here(path, self.directory))

    def delete_all(self) -> None:
        """Delete the metadata of a table that was here before."""
        self._io.delete_tree(self.directory)

    def _read(self, path: str) -> bytes:
        try:
            return self._io.read_bytes(path_here(path, self.directory))
        except ValueError as error:
            raise CorruptDataError(f"Iceberg metadata names no file: path={path!r} error={error}") from error

    def _write(self, name: str, body: bytes) -> str:
        path = f"{self.directory}/{name}"
        self._written.append(path)
        self._io.write_new(path, body)
        return path


class UnusedManifests:
    """Finds the manifests and lists that no shown snapshot has.

    A manifest that is not in the next list of a line is in none after it. A branch has those of main as of where it
    began, which its sequence number says, so it needs the snapshots of main on both sides of that, and main its first.
    """

    def __init__(self, files: IcebergFiles, main: Sequence[Json], branches: Sequence[Sequence[Json]]) -> None:
        """What is shown: the snapshots of main and of each branch, oldest first."""
        self._files, self._main = files, main
        self._firsts = [line[0] for line in branches]
        self._shown = [*main, *(each for line in branches for each in line)]
        self._stays = {each["manifest-list"] for each in self._shown}
        self._known: dict[str, frozenset[str]] = {}

    def of_main(self, line: Sequence[Json]) -> list[str]:
        """Paths to delete with the snapshots of main that are no longer shown; ``line`` are all snapshots."""
        return self._of(line, self._firsts)

    def of_side(self, line: Sequence[Json], start: int) -> list[str]:
        """Paths that go with the snapshots of a branch, or of what main was rolled back from.

        Args:
            line: all of them.
            start: the snapshot of main that they began with.
        """
        older = [each for each in self._main if each["snapshot-id"] <= start][-1:]
        newer = [each for each in self._main if each["snapshot-id"] > start][:1]
        return self._of(line, [*self._firsts, *older, *newer])

    def of_all(self, snapshots: Sequence[Json]) -> list[str]:
        """Paths of snapshots whose history is not that of the shown ones."""
        gone = [each for each in snapshots if each["manifest-list"] not in self._stays]
        used = self._manifests(self._shown)
        return [*self._manifests(gone) - used, *(each["manifest-list"] for each in gone)]

    def _of(self, line: Sequence[Json], others: Sequence[Json]) -> list[str]:
        gone: list[str] = []
        last: Sequence[Json] = ()  # that stays
        for index, each in enumerate(line):
            if each["manifest-list"] in self._stays:
                last = [each]
                continue
            used = self._manifests([*last, *line[index + 1 : index + 2], *others])
            gone += [*self._manifests([each]) - used, each["manifest-list"]]
        return gone

    def _manifests(self, snapshots: Iterable[Json]) -> frozenset[str]:
        return frozenset().union(*(self._of_list(each["manifest-list"]) for each in snapshots))

    def _of_list(self, path: str) -> frozenset[str]:
        if path not in self._known:
            self._known[path] = frozenset()
            with suppress(FileNotFoundError, CorruptDataError):
                self._known[path] = frozenset(each["manifest_path"] for each in self._files.read_list(path))
        return self._known[path]
