"""What is changed in the store where it differs from the snapshot files: rows are moved, dropped and added."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from engine.lineage.store.entities import DataLineage, LineageRecords, TableLineage, split_name
from engine.lineage.store.jdbc import ROW_KEY, JdbcLineageMeta
from engine.lineage.store.sql_tables import (
    CHECKED,
    JOB_STARTUP,
    SINK_JOBS,
    SINK_SNAPSHOTS,
    SOURCE_JOBS,
    SOURCE_SNAPSHOTS,
    row_key,
)
from filestore.snapshot.snapshot import SnapshotRef

_JOBS: Final = ((SINK_JOBS, SINK_SNAPSHOTS), (SOURCE_JOBS, SOURCE_SNAPSHOTS))
GONE: Final = SnapshotRef(1 << 62, "gone")
"""End of the check of a table that no longer exists: later rows are before it."""
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTable:
    """Up to where the rows of a table were compared with its snapshot files."""

    table: str
    table_id: str
    at: SnapshotRef

    @property
    def is_gone(self) -> bool:
        """Whether the table was not there at the last check."""
        return self.at == GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a correction changed: snapshots of tables."""

    added: int = 0
    dropped: int = 0


class Corrections:
    """Changes of a store, each in a transaction of its own; repeating one changes nothing."""

    def __init__(self, meta: JdbcLineageMeta, *, has_snapshots: bool) -> None:
        """``has_snapshots``: whether data lineage is on; without it, jobs of tables are all that there is."""
        self._meta, self._has_snapshots = meta, has_snapshots

    def checked(self) -> list[CheckedTable]:
        """Every table that rows are about, by name and id."""
        query = sa.select(CHECKED).order_by(*CHECKED.primary_key)
        return [
            CheckedTable(
                table=f"{row['database']}.{row['table']}",
                table_id=row["table_id"],
                at=SnapshotRef(row["snapshot_id"], row["identity"]),
            )
            for row in self._meta.rows(query, None)
        ]

    def behind_checks(self) -> set[str]:
        """The tables with written snapshots behind the one up to which they were compared."""
        later = sa.select(SINK_SNAPSHOTS.c.row_key).where(
            SINK_SNAPSHOTS.c.database == CHECKED.c.database,
            SINK_SNAPSHOTS.c.table == CHECKED.c.table,
            SINK_SNAPSHOTS.c.snapshot_id > CHECKED.c.snapshot_id,
        )
        query = sa.select(CHECKED.c.database, CHECKED.c.table).where(later.exists())
        return {f"{row['database']}.{row['table']}" for row in self._meta.rows(query, None)}

    def written(self, table: str, after_id: int) -> list[DataLineage]:
        """The written snapshots of a table, after one."""
        columns = [each for each in SINK_SNAPSHOTS.c if each.name != ROW_KEY]
        query = sa.select(*columns).where(_of(SINK_SNAPSHOTS, table), SINK_SNAPSHOTS.c.snapshot_id > after_id)
        return [DataLineage(**row) for row in self._meta.rows(query, None)]

    def writing_jobs(self, table: str) -> set[str]:
        """The jobs that write a table."""
        return {row["job"] for row in self._meta.rows(sa.select(SINK_JOBS.c.job).where(_of(SINK_JOBS, table)), None)}

    def correct(
        self, at: CheckedTable, false: Sequence[DataLineage], missing: LineageRecords, false_jobs: Collection[str] = ()
    ) -> None:
        """Drop rows of a table, add others, and note up to where it was checked.

        Args:
            at: the table, and its newest snapshot.
            false: written snapshots that the table does not have, or that others wrote.
            missing: rows of snapshots that it has.
            false_jobs: jobs that do not write it, where there are no snapshots to see that by.
        """
        with self._meta.transaction("correct lineage") as connection:
            self._delete_written(connection, at.table, false)
            self._meta.add(connection, missing)
            for job in false_jobs:
                is_false = sa.and_(_of(SINK_JOBS, at.table), SINK_JOBS.c.job == job, _recorded(SINK_JOBS))
                connection.execute(sa.delete(SINK_JOBS).where(is_false))
                left = sa.select(SINK_JOBS.c.job).where(SINK_JOBS.c.job == job)
                of_job = sa.and_(SOURCE_JOBS.c.job == job, _recorded(SOURCE_JOBS))
                connection.execute(sa.delete(SOURCE_JOBS).where(of_job, ~left.exists()))
            _note(connection, at)

    def drop(self, gone: CheckedTable) -> int:
        """Drop the records of writes to a dropped table; records of its reads stay. Returns the dropped snapshots."""
        with self._meta.transaction("drop lineage") as connection:
            false = self._rows(connection, SINK_SNAPSHOTS, gone)
            self._delete_written(connection, gone.table, false)
            jobs, snapshots = _JOBS[0]
            is_about_it = sa.or_(_recorded(jobs), jobs.c.stated == gone.table_id)
            connection.execute(sa.delete(jobs).where(_of(jobs, gone.table), is_about_it, ~_any_row(jobs, snapshots)))
            connection.execute(sa.delete(JOB_STARTUP).where(_of(JOB_STARTUP, gone.table)))
            _note(connection, replace(gone, at=GONE))
        return len(false)

    def move(self, old: CheckedTable, new: CheckedTable) -> None:
        """Give the rows of a table its new name.

        Args:
            old: as the rows name it.
            new: as it is called now; ``at`` is that of its rows.
        """
        database, table = split_name(new.table)
        names: dict[str, Any] = {"database": database, "table": table}
        with self._meta.transaction("rename lineage") as connection:
            moved: dict[str, tuple[DataLineage, ...]] = {}
            jobs_moved: dict[str, tuple[TableLineage, ...]] = {}
            for jobs, snapshots in _JOBS:
                rows = self._rows(connection, snapshots, old)
                renamed = (replace(each, **names, table_id=new.table_id) for each in rows)
                there = {row_key(each): each.snapshot_id for each in self._rows(connection, snapshots, new)}
                moved[snapshots.name] = tuple(
                    each for each in renamed if each.snapshot_id >= there.get(row_key(each), 0)
                )  # a barrier may have read a table and its branch, which is the table now
                connection.execute(sa.delete(snapshots).where(_is(snapshots, old)))
                left = [*connection.execute(sa.select(jobs).where(_of(jobs, old.table))).mappings()]
                movers = {each.job for each in rows}
                stated_by = {each.job for each in rows if each.is_stated}
                others = {row["job"] for row in left if row["stated"] and row["stated"] != old.table_id}
                jobs_moved[jobs.name] = tuple(
                    TableLineage(**{**row, **names, "stated": new.table_id if is_stated else ""})
                    for row in left
                    for is_stated in [row["stated"] == old.table_id or row["job"] in stated_by]
                    if is_stated or row["job"] in movers or not (self._has_snapshots or row["job"] in others)
                )
                gone = sa.and_(_of(jobs, old.table), sa.or_(_recorded(jobs), jobs.c.stated == old.table_id))
                connection.execute(
                    sa.delete(jobs).where(gone, ~_any_row(jobs, snapshots)) if self._has_snapshots else
                    sa.delete(jobs).where(gone)
                )  # fmt: skip
            records = LineageRecords(
                source_tables=jobs_moved[SOURCE_JOBS.name],
                sink_tables=jobs_moved[SINK_JOBS.name],
                source_snapshots=moved[SOURCE_SNAPSHOTS.name],
                sink_snapshots=moved[SINK_SNAPSHOTS.name],
            )
            self._meta.add(connection, records)
            connection.execute(sa.delete(CHECKED).where(_is(CHECKED, old)))
            _note(connection, new)

    def drop_never_committed(self, table: str | None) -> list[TableLineage]:
        """Drop the jobs that never committed to a table, see ``never_committed``; None: to any. Returns the rows."""
        found = [
            each for each in self._meta.never_committed() if table in (None, f"{each.database}.{each.table}")
        ]  # a job that commits meanwhile stores its row again, with its snapshot
        with self._meta.transaction("drop lineage of jobs that never committed") as connection:
            for each in found:
                row = sa.and_(_of(SINK_JOBS, f"{each.database}.{each.table}"), SINK_JOBS.c.job == each.job)
                connection.execute(sa.delete(SINK_JOBS).where(row, ~_any_row(*_JOBS[0]), _recorded(SINK_JOBS)))
        return found

    def forget_checks(self, table: str | None = None) -> None:
        """Compare all rows of a table with its files at the next check; None: of all tables."""
        with self._meta.transaction("check lineage again") as connection:
            where = sa.true() if table is None else _of(CHECKED, table)
            connection.execute(sa.update(CHECKED).where(where).values(snapshot_id=0, identity=""))

    def _rows(self, connection: sa.Connection, table: sa.Table, of: CheckedTable) -> list[DataLineage]:
        columns = [each for each in table.c if each.name != ROW_KEY]
        return [DataLineage(**row) for row in connection.execute(sa.select(*columns).where(_is(table, of))).mappings()]

    def _delete_written(self, connection: sa.Connection, table: str, false: Sequence[DataLineage]) -> None:
        """Written snapshots, and what only their barriers have read."""
        for some in _some([row_key(each) for each in false]):
            connection.execute(sa.delete(SINK_SNAPSHOTS).where(SINK_SNAPSHOTS.c.row_key.in_(some)))
        for run, job, barrier_id in sorted({(each.run, each.job, each.barrier_id) for each in false}):
            of_barrier = [
                sa.and_(rows.c.run == run, rows.c.job == job, rows.c.barrier_id == barrier_id)
                for rows in (SOURCE_SNAPSHOTS, SINK_SNAPSHOTS)
            ]
            left = sa.select(SINK_SNAPSHOTS.c.row_key).where(of_barrier[1])
            connection.execute(sa.delete(SOURCE_SNAPSHOTS).where(of_barrier[0], ~left.exists()))
        if not self._has_snapshots:
            return
        for job in sorted({each.job for each in false}):
            written = sa.and_(_of(SINK_JOBS, table), SINK_JOBS.c.job == job)
            connection.execute(sa.delete(SINK_JOBS).where(written, _recorded(SINK_JOBS), ~_any_row(*_JOBS[0])))
            read = sa.and_(SOURCE_JOBS.c.job == job, _recorded(SOURCE_JOBS))
            connection.execute(sa.delete(SOURCE_JOBS).where(read, ~_any_row(*_JOBS[1])))


def _note(connection: sa.Connection, at: CheckedTable) -> None:
    database, table = split_name(at.table)
    connection.execute(sa.delete(CHECKED).where(_is(CHECKED, at)))
    values: dict[str, Any] = {"database": database, "table": table, "table_id": at.table_id}
    connection.execute(sa.insert(CHECKED), {**values, "snapshot_id": at.at.id, "identity": at.at.identity})


def _of(table: sa.Table, name: str) -> sa.ColumnElement[bool]:
    database, short = split_name(name)
    return sa.and_(table.c.database == database, table.c.table == short)


def _is(table: sa.Table, of: CheckedTable) -> sa.ColumnElement[bool]:
    return sa.and_(_of(table, of.table), table.c.table_id == of.table_id)


def _recorded(jobs: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row of jobs was recorded by the job, and not stated by hand."""
    return jobs.c.stated == ""


def _any_row(jobs: sa.Table, snapshots: sa.Table) -> sa.Exists:
    """Whether a job has a snapshot of the table, for a row of jobs."""
    same = (snapshots.c[name] == jobs.c[name] for name in ("job", "database", "table"))
    return sa.select(snapshots.c.row_key).where(*same).exists()


def _some(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
