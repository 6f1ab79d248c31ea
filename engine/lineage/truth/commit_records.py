"""The rows of lineage that one commit stands for: the same for its writer, and for who finds its snapshot later."""

import logging
from dataclasses import dataclass

from engine.lineage.origins import CommitOrigin, SourceRead, batch_barrier, newest_reads
from engine.lineage.store.entities import LONGEST_NAME, DataLineage, LineageRecords, TableLineage, split_name, time_of
from filestore.branch.merge_history import MERGED_BRANCH_KEY, MERGED_ID_KEY, MERGED_SNAPSHOT_KEY
from filestore.layout.branch_names import on_branch_name
from filestore.layout.former_mains import FormerMain, table_id_on_branch
from filestore.snapshot.snapshot import Snapshot
from lsm.errors import CorruptDataError

logger = logging.getLogger("fluvial.lineage")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlace:
    """The table of a commit."""

    warehouse: str
    table: str  # "database.table", or "database.table$branch_b"
    table_id: str  # see ``origins.table_id``


def origin_at(place: CommitPlace, snapshot: Snapshot) -> CommitOrigin | None:
    """Where the rows of a snapshot come from, as its file says; a merge has read the branch.

    Returns:
        None: from another engine, from a compaction, or from before lineage was recorded.
    """
    try:
        found = CommitOrigin.of(snapshot)
    except CorruptDataError as error:
        logger.warning("lineage of a snapshot is ignored: table=%s error=%s", place.table, error)
        return None
    branch = snapshot.properties.get(MERGED_BRANCH_KEY)
    if found is not None or branch is None:
        return found
    creation_id = snapshot.properties.get(MERGED_ID_KEY)
    read = SourceRead(
        warehouse=place.warehouse,
        table=on_branch_name(place.table, branch),
        snapshot_id=int(snapshot.properties.get(MERGED_SNAPSHOT_KEY, 0)),
        table_id="" if creation_id is None else table_id_on_branch(place.table_id, FormerMain(branch, creation_id)),
    )
    barrier_id = batch_barrier(snapshot.time_ms, snapshot.commit_user)
    reads = newest_reads([read])
    return CommitOrigin(
        job=f"merge:{read.table}"[:LONGEST_NAME], barrier_id=barrier_id, reads=reads, run=snapshot.commit_user
    )


def commit_records(place: CommitPlace, snapshot: Snapshot, origin: CommitOrigin) -> LineageRecords:
    """The rows of a commit, at the time of its snapshot.

    Args:
        place: the table.
        snapshot: of the commit.
        origin: its job, barrier and run, and what it read; tables of other catalogs have no rows.
    """
    database, table = split_name(place.table)
    time = time_of(snapshot.time_ms)
    sources = sorted({split_name(each.table) for each in origin.reads if each.warehouse == place.warehouse})
    written = DataLineage(
        origin.job,
        origin.barrier_id,
        database,
        table,
        snapshot.id,
        time,
        run=origin.run,
        table_id=place.table_id,
        identity=snapshot.identity,
        moment_ms=snapshot.time_ms,
    )
    return LineageRecords(
        source_tables=tuple(TableLineage(origin.job, *name, time) for name in sources),
        sink_tables=(TableLineage(origin.job, database, table, time),),
        source_snapshots=barrier_reads(place, origin, moment_ms=snapshot.time_ms),
        sink_snapshots=(written,),
    )


def barrier_reads(place: CommitPlace, origin: CommitOrigin, *, moment_ms: int) -> tuple[DataLineage, ...]:
    """The rows of what a barrier has read in the catalog of a table."""
    return tuple(
        DataLineage(
            origin.job,
            origin.barrier_id,
            *split_name(each.table),
            each.snapshot_id,
            time_of(moment_ms),
            run=origin.run,
            table_id=each.table_id,
            moment_ms=moment_ms,
        )
        for each in origin.reads
        if each.warehouse == place.warehouse
    )
