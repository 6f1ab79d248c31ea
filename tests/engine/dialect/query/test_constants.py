"""A constant in a condition means what Spark means: the oracle is Spark on a view of the same rows."""

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.query.explain import run_explain
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.table import Table
from filestore.format import parquet
from tests.engine.dialect.conftest import Warehouse

pytestmark = pytest.mark.spark

SINGLES: Final = [0.1, 1.1, 3.0, 0.5, -0.0, 16777216.0, math.nan, math.inf, -math.inf, 1e-40, 9.99, None]
DOUBLES: Final = [0.1, 1.1, float(np.float32(1.1)), 9.99, 0.5, -0.0, 2.0**53, math.nan, math.inf, -1e300, 5e-324, None]
COLUMNS: Final = {
    "n8": (pa.int8(), [0, 1, -1, 127, -128, 3, 9, 10, None, 2, 5, 7]),
    "n32": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31), 16777216, 16777217, 9, None, 10, 3, 5]),
    "n64": (pa.int64(), [0, 1, 2**53, 2**53 + 1, 2**53 - 1, 2**63 - 1, -(2**63), 16777217, None, 9, 10, 3]),
    "price": (
        pa.decimal128(10, 2),
        [Decimal(each) if each else None for each in
         ("9.99", "0.10", "5.00", "0.50", "-9.99", "99999999.99", "1.10", "0.00", "", "0.11", "3.00", "10.00")],
    ),
    "wide": (
        pa.decimal128(38, 18),
        [Decimal(each) if each else None for each in
         ("9.99", "0.0000001", "1.1", "0.100000000000000001", "0.1", "0", "-1.1", "3", "", "12345678901234567890",
          "12345678901234567890.000000000000000001", "0.5")],
    ),
    "whole": (
        pa.decimal128(20, 0),
        [Decimal(each) if each else None for each in
         ("9", "10", "9007199254740993", "9007199254740992", "0", "-1", "18446744073709551616", "3", "", "1", "2",
          "5")],
    ),
    "f": (pa.float32(), SINGLES),
    "d": (pa.float64(), DOUBLES),
}  # fmt: skip
CONSTANTS: Final = (
    "9.99", "9.99D", "9.99F", "9.99BD", "CAST(9.99 AS DOUBLE)", "CAST(9.99 AS FLOAT)", "CAST('9.99' AS DOUBLE)",
    "1.1", "1.1D", "1.1F", "CAST('1.1' AS FLOAT)", "float('1.1')", "CAST(1.1F AS DOUBLE)", "-1.1D", "-1.1F",
    "0.1", "0.1D", "0.1F", "1e-1", "1E-1BD", "1E-7BD", "1E-7",
    "CAST(CAST('0.0000001' AS DECIMAL(38,18)) AS DECIMAL(38,18))",
    "0.5", "0.5F", "0", "0.0D", "-0.0D", "0.0F", "3", "3L", "3Y", "3F", "3.5F", "10", "9", "1", "127", "-128", "128",
    "16777216", "16777217", "16777217F", "16777217.0D", "16777217L",
    "9007199254740993", "9007199254740993D", "9007199254740992D", "9007199254740993F", "9223372036854775807",
    "9223372036854775807D", "9223372036854775807F", "18446744073709551616D", "12345678901234567890D", "-9.99D",
    "double('NaN')", "float('NaN')", "double('Infinity')", "float('-Infinity')", "1e300", "5e-324", "1e-40F", "1e-40D",
    "CAST(2.5 AS INT)", "CAST(-2.5 AS BIGINT)", "CAST(9.995 AS DECIMAL(10,2))", "CAST(9.99 AS DECIMAL)",
    "CAST(9.995D AS DECIMAL(4,2))",
    "CAST(9.99F AS DECIMAL(10,2))", "'9.99'", "'9'", "NULL", "CAST(NULL AS DOUBLE)",
)  # fmt: skip
OPS: Final = ("=", "<", "<=", ">", ">=", "<>", "<=>")
LISTS: Final = (
    "9.99D, 5", "1.1F, 2.5", "16777217, 1.5D", "9007199254740992, 1.0D", "9007199254740993D, 3", "1.1F, 9",
    "9.99, 0.1D, NULL", "double('NaN'), 1", "0.1F, 0.1D", "9.99F, 3.00", "'9.99', 3.0", "16777217, 3",
)  # fmt: skip
KINDS: Final = {
    "unmerged": {},
    "merged": {},
    "orc": {"file.format": "orc"},
    "avro": {"file.format": "avro"},
    "vectors": {"deletion-vectors.enabled": "true"},
}


