"""Frames of a table that is gone: planned or not, by every way that makes one."""

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, install, sql, uninstall
from engine.table import Table
from lsm.errors import InvalidInputError
from tests.support.warehouses import ID_SCHEMA

_WORDS = "is gone|no such table|not shared with this host|FILE_NOT_EXIST"
OTHER = pa.schema([("id", pa.int64()), ("other", pa.string())])


def frame_to_go(catalog: Catalog, schema: pa.Schema = ID_SCHEMA) -> Table:
    """Files that have to be merged."""
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})
    for key in (1, 1, 2):
        table.write(pa.Table.from_pylist([{"id": key, schema.names[1]: "x"}], schema=schema))
    return table


def dropped(catalog: Catalog) -> None:
    catalog.drop_table("db.t")


def made_twice(catalog: Catalog) -> None:
    dropped(catalog)
    frame_to_go(catalog)


def made_again_with_other_columns(catalog: Catalog) -> None:
    dropped(catalog)
    frame_to_go(catalog, OTHER)


def made_again_empty(catalog: Catalog) -> None:
    dropped(catalog)
    catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})


def frames(spark: SparkSession, catalog: Catalog, table: Table) -> Mapping[str, Callable[[], DataFrame]]:
    """Frames as they are, and what makes one of an opened table."""
    place = {"warehouse": catalog.warehouse, "table": "db.t"}

    def loaded(**options: str) -> DataFrame:
        return spark.read.format("fluvial").options(**{**place, **options}).load()

    made = {
        "dataframe": table.dataframe(spark),
        "engine.sql": sql(spark, "SELECT * FROM db.t", catalog),
        "spark.table": spark.table("lake.db.t"),
        "spark.sql": spark.sql("SELECT id, count(*) FROM lake.db.t WHERE id > 0 GROUP BY id"),
        "format": loaded(),
        "format with columns": loaded(columns="id"),
        "snapshots": spark.table("lake.db.`t$snapshots`").select("snapshot_id"),
        "audit_log": spark.table("lake.db.`t$audit_log`"),
        "files": loaded(table="db.t$files"),
    }
    return {name: lambda frame=frame: frame for name, frame in made.items()} | {
        "dataframe later": lambda: table.dataframe(spark)
    }


@pytest.fixture
def lake(spark: SparkSession, catalog: Catalog) -> Iterator[Catalog]:
    install(spark, catalog, name="lake")
    yield catalog
    uninstall(spark, name="lake")


@pytest.mark.parametrize("end", [dropped, made_twice, made_again_with_other_columns, made_again_empty])
def test_a_frame_of_a_table_that_is_gone_has_no_rows_and_ends_with_an_error(
    spark: SparkSession, lake: Catalog, end: Callable[[Catalog], None]
) -> None:
    """Not with the rows of a table that was made again, be it of the same columns."""
    asked = frames(spark, lake, frame_to_go(lake))
    end(lake)
    for frame in asked.values():
        with pytest.raises((PySparkException, Py4JError, InvalidInputError), match=_WORDS):
            frame().collect()
