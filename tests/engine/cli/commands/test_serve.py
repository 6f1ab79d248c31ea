"""``fluvial serve``: JDBC clients and dbt work on the tables, and a signal ends the server cleanly."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
import sqlalchemy
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from engine import Catalog
from engine.cli.app import run_command
from engine.spark.thrift_server import is_like
from tests.stores import processes

ROOT = Path(__file__).resolve().parents[4]
PROJECT = ROOT / "docs/examples/dbt"
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64()), ("state", pa.string())])
BEELINE = Path(pyspark.__file__).parent / "bin" / "beeline"
ONE_SERVER = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.xdist_group("serve")]


@dataclass
class Server:
    """The command as a process."""

    process: subprocess.Popen[bytes]
    port: int
    output: Path
    catalog: Catalog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the module; its last test ends it."""
    yield from serving(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def trusting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its clients may do what its user may."""
    yield from serving(tmp_path_factory.mktemp("trusting"), "--trust-clients")


def serving(home: Path, *options: str) -> Iterator[Server]:
    output, warehouse = home / "output", str(home / "warehouse")
    place = ["--warehouse", warehouse, "--port", "0", "--master", "local[2]", "--spark-log", str(home / "spark.log")]
    command = [sys.executable, "-m", "engine.cli", "serve", *place, *options]
    process = processes.start(command, output, lambda: "jdbc:" in output.read_text())
    port = int(output.read_text().partition("jdbc:hive2://127.0.0.1:")[2].partition("/")[0])
    yield Server(process, port, output, Catalog(warehouse))
    processes.end(process)


def through_jdbc(server: Server, database: str, *statements: str) -> list[str]:
    """What Hive's JDBC client prints for statements on one connection: names of columns, then rows, as CSV."""
    url = f"jdbc:hive2://127.0.0.1:{server.port}/{database}"
    form = ["--silent=true", "--outputformat=csv2", "--force=true"]
    texts = [word for statement in statements for word in ("-e", statement)]
    done = subprocess.run(
        [str(BEELINE), "-u", url, *form, *texts], capture_output=True, text=True, check=False, timeout=200
    )
    lines = (line.rpartition("> ")[2].strip() for line in (done.stdout + done.stderr).splitlines())  # behind a prompt
    return [line for line in lines if line]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project in the documents."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


DBT = """
import json, sys
from dbt.cli.main import dbtRunner
for line in sys.stdin:
    print("ended", dbtRunner().invoke(json.loads(line)).success, flush=True)
"""
"""What the program ``dbt`` runs, for one command after another: most of what one costs is to import dbt."""


INSPECT = """
import json, sys
port, packages, *made = sys.argv[1:]
sys.path.append(packages)
import sqlalchemy as sa
def said(engine, place):
    with engine.connect() as connection:
        connection.execute(sa.text("USE " + place))
        seen = sa.inspect(connection)
        table = sa.Table("orders", sa.MetaData(), autoload_with=connection, resolve_fks=False)
        rows = connection.execute(sa.select(table.c.id, table.c.k, table.c.d, table.c.p)).fetchall()
        return {
            "tables": len(seen.get_table_names()),
            "has_table": seen.has_table("orders"),
            "columns": [(each["name"], str(each["type"])) for each in seen.get_columns("orders")],
            "key": seen.get_pk_constraint("orders"),
            "indexes": [each["column_names"] for each in seen.get_indexes("orders")],
            "reflected": list(table.c.keys()),
            "rows": [[row[0], row[1], str(row[2]), row[3]] for row in rows],
        }
engine = sa.create_engine("hive://127.0.0.1:" + port + "/default")
with engine.connect() as connection:
    for text in made:
        connection.exec_driver_sql(text)
    schemas = sa.inspect(connection).get_schema_names()
print(json.dumps([schemas, said(engine, "fluvial.Inspected"), said(engine, "spark_catalog.inspected_there")]))
"""
"""Runs with PyHive of one environment and SQLAlchemy of another: the port, its directory, and statements before it."""


@pytest.fixture
def dbt(project: Path, server: Server) -> Iterator[Callable[..., dict[str, str]]]:
    """Runs ``dbt`` in its own environment: the status of each node in its run log; of ``docs`` nodes by name."""
    python = ROOT / ".venv-dbt" / "bin" / "python"
    assert python.exists(), "the environment of dbt is missing: fix=make venv-dbt"
    with subprocess.Popen(
        [str(python), "-c", DBT],
        env={**os.environ, "FLUVIAL_PORT": str(server.port)},
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        commands, output = process.stdin, process.stdout

        def run(*words: str) -> dict[str, str]:
            said: list[str] = []
            print(json.dumps([*words, "--profiles-dir", str(project)]), file=commands, flush=True)
            while not said or not said[-1].startswith("ended "):
                said.append(output.readline())
                assert said[-1], "".join(said)[-4000:]
            assert said[-1] == "ended True\n", "".join(said)[-4000:]
            if words[0] == "docs":
                found = json.loads((project / "target" / "catalog.json").read_text(encoding="utf-8"))
                assert not found["errors"]
                return {name: ",".join(each["columns"]) for name, each in (found["nodes"] | found["sources"]).items()}
            log = json.loads((project / "target" / "run_results.json").read_text(encoding="utf-8"))
            return {each["unique_id"]: each["status"] for each in log["results"]}

        yield run
        commands.close()


REFLECT = "reflect('java.lang.System', 'getProperty', 'user.dir')"
ALLOWED = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED)",
    "INSERT INTO t VALUES (1), (2)",
    "SET spark.sql.shuffle.partitions=2",
    "RESET spark.sql.shuffle.partitions",
    "SET spark.sql.runSQLOnFiles",
    "SET TIME ZONE 'UTC'",
    "SET pipeline.name=bi",
    "CREATE TEMPORARY VIEW seen AS SELECT id + 1 AS id FROM t WHERE id = 2",
    "CREATE TEMPORARY FUNCTION next(a INT) RETURNS INT RETURN a + 1",
    "SELECT transform(array(next(1)), x -> x + 1), 'TRANSFORM USING reflect(' FROM t",
    "MERGE INTO t USING seen ON t.id = seen.id WHEN NOT MATCHED THEN INSERT *",
    "CACHE TABLE kept AS SELECT * FROM t",
    "UNCACHE TABLE kept",
    "EXECUTE IMMEDIATE 'SELECT count(*) FROM t'",
    "CALL sys.create_tag('fenced.t', 'eod')",
    "SHOW FUNCTIONS",
    "SHOW CREATE TABLE t",
    "DESCRIBE QUERY SELECT 1",
    "EXPLAIN SELECT * FROM t",
    "ANALYZE TABLE t COMPUTE STATISTICS",
)
REFUSED = (
    "SELECT * FROM text.`{secret}`",
    "SELECT * FROM IDENTIFIER('text.`{secret}`')",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM binaryFile.`{secret}`)",
    "SELECT TRANSFORM(1) USING 'id' AS (x STRING)",
    "FROM t MAP id USING 'cat' AS x",
    f"SELECT {REFLECT}",
    "SELECT java_method('java.lang.System', 'getProperty', 'user.dir') FROM t",
    "SELECT try_reflect('java.lang.System', 'getProperty', 'user.dir')",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'getProperty', 'user.dir')",
    f"SELECT id FROM t WHERE id IN (SELECT length({REFLECT}))",
    f"INSERT INTO t SELECT length({REFLECT})",
    f"CREATE TABLE made AS SELECT {REFLECT} AS a",
    f"CREATE TEMPORARY VIEW called AS SELECT {REFLECT} AS a",
    f"CREATE TEMPORARY FUNCTION called() RETURNS STRING RETURN {REFLECT}",
    "EXECUTE IMMEDIATE \"SELECT java_method('java.lang.System', 'getProperty', 'user.dir')\"",
    f"BEGIN SELECT {REFLECT}; END",
    "ADD JAR '{secret}'",
    "ADD FILE '{secret}'",
    "LIST JARS",
    "INSERT OVERWRITE DIRECTORY '{out}' USING text SELECT 'a' AS a",
    "INSERT OVERWRITE LOCAL DIRECTORY '{out}' USING text SELECT 'a' AS a",
    "CREATE TEMPORARY VIEW read USING text OPTIONS (path '{secret}')",
    "CREATE TEMPORARY FUNCTION loaded AS 'a.B' USING JAR '{secret}'",
    "CREATE TABLE spark_catalog.default.there (a STRING) USING text LOCATION '{out}'",
    "CREATE TABLE spark_catalog.default.there USING text LOCATION '{out}' AS SELECT 'a' AS a",
    "CREATE DATABASE spark_catalog.there LOCATION '{out}'",
    "LOAD DATA LOCAL INPATH '{secret}' INTO TABLE t",
    "LOAD DATA INPATH '{secret}' OVERWRITE INTO TABLE t",
    "LOAD DATA LOCAL INPATH '{secret}' INTO TABLE spark_catalog.default.there",
    "LOAD DATA INPATH 'file:{secret}' INTO TABLE t PARTITION (id = 1)",
    "SET spark.sql.runSQLOnFiles=true",
    "SET spark.sql.catalog.other=a.B",
    "SET spark.hadoop.fs.s3a.endpoint=http://127.0.0.1:9",
    "SET fs.s3a.endpoint=http://127.0.0.1:9",
    "SET spark.sql.redaction.options.regex=nothing",
    "SET spark.sql.variable.substitute=true",
)


