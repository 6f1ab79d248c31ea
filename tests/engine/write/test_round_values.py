"""``write.round-values`` through each way of writing, and times that no table can be made for. (FL-14)"""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.dialect import sql
from engine.dialect.grammar.type_grammar import parse_type
from engine.table import Table
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError

ROUNDS = {"write.round-values": "true"}
FINE = dt.datetime(2026, 1, 2, 3, 4, 5, 123_999)
CUT = dt.datetime(2026, 1, 2, 3, 4, 5, 123_000)
ROWS = pa.table({"id": [1], "at": pa.array([FINE], pa.timestamp("us")), "f": [0.1]})
COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms")), ("f", pa.float32())])


def table_of(place: Path, **options: str) -> Table:
    return Catalog(str(place)).create_table("d.t", COLUMNS, primary_key=["id"], options={"bucket": "2", **options})


def stored_values(table: Table) -> list[Any]:
    return [row["at"] for row in table.read().to_arrow().to_pylist()]


def test_a_write_refuses_what_it_would_change_and_rounds_when_asked(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for write in (table.write, table.overwrite):
        with pytest.raises(InvalidInputError, match=r"column=at .*would lose data.*write.round-values=true"):
            write(ROWS)
    with pytest.raises(InvalidInputError, match=r"column=f .*0\.1 is no value of FLOAT"):
        table.write(ROWS.drop_columns(["at"]))
    assert table.latest_snapshot() is None
    table.write(ROWS, options=ROUNDS)
    assert stored_values(table) == [CUT]
    table.overwrite(ROWS, options=ROUNDS)
    assert table.read().to_arrow()["f"].to_pylist() == [pytest.approx(0.1)]


def test_a_table_may_round_for_each_writer_and_a_writer_may_refuse(tmp_path: Path) -> None:
    table = table_of(tmp_path, **ROUNDS)
    with pytest.raises(InvalidInputError, match="column=at"):
        table.write(ROWS, options={"write.round-values": "false"})
    table.write(ROWS)
    assert stored_values(table) == [CUT]


@pytest.mark.parametrize("arrow", [pa.time64("us"), pa.struct([("x", pa.time64("ns"))]), pa.list_(pa.time64("us"))])
def test_no_table_is_made_for_times_that_it_would_cut(tmp_path: Path, arrow: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"TIME holds milliseconds: make it time32.* column=t"):
        Catalog(str(tmp_path)).create_table("d.t", pa.schema([("t", arrow)]))


def test_a_merged_schema_keeps_the_column_and_checks_its_values(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("d.t", pa.schema([("t", pa.time32("ms"))]))
    merges = {"write.merge-schema": "true"}
    table.write(pa.table({"t": pa.array([1000], pa.time64("us"))}), options=merges)
    with pytest.raises(InvalidInputError, match=r"column=t .*would lose data"):
        table.write(pa.table({"t": pa.array([1001], pa.time64("us"))}), options=merges)
    with pytest.raises(InvalidInputError, match="TIME holds milliseconds"):
        table.write(pa.table({"new": pa.array([1000], pa.time64("us"))}), options=merges)


@pytest.mark.spark
def test_frames_of_spark_are_checked_like_arrow_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Spark has microseconds only: a TIMESTAMP(3) takes its whole milliseconds, and the rest on request."""
    catalog = Catalog(str(tmp_path))
    types = {"id": "BIGINT", "at": "TIMESTAMP(3)", "t": "TIME(3)", "n": "ARRAY<TIME(3)>"}
    fields = [DataField(id=i, name=name, type=parse_type(text)) for i, (name, text) in enumerate(types.items())]
    table = catalog.create_table("d.t", fields, primary_key=["id"], options={"bucket": "2"})
    spark.conf.set("spark.sql.timeType.enabled", "true")
    place = {"warehouse": str(tmp_path), "table": "d.t"}
    fine_time = "TIME'01:02:03.000004'"
    at, t, n = f"TIMESTAMP_NTZ'{FINE}'", fine_time, f"array({fine_time})"
    whole = {"at": f"TIMESTAMP_NTZ'{CUT}'", "t": "TIME'01:02:03'", "n": "array(TIME'01:02:03')"}
    for name, text in {"at": at, "t": t, "n": n}.items():
        values = {**whole, name: text}
        frame = spark.sql("SELECT 1L AS id, " + ", ".join(f"{value} AS {key}" for key, value in values.items()))
        with pytest.raises(Exception, match=rf"column={name} .*write.round-values=true"):
            table.append(frame)
        with pytest.raises(Exception, match=rf"column={name} .*write.round-values=true"):
            frame.write.format("fluvial").options(**place).mode("append").save()
        statement = f"INSERT INTO d.t VALUES (1, {', '.join(values.values())})"
        with pytest.raises(Exception, match=rf"column={name} .*write.round-values=true"):
            sql(spark, statement, catalog)
    assert table.latest_snapshot() is None
    fine = spark.sql(f"SELECT 1L AS id, {at} AS at, {t} AS t, {n} AS n")
    table.append(fine, ROUNDS)
    frame = fine.withColumn("id", fine.id + 1)
    frame.write.format("fluvial").options(**place, **ROUNDS).mode("append").save()
    found = table.read().to_arrow().to_pylist()
    assert [row["id"] for row in sorted(found, key=lambda row: row["id"])] == [1, 2]
    assert [(row["at"], row["t"], row["n"]) for row in found] == [(CUT, dt.time(1, 2, 3), [dt.time(1, 2, 3)])] * 2
