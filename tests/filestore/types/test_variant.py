"""VARIANT in Arrow: Spark's mark makes a struct one, and what is written is one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from engine import Catalog
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import VARIANT_ARROW, DataField, DataType, arrow_type, data_type_of, parse_data_type
from filestore.write.row_checks import conform_batch
from lsm.errors import InvalidInputError

PLAIN = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")])
SEVEN = {"value": b"\x0c\x07", "metadata": b"\x01\x00\x00"}


def schema(text: str = "VARIANT") -> TableSchema:
    fields = (DataField(id=0, name="v", type=parse_data_type(text)),)
    keys: dict[str, tuple[str, ...]] = {"partition_keys": (), "primary_keys": ()}
    return TableSchema(id=0, fields=fields, highest_field_id=0, options={}, time_ms=0, **keys)


def test_only_a_marked_struct_is_a_variant() -> None:
    assert data_type_of(VARIANT_ARROW) == DataType(root="VARIANT")
    assert data_type_of(PLAIN).root == "ROW"
    assert arrow_type(parse_data_type("VARIANT NOT NULL")) == VARIANT_ARROW
    assert data_type_of(pa.list_(VARIANT_ARROW)).element == DataType(root="VARIANT")


def test_a_struct_of_both_parts_is_written_in_any_order() -> None:
    given = pa.table({"v": pa.array([SEVEN, None], pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))})
    assert conform_batch(given, schema()).column("v").to_pylist() == [SEVEN, None]


def test_nulls_inside_of_a_column_are_kept() -> None:
    """As Spark gives them: the parts of a null are null, though they may not be."""
    inner = pa.struct([pa.field("w", pa.list_(pa.field("element", VARIANT_ARROW)), nullable=False)])
    given = pa.table({"v": pa.array([{"w": [SEVEN, None]}, {"w": [None]}], inner)})
    wanted = DataType(root="ROW", fields=(DataField(id=1, name="w", type=data_type_of(pa.list_(VARIANT_ARROW))),))
    table = replace(schema(), fields=(DataField(id=0, name="v", type=wanted),))
    assert conform_batch(given, table).column("v").to_pylist() == [{"w": [SEVEN, None]}, {"w": [None]}]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            {"value": None, "metadata": b"\x01\x00\x00"},
            "not a VARIANT: column=v row=1",
        ),
        ({"value": b"\x0c\x07", "metadata": b"\x02\x00\x00"}, "not a VARIANT: column=v row=1"),
        ({"value": b"\x0c\x07", "metadata": b""}, "not a VARIANT: column=v row=1"),
    ],
)
def test_what_is_no_variant_is_refused(value: dict[str, bytes | None], problem: str) -> None:
    given = pa.table({"v": pa.array([SEVEN, value], pa.struct([("value", pa.binary()), ("metadata", pa.binary())]))})
    with pytest.raises(InvalidInputError, match=problem):
        conform_batch(given, schema())


def test_a_table_without_spark_keeps_it(tmp_path: Path) -> None:
    """Merged, compacted, and null; a part of a nested column too."""
    columns = pa.schema([("id", pa.int64()), ("v", VARIANT_ARROW), ("a", pa.list_(VARIANT_ARROW))])
    table = Catalog(str(tmp_path)).create_table("d.t", columns, primary_key=["id"], options={"bucket": "1"})
    first = pa.table({"id": [1, 2], "v": [SEVEN, None], "a": [[SEVEN, None], None]}, columns)
    no_parts = pa.StructArray.from_arrays(
        [pa.array([SEVEN[field.name], None], pa.binary()) for field in VARIANT_ARROW],
        fields=list(VARIANT_ARROW),
        mask=pa.array([False, True]),
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2]), no_parts, mask=pa.array([False, True]))
    table.write(first.set_column(1, "v", no_parts).set_column(2, "a", lists))
    table.write([{"id": 2, "v": SEVEN, "a": []}])
    expected = [{"id": 1, "v": SEVEN, "a": [SEVEN, None]}, {"id": 2, "v": SEVEN, "a": []}]
    assert table.read().to_arrow().to_pylist() == expected
    table.compact(full=True)
    read = table.read().to_arrow()
    assert read.to_pylist() == expected
    assert data_type_of(read.schema.field("v").type).root == "VARIANT"
    assert table.read().to_arrow(filter="v IS NOT NULL AND id = 2").num_rows == 1


@pytest.mark.parametrize("option", ["file.format", "changelog-file.format"])
def test_other_formats_are_refused(tmp_path: Path, option: str) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", VARIANT_ARROW)])
    with pytest.raises(InvalidInputError, match="only parquet files hold this type: column=v type=VARIANT"):
        Catalog(str(tmp_path)).create_table("d.t", columns, primary_key=["id"], options={"bucket": "1", option: "avro"})


JAVA = Path(__file__).parents[2] / "golden" / "variant" / "java-1.4.2" / "db.db"


def test_what_java_shredded_is_read_merged_and_compacted(tmp_path: Path) -> None:
    """Issue 19, 4, without Spark: ``age`` and ``city`` are columns of their own in the files of Java Paimon."""
    expected = [{"age": number, "city": f"c{number % 3}"} for number in range(20)]
    for name, rows in (("events", [each for each in expected for _ in range(2)]), ("latest", expected)):
        shutil.copytree(JAVA / name, tmp_path / "d.db" / name)
        table = Catalog(str(tmp_path)).table(f"d.{name}")
        for is_compacted in (False, True):
            if is_compacted:
                table.compact(full=True)
            found = table.read().to_arrow().sort_by("id")["v"].to_pylist()
            assert [VariantVal(each["value"], each["metadata"]).toPython() for each in found] == rows


def test_a_shredded_value_is_written_whole_and_other_structs_are_refused() -> None:
    typed = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    given = pa.table({"v": pa.array([{"metadata": SEVEN["metadata"], "typed_value": 7}, None], typed)})
    assert conform_batch(given, schema()).column("v").to_pylist() == [SEVEN, None]
    two = pa.table({"v": pa.array([{**SEVEN, "typed_value": 7}], typed)})
    with pytest.raises(InvalidInputError, match="a VARIANT is malformed: reason='it has two values' column=v"):
        conform_batch(two, schema())
    other = pa.table({"v": pa.array([{"metadata": b"", "key": 1}])})
    with pytest.raises(InvalidInputError, match=r"not a VARIANT: column=v parts=\['metadata', 'key'\] fix="):
        conform_batch(other, schema())
