"""Whether a snapshot is what its job should have written: recomputed from its sources, and compared.

The sources are read at the snapshots in the lineage. The result is written to a branch of the table, which has the
table's columns and keys and copies no files, and is deleted after the comparison.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.graph.impact import ImpactedTable
from engine.lineage.lineage import Lineage
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import lineage_of_table
from engine.lineage.store.entities import split_name
from engine.lineage.store.store import of_columns
from engine.lineage.truth.tables_now import TablesNow
from engine.table import Table
from engine.versions.branches import create_branch, delete_branch
from filestore.diff.table_diff import DiffSummary
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_ROWS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """The barrier that wrote a snapshot, and what it had read."""

    job: str
    barrier_id: int
    sources: Mapping[ImpactedTable, int]  # newest snapshot that was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The result of a comparison."""

    origin: SnapshotOrigin
    summary: DiffSummary  # of the changes from the snapshot to the recomputed rows
    rows: pa.Table  # the first of these changes, with their kinds

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return bool(self.rows.num_rows == 0)


def origin_of_snapshot(
    table: Table, snapshot_id: int, name_now: Callable[[str, str], str] = lambda name, _: name
) -> SnapshotOrigin:
    """The origin of a snapshot, from its file; if it has expired, from the lineage store.

    Args:
        table: the table.
        snapshot_id: its snapshot.
        name_now: what a table is called now, by the name and id that the file has of it.

    Raises:
        InvalidInputError: unknown: written by another engine or a compaction, or before lineage was recorded.
    """
    lineage = lineage_of_table(table.store)
    snapshot = table.store.snapshots.find(snapshot_id)
    found = None
    if snapshot is None and lineage is not None and snapshot_id < (table.store.snapshots.earliest_id() or 1):
        found = _stored_origin(lineage, split_name(table.name), snapshot_id)
    recorded = None if snapshot is None else CommitOrigin.of(snapshot)
    if recorded is not None:
        sources = {split_name(name_now(each.table, each.table_id)): each.snapshot_id for each in recorded.reads}
        found = SnapshotOrigin(job=recorded.job, barrier_id=recorded.barrier_id, sources=sources)
    if found is None:
        raise InvalidInputError(
            f"the job of the snapshot is unknown: table={table.name} snapshot={snapshot_id} "
            "fix=name a snapshot of paimon.sink_snapshot_lineage"
        )
    return found


def validate(
    catalog: Catalog,
    table: str,
    snapshot_id: int,
    recompute: "Callable[[Mapping[str, DataFrame]], DataFrame]",
    spark: "SparkSession",
    *,
    row_limit: int = _SHOWN_ROWS,
) -> Validation:
    """Recompute a snapshot from its sources, and compare.

    Args:
        catalog: the catalog of the table and its sources.
        table: ``database.table``, with a primary key.
        snapshot_id: a snapshot written by a job, with lineage.
        recompute: returns the rows of the table from frames of its sources, by ``database.table``: the job's own
            logic, or a modified one to evaluate.
        spark: the session.
        row_limit: maximum rows of the result; all differences are counted.

    Returns:
        The origin of the snapshot, the counts of differences, and the first rows that differ, with their kinds.

    Raises:
        InvalidInputError: the job or a snapshot is unknown, or the rows do not fit the table.
    """
    target = catalog.table(table)
    origin = origin_of_snapshot(target, snapshot_id, TablesNow.of(catalog).name_of)
    frames = {
        ".".join(name): catalog.table(".".join(name)).dataframe(spark, snapshot_id=read_id)
        for name, read_id in origin.sources.items()
    }
    with _empty_branch(target) as branch:
        target.append(recompute(frames), {"branch": branch, "change-tracking": "false"})
        try:
            difference = target.diff(snapshot_id, f"{branch}.latest")
        except InvalidInputError:
            if catalog.table(table, branch=branch).latest_snapshot() is not None:
                raise
            raise InvalidInputError(
                f"nothing was computed, so there is nothing to compare: table={table} snapshot={snapshot_id}"
            ) from None
        rows = pa.Table.from_batches(_first(difference.to_batches(), row_limit), schema=difference.schema)
        return Validation(origin=origin, summary=difference.summary(), rows=rows)


def _stored_origin(lineage: Lineage, name: ImpactedTable, snapshot_id: int) -> SnapshotOrigin | None:
    lineage.replay()
    chosen = of_columns(database=name[0], table=name[1], snapshot_id=snapshot_id)
    sink = next(iter(lineage.meta.sink_data_lineages(chosen)), None)
    if sink is None:
        return None
    reads = lineage.meta.source_data_lineages(of_columns(job=sink.job, barrier_id=sink.barrier_id, run=sink.run))
    sources = {(each.database, each.table): each.snapshot_id for each in reads}
    return SnapshotOrigin(job=sink.job, barrier_id=sink.barrier_id, sources=sources)


@contextmanager
def _empty_branch(table: Table) -> Iterator[str]:
    name = f"validate-{table.store.names.uuid()[:8]}"
    create_branch(table.store, name)
    try:
        yield name
    finally:
        delete_branch(table.store, name)


def _first(batches: Iterator[pa.RecordBatch], row_limit: int) -> Iterator[pa.RecordBatch]:
    left = row_limit
    for batch in islice(batches, row_limit):  # no batch is empty
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows
