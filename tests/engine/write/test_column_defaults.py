"""Columns with a default: what is left out and what is null is stored as Java stores it, by every writer."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog, Table, procedures, sink
from engine.types.rows import UNAVAILABLE_COLUMN, change_parts
from filestore.evolution.schema_change import AddColumn, ChangeDefault
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import InvalidInputError

KINDS: Final[Mapping[str, tuple[str, Any]]] = {
    "INT": ("5", 5),
    "BIGINT": ("-7", -7),
    "DOUBLE": ("1.5", 1.5),
    "DECIMAL(10, 2)": ("1.25", Decimal("1.25")),
    "STRING": ("'it is'", "it is"),  # as Java's Spark catalog stores it
    "VARCHAR(9)": ("plain", "plain"),
    "BOOLEAN": ("true", True),
}
FIELDS: Final = [
    DataField(id=0, name="k", type=parse_data_type("BIGINT NOT NULL")),
    *(
        DataField(id=number, name=f"c{number}", type=parse_data_type(kind), default_value=text)
        for number, (kind, (text, _)) in enumerate(KINDS.items(), start=1)
    ),
    DataField(id=20, name="plain", type=parse_data_type("INT")),
]
DEFAULTS: Final = {f"c{number}": value for number, (_, value) in enumerate(KINDS.values(), start=1)}
GIVEN: Final = pa.schema([("k", pa.int64()), ("c1", pa.int32())])


def made(tmp_path: Path, **options: str) -> Table:
    options = {"bucket": "1", **options}
    keys = () if options["bucket"] == "-1" else ("k",)
    return Catalog(str(tmp_path / "w")).create_table("db.t", FIELDS, primary_key=keys, options=options)


def rows_of(table: Table) -> dict[int, dict[str, Any]]:
    found = table.read().to_arrow().to_pylist()
    return {row.pop("k"): row for row in found}


ALL_DEFAULT: Final = {**DEFAULTS, "plain": None}
CHANGES: Final[Mapping[str, Callable[[Table, pa.Table], object]]] = {
    "files": lambda table, rows: table.files.write(rows),
    "write": lambda table, rows: table.write(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
}


@pytest.mark.parametrize("bucket", ["1", "-1"])
@pytest.mark.parametrize("way", CHANGES)
def test_nulls_and_missing_columns_become_defaults(tmp_path: Path, way: str, bucket: str) -> None:
    table = made(tmp_path, bucket=bucket)
    CHANGES[way](table, pa.table({"k": [1, 2], "c1": [None, 3]}, GIVEN))
    assert rows_of(table) == {1: ALL_DEFAULT, 2: {**ALL_DEFAULT, "c1": 3}}


def test_old_rows_copies_and_compactions_keep_their_nulls(tmp_path: Path) -> None:
    """A default is of rows that are written, not of those that there are."""
    catalog = Catalog(str(tmp_path / "w"))
    table = catalog.create_table("db.t", FIELDS[:1], primary_key=["k"], options={"bucket": "1"})
    table.write(pa.table({"k": [1]}))
    catalog.alter_table("db.t", [AddColumn(path=("c",), type=parse_data_type("INT"), default="9")])
    table = catalog.table("db.t")
    table.write(pa.table({"k": [2]}))
    table.files.compact(full=True)
    procedures.copy(catalog, "db.t", "db.copy")
    for name in ("db.t", "db.copy"):
        assert rows_of(catalog.table(name)) == {1: {"c": None}, 2: {"c": 9}}
    catalog.alter_table("db.t", [ChangeDefault(("c",), None)])
    catalog.table("db.t").write(pa.table({"k": [3]}))
    assert rows_of(catalog.table("db.t"))[3] == {"c": None}


def test_what_is_filled_in_later_is_no_null(tmp_path: Path) -> None:
    """A value that a source left out of an update is that of the row before, also where that is null."""
    table = made(tmp_path)
    marks = pa.array([["c1"], None, ["c2", "plain"]], pa.list_(pa.string()))
    batch = pa.RecordBatch.from_pydict({"k": [1, 2, 3], "c1": pa.nulls(3, pa.int32()), UNAVAILABLE_COLUMN: marks})
    rows, _, _ = change_parts(batch, table.files)
    assert rows.column("c1").to_pylist() == [None, 5, 5]
    assert rows.column("c2").to_pylist() == [-7, -7, None]


def test_a_column_that_is_never_null_is_left_out_and_not_given_null(tmp_path: Path) -> None:
    """Java checks nulls before it fills in defaults."""
    fields = [*FIELDS[:1], DataField(id=1, name="n", type=parse_data_type("INT NOT NULL"), default_value="4")]
    table = Catalog(str(tmp_path / "w")).create_table("db.t", fields, primary_key=["k"], options={"bucket": "1"})
    table.write(pa.table({"k": [1]}))
    assert rows_of(table) == {1: {"n": 4}}
    with pytest.raises(InvalidInputError, match="column=n"):
        table.write(pa.table({"k": [1], "n": pa.nulls(1, pa.int32())}))


def test_a_default_that_is_no_value_is_named_when_it_is_needed(tmp_path: Path) -> None:
    fields = [*FIELDS[:1], DataField(id=1, name="n", type=parse_data_type("INT"), default_value="4")]
    table = Catalog(str(tmp_path / "w")).create_table("db.t", fields, primary_key=["k"], options={"bucket": "1"})
    schema = tmp_path / "w" / "db.db" / "t" / "schema" / "schema-0"
    schema.write_text(schema.read_text().replace('"defaultValue": "4"', '"defaultValue": "now()"'))
    table = Catalog(str(tmp_path / "w")).table("db.t")
    table.write(pa.table({"k": [1], "n": pa.array([2], pa.int32())}))
    with pytest.raises(InvalidInputError, match="default='now\\(\\)' column=n fix="):
        table.write(pa.table({"k": [1]}))


@pytest.mark.long
def test_every_door_of_spark_stores_defaults(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path)
    catalog = Catalog(str(tmp_path / "w"))
    engine.install(spark, catalog)
    place = {"warehouse": catalog.warehouse, "table": "db.t"}
    try:
        spark.sql("INSERT INTO fluvial.db.t (k, c1) VALUES (1, NULL)")
        engine.sql(spark, "INSERT INTO db.t (k, c1) VALUES (2, NULL)", catalog)
        frame = spark.createDataFrame([(3, None)], "k BIGINT, c1 INT")
        frame.write.format("fluvial").options(**place).mode("append").save()
        sink(table, {"write.stream.commit-user": "q"})(spark.createDataFrame([(4, None)], "k BIGINT, c1 INT"), 0)
        whole = (
            spark.table("fluvial.db.t")
            .where("k = 1")
            .selectExpr("BIGINT(5) AS k", "INT(NULL) AS c1", "* EXCEPT (k, c1)")
        )
        whole.writeTo("fluvial.db.t").append()
        spark.sql("UPDATE fluvial.db.t SET c1 = NULL WHERE k = 1")
    finally:
        engine.uninstall(spark)
    assert rows_of(catalog.table("db.t")) == dict.fromkeys(range(1, 6), ALL_DEFAULT)
