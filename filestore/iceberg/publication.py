"""Brings a table's Iceberg metadata up to its newest snapshots, of main and of branches.

Each snapshot since the last metadata becomes a snapshot of Iceberg, also after commits that could not write metadata.
When the table's history is not that of the metadata (a rollback, another rule, too many snapshots), the metadata is
created again from the newest snapshot only. Source: Paimon IcebergCommitCallback.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from filestore.iceberg.history import HistoryLine, RowIds
from filestore.iceberg.metadata import MAIN_REF, BranchName, Json, Metadata, ShownBranch, metadata_of, ref_of
from filestore.iceberg.metadata_files import IcebergFiles, UnusedManifests
from filestore.iceberg.places import branch_store
from filestore.iceberg.rest_catalog import server_properties
from filestore.iceberg.schema import iceberg_columns
from filestore.iceberg.visible_files import VisibleFiles
from filestore.layout.branch_state import creation_id, is_hidden
from filestore.layout.locations import absolute_path
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.branch_origins import start_of
from filestore.refs.live_references import branch_names, on_branch
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, FluvialError
from lsm.undo import undoing

# ---- Which branches are refs of Iceberg, and what readers see of each
# Readers see a branch with main's columns, by their ids, and the files of a level; so a branch whose columns or whose
# rule is another one is left out, as is one with the name of a tag. Source: Iceberg spec "Snapshot References".


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


# ---- Brings a table's Iceberg metadata up to its newest snapshots, of main and of branches


_ATTEMPTS: Final = 6


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
        self._newest, self._versions = versions[-1], versions
        self._store, self._latest, self._by_hint = store, latest, by_hint
        self._version = int(store.options.iceberg_format_version)
        self._visible = VisibleFiles(store, self._newest, self._version)
        self._table_id = store.table_id()
        self.files = IcebergFiles(store)

    def publish(self) -> bool:
        """Publish the newest snapshots; False when another writer came first, or may have."""
        latest, base = self._latest, self._base()
        tags = self._tags()
        known = base if base is not None and base.is_of(self._table_id, self._version, self._visible.rule) else None
        row_ids = RowIds(0 if base is None else base.next_row_id)
        line = HistoryLine(self._store, self._visible, self.files, row_ids)
        past: Sequence[Json] = () if known is None else known.main
        main = line.continued(past, past[-1], latest) if past else None
        if main is None and (past := line.still_there(past)):
            main = line.continued(past, past[-1], latest)
        follows = main is not None
        if main is None:
            main = line.begun(latest, latest.id)
        kept = self._kept(main, tags)
        refs = BranchRefs(self._store, self._newest, self._visible, self.files, row_ids, tags=tags)
        before = {} if known is None else known.branches
        branches = refs.shown(before, kept, is_same_schema=known is not None and known.schema_id == self._newest.id)
        shown = self._metadata(base, kept, tags, branches, row_ids)
        if base is not None and follows and base.ref == latest.ref and shown.body == base.body:
            return not self.files.point_to(shown) or self._is_last(self.files.versions())
        unused = self._unused(base, past, main, kept, branches, follows=follows)
        goes_back = not follows or (base is not None and base.snapshot_id >= latest.id)
        if base is not None and base.ref == latest.ref and self._is_replaced(base):
            return False
        if not self.files.publish(shown, replaces=goes_back):
            return False
        is_newest = not goes_back or self._store.snapshots.latest_id() == latest.id
        versions = sorted(self.files.versions())
        self._clean(unused, versions, is_newest=is_newest)
        # going back may lose what others have replaced it with in between: look again
        return not goes_back and self._is_last(versions)

    def _is_last(self, versions: Iterable[int]) -> bool:
        """Whether nothing newer was there when the hint had moved to this version.

        Else its writer may have moved the hint before, and this has moved it back: look again.
        """
        return all(each <= self._latest.id for each in versions)

    def _base(self) -> Metadata | None:
        try:
            base = self.files.newest(by_hint=self._by_hint)
        except CorruptDataError:
            return None  # made again
        if base is not None and base.is_of_other_table(self._table_id):
            self.files.delete_all()
            return None
        return base

    def _is_replaced(self, base: Metadata) -> bool:
        """Whether another writer has replaced a version: commits to branches, and tags, change that of main."""
        try:
            now = self.files.find(base.snapshot_id)
        except CorruptDataError:
            return False
        return now is not None and now.body != base.body

    def _metadata(
        self,
        base: Metadata | None,
        main: Sequence[Json],
        tags: Mapping[str, int],
        branches: Mapping[str, ShownBranch],
        row_ids: RowIds,
    ) -> Metadata:
        store = self._store
        return metadata_of(
            main,
            [iceberg_columns(each, self._version) for each in self._versions],
            version=self._version,
            uuid=store.names.uuid() if base is None else base.body["table-uuid"],
            location=absolute_path(store.paths.root),
            table_id=self._table_id,
            rule=self._visible.rule,
            tags=tags,
            branches=branches,
            next_row_id=row_ids.next,
            base=base,
            properties=server_properties(store),
        )

    def _tags(self) -> dict[str, int]:
        """Ids of tagged snapshots by name."""
        return {name: snapshot.id for name, snapshot in self._store.snapshots.tagged()}

    def _kept(self, shown: Sequence[Json], tags: Mapping[str, int]) -> list[Json]:
        """The snapshots of main whose files the table keeps."""
        earliest = self._store.snapshots.earliest_id() or FIRST_SNAPSHOT_ID
        tagged = set(tags.values())
        return [each for each in shown if each["snapshot-id"] >= earliest or each["snapshot-id"] in tagged]

    def _unused(
        self,
        base: Metadata | None,
        past: Sequence[Json],
        main: Sequence[Json],
        kept: Sequence[Json],
        branches: Mapping[str, ShownBranch],
        *,
        follows: bool,
    ) -> list[str]:
        """Paths of the manifests and lists that only snapshots of the metadata before have.

        Args:
            base: that metadata.
            past: its snapshots of main that the table still has.
            main: these and the new ones.
            kept: those of them that are shown.
            branches: that are shown.
            follows: main continues ``past``.
        """
        if base is None:
            return []
        unused = UnusedManifests(self.files, kept, [each.snapshots for each in branches.values() if each.snapshots])
        lines = [*base.branches.values(), *([*each.trimmed, *each.snapshots] for each in branches.values())]
        if not follows:
            return unused.of_all([*base.main, *(each for line in lines for each in line)])
        gone = [*unused.of_main(main), *unused.of_side(base.main[len(past) :], past[-1]["snapshot-id"])]
        for line in lines:
            gone += unused.of_side(line, line[0]["sequence-number"]) if line else []
        return gone

    def _clean(self, unused: Sequence[str], versions: Sequence[int], *, is_newest: bool) -> None:
        """Delete metadata that readers no longer need: of versions that are too old or were rolled back.

        Args:
            unused: paths of manifests and lists.
            versions: that are there, oldest first.
            is_newest: no version behind this one is of the history.
        """
        files, options, latest = self.files, self._store.options, self._latest.id
        files.delete(unused)
        gone = [each for each in versions if each > latest and is_newest]
        if options.iceberg_delete_after_commit:
            old = [each for each in versions if each < latest]
            gone += old[: max(0, len(old) - options.iceberg_previous_versions_max)]
        files.delete(files.metadata_path(each) for each in gone)