class TestServer:
    pytestmark = ONE_SERVER

    def test_a_jdbc_client_writes_merges_and_reads_and_gets_sparks_errors(self, server: Server) -> None:
        """Issue 19, 2: names relative to the URL's database, a temporary view, an unknown table."""
        server.catalog.create_database("bi")
        found = through_jdbc(
            server,
            "bi",
            "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING, d DECIMAL(5,2)) WITH ('bucket' = '1')",
            "INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', 2.5)",
            "CREATE TEMPORARY VIEW news AS SELECT * FROM VALUES (2L, 'z', 9.25), (3L, 'c', 3.5) AS n(id, v, d)",
            "MERGE INTO t USING news ON t.id = news.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "SELECT * FROM t VERSION AS OF 1 WHERE id = 2",
            "SELECT id, v, d FROM t ORDER BY id",
            "SELECT * FROM t_that_is_not_there",
        )
        assert "2,b,2.50" in found
        assert [line for line in found if line.endswith(",1.50")] == ["1,a,1.50"]
        assert found[found.index("1,a,1.50") :][:3] == ["1,a,1.50", "2,z,9.25", "3,c,3.50"]
        assert any("TABLE_OR_VIEW_NOT_FOUND" in line for line in found)

    @pytest.mark.long
    def test_dbt_builds_an_incremental_model_by_merge_and_a_snapshot(
        self, server: Server, dbt: Callable[..., dict[str, str]]
    ) -> None:
        """Issue 19, 2: a first run, then one after an order was paid and another one came."""
        orders = server.catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
        rows = {"customer": ["ada", "bob"], "amount": [10, 20], "state": ["new", "new"]}
        orders.write({"id": [1, 2], **rows})
        expected = {"model.shop.customers": "success", "snapshot.shop.order_states": "success"}
        assert dbt("build") == expected
        customers = server.catalog.table("shop.customers")
        first = customers.latest_snapshot()
        assert first is not None

        orders.write({"id": [2, 3], "customer": ["bob", "ada"], "amount": [20, 5], "state": ["paid", "new"]})
        assert dbt("build", "--vars", "{after: 2}") == expected
        found = customers.read().to_arrow().sort_by("customer").to_pylist()
        assert found == [{"customer": "ada", "amount": 15, "orders": 2}, {"customer": "bob", "amount": 20, "orders": 1}]
        merged = customers.diff(first.id).to_arrow().to_pylist()
        assert [(row["_row_kind"], row["customer"]) for row in merged] == [("-U", "ada"), ("+U", "ada")]

        states = server.catalog.table("shop.order_states").read().to_arrow()
        states = states.sort_by([("id", "ascending"), ("dbt_valid_from", "ascending")]).to_pylist()
        assert [(row["id"], row["state"]) for row in states] == [(1, "new"), (2, "new"), (2, "paid"), (3, "new")]
        assert [row["dbt_valid_to"] is None for row in states] == [True, False, True, True]
        assert states[1]["dbt_valid_to"] == states[2]["dbt_valid_from"]

        assert dbt("docs", "generate") == {
            "source.shop.shop.orders": "id,customer,amount,state",
            "model.shop.customers": "customer,amount,orders",
            "snapshot.shop.order_states": "id,state,dbt_scd_id,dbt_updated_at,dbt_valid_from,dbt_valid_to",
        }

    def test_a_jdbc_client_lists_what_there_is_as_of_spark_s_own_tables(
        self, trusting_server: Server, spark: SparkSession
    ) -> None:
        """Schemas, tables, columns of each type, keys: DBeaver's tree. The same columns in Parquet say the same."""
        columns = (
            "a BOOLEAN, b TINYINT, c SMALLINT, d INT COMMENT 'of d', e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10,2), "
            "i DECIMAL(38,18), j STRING, k VARCHAR(7), l CHAR(3), m BINARY, n DATE, o TIMESTAMP, p TIMESTAMP_NTZ, "
            "q ARRAY<INT>, "
            "r MAP<STRING, ARRAY<DOUBLE>>, s STRUCT<x: INT, `y z`: STRUCT<u: BIGINT>>, t STRUCT<x: STRING>"
        )
        server = trusting_server
        server.catalog.create_database("Listed_Here")
        connection = connected(spark, server, "listed_here")
        statement = connection.createStatement()
        assert jdbc_values(statement.executeQuery("SELECT TRANSFORM(1) USING 'echo run' AS (x STRING)"), "X") == ["run"]
        for text in (
            f"CREATE TABLE all_types ({columns}) COMMENT 'of all'",
            "CREATE TABLE keyed (k INT, d STRING, PRIMARY KEY (d, k) NOT ENFORCED) WITH ('bucket' = '1')",
            "CREATE TEMPORARY VIEW seen AS SELECT 1 AS one",
            "CREATE DATABASE spark_catalog.listed_there",
            f"CREATE TABLE spark_catalog.listed_there.all_types ({columns}) USING parquet COMMENT 'of all'",
        ):
            statement.execute(text)
        shown = {
            text: jdbc_rows(statement.executeQuery(text))
            for text in ("SHOW SCHEMAS", "SHOW TABLES IN listed_here", "DESCRIBE listed_here.keyed")
        }  # what PyHive's dialects of SQLAlchemy ask
        assert "Listed_Here" in {row["NAMESPACE"] for row in shown["SHOW SCHEMAS"]}
        names = {row["TABLENAME"] for row in shown["SHOW TABLES IN listed_here"]}
        assert names == {"all_types", "keyed"}
        described = [(row["COL_NAME"], row["DATA_TYPE"]) for row in shown["DESCRIBE listed_here.keyed"]]
        assert described == [("k", "int"), ("d", "string")]
        facts = connection.getMetaData()
        assert {"Listed_Here", "sys"} <= {*jdbc_values(facts.getSchemas(), "TABLE_SCHEM")}
        assert jdbc_values(facts.getSchemas(None, "LISTED%"), "TABLE_SCHEM") == ["Listed_Here"]
        assert jdbc_values(facts.getTables(None, "Listed_Here", "%", None), "TABLE_NAME") == ["all_types", "keyed"]
        assert jdbc_values(facts.getTables(None, None, "see_", None), "TABLE_NAME", "TABLE_TYPE") == [("seen", "VIEW")]
        assert jdbc_values(facts.getColumns(None, None, "seen", None), "COLUMN_NAME") == ["one"]
        assert jdbc_values(facts.getTables(None, "%", "kEyed", as_texts(spark, "VIEW")), "TABLE_NAME") == []
        assert jdbc_values(facts.getPrimaryKeys(None, "Listed_Here", "keyed"), "COLUMN_NAME", "KEQ_SEQ") == [
            ("d", "1"), ("k", "2"),
        ]  # fmt: skip
        nullable = jdbc_values(facts.getColumns(None, "Listed_Here", "keyed", "%"), "COLUMN_NAME", "IS_NULLABLE")
        assert nullable == [("k", "NO"), ("d", "NO")]
        assert "database_name" in jdbc_values(facts.getColumns(None, "sys", "%", "%"), "COLUMN_NAME")

        def said(database: str) -> list[dict[str, str | None]]:
            found = jdbc_rows(facts.getColumns(None, database, "all_types", "%"))
            found += jdbc_rows(facts.getColumns(None, database, "all_types", "_"))
            found += jdbc_rows(facts.getTables(None, database, "all%", None))
            return [{**row, "TABLE_SCHEM": ""} for row in found]

        ours = said("Listed_Here")
        statement.execute("USE spark_catalog.listed_there")
        theirs = said("listed_there")
        assert len(ours) == len(theirs) == 20 * 2 + 1
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.items() ^ other.items() == set()
        connection.close()

    @pytest.mark.long
    def test_sqlalchemy_inspects_tables_as_those_of_spark(self, trusting_server: Server) -> None:
        """By PyHive's dialect, which says Spark's namespace for the name of each table, and knows no keys."""
        server = trusting_server
        server.catalog.create_database("Inspected")
        columns = "id BIGINT, k VARCHAR(7), d DECIMAL(10,2), t TIMESTAMP, a ARRAY<INT>, s STRUCT<x: INT>, p STRING"
        there = "spark_catalog.inspected_there"
        made = [
            f"CREATE TABLE Inspected.orders ({columns}) PARTITIONED BY (p)",
            "INSERT INTO Inspected.orders VALUES (1, 'a', 2.5, TIMESTAMP '2024-01-31 12:30:00', array(1), NULL, 'x')",
            f"CREATE DATABASE {there}",
            f"CREATE TABLE {there}.orders ({columns}) USING parquet PARTITIONED BY (p)",
            f"INSERT INTO {there}.orders SELECT * FROM Inspected.orders",
        ]
        python, packages = ROOT / ".venv-dbt" / "bin" / "python", Path(sqlalchemy.__file__).parents[1]
        words = [str(server.port), str(packages), *made]
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", INSPECT, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        schemas, ours, theirs = json.loads(done.stdout)
        assert "Inspected" in schemas
        assert ours == theirs
        names = ["id", "k", "d", "t", "a", "s", "p"]
        assert [name for name, _ in ours["columns"]] == ours["reflected"] == names
        assert ours["indexes"] == [["p"]]
        assert (ours["has_table"], ours["tables"], ours["rows"]) == (True, 1, [[1, "a", "2.50", "x"]])

    def test_a_client_reaches_tables_alone(self, server: Server, spark: SparkSession, tmp_path: Path) -> None:
        """No file, program, class or setting of the server's user, however the statement is put; tables as ever."""
        secret, out = tmp_path / "secret.txt", tmp_path / "out"
        secret.write_text("secret", encoding="utf-8")
        server.catalog.create_database("fenced")
        connection = connected(spark, server, "fenced")
        for text in ALLOWED:
            connection.createStatement().execute(text)
        seen = jdbc_values(connection.createStatement().executeQuery("SELECT id FROM t ORDER BY id"), "ID")
        assert seen == ["1", "2", "3"]
        reached = {}
        for text in REFUSED:
            asked = text.format(secret=secret, out=out)
            try:
                connection.createStatement().execute(asked)
            except Py4JJavaError as error:
                if (
                    re.search(
                        "reach tables alone|TABLE_OR_VIEW_NOT_FOUND|PARSE_SYNTAX|NOT_SUPPORTED_COMMAND_FOR_V2",
                        str(error),
                    )
                    is None
                ):
                    reached[asked] = str(error)
            else:
                reached[asked] = "done"
        assert reached == {}
        assert not out.exists()
        variables = connection.createStatement().executeQuery("SELECT '${env:HOME}${system:user.dir}' AS v")
        assert jdbc_values(variables, "V") == ["${env:HOME}${system:user.dir}"]
        connection.close()

    def test_settings_in_the_address_of_a_connection_open_no_files(
        self, server: Server, spark: SparkSession, tmp_path: Path
    ) -> None:
        secret = tmp_path / "secret.txt"
        secret.write_text("secret", encoding="utf-8")
        given = "default?spark.sql.runSQLOnFiles=true;fs.s3a.endpoint=http://127.0.0.1:9"
        with pytest.raises(Py4JJavaError, match=r"reach tables alone|TABLE_OR_VIEW_NOT_FOUND"):
            connected(spark, server, given).createStatement().execute(f"SELECT * FROM text.`{secret}`")

    def test_sigterm_ends_it_cleanly(self, server: Server) -> None:
        """Issue 19, 2. It is the last test of the server."""
        assert processes.is_listening(server.port)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert not processes.is_listening(server.port)
        assert server.output.read_text().splitlines()[-1] == "stopped"


