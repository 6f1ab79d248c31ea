"""A NULL struct with a NOT NULL child comes through every way in which Spark writes a table."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table, sink

X = pa.struct([pa.field("x", pa.int32(), nullable=False)])
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", X),
        ("deep", pa.struct([pa.field("s", X, nullable=False), ("n", X)])),
        ("l", pa.list_(X)),
        ("m", pa.map_(pa.string(), X)),
    ]
)
FULL = ", ".join(
    (
        "named_struct('x', 7) AS s",
        "named_struct('s', named_struct('x', 1), 'n', named_struct('x', 2)) AS deep",
        "array(named_struct('x', 3), NULL) AS l",
        "map('k', named_struct('x', 4), 'n', NULL) AS m",
    )
)
WITHOUT = "NULL AS s, named_struct('s', named_struct('x', 1), 'n', NULL) AS deep, array() AS l, map() AS m"
NOTHING = "NULL AS s, NULL AS deep, NULL AS l, NULL AS m"
ROWS = " UNION ALL ".join(f"SELECT {key}L AS id, {columns}" for key, columns in enumerate((FULL, WITHOUT, NOTHING)))
EXPECTED = [
    {
        "id": 0,
        "s": {"x": 7},
        "deep": {"s": {"x": 1}, "n": {"x": 2}},
        "l": [{"x": 3}, None],
        "m": [("k", {"x": 4}), ("n", None)],
    },
    {"id": 1, "s": None, "deep": {"s": {"x": 1}, "n": None}, "l": [], "m": []},
    {"id": 2, "s": None, "deep": None, "l": None, "m": None},
]
Door = Callable[[Table, DataFrame, Path], object]


def streamed(frame: DataFrame, place: Path) -> DataFrame:
    frame.write.parquet(str(place / "rows"))
    return frame.sparkSession.readStream.schema(frame.schema).parquet(str(place / "rows"))


def by_foreach_batch(table: Table, frame: DataFrame, place: Path) -> None:
    writer = streamed(frame, place).writeStream.foreachBatch(sink(table)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()


def by_stream(table: Table, frame: DataFrame, place: Path) -> None:
    writer = streamed(frame, place).writeStream.trigger(availableNow=True)
    writer.option("checkpointLocation", str(place / "checkpoint")).toTable(f"fluvial.{table.name}").awaitTermination()


def by_merge(table: Table, frame: DataFrame, place: Path) -> None:
    frame.createOrReplaceTempView("given")
    for _ in range(2):  # inserted, then updated
        frame.sparkSession.sql(
            f"MERGE INTO fluvial.{table.name} AS t USING given AS g ON t.id = g.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def by_insert(table: Table, frame: DataFrame, place: Path) -> None:
    frame.createOrReplaceTempView("given")
    frame.sparkSession.sql(f"INSERT INTO fluvial.{table.name} SELECT * FROM given")


DOORS: dict[str, Door] = {
    "append": lambda table, frame, place: table.append(frame),
    "overwrite": lambda table, frame, place: table.overwrite(frame),
    "writeTo": lambda table, frame, place: frame.writeTo(f"fluvial.{table.name}").append(),
    "tasks": lambda table, frame, place: (
        frame.writeTo(f"fluvial.{table.name}").option("write.files-by", "tasks").append()
    ),
    "saveAsTable": lambda table, frame, place: frame.write.mode("append").saveAsTable(f"fluvial.{table.name}"),
    "insert": by_insert,
    "merge": by_merge,
    "foreachBatch": by_foreach_batch,
    "toTable": by_stream,
}


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("door", "has_key"), [*((door, True) for door in DOORS), ("append", False), ("tasks", False), ("toTable", False)]
)
def test_a_null_struct_of_required_parts_is_written_by_every_way_of_spark(
    spark: SparkSession, shop: Catalog, tmp_path: Path, door: str, has_key: bool
) -> None:
    name = f"shop.null_structs_{door.lower()}_{has_key}"
    key, bucket = (["id"], "1") if has_key else ([], "-1")
    table = shop.create_table(name, COLUMNS, primary_key=key, options={"bucket": bucket})
    DOORS[door](table, spark.sql(ROWS), tmp_path)
    table.compact(full=True)
    assert sorted(shop.table(name).read().to_arrow().to_pylist(), key=lambda row: row["id"]) == EXPECTED
    assert spark.table(f"fluvial.{name}").where("s IS NULL").count() == 2
    if door == "merge":
        spark.sql(f"UPDATE fluvial.{name} SET s = NULL, deep = NULL")
        assert {tuple(row) for row in spark.sql(f"SELECT s, deep FROM fluvial.{name}").collect()} == {(None, None)}
