"""``CHANGES`` and ``.changes()`` of Spark's own SQL over tables of the catalog."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog
from engine.procedures import create_branch
from filestore.tag.tags import create_tag
from tests.support.rows import write_changes, write_rows
from tests.support.tables import expire_all_but

Change = tuple[Any, ...]


def make_versions(spark: SparkSession, shop: Catalog, name: str, *, producer: str = "none") -> None:
    """Versions 1 to 5; 4 is a compaction."""
    spark.sql(
        f"CREATE TABLE fluvial.shop.{name} (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) "
        f"WITH ('bucket' = '1', 'changelog-producer' = '{producer}', 'write-only' = 'true')"
    )
    table = shop.table(f"shop.{name}")
    write_changes(table, ("+I", 1, "a"), ("+I", 2, "b"))
    write_changes(table, ("+U", 1, "c"), ("+I", 3, "x"))
    write_changes(table, ("-D", 3, "x"), ("+U", 2, "b"))
    table.files.with_options({"write-only": "false"}).compact(full=True)
    write_changes(table, ("+U", 1, "d"), ("-D", 2, "b"))


ALL = {
    (1, "a", "insert", 1),
    (2, "b", "insert", 1),
    (1, "a", "delete", 2),
    (1, "c", "insert", 2),
    (3, "x", "insert", 2),
    (3, "x", "delete", 3),
    (1, "c", "delete", 5),
    (1, "d", "insert", 5),
    (2, "b", "delete", 5),
}
UPDATES = {
    (1, "a", "delete", 2): (1, "a", "update_preimage", 2),
    (1, "c", "insert", 2): (1, "c", "update_postimage", 2),
    (1, "c", "delete", 5): (1, "c", "update_preimage", 5),
    (1, "d", "insert", 5): (1, "d", "update_postimage", 5),
}


def change_counts(frame: DataFrame) -> Counter[Change]:
    return Counter(tuple(row) for row in frame.select("id", "v", "_change_type", "_commit_version").collect())


def of_versions(*versions: int) -> Counter[Change]:
    return Counter(each for each in ALL if each[-1] in versions)


@pytest.mark.long
def test_changes_by_version_time_and_tag(spark: SparkSession, shop: Catalog) -> None:
    make_versions(spark, shop, "c")
    table = shop.table("shop.c")
    create_tag(table.files.store, "two", snapshot_id=2)

    def sql(text: str) -> Counter[Change]:
        return change_counts(spark.sql(f"SELECT * FROM fluvial.shop.c CHANGES {text}"))

    assert sql("FROM VERSION 0") == sql("FROM VERSION 1 TO VERSION 5") == Counter(ALL)
    assert sql("FROM VERSION 2 TO VERSION 3") == of_versions(2, 3)
    assert sql("FROM VERSION 2 EXCLUSIVE TO VERSION 5 EXCLUSIVE") == of_versions(3)
    assert sql("FROM VERSION 'two' EXCLUSIVE") == of_versions(3, 5)
    second = table.files.store.snapshots.read(2).time_ms
    at = f"TIMESTAMP '{datetime.fromtimestamp(second / 1000, UTC).isoformat()}'"
    assert sql(f"FROM TIMESTAMP {at}") == of_versions(2, 3, 5)
    assert sql(f"FROM TIMESTAMP {at} EXCLUSIVE") == of_versions(3, 5)
    assert sql("FROM VERSION 0 WITH (computeUpdates = 'true')") == Counter(UPDATES.get(each, each) for each in ALL)
    assert sql("FROM VERSION 0 WITH (deduplicationMode = 'none')") == Counter(ALL)  # a key has no rewritten rows
    times = spark.sql("SELECT _commit_version v, _commit_timestamp t FROM fluvial.shop.c CHANGES FROM VERSION 2")
    assert {row.v: row.t.timestamp() for row in times.collect()}[2] == second / 1000
    by_reader = spark.read.option("startingVersion", "2").option("endingVersion", "3").changes("fluvial.shop.c")
    assert change_counts(by_reader) == of_versions(2, 3)
    assert change_counts(spark.read.changes("fluvial.shop.c")) == Counter(ALL)
    joined = spark.sql(
        "SELECT t.v FROM fluvial.shop.c CHANGES FROM VERSION 5 AS ch JOIN fluvial.shop.t AS t ON t.id = ch.id "
        "WHERE ch._change_type = 'insert'"
    )
    assert [row.v for row in joined.collect()] == ["a"]


def test_a_branch_has_changes_of_its_own(spark: SparkSession, shop: Catalog) -> None:
    """By a version on it, and as the table of its name; they begin with the snapshot that it was made of."""
    make_versions(spark, shop, "b")
    table = shop.table("shop.b")
    create_tag(table.files.store, "three", snapshot_id=3)
    create_branch(table, "dev", tag="three")
    branch = shop.table("shop.b$branch_dev")
    write_rows(branch, (7, "dev"))
    create_tag(branch.files.store, "more", snapshot_id=4)
    on_branch = Counter({(7, "dev", "insert", 4): 1})
    by_version = spark.sql("SELECT * FROM fluvial.shop.b CHANGES FROM VERSION 3 EXCLUSIVE TO VERSION 'dev.more'")
    assert change_counts(by_version) == on_branch
    by_name = spark.sql("SELECT * FROM fluvial.shop.`b$branch_dev` CHANGES FROM VERSION 3 EXCLUSIVE")
    assert change_counts(by_name) == on_branch
    assert change_counts(spark.sql("SELECT * FROM fluvial.shop.b CHANGES FROM VERSION 4")) == of_versions(5)


def test_without_a_key_rewritten_rows_are_shown_only_where_they_are_asked_for(
    spark: SparkSession, shop: Catalog
) -> None:
    """Over an overwrite, ALTER and an expiry; what has expired is an error that says where to start."""
    spark.sql("CREATE TABLE fluvial.shop.plain (id BIGINT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.plain VALUES (1, 'a'), (2, 'b')")
    spark.sql("INSERT OVERWRITE fluvial.shop.plain VALUES (2, 'b'), (3, 'c')")
    spark.sql("ALTER TABLE fluvial.shop.plain ADD COLUMN n INT")
    spark.sql("INSERT INTO fluvial.shop.plain VALUES (4, 'd', 4)")
    text = "SELECT * FROM fluvial.shop.plain CHANGES FROM VERSION 2 WITH (deduplicationMode = '{}')"
    moved = Counter({(1, "a", "delete", 2): 1, (3, "c", "insert", 2): 1, (4, "d", "insert", 3): 1})
    assert change_counts(spark.sql(text.format("dropCarryovers"))) == moved
    rewritten = Counter({(2, "b", "delete", 2): 1, (2, "b", "insert", 2): 1})
    assert change_counts(spark.sql(text.format("none"))) == moved + rewritten
    assert {row.id: row.n for row in spark.sql(text.format("none")).collect()} == {1: None, 2: None, 3: None, 4: 4}
    expire_all_but(shop.table("shop.plain").files, 1)
    with pytest.raises(PySparkException, match=r"have expired: .*fix='start at version 3 EXCLUSIVE"):
        spark.sql(text.format("none")).collect()


def test_net_changes_are_the_difference(spark: SparkSession, shop: Catalog) -> None:
    """What came and went within the range is not in it; expired versions do not matter between two kept ones."""
    make_versions(spark, shop, "net", producer="lookup")
    table = shop.table("shop.net")
    net = "SELECT * FROM fluvial.shop.net CHANGES FROM VERSION {} EXCLUSIVE WITH (deduplicationMode = 'netChanges'{})"
    updates = ", computeUpdates = 'true'"
    for start in (0, 1, 2, 3):
        rows = change_counts(spark.sql(net.format(start, updates)))
        diff = table.diff(str(start), "5").to_arrow().to_pylist()
        kinds = {"+I": "insert", "-D": "delete", "-U": "update_preimage", "+U": "update_postimage"}
        assert Counter(each[:3] for each in rows) == Counter(
            (row["id"], row["v"], kinds[row["_row_kind"]]) for row in diff
        )


def test_wrong_ranges_say_what_is_wrong(spark: SparkSession, shop: Catalog) -> None:
    for text, message in {
        "shop.t CHANGES FROM VERSION 9": "no such snapshot: .*latest=2",
        "shop.t CHANGES FROM VERSION 2 TO VERSION 1 EXCLUSIVE": "the end is before the start: .*start=version 2",
        "shop.t CHANGES FROM VERSION 'noon'": "no such version: .*version='noon'",
        "shop.`t$snapshots` CHANGES FROM VERSION 1": "a system table has no changes",
        "shop.nothing CHANGES FROM VERSION 1": "TABLE_OR_VIEW_NOT_FOUND",
    }.items():
        with pytest.raises((AnalysisException, PySparkException), match=message):
            spark.sql(f"SELECT * FROM fluvial.{text}").collect()


def streamed_counts(spark: SparkSession, frame: DataFrame, checkpoint: Path) -> Counter[Change]:
    """What one run of a query delivers."""
    rows: Counter[Change] = Counter()
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.update(change_counts(batch)))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


@pytest.mark.long
def test_a_stream_of_changes_goes_on_where_it_ended(spark: SparkSession, shop: Catalog, tmp_path: Path) -> None:
    """From a version, exclusive too, from the newest state, and after a restart; the same changes as the batch."""
    make_versions(spark, shop, "s")
    table = shop.table("shop.s")

    def stream(start: str | None = None, **options: str) -> DataFrame:
        reader = spark.readStream.options(**options)
        return (reader if start is None else reader.option("startingVersion", start)).changes("fluvial.shop.s")

    assert streamed_counts(spark, stream("0"), tmp_path / "all") == Counter(ALL)
    assert streamed_counts(spark, stream("2", startingBoundInclusive="false"), tmp_path / "two") == of_versions(3, 5)
    whole = streamed_counts(spark, stream(), tmp_path / "whole")
    assert whole == Counter({(1, "d", "insert", 5): 1})
    write_rows(table, (1, "e"), (4, "n"))
    added = Counter({(1, "d", "delete", 6): 1, (1, "e", "insert", 6): 1, (4, "n", "insert", 6): 1})
    assert streamed_counts(spark, stream(), tmp_path / "whole") == added
    assert streamed_counts(spark, stream("0"), tmp_path / "all") == added
    by_sql = spark.sql("SELECT * FROM STREAM fluvial.shop.s CHANGES FROM VERSION 6")
    assert streamed_counts(spark, by_sql, tmp_path / "sql") == added
    sixth = datetime.fromtimestamp(table.files.store.snapshots.read(6).time_ms / 1000, UTC).isoformat()
    by_time = spark.sql(f"SELECT * FROM STREAM fluvial.shop.s CHANGES FROM TIMESTAMP '{sixth}'")
    assert streamed_counts(spark, by_time, tmp_path / "time") == added


@pytest.mark.long
@pytest.mark.parametrize(
    ("alter", "columns", "row"),
    [
        ("RENAME COLUMN v TO vv", ["id", "vv", "w"], {"id": 2, "vv": 20, "w": 200}),
        ("DROP COLUMN v", ["id", "w"], {"id": 2, "w": 200}),
        ("ADD COLUMN x INT", ["id", "v", "w", "x"], {"id": 2, "v": 20, "w": 200, "x": None}),
        ("ALTER COLUMN v TYPE BIGINT", ["id", "v", "w"], {"id": 2, "v": 20, "w": 200}),
    ],
)
@pytest.mark.sampled(2)
def test_a_stream_of_changes_has_the_tables_columns_before_the_next_commit_too(
    spark: SparkSession, shop: Catalog, tmp_path: Path, alter: str, columns: list[str], row: dict[str, Any]
) -> None:
    """Started or restarted by the deployment that altered the table, from every start, also one that has expired."""
    name = f"shop.s{alter.split()[0].lower()}"
    spark.sql(f"CREATE TABLE fluvial.{name} (id BIGINT PRIMARY KEY NOT ENFORCED, v INT, w INT) WITH ('bucket' = '1')")
    write_rows(shop.table(name), (1, 10, 100))

    def run(checkpoint: str, start: str | None = None) -> list[dict[str, Any]]:
        reader = spark.readStream if start is None else spark.readStream.option("startingVersion", start)
        frame = reader.changes(f"fluvial.{name}")
        assert frame.columns == [*asked, "_change_type", "_commit_version", "_commit_timestamp"]
        rows: list[dict[str, Any]] = []
        (
            frame.writeStream.foreachBatch(lambda batch, _: rows.extend(each.asDict() for each in batch.collect()))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        return [{key: value for key, value in each.items() if key in asked} for each in rows]

    asked = ["id", "v", "w"]
    assert run("newest") == run("first", "1") == [{"id": 1, "v": 10, "w": 100}]
    spark.sql(f"ALTER TABLE fluvial.{name} {alter}")
    asked = columns
    assert run("newest") == run("first", "1") == []
    assert run("new") == [{key: value and value // 2 for key, value in row.items()}]
    assert spark.sql(f"SELECT * FROM fluvial.{name} CHANGES FROM VERSION 1").columns[: len(columns)] == columns
    assert spark.sql(f"SELECT * FROM fluvial.{name} CHANGES FROM VERSION 1 TO VERSION 1").columns[:3] == [
        "id",
        "v",
        "w",
    ]
    write_rows(shop.table(name), tuple(row.values()))
    assert run("first", "1") == run("new") == [row]
    expire_all_but(shop.table(name).files, 1)
    assert run("first", "1") == []
