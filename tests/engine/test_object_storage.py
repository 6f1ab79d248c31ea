"""Tables in an object store as users of Spark and of the command line have them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, install, sink, uninstall
from engine.cli.app import run_command
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.procedures import create_branch, create_tag
from engine.table import Table
from lsm.errors import InvalidInputError, UnavailableError
from tests.stores.object_store import SECRET_KEY, ObjectStore

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
pytestmark = pytest.mark.spark


@pytest.fixture
def place(object_store: ObjectStore, new_bucket: Callable[[], str]) -> Mapping[str, str]:
    """Options of a reader or writer."""
    return {"warehouse": f"s3://{new_bucket()}/lake", "table": "shop.orders", **object_store.options}


@pytest.fixture
def table(place: Mapping[str, str], object_store: ObjectStore) -> Table:
    catalog = Catalog(place["warehouse"], options={**object_store.options, "bucket": "2"})
    return catalog.create_table("shop.orders", SCHEMA, primary_key=["id"])


@pytest.mark.long
def test_spark_writes_and_reads_a_table_in_an_object_store(
    spark: SparkSession, table: Table, place: Mapping[str, str], tmp_path: Path
) -> None:
    """FL-110: a stream through the sink, a batch through the format, both ways of reading, with and without merge."""
    assert table.options.bucket == 2
    spark.range(100).selectExpr("id", "id AS v").write.parquet(str(tmp_path / "in"))
    changes = spark.readStream.schema("id BIGINT, v BIGINT").parquet(str(tmp_path / "in"))
    query = (
        changes.writeStream.foreachBatch(sink(table))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    update = spark.range(50).selectExpr("id", "id + 1000 AS v")
    update.write.format("fluvial").options(**place).mode("append").save()
    expected = {number: number + (1000 if number < 50 else 0) for number in range(100)}
    merged = spark.read.format("fluvial").options(**place).load().collect()
    assert {row.id: row.v for row in merged} == expected
    table.compact(full=True)
    frame = table.dataframe(spark, columns=["v"], filter="id >= 40 AND id < 60")  # needs no merge, yet Spark's scan
    assert sorted(row.v for row in frame.collect()) == sorted(expected[number] for number in range(40, 60))
    files = spark.read.format("fluvial").options(**{**place, "table": "shop.orders$files"}).load()
    assert sum(row.record_count for row in files.collect()) == 100
    copied = tmp_path / "copied"
    stream = spark.readStream.format("fluvial").options(**place).option("read.changelog", True).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(copied))
        .option("checkpointLocation", str(tmp_path / "copy"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert {row.id: row.v for row in spark.read.parquet(str(copied)).collect()} == expected


def test_the_command_line_reaches_an_object_store_and_shows_no_key(
    table: Table, place: Mapping[str, str], object_store: ObjectStore, capfd: pytest.CaptureFixture[str]
) -> None:
    table.write(pa.table({"id": [1, 2], "v": [1, 2]}, schema=SCHEMA))
    options = [part for key, value in object_store.options.items() for part in ("--catalog-option", f"{key}={value}")]
    assert run_command(["describe", "shop.orders", "--json", "--warehouse", place["warehouse"], *options]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["table"] == "shop.orders"
    assert SECRET_KEY not in said.out + said.err
    assert (
        run_command(
            [
                "describe",
                "shop.orders",
                "--warehouse",
                place["warehouse"],
                *options,
                "--catalog-option",
                "s3.acces-key=x",
            ]
        )
        == 2
    )
    assert "did_you_mean=['s3.access-key'" in capfd.readouterr().err


@pytest.mark.long
def test_an_unknown_option_of_a_reader_is_refused_with_catalog_options_near_it(
    spark: SparkSession, place: Mapping[str, str]
) -> None:
    with pytest.raises(Exception, match=r"unknown read option: s3\.secretkey"):
        spark.read.format("fluvial").options(**place).option("s3.secretkey", "x").load()


def test_a_table_is_not_replaced_where_it_could_get_lost_on_the_way(
    table: Table, place: Mapping[str, str], object_store: ObjectStore
) -> None:
    """An object store does not rename: the old table stays, and the statement says what to do instead."""
    table.write(pa.table({"id": [1], "v": [1]}))

    def no_spark() -> SparkSession:
        raise AssertionError("nothing here needs Spark")

    catalog = Catalog(place["warehouse"], options=object_store.options)
    run = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="shop")).execute
    with pytest.raises(InvalidInputError, match=r"cannot be replaced in one step: table=shop\.orders fix=TRUNCATE"):
        run("CREATE OR REPLACE TABLE orders (other INT)")
    with pytest.raises(InvalidInputError, match="cannot be renamed"):
        run("ALTER TABLE orders RENAME TO moved")
    assert catalog.list_tables("shop") == ["orders"]
    assert table.read().to_arrow().num_rows == 1


@pytest.mark.soak
def test_names_in_a_database_change_where_files_are_in_an_object_store(
    spark: SparkSession, place: Mapping[str, str], object_store: ObjectStore, tmp_path: Path
) -> None:
    """Issue 20 point 6: ALTER TABLE ... RENAME by both SQLs, OR REPLACE, and what then opens a table by its name."""
    names = {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.db"}
    options = {**object_store.options, **names}
    catalog = Catalog(place["warehouse"], options={**options, "bucket": "1"})
    orders = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"])
    orders.write(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))
    create_tag(orders, "eod")
    create_branch(orders, "dev", tag="eod")
    client = object_store.client(place["warehouse"].split("/")[2])

    def keys() -> list[str]:
        found = obstore.list(client, "lake/shop.db/").collect()
        return sorted({each["path"].split("/")[2] for each in found} - {".directory"})

    def values(name: str) -> list[int]:
        """By Python, Spark's SQL and the format."""
        by_python = catalog.table(name).read().to_arrow()["v"].to_pylist()
        by_sql = [row.v for row in spark.sql(f"SELECT v FROM renaming.{name}").collect()]
        reader = spark.read.format("fluvial").options(**{**place, **names, "table": name})
        assert by_python == by_sql == [row.v for row in reader.load().collect()]
        return [int(each) for each in by_python]

    install(spark, catalog, "renaming")
    try:
        spark.sql("ALTER TABLE renaming.shop.orders RENAME TO shop.old")
        assert values("shop.old") == [1]
        assert values("shop.old$branch_dev") == [1]
        spark.sql("CREATE TABLE renaming.shop.orders (id BIGINT NOT NULL, v BIGINT)")
        spark.sql("INSERT INTO renaming.shop.orders VALUES (2, 2)")
        assert (values("shop.old"), values("shop.orders")) == ([1], [2])
        spark.sql("CREATE OR REPLACE TABLE renaming.shop.orders AS SELECT id, v + 1 AS v FROM renaming.shop.orders")
        assert (values("shop.old"), values("shop.orders")) == ([1], [3])
        assert [row.tableName for row in spark.sql("SHOW TABLES IN renaming.shop").collect()] == ["old", "orders"]
        orders.write(pa.table({"id": [1], "v": [4]}, schema=SCHEMA))  # opened under its first name
        assert (values("shop.old"), values("shop.orders")) == ([4], [3])
        assert len(keys()) == 2  # what was replaced is gone
        given = [part for key, value in options.items() for part in ("--catalog-option", f"{key}={value}")]
        alter = "ALTER TABLE shop.orders RENAME TO shop.new"
        assert run_command(["sql", alter, "--warehouse", place["warehouse"], *given]) == 0
        assert values("shop.new") == [3]
        spark.sql("DROP TABLE renaming.shop.old")
        assert values("shop.new") == [3]
        spark.sql("DROP TABLE renaming.shop.new")
        assert keys() == []
    finally:
        uninstall(spark, "renaming")


