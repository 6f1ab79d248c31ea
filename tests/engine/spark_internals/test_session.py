"""PySpark's private members: those that are used exist, and without one there is another way or a named release."""

import re
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from engine.spark_internals import session as spark_internals
from lsm.errors import InvalidInputError

OF_CONTEXT = ("_active_spark_context", "_ensure_initialized")


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


class Without:
    """A frame, session or context of a release that lacks what it is asked for."""

    def __init__(self, **members: object) -> None:
        vars(self).update(members)


@pytest.mark.parametrize("frame", [Without(), Without(_jdf=Without()), Without(_jdf=None)])
def test_what_a_plan_does_not_say_is_unknown(frame: Any) -> None:
    assert spark_internals.planned_bytes(frame) == 2**63 - 1
    assert spark_internals.most_rows_of(frame) is None
    assert spark_internals.is_shuffled(frame)


def test_a_release_without_a_member_has_the_public_way() -> None:
    catalog = Without(listTables=list, dropTempView=lambda name: dropped.append(name))
    dropped: list[str] = []
    given = Without(
        _jsparkSession=Without(),
        sparkContext=Without(),
        catalog=catalog,
        conf=Without(get=lambda key, default: default),
        createDataFrame=lambda rows, *schema: ("frame of", rows, *schema),
    )
    spark: Any = given
    rows, schema = pa.table({"id": [1]}), T.StructType([])
    assert spark_internals.small_frame(spark, rows) == ("frame of", rows)
    assert spark_internals.empty_frame(spark, schema) == ("frame of", [], schema)
    spark_internals.drop_view(spark, "v")
    assert dropped == ["v"]
    assert not spark_internals.has_view(spark, "v")
    assert not spark_internals.can_parse(spark, "SELECT 1")
    assert spark_internals.jvm_query(spark, "id") is None
    assert spark_internals.keeps_rows(spark)


def test_a_release_that_lacks_what_has_no_other_way_is_named() -> None:
    spark: Any = Without(sparkContext=Without())
    for ask in (spark_internals.jvm_of, lambda spark: spark_internals.hadoop_setting(spark, "fs.defaultFS")):
        with pytest.raises(InvalidInputError, match=rf"spark={re.escape(pyspark.__version__)} member=SparkContext\._"):
            ask(spark)
