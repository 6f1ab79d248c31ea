"""What a picture of lineage needs to know of the tables of a catalog."""

from typing import Final

from engine.catalog import Catalog
from engine.lineage.graph.lateness import TableCommits
from engine.lineage.graph.view import LineageView
from filestore.catalog.table_names import all_tables
from filestore.snapshot.snapshot import CommitKind, Snapshot
from lsm.errors import FluvialError

_MOST_COMMITS: Final = 200  # of a table, counted for lateness
_OF_ROWS: Final = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


class TablesOfCatalog:
    """See ``CatalogTables``: opens each table once."""

    def __init__(self, catalog: Catalog, now_ms: int) -> None:
        """``now_ms``: epoch milliseconds, for ages."""
        self.now_ms = now_ms
        self._catalog = catalog

    def newest_id(self, table: str) -> int | None:
        """The newest snapshot; None when the table has none, was dropped, cannot be opened, or is of no catalog."""
        if "://" in table:
            return None
        try:
            snapshot = self._catalog.table(table).latest_snapshot() if self._catalog.table_exists(table) else None
        except FluvialError:  # of one table: the picture has the others
            return None
        return None if snapshot is None else snapshot.id

    def commits_after(self, table: str, snapshot_id: int) -> TableCommits:
        """Reads the snapshots after one, the newest ``_MOST_COMMITS`` at most."""
        try:
            snapshots = self._catalog.table(table).store.snapshots
            ids = [each for each in snapshots.line().ids if each > snapshot_id]
            read: list[Snapshot | None] = [snapshots.find(each) for each in ids[-_MOST_COMMITS:]]
        except FluvialError:  # as above
            return TableCommits(times_ms={}, is_whole=False)
        found = [each for each in read if each is not None]
        return TableCommits(
            times_ms={each.id: each.time_ms for each in found if each.commit_kind in _OF_ROWS},
            is_whole=bool(found) and found[0].id == snapshot_id + 1,
        )


def count_without_jobs(catalog: Catalog, view: LineageView) -> int:
    """How many tables of a catalog a view does not have."""
    drawn = {node.name for node in view.graph.nodes if node.kind == "table"}
    return sum(f"{database}.{name}" not in drawn for database, name in all_tables(catalog, {}))
