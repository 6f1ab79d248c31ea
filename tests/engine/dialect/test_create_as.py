"""CREATE TABLE AS SELECT: the table's columns, and that a query that fails leaves nothing."""

from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from engine.dialect.ddl import create
from engine.dialect.grammar.statements import Statement
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from lsm.errors import FluvialError, InvalidInputError

Run = Callable[[str], list[tuple[Any, ...]]]
SCHEMA = T.StructType(
    [
        T.StructField("id", T.LongType(), nullable=False),
        T.StructField("name", T.StringType(), metadata={"comment": "n"}),
        T.StructField("at", T.TimestampType()),
        T.StructField("tags", T.ArrayType(T.IntegerType())),
    ]
)


class Frame:
    """The part of a frame that is asked for."""

    schema = SCHEMA


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Stands in for Spark: queries have ``SCHEMA``; the queries and tables that were filled."""
    found: list[tuple[str, str]] = []

    def run_query(context: SqlContext, statement: Statement) -> Frame:
        return Frame()

    def run_ctas(context: SqlContext, statement: Statement, table_name: str, *_: object) -> pa.Table:
        assert context.catalog.table_exists(table_name)
        found.append((statement.text, table_name))
        return pa.table({})

    monkeypatch.setattr(create, "run_query", run_query)
    monkeypatch.setattr(create, "run_ctas", run_ctas)
    return found


def test_columns_come_from_the_query(run: Run, filled: list[Any]) -> None:
    run("CREATE TABLE t WITH ('primary-key'='id') AS SELECT 1 AS id")
    assert run("DESCRIBE t")[:4] == [
        ("id", "BIGINT NOT NULL", None),
        ("name", "STRING", "n"),
        ("at", "TIMESTAMP_LTZ(6)", None),
        ("tags", "ARRAY<INT>", None),
    ]
    assert filled == [("SELECT 1 AS id", "shop.t")]


def test_columns_of_a_query_may_be_null_later(
    run: Run, filled: list[Any], monkeypatch: pytest.MonkeyPatch, sql_session: SqlSession
) -> None:
    """Constants are never null, at any depth; only the key says that of the table."""
    inner = T.StructType([T.StructField("a", T.IntegerType(), nullable=False)])
    fields = [("id", T.IntegerType()), ("s", T.StringType()), ("l", T.ArrayType(inner, containsNull=False))]
    constants = T.StructType([T.StructField(name, kind, nullable=False) for name, kind in fields])
    monkeypatch.setattr(Frame, "schema", constants)
    run("CREATE TABLE t AS SELECT 1")
    assert [row[1] for row in run("DESCRIBE t")] == ["INT", "STRING", "ARRAY<STRUCT<a: INT>>"]
    run("CREATE TABLE u (PRIMARY KEY (id) NOT ENFORCED) AS SELECT 1")
    assert [row[1] for row in run("DESCRIBE u")][:2] == ["INT NOT NULL", "STRING"]


def test_listed_columns_keep_their_types(run: Run, filled: list[Any]) -> None:
    run("CREATE TABLE t (id INT, PRIMARY KEY (id, name) NOT ENFORCED) PARTITIONED BY (name STRING) AS SELECT 1")
    assert [row[:2] for row in run("DESCRIBE t")[:2]] == [("id", "INT NOT NULL"), ("name", "STRING NOT NULL")]
    with pytest.raises(InvalidInputError, match="the query has no such column: column=nope"):
        run("CREATE TABLE u (nope INT) AS SELECT 1")


def test_a_query_that_fails_leaves_nothing_and_the_old_table(
    run: Run, filled: list[Any], monkeypatch: pytest.MonkeyPatch, sql_session: SqlSession
) -> None:
    run("CREATE TABLE old (a INT)")

    def run_ctas(context: SqlContext, statement: Statement, table_name: str, *_: object) -> NoReturn:
        raise FluvialError("Spark died")

    monkeypatch.setattr(create, "run_ctas", run_ctas)
    for text in ("CREATE TABLE t AS SELECT 1", "CREATE OR REPLACE TABLE old AS SELECT * FROM old"):
        with pytest.raises(FluvialError, match="Spark died"):
            run(text)
    assert run("SHOW TABLES") == [("shop", "old", False)]
    assert run("SHOW COLUMNS IN old") == [("a",)]


def test_a_replaced_table_is_filled_before_the_old_one_goes(run: Run, filled: list[Any]) -> None:
    run("CREATE TABLE t (a INT)")
    run("CREATE OR REPLACE TABLE t AS SELECT * FROM t")
    ((query, beside),) = filled
    assert (query, beside.startswith("shop.t__")) == ("SELECT * FROM t", True)
    assert run("SHOW TABLES") == [("shop", "t", False)]
    assert run("SHOW COLUMNS IN t")[0] == ("id",)
