"""How far each job is behind the tables that it reads: in snapshots, and in time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.sql_tables import SINK_JOBS, SOURCE_SNAPSHOTS
from engine.lineage.truth.tables_now import TablesNow
from filestore.snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLateness:
    """The newest read of a table by a job, and what the table has by now."""

    job: str
    table: str  # "database.table"
    read_id: int
    newest_id: int
    behind_ms: int | None  # from the snapshot that was read to the newest; None: the former has expired

    @property
    def snapshots_behind(self) -> int:
        """Snapshots that the job has not read; compactions count."""
        return max(self.newest_id - self.read_id, 0)


def lateness_of_jobs(meta: JdbcLineageMeta, now: TablesNow) -> list[JobLateness]:
    """The lateness of every job that reads tables of a catalog, by job and table.

    Args:
        meta: the store, compared with the snapshot files.
        now: the tables; reads of dropped tables are ignored.

    Raises:
        UnavailableError: the store does not answer.
    """
    newest: dict[str, Snapshot | None] = {}
    found = []
    for row in meta.rows(_newest_reads(), None):
        name = f"{row['database']}.{row['table']}"
        table = now.by_name.get(name)
        if table is None:
            continue
        if name not in newest:
            newest[name] = table.store.snapshots.latest()
        last = newest[name]
        if last is not None:
            read = last if row["snapshot_id"] >= last.id else table.store.snapshots.find(row["snapshot_id"])
            behind_ms = None if read is None else last.time_ms - read.time_ms
            found.append(
                JobLateness(
                    job=row["job"], table=name, read_id=row["snapshot_id"], newest_id=last.id, behind_ms=behind_ms
                )
            )
    return found


def lateness_rows(meta: JdbcLineageMeta, now: TablesNow) -> Iterator[dict[str, Any]]:
    """The lateness of every table that the jobs write, as rows of ``paimon.upstream_lateness``."""
    late: dict[str, list[JobLateness]] = {}
    for each in lateness_of_jobs(meta, now):
        late.setdefault(each.job, []).append(each)
    written = sa.select(SINK_JOBS).order_by(SINK_JOBS.c.database, SINK_JOBS.c.table, SINK_JOBS.c.job)
    for row in meta.rows(written, None):
        for each in late.get(row["job"], ()):
            database, _, table = each.table.partition(".")
            yield {
                "database": row["database"],
                "table": row["table"],
                "job": row["job"],
                "upstream_database": database,
                "upstream_table": table,
                "read_snapshot_id": each.read_id,
                "newest_snapshot_id": each.newest_id,
                "snapshots_behind": each.snapshots_behind,
                "behind_ms": each.behind_ms,
            }


def _newest_reads() -> "sa.Select[Any]":
    """The newest read of each job and table: of a run that began later, also when its snapshot is a lower one."""
    rows = SOURCE_SNAPSHOTS.c
    keys = (rows.job, rows.database, rows.table)
    order = (rows.moment_ms.desc(), rows.barrier_id.desc(), rows.snapshot_id.desc())
    place = sa.func.row_number().over(partition_by=keys, order_by=order).label("place")
    ranked = sa.select(*keys, rows.snapshot_id, place).subquery("ranked")
    chosen = [ranked.c[name] for name in ("job", "database", "table", "snapshot_id")]
    return sa.select(*chosen).where(ranked.c.place == 1).order_by(*chosen[:3])
