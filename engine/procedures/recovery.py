"""Procedures based on lineage: the impact of a snapshot, recovery plans, and validation of jobs."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.lineage.graph.impact import Affected, affected_by, places_behind
from engine.lineage.graph.links import StoredLinks
from engine.lineage.store.entities import split_name
from engine.lineage.store.store import LineageMeta, of_columns
from engine.procedures.checked_lineage import CheckedLineage, checked_lineage
from engine.procedures.recovery_steps import (
    Recovery,
    RecoveryStep,
    StepKind,
    preparing_steps,
    publishing_steps,
    recovered_tables,
    reviewing_steps,
)
from engine.procedures.registry import procedure, rows_table
from engine.procedures.validation import validate
from engine.table import Table
from filestore.types.data_types import parse_columns

_IMPACT: Final = parse_columns(
    "depth int64, job string, barrier_id int64, source_table string, source_snapshot_id int64, table string?, "
    "snapshot_id int64?, newest_snapshot_id int64?, command string?"
)
_PLAN: Final = parse_columns(
    "step int64, what string, job string?, table string?, snapshot_id int64?, barrier_id int64?, command string"
)
_VALIDATED: Final = parse_columns("job string, barrier_id int64, inserted int64, deleted int64, updated int64")


@procedure(_IMPACT)
def impact(table: Table, snapshot: int) -> pa.Table:
    """List what contains a snapshot: the jobs that read it, directly or through others, and what they wrote from it.

    Args:
        table: the table of the snapshot.
        snapshot: id of the snapshot; later ones contain it.

    Returns:
        One row for each job, table that it read and table that it wrote, nearest first; for each table the first
        affected snapshot, the newest, and the command that shows the changes between them.

    Raises:
        InvalidInputError: the catalog records no lineage, or the lineage of commits that read these tables was
            deleted; names them.
        UnavailableError: the lineage store does not answer.
    """
    with checked_lineage(table) as checked:
        return rows_table(_IMPACT, affected_rows(checked, table.name, snapshot))


def affected_rows(checked: CheckedLineage, table: str, snapshot: int) -> list[dict[str, Any]]:
    """The rows of ``impact``, by a lineage that is open. Raises: InvalidInputError; UnavailableError."""
    found = affected_by(StoredLinks(checked.meta), split_name(table), snapshot)
    checked.refuse_missing({table, *(".".join(each.table) for each in found if each.table is not None)})
    return [_impact_row(each, _newest(checked.meta, each.table)) for each in found]


@procedure(_PLAN)
def recovery_plan(table: Table, snapshot: int, branch: str = "fix", incremental: bool = False) -> pa.Table:
    """List the steps to correct a table after a snapshot, and to recompute everything downstream.

    Corrections and new results go to branches, which share unchanged files, while the old jobs continue. A full
    recovery recomputes all tables downstream of the corrected one. An incremental one resumes each job from its
    checkpoint, at the batch where the snapshot was the newest that it had read.

    Args:
        table: the table to correct.
        snapshot: the newest correct one; later rows of the table are written again, or are part of the correction.
        branch: name of the new branches.
        incremental: jobs resume from their checkpoints, of which Spark keeps the last 100 batches.

    Returns:
        The steps in order, each with its command. ``fluvial recover`` carries them out on job files.

    Raises:
        InvalidInputError: the catalog records no lineage, or that of commits that read these tables was deleted;
            incremental, and a job has no barrier that ends there.
        UnavailableError: the lineage store does not answer.
    """
    recovery = Recovery(table=table.name, snapshot_id=snapshot, branch=branch, is_incremental=incremental)
    with checked_lineage(table) as checked:
        steps = recovery_steps(checked, recovery)
    return rows_table(_PLAN, [_plan_row(number, each) for number, each in enumerate(steps, 1)])


def recovery_steps(checked: CheckedLineage, recovery: Recovery) -> list[RecoveryStep]:
    """The steps of ``recovery_plan``, by a lineage that is open. Raises: InvalidInputError; UnavailableError."""
    places = places_behind(StoredLinks(checked.meta), split_name(recovery.table), recovery.snapshot_id)
    tables = recovered_tables(recovery, places, {})
    checked.refuse_missing(tables)
    return [
        *preparing_steps(recovery, places, {}, [f"MERGE INTO {recovery.on_branch(recovery.table)} ..."]),
        *reviewing_steps(recovery, tables),
        *(each for each in publishing_steps(recovery, tables) if each.kind is StepKind.PUBLISH),
    ]


@procedure(_VALIDATED, fails_with_rows=True)
def validate_snapshot(catalog: Catalog, table: str, snapshot: int, query: str) -> pa.Table:
    """Recompute a snapshot from what its job had read, and count the differences. Needs Spark.

    Args:
        catalog: the catalog of the table and its sources.
        table: "database.table", with a primary key.
        snapshot: id of a snapshot written by a job.
        query: SQL that returns the rows of the table; its sources are views with the names of the tables, without
            their databases, each at the snapshot that the job had read.

    Returns:
        One row of counts if there are differences, none if the snapshot is right.

    Raises:
        InvalidInputError: the job or a snapshot is unknown, or the query is invalid.
    """
    from engine.runtime.spark_messages import fluvial_error
    from engine.spark.session import session

    spark = session("fluvial validate").newSession()

    def recompute(frames: Mapping[str, Any]) -> Any:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(split_name(name)[1].replace("$", "_"))
        try:
            return spark.sql(query)
        except Exception as error:
            raise fluvial_error(error, "query failed:") from error

    found = validate(catalog, table, snapshot, recompute, spark)
    if found.is_same:
        return rows_table(_VALIDATED, [])
    summary = found.summary
    row = {"inserted": summary.inserted, "deleted": summary.deleted, "updated": summary.updated}
    return rows_table(_VALIDATED, [{"job": found.origin.job, "barrier_id": found.origin.barrier_id, **row}])


def _plan_row(number: int, step: RecoveryStep) -> dict[str, Any]:
    return {
        "step": number,
        "what": step.what,
        "job": step.job if step.kind is not StepKind.CORRECT else None,
        "table": step.table,
        "snapshot_id": step.snapshot_id,
        "barrier_id": step.barrier_id,
        "command": step.command,
    }


def _newest(meta: LineageMeta, table: tuple[str, str] | None) -> int | None:
    if table is None:
        return None
    found = meta.sink_data_lineages(of_columns(database=table[0], table=table[1]))
    return max((each.snapshot_id for each in found), default=None)


def _impact_row(each: Affected, newest_id: int | None) -> dict[str, Any]:
    command = None
    if each.table is not None and each.snapshot_id is not None:
        command = f"fluvial diff {'.'.join(each.table)} {each.snapshot_id - 1} latest"
    return {
        "depth": each.depth,
        "job": each.job,
        "barrier_id": each.barrier_id,
        "source_table": ".".join(each.source),
        "source_snapshot_id": each.source_id,
        "table": None if each.table is None else ".".join(each.table),
        "snapshot_id": each.snapshot_id,
        "newest_snapshot_id": newest_id,
        "command": command,
    }
