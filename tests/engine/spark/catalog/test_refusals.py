"""What a table cannot do is refused by name, with a fix, and nothing is passed over in silence."""

import re
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine import Catalog
from engine.spark.catalog.catalog import CatalogProxy
from engine.spark_internals.catalog import SparkInside

_STATIC = 8  # of Java's modifiers
DEFAULT = "a default is a constant"


@pytest.fixture(scope="module")
def refusing(spark: SparkSession, shop: Catalog) -> str:
    """The name of a table that no statement here changes."""
    spark.sql("CREATE TABLE fluvial.shop.refusing (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket'='1')")
    spark.sql("INSERT INTO fluvial.shop.refusing VALUES (1, 'a')")
    return "fluvial.shop.refusing"


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("ALTER TABLE {} SET LOCATION '/elsewhere'", IllegalArgumentException, "location=/elsewhere fix="),
        ("ALTER TABLE {} CLUSTER BY (v)", IllegalArgumentException, "not clustered by columns: fix="),
        ("ALTER TABLE {} DEFAULT COLLATION UTF8_LCASE", IllegalArgumentException, "collation=UTF8_LCASE fix="),
        ("ALTER TABLE {} ALTER COLUMN v SET DEFAULT concat('a', 'b')", IllegalArgumentException, DEFAULT),
        ("ALTER TABLE {} ADD COLUMN n INT DEFAULT 1 + 1", IllegalArgumentException, DEFAULT),
        ("ALTER TABLE {} ADD CONSTRAINT c CHECK (id > 1)", IllegalArgumentException, "rows break a constraint"),
        ("ALTER TABLE {} ALTER COLUMN id TYPE STRING, v COMMENT 'x'", IllegalArgumentException, "type of a key"),
        ("CREATE TABLE {}_2 (id INT, n INT DEFAULT 1 + 1)", ParseException, f"{DEFAULT}: fix='write its value'"),
        ("CREATE TABLE {}_2 (id INT, n TIMESTAMP DEFAULT now())", ParseException, DEFAULT),
        ("CREATE TABLE {}_2 (id INT CHECK (id > 1) NOT ENFORCED)", ParseException, "NOT ENFORCED"),
        ("CREATE TABLE {}_2 (id BIGINT GENERATED ALWAYS AS IDENTITY)", ParseException, "identity columns"),
        ("CREATE TABLE {}_2 LIKE {} USING parquet", IllegalArgumentException, "tables of this catalog are Fluvial's:"),
        ("ANALYZE TABLES IN fluvial.shop COMPUTE STATISTICS NOSCAN", IllegalArgumentException, "word=NOSCAN fix="),
        ("DELETE FROM {} LIMIT 1", IllegalArgumentException, "clause='LIMIT' fix="),
        ("INSERT INTO {} REPLACE USING (id) SELECT 1, 'x'", IllegalArgumentException, "clause='REPLACE USING' fix="),
    ],
)
def test_a_statement_is_refused_by_name(
    spark: SparkSession, refusing: str, text: str, kind: type[Exception], words: str
) -> None:
    table = spark.table(refusing)
    with pytest.raises(kind) as raised:
        spark.sql(text.replace("{}", refusing))
    assert words in str(raised.value)
    assert [tuple(row) for row in spark.table(refusing).collect()] == [(1, "a")]
    assert spark.table(refusing).schema == table.schema