def explained(context: SqlContext, text: str) -> tuple[str, list[dict[str, Any]]]:
    """The plan, and what is read of each table."""
    (statement,) = parse_statements(text)
    (row,) = run_explain(context, statement).to_pylist()
    return row["plan"], row["tables"]


def conditions() -> Sequence[str]:
    """Each column by each operator with each constant, lists, ranges and negations."""
    found = []
    for column in COLUMNS:
        # an integer beside a text is cast by Spark, which fails for a fraction
        fits = [each for each in CONSTANTS if not (column.startswith("n") and each == "'9.99'")]
        found += [f"{column} {op} {constant}" for constant in fits for op in OPS]
        found += [f"{constant} {op} {column}" for constant in fits[::5] for op in ("=", "<")]
        found += [f"NOT ({column} {op} {constant})" for constant in fits[::3] for op in ("<=", "=")]
        found += [f"{column} BETWEEN {low} AND {high}" for low, high in pairwise(fits)]
        lists = [each for each in LISTS if not (column.startswith("n") and "'" in each)]
        found += [f"{column} {word} ({values})" for values in lists for word in ("IN", "NOT IN")]
    return found


def filled_table(catalog: Catalog, kind: str) -> Table:
    """The rows of ``COLUMNS`` in a table of a kind."""
    fields = [
        pa.field("id", pa.int32(), nullable=False),
        *(pa.field(name, each) for name, (each, _) in COLUMNS.items()),
    ]
    schema = pa.schema(fields)
    table = catalog.create_table(f"db.{kind}", schema, primary_key=["id"], options={"bucket": "1", **KINDS[kind]})
    rows = samples_of(schema)
    older = rows.set_column(1, "n8", pa.array([99] * rows.num_rows, pa.int8()))
    table.write(older.slice(3, 5))
    table.write(rows)
    if kind not in ("merged", "orc"):
        table.compact(full=True)
    return table


def samples_of(schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(range(12), pa.int32()), *(pa.array(values, each) for each, values in COLUMNS.values())]
    return pa.Table.from_arrays(arrays, schema=schema)


def expected(spark: SparkSession, directory: Path, texts: Sequence[str]) -> dict[str, list[int]]:
    """The ids of which each condition is true, by Spark, which cannot skip anything: it computes each as a column."""
    schema = pa.schema([pa.field("id", pa.int32()), *(pa.field(name, each) for name, (each, _) in COLUMNS.items())])
    pq.write_table(samples_of(schema), directory / "rows.parquet")
    frame = spark.read.parquet(str(directory / "rows.parquet"))
    found: dict[str, list[int]] = {}
    for start in range(0, len(texts), 200):
        part = texts[start : start + 200]
        rows = frame.selectExpr("id", *(f"({text}) AS c{index}" for index, text in enumerate(part))).toArrow()
        ids = rows.column("id").to_numpy()
        for index, text in enumerate(part):
            found[text] = sorted(ids[rows.column(f"c{index}").fill_null(False).to_numpy()].tolist())
    return found


