"""Procedures for the lineage of jobs. Source: PIP "Table and data lineage", actions."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.store.sql_copy import as_sql, copied_records
from engine.lineage.store.store import LineageMeta, of_columns
from engine.lineage.tables import require_lineage
from engine.lineage.truth.checked import check_tables, checked_meta
from engine.lineage.truth.corrections import Corrections, Counts
from engine.lineage.truth.tables_now import TablesNow
from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from filestore.layout.nearest_names import names_text
from filestore.predicate.predicate import Predicate
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.lineage")

_REPAIRED: Final = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("recorded", pa.int64(), nullable=False),
        pa.field("dropped", pa.int64(), nullable=False),
    ]
)
_DELETED: Final = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("source_rows", pa.int64(), nullable=False),
        pa.field("sink_rows", pa.int64(), nullable=False),
    ]
)


def _repair(catalog: Catalog, table: str | None) -> pa.Table:
    """Compare one table, or all, with their snapshot files, whatever was compared before."""
    lineage = require_lineage(catalog)
    lineage.replay()
    with as_sql(lineage.meta) as meta:
        Corrections(meta, has_snapshots=lineage.settings.has_snapshots).forget_checks(table)
        found = check_tables(lineage, meta, TablesNow.of(catalog), lambda name: table in (None, name))
        if meta is not lineage.meta:  # a store of another kind: what is missing is added, it drops nothing
            for kept in copied_records(meta):
                lineage.store(kept)
    names = sorted(found) if table is None else [table]
    counts = ((name, found.get(name, Counts())) for name in names)
    return rows_table(
        _REPAIRED, [{"table": name, "recorded": each.added, "dropped": each.dropped} for name, each in counts]
    )


@procedure(_REPAIRED, for_all=lambda catalog: _repair(catalog, None))
def repair_lineage(table: Table) -> pa.Table:
    """Rebuild the lineage of a table's snapshots in the store from the snapshot files; with --all, of all tables.

    Every answer about lineage does this for what was committed since the last one. This is for rows that were deleted,
    and shows what it changes. Lineage of expired snapshots stays as it is.

    Args:
        table: the table.

    Returns:
        One row for each table: the number of snapshots whose lineage was added, and dropped because it was false.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the store does not answer; some tables may be repaired: run it again.
    """
    place = table.store.catalog
    if place is None:
        raise InvalidInputError(f"a table without a catalog has no lineage: table={table.name} fix=open its catalog")
    return _repair(Catalog(place.warehouse, place.options), table.name)


@procedure(_DELETED)
def delete_table_lineage(catalog: Catalog, job: str) -> pa.Table:
    """Delete which tables a job reads and writes, for a job that has ended permanently.

    Args:
        catalog: the catalog of the lineage.
        job: name of the job, as in paimon.source_job_lineage.

    Returns:
        One row: the number of tables that it read and wrote. Zeros for an unknown job, with a warning that names
            similar ones.

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
        One row: the number of deleted rows. Zeros for an unknown job, with a warning that names
            similar ones.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the lineage store does not answer; nothing was deleted.
    """
    meta = _replayed(catalog)
    row = _row(job, meta.source_data_lineages, meta.sink_data_lineages)
    meta.delete_data_lineage(job)
    return rows_table(_DELETED, [row])


def _replayed(catalog: Catalog) -> LineageMeta:
    """The store, after storing what is known, so that nothing of it comes back later."""
    lineage = require_lineage(catalog)
    with checked_meta(lineage, catalog):
        return lineage.meta


def _row(
    job: str, sources: Callable[[Predicate | None], Iterable[Any]], sinks: Callable[[Predicate | None], Iterable[Any]]
) -> dict[str, Any]:
    """The number of rows of a job; a name that has none may be a mistake."""
    of_job = of_columns(job=job)
    row = {"job": job, "source_rows": sum(1 for _ in sources(of_job)), "sink_rows": sum(1 for _ in sinks(of_job))}
    if not row["source_rows"] + row["sink_rows"]:
        jobs = sorted({each.job for find in (sources, sinks) for each in find(None)})
        logger.warning("nothing is recorded of this job: job=%s %s", job, names_text("jobs", job, jobs))
    return row