TAKEN, NO_SCHEMA = "TABLE_OR_VIEW_ALREADY_EXISTS", "SCHEMA_NOT_FOUND"
NO_CAST = "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST"
TOO_FEW, TOO_MANY = (f"INSERT_COLUMN_ARITY_MISMATCH.{each}_DATA_COLUMNS" for each in ("NOT_ENOUGH", "TOO_MANY"))
EXTRA = "INCOMPATIBLE_DATA_FOR_TABLE.EXTRA_COLUMNS"
NO_COLUMN, NO_TABLE = "UNRESOLVED_COLUMN.WITH_SUGGESTION", "TABLE_OR_VIEW_NOT_FOUND"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT nothing FROM {}", NO_COLUMN),
        ("EXPLAIN SELECT nothing FROM {}", NO_COLUMN),
        ("INSERT INTO {} (id, nothing) VALUES (1, 'a')", NO_COLUMN),
        ("INSERT INTO {} BY NAME SELECT 1 AS id, 'a' AS nothing", EXTRA),
        ("INSERT INTO {} BY NAME SELECT 1 AS id, 'a' AS v, 2 AS nothing", TOO_MANY),
        ("INSERT INTO {} SELECT id, nothing FROM {}", NO_COLUMN),
        ("INSERT INTO {} REPLACE WHERE nothing = 1 SELECT 1, 'a'", NO_COLUMN),
        ("UPDATE {} SET nothing = 1", NO_COLUMN),
        ("UPDATE {} SET v = nothing", NO_COLUMN),
        ("DELETE FROM {} WHERE id IN (SELECT nothing FROM {})", NO_COLUMN),
        ("MERGE INTO {} t USING {} s ON t.nothing = s.id WHEN MATCHED THEN DELETE", NO_COLUMN),
        ("MERGE INTO {} t USING {} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nothing = 1", NO_COLUMN),
        ("EXECUTE IMMEDIATE 'UPDATE {} SET nothing = 1'", NO_COLUMN),
        ("CREATE TABLE {}_new AS SELECT nothing FROM {}", NO_COLUMN),
        ("CREATE TABLE {}_new (id INT, PRIMARY KEY (nothing) NOT ENFORCED)", NO_COLUMN),
        ("ALTER TABLE {} DROP COLUMN nothing", NO_COLUMN),
        ("ANALYZE TABLE {} COMPUTE STATISTICS FOR COLUMNS nothing", NO_COLUMN),
        ("ALTER TABLE {} ADD COLUMN v STRING", "FIELD_ALREADY_EXISTS"),
        ("CREATE TABLE {} (id INT) WITH ('bucket'='1')", TAKEN),
        ("CREATE TABLE {} AS SELECT 1 AS id", TAKEN),
        ("ALTER TABLE {} RENAME TO fluvial.shop.t", TAKEN),
        ("INSERT INTO {} VALUES (1)", TOO_FEW),
        ("INSERT INTO {} (id, v) SELECT 1", TOO_FEW),
        ("INSERT OVERWRITE {} VALUES (1, 'a', 2)", TOO_MANY),
        ("INSERT INTO {} (id) VALUES (1, 'a')", TOO_MANY),
        ("INSERT INTO {} (id, ID) VALUES (1, 2)", "COLUMN_ALREADY_EXISTS"),
        ("INSERT INTO {} BY NAME SELECT 1 AS id, 2 AS id", "INCOMPATIBLE_DATA_FOR_TABLE.AMBIGUOUS_COLUMN_NAME"),
        ("INSERT INTO {} SELECT array(1), 'a'", NO_CAST),
        ("UPDATE {} SET v = array(1)", NO_CAST),
        ("MERGE INTO {} t USING {} s ON t.id = s.id WHEN NOT MATCHED AND t.v = 'b' THEN INSERT *", NO_COLUMN),
        ("MERGE INTO {} t USING {} s ON t.id = s.id WHEN MATCHED AND v = 'b' THEN DELETE", "AMBIGUOUS_REFERENCE"),
        ("MERGE INTO {} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *", NO_COLUMN),
        (
            "MERGE INTO {} t USING {} s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET *",
            "NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION",
        ),
        ("CREATE DATABASE fluvial.shop", "SCHEMA_ALREADY_EXISTS"),
        ("CREATE TABLE {}_new LIKE fluvial.shop.nothing", NO_TABLE),
        ("MERGE INTO {} t USING fluvial.shop.nothing s ON t.id = s.id WHEN MATCHED THEN DELETE", NO_TABLE),
        ("CALL fluvial.sys.compact(table => 'shop.nothing')", NO_TABLE),
        ("CREATE TABLE fluvial.nothing.t (id INT)", NO_SCHEMA),
        ("CREATE TABLE IF NOT EXISTS fluvial.nothing.t AS SELECT 1 AS id", NO_SCHEMA),
        ("CREATE OR REPLACE TABLE fluvial.nothing.t LIKE {}", NO_SCHEMA),
        ("BEGIN CREATE TABLE fluvial.nothing.t (id INT); END", NO_SCHEMA),
        ("ANALYZE TABLES IN fluvial.nothing COMPUTE STATISTICS", NO_SCHEMA),
        ("ALTER TABLE {} RENAME TO fluvial.nothing.t", NO_SCHEMA),
        ("UPDATE {} SET v = no_such_function(1)", "UNRESOLVED_ROUTINE"),
        ("DELETE FROM {} WHERE v", "DATATYPE_MISMATCH.FILTER_NOT_BOOLEAN"),
    ],
)
def test_what_is_wrong_is_an_error_of_spark_in_every_statement(
    spark: SparkSession, refusing: str, text: str, condition: str
) -> None:
    with pytest.raises(AnalysisException) as raised:
        spark.sql(text.replace("{}", refusing)).collect()
    assert raised.value.getCondition() == condition
    assert f"[{condition}]" in str(raised.value)


