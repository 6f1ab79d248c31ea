"""Procedures for the lineage of jobs. Source: PIP "Table and data lineage", actions."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.store.store import LineageMeta, of_columns
from engine.lineage.tables import require_lineage
from engine.procedures.registry import procedure, rows_table
from filestore.predicate.predicate import Predicate

_DELETED: Final = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("source_rows", pa.int64(), nullable=False),
        pa.field("sink_rows", pa.int64(), nullable=False),
    ]
)


@procedure(_DELETED)
def delete_table_lineage(catalog: Catalog, job: str) -> pa.Table:
    """Delete which tables a job reads and writes, for a job that has ended permanently.

    Args:
        catalog: the catalog of the lineage.
        job: name of the job, as in paimon.source_job_lineage.

    Returns:
        One row: the number of tables that it read and wrote. Zeros for an unknown job.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the lineage store does not answer; nothing, or only some, was deleted: run it again.
    """
    meta = _replayed(catalog)
    row = _row(job, meta.source_table_lineages, meta.sink_table_lineages)
    meta.delete_source_table_lineage(job)
    meta.delete_sink_table_lineage(job)
    return rows_table(_DELETED, [row])


@procedure(_DELETED)
def delete_data_lineage(catalog: Catalog, job: str) -> pa.Table:
    """Delete which snapshots a job read and wrote, and where it started.

    Args:
        catalog: the catalog of the lineage.
        job: name of the job, as in paimon.source_snapshot_lineage.

    Returns:
        One row: the number of deleted rows. Zeros for an unknown job.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the lineage store does not answer; nothing was deleted.
    """
    meta = _replayed(catalog)
    row = _row(job, meta.source_data_lineages, meta.sink_data_lineages)
    meta.delete_data_lineage(job)
    return rows_table(_DELETED, [row])


def _replayed(catalog: Catalog) -> LineageMeta:
    """The store, after storing queued records."""
    lineage = require_lineage(catalog)
    lineage.replay()
    return lineage.meta


def _row(
    job: str, sources: Callable[[Predicate], Iterable[Any]], sinks: Callable[[Predicate], Iterable[Any]]
) -> dict[str, Any]:
    """The number of rows of a job."""
    of_job = of_columns(job=job)
    return {"job": job, "source_rows": sum(1 for _ in sources(of_job)), "sink_rows": sum(1 for _ in sinks(of_job))}