def test_a_statement_that_replaces_a_table_leaves_the_old_one_or_the_new_one(
    place: Mapping[str, str], object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 20 point 6: whichever step it dies at, and when nothing of the old table can be dropped."""
    names = {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.db", "bucket": "1"}
    catalog = Catalog(place["warehouse"], options={**object_store.options, **names})

    def no_spark() -> SparkSession:
        raise AssertionError("nothing here needs Spark")

    run = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="shop")).execute
    old = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"])
    for method in ("create_table", "swap_tables", "drop_table"):
        for is_done in (False, True):
            before = set(catalog.table("shop.orders").schema.column_names)

            def dies(self: Catalog, *arguments: Any, **named: Any) -> Any:
                if is_done:  # noqa: B023
                    inner(self, *arguments, **named)  # noqa: B023
                raise KeyboardInterrupt

            inner = getattr(Catalog, method)
            with monkeypatch.context() as patch:
                patch.setattr(Catalog, method, dies)
                with pytest.raises(KeyboardInterrupt):
                    run(f"CREATE OR REPLACE TABLE orders (c_{method}_{str(is_done).lower()} INT)")
            now = set(catalog.table("shop.orders").schema.column_names)
            assert now in (before, {f"c_{method}_{str(is_done).lower()}"})
    kept = catalog.table("shop.orders").schema

    def refuses(self: Catalog, name: str, **named: Any) -> list[str]:
        if catalog.table(name).schema.table_uuid == kept.table_uuid:
            raise UnavailableError("the brokers do not answer")
        return drop(self, name, **named)

    drop = Catalog.drop_table
    tables = catalog.list_tables("shop")
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "drop_table", refuses)
        with pytest.raises(UnavailableError):
            run("CREATE OR REPLACE TABLE orders (last INT)")
    assert catalog.table("shop.orders").schema == kept
    assert catalog.list_tables("shop") == tables
    assert old.schema.table_uuid != kept.table_uuid
