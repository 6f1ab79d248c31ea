"""A session of SQL over an empty warehouse that must not need Spark; and tables with rows, beside an oracle.

The oracle is the same rows as views of another session of the same Spark.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine.catalog import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession

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


Values = list[tuple[Any, ...]]

T = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("v", pa.int32()),
        ("price", pa.float64()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
    ]
)
U = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("label", pa.string())])
P = pa.schema(
    [pa.field("day", pa.date32(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())]
)


@dataclass
class Warehouse:
    """Tables, and a session to ask about them."""

    context: SqlContext
    plain: SparkSession  # with views of the same names
    made: dict[str, pa.Table] = field(default_factory=dict)

    def statement(self, text: str) -> Statement:
        (statement,) = parse_statements(text)
        return statement

    def frame(self, text: str) -> DataFrame:
        return run_query(self.context, self.statement(text))

    def rows(self, text: str) -> Values:
        return collected(self.frame(text))

    def expected(self, text: str) -> Values:
        return collected(self.plain.sql(text))


def collected(frame: DataFrame) -> Values:
    """Rows in an order of their own, with the names of the columns first."""
    rows = [tuple(row) for row in frame.collect()]
    return [tuple(frame.columns), *sorted(rows, key=repr)]


def t_rows(numbers: range, version: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": number,
                "name": None if number % 7 == 3 else f"n{number % 5}",
                "v": None if number % 5 == 4 else number * version % 11,
                "price": number / 4 if version == 1 else -number / 8,
                "s": None if number % 6 == 5 else {"a": number, "b": f"b{number % 3}"},
                "tags": [f"x{each}" for each in range(number % 3)],
                "at": 1_700_000_000_000_000 + number * 3_600_000_000,
            }
            for number in numbers
        ],
        schema=T,
    )


@pytest.fixture(scope="session")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """``t``: two overlapping runs; ``u``: no key; ``db.p``: partitioned, compacted; all of it read only."""
    root: Path = tmp_path_factory.mktemp("sql")
    catalog = Catalog(str(root))
    context = SqlContext(catalog=catalog, open_spark=lambda: spark)
    found = Warehouse(context, spark.newSession())
    t = catalog.create_table("default.t", T, primary_key=["id"], options={"bucket": "1"})
    t.write(t_rows(range(40), 1))
    t.write(t_rows(range(10, 25), 3))
    u = catalog.create_table("default.u", U, options={"bucket": "-1"})
    for start in (0, 10, 20):
        u.write(
            pa.table(
                {
                    "k": list(range(start, start + 10)),
                    "v": [None if each % 4 == 1 else each % 6 for each in range(start, start + 10)],
                    "label": [f"l{each % 3}" for each in range(start, start + 10)],
                },
                schema=U,
            )
        )
    p = catalog.create_table("db.p", P, primary_key=["day", "id"], partition_by=["day"], options={"bucket": "1"})
    for day in range(4):
        p.write(
            pa.table(
                {"day": [19_800 + day] * 6, "id": list(range(6)), "n": [day * 10 + each for each in range(6)]}, schema=P
            )
        )
    p.compact(full=True)
    for name, table in (("t", t), ("u", u), ("p", p)):
        rows = table.read().to_arrow()
        found.made[name] = rows
        found.plain.createDataFrame(rows).createOrReplaceTempView(name)
    return found
