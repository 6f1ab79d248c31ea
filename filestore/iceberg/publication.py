"""Brings a table's Iceberg metadata up to its newest snapshot.

Each snapshot since the metadata before becomes one of Iceberg's, so what a commit could not write is made up for. When
the table's history is not that of the metadata (a rollback, another rule, too much to catch up with), it is made again
of the newest snapshot only. Source: Paimon IcebergCommitCallback.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from filestore.iceberg.entries import DATA, DELETES, IcebergRecord
from filestore.iceberg.manifest_tree import next_manifests
from filestore.iceberg.manifests import packed_entries
from filestore.iceberg.metadata import Json, Metadata, iceberg_snapshot, metadata_of
from filestore.iceberg.metadata_files import IcebergFiles
from filestore.iceberg.rest_catalog import server_properties
from filestore.iceberg.schema import iceberg_columns
from filestore.iceberg.visible_files import FileChanges, VisibleFiles
from filestore.layout.locations import absolute_path
from filestore.manifest.entries import ManifestEntry
from filestore.scan.snapshot_files import changes_since
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError
from lsm.undo import undoing

MOST_BEHIND: Final = 100
"""Snapshots that are caught up with one by one."""
_ATTEMPTS: Final = 5


@dataclass(slots=True)
class _State:
    """The snapshots of Iceberg so far, and the manifests of the last one."""

    snapshots: list[Json]
    manifests: list[IcebergRecord]
    next_row_id: int


def publish_iceberg(store: TableStore) -> int | None:
    """Bring the metadata up to the newest snapshot of the main branch.

    Args:
        store: the table, opened on its main branch, with ``metadata.iceberg.storage`` set.

    Returns:
        The id of the snapshot that it shows; None: the table has none.

    Raises:
        InvalidInputError: Iceberg has no form for the table; says what to change.
        ConflictError: other writers were faster every time.
        CorruptDataError: the table's files cannot be read.
        UnavailableError: the file system failed.
    """
    for attempt in range(_ATTEMPTS):
        latest = store.snapshots.latest()
        if latest is None:
            return None
        versions = store.schema_versions()
        publisher = _Publisher(store, versions, latest, by_hint=attempt == 0)
        with undoing(publisher.files.discard):
            if publisher.publish():
                return latest.id
        publisher.files.discard()
    raise ConflictError(f"other writers were faster with Iceberg metadata: table={store.name} attempts={_ATTEMPTS}")


class _Publisher:
    """One attempt."""

    def __init__(self, store: TableStore, versions: Sequence[TableSchema], latest: Snapshot, *, by_hint: bool) -> None:
        newest, self._versions = versions[-1], versions
        self._store, self._latest, self._by_hint = store, latest, by_hint
        self._version = int(store.options.iceberg_format_version)
        self._visible = VisibleFiles(store, newest, self._version)
        self._form = self._visible.form
        self._table_id = store.table_id()
        self.files = IcebergFiles(store)

    def publish(self) -> bool:
        """Publish the newest snapshot; False when another writer came first."""
        latest, base = self._latest, self._base()
        tags = self._tags()
        state = None if base is None else self._followed(base)
        if base is not None and state is not None and base.ref == latest.ref:
            shown = self._metadata(base, state, tags)
            if shown.body == base.body:
                self.files.point_to(shown)
                return True
        follows = state is not None
        if state is None:
            state = self._rebuilt(base)
        kept = self._kept(state.snapshots, tags)
        gone = self._unused(state.snapshots, kept) if follows else []
        shown = self._metadata(base, _State(kept, state.manifests, state.next_row_id), tags)
        replaces = not follows or (base is not None and base.ref == latest.ref)
        if not self.files.publish(shown, replaces=replaces):
            return False
        self._clean(gone if follows or base is None else self._all_of(base, state))
        return True

    def _base(self) -> Metadata | None:
        try:
            base = self.files.newest(by_hint=self._by_hint)
        except CorruptDataError:
            return None  # made again
        if base is not None and base.is_of_other_table(self._table_id):
            self.files.delete_all()
            return None
        return base

    def _followed(self, base: Metadata) -> _State | None:
        """The state after the snapshots since the base; None when they cannot be followed."""
        latest = self._latest
        behind = latest.id - base.snapshot_id
        if not base.is_of(self._table_id, self._version, self._visible.rule) or not 0 <= behind <= MOST_BEHIND:
            return None
        if behind == 0 and base.ref != latest.ref:
            return None
        chain = changes_since(self._store, base.ref, latest)
        before = self._store.snapshots.find_ref(base.ref)
        if chain is None or before is None:
            return None
        try:
            manifests = self.files.read_list(base.current["manifest-list"])
            state = _State(list(base.snapshots), manifests, base.next_row_id)
            for snapshot_id, delta in chain.items():
                snapshot = latest if snapshot_id == latest.id else self._store.snapshots.read(snapshot_id)
                self._step(state, before, snapshot, delta)
                before = snapshot
        except (CorruptDataError, FileNotFoundError):
            self.files.discard()
            return None  # files of the metadata or snapshots are gone: made again, which says what is wrong
        return state

    def _step(self, state: _State, before: Snapshot, snapshot: Snapshot, delta: Sequence[ManifestEntry]) -> None:
        changes = self._visible.changes_of(before, snapshot, delta)
        lines: list[IcebergRecord] = []
        removed: list[IcebergRecord] = []
        written: list[tuple[list[IcebergRecord], int]] = []
        for content in (DATA, DELETES):
            found = next_manifests(
                self._form,
                state.manifests,
                changes,
                content,
                snapshot_id=snapshot.id,
                merge_count=self._store.options.iceberg_compaction_min_files,
                read=lambda manifest: self.files.read_entries(self._form, manifest),
            )
            lines += found.kept
            removed += found.removed
            written += [(entries, content) for entries in found.written]
        self._add(state, snapshot, lines, written, changes, removed)

    def _rebuilt(self, base: Metadata | None) -> _State:
        """A state of the newest snapshot only."""
        changes = self._visible.all_of(self._latest)
        state = _State([], [], 0 if base is None else base.next_row_id)
        written = [(entries, DATA) for entries in packed_entries(changes.data)]
        written += [(entries, DELETES) for entries in packed_entries(changes.vectors)]
        self._add(state, self._latest, [], written, changes, [])
        return state

    def _add(
        self,
        state: _State,
        snapshot: Snapshot,
        lines: list[IcebergRecord],
        written: Sequence[tuple[list[IcebergRecord], int]],
        changes: FileChanges,
        removed: Sequence[IcebergRecord],
    ) -> None:
        """Write the manifests and the list of a snapshot, which becomes the last of the state."""
        first_row_id, lines = state.next_row_id, list(lines)
        for entries, content in written:
            line = self.files.write_manifest(self._form, entries, content, snapshot.id)
            if self._version >= 3 and content == DATA:
                line["first_row_id"] = state.next_row_id
                state.next_row_id += line["added_rows_count"] + line["existing_rows_count"]
            lines.append(line)
        parent = state.snapshots[-1] if state.snapshots else None
        path = self.files.write_list(
            lines,
            version=self._version,
            snapshot_id=snapshot.id,
            parent_id=None if parent is None else parent["snapshot-id"],
        )
        state.manifests = lines
        state.snapshots.append(
            iceberg_snapshot(
                snapshot,
                parent,
                lines,
                path,
                removed=removed,
                added=[*changes.data, *changes.vectors],
                first_row_id=first_row_id if self._version >= 3 else None,
                added_rows=state.next_row_id - first_row_id,
            )
        )

    def _metadata(self, base: Metadata | None, state: _State, tags: Mapping[str, int]) -> Metadata:
        store = self._store
        return metadata_of(
            state.snapshots,
            [iceberg_columns(each, self._version) for each in self._versions],
            version=self._version,
            uuid=store.names.uuid() if base is None else base.body["table-uuid"],
            location=absolute_path(store.paths.root),
            table_id=self._table_id,
            rule=self._visible.rule,
            tags=tags,
            next_row_id=state.next_row_id,
            base=base,
            properties=server_properties(store),
        )

    def _tags(self) -> dict[str, int]:
        """Ids of tagged snapshots by name."""
        return {name: snapshot.id for name, snapshot in self._store.snapshots.tagged()}

    def _kept(self, shown: Sequence[Json], tags: Mapping[str, int]) -> list[Json]:
        """The snapshots whose files the table keeps."""
        earliest = self._store.snapshots.earliest_id() or FIRST_SNAPSHOT_ID
        tagged = set(tags.values())
        return [each for each in shown if each["snapshot-id"] >= earliest or each["snapshot-id"] in tagged]

    def _unused(self, shown: Sequence[Json], kept: Sequence[Json]) -> list[str]:
        """Paths of the manifests and lists that only snapshots before the kept ones have."""
        stays = {each["snapshot-id"] for each in kept}
        gone: list[str] = []
        for index, each in enumerate(shown[:-1]):
            if each["snapshot-id"] in stays:
                continue
            neighbours = [next((one for one in reversed(shown[:index]) if one["snapshot-id"] in stays), None)]
            neighbours.append(shown[index + 1])  # a manifest that is not in the next list is in no later one
            used = {path for one in neighbours if one is not None for path in self._manifests(one)}
            gone += [path for path in self._manifests(each) if path not in used]
            gone.append(each["manifest-list"])
        return gone

    def _all_of(self, base: Metadata, state: _State) -> list[str]:
        """Paths of the manifests and lists of metadata that was made again."""
        stays = {each["manifest_path"] for each in state.manifests}
        gone = {path for each in base.snapshots for path in (*self._manifests(each), each["manifest-list"])}
        return sorted(gone - stays - {each["manifest-list"] for each in state.snapshots})

    def _manifests(self, snapshot: Mapping[str, Any]) -> list[str]:
        with suppress(FileNotFoundError, CorruptDataError):
            return [each["manifest_path"] for each in self.files.read_list(snapshot["manifest-list"])]
        return []

    def _clean(self, unused: Sequence[str]) -> None:
        """Delete what readers do not need any more: metadata of versions that are too old or were rolled back."""
        files, options, latest = self.files, self._store.options, self._latest.id
        files.delete(unused)
        versions = sorted(files.versions())
        gone = [each for each in versions if each > latest]
        if options.iceberg_delete_after_commit:
            old = [each for each in versions if each < latest]
            gone += old[: max(0, len(old) - options.iceberg_previous_versions_max)]
        files.delete(files.metadata_path(each) for each in gone)
