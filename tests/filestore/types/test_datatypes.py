import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyspark.sql.types as spark
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from filestore.types.data_types import (
    DataField,
    DataType,
    arrow_scalar,
    arrow_schema,
    arrow_type,
    data_type_of,
    parse_data_type,
    parse_field,
    with_stored_times,
)
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.keys import internal_value
from tests.support.vectors import KEY_TYPES, PROPERTY, golden_tables, values_of

TEXTS = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "STRING",
    "BYTES",
    "CHAR(3)",
    "VARCHAR(10)",
    "BINARY(4)",
    "VARBINARY(9)",
    "DECIMAL(10, 2)",
    "TIME(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "VARIANT",
    "BLOB",
]
SPELLINGS = {
    "INTEGER": "INT",
    "numeric(12,3)": "DECIMAL(12, 3)",
    "DEC": "DECIMAL(10, 0)",
    "DECIMAL(5)": "DECIMAL(5, 0)",
    "TIMESTAMP": "TIMESTAMP(6)",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP(6)",
    "TIMESTAMP_LTZ(3)": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP WITH LOCAL TIME ZONE": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "TIME": "TIME(0)",
    "CHAR": "CHAR(1)",
    "VARCHAR": "VARCHAR(1)",
    "VARCHAR(2147483647)": "STRING",
    "VARBINARY(2147483647) not null": "BYTES NOT NULL",
    "double precision": "DOUBLE",
    "INT NULL": "INT",
}


@st.composite
def data_types(draw: st.DrawFn, depth: int = 3) -> DataType:
    nullable = draw(st.booleans())
    root = draw(st.sampled_from(["atomic", "ARRAY", "MAP", "MULTISET", "ROW"] if depth else ["atomic"]))
    inner = data_types(depth - 1)
    if root == "atomic":
        text = draw(st.sampled_from([text for text in TEXTS if text != "BLOB"]))
        return parse_data_type(text if nullable else f"{text} NOT NULL")
    if root == "MAP":
        return DataType(root=root, nullable=nullable, key=draw(inner), value=draw(inner))
    if root == "ROW":
        types = draw(st.lists(inner, min_size=1, max_size=3))
        fields = tuple(DataField(id=index, name=f"f{index}", type=each) for index, each in enumerate(types))
        return DataType(root=root, nullable=nullable, fields=fields)
    return DataType(root=root, nullable=nullable, element=draw(inner))


@pytest.mark.parametrize("text", TEXTS)
def test_types_are_written_as_java_writes_them(text: str) -> None:
    assert parse_data_type(text).to_json() == text
    assert parse_data_type(f"{text} NOT NULL").to_json() == f"{text} NOT NULL"


@pytest.mark.parametrize(("given", "written"), SPELLINGS.items())
def test_other_spellings_are_understood(given: str, written: str) -> None:
    assert parse_data_type(given).to_json() == written


@pytest.mark.sweep
@PROPERTY
@given(data_types())
def test_json_and_back(data_type: DataType) -> None:
    assert parse_data_type(json.loads(json.dumps(data_type.to_json()))) == data_type


@pytest.mark.sweep
@PROPERTY
@given(data_types())
def test_arrow_and_back(data_type: DataType) -> None:
    """FL-05: every type, nested too; only lengths and the difference of multiset and map are Paimon's alone."""
    arrow = arrow_type(data_type)
    again = arrow_type(data_type_of(arrow, nullable=data_type.nullable))
    assert again == arrow


def test_golden_fields_are_understood_and_written_alike() -> None:
    count = 0
    for table in golden_tables():
        for path in (table / "schema").glob("schema-*"):
            for body in json.loads(path.read_bytes())["fields"]:
                field = parse_field(body)
                assert parse_field(field.to_json()) == field
                if "pypaimon" not in str(path):  # which spells two things differently
                    assert field.to_json() == body
                count += 1
    assert count > 300


def test_pypaimons_nullable_key_is_understood() -> None:
    assert parse_data_type({"type": "ARRAY", "element": "INT", "nullable": True}).nullable
    assert not parse_data_type({"type": "ARRAY", "element": "INT", "nullable": False}).nullable


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "TEXT",
        "INT(3)",
        "DECIMAL(39, 0)",
        "DECIMAL(5, 6)",
        "TIMESTAMP(10)",
        "CHAR(1, 2)",
        "DATE WITH LOCAL TIME ZONE",
    ],
)
def test_unknown_types_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown type"):
        parse_data_type(wrong)


@pytest.mark.parametrize(
    "wrong", [{"element": "INT"}, {"type": "ARRAY"}, {"type": "MAP", "key": "INT"}, {"type": "ROW", "fields": [{}]}]
)
def test_objects_without_their_parts_are_corrupt(wrong: dict[str, Any]) -> None:
    with pytest.raises(CorruptDataError):
        parse_data_type(wrong)


