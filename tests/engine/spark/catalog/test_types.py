"""Types and names of columns in Spark's own SQL: texts with a length, intervals, times, and the case of names."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import time
from functools import partial

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine import Catalog

Rows = list[tuple[object, ...]]


def ordered(spark: SparkSession, text: str) -> Rows:
    return sorted(tuple(row) for row in spark.sql(text).collect())


@contextmanager
def case_counts(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        yield
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE fluvial.shop.collated (s STRING COLLATE UNICODE_CI)",
        "CREATE TABLE fluvial.shop.collated (s ARRAY<STRING COLLATE UTF8_LCASE>)",
        "CREATE TABLE fluvial.shop.collated (s STRUCT<a: MAP<INT, STRING COLLATE UNICODE_CI>>)",
        "CREATE TABLE fluvial.shop.collated AS SELECT 'A' COLLATE UNICODE_CI AS s",
        "CREATE OR REPLACE TABLE fluvial.shop.collated AS SELECT 'A' COLLATE UTF8_LCASE AS s",
        "CREATE TABLE fluvial.shop.collated (s STRING) DEFAULT COLLATION UNICODE_CI",
        "CREATE TABLE fluvial.shop.collated (id BIGINT PRIMARY KEY NOT ENFORCED, s STRING COLLATE UNICODE_CI)",
        "ALTER TABLE fluvial.shop.plain ADD COLUMN s2 STRING COLLATE UNICODE_CI",
        "ALTER TABLE fluvial.shop.plain ALTER COLUMN s TYPE STRING COLLATE UNICODE_CI",
    ],
)
def test_a_collation_that_no_table_keeps_is_refused_by_its_name(spark: SparkSession, shop: Catalog, text: str) -> None:
    """Issue 38, finding 8: it was dropped, so ``s = 'a'`` did not find 'A'."""
    spark.sql("CREATE TABLE IF NOT EXISTS fluvial.shop.plain (s STRING)")
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?i)collat"):
        spark.sql(text)
    assert not shop.table_exists("shop.collated")
    spark.sql("DROP TABLE fluvial.shop.plain")


def test_a_frame_with_a_collation_makes_no_table(spark: SparkSession, shop: Catalog) -> None:
    frame = spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS s")
    for write in (
        frame.writeTo("fluvial.shop.collated").create,
        partial(frame.write.saveAsTable, "fluvial.shop.other"),
    ):
        with pytest.raises(PySparkException, match=r"collation=UTF8_LCASE fix='declare STRING"):
            write()
    assert not {"collated", "other"} & {*shop.list_tables("shop")}


def test_texts_with_a_collation_are_written_to_and_compared_in_queries(spark: SparkSession, shop: Catalog) -> None:
    spark.sql("CREATE TABLE fluvial.shop.plain (s STRING COLLATE UTF8_BINARY)")
    spark.sql("INSERT INTO fluvial.shop.plain SELECT 'A' COLLATE UTF8_LCASE")
    assert ordered(spark, "SELECT * FROM fluvial.shop.plain WHERE s COLLATE UTF8_LCASE = 'a'") == [("A",)]
    spark.sql("DROP TABLE fluvial.shop.plain")


def test_texts_have_a_length(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: the error is Spark's, in statements and by name; blanks beyond the length are cut as Spark does."""
    spark.sql(
        "CREATE TABLE fluvial.shop.sized (id BIGINT PRIMARY KEY NOT ENFORCED, c CHAR(5), v VARCHAR(3)) "
        "WITH ('bucket' = '1')"
    )
    types = {row.col_name: row.data_type for row in spark.sql("DESCRIBE fluvial.shop.sized").collect()}
    assert (types["c"], types["v"]) == ("char(5)", "varchar(3)")
    assert [str(field.type) for field in shop.table("shop.sized").schema.fields[1:]] == ["CHAR(5)", "VARCHAR(3)"]
    shown = {each.name: each.dataType for each in spark.catalog.listColumns("fluvial.shop.sized")}
    assert shown == {"id": "bigint", "c": "varchar(5)", "v": "varchar(3)"}
    spark.sql("INSERT INTO fluvial.shop.sized VALUES (1, 'ab', 'äöü'), (2, NULL, 'x      ')")
    spark.createDataFrame([(3, "cd   ", "y     ")], "id BIGINT, c STRING, v STRING").writeTo(
        "fluvial.shop.sized"
    ).append()
    whole = [(1, "ab", "äöü"), (2, None, "x  "), (3, "cd   ", "y  ")]
    assert ordered(spark, "SELECT * FROM fluvial.shop.sized") == whole
    assert ordered(spark, "SELECT id FROM fluvial.shop.sized WHERE c = 'ab'") == [(1,)]
    long = spark.createDataFrame([(4, "x", "four")], "id BIGINT, c STRING, v STRING")
    long.createOrReplaceTempView("long")
    for text in (
        "INSERT INTO fluvial.shop.sized SELECT * FROM long",
        "UPDATE fluvial.shop.sized SET v = 'four' WHERE id = 1",
        "MERGE INTO fluvial.shop.sized t USING long n ON t.id = n.id WHEN NOT MATCHED THEN INSERT *",
    ):
        with pytest.raises(
            PySparkException, match=r"EXCEED_LIMIT_LENGTH.* 3.*54006\s+a value is too long: column=v value='four"
        ) as raised:
            spark.sql(text)
        assert raised.value.getCondition() == "EXCEED_LIMIT_LENGTH"
    with pytest.raises(PySparkException, match="EXCEED_LIMIT_LENGTH"):
        long.writeTo("fluvial.shop.sized").append()
    assert ordered(spark, "SELECT * FROM fluvial.shop.sized") == whole
    spark.sql("CREATE TABLE fluvial.shop.taken AS SELECT v, c AS d, upper(v) AS u FROM fluvial.shop.sized")
    spark.table("fluvial.shop.sized").writeTo("fluvial.shop.given").create()
    assert [str(field.type) for field in shop.table("shop.taken").schema.fields] == [
        "VARCHAR(3)",
        "VARCHAR(5)",
        "STRING",
    ]
    assert str(shop.table("shop.given").schema.field("v").type) == "VARCHAR(3)"


