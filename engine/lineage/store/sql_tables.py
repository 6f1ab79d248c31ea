"""The tables of lineage in a SQL database, and the two of the PIP that are views of them.

A row of data lineage is of a run of a job, a barrier and a table: a job that begins with a new checkpoint counts its
barriers from 0 again, and another table may get the name of a dropped one. The PIP's tables have neither runs nor
ids: as views they show the newest run of each barrier. Source: PIP "Table and data lineage", Metadata Database.
"""

from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from engine.lineage.store.entities import DataLineage
from lsm.errors import CorruptDataError

METADATA: Final = sa.MetaData()


def _odd(value: object) -> CorruptDataError:
    return CorruptDataError(
        f"the lineage store has a value that no job has written: value={value!r:.60} "
        "fix='look who writes the store, delete the row there, and call repair-lineage'"
    )


class _Text(sa.types.TypeDecorator[str]):
    """Texts of at most a length: SQLite stores any value in any column, and others may write its file."""

    impl = sa.String
    impl_instance: sa.String
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Raises: CorruptDataError."""
        if value is None or (isinstance(value, str) and len(value) <= (self.impl_instance.length or 0)):
            return value
        raise _odd(value)


class _Whole(sa.types.TypeDecorator[int]):
    """Whole numbers, likewise."""

    impl = sa.BigInteger
    cache_ok = True

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
        """Raises: CorruptDataError."""
        if value is None or type(value) is int:
            return value
        raise _odd(value)


class _Moment(sqlite.DATETIME):
    """Times, likewise."""

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        """Raises: CorruptDataError, for each value."""
        inner: Any = super().result_processor(dialect, coltype)

        def process(value: Any) -> Any:
            try:
                return inner(value)
            except (TypeError, ValueError) as error:
                raise _odd(value) from error

        return process


# Compared by bytes, as everywhere else; three of them and a number are the maximum of a MySQL key.
_NAME: Final = (
    _Text(255)
    .with_variant(postgresql.VARCHAR(255, collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")
)
_TIME: Final = sa.DateTime().with_variant(
    _Moment(  # type: ignore[no-untyped-call]
        storage_format="%(year)04d-%(month)02d-%(day)02d %(hour)02d:%(minute)02d:%(second)02d",
        regexp=r"(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+)",
    ),
    "sqlite",
)


def _key(name: str, kind: Any = _NAME) -> "sa.Column[Any]":
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _column(name: str, kind: Any = _NAME) -> "sa.Column[Any]":
    return sa.Column(name, kind, nullable=False)


def _table_lineage(name: str) -> sa.Table:
    table = sa.Table(
        name,
        METADATA,
        _key("job"),
        _key("database"),
        _key("table"),
        _column("create_time", _TIME),
        sa.Column("stated", _Text(64), nullable=False, server_default=""),  # older processes do not give it
    )
    sa.Index(f"{name}_by_table", table.c.database, table.c.table)
    return table


def _data_lineage(name: str) -> sa.Table:
    table = sa.Table(
        name,
        METADATA,
        _key("row_key", _Text(32)),  # of everything that distinguishes rows, which is too long for a key
        _column("job"),
        _column("barrier_id", _Whole),
        _column("database"),
        _column("table"),
        _column("snapshot_id", _Whole),
        _column("create_time", _TIME),
        _column("run"),
        _column("table_id", _Text(64)),
        _column("identity"),
        _column("moment_ms", _Whole),
    )
    sa.Index(f"{name}_by_snapshot", table.c.database, table.c.table, table.c.snapshot_id)
    sa.Index(f"{name}_by_barrier", table.c.job, table.c.barrier_id, table.c.run)
    sa.Index(f"{name}_by_time", table.c.create_time)
    return table


def _jobs_of(name: str) -> sa.Table:
    """Which jobs have rows of a table, so that the nearest row of each is found without scanning all of them."""
    return sa.Table(name, METADATA, _key("database"), _key("table"), _key("job"))


SOURCE_JOBS: Final = _table_lineage("source_job_lineage")
SINK_JOBS: Final = _table_lineage("sink_job_lineage")
SOURCE_SNAPSHOTS: Final = _data_lineage("fluvial_source_snapshots")
SINK_SNAPSHOTS: Final = _data_lineage("fluvial_sink_snapshots")
SOURCE_SNAPSHOT_JOBS: Final = _jobs_of("fluvial_source_snapshot_jobs")
SINK_SNAPSHOT_JOBS: Final = _jobs_of("fluvial_sink_snapshot_jobs")
JOB_STARTUP: Final = sa.Table(
    "job_startup",
    METADATA,
    _key("job"),
    _key("database"),
    _key("table"),
    _column("snapshot_id", _Whole),
    sa.Column("start", _NAME, nullable=False, server_default=""),  # older processes do not give it
)
OWNER: Final = sa.Table("fluvial_catalog", METADATA, _key("id", sa.Integer), _column("catalog_id", _Text(64)))
"""One row: the catalog that owns the tables."""
CHECKED: Final = sa.Table(
    "fluvial_checked",
    METADATA,
    _key("database"),
    _key("table"),
    _key("table_id", _Text(64)),
    _column("snapshot_id", _Whole),
    _column("identity"),
)
"""For each table, up to which of its snapshots the rows were compared with the snapshot files."""


def row_key(entity: DataLineage) -> str:
    """The primary key of a row of data lineage."""
    parts = (entity.run, entity.job, str(entity.barrier_id), entity.database, entity.table, entity.table_id)
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def of_newest_run(name: str) -> "sa.Select[Any]":
    """The rows of ``source_snapshot_lineage`` or ``sink_snapshot_lineage``, with the PIP's columns and key.

    A barrier of several runs of a job is shown as the newest run read and wrote it, in both tables; one that was tried
    again behind a table that was created again under its name, with the newer of the two.
    """
    rows = SEED_TABLES[name].alias("shown")

    def is_newer(others: sa.Table) -> sa.ColumnElement[bool]:
        other = others.alias(f"newer_{others.name}")
        later = sa.or_(
            other.c.moment_ms > rows.c.moment_ms,
            sa.and_(other.c.moment_ms == rows.c.moment_ms, other.c.run > rows.c.run),
        )
        same = sa.and_(other.c.job == rows.c.job, other.c.barrier_id == rows.c.barrier_id, other.c.run != rows.c.run)
        return sa.exists().where(same, later)

    again = SEED_TABLES[name].alias("again")
    later = sa.or_(
        again.c.moment_ms > rows.c.moment_ms,
        sa.and_(again.c.moment_ms == rows.c.moment_ms, again.c.table_id > rows.c.table_id),
    )
    shared = ("job", "barrier_id", "run", "database", "table")
    is_replaced = sa.exists().where(*(again.c[each] == rows.c[each] for each in shared), later)
    columns = [rows.c[each] for each in ("job", "barrier_id", "database", "table", "snapshot_id", "create_time")]
    return sa.select(*columns).where(~is_newer(SOURCE_SNAPSHOTS), ~is_newer(SINK_SNAPSHOTS), ~is_replaced)


SEED_TABLES: Final = {"source_snapshot_lineage": SOURCE_SNAPSHOTS, "sink_snapshot_lineage": SINK_SNAPSHOTS}
"""The PIP's tables that are views, and what they are views of."""