def test_the_catalog_has_an_answer_to_all_that_spark_may_ask_it(spark: SparkSession) -> None:
    """Also where the interface has one of its own: a call that Python does not know ends in an error of py4j."""
    classes = SparkInside(spark).jvm.java.lang.Class
    for name in CatalogProxy.Java.implements:
        asked = {each.getName() for each in classes.forName(name).getMethods() if not each.getModifiers() & _STATIC}
        assert {each for each in asked if not hasattr(CatalogProxy, each)} == set(), name


def test_a_frame_makes_no_database(spark: SparkSession, shop: Catalog) -> None:
    rows, name = spark.sql("SELECT 1 AS id"), "fluvial.nothing.t"
    makers: list[Callable[[], object]] = [
        lambda: rows.write.saveAsTable(name),
        lambda: rows.write.mode("overwrite").saveAsTable(name),
        lambda: rows.writeTo(name).create(),
        lambda: rows.writeTo(name).createOrReplace(),
        lambda: spark.catalog.createTable(name, schema=rows.schema),
    ]
    for make in makers:
        with pytest.raises(AnalysisException) as raised:
            make()
        assert raised.value.getCondition() == NO_SCHEMA
    assert "nothing" not in shop.list_databases()


def test_a_name_that_is_nearly_that_of_a_table_is_answered_with_it(spark: SparkSession, refusing: str) -> None:
    """In every statement, and without the name of the catalog; names of views and WITH queries are theirs."""
    spark.sql("USE fluvial.shop")
    try:
        for text in (
            "SELECT * FROM refusin",
            "SELECT * FROM shop.refusin",
            "SELECT r.id FROM refusing r JOIN refusin s ON r.id = s.id",
            "INSERT INTO refusin VALUES (2, 'b')",
            "DELETE FROM shop.refusin WHERE id = 1",
        ):
            with pytest.raises(PySparkException, match=r"refusin` \(did you mean refusing\?\) cannot be found"):
                spark.sql(text)
        spark.table(refusing).createOrReplaceTempView("refusin_view")
        assert spark.sql("SELECT id FROM refusin_view").count() == 1
        assert spark.sql("WITH refusin AS (SELECT 7 AS id) SELECT id FROM refusin").collect()[0].id == 7
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql("SELECT * FROM something_else_altogether")
    finally:
        spark.catalog.dropTempView("refusin_view")
        spark.sql("USE spark_catalog.default")


