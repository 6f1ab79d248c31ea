"""``DataFrame.mergeInto`` over tables of the catalog: Spark plans it, and what differs is committed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.merge import MergeIntoWriter

from engine import Catalog, Table
from engine.broker.broker import Broker
from tests.support.logs import log_changes

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())])
Row = tuple[Any, ...]


def made_table(
    shop: Catalog, name: str, *, key: tuple[str, ...] = ("id", "name"), options: dict[str, str] | None = None
) -> Table:
    """Rows 0 to 9; the key has a text with a quote in it."""
    made = shop.create_table(
        f"shop.{name}", SCHEMA, primary_key=key, options={"bucket": "2", **(options or {})} if key else {}
    )
    rows = {"id": list(range(10)), "name": ["it's"] * 10, "n": [10 * number for number in range(10)]}
    made.write({**rows, "_row_kind": ["+I"] * 10})
    return made


def merged_rows(table: Table) -> list[Row]:
    return sorted((*row.values(),) for row in table.read().to_arrow().to_pylist())


def source(spark: SparkSession, *rows: Row) -> DataFrame:
    return spark.createDataFrame([*rows], "id BIGINT, name STRING, n BIGINT").alias("s")


def merge(table: Table, rows: DataFrame) -> MergeIntoWriter:
    name = f"fluvial.{table.name}"
    return rows.mergeInto(name, F.expr(f"s.id = {name}.id AND s.name = {name}.name"))


def frame_of_changes(spark: SparkSession, table: Table, after: int) -> list[Row]:
    """What the versions behind one have changed."""
    text = f"SELECT * FROM fluvial.{table.name} CHANGES FROM VERSION {after} EXCLUSIVE WITH (computeUpdates = 'true')"
    return sorted((row.id, row.n, row._change_type) for row in spark.sql(text).collect())


@pytest.mark.long
def test_matched_rows_are_updated_and_deleted_and_others_inserted(spark: SparkSession, shop: Catalog) -> None:
    """One commit of the rows that differ; a row that is written as it is is no change. Nothing stays in staging."""
    table = made_table(shop, "merged")
    rows = source(spark, (1, "it's", 11), (2, "it's", -1), (3, "it's", 30), (4, "other", 40), (50, "it's", 500))
    writer = merge(table, rows).whenMatched(F.col("s.n") < 0).delete().whenMatched().updateAll()
    writer.whenNotMatched().insertAll().merge()
    expected = {number: 10 * number for number in range(10)} | {1: 11, 50: 500}
    assert merged_rows(table) == sorted(
        [*((each, "it's", n) for each, n in expected.items() if each != 2), (4, "other", 40)]
    )
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert (snapshot.id, snapshot.delta_record_count) == (2, 4)
    assert frame_of_changes(spark, table, 1) == [
        (1, 10, "update_preimage"), (1, 11, "update_postimage"), (2, 20, "delete"), (4, 40, "insert"),
        (50, 500, "insert"),
    ]  # fmt: skip
    assert not list(Path(table.store.paths.root).glob("staging/*"))


def test_rows_that_the_source_does_not_match(spark: SparkSession, shop: Catalog) -> None:
    """All rows are read for them. A key may change: the old row goes, and the new one comes."""
    table = made_table(shop, "rest")
    writer = merge(table, source(spark, (1, "it's", 11))).whenMatched().update({f"fluvial.{table.name}.id": F.lit(70)})
    writer.whenNotMatchedBySource(F.col(f"fluvial.{table.name}.n") > 20).delete().merge()
    assert merged_rows(table) == [(0, "it's", 0), (2, "it's", 20), (70, "it's", 10)]


def test_an_empty_table_and_one_without_a_key(spark: SparkSession, shop: Catalog) -> None:
    """Without a key all rows are replaced."""
    empty = shop.create_table("shop.empty", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    keyless = made_table(shop, "keyless", key=())
    for table in (empty, keyless):
        merge(
            table, source(spark, (1, "it's", 11), (60, "new", 600))
        ).whenMatched().updateAll().whenNotMatched().insertAll().merge()
        assert {(1, "it's", 11), (60, "new", 600)} <= {*merged_rows(table)}
    assert [len(merged_rows(table)) for table in (empty, keyless)] == [2, 11]


def test_what_cannot_be_merged_says_why_and_changes_nothing(spark: SparkSession, shop: Catalog) -> None:
    table = made_table(shop, "twice")
    twice = source(spark, (80, "new", 1), (80, "new", 2))
    with pytest.raises(Exception, match=r"several rows are for one key of the table: .*\"id\":80"):
        merge(table, twice).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
    summed = made_table(shop, "summed", options=sums)
    with pytest.raises(Exception, match="merge-engine=aggregation fix=INSERT the rows to merge"):
        merge(summed, twice).whenMatched().updateAll().merge()
    assert len(merged_rows(table)) == len(merged_rows(summed)) == 10
    assert not list(Path(table.store.paths.root).glob("staging/*"))


def test_a_table_that_ignores_deletes_takes_a_merge_that_deletes_nothing(spark: SparkSession, shop: Catalog) -> None:
    """As an UPDATE; a row that would go is an error, and nothing of the statement is visible."""
    table = made_table(shop, "kept", options={"ignore-delete": "true"})
    rows = source(spark, (1, "it's", 11), (60, "new", 600))
    merge(table, rows).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert {(1, "it's", 11), (60, "new", 600)} <= {*merged_rows(table)}
    with pytest.raises(Exception, match="the table ignores deletes: statement=MERGE"):
        merge(table, rows).whenMatched().delete().merge()
    assert len(merged_rows(table)) == 11


def test_a_log_gets_each_change_once(spark: SparkSession, shop: Catalog, broker: Broker) -> None:
    """With the row before it, where the log wants that of its writers: its format has an update as two records."""
    servers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers, "log.changelog-mode": "all"}
    table = made_table(shop, "logged", key=("id",), options=servers)
    writer = merge(table, source(spark, (1, "it's", 11), (2, "it's", -1), (50, "it's", 500)))
    writer.whenMatched(F.col("s.n") < 0).delete().whenMatched().updateAll().whenNotMatched().insertAll().merge()
    found = [(kind.symbol, row["id"], row["n"]) for kind, row in log_changes(table)]
    added = [each for each in found if each[0] != "+I" or each[2] != 10 * each[1] or each[1] > 9]
    assert sorted(added) == [("+I", 1, 11), ("+I", 50, 500), ("-D", 1, 10), ("-D", 2, 20)]


def test_spark_alters_a_table_without_a_text(spark: SparkSession, shop: Catalog) -> None:
    """As declarative pipelines do: new columns and properties of theirs; a key stays without nulls."""
    table = made_table(shop, "altered")
    catalog = spark._jsparkSession.sessionState().catalogManager().catalog("fluvial")
    jvm: Any = spark.sparkContext._jvm
    change = getattr(jvm, "org.apache.spark.sql.connector.catalog.TableChange")
    long = getattr(jvm, "org.apache.spark.sql.types.DataType").fromDDL("BIGINT")
    gateway: Any = spark.sparkContext._gateway

    def path(name: str) -> Any:
        made = gateway.new_array(jvm.java.lang.String, 1)
        made[0] = name
        return made

    wanted = [
        change.addColumn(path("more"), long, True, "why"),
        change.setProperty("pipelines.kept", "yes"),
        change.setProperty("provider", "fluvial"),
        change.setProperty("comment", "of a pipeline"),
        change.updateColumnNullability(path("id"), True),
        change.renameColumn(path("n"), "count"),
    ]
    array = gateway.new_array(change, len(wanted))
    for index, each in enumerate(wanted):
        array[index] = each
    identifier = getattr(jvm, "org.apache.spark.sql.connector.catalog.Identifier").of(path("shop"), "altered")
    catalog.alterTable(identifier, array)
    schema = shop.table(table.name).schema
    assert [(field.name, field.description) for field in schema.fields] == [
        ("id", None), ("name", None), ("count", None), ("more", "why"),
    ]  # fmt: skip
    assert not schema.field("id").type.nullable
    assert (schema.options["pipelines.kept"], schema.comment) == ("yes", "of a pipeline")
    assert catalog.loadTable(identifier).properties().get("pipelines.kept") == "yes"