@pytest.mark.parametrize(
    ("text", "arrow"),
    [
        ("TIMESTAMP(0)", pa.timestamp("ms")),
        ("TIMESTAMP(3)", pa.timestamp("ms")),
        ("TIMESTAMP(4)", pa.timestamp("us")),
        ("TIMESTAMP(6)", pa.timestamp("us")),
        ("TIMESTAMP(7)", pa.timestamp("ns")),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", pa.timestamp("us", tz="UTC")),
        ("TIME(6)", pa.time32("ms")),
        ("CHAR(3)", pa.string()),
        ("BINARY(3)", pa.binary()),
        ("DECIMAL(38, 18)", pa.decimal128(38, 18)),
    ],
)
def test_arrow_units_follow_the_precision(text: str, arrow: pa.DataType) -> None:
    assert arrow_type(parse_data_type(text)) == arrow


SPARK_TYPES = [
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.DecimalType(5, 2),
    spark.DecimalType(38, 38),
    spark.StringType(),
    spark.BinaryType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.ArrayType(spark.IntegerType(), containsNull=False),
    spark.ArrayType(spark.ArrayType(spark.StringType())),
    spark.MapType(spark.StringType(), spark.ArrayType(spark.TimestampType()), valueContainsNull=False),
    spark.StructType()
    .add("a", spark.DecimalType(20, 3), nullable=False)
    .add("b", spark.MapType(spark.LongType(), spark.StructType().add("c", spark.DateType()))),
]


@pytest.mark.parametrize("spark_type", SPARK_TYPES, ids=[each.simpleString() for each in SPARK_TYPES])
def test_spark_types_come_back_through_a_schema_file(spark_type: spark.DataType) -> None:
    """FL-05: any data type of Spark SQL, nested too."""
    written = data_type_of(to_arrow_type(spark_type, timezone="UTC")).to_json()
    assert from_arrow_type(arrow_type(parse_data_type(json.loads(json.dumps(written))))) == spark_type


@pytest.mark.parametrize("wrap", [lambda arrow: arrow, pa.list_, lambda arrow: pa.struct([("x", arrow)])])
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_finer_than_the_column_are_no_type_of_a_table(unit: str, wrap: Callable[[Any], pa.DataType]) -> None:
    with pytest.raises(InvalidInputError, match=r"time64.* fix='TIME holds milliseconds: make it time32"):
        data_type_of(wrap(pa.time64(unit)))
    assert with_stored_times(wrap(pa.time64(unit))) == wrap(pa.time32("ms"))


def test_sparks_variant_is_not_taken_for_a_struct() -> None:
    assert data_type_of(to_arrow_type(spark.VariantType(), timezone="UTC")).root == "VARIANT"


@pytest.mark.parametrize(
    ("arrow", "fix"),
    [
        (pa.uint8(), "cast to int16"),
        (pa.uint64(), r"cast to decimal128\(20, 0\)"),
        (pa.float16(), "cast to float32"),
        (pa.duration("us"), "cast the interval"),
        (pa.null(), "give the column a type"),
        (pa.decimal256(50, 2), "decimal128"),
        (pa.list_(pa.uint16()), "cast to int32"),
    ],
)
def test_arrow_types_without_a_home_are_refused_with_advice(arrow: pa.DataType, fix: str) -> None:
    with pytest.raises(InvalidInputError, match=fix):
        data_type_of(arrow)


@pytest.mark.parametrize(
    ("arrow", "text"),
    [
        (pa.large_string(), "STRING"),
        (pa.string_view(), "STRING"),
        (pa.large_binary(), "BYTES"),
        (pa.binary(4), "BINARY(4)"),
        (pa.dictionary(pa.int32(), pa.string()), "STRING"),
        (pa.timestamp("s"), "TIMESTAMP(0)"),
        (pa.timestamp("ns", tz="Europe/Berlin"), "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        (pa.date64(), "DATE"),
        (pa.time32("s"), "TIME(0)"),
        (pa.time32("ms"), "TIME(3)"),
    ],
)
def test_arrow_types_find_the_nearest_type(arrow: pa.DataType, text: str) -> None:
    assert data_type_of(arrow).to_json() == text


def test_fields_keep_their_ids_and_nullability_in_arrow() -> None:
    inner = DataField(id=7, name="x", type=parse_data_type("INT NOT NULL"))
    row = DataField(id=3, name="r", type=DataType(root="ROW", fields=(inner,)))
    schema = arrow_schema([DataField(id=0, name="k", type=parse_data_type("BIGINT NOT NULL")), row])
    assert schema.field("k").metadata == {b"PARQUET:field_id": b"0"}
    assert not schema.field("k").nullable
    assert schema.field("r").type.field("x").metadata == {b"PARQUET:field_id": b"7"}
    assert not schema.field("r").type.field("x").nullable


@pytest.mark.parametrize("text", ["BLOB"])
def test_types_that_we_do_not_hold_have_no_arrow_type(text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        arrow_type(parse_data_type(text))


@PROPERTY
@given(st.sampled_from(KEY_TYPES).flatmap(lambda each: st.tuples(st.just(each), st.none() | values_of(each))))
def test_scalars_hold_internal_values(typed_value: tuple[DataType, Any]) -> None:
    data_type, value = typed_value
    scalar = arrow_scalar(value, data_type)
    assert scalar.type == arrow_type(data_type)
    assert internal_value(scalar) == value
