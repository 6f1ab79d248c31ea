"""``spark.sql.storeAssignmentPolicy``: what it allows is what Spark allows, and every door asks it."""

from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine import Catalog
from engine.dialect.dml.assignment import POLICY_KEY, StoreAssignment
from engine.spark_internals.session import jvm_of, jvm_session
from engine.types.column_names import CaseRule

PLAIN = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(5,0)",
    "decimal(3,0)", "decimal(19,0)", "decimal(38,18)", "string", "binary", "date", "timestamp", "timestamp_ntz",
    "variant", "interval day", "interval year",
)  # fmt: skip
NESTED = ("array<{}>", "map<string,{}>", "map<{},int>", "struct<a:{}>", "array<struct<a:int,b:{}>>")
STRUCTS = (
    "struct<a:int,b:int>",
    "struct<b:int,a:int>",
    "struct<A:int,b:bigint>",
    "struct<a:int,x:int>",
    "struct<a:int>",
)
COLUMNS = "(id INT PRIMARY KEY NOT ENFORCED, c {}) WITH ('bucket' = '1')"
DOORS: dict[str, Callable[[SparkSession, str, str], object]] = {
    "insert": lambda spark, table, value: spark.sql(f"INSERT INTO {table} SELECT 1, {value}"),
    "insert a column": lambda spark, table, value: spark.sql(f"INSERT INTO {table} (c, id) SELECT {value}, 1"),
    "overwrite": lambda spark, table, value: spark.sql(f"INSERT OVERWRITE {table} SELECT 1, {value}"),
    "replace": lambda spark, table, value: spark.sql(f"INSERT INTO {table} REPLACE WHERE id = 1 SELECT 1, {value}"),
    "update": lambda spark, table, value: spark.sql(f"UPDATE {table} SET c = {value}"),
    "merge": lambda spark, table, value: spark.sql(
        f"MERGE INTO {table} t USING (SELECT 1 AS id, {value} AS c) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "writeTo": lambda spark, table, value: _row(spark, value).writeTo(table).append(),
    "insertInto": lambda spark, table, value: _row(spark, value).write.insertInto(table),
    "saveAsTable": lambda spark, table, value: _row(spark, value).write.mode("append").saveAsTable(table),
    "mergeInto": lambda spark, table, value: (
        _row(spark, value)
        .alias("s")
        .mergeInto(table, F.expr(f"s.id = {table}.id"))
        .whenMatched()
        .updateAll()
        .whenNotMatched()
        .insertAll()
        .merge()
    ),
}


def _row(spark: SparkSession, value: str) -> object:
    return spark.sql(f"SELECT 1 AS id, {value} AS c")


@pytest.fixture
def policy(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """One that the session has."""
    spark.conf.set(POLICY_KEY, request.param)
    yield request.param
    spark.conf.unset(POLICY_KEY)


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("name", ["ANSI", "STRICT"])
def test_the_rules_are_sparks_for_all_types(spark: SparkSession, name: str, by_name: bool) -> None:
    """All pairs of plain types, and of nested ones around each pair, by the function that Spark itself asks."""
    _, jvm = jvm_of(spark)
    may = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.canWrite
    policies = getattr(getattr(jvm, "org.apache.spark.sql.internal.SQLConf$StoreAssignmentPolicy$"), "MODULE$")
    same_name = jvm_session(spark).sessionState().conf().resolver()
    nothing = getattr(getattr(jvm, "scala.Predef$"), "MODULE$")
    shapes = [(one, other) for one in (*PLAIN, "void") for other in PLAIN]
    shapes += [
        (form.format(one), form.format(other)) for form in NESTED for one in PLAIN for other in ("int", "string")
    ]
    if not by_name:  # Spark has put the fields in order before it asks
        shapes += [(one, other) for one in STRUCTS for other in STRUCTS]
    of_jvm, types = jvm.org.apache.spark.sql.types.DataType.fromDDL, {*sum(shapes, ())}
    inside = {text: of_jvm(text) for text in types}
    made = {text: T._parse_datatype_string(text) for text in types}

    def writes(one: str, other: str) -> bool:
        try:
            of = getattr(policies, name)()
            conforms = getattr(nothing, "$conforms")()
            return bool(may("t", inside[one], inside[other], by_name, same_name, "c", of, conforms))
        except (PySparkException, Py4JJavaError):
            return False

    rule = StoreAssignment(CaseRule(), name)
    assert [
        pair for pair in shapes if writes(*pair) != rule.admits(made[pair[0]], made[pair[1]], by_name=by_name)
    ] == []


@pytest.mark.sweep
@pytest.mark.parametrize("policy", ["ANSI", "STRICT", "LEGACY"], indirect=True)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_asks_the_policy(spark: SparkSession, shop: Catalog, policy: str, door: str) -> None:
    """A number that narrows, one that widens, and one that does not fit; a refused one changes nothing.

    LEGACY takes values of the column's type only, as Spark says of all catalogs but its own.
    """
    table = f"fluvial.shop.policy_{policy}_{door.replace(' ', '_')}".lower()
    spark.sql(f"CREATE TABLE {table} {COLUMNS.format('INT')}")
    spark.sql(f"INSERT INTO {table} VALUES (1, 0)")
    if policy == "LEGACY":
        DOORS[door](spark, table, "5")
        for value in ("6S", "6L"):
            with pytest.raises(PySparkException, match="LEGACY"):
                DOORS[door](spark, table, value)
        assert [tuple(row) for row in spark.table(table).collect()] == [(1, 5)]
        return
    DOORS[door](spark, table, "5S")
    assert [tuple(row) for row in spark.table(table).collect()] == [(1, 5)]
    if policy == "ANSI":
        DOORS[door](spark, table, "7L")
    for value in ("3000000000L", "'8'", *(["9L"] if policy == "STRICT" else [])):
        with pytest.raises(Exception, match=r"column=c|CANNOT_SAFELY_CAST|OVERFLOW"):
            DOORS[door](spark, table, value)
    assert [tuple(row) for row in spark.table(table).collect()] == [(1, 7 if policy == "ANSI" else 5)]


@pytest.mark.long
@pytest.mark.parametrize("policy", ["ANSI", "STRICT"], indirect=True)
def test_rows_are_those_of_a_table_of_parquet(spark: SparkSession, shop: Catalog, policy: str) -> None:
    """Inside of columns too, by place and by name."""
    columns = "k INT, s STRUCT<a: INT, b: STRING>, l ARRAY<INT>, m MAP<STRING, INT>, n ARRAY<STRUCT<a: INT, b: INT>>"
    spark.sql(f"DROP TABLE IF EXISTS policy_parquet_{policy}")
    spark.sql(f"CREATE TABLE policy_parquet_{policy} ({columns}) USING parquet")
    spark.sql(f"CREATE TABLE fluvial.shop.policy_{policy} ({columns})")
    pair = (f"policy_parquet_{policy}", f"fluvial.shop.policy_{policy}")
    rows = [
        "SELECT {}, named_struct('b', 2, 'a', 1), NULL, NULL, NULL",
        "SELECT {}, NULL, array(1L, NULL), map('a', 1L), array(named_struct('b', 2L, 'a', 1), NULL)",
        "SELECT {}, NULL, array(1Y, NULL), map('a', 1S), array(named_struct('b', 2Y, 'a', 1), NULL)",
        "SELECT {}, NULL, array(3000000000L), NULL, NULL",
        "SELECT {}, NULL, array('1'), NULL, NULL",
        "SELECT {}, named_struct('a', 1), NULL, NULL, NULL",
        "BY NAME SELECT {} AS k, named_struct('b', 'x', 'a', 1) AS s",
        "BY NAME SELECT {} AS k, named_struct('B', 2, 'A', 1Y) AS s, array(named_struct('b', 2, 'a', 1)) AS n",
        "BY NAME SELECT {} AS k, named_struct('a', 1) AS s",
        "BY NAME SELECT {} AS k, named_struct('a', 1, 'x', 'y') AS s",
        "BY NAME SELECT {} AS k, named_struct('a', 1, 'b', 'y', 'x', 1) AS s",
        "(k, s) SELECT {}, named_struct('b', 2, 'a', 'z')",
    ]
    refused: dict[str, list[int]] = {table: [] for table in pair}
    for table in pair:
        for number, text in enumerate(rows):
            try:
                spark.sql(f"INSERT INTO {table} {text.format(number)}")
            except PySparkException:
                refused[table].append(number)
    first, second = [sorted(map(str, spark.table(table).collect())) for table in pair]
    assert (first, refused[pair[0]]) == (second, refused[pair[1]])
    assert len(first) > 2
    assert refused[pair[0]]
    spark.sql(f"DROP TABLE {pair[0]}")


def test_fields_are_assigned_by_name(spark: SparkSession, shop: Catalog) -> None:
    """In UPDATE and MERGE, as ``mergeInto`` does: they came into the wrong field."""
    table = "fluvial.shop.fields_by_name"
    spark.sql(f"CREATE TABLE {table} {COLUMNS.format('STRUCT<a: INT, b: INT>')}")
    spark.sql(f"INSERT INTO {table} VALUES (1, NULL)")
    for door in ("update", "merge", "mergeInto"):
        spark.sql(f"UPDATE {table} SET c = NULL")
        DOORS[door](spark, table, "named_struct('B', 2, 'a', 1L)")
        assert [tuple(row.c) for row in spark.table(table).collect()] == [(1, 2)], door
        with pytest.raises(Exception, match=r"column=c|CANNOT_FIND_DATA"):
            DOORS[door](spark, table, "named_struct('a', 2, 'x', 1)")
