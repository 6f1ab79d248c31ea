"""Procedures for the lineage of jobs. Source: PIP "Table and data lineage", actions."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.lineage import merged_lineage
from engine.lineage.store.entities import LineageRecords, TableLineage
from engine.lineage.store.sql_copy import as_sql, copied_records
from engine.lineage.store.store import LineageMeta, of_columns
from engine.lineage.tables import require_lineage
from engine.lineage.truth.checked import check_tables, checked_meta, logged_problem, raised_problem
from engine.lineage.truth.corrections import Corrections, Counts
from engine.lineage.truth.statements import JobStatement, named_tables, stated_records, statements_of_events
from engine.lineage.truth.tables_now import TablesNow
from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from filestore.predicate.predicate import Predicate
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text

logger = logging.getLogger("fluvial.lineage")

_REPAIRED: Final = parse_columns("table string, recorded int64, dropped int64")
_STATED: Final = parse_columns("job string, table string, role string, snapshot_id int64?")
_DELETED: Final = parse_columns("job string, source_rows int64, sink_rows int64")


def _repair(catalog: Catalog, table: str | None) -> pa.Table:
    """Compare one table, or all, with their snapshot files, whatever was compared before."""
    lineage = require_lineage(catalog)
    lineage.replay()
    with as_sql(lineage.meta) as meta:
        corrections = Corrections(meta, has_snapshots=lineage.settings.has_snapshots)
        corrections.forget_checks(table)
        unreadable = logged_problem if table is None else raised_problem
        now = TablesNow.of(catalog)
        found = check_tables(lineage, meta, now, lambda name: table in (None, name), unreadable=unreadable)
        never: list[TableLineage] = []
        if meta is not lineage.meta:  # a store of another kind: what is missing is added, it drops nothing
            for kept in copied_records(meta):
                lineage.store(kept)
        elif lineage.settings.has_snapshots:
            never = corrections.drop_never_committed(table)
    jobs = Counter(f"{each.database}.{each.table}" for each in never)
    names = sorted({*found, *jobs}) if table is None else [table]
    counts = ((name, found.get(name, Counts())) for name in names)
    return rows_table(
        _REPAIRED,
        [{"table": name, "recorded": each.added, "dropped": each.dropped + jobs[name]} for name, each in counts],
    )


@procedure(_REPAIRED, for_all=lambda catalog: _repair(catalog, None))
def repair_lineage(table: Table) -> pa.Table:
    """Rebuild the lineage of a table's snapshots in the store from the snapshot files; with --all, of all tables.

    Every answer about lineage does this for what was committed since the last one. This is for rows that were deleted,
    and shows what it changes. Lineage of expired snapshots stays as it is.

    Args:
        table: the table.

    Returns:
        One row for each table: the number of snapshots whose lineage was added, and dropped because it was false. A
        job that was said to write the table and never committed to it counts as one that is dropped.

    Raises:
        InvalidInputError: the catalog records no lineage.
        UnavailableError: the store does not answer; some tables may be repaired: run it again.
    """
    place = table.store.catalog
    if place is None:
        raise InvalidInputError(f"a table without a catalog has no lineage: table={table.name} fix=open its catalog")
    return _repair(Catalog(place.warehouse, place.options), table.name)


@procedure(_STATED)
def state_lineage(
    catalog: Catalog,
    job: str | None = None,
    reads: str | None = None,
    writes: str | None = None,
    events: str | None = None,
) -> pa.Table:
    """State what a job outside Fluvial has read and written; lineage shows it as stated by hand.

    What is stated stays through corrections and repairs, until the job's lineage is deleted. To state it again changes
    nothing. Call it after the job has written.

    Args:
        catalog: the catalog of the lineage.
        job: name of the job; with reads or writes.
        reads: tables that it has read, with a comma between two, as shop.raw or shop.raw@3 (up to snapshot 3; else the
            newest), or an address with :// of what is not in the catalog.
        writes: tables that it has written, likewise; the snapshot is the one that it made.
        events: OpenLineage events instead, as JSON, a list, or one a line; runs that did not complete state nothing.

    Returns:
        One row for each table that is stated, with the snapshot; null: without one, or not in the catalog.

    Raises:
        InvalidInputError: the catalog records no lineage, a table or snapshot is not there, or the events are none.
        UnavailableError: the lineage store does not answer; some runs of the events may be stored: state them again.
    """
    lineage = require_lineage(catalog)
    if (job is None) == (events is None) or (events is not None and (reads or writes)):
        raise InvalidInputError(
            f"state either a job or events: job={job} events={'given' if events is not None else None} "
            "fix='give job with reads and writes, or events alone'"
        )
    if events is not None:
        statements = statements_of_events(events, catalog.warehouse)
    else:
        statements = [JobStatement(job=job or "", reads=named_tables(reads), writes=named_tables(writes))]
    made = [stated_records(catalog, each, now_ms=lineage.now_ms()) for each in statements]
    lineage.store(merged_lineage(made))
    return rows_table(_STATED, [row for each in made for row in _stated_rows(each)])


def _stated_rows(records: LineageRecords) -> Iterable[dict[str, Any]]:
    sides = (
        ("read", records.source_tables, records.source_snapshots),
        ("written", records.sink_tables, records.sink_snapshots),
    )
    for role, tables, snapshots in sides:
        known = {(each.database, each.table): each.snapshot_id for each in snapshots}
        for each in tables:
            name = (each.database, each.table)
            yield {"job": each.job, "table": ".".join(name), "role": role, "snapshot_id": known.get(name)}


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
    source_rows, sink_rows = sum(1 for _ in sources(of_job)), sum(1 for _ in sinks(of_job))
    if not source_rows + sink_rows:
        jobs = sorted({each.job for find in (sources, sinks) for each in find(None)})
        logger.warning("nothing is recorded of this job: job=%s %s", job, names_text("jobs", job, jobs))
    return {"job": job, "source_rows": source_rows, "sink_rows": sink_rows}
