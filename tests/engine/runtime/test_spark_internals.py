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