def test_intervals_are_refused_with_what_to_store(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: and what the errors advise works."""
    fixes = {
        "INTERVAL '1 02' DAY TO HOUR": ("CAST(CAST(i AS INTERVAL SECOND) AS BIGINT)", 93600),
        "INTERVAL '1-2' YEAR TO MONTH": ("CAST(CAST(i AS INTERVAL MONTH) AS INT)", 14),
        "make_interval(1, 2)": ("CAST(i AS STRING)", "1 years 2 months"),
    }
    for value, (fix, stored) in fixes.items():
        frame = spark.sql(f"SELECT {value} AS i")
        with pytest.raises(PySparkException, match=r"column=i type=array<interval.* a table holds no inter") as raised:
            spark.sql(f"CREATE TABLE fluvial.shop.intervals AS SELECT array({value}) AS i")
        assert fix in str(raised.value)
        with pytest.raises(PySparkException, match=r'a table holds no intervals|Cannot use "INTERVAL" type'):
            frame.writeTo("fluvial.shop.intervals").create()
        assert frame.selectExpr(fix).first() == (stored,)
    with pytest.raises(PySparkException, match="a table holds no intervals"):
        spark.sql("CREATE TABLE fluvial.shop.intervals (i INTERVAL DAY TO SECOND)")


def test_a_time_of_day_has_milliseconds(spark: SparkSession, shop: Catalog) -> None:
    spark.sql("CREATE TABLE fluvial.shop.times (id INT, t TIME)")
    spark.sql("INSERT INTO fluvial.shop.times VALUES (1, TIME'12:34:56.789')")
    assert ordered(spark, "SELECT * FROM fluvial.shop.times") == [(1, time(12, 34, 56, 789000))]
    spark.sql("INSERT INTO fluvial.shop.times (id) VALUES (2)")
    spark.createDataFrame([(3,)], "id INT").writeTo("fluvial.shop.times").append()
    spark.sql("CREATE TABLE fluvial.shop.clock AS SELECT id, CAST(t AS TIME(3)) AS t FROM fluvial.shop.times")
    expected = [(1, time(12, 34, 56, 789000)), (2, None), (3, None)]
    assert ordered(spark, "SELECT * FROM fluvial.shop.clock") == expected
    with pytest.raises(PySparkException, match=r"column=t type=TIME.*would lose data"):
        spark.sql("INSERT INTO fluvial.shop.times VALUES (2, TIME'12:34:56.7891')")


@pytest.mark.long
def test_case_does_not_count_in_any_statement(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: the columns keep the names of their creation."""
    spark.sql(
        "CREATE TABLE fluvial.shop.cased (Dt STRING, Id BIGINT, v STRING, s STRUCT<Inner: INT>, "
        "PRIMARY KEY (DT, ID) NOT ENFORCED) PARTITIONED BY (dT) CLUSTERED BY (iD) INTO 1 BUCKETS"
    )
    table = shop.table("shop.cased").schema
    assert (table.primary_keys, table.partition_keys, table.bucket_keys) == (("Dt", "Id"), ("Dt",), ("Id",))
    spark.sql("INSERT INTO fluvial.shop.cased (DT, ID, V) VALUES ('d', 1, 'a')")
    spark.sql("INSERT INTO fluvial.shop.cased BY NAME SELECT 'b' AS V, 2L AS iD, 'd' AS dt")
    spark.sql("INSERT INTO fluvial.shop.cased PARTITION (DT = 'e') (ID, V) VALUES (3, 'c')")
    frame = spark.createDataFrame([("d", 4, "x")], "DT STRING, ID BIGINT, V STRING")
    frame.selectExpr("*", "named_struct('INNER', 1) AS S").writeTo("fluvial.shop.cased").append()
    spark.sql("UPDATE fluvial.shop.cased SET V = 'u', S = named_struct('inner', 2) WHERE ID = 2")
    spark.sql("UPDATE fluvial.shop.cased SET S.INNER = 5 WHERE ID = 2")
    spark.sql("DELETE FROM fluvial.shop.cased WHERE dt = 'd' AND ID = 1")
    spark.sql(
        "MERGE INTO fluvial.shop.cased t USING (SELECT 'e' DT, 3L ID, 'm' V, named_struct('INNER', 9) S) n "
        "ON t.DT = n.dt AND t.ID = n.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    expected = [("d", 2, "u", 5), ("d", 4, "x", 1), ("e", 3, "m", 9)]
    assert ordered(spark, "SELECT DT, ID, V, S.INNER FROM fluvial.shop.cased") == expected
    for change in (
        "RENAME COLUMN V TO w",
        "RENAME COLUMN W TO W",
        "ADD COLUMN IF NOT EXISTS w INT",
        "ADD COLUMN S.other INT AFTER INNER",
        "ALTER COLUMN s.OTHER TYPE BIGINT",
        "ADD COLUMN x INT AFTER w",
        "ALTER COLUMN X COMMENT 'c'",
        "DROP COLUMN X",
    ):
        spark.sql(f"ALTER TABLE fluvial.shop.cased {change}")
    made = shop.table("shop.cased").schema
    assert made.column_names == ("Dt", "Id", "W", "s")
    assert [field.name for field in made.field("s").type.fields] == ["Inner", "other"]
    assert spark.sql("DESCRIBE fluvial.shop.cased w").first().info_value == "W"
    for change in ("ADD COLUMN ID INT", "RENAME COLUMN w TO id", "ADD COLUMN s.INNER INT"):
        with pytest.raises(PySparkException, match="column exists already"):
            spark.sql(f"ALTER TABLE fluvial.shop.cased {change}")


def test_names_that_differ_in_case_only_are_refused(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: at creation, in the columns and inside one."""
    for text in (
        "(a INT, A INT)",
        "(a INT, b STRUCT<c: INT, C: INT>)",
        "(a INT, A AS a + 1)",
        "PARTITIONED BY (B) AS SELECT 1 AS b, 2 AS c, 3 AS C",
    ):
        with pytest.raises(PySparkException, match=r"named twice in the .*, because case does not count: columns="):
            spark.sql(f"CREATE TABLE fluvial.shop.two {text}")
    with pytest.raises(PySparkException, match="COLUMN_ALREADY_EXISTS"):
        spark.sql("SELECT 1 AS a, 2 AS A").writeTo("fluvial.shop.two").create()
    with pytest.raises(PySparkException, match=r"named twice in the columns to fill, because.*columns=\['v', 'V'\]"):
        spark.sql("INSERT INTO fluvial.shop.t (id, v, V) VALUES (1, 'a', 'b')")
    assert not shop.table_exists("shop.two")


def test_case_counts_where_the_session_says_so(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 4: ``spark.sql.caseSensitive``, in every statement."""
    with case_counts(spark):
        spark.sql("CREATE TABLE fluvial.shop.both (id INT, a INT, A INT, PRIMARY KEY (id) NOT ENFORCED)")
        spark.sql("INSERT INTO fluvial.shop.both VALUES (1, 10, 20)")
        spark.sql("INSERT INTO fluvial.shop.both (A, id) VALUES (21, 2)")
        spark.sql("UPDATE fluvial.shop.both SET A = a + 1, a = A WHERE id = 1")
        spark.sql(
            "MERGE INTO fluvial.shop.both t USING (SELECT 2 AS id, 5 AS a, 6 AS A) n ON t.id = n.id AND t.A = 21 "
            "WHEN MATCHED THEN UPDATE SET *"
        )
        assert ordered(spark, "SELECT id, a, A FROM fluvial.shop.both WHERE A > 1") == [(1, 20, 11), (2, 5, 6)]
        assert sorted(map(tuple, spark.table("fluvial.shop.both").where("A = 6").select("a").collect())) == [(5,)]
        spark.sql("ALTER TABLE fluvial.shop.both ADD COLUMN ID STRING")
        for text in (
            "SELECT V FROM fluvial.shop.t",
            "INSERT INTO fluvial.shop.t (ID) VALUES (1)",
            "INSERT INTO fluvial.shop.t BY NAME SELECT 1L AS ID",
            "UPDATE fluvial.shop.t SET V = 'x'",
            "DELETE FROM fluvial.shop.t WHERE ID = 1",
            "MERGE INTO fluvial.shop.t t USING (SELECT 1L AS id) n ON t.id = n.id WHEN MATCHED THEN UPDATE SET V = 'x'",
            "ALTER TABLE fluvial.shop.t RENAME COLUMN V TO w",
            "CREATE TABLE fluvial.shop.none (id INT, PRIMARY KEY (ID) NOT ENFORCED)",
        ):
            with pytest.raises(PySparkException, match=r"`V`|=V|`ID`|=ID|: (ID|V) (known|did_you_mean)="):
                spark.sql(text)
