"""The tables of database ``paimon``: by SQL, by ``format("fluvial")``, by the catalog and by the command line."""

import json
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import procedures
from engine.catalog import Catalog
from engine.cli.app import run_command
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from lsm.errors import FluvialError, InvalidInputError

TIME = datetime(2123, 6, 5, 13, 29, 1)
RECORDS = LineageRecords(
    source_tables=(TableLineage("job1", "db", "word_table", TIME),),
    sink_tables=(TableLineage("job1", "db", "word_count_table", TIME),),
    source_snapshots=tuple(DataLineage("job1", each, "db", "word_table", each + 2, TIME) for each in range(1, 6)),
    sink_snapshots=tuple(DataLineage("job1", each, "db", "word_count_table", each + 4, TIME) for each in range(1, 6)),
    startups=(JobStartup("job1", "db", "word_table", 3),),
)


def made(path: Path, options: dict[str, str] | None = None) -> tuple[Catalog, Lineage]:
    catalog = Catalog(str(path), options)
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(RECORDS)
    return catalog, lineage


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def stored_in(request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of a catalog with its lineage in SQLite, PostgreSQL or MariaDB."""
    if request.param == "sqlite":
        return {}
    place = {"jdbc.url": request.getfixturevalue(request.param), "jdbc.database": f"lineage_{uuid.uuid4().hex[:12]}"}
    return {"table-lineage": "true", "data-lineage": "true", **place}


def test_columns_and_rows_are_those_of_the_pip(tmp_path: Path, stored_in: dict[str, str]) -> None:
    """LN-15 to LN-25 (LN-18, LN-22), LN-46 to LN-52: names, types and order of the columns, in each kind of store."""
    catalog, _ = made(tmp_path, stored_in)
    found = {
        name: catalog.system_table(f"paimon.{name}").to_arrow(filter="job = 'job1'", limit=1)
        for name in (
            "source_job_lineage",
            "sink_job_lineage",
            "source_snapshot_lineage",
            "sink_snapshot_lineage",
            "job_startup",
        )
    }
    of_tables = {"job": pa.string(), "database": pa.string(), "table": pa.string(), "create_time": pa.timestamp("ms")}
    of_snapshots = {
        "job": pa.string(),
        "barrier_id": pa.int64(),
        "database": pa.string(),
        "table": pa.string(),
        "snapshot_id": pa.int64(),
        "create_time": pa.timestamp("ms"),
    }
    of_startups = {"job": pa.string(), "database": pa.string(), "table": pa.string(), "snapshot_id": pa.int64()}
    kinds = {name: dict(zip(rows.schema.names, rows.schema.types, strict=True)) for name, rows in found.items()}
    assert kinds == {
        "source_job_lineage": of_tables,
        "sink_job_lineage": of_tables,
        "source_snapshot_lineage": of_snapshots,
        "sink_snapshot_lineage": of_snapshots,
        "job_startup": of_startups,
    }
    (row,) = found["sink_snapshot_lineage"].to_pylist()
    assert {**row, "create_time": str(row["create_time"])} == {
        "job": "job1",
        "barrier_id": 1,
        "database": "db",
        "table": "word_count_table",
        "snapshot_id": 5,
        "create_time": "2123-06-05 13:29:01",
    }


def test_catalog_options_are_shown_under_both_names_and_without_secrets(tmp_path: Path) -> None:
    """LN-11, LN-15, trap 8: key and value, name beside them; what stands, what was given, and stars."""
    catalog, _ = made(tmp_path, {"jdbc.url": f"sqlite:////{tmp_path}/meta.sqlite", "jdbc.password": "hidden"})
    rows = catalog.system_table("paimon.catalog_options").to_arrow()
    assert rows.schema.names == ["key", "value", "name"]
    assert rows.column("name") == rows.column("key")
    known = dict(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))
    assert (known["table-lineage"], known["data-lineage"]) == ("true", "true")
    assert "hidden" not in str(known)
    assert "hidden" not in (tmp_path / ".fluvial" / "catalog.json").read_text()
    off = Catalog(str(tmp_path / "off"), {"table-lineage": "false", "data-lineage": "false"})
    off.create_database("db")
    assert off.system_table("paimon.catalog_options").to_arrow(["name", "value"], "name = 'table-lineage'").to_pylist()
    with pytest.raises(InvalidInputError, match=r"catalog records no lineage: .* table-lineage=false"):
        off.system_table("paimon.job_startup").to_arrow()


def test_filters_and_limits_choose_rows(tmp_path: Path, stored_in: dict[str, str]) -> None:
    """LN-56, LN-59 to LN-61, LN-66: whatever the store is asked gives what the same filter gives elsewhere."""
    catalog, _ = made(tmp_path, stored_in)
    read = catalog.system_table("paimon.source_snapshot_lineage")

    def barriers(filter: str, limit: int | None = None) -> list[int]:
        return [row["barrier_id"] for row in read.to_arrow(filter=filter, limit=limit).to_pylist()]

    assert barriers("snapshot_id > 4 AND barrier_id <> 4") == [3, 5]
    assert barriers("snapshot_id IN (3, 7, NULL) OR job LIKE 'JOB%'") == [1, 5]
    assert barriers("NOT (snapshot_id IN (3, 7, NULL))") == []
    assert barriers("job LIKE 'j_b%' AND create_time >= '2123-06-05 13:29:01'", limit=2) == [1, 2]
    assert barriers("create_time >= '2123-06-05 13:29:01.5'") == []
    assert barriers("job IS NULL OR `table` = 'Word_table'") == []
    assert barriers("barrier_id BETWEEN 2 AND 3 AND database = 'db'") == [2, 3]


def test_nobody_writes_alters_or_drops_them(tmp_path: Path) -> None:
    """LN-66: read-only tables; the name of their database is taken."""
    catalog, _ = made(tmp_path)
    name = "paimon.source_job_lineage"
    for refused in (
        lambda: catalog.table(name),
        lambda: catalog.drop_table(name),
        lambda: catalog.drop_table(name, if_exists=True),
        lambda: catalog.alter_table(name, []),
        lambda: catalog.rename_table(name, "db.mine"),
    ):
        with pytest.raises(InvalidInputError, match=r"a system table is only read: name=paimon.source_job_lineage"):
            refused()
    for taken in (lambda: catalog.create_database("paimon"), lambda: catalog.create_table("paimon.t", [])):
        with pytest.raises(InvalidInputError, match=r"name is that of the tables of lineage.*database=paimon"):
            taken()
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="db"))
    for text in (
        f"INSERT INTO {name} VALUES ('a', 'b', 'c', NULL)",
        f"DELETE FROM {name}",
        f"UPDATE {name} SET job = 'x'",
        f"ALTER TABLE {name} ADD COLUMN x INT",
        f"DROP TABLE {name}",
        f"TRUNCATE TABLE {name}",
        "CREATE TABLE paimon.mine (a INT)",
    ):
        with pytest.raises(InvalidInputError, match=r"read|name is that of"):
            session.execute(text)
    assert catalog.list_databases() == ["db"]


def test_a_users_database_of_this_name_goes_on(tmp_path: Path) -> None:
    """LN-10: tables that were there before win; ``sys`` has ours under the same names."""
    (tmp_path / "paimon.db").mkdir()
    catalog = Catalog(str(tmp_path), {"table-lineage": "true", "data-lineage": "true"})
    for table in ("mine", "job_startup"):
        catalog.create_table(f"paimon.{table}", pa.schema([("n", pa.int64())]))
        catalog.table(f"paimon.{table}").write(pa.table({"n": pa.array([7], pa.int64())}))
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(RECORDS)
    assert catalog.table("paimon.job_startup").read().to_arrow().to_pylist() == [{"n": 7}]
    assert catalog.system_table("sys.job_startup").to_arrow().num_rows == 1
    assert catalog.system_table("paimon.source_job_lineage").to_arrow().num_rows == 1
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="db"))
    session.execute("ALTER TABLE paimon.job_startup ADD COLUMN m INT")
    session.execute("DROP TABLE paimon.mine")
    assert catalog.list_tables("paimon") == ["job_startup"]


def test_the_command_line_reads_and_deletes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LN-66 to LN-69 (LN-68): ``fluvial read``, ``delete-table-lineage --job``, ``delete-data-lineage --job``."""
    catalog, lineage = made(tmp_path)
    lineage.store(LineageRecords(source_tables=(TableLineage("job2", "db", "word_table", TIME),)))
    where = ["--warehouse", str(tmp_path)]
    asked = ["read", "paimon.sink_snapshot_lineage", "--columns", "snapshot_id", "--filter", "barrier_id > 3", "--json"]
    assert run_command([*asked, "--limit", "1", *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"snapshot_id": 8}
    assert run_command(["delete-table-lineage", "--job", "job1", "--json", *where]) == 0
    assert '"source_rows": 1' in capsys.readouterr().out
    assert [each.job for each in lineage.meta.source_table_lineages()] == ["job2"]
    assert list(lineage.meta.sink_table_lineages()) == []
    assert len(list(lineage.meta.source_data_lineages())) == 5
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="db"))
    (done,) = session.execute("CALL sys.delete_data_lineage(job => 'job1')")
    assert done.table is not None
    assert done.table.to_pylist() == [{"job": "job1", "source_rows": 5, "sink_rows": 5}]
    assert [*lineage.meta.source_data_lineages(), *lineage.meta.sink_data_lineages()] == []
    assert list(lineage.meta.job_startups()) == []
    assert procedures.delete_data_lineage(catalog, "nobody").to_pylist()[0]["source_rows"] == 0
    (shown,) = session.execute("SHOW TABLES IN paimon LIKE '*startup'")
    assert shown.table is not None
    assert shown.table.column("tableName").to_pylist() == ["job_startup"]
    (described,) = session.execute("DESCRIBE TABLE paimon.job_startup")
    assert described.table is not None
    assert described.table.column("col_name").to_pylist()[:2] == ["job", "database"]


