"""PySpark's private members: those that are used exist, and one module alone uses them."""

import ast
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from engine.runtime import spark_internals

ENGINE = Path(spark_internals.__file__).parents[1]
OF_CONTEXT = ("_active_spark_context", "_ensure_initialized")
OF_JVM = ("_jdf", "_jsc", "_jsparkSession", "_jvm")


def attributes(text: str) -> set[str]:
    """Names behind a point, and names that ``getattr`` is given."""
    nodes = list(ast.walk(ast.parse(text)))
    asked = [node.args[1] for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"]
    named = {str(each.value) for each in asked if isinstance(each, ast.Constant)}
    return named | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("name", OF_CONTEXT)
def test_the_context_has_the_private_members_that_a_session_starts_with(name: str) -> None:
    assert hasattr(SparkContext, name), f"pyspark {pyspark.__version__} has no SparkContext.{name}"


@pytest.mark.spark
def test_frames_and_sessions_have_their_objects_of_the_jvm(spark: SparkSession) -> None:
    version = f"pyspark {pyspark.__version__}"
    assert spark_internals.jvm_frame(spark.range(1)) is not None, f"{version} has no DataFrame._jdf"
    assert spark_internals.jvm_session(spark) is not None, f"{version} has no SparkSession._jsparkSession"
    assert spark_internals.hadoop_setting(spark, "fs.defaultFS"), f"{version} has no SparkContext._jsc"
    assert spark_internals.hadoop_setting(spark, "fluvial.no-such-key") is None
    assert spark_internals.has_context()
    assert spark_internals.jvm_session(None) is None


def used_private(text: str) -> set[str]:
    """The private members in a module; only one that has their letters anywhere is parsed."""
    names = {name for name in (*OF_CONTEXT, *OF_JVM) if name in text}
    return names & attributes(text) if names else set()


@pytest.mark.spark
@pytest.mark.parametrize("large", ["false", "true"])
def test_few_rows_are_the_frame_that_spark_makes_of_them(spark: SparkSession, large: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    plain = pa.table({"name": ["a", None, "ü\n"], "n": [1, None, -(2**63)], "b": [True, None, False]})
    none = pa.table({"name": pa.array([], pa.string()), "n": pa.array([], pa.int32())})
    other = pa.table({"at": pa.array([0, None], pa.timestamp("us", "UTC")), "x": [[1], None]})
    for rows in (plain, none, plain.slice(1, 1), other):
        found, expected = spark_internals.small_frame(session, rows), session.createDataFrame(rows)
        assert found.schema == expected.schema
        assert found.collect() == expected.collect()


@pytest.mark.spark
@pytest.mark.parametrize("is_known", [True, False])
def test_a_view_is_the_one_that_spark_makes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Also on a Spark that does not make views as the known ones do."""
    if not is_known:
        monkeypatch.setattr(spark_internals, "_views", {})
        monkeypatch.setattr(spark_internals, "_HELPER", "org.apache.spark.sql.execution.command.NoSuchHelper")
    session = spark.newSession()
    frame = session.sql("SELECT id, CAST('x' AS CHAR(3)) AS `a b`, NULL AS n FROM range(3) WHERE id > 0")
    spark_internals.put_view(session, "quick", frame)
    frame.createOrReplaceTempView("plain")
    quick, plain = (session.sql(f"SELECT * FROM {name} ORDER BY id") for name in ("quick", "plain"))
    assert (quick.schema, quick.collect()) == (plain.schema, plain.collect())
    joined = session.sql(
        "SELECT count(*) FROM quick a JOIN quick b ON a.id = b.id WHERE a.id IN (SELECT id FROM quick)"
    )
    assert joined.collect()[0][0] == 2
    plain_only = session.sql("SHOW VIEWS").collect()
    assert {row["viewName"] for row in plain_only} == {"quick", "plain"}
    for _ in range(2):
        spark_internals.drop_view(session, "quick")
    assert [row["viewName"] for row in session.sql("SHOW VIEWS").collect()] == ["plain"]
    assert quick.collect() == plain.collect()


@pytest.mark.spark
def test_no_rows_are_a_frame_that_needs_no_job(spark: SparkSession) -> None:
    frame = spark_internals.empty_frame(spark, spark.range(1).selectExpr("id", "map('a', id) AS `m.n`").schema)
    assert frame.schema == spark.range(1).selectExpr("id", "map('a', id) AS `m.n`").schema
    assert frame.collect() == []
    assert frame.filter("id > 3").groupBy().count().collect()[0][0] == 0
    assert spark_internals.most_rows_of(frame) == 0


@pytest.mark.spark
def test_the_most_rows_of_a_frame_are_known_or_any_number(spark: SparkSession) -> None:
    for text, most in {
        "VALUES (1), (2)": 2,
        "SELECT CAST(id AS INT) AS id FROM range(0, 7, 1, 2) WHERE id > 3": 7,
        "SELECT explode(sequence(1, 1000000)) AS id": None,
        "SELECT a.id FROM range(10) a CROSS JOIN range(10) b": 100,
    }.items():
        assert spark_internals.most_rows_of(spark.sql(text)) == most


def test_no_other_module_touches_them() -> None:
    texts = {path: path.read_text() for path in ENGINE.rglob("*.py")}
    found = {path.name: used for path, text in texts.items() if (used := used_private(text))}
    assert found.keys() == {"spark_internals.py"}, found
    assert used_private("frame._jdf # of a frame") == used_private("getattr(frame, '_jdf')") == {"_jdf"}
    assert used_private("# _jdf") == used_private("_jdf = 1") == set()
