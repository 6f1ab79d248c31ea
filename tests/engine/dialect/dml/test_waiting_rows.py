"""Statements that change rows see all rows, also those of level 0, which readers of deletion vectors leave out."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import engine
from engine.dialect.session import SqlSession
from engine.table import Table
from tests.engine.dialect.conftest import Warehouse

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("s", pa.string())])


def waiting(warehouse: Warehouse, **options: str) -> tuple[Table, SqlSession]:
    """A table with deletion vectors whose writers leave level 0 to others."""
    given = {"bucket": "1", "deletion-vectors.enabled": "true", "write-only": "true", **options}
    warehouse.context.catalog.drop_table("db.waiting", if_exists=True)
    table = warehouse.context.catalog.create_table("db.waiting", SCHEMA, primary_key=["id"], options=given)
    return table, SqlSession(warehouse.context)


def newest_rows(table: Table) -> list[tuple[object, ...]]:
    """All rows, after a compaction."""
    table.compact(full=True)
    return sorted(tuple(each.values()) for each in table.read().to_arrow().to_pylist())


def test_an_update_adds_to_what_the_last_one_wrote(warehouse: Warehouse) -> None:
    table, sql = waiting(warehouse)
    sql.execute("INSERT INTO db.waiting VALUES (1, 0, 'a'), (2, 0, 'a')")
    table.compact(full=True)
    for _ in range(3):
        sql.execute("UPDATE db.waiting SET n = n + 1")
    assert newest_rows(table) == [(1, 3, "a"), (2, 3, "a")]


def test_a_row_that_waits_is_updated_deleted_and_matched(warehouse: Warehouse) -> None:
    table, sql = waiting(warehouse)
    sql.execute("INSERT INTO db.waiting VALUES (1, 0, 'a'), (2, 0, 'b'), (3, 0, 'c'), (4, 0, 'd')")
    table.compact(full=True)
    sql.execute("INSERT INTO db.waiting VALUES (1, 100, 'new'), (5, 5, 'five'), (6, 6, 'six'), (7, 7, 'seven')")
    sql.execute("UPDATE db.waiting SET s = concat(s, '!') WHERE id = 1")
    sql.execute("DELETE FROM db.waiting WHERE s = 'five'")
    sql.execute("DELETE FROM db.waiting WHERE n < (SELECT min(n) FROM db.waiting WHERE s = 'six') AND id = 2")
    sql.execute(
        "MERGE INTO db.waiting t USING (VALUES (6L, 'x'), (8L, 'y')) AS q(id, s) ON t.id = q.id "
        "WHEN MATCHED THEN UPDATE SET s = concat(t.s, q.s) WHEN NOT MATCHED THEN "
        "INSERT (id, n, s) VALUES (q.id, 0, q.s)"
    )
    assert newest_rows(table) == [
        (1, 100, "new!"), (3, 0, "c"), (4, 0, "d"), (6, 6, "sixx"), (7, 7, "seven"), (8, 0, "y"),
    ]  # fmt: skip


def test_frames_merge_into_rows_that_wait(warehouse: Warehouse) -> None:
    """``DataFrame.mergeInto`` goes through Spark's own planner."""
    table, sql = waiting(warehouse)
    spark = warehouse.context.spark
    engine.install(spark, warehouse.context.catalog, name="waits")
    sql.execute("INSERT INTO db.waiting VALUES (1, 0, 'a')")
    table.compact(full=True)
    sql.execute("INSERT INTO db.waiting VALUES (1, 10, 'b'), (2, 20, 'c')")
    for _ in range(2):
        source = spark.createDataFrame(pa.table({"id": [1, 2, 3]}))
        changes = source.alias("q").mergeInto("waits.db.waiting", F.expr("waits.db.waiting.id = q.id"))
        changes.whenMatched().update({"n": F.expr("n + 1")}).whenNotMatched().insert(
            {"id": F.col("q.id"), "n": F.lit(0), "s": F.lit("new")}
        ).merge()
        assert spark.table("waits.db.waiting").count() == 1  # readers leave out what waits
    assert newest_rows(table) == [(1, 12, "b"), (2, 22, "c"), (3, 1, "new")]


@pytest.mark.parametrize("options", [{}, {"changelog-producer": "lookup"}], ids=str)
def test_a_read_may_ask_for_rows_that_wait(warehouse: Warehouse, options: dict[str, str]) -> None:
    table, sql = waiting(warehouse, **options)
    sql.execute("INSERT INTO db.waiting VALUES (1, 0, 'a')")
    asked = {"deletion-vectors.merge-on-read": "true"}
    assert table.read().to_arrow().num_rows == 0
    assert table.read(options=asked).to_arrow().num_rows == 1


UPDATE = "UPDATE db.waiting SET n = n + 1 WHERE id < 50"
MERGE = (
    "MERGE INTO db.waiting t USING (SELECT id FROM range(50)) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET n = t.n + 1"
)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "options",
    [
        {"write-only": "false", "bucket": "2"},
        {"write-only": "false", "bucket": "-1", "deletion-vectors.enabled": "false"},
    ],
    ids=str,
)
@pytest.mark.sampled(1)
def test_increments_of_several_threads_are_all_in_the_table(warehouse: Warehouse, options: dict[str, str]) -> None:
    """None is refused, and what is reported as done is there, also while committed rows wait for a compaction."""
    table, sql = waiting(warehouse, **options)
    sql.execute("INSERT INTO db.waiting SELECT id, 0, 'a' FROM range(100)")

    def increment(thread: int) -> None:
        for number in range(2):
            SqlSession(warehouse.context).execute(MERGE if (thread + number) % 2 else UPDATE)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(increment, range(6)))
    assert {(number < 50, n) for number, n, _ in newest_rows(table)} == {(True, 12), (False, 0)}
