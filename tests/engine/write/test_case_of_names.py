"""Frames of Spark whose columns are those of a table but for their case, by every way of writing them."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Table, sink
from engine.types.column_names import CASE_KEY
from lsm.errors import InvalidInputError
from tests.support.warehouses import new_table

SCHEMA = pa.schema([("Id", pa.int64()), ("v", pa.string())])

pytestmark = pytest.mark.spark


def changed(spark: SparkSession, *rows: tuple[int, str, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "ID BIGINT, V STRING, _row_kind STRING")


def rows_found(table: Table) -> dict[int, str]:
    assert table.schema.id == 0, "no column is new"
    return {row["Id"]: row["v"] for row in table.read().to_arrow().to_pylist()}


def place(table: Table) -> dict[str, str]:
    return {"warehouse": str(Path(table.store.paths.root).parents[1]), "table": table.name}


def test_case_does_not_count_in_frames(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, 4; first steps, finding 15: ``Table.write``, ``df.write`` and a sink, also where schemas merge."""
    table = new_table(tmp_path / "w", SCHEMA, key=("Id",))
    table.write(changed(spark, (1, "a", "+I"), (2, "b", "+I")))
    writer = changed(spark, (2, "c", "+U"), (3, "d", "+I")).write.format("fluvial").options(**place(table))
    writer.option("write.merge-schema", True).mode("append").save()
    take = sink(table, {"write.merge-schema": "true", "write.stream.commit-user": "cased"})
    take(changed(spark, (1, "a", "-D"), (3, "e", "+U")), 0)
    take.close()
    assert rows_found(table) == {2: "c", 3: "e"}
    doubled = changed(spark, (1, "a", "+I")).selectExpr("*", "id AS Id")
    with pytest.raises(
        InvalidInputError, match=r"two columns of the rows are one of the table: columns=\['ID', 'Id'\]"
    ):
        table.write(doubled)
    with pytest.raises(PySparkException, match=r"COLUMN_ALREADY_EXISTS|two columns of the rows are one"):
        doubled.write.format("fluvial").options(**place(table)).mode("append").save()
    assert rows_found(table) == {2: "c", 3: "e"}


def test_case_counts_in_frames_of_a_session_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path / "w", SCHEMA, key=("Id",))
    session = spark.newSession()
    session.conf.set(CASE_KEY, "true")
    with pytest.raises(InvalidInputError, match="no such column: column=ID did_you_mean=Id"):
        table.write(changed(session, (1, "a", "+I")))
    assert table.latest_snapshot() is None
