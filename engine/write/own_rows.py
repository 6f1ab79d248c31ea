"""Rows that were computed from the table that they are written to: not over what others have committed since.

A statement of ``spark.sql`` names its tables, and is computed again. Of a frame only its plan says what it read.
"""

from typing import Any

from filestore.scan.table_scan import TableScan
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError


def own_snapshot_id(store: TableStore, query: Any) -> int | None:
    """The oldest snapshot of a table that a query reads as the newest one.

    Args:
        store: the table that gets the rows, or is replaced by them.
        query: of Spark's, see ``frame_plans.frame_query``; None: nothing is known of it.

    Returns:
        None: the query does not read the table, or only states that have a name, a number or a time.

    Raises:
        InvalidInputError: it reads the table without rows that wait for a compaction, and there are some.
    """
    if query is None:
        return None
    from engine.lineage.frame_sources import states_read

    states = states_read(query, store.name)
    own = [each for each in states if each.is_newest and (each.table_id, each.table) == (store.table_id(), store.name)]
    if not all(each.is_whole for each in own) and _have_waiting_rows(store):
        raise InvalidInputError(
            "the rows were computed from this table without those that wait for a compaction, which would be lost: "
            f"table={store.name} fix='compact first, read with the option deletion-vectors.merge-on-read=true, or "
            "name the table in a statement of SQL'"
        )
    return oldest(*(each.snapshot_id for each in own))


def read_by_frame(store: TableStore, rows: Any) -> int | None:
    """See ``own_snapshot_id``; rows of this process and of Spark Connect say nothing."""
    from engine.spark_internals.frame_plans import frame_query

    return own_snapshot_id(store, frame_query(rows))


def oldest(*snapshot_ids: int | None) -> int | None:
    """The oldest of some snapshots; None: there is none."""
    return min((each for each in snapshot_ids if each is not None), default=None)


def _have_waiting_rows(store: TableStore) -> bool:
    splits = TableScan(store, all_levels=True).plan().splits
    return any(file.level == 0 for split in splits for file in split.files)
