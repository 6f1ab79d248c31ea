"""Whether a snapshot is what its job should have made of its sources: computed again, and compared.

The sources are read at the snapshots that the lineage names. The result goes to a branch of the table, which has its
columns and keys and costs no copy, and is gone behind the comparison. LN-05, LN-31 to LN-34.
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
from engine.table import Table
from engine.versions.branches import create_branch, delete_branch
from filestore.diff.table_diff import DiffSummary
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_ROWS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """The barrier that made a snapshot, and what it had read."""

    job: str
    barrier_id: int
    sources: Mapping[ImpactedTable, int]  # newest snapshot that is in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What comes of a comparison."""

    origin: SnapshotOrigin
    summary: DiffSummary  # of what must be done to the snapshot to get what was computed
    rows: pa.Table  # the first of these changes, with their kinds

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return bool(self.rows.num_rows == 0)


def origin_of_snapshot(table: Table, snapshot_id: int) -> SnapshotOrigin:
    """Where a snapshot comes from: by the store of lineage, else by what it says itself.

    Raises:
        InvalidInputError: nobody knows: of another engine, a compaction, or before lineage was kept.
    """
    lineage = lineage_of_table(table.store)
    found = None if lineage is None else _stored_origin(lineage, split_name(table.name), snapshot_id)
    if found is None:
        snapshot = table.store.snapshots.find(snapshot_id)
        said = None if snapshot is None else CommitOrigin.of(snapshot)
        if said is not None:
            sources = {split_name(each.table): each.snapshot_id for each in said.reads}
            found = SnapshotOrigin(job=said.job, barrier_id=said.barrier_id, sources=sources)
    if found is None:
        raise InvalidInputError(
            f"it is not known which job made the snapshot: table={table.name} snapshot={snapshot_id} "
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
    """Compute a snapshot again from its sources, and compare.

    Args:
        catalog: of the table and its sources.
        table: ``database.table``, with a primary key.
        snapshot_id: of it, made by a job that the lineage knows.
        recompute: gives the rows of the table out of frames of its sources, by their names ``database.table``; the
            job's own logic, or a changed one that is to be looked at.
        spark: the session.
        row_limit: most rows of the answer; all are counted.

    Raises:
        InvalidInputError: the job or a snapshot is not known any more, or the rows do not fit the table.
    """
    target = catalog.table(table)
    origin = origin_of_snapshot(target, snapshot_id)
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
    reads = lineage.meta.source_data_lineages(of_columns(job=sink.job, barrier_id=sink.barrier_id))
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