def connected(spark: SparkSession, server: Server, rest: str) -> Any:
    """A connection of Hive's JDBC driver; ``rest`` of its address: a database, and settings."""
    jvm: Any = spark.sparkContext._jvm
    driver, properties = jvm.org.apache.hive.jdbc.HiveDriver(), jvm.java.util.Properties()
    return driver.connect(f"jdbc:hive2://127.0.0.1:{server.port}/{rest}", properties)


def jdbc_rows(found: Any) -> list[dict[str, str | None]]:
    """The rows of a result of JDBC, as texts by the names of its columns."""
    about = found.getMetaData()
    names = [str(about.getColumnLabel(number)).upper() for number in range(1, about.getColumnCount() + 1)]
    rows = []
    while found.next():
        rows.append({name: found.getString(number) for number, name in enumerate(names, 1)})
    return rows


def jdbc_values(found: Any, *names: str) -> list[Any]:
    rows = [tuple(row[name] for name in names) for row in jdbc_rows(found)]
    return [row[0] for row in rows] if len(names) == 1 else rows


def as_texts(spark: SparkSession, *texts: str) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
    for number, text in enumerate(texts):
        array[number] = text
    return array


@pytest.mark.parametrize(
    ("name", "pattern", "is_meant"),
    [
        ("orders", None, True),
        ("orders", "", True),
        ("orders", "%", True),
        ("orders", "ORD%", True),
        ("orders", "o_ders", True),
        ("orders", "rders", False),
        ("a_b", r"a\_b", True),
        ("axb", r"a\_b", False),
        ("a.b", "a.b", True),
        ("axb", "a.b", False),
        ("", "orders", False),
    ],
)
def test_patterns_of_jdbc(name: str, pattern: str | None, is_meant: bool) -> None:
    assert is_like(name, pattern) is is_meant


def test_a_port_in_use_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 19, 2: the option, the port, and what to do."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert run_command(["serve", "--warehouse", str(tmp_path), "--port", str(port)]) == 2
    said = f"error: the port is in use: port={port} host=127.0.0.1 fix='--port 0 for one that is free'\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "203.0.113.1"], "no server can listen there: host=203.0.113.1 port=0"),
        (["--conf", "shuffle"], "a setting of Spark is written key=value: --conf=shuffle"),
        (["--conf", "my.secret=x"], "a setting of Spark is written key=value: --conf=my.secret fix"),
    ],
)
def test_mistakes_are_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """The option, its value and a fix; of a setting only its name."""
    assert run_command(["serve", "--warehouse", str(tmp_path), "--port", "0", *arguments]) == 2
    assert said in capsys.readouterr().err
