"""One line of the table's history, main's or a branch's, as snapshots of Iceberg.

Each snapshot since the one that is shown becomes one of Iceberg's, with the manifests of the one before but for what it
changes. A line that cannot be followed begins again with its newest snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from filestore.iceberg.entries import DATA, DELETES, CommitId, IcebergRecord
from filestore.iceberg.manifest_tree import next_manifests
from filestore.iceberg.manifests import packed_entries
from filestore.iceberg.metadata import BranchName, Json, iceberg_snapshot, ref_of
from filestore.iceberg.metadata_files import IcebergFiles
from filestore.iceberg.visible_files import FileChanges, VisibleFiles
from filestore.scan.snapshot_files import changes_since
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError

MOST_BEHIND: Final = 100
"""Snapshots that are caught up with one by one."""


@dataclass(slots=True)
class RowIds:
    """The row ids of version 3, which all lines of a table share."""

    next: int  # the first one that is not given yet


@dataclass(slots=True)
class _State:
    """The snapshots of Iceberg so far, and the manifests of the last one."""

    snapshots: list[Json]
    manifests: list[IcebergRecord]


class HistoryLine:
    """Makes the snapshots of one line."""

    def __init__(
        self,
        store: TableStore,
        visible: VisibleFiles,
        files: IcebergFiles,
        row_ids: RowIds,
        *,
        schema_id: int | None = None,
        branch: BranchName | None = None,
    ) -> None:
        """A line.

        Args:
            store: opened on its branch.
            visible: what readers see of its snapshots.
            files: of the table's metadata.
            row_ids: of the table.
            schema_id: of main's schema, which has the columns of the branch; None: that of each snapshot, of main.
            branch: None is main.
        """
        self._store, self._visible, self._files, self._row_ids = store, visible, files, row_ids
        self._schema_id, self._branch = schema_id, branch

    def still_there(self, known: Sequence[Json]) -> Sequence[Json]:
        """Of the snapshots so far those up to the newest that the table still has: a rollback removes later ones."""
        for end in range(len(known), 0, -1):
            ref = ref_of(known[end - 1])
            if not ref.identity:
                return ()  # another engine's
            if self._store.snapshots.find_ref(ref) is not None:
                return known[:end]
        return ()

    def continued(self, known: Sequence[Json], start: Json, latest: Snapshot) -> list[Json] | None:
        """The line up to its newest snapshot; None when it cannot be followed.

        Args:
            known: its snapshots so far, oldest first.
            start: the last of them, or the one of main that the branch began with.
            latest: the newest snapshot of the table's branch.
        """
        ref = ref_of(start)
        if not ref.identity or not 0 <= latest.id - ref.id <= MOST_BEHIND:
            return None
        chain = changes_since(self._store, ref, latest)
        before = self._store.snapshots.find_ref(ref)
        if chain is None or before is None:
            return None
        mark = self._files.written_count()
        try:
            state = _State(list(known), self._files.read_list(start["manifest-list"]))
            parent = start
            for snapshot_id, delta in chain.items():
                snapshot = latest if snapshot_id == latest.id else self._store.snapshots.read(snapshot_id)
                at = self._at(snapshot, parent["sequence-number"])
                changes = self._visible.changes_of(before, snapshot, delta, at)
                parent = self._step(state, parent, snapshot, at, changes)
                before = snapshot
        except (CorruptDataError, FileNotFoundError):
            self._files.discard(mark)
            return None  # files of the metadata or snapshots are gone: made again, which says what is wrong
        return state.snapshots

    def begun(self, latest: Snapshot, sequence_number: int) -> list[Json]:
        """A line of the newest snapshot only; ``sequence_number`` is where a branch is in main's order of changes."""
        at = self._at(latest, sequence_number)
        changes = self._visible.all_of(latest, at)
        state = _State([], [])
        written = [(entries, DATA) for entries in packed_entries(changes.data)]
        written += [(entries, DELETES) for entries in packed_entries(changes.vectors)]
        self._add(state, None, latest, at, [], written, changes, [])
        return state.snapshots

    def _at(self, snapshot: Snapshot, sequence_number: int) -> CommitId:
        """A snapshot of a branch takes no number of main's order: it stays at the one that the branch began with."""
        if self._branch is None:
            return CommitId(snapshot.id, snapshot.id)
        return CommitId(self._branch.snapshot_id(snapshot), sequence_number)

    def _step(self, state: _State, parent: Json, snapshot: Snapshot, at: CommitId, changes: FileChanges) -> Json:
        lines: list[IcebergRecord] = []
        removed: list[IcebergRecord] = []
        written: list[tuple[list[IcebergRecord], int]] = []
        form = self._visible.form
        for content in (DATA, DELETES):
            found = next_manifests(
                form,
                state.manifests,
                changes,
                content,
                snapshot_id=at.snapshot_id,
                merge_count=self._store.options.iceberg_compaction_min_files,
                read=lambda manifest: self._files.read_entries(form, manifest),
            )
            lines += found.kept
            removed += found.removed
            written += [(entries, content) for entries in found.written]
        return self._add(state, parent, snapshot, at, lines, written, changes, removed)

    def _add(
        self,
        state: _State,
        parent: Json | None,
        snapshot: Snapshot,
        at: CommitId,
        lines: Sequence[IcebergRecord],
        written: Sequence[tuple[list[IcebergRecord], int]],
        changes: FileChanges,
        removed: Sequence[IcebergRecord],
    ) -> Json:
        """Write the manifests and the list of a snapshot, which becomes the last of the state."""
        form, files, row_ids = self._visible.form, self._files, self._row_ids
        first_row_id, lines = row_ids.next, list(lines)
        for entries, content in written:
            line = files.write_manifest(form, entries, content, at)
            if form.version >= 3 and content == DATA:
                line["first_row_id"] = row_ids.next
                row_ids.next += line["added_rows_count"] + line["existing_rows_count"]
            lines.append(line)
        path = files.write_list(
            lines, version=form.version, at=at, parent_id=None if parent is None else parent["snapshot-id"]
        )
        made = iceberg_snapshot(
            snapshot,
            at,
            parent,
            lines,
            path,
            removed=removed,
            added=[*changes.data, *changes.vectors],
            first_row_id=first_row_id if form.version >= 3 else None,
            added_rows=row_ids.next - first_row_id,
            schema_id=snapshot.schema_id if self._schema_id is None else self._schema_id,
            branch=self._branch,
        )
        state.manifests = lines
        state.snapshots.append(made)
        return made
