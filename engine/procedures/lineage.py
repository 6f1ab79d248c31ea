"""Procedures about what is known of jobs. Source: PIP "Table and data lineage", actions; LN-67 to LN-69."""

from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.tables import kept_lineage
from engine.procedures.registry import procedure, rows_table
from filestore.predicates import Compare, CompareOp

_DELETED: Final = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("source_rows", pa.int64(), nullable=False),
        pa.field("sink_rows", pa.int64(), nullable=False),
    ]
)


@procedure(_DELETED)
def delete_table_lineage(catalog: Catalog, job: str) -> pa.Table:
    """Forget which tables a job reads and writes, when the job has ended for good.

    Args:
        catalog: that keeps the lineage.
        job: its name, as in paimon.source_job_lineage.

    Returns:
        One row: how many tables it read and wrote. A job that is not known gives zeros.

    Raises:
        InvalidInputError: the catalog keeps no lineage.
        UnavailableError: the store of lineage does not answer; nothing was deleted, or some: run it again.
    """
    lineage = kept_lineage(catalog)
    lineage.replay()
    meta, of_job = lineage.meta, Compare(column="job", op=CompareOp.EQ, value=job)
    sources = sum(1 for _ in meta.source_table_lineages(of_job))
    sinks = sum(1 for _ in meta.sink_table_lineages(of_job))
    meta.delete_source_table_lineage(job)
    meta.delete_sink_table_lineage(job)
    return rows_table(_DELETED, [{"job": job, "source_rows": sources, "sink_rows": sinks}])


@procedure(_DELETED)
def delete_data_lineage(catalog: Catalog, job: str) -> pa.Table:
    """Forget which snapshots a job read and wrote, and where it began.

    Args:
        catalog: that keeps the lineage.
        job: its name, as in paimon.source_snapshot_lineage.

    Returns:
        One row: how many rows of snapshots there were. A job that is not known gives zeros.

    Raises:
        InvalidInputError: the catalog keeps no lineage.
        UnavailableError: the store of lineage does not answer; nothing was deleted.
    """
    lineage = kept_lineage(catalog)
    lineage.replay()
    meta, of_job = lineage.meta, Compare(column="job", op=CompareOp.EQ, value=job)
    sources = sum(1 for _ in meta.source_data_lineages(of_job))
    sinks = sum(1 for _ in meta.sink_data_lineages(of_job))
    meta.delete_data_lineage(job)
    return rows_table(_DELETED, [{"job": job, "source_rows": sources, "sink_rows": sinks}])
