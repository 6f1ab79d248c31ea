"""Manifests of the newest snapshot that are lost: which, and a table without them.

What a lost manifest added is not in the table any more; what it took away may be in it again. Source: Paimon's Flink
action ``remove_unexisting_manifests``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final

from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.manifest.lists import ManifestFileMeta
from filestore.manifest.manifest_store import ManifestStore
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

_WITHOUT_MERGE: Final = {"manifest.full-compaction-threshold-size": "9223372036854775807 b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LostManifest:
    """A manifest, or a list of them, that is not there."""

    path: str
    added_count: int | None  # entries that it had; None of a list: nobody knows
    deleted_count: int | None


def lost_manifests(store: TableStore, snapshot: Snapshot) -> list[LostManifest]:
    """Those that a snapshot names and that are not there, in the order of its lists."""
    found = []
    for name, size_bytes in (
        (snapshot.base_manifest_list, snapshot.base_manifest_list_size),
        (snapshot.delta_manifest_list, snapshot.delta_manifest_list_size),
    ):
        try:
            manifests = store.manifests.read_list(name, size_bytes)
        except FileNotFoundError:
            found.append(LostManifest(path=store.paths.manifest(name), added_count=None, deleted_count=None))
            continue
        found += [_lost(store, each) for each in manifests if not _is_there(store, each)]
    return found


def forget_manifests(store: TableStore, properties: Mapping[str, str]) -> CommitResult:
    """Publish a snapshot that names only those manifests that are there; streams are not told.

    Args:
        store: of the table.
        properties: of the snapshot, at least one: what it was made for.

    Raises: ConflictError when the commit lost too many races: run it again.
    """
    options = store.with_options(_WITHOUT_MERGE)
    kept = _WithoutLost(**{each.name: getattr(options, each.name) for each in fields(TableStore)})
    return TableCommit(kept, store.new_commit_user()).merge_manifests(properties, recounts=True)


class _ManifestsThere(ManifestStore):
    """Lists without what is lost."""

    def read_list(self, name: str, size_bytes: int | None) -> list[ManifestFileMeta]:
        """As ever, but those that are there."""
        try:
            found: Sequence[ManifestFileMeta] = super().read_list(name, size_bytes)
        except FileNotFoundError:
            return []
        return [each for each in found if self._io.exists(self._paths.manifest(each.file_name))]


class _WithoutLost(TableStore):
    """A table that does not see what it has lost."""

    @cached_property
    def manifests(self) -> ManifestStore:
        """The manifests that are there, and their lists."""
        arguments: dict[str, Any] = {
            "partition_types": self.partition_types, "compression": self.options.manifest_compression,
        }  # fmt: skip
        return _ManifestsThere(self.io, self.paths, self.names, **arguments)


def _lost(store: TableStore, manifest: ManifestFileMeta) -> LostManifest:
    return LostManifest(
        path=store.paths.manifest(manifest.file_name),
        added_count=manifest.added_count,
        deleted_count=manifest.deleted_count,
    )


def _is_there(store: TableStore, manifest: ManifestFileMeta) -> bool:
    return store.io.exists(store.paths.manifest(manifest.file_name))
