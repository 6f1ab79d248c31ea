"""Which branches are refs of Iceberg, and what readers see of each.

Readers see a branch with main's columns, by their ids, and the files of a level; so a branch whose columns or whose
rule is another one is left out, as is one with the name of a tag. Source: Iceberg spec "Snapshot References".
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from filestore.iceberg.history import HistoryLine, RowIds
from filestore.iceberg.metadata import MAIN_REF, BranchName, Json, ShownBranch, ref_of
from filestore.iceberg.metadata_files import IcebergFiles
from filestore.iceberg.places import branch_store
from filestore.iceberg.visible_files import VisibleFiles
from filestore.layout.branch_state import creation_id, is_hidden
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.branch_origins import start_of
from filestore.refs.live_references import branch_names, on_branch
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.iceberg")
_NOT_SHOWN: Final = "a branch is not shown to Iceberg readers: table=%s branch=%s reason='%s'"


class BranchRefs:
    """The branches of a table for one version of its metadata."""

    def __init__(
        self,
        store: TableStore,
        newest: TableSchema,
        visible: VisibleFiles,
        files: IcebergFiles,
        row_ids: RowIds,
        *,
        tags: Mapping[str, int],
    ) -> None:
        """The refs of a table that is opened on main.

        Args:
            store: the table.
            newest: main's newest schema, with which readers see branches too.
            visible: what readers see of main.
            files: of its metadata.
            row_ids: of the table.
            tags: ids of snapshots by name of tag.
        """
        self._store, self._newest, self._visible = store, newest, visible
        self._files, self._row_ids, self._tags = files, row_ids, tags
        self.names = [each for each in branch_names(store) if each not in (MAIN_BRANCH, store.main_branch)]

    def shown(
        self, known: Mapping[BranchName, Sequence[Json]], main: Sequence[Json], *, is_same_schema: bool
    ) -> dict[str, ShownBranch]:
        """What readers see, by name.

        Args:
            known: the branches' own snapshots in the metadata before, where they can be continued.
            main: main's snapshots that are shown, oldest first.
            is_same_schema: the metadata before has main's newest schema.
        """
        found: dict[str, ShownBranch] = {}
        for name in sorted(self.names):
            branch = BranchName(name, creation_id(self._store.io, self._store.paths.with_branch(name)))
            own = known.get(branch, ())
            if own and own[-1]["sequence-number"] > main[-1]["sequence-number"]:
                own = ()  # main was rolled back to before it began
            mark = self._files.written_count()
            try:
                shown: ShownBranch | str
                if name in self._tags or name == MAIN_REF:
                    shown = "a ref has its name"
                elif is_same_schema and own and self._is_newest(name, own[-1]):
                    shown = ShownBranch(head=own[-1]["snapshot-id"], snapshots=own)
                else:
                    shown = self._looked_at(branch, own, main)
            except (FluvialError, FileNotFoundError) as error:
                self._files.discard(mark)
                shown = ShownBranch(head=own[-1]["snapshot-id"], snapshots=own) if own and is_same_schema else ""
                logger.warning(_NOT_SHOWN, self._store.name, name, error)
            if isinstance(shown, ShownBranch):
                found[name] = shown
            elif shown:
                logger.info(_NOT_SHOWN, self._store.name, name, shown)
        return found

    def _is_newest(self, name: str, shown: Json) -> bool:
        """Whether nothing was committed to the branch since, by its hint, which a commit there puts right."""
        snapshots, ref = on_branch(self._store, name).snapshots, ref_of(shown)
        return snapshots.hints()[1] == ref.id and snapshots.find_ref(ref) is not None

    def _looked_at(self, branch: BranchName, own: Sequence[Json], main: Sequence[Json]) -> ShownBranch | str:
        """The state of a branch that is shown, or the reason why none is."""
        name = branch.name
        if is_hidden(self._store.io, self._store.paths.with_branch(name)):
            return "it is being made, renamed or deleted"
        there = branch_store(self._store, name)
        latest = None if there is None else there.snapshots.latest()
        if there is None or latest is None:
            return "it has no snapshot"
        different = self._difference(there, latest)
        if different is not None:
            return different
        of_main = next((each for each in main if ref_of(each) == latest.ref), None)
        if of_main is not None:
            return ShownBranch(head=of_main["snapshot-id"])
        visible = VisibleFiles(there, self._newest, self._visible.form.version)
        line = HistoryLine(there, visible, self._files, self._row_ids, schema_id=self._newest.id, branch=branch)
        own = line.still_there(own)
        start = own[-1] if own else self._fork(name, main)
        snapshots = None if start is None else line.continued(own, start, latest)
        if snapshots is None:
            snapshots = line.begun(latest, main[-1]["sequence-number"])
        return self._trimmed(there, snapshots)

    def _difference(self, there: TableStore, latest: Snapshot) -> str | None:
        """What of a branch is not as on main, so that readers would see it wrongly."""
        if _columns(there.schema_of(latest.schema_id)) != _columns(self._newest):
            return "its columns are not those of main"
        if VisibleFiles(there, self._newest, self._visible.form.version).rule != self._visible.rule:
            return "its deletion vectors or levels are not those of main"
        return None

    def _fork(self, name: str, main: Sequence[Json]) -> Json | None:
        """The snapshot of main that the branch began with."""
        start = start_of(self._store, name)[1]
        return next((each for each in main if each["snapshot-id"] == start), None)

    @staticmethod
    def _trimmed(there: TableStore, snapshots: Sequence[Json]) -> ShownBranch:
        """The snapshots whose files the branch keeps."""
        earliest = there.snapshots.earliest_id() or FIRST_SNAPSHOT_ID
        first = next((at for at, each in enumerate(snapshots[:-1]) if ref_of(each).id >= earliest), len(snapshots) - 1)
        head = snapshots[-1]["snapshot-id"]
        return ShownBranch(head=head, snapshots=snapshots[first:], trimmed=snapshots[:first])


def _columns(schema: TableSchema) -> object:
    fields = [replace(field, description=None, default_value=None) for field in schema.fields]
    return fields, schema.primary_keys, schema.partition_keys
