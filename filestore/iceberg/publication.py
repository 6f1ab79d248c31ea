"""Brings a table's Iceberg metadata up to its newest snapshots, of main and of branches.

Each snapshot since the last metadata becomes a snapshot of Iceberg, also after commits that could not write metadata.
When the table's history is not that of the metadata (a rollback, another rule, too many snapshots), the metadata is
created again from the newest snapshot only. Source: Paimon IcebergCommitCallback.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from filestore.iceberg.branch_refs import BranchRefs
from filestore.iceberg.history import HistoryLine, RowIds
from filestore.iceberg.metadata import Json, Metadata, ShownBranch, metadata_of
from filestore.iceberg.metadata_files import IcebergFiles, UnusedManifests
from filestore.iceberg.rest_catalog import server_properties
from filestore.iceberg.schema import iceberg_columns
from filestore.iceberg.visible_files import VisibleFiles
from filestore.layout.locations import absolute_path
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError
from lsm.undo import undoing

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
            has_moved = self.files.point_to(shown)  # perhaps back, from what others have published since
            return not has_moved or self._store.snapshots.latest_id() == latest.id
        unused = self._unused(base, past, main, kept, branches, follows=follows)
        goes_back = not follows or (base is not None and base.snapshot_id >= latest.id)
        if base is not None and base.ref == latest.ref and self._is_replaced(base):
            return False
        if not self.files.publish(shown, replaces=goes_back):
            return False
        is_newest = not goes_back or self._store.snapshots.latest_id() == latest.id
        self._clean(unused, is_newest=is_newest)
        return not goes_back  # else what others have replaced it with in between may be lost: look again

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

    def _clean(self, unused: Sequence[str], *, is_newest: bool) -> None:
        """Delete metadata that readers no longer need: of versions that are too old or were rolled back."""
        files, options, latest = self.files, self._store.options, self._latest.id
        files.delete(unused)
        versions = sorted(files.versions())
        gone = [each for each in versions if each > latest and is_newest]
        if options.iceberg_delete_after_commit:
            old = [each for each in versions if each < latest]
            gone += old[: max(0, len(old) - options.iceberg_previous_versions_max)]
        files.delete(files.metadata_path(each) for each in gone)
