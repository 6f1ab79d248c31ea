"""Every type that a Spark table can have goes into a table and comes back the same, through both ways of reading."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from engine import Catalog
from engine.dialect.grammar.type_grammar import parse_type
from engine.runtime.spark_settings import spark_setting
from engine.types.spark_types import aligned, spark_schema
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError
from tests.peers.agreement import Agreement

pytestmark = pytest.mark.spark

TYPES = {
    "id": "BIGINT NOT NULL",
    "b": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "s": "STRING",
    "c": "CHAR(3)",
    "vc": "VARCHAR(10)",
    "bin": "BYTES",
    "dec9": "DECIMAL(9, 2)",
    "dec18": "DECIMAL(18, 4)",
    "dec38": "DECIMAL(38, 10)",
    "day": "DATE",
    "at": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "wall": "TIMESTAMP(6)",
    "millis": "TIMESTAMP(3)",
    "list": "ARRAY<INT>",
    "map": "MAP<STRING, DOUBLE>",
    "row": "ROW<x INT, y ARRAY<STRING>, z ROW<t TIMESTAMP(6)>>",
}
FULL = Row(
    id=1, b=True, i8=-128, i16=-300, i32=2**31 - 1, f=1.5, d=float("nan"), s="héllo 日本",
    c="abc", vc="0123456789", bin=bytearray(b"\x00\xff"),
    dec9=Decimal("-1234567.89"), dec18=Decimal("99999999999999.9999"),
    dec38=Decimal("-12345678901234567890.0000000001"),
    day=date(1969, 12, 31), at=datetime(1969, 12, 31, 23, 59, 59, 999999),
    wall=datetime(2024, 2, 29, 12, 34, 56, 789123),
    millis=datetime(2024, 2, 29, 12, 34, 56, 789000), list=[1, None, 3], map={"a": 1.0, "b": None},
    row=Row(x=None, y=["p", None], z=Row(t=datetime(2001, 1, 1))),
)  # fmt: skip
EMPTY = Row(**{name: 2 if name == "id" else None for name in TYPES})


def fields() -> list[DataField]:
    return [DataField(id=i, name=name, type=parse_type(text)) for i, (name, text) in enumerate(TYPES.items())]


@pytest.mark.sampled(1)
@pytest.mark.interop
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_every_type_survives_the_way_through_a_table(
    spark: SparkSession, tmp_path: Path, file_format: str, assert_peers_agree: Agreement
) -> None:
    """FL-05, FL-145: values, nulls and nesting, before and after a compaction."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", fields(), primary_key=["id"], options={"file.format": file_format})
    frame = spark.createDataFrame([FULL, EMPTY], spark_schema(table.schema.fields))
    if file_format == "orc":  # the ORC library cannot write parts of a second before 1970, and Fluvial refuses them
        frame = frame.withColumn(
            "at", F.expr("CASE WHEN at IS NOT NULL THEN TIMESTAMP'1970-01-01 00:00:00.000001Z' END")
        )
    expected = sorted(map(str, frame.collect()))
    table.append(frame)
    table.append(frame.filter("id = 2"))
    for _ in range(2):
        by_format = spark.read.format("fluvial").option("warehouse", str(tmp_path)).option("table", "db.t").load()
        types = spark_schema(table.schema.fields).simpleString()
        assert by_format.schema.simpleString() == table.dataframe(spark).schema.simpleString() == types
        assert sorted(map(str, by_format.collect())) == expected
        assert sorted(map(str, table.dataframe(spark).collect())) == expected
        assert len(assert_peers_agree(table.store.paths.root)) == len(expected)
        table.compact(full=True)


def test_types_are_widened_where_nothing_is_lost_and_refused_where_it_could_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", fields(), primary_key=["id"])
    small = spark.sql("SELECT CAST(7 AS INT) AS id, CAST(1 AS TINYINT) AS i32, CAST(1.5 AS FLOAT) AS d, 5 AS dec18")
    table.append(small)
    assert table.read().to_arrow(["id", "i32", "d", "dec18"]).to_pylist() == [
        {"id": 7, "i32": 1, "d": 1.5, "dec18": Decimal("5.0000")}
    ]
    with pytest.raises(InvalidInputError, match="column=i32 given=bigint wanted=int fix=cast"):
        aligned(spark.sql("SELECT 1L AS id, 1L AS i32"), table.schema)
    with pytest.raises(InvalidInputError, match="column=id fix=add it"):
        aligned(spark.sql("SELECT 1 AS i32"), table.schema)
    with pytest.raises(InvalidInputError, match="column=i_32 did_you_mean=i32"):
        aligned(spark.sql("SELECT 1L AS id, 1 AS i_32"), table.schema)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [("id", "CAST(NULL AS BIGINT)", "id"), ("vc", "'01234567890'", "vc"), ("_row_kind", "'+X'", r"\+X")],
)
def test_a_value_that_does_not_fit_is_named_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, column: str, value: str, said: str
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", fields(), primary_key=["id"])
    frame = spark.range(3).withColumn(column, F.expr(value))
    with pytest.raises(InvalidInputError, match=said):
        table.append(frame)
    assert table.latest_snapshot() is None
    assert not list(Path(table.store.paths.root).rglob("data-*"))


def test_times_of_other_zones_are_the_same_moment(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", fields(), primary_key=["id"])
    table.append(spark.sql("SELECT 1L AS id, TIMESTAMP'2024-01-01T00:00:00+02:00' AS at"))
    assert table.read().to_arrow(["at"]).to_pylist() == [{"at": datetime(2023, 12, 31, 22, tzinfo=UTC)}]


def test_a_time_of_day_survives_too(spark: SparkSession, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table(
        "db.t",
        [
            DataField(id=0, name="id", type=parse_type("INT")),
            DataField(id=1, name="t", type=parse_type("TIME(3)")),
        ],
        primary_key=["id"],
    )
    with spark_setting(spark, "spark.sql.timeType.enabled", "true"):  # young in Spark, and off by default
        table.append(spark.sql("SELECT 1 AS id, TIME'01:02:03.004' AS t"))
        assert table.read().to_arrow()["t"].to_pylist() == [time(1, 2, 3, 4000)]
        assert str(table.dataframe(spark).first().t) == "01:02:03.004000"