@pytest.mark.parametrize("condition", ["id IN (1, 2)", "id > 1", "id = 1", "id + 1 = 2 OR v = 'a'"])
def test_a_frame_that_replaces_what_meets_a_condition_is_refused(
    spark: SparkSession, refusing: str, condition: str
) -> None:
    rows = spark.sql("SELECT 1 AS id, 'b' AS v")
    with pytest.raises(IllegalArgumentException, match="REPLACE WHERE condition SELECT"):
        rows.writeTo(refusing).overwrite(F.expr(condition))
    assert [tuple(row) for row in spark.table(refusing).collect()] == [(1, "a")]


def test_a_frame_that_replaces_nothing_is_appended(spark: SparkSession, shop: Catalog) -> None:
    spark.sql("CREATE TABLE fluvial.shop.none_gone (id INT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.none_gone VALUES (1, 'a')")
    spark.sql("SELECT 2 AS id, 'b' AS v").writeTo("fluvial.shop.none_gone").overwrite(F.lit(False))
    assert sorted(tuple(row) for row in spark.table("fluvial.shop.none_gone").collect()) == [(1, "a"), (2, "b")]


def test_a_column_is_not_renamed_to_words_of_spark(spark: SparkSession, shop: Catalog) -> None:
    """Spark's plan has the text of ``IDENTIFIER(...)`` for the new name: the column was called so."""
    spark.sql("CREATE TABLE fluvial.shop.renamed_by_word (a INT)")
    with pytest.raises(PySparkException, match="the new name of a column is written out"):
        spark.sql("ALTER TABLE IDENTIFIER('fluvial.shop.renamed_by_word') RENAME COLUMN a TO IDENTIFIER('b')")
    assert spark.table("fluvial.shop.renamed_by_word").columns == ["a"]


def test_a_frame_is_merged_with_schema_evolution(spark: SparkSession, shop: Catalog) -> None:
    """Without a word the new column is left out; with it the table gets it, and rows that match none have null."""
    spark.sql("CREATE TABLE fluvial.shop.grows (id INT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket'='1')")
    spark.sql("INSERT INTO fluvial.shop.grows VALUES (1, 'a'), (3, 'c')")
    source = spark.sql("SELECT * FROM VALUES (1, 'b', 7), (2, 'b', 8) AS s(id, v, more)").alias("s")
    for has_it in (False, True, True):
        merge = source.mergeInto("fluvial.shop.grows", F.expr("s.id = fluvial.shop.grows.id"))
        merge = merge.whenMatched().updateAll().whenNotMatched().insertAll()
        (merge.withSchemaEvolution() if has_it else merge).merge()
        rows = sorted(tuple(row) for row in spark.table("fluvial.shop.grows").collect())
        assert rows == ([(1, "b", 7), (2, "b", 8), (3, "c", None)] if has_it else [(1, "b"), (2, "b"), (3, "c")])


@pytest.mark.parametrize("setting", ["STATIC", "DYNAMIC", None])
def test_both_doors_overwrite_alike(spark: SparkSession, shop: Catalog, setting: str | None) -> None:
    """``INSERT OVERWRITE`` and ``insertInto(overwrite=True)``, with every setting."""
    mode, found = "spark.sql.sources.partitionOverwriteMode", []
    if setting is not None:
        spark.conf.set(mode, setting)
    for name in (f"doors_sql_{setting}", f"doors_frame_{setting}"):
        spark.sql(f"CREATE TABLE fluvial.shop.{name} (n INT, p INT) PARTITIONED BY (p)")
        spark.sql(f"INSERT INTO fluvial.shop.{name} VALUES (1, 1), (2, 2)")
        rows = spark.sql("SELECT 10 AS n, 1 AS p")
        if "sql" in name:
            rows.createOrReplaceTempView("rows_of_both_doors")
            spark.sql(f"INSERT OVERWRITE fluvial.shop.{name} SELECT * FROM rows_of_both_doors")
        else:
            rows.write.insertInto(f"fluvial.shop.{name}", overwrite=True)
        found.append(sorted(tuple(row) for row in spark.table(f"fluvial.shop.{name}").collect()))
    spark.conf.unset(mode)
    assert found == [[(2, 2), (10, 1)] if setting == "DYNAMIC" else [(10, 1)]] * 2


