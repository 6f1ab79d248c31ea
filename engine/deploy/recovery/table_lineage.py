"""The lineage of published tables, made from their snapshots: what the branches recorded is true for main now.

The snapshots of a branch name what they were made of as it was called then, with branches that no longer exist.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from engine.catalog import Catalog
from engine.lineage.lineage import lineage_of, merged_lineage
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from engine.lineage.store.entities import LineageRecords
from engine.procedures.lineage import delete_data_lineage, delete_table_lineage
from filestore.layout.branch_names import split_branch

_STORED_AT_ONCE: Final = 500


def end_lineage(catalog: Catalog, job: str) -> str:
    """Delete what is recorded of a job that has ended. Raises: UnavailableError."""
    delete_table_lineage(catalog, job)
    delete_data_lineage(catalog, job)
    return "deleted"


def rebuild_lineage(catalog: Catalog, name: str, branch: str, ended: Collection[str]) -> str:
    """Record what the snapshots of a table were made of, with main in place of the branch. Idempotent.

    Args:
        catalog: of the table.
        name: of the table.
        branch: that became main.
        ended: jobs that will not run again: which snapshots they wrote is true, but not that they write the table.

    Raises: UnavailableError.
    """
    store, lineage = catalog.table(name).store, lineage_of(catalog)
    recorder = Recorder.of(store)
    assert lineage is not None
    assert recorder is not None
    count = 0
    waiting: list[LineageRecords] = []
    for snapshot_id in store.snapshots.line().ids:
        snapshot = store.snapshots.find(snapshot_id)
        origin = None if snapshot is None else CommitOrigin.of(snapshot)
        if snapshot is None or origin is None:
            continue
        records = recorder.records(snapshot, _on_main(origin, branch))
        waiting.append(replace(records, source_tables=(), sink_tables=()) if origin.job in ended else records)
        count += 1
        if len(waiting) >= _STORED_AT_ONCE:
            lineage.store(merged_lineage(waiting))
            waiting = []
    lineage.store(merged_lineage(waiting))
    return f"snapshots={count}"


def _on_main(origin: CommitOrigin, branch: str) -> CommitOrigin:
    reads = []
    for each in origin.reads:
        table, on = split_branch(each.table)
        reads.append(replace(each, table=table) if on == branch else each)
    return replace(origin, reads=tuple(reads))