@pytest.mark.sweep
def test_a_constant_of_any_type_is_compared_as_spark_compares_it(spark: SparkSession, tmp_path: Path) -> None:
    """FL-181: of every type of numbers beside every type of constants, in each kind of files."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    texts = conditions()
    oracle = expected(spark, tmp_path, texts)
    for kind in KINDS:
        read = filled_table(catalog, kind).read()
        wrong = {
            text: (found, oracle[text])
            for text in (texts if kind == "unmerged" else texts[::5])
            if (found := sorted(read.to_arrow(columns=["id"], filter=text).column("id").to_pylist())) != oracle[text]
        }
        assert not wrong, (kind, len(wrong), dict(list(wrong.items())[:20]))


@pytest.mark.sweep
def test_statements_find_the_rows_that_spark_finds(warehouse: Warehouse, tmp_path: Path) -> None:
    """FL-181: SELECT, DELETE and UPDATE by both doors of a session; files written before have bounds without NaN."""
    spark = warehouse.context.spark
    texts = random.Random(5).sample(conditions(), 60)
    texts += ["d > 1", "NOT (d <= 1)", "d = double('NaN')", "f >= 1", "price = 9.99D", "f = 1.1F", "d > 1 AND f > 1"]
    oracle = expected(spark, tmp_path, texts[:-1])
    oracle["d > 1 AND f > 1"] = sorted({*oracle["d > 1"]} & {*oracle["f >= 1"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_columns_with_bounds", lambda fields: True)
        for kind in KINDS:
            filled_table(warehouse.context.catalog, kind)
    for index, text in enumerate(texts):
        kind = [*KINDS][index % len(KINDS)]
        answers = warehouse.rows(f"SELECT id FROM db.{kind} WHERE {text}")[1:]
        assert sorted(each for (each,) in answers) == oracle[text], (kind, text)


def test_spark_skips_no_nan_of_files_whose_footers_leave_it_out(warehouse: Warehouse) -> None:
    """FL-181: NaN is the greatest value, and pyarrow's footers, which older versions wrote, do not have it."""
    point = pa.struct([("x", pa.float64()), ("y", pa.int32())])
    schema = pa.schema(
        [("id", pa.int32()), ("x", pa.float64()), ("f", pa.float32()), ("p", point), ("q", pa.float64())]
    )
    rows = [
        {"id": 1, "x": 0.5, "f": 0.5, "p": {"x": 0.5, "y": 1}, "q": 1.0},
        {"id": 2, "x": math.nan, "f": math.nan, "p": {"x": math.nan, "y": 2}, "q": 2.0},
        {"id": 3, "x": 0.25, "f": 0.25, "p": None, "q": None},
    ]
    table = warehouse.context.catalog.create_table("db.older", schema)
    deleted = warehouse.context.catalog.create_table("db.gone", schema, options={"deletion-vectors.enabled": "true"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "_columns_with_bounds", lambda fields: True)
        for each in (table, deleted):
            each.write(pa.Table.from_pylist([*rows, {"id": 4}], schema=schema))
    SqlSession(warehouse.context).execute("DELETE FROM db.gone WHERE id = 4")
    for name in ("older", "gone"):
        for text in ("x > 1", "x >= 1", "NOT (x <= 1)", "x = double('NaN')", "x <=> double('NaN')", "f > 1", "p.x > 1"):
            assert warehouse.rows(f"SELECT id FROM db.{name} WHERE {text}")[1:] == [(2,)], (name, text)
        assert warehouse.rows(f"SELECT p.y, p FROM db.{name} WHERE x < 1 ORDER BY id")[1:] == [
            (1, (0.5, 1)),
            (None, None),
        ]
        assert warehouse.rows(f"SELECT count(*) FROM db.{name} WHERE q > 1.5")[1:] == [(1,)]
    _, (found,) = explained(warehouse.context, "EXPLAIN SELECT id FROM db.older WHERE x > 1")
    assert found["files_of_spark"] == 1


def test_a_float_as_a_parameter_is_compared_as_its_number(spark: SparkSession, catalog: Catalog) -> None:
    """The everyday form of a Python float: it finds, deletes and updates the rows of a DECIMAL column."""
    engine.install(spark, catalog, name="constants")
    spark.sql("CREATE DATABASE constants.shop")
    spark.sql("CREATE TABLE constants.shop.orders (id BIGINT PRIMARY KEY NOT ENFORCED, amount DECIMAL(10,2), x DOUBLE)")
    spark.sql("INSERT INTO constants.shop.orders VALUES (1, 9.99, 0.5D), (2, 0.10, double('NaN')), (3, 5.00, 0.25D)")

    def ids(condition: str, args: dict[str, Any]) -> list[int]:
        found = spark.sql(f"SELECT id FROM constants.shop.orders WHERE {condition} ORDER BY id", args=args)
        return [row.id for row in found.collect()]

    assert ids("amount = :x", {"x": 9.99}) == [1]
    assert ids("amount IN (:x, :y)", {"x": 9.99, "y": 0.1}) == [1, 2]
    assert ids("x > :x", {"x": 1}) == [2]
    assert ids("amount BETWEEN :x AND :y", {"x": 4.99, "y": 9.99}) == [1, 3]
    spark.sql("UPDATE constants.shop.orders SET x = 7 WHERE amount = :x", args={"x": 0.1})
    assert ids("x = 7", {}) == [2]
    spark.sql("DELETE FROM constants.shop.orders WHERE amount = :x", args={"x": 9.99})
    assert ids("true", {}) == [2, 3]