def test_a_start_without_its_time_is_refused_by_load(spark: SparkSession, shop: Catalog) -> None:
    """FL-74: not by the running query."""
    reader = spark.readStream.format("fluvial").option("read.changelog", "true").option("log.scan", "from-timestamp")
    with pytest.raises(PySparkException, match=r"a time is missing: .*log\.scan\.timestamp-mills"):
        reader.option("warehouse", shop.warehouse).option("table", "shop.t").load()
    reader = spark.readStream.format("fluvial").option("warehouse", shop.warehouse).option("table", "shop.t")
    with pytest.raises(PySparkException, match=r"streams have no such start: scan\.mode=latst known="):
        reader.option("scan.mode", "latst").load()


def test_a_missing_branch_is_said_however_the_name_is_written(spark: SparkSession, refusing: str) -> None:
    table = f"{refusing.rpartition('.')[0]}.`refusing$branch_fix`"
    for act in (lambda: spark.table(table), lambda: spark.sql(f"SELECT * FROM {table}")):
        with pytest.raises(PySparkException, match=r"no such branch: .*branches=\['main'\]"):
            act()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OPTIMIZE {}", "CALL sys.compact"),
        ("VACUUM {} RETAIN 10 HOURS", "CALL sys.expire_snapshots"),
        ("RESTORE TABLE {} TO VERSION AS OF 1", "CALL sys.rollback_to_as_latest"),
        ("ALTER TABLE {} EXECUTE compact", "CALL sys.procedure"),
        ("OPTIMIZE spark_catalog.default.t", "Syntax error at or near 'OPTIMIZE'"),
    ],
)
def test_a_statement_of_another_table_format_has_the_call_for_a_table_of_the_catalog(
    spark: SparkSession, shop: Catalog, text: str, said: str
) -> None:
    """About other tables Spark answers, or what extends it."""
    with pytest.raises(PySparkException, match=re.escape(said)):
        spark.sql(text.format("fluvial.shop.t"))


def test_what_a_row_violates_is_said_wherever_the_row_is_computed(spark: SparkSession, shop: Catalog) -> None:
    """A join computes it in a thread of its own, whose failure Java wraps twice."""
    spark.sql(
        "CREATE TABLE fluvial.shop.misses (id INT NOT NULL, p INT NOT NULL, PRIMARY KEY (id, p)) PARTITIONED BY (p)"
    )
    spark.sql("INSERT INTO fluvial.shop.misses VALUES (1, 1), (2, 2)")
    for rows in ("VALUES (3, 3)", "SELECT id + 2, p + 2 FROM fluvial.shop.misses WHERE id = 1"):
        with pytest.raises(PySparkException, match=r"a row does not meet the condition: .*row=\{\"id\":3,\"p\":3\}"):
            spark.sql(f"INSERT INTO fluvial.shop.misses REPLACE WHERE id < 3 {rows}")
    inside = SparkInside(spark)
    java = inside.jvm.java
    cause = java.lang.IllegalStateException("what happened")
    for wrapped in (cause, java.util.concurrent.ExecutionException(java.util.concurrent.ExecutionException(cause))):
        assert inside.passed_on(Py4JJavaError("", wrapped)).java_exception.equals(cause)  # type: ignore[attr-defined]
    declared = Py4JJavaError("", java.lang.Exception("declared"))
    assert inside.passed_on(declared) is declared
    wrapped = java.util.concurrent.ExecutionException(java.lang.Exception("not declared"))
    checked = inside.passed_on(Py4JJavaError("", wrapped))
    assert checked.java_exception.toString() == "java.lang.IllegalArgumentException: not declared"  # type: ignore[attr-defined]