def no_spark() -> SparkSession:
    raise AssertionError("this statement needs no Spark")


@pytest.mark.spark
def test_spark_reads_them_and_joins_two_catalogs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_in: dict[str, str]
) -> None:
    """LN-03, LN-04, LN-26 to LN-30, LN-66: the PIP's queries, corrected (trap 7), and its query over two catalogs."""
    catalog, _ = made(tmp_path / "one", stored_in)
    other = Catalog(str(tmp_path / "two"))
    other.create_database("away")
    there = lineage_of(other)
    assert there is not None
    there.store(LineageRecords(sink_snapshots=tuple(DataLineage("job1", 1, "away", "copy", 40, TIME) for _ in "x")))

    asked: list[object] = []
    from engine.lineage import views

    whole: Callable[..., object] = views.seed_rows
    monkeypatch.setattr(views, "seed_rows", lambda *given: (asked.append(given[2]), whole(*given))[1])
    context = SqlContext(catalog=catalog, open_spark=lambda: spark, database="db")

    def rows(text: str) -> list[tuple[object, ...]]:
        (statement,) = parse_statements(text)
        return sorted(tuple(row) for row in run_query(context, statement).collect())

    upstream = """SELECT S.database, S.`table`, S.snapshot_id FROM paimon.source_snapshot_lineage S
        JOIN paimon.sink_snapshot_lineage T ON S.job = T.job AND S.barrier_id = T.barrier_id
        WHERE T.`database` = 'db' AND T.`table` = 'word_count_table' AND T.snapshot_id = 7"""
    assert rows(upstream) == [("db", "word_table", 5)]
    assert [each is not None for each in asked] == [False, True], "the condition on T reaches the database"
    view = "SELECT upstream_table, upstream_snapshot_id FROM paimon.upstream_snapshots "
    assert rows(f"{view} WHERE `table` = 'word_count_table' AND snapshot_id = 7") == [("word_table", 5)]
    assert rows("SELECT job FROM paimon.downstream_jobs WHERE `table` = 'word_table'") == [("job1",)]
    name, value = rows("SELECT name, value FROM paimon.catalog_options WHERE key = 'table-lineage'")[0]
    assert (name, value) == ("table-lineage", "true")
    assert rows("SELECT CAST(create_time AS STRING) FROM paimon.sink_job_lineage") == [("2123-06-05 13:29:01",)]
    for place, table, alias in (("one", "source", "s"), ("two", "sink", "k")):
        frame = spark.read.format("fluvial").option("warehouse", str(tmp_path / place))
        if place == "one" and stored_in:  # a warehouse has no password, which the opened catalog was given
            (statement,) = parse_statements(f"SELECT * FROM paimon.{table}_snapshot_lineage")
            run_query(context, statement).createOrReplaceTempView(f"lineage_{alias}")
        else:
            frame.option("table", f"paimon.{table}_snapshot_lineage").load().createOrReplaceTempView(f"lineage_{alias}")
    across = """SELECT k.snapshot_id FROM lineage_k k JOIN lineage_s s ON s.job = k.job AND s.barrier_id = k.barrier_id
        WHERE s.job = 'job1' AND s.snapshot_id = 3"""
    assert [tuple(row) for row in spark.sql(across).collect()] == [(40,)]
    frame = spark.createDataFrame([("x",)], "job string").write.format("fluvial").mode("append")
    with pytest.raises(Exception, match="a system table is only read"):
        frame.option("warehouse", str(tmp_path / "one")).option("table", "paimon.source_job_lineage").save()


def test_a_broken_file_of_options_is_told(tmp_path: Path) -> None:
    """LN-45: it is not taken for a catalog without lineage."""
    catalog, _ = made(tmp_path)
    (tmp_path / ".fluvial" / "catalog.json").write_text('{"version": 1}')
    with pytest.raises(FluvialError, match=r"options of the catalog cannot be read: path=.*catalog\.json"):
        lineage_of(catalog)
