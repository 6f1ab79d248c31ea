"""Frames that were made before a column was changed, and run behind it: they show what they were made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, install, sql, uninstall
from engine.table import Table
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn, SchemaChange
from filestore.types.data_types import parse_data_type

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int32())])
ROWS = [(1, "y", 2), (2, "x", 3)]
CHANGES: Mapping[str, Sequence[SchemaChange]] = {
    "renamed": [RenameColumn(("v",), "w")],
    "dropped": [DropColumn(("v",))],
    "dropped and added": [DropColumn(("v",)), AddColumn(path=("v",), type=parse_data_type("STRING"))],
    "names swapped": [RenameColumn(("v",), "w"), RenameColumn(("n",), "v")],
    "added": [AddColumn(path=("x",), type=parse_data_type("INT"))],
    "widened": [ChangeType(("n",), parse_data_type("BIGINT"))],
}


def frames(spark: SparkSession, catalog: Catalog, table: Table) -> Mapping[str, DataFrame]:
    place = {"warehouse": catalog.warehouse, "table": table.name}
    return {
        "dataframe": table.dataframe(spark),
        "engine.sql": sql(spark, f"SELECT * FROM {table.name}", catalog),
        "spark.table": spark.table(f"lake.{table.name}"),
        "spark.sql": spark.sql(f"SELECT id, v, n FROM lake.{table.name} WHERE v <> 'z'"),
        "format": spark.read.format("fluvial").options(**place).load(),
    }


@pytest.fixture
def lake(spark: SparkSession, catalog: Catalog) -> Iterator[Catalog]:
    install(spark, catalog, name="lake")
    yield catalog
    uninstall(spark, name="lake")


@pytest.mark.sweep
@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "prepare", [lambda table: None, lambda table: table.compact(full=True)], ids=["runs", "one run"]
)
def test_a_frame_shows_the_columns_and_rows_that_it_was_made_of(
    spark: SparkSession, lake: Catalog, change: str, prepare: Callable[[Table], object]
) -> None:
    table = lake.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for row in ((1, "x", 1), (1, "y", 2), (2, "x", 3)):
        table.write(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], schema=SCHEMA))
    prepare(table)
    made = frames(spark, lake, table)
    for each in CHANGES[change]:
        lake.alter_table("db.t", [each])
    assert {name: sorted(tuple(row) for row in frame.collect()) for name, frame in made.items()} == dict.fromkeys(
        made, ROWS
    )


def test_a_frame_says_which_version_of_the_schema_it_has(spark: SparkSession, catalog: Catalog) -> None:
    """``schema.id``, which may be given too."""
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1], "v": ["x"], "n": [1]}, schema=SCHEMA))
    catalog.alter_table("db.t", [DropColumn(("v",))])
    place = {"warehouse": catalog.warehouse, "table": "db.t"}
    read = spark.read.format("fluvial").options(**place)
    assert read.load().columns == ["id", "n"]
    assert [tuple(row) for row in read.option("schema.id", "0").load().collect()] == [(1, "x", 1)]
