"""Stores of lineage when they are first opened: by several at once, and as an older Fluvial wrote them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from engine.lineage.store import connections
from engine.lineage.store.connections import LineageTables
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords
from engine.lineage.store.jdbc import JdbcLineageMeta
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
from lsm.errors import InvalidInputError

TIME = datetime(2026, 11, 21, 12, 0, 1)
NAMES = ("source_snapshot_lineage", "sink_snapshot_lineage")


def old_tables(schema: str | None) -> sa.MetaData:
    """As the former version made them, down to the names of their indices."""
    metadata = sa.MetaData(schema=schema)
    for name in NAMES:
        table = sa.Table(
            name,
            metadata,
            sa.Column("job", sa.String(255), primary_key=True),
            sa.Column("barrier_id", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("database", sa.String(255), primary_key=True),
            sa.Column("table", sa.String(255), primary_key=True),
            sa.Column("snapshot_id", sa.BigInteger, nullable=False),
            sa.Column("create_time", sa.DateTime, nullable=False),
        )
        sa.Index(f"{name}_by_snapshot", table.c.database, table.c.table, table.c.snapshot_id)
        sa.Index(f"{name}_by_time", table.c.create_time)
    names = [sa.Column(each, sa.String(255), primary_key=True) for each in ("job", "database", "table")]
    sa.Table("job_startup", metadata, *names, sa.Column("snapshot_id", sa.BigInteger, nullable=False))
    return metadata


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
def test_a_store_of_the_former_version_is_taken_over(
    dialect: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """LN-20 to LN-23: every row is there, the tables of the PIP have it too, and a new one is seen in them."""
    schema = None if dialect == "sqlite" else "former version"
    url = f"sqlite:////{tmp_path}/l.sqlite" if dialect == "sqlite" else request.getfixturevalue(dialect)
    database = SqlDatabase.of(url, dialects=ALL_DIALECTS)
    engine = sa.create_engine(database.url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        if schema is not None:
            connection.execute(sa.schema.CreateSchema(schema))
        metadata = old_tables(schema)
        metadata.create_all(connection)
        rows = [
            {**dict.fromkeys(("job", "database", "table"), "n"), "barrier_id": each, "snapshot_id": each + 4}
            | {"create_time": TIME}
            for each in range(3)
        ]
        for table in metadata.sorted_tables:
            known = [{key: value for key, value in row.items() if key in table.c} for row in rows]
            connection.execute(sa.insert(table), known if "barrier_id" in table.c else known[:1])
    for _ in range(2):
        meta = JdbcLineageMeta(database, schema)
        expected = [DataLineage("n", each, "n", "n", each + 4, TIME) for each in range(3)]
        assert list(meta.sink_data_lineages()) == expected
        assert list(meta.source_data_lineages()) == expected
        assert list(meta.job_startups()) == [JobStartup("n", "n", "n", 4)]
    meta.store_job_startup(JobStartup("n", "n", "n", 7, "run"))
    with engine.begin() as connection:  # by an older process that still runs
        startup = next(each for each in metadata.sorted_tables if each.name.endswith("job_startup"))
        connection.execute(sa.insert(startup), {**dict.fromkeys(("job", "database", "table"), "o"), "snapshot_id": 1})
    assert list(meta.job_startups()) == [JobStartup("n", "n", "n", 7, "run"), JobStartup("o", "o", "o", 1)]
    late = DataLineage("n", 0, "n", "n", 9, TIME, run="another", moment_ms=expected[0].moment_ms + 1)
    meta.store(LineageRecords(sink_snapshots=(late,)))
    assert len(list(meta.sink_data_lineages())) == 4
    view = sa.table("sink_snapshot_lineage", sa.column("barrier_id"), sa.column("snapshot_id"), schema=schema)
    with engine.connect() as connection:
        found = connection.execute(sa.select(view.c.barrier_id, view.c.snapshot_id).order_by(view.c.barrier_id)).all()
    assert [tuple(each) for each in found] == [(0, 9), (1, 5), (2, 6)], "the newest run of each barrier"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dialect", ["postgres", "mysql"])
def test_several_that_open_a_new_store_at_once_get_it(dialect: str, request: pytest.FixtureRequest) -> None:
    """LN-42: schema, tables, views and owner are made by the first one; the others find them."""
    url = SqlDatabase.of(request.getfixturevalue(dialect), dialects=ALL_DIALECTS).url
    start, taking = Barrier(6), Barrier(6)

    def waits(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT") and "fluvial_catalog" in statement:
            with suppress(BrokenBarrierError):
                taking.wait(2)  # everyone has seen that nobody owns the tables

    def opened() -> set[str]:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        sa.event.listen(engine, "before_cursor_execute", waits)
        start.wait()
        LineageTables("race", "catalog")(engine)
        return {*sa.inspect(engine).get_view_names("race")}

    with ThreadPoolExecutor(6) as pool:
        found = [each.result() for each in [pool.submit(opened) for _ in range(6)]]
    assert all({*NAMES} <= views for views in found)
    with pytest.raises(InvalidInputError, match="belong to another catalog"):
        LineageTables("race", "other")(sa.create_engine(url, poolclass=sa.NullPool))


def test_a_new_file_is_filled_by_one_transaction_as_by_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, indexes and views are those that are made one by one; a process that dies meanwhile leaves none."""
    names = ("at once", "one by one", "dead")
    engines = {name: sa.create_engine(f"sqlite:////{tmp_path}/{name}.sqlite") for name in names}
    committed: list[str] = []

    def note(name: str) -> Callable[[sa.Connection], None]:
        return lambda _: committed.append(name)

    for name, engine in engines.items():
        sa.event.listen(engine, "commit", note(name))
    tables = LineageTables(None, None)
    tables(engines["at once"])
    with monkeypatch.context() as patch:
        patch.setattr(connections, "fill_new_file", lambda *_: False)
        tables(engines["one by one"])
    assert made_in(engines["at once"]) == made_in(engines["one by one"])
    assert (committed.count("at once"), committed.count("one by one") > 10) == (1, True)
    some = connections._statements()[:5]
    monkeypatch.setattr(connections, "_statements", lambda: (*some, "CREATE TABLE none"))
    with pytest.raises(OperationalError):
        tables(engines["dead"])
    assert made_in(engines["dead"]) == []


def made_in(engine: sa.Engine) -> list[tuple[str, str, str]]:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return sorted((kind, name, " ".join(sql.split())) for kind, name, sql in rows)
