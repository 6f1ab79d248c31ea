"""The history of one branch as snapshots of Iceberg.

Each snapshot since the one that the metadata shows becomes a snapshot of Iceberg, with the manifests of its predecessor
except for its changes. A history with missing snapshots begins again with its newest one. To remove a file, only the
manifests that can hold it are rewritten, chosen by partition and bucket. Small manifests are merged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from filestore.iceberg.entries import DATA, DELETES, CommitId, FileKey, IcebergRecord, kept, key_of, removed
from filestore.iceberg.manifests import MOST_ENTRIES, ManifestForm, live_count, may_hold, packed_entries
from filestore.iceberg.metadata import BranchName, Json, iceberg_snapshot, ref_of
from filestore.iceberg.metadata_files import IcebergFiles
from filestore.iceberg.visible_files import FileChanges, FilePlace, VisibleFiles
from filestore.scan.snapshot_files import changes_since
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError

ReadEntries = Callable[[IcebergRecord], list[IcebergRecord]]
"""The live entries of a manifest, by its line in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextManifests:
    """The manifests of the next snapshot of one kind of content."""

    kept: list[IcebergRecord]  # lines of manifests that stay as they are
    written: list[list[IcebergRecord]]  # entries of new manifests
    removed: list[IcebergRecord]  # entries of files that are not there any more


def next_manifests(
    form: ManifestForm,
    before: Sequence[IcebergRecord],
    changes: FileChanges,
    content: int,
    *,
    snapshot_id: int,
    merge_count: int,
    read: ReadEntries,
) -> NextManifests:
    """The manifests after a commit.

    Args:
        form: of the table's manifests.
        before: lines of the manifests of the snapshot before, of every content.
        changes: of the commit.
        content: data files, or deletion vectors.
        snapshot_id: of the commit.
        merge_count: small manifests from which on they are merged.
        read: reads a manifest.

    Raises:
        CorruptDataError: a removed file is in no manifest, so they are not those of the snapshot before.
    """
    new, gone = (changes.data, changes.removed_data) if content == DATA else (changes.vectors, changes.removed_vectors)
    mine = [each for each in before if each["content"] == content and live_count(each) > 0]
    stay, written, taken = _without(form, mine, gone, snapshot_id, read)
    if len(taken) != len(gone):
        raise CorruptDataError(
            f"Iceberg manifests lack files of the snapshot before: snapshot={snapshot_id} "
            f"kind={'data' if content == DATA else 'vectors' if content == DELETES else content} "
            f"removed={len(gone)} found={len(taken)}"
        )
    small = [each for each in stay if live_count(each) <= MOST_ENTRIES // 2]
    if len(small) >= merge_count:
        paths = {each["manifest_path"] for each in small}
        stay = [each for each in stay if each["manifest_path"] not in paths]
        written += packed_entries(kept(entry) for each in small for entry in read(each))
    return NextManifests(kept=stay, written=[*written, *packed_entries(new)], removed=taken)


def _without(
    form: ManifestForm,
    manifests: Sequence[IcebergRecord],
    gone: Mapping[FileKey, FilePlace],
    snapshot_id: int,
    read: ReadEntries,
) -> tuple[list[IcebergRecord], list[list[IcebergRecord]], list[IcebergRecord]]:
    """Lines of manifests that stay, entries of those that are written again, and the entries of removed files."""
    stay: list[IcebergRecord] = []
    written: list[list[IcebergRecord]] = []
    taken: list[IcebergRecord] = []
    places = set(gone.values())
    for manifest in manifests:
        if len(taken) == len(gone) or not may_hold(form, manifest, places):
            stay.append(manifest)
            continue
        entries = read(manifest)
        here = [entry for entry in entries if key_of(entry["data_file"]) in gone]
        if not here:
            stay.append(manifest)
            continue
        taken += here
        written.append(
            [removed(entry, snapshot_id) if key_of(entry["data_file"]) in gone else kept(entry) for entry in entries]
        )
    return stay, written, taken


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
