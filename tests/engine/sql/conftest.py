"""A session of SQL over an empty warehouse that must not need Spark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.sql.context import SqlContext
from engine.sql.session import SqlSession

Rows = list[tuple[object, ...]]


def _no_spark() -> SparkSession:
    raise AssertionError("this statement needs no Spark")


@pytest.fixture
def sql_session(tmp_path: Path) -> SqlSession:
    """In the database ``shop``."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    catalog.create_database("shop")
    return SqlSession(SqlContext(catalog=catalog, open_spark=_no_spark, database="shop"))


@pytest.fixture
def run(sql_session: SqlSession) -> Callable[[str], Rows]:
    """Runs a text and gives the rows of its last statement."""

    def rows(text: str) -> Rows:
        result = sql_session.execute(text)[-1]
        assert result.table is not None
        return [tuple(row.values()) for row in result.table.to_pylist()]

    return rows
