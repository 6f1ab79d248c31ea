"""Every session of the application has the catalogs, and none after they are taken away."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from engine.spark_internals.catalog import SparkInside, check_spark
from engine.spark_internals.session import jvm_session
from lsm.errors import InvalidInputError

COUNT = "SELECT count(*) AS n FROM fluvial.shop.t"


def count(spark: SparkSession, text: str = COUNT) -> int:
    return int(spark.sql(text).collect()[0].n)


def test_new_and_cloned_sessions_and_threads_have_the_catalog(spark: SparkSession, shop: Catalog) -> None:
    """Issue 19, 1: also a session whose first text is a name, and one that is used by threads at once."""
    assert spark.newSession().table("fluvial.shop.t").count() == 3
    clone = SparkSession(spark.sparkContext, jvm_session(spark).cloneSession())
    assert count(clone) == 3
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda least: count(spark, f"{COUNT} WHERE id > {least}"), range(4))) == [3, 2, 1, 0]


def test_names_are_relative_to_the_place_of_the_session(spark: SparkSession, shop: Catalog) -> None:
    session = spark.newSession()
    session.sql("USE fluvial.shop")
    assert count(session, "SELECT count(*) AS n FROM t") == 3
    assert [row.tableName for row in session.sql("SHOW TABLES LIKE 't'").collect()] == ["t"]
    session.range(7).createOrReplaceTempView("t")
    assert count(session, "SELECT count(*) AS n FROM t") == 7  # a view of the session hides the table
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM shop.t")  # this one is elsewhere


def test_views_over_a_table_see_its_newest_rows(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    engine.install(session, Catalog(str(tmp_path)), "other")
    try:
        session.sql("CREATE DATABASE other.d")
        session.sql("CREATE TABLE other.d.t (id BIGINT)")
        session.sql("CREATE TEMPORARY VIEW near AS SELECT id FROM other.d.t WHERE id > 1")
        session.sql("CREATE VIEW default.far AS SELECT count(*) AS n FROM other.d.t")
        session.sql("INSERT INTO other.d.t VALUES (1), (2), (3)")
        assert sorted(row.id for row in session.table("near").collect()) == [2, 3]
        session.sql("INSERT INTO other.d.t VALUES (4)")
        assert sorted(row.id for row in session.table("near").collect()) == [2, 3, 4]
        assert count(spark, "SELECT n FROM default.far") == 4
    finally:
        session.sql("DROP VIEW IF EXISTS default.far")
        engine.uninstall(session, "other")


def test_a_catalog_is_taken_away_and_given_again(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("d.t", pa.schema([("id", pa.int64())]))
    between = spark.newSession()
    for _ in range(2):
        with pytest.raises(AnalysisException):
            between.table("brief.d.t")
        engine.install(spark, catalog, "brief")
        assert [row.tableName for row in spark.sql("SHOW TABLES IN brief.d").collect()] == ["t"]
        assert between.table("brief.d.t").columns == ["id"]
        engine.uninstall(spark, "brief")
        with pytest.raises(AnalysisException):
            spark.sql("SELECT * FROM brief.d.t")
    with pytest.raises(InvalidInputError, match="no such catalog: catalog=brief"):
        engine.uninstall(spark, "brief")


def test_the_settings_of_the_session_name_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    with pytest.raises(InvalidInputError, match=r"set spark.sql.catalog.set.warehouse in the Spark session"):
        engine.install(session, name="set")
    session.conf.set("spark.sql.catalog.set.warehouse", str(tmp_path))
    engine.install(session, name="set")
    try:
        session.sql("CREATE DATABASE set.d")
        assert Catalog(str(tmp_path)).list_databases() == ["d"]
    finally:
        engine.uninstall(session, "set")


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "4.4.0", "5.0.0", "4.20.0"])
def test_another_spark_is_refused_with_what_works_without(version: str) -> None:
    with pytest.raises(InvalidInputError, match=r"known=4\.2, 4\.3 fix='fluvial\.sql\(spark, \.\.\.\)"):
        check_spark(None, version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("member", "error"),
    [("put_catalog", StopIteration()), ("parser", Py4JError("Method sqlParser([]) does not exist"))],
)
def test_a_spark_with_another_inside_is_refused_and_everything_else_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str, error: Exception
) -> None:
    """Issue 19, 1: of a known release by its number, as vendors' are."""
    catalog = Catalog(str(tmp_path))
    catalog.create_table("d.t", pa.schema([("id", pa.int64())])).write({"id": [1, 2]})
    session = spark.newSession()

    def other(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SparkInside, member, other)
        with pytest.raises(
            InvalidInputError, match=r"internal classes differ from the released ones: .* fix='fluvial\.sql"
        ):
            engine.install(session, catalog, "odd")
    assert count(session, "SELECT count(*) AS n FROM range(3)") == 3
    assert engine.sql(session, "SELECT count(*) AS n FROM d.t", catalog).first().n == 2
    assert session.read.format("fluvial").options(warehouse=str(tmp_path), table="d.t").load().count() == 2
    with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND|REQUIRES_SINGLE_PART_NAMESPACE"):
        session.sql("SELECT * FROM odd.d.t")


@pytest.mark.parametrize("name", ["spark_catalog", "System", "a.b", ""])
def test_a_name_of_sparks_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="not a name for a catalog"):
        engine.install(None, "w", name)  # type: ignore[arg-type]
