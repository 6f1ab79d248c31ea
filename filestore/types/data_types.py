"""Column types: Paimon's names, Arrow's types, and the conversion between them.

Spark's types are converted through Arrow (``pyspark`` does so losslessly), so there is no third mapping.
Source: Paimon spec "Schema", DataTypeJsonParser.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, Final

import orjson
import pyarrow as pa

from lsm.errors import CorruptDataError, InvalidInputError

MAX_LENGTH: Final = 2**31 - 1
FIELD_ID_KEY: Final = b"PARQUET:field_id"

INTEGER_ROOTS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
TEXT_ROOTS: Final = frozenset({"CHAR", "VARCHAR"})
BYTES_ROOTS: Final = frozenset({"BINARY", "VARBINARY"})
TIMESTAMP_ROOTS: Final = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"})
NESTED_ROOTS: Final = frozenset({"ARRAY", "MAP", "MULTISET", "ROW"})
# Types of Paimon that are preserved in schemas, but cannot be read or written.
UNSUPPORTED_ROOTS: Final = frozenset({"BLOB", "VECTOR", "GEOMETRY", "GEOGRAPHY"})
UNORDERED_ROOTS: Final = NESTED_ROOTS | UNSUPPORTED_ROOTS | {"VARIANT"}
"""Types whose values have no order and no hash: no keys, partitions or bounds."""
VARIANT_ARROW: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),  # as Spark marks it
    ]
)
"""A VARIANT in memory and in files: Parquet's encoding of a value, and its dictionary of names. Source: Paimon Variant,
parquet-format VariantEncoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataType:
    """A column type. ``root`` is the upper-case type name; attributes not used by a root are None or empty."""

    root: str
    nullable: bool = True
    length: int | None = None  # CHAR VARCHAR BINARY VARBINARY VECTOR
    precision: int | None = None  # DECIMAL TIME TIMESTAMP TIMESTAMP_LTZ
    scale: int | None = None  # DECIMAL
    element: "DataType | None" = None  # ARRAY MULTISET VECTOR
    key: "DataType | None" = None  # MAP
    value: "DataType | None" = None  # MAP
    fields: "tuple[DataField, ...]" = ()  # ROW

    def __str__(self) -> str:
        """SQL-like text for messages."""
        if self.root == "ROW":
            inner = f"<{', '.join(f'{field.name} {field.type}' for field in self.fields)}>"
        elif self.root == "MAP":
            inner = f"<{self.key}, {self.value}>"
        elif self.element is not None:
            inner = f"<{self.element}>"
        else:
            return _atomic_text(self)
        return f"{self.root}{inner}" + ("" if self.nullable else " NOT NULL")

    def to_json(self) -> str | dict[str, Any]:
        """The form in schema files: a string for atomic types, an object for nested ones."""
        nulls = "" if self.nullable else " NOT NULL"
        if self.root == "ROW":
            return {"type": f"ROW{nulls}", "fields": [field.to_json() for field in self.fields]}
        if self.key is not None and self.value is not None:
            return {"type": f"MAP{nulls}", "key": self.key.to_json(), "value": self.value.to_json()}
        if self.element is not None:
            body: dict[str, Any] = {"type": f"{self.root}{nulls}", "element": self.element.to_json()}
            return body | ({"length": self.length} if self.length is not None else {})
        return _atomic_text(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataField:
    """A column, or a field of a ROW. The id never changes and is never reused."""

    id: int
    name: str
    type: DataType
    description: str | None = None
    default_value: str | None = None
    initial_default: str | None = None  # what rows have that were written before the column was added; None: null
    unknown: str | None = dataclass_field(default=None, compare=False)  # JSON object of other keys in its schema file

    def to_json(self) -> dict[str, Any]:
        """The object in schema files, without absent values, because Java reads null as the string "null"."""
        texts = zip(_TEXT_KEYS, (self.description, self.default_value, self.initial_default), strict=True)
        given = {key: text for key, text in texts if text is not None} | orjson.loads(self.unknown or "{}")
        return {"id": self.id, "name": self.name, "type": self.type.to_json(), **given}


def parse_data_type(json: str | Mapping[str, Any]) -> DataType:
    """Parse a type as written by any Paimon writer.

    Raises: InvalidInputError for an unknown type name, CorruptDataError for an incomplete object.
    """
    if isinstance(json, str):
        return _parse_atomic(json)
    text = json.get("type")
    if not isinstance(text, str):
        raise CorruptDataError(f"nested type without a type name: json={dict(json)}")
    root, nullable = _split_nullability(text)
    nullable = nullable and json.get("nullable", True) is not False  # pypaimon writes it twice, Java once
    try:
        if root == "ROW":
            return DataType(root=root, nullable=nullable, fields=tuple(parse_field(field) for field in json["fields"]))
        if root == "MAP":
            key, value = parse_data_type(json["key"]), parse_data_type(json["value"])
            return DataType(root=root, nullable=nullable, key=key, value=value)
        if root in ("ARRAY", "MULTISET", "VECTOR"):
            length = int(json["length"]) if root == "VECTOR" else None
            return DataType(root=root, nullable=nullable, element=parse_data_type(json["element"]), length=length)
    except (KeyError, TypeError) as error:
        raise CorruptDataError(f"nested type lacks a part: json={dict(json)}") from error
    raise InvalidInputError(f"unknown nested type: type={text!r}")


def parse_field(json: Mapping[str, Any]) -> DataField:
    """Parse one entry of ``fields``. Raises: CorruptDataError when id, name or type is missing."""
    try:
        others = {key: value for key, value in json.items() if key not in ("id", "name", "type", *_TEXT_KEYS)}
        return DataField(
            id=int(json["id"]),
            name=str(json["name"]),
            type=parse_data_type(json["type"]),
            description=json.get("description"),
            default_value=json.get("defaultValue"),
            initial_default=json.get("initialDefault"),
            unknown=orjson.dumps(others).decode() if others else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptDataError(f"field lacks an id, a name or a type: json={json}") from error


def walk(data_type: DataType) -> Iterator[DataType]:
    """The type and every type inside it, outermost first."""
    yield data_type
    for inner in (data_type.element, data_type.key, data_type.value, *(field.type for field in data_type.fields)):
        if inner is not None:
            yield from walk(inner)


def arrow_type(data_type: DataType) -> pa.DataType:
    """The in-memory Arrow type. Raises: InvalidInputError for unsupported types such as BLOB."""
    root = data_type.root
    if root in _ARROW_OF_ROOT:
        return _ARROW_OF_ROOT[root]
    if root == "VARIANT":
        return VARIANT_ARROW
    if root == "DECIMAL":
        return pa.decimal128(data_type.precision, data_type.scale)
    if root in TIMESTAMP_ROOTS:
        return pa.timestamp(timestamp_unit(data_type), tz="UTC" if root == "TIMESTAMP_LTZ" else None)
    if root == "ROW":
        return pa.struct([arrow_field(field) for field in data_type.fields])
    if data_type.key is not None and data_type.value is not None:
        key = pa.field("key", arrow_type(data_type.key), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(data_type.value), nullable=data_type.value.nullable))
    if root == "MULTISET" and data_type.element is not None:
        return pa.map_(
            pa.field("key", arrow_type(data_type.element), nullable=False),
            pa.field("value", pa.int32(), nullable=False),
        )
    if root == "ARRAY" and data_type.element is not None:
        return pa.list_(pa.field("element", arrow_type(data_type.element), nullable=data_type.element.nullable))
    raise InvalidInputError(f"columns of this type can be neither read nor written: type={data_type}")


def timestamp_unit(data_type: DataType) -> str:
    """Arrow unit of a TIMESTAMP or TIMESTAMP_LTZ: ``ms`` up to precision 3, ``us`` up to 6, else ``ns``."""
    precision = 6 if data_type.precision is None else data_type.precision
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def arrow_field(field: DataField) -> pa.Field:
    """The Arrow field with the same name and nullability, and the field id in Parquet's metadata key."""
    metadata = {FIELD_ID_KEY: str(field.id).encode()}
    return pa.field(field.name, arrow_type(field.type), nullable=field.type.nullable, metadata=metadata)


def parse_columns(text: str) -> pa.Schema:
    """Columns as text, ``branch string, tag_name string?``: name and Arrow's type, ``?`` where it may be null.

    ``instant`` is a time in milliseconds, UTC.
    """
    types = {"instant": pa.timestamp("ms", tz="UTC")}
    fields = []
    for name, word in map(str.split, text.split(", ")):
        kind = word.removesuffix("?")
        fields.append(pa.field(name, types.get(kind) or pa.type_for_alias(kind), nullable=kind != word))
    return pa.schema(fields)


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The Arrow schema of columns, in order."""
    return pa.schema([arrow_field(field) for field in fields])


def arrow_scalar(value: object, data_type: DataType) -> pa.Scalar:
    """An internal value (timestamps, dates and times are numbers) as an Arrow scalar of the column's type."""
    return pa.scalar(value, type=arrow_type(data_type))


def data_type_of(arrow: pa.DataType, *, nullable: bool = True) -> DataType:
    """The Paimon type of an Arrow type. ROW fields get ids from 0 by position; table schemas assign final ids.

    Raises: InvalidInputError for unsupported types, with a suggested cast.
    """
    try:
        return _type_of(arrow, nullable=nullable)
    except RecursionError:
        raise InvalidInputError("a type is nested too deeply: fix='store it as JSON in a STRING'") from None


def _type_of(arrow: pa.DataType, *, nullable: bool) -> DataType:
    atomic = _atomic_of_arrow(arrow)
    if atomic is not None:
        return replace(atomic, nullable=nullable)
    types = pa.types
    if types.is_dictionary(arrow):
        return _type_of(arrow.value_type, nullable=nullable)
    if types.is_struct(arrow):
        if (spark_root := _spark_root(arrow)) is not None:
            return DataType(root=spark_root, nullable=nullable)
        fields = tuple(
            DataField(id=index, name=field.name, type=_type_of(field.type, nullable=field.nullable))
            for index, field in enumerate(arrow)
        )
        return DataType(root="ROW", nullable=nullable, fields=fields)
    if types.is_map(arrow):
        key = _type_of(arrow.key_type, nullable=False)
        value = _type_of(arrow.item_type, nullable=arrow.item_field.nullable)
        return DataType(root="MAP", nullable=nullable, key=key, value=value)
    if is_any_list(arrow):
        element = _type_of(arrow.value_type, nullable=arrow.value_field.nullable)
        return DataType(root="ARRAY", nullable=nullable, element=element)
    raise InvalidInputError(f"no table type for this arrow type: type={arrow} fix={_cast_advice(arrow)}")


def with_stored_times(arrow: pa.DataType) -> pa.DataType:
    """The type with times of day in milliseconds, the finest that TIME holds, at any depth.

    For columns that exist already, where finer values are checked one by one when they are written.
    """
    types = pa.types
    if types.is_time64(arrow):
        return pa.time32("ms")
    if types.is_struct(arrow):
        return pa.struct([field.with_type(with_stored_times(field.type)) for field in arrow])
    if types.is_map(arrow):
        return pa.map_(
            arrow.key_field.with_type(with_stored_times(arrow.key_type)),
            arrow.item_field.with_type(with_stored_times(arrow.item_type)),
        )
    if types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(with_stored_times(arrow.value_type)))
    return arrow


_ARROW_OF_ROOT: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
}
_TEXT_KEYS: Final = ("description", "defaultValue", "initialDefault")  # the last: other engines skip it, and read null
_PLAIN_ROOTS: Final = {"BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "VARIANT", "BLOB"}
_SYNONYMS: Final = {"INTEGER": "INT", "NUMERIC": "DECIMAL", "DEC": "DECIMAL", "DOUBLE PRECISION": "DOUBLE"}
TYPE_NAMES: Final = frozenset(
    {*_PLAIN_ROOTS, *_SYNONYMS, *TEXT_ROOTS, *BYTES_ROOTS, *TIMESTAMP_ROOTS, "STRING", "BYTES", "DECIMAL", "TIME"}
)
"""Names of types that are not nested, as texts begin."""
_ATOMIC: Final = re.compile(
    r"(?P<root>[A-Z_]+(?: PRECISION)?)\s*(?:\(\s*(?P<first>\d+)\s*(?:,\s*(?P<second>\d+)\s*)?\))?"
    r"\s*(?P<zone>WITH LOCAL TIME ZONE|WITHOUT TIME ZONE)?"
)
_DEFAULT_PRECISION: Final = {"TIME": 0, "TIMESTAMP": 6, "TIMESTAMP_LTZ": 6}
_TIMESTAMP_OF_UNIT: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}

STRING: Final = DataType(root="VARCHAR", length=MAX_LENGTH)
BYTES: Final = DataType(root="VARBINARY", length=MAX_LENGTH)


def _split_nullability(text: str) -> tuple[str, bool]:
    words = " ".join(text.upper().split())
    if words.endswith(" NOT NULL"):
        return words.removesuffix(" NOT NULL"), False
    return words.removesuffix(" NULL"), True


def _parse_atomic(text: str) -> DataType:
    body, nullable = _split_nullability(text)
    if body.startswith(("GEOMETRY", "GEOGRAPHY")):
        return DataType(root=body.split("(")[0].strip(), nullable=nullable)
    match = _ATOMIC.fullmatch(body)
    if match is None:
        raise InvalidInputError(f"unknown type: type={text!r}")
    root = _SYNONYMS.get(match["root"], match["root"])
    first = int(match["first"]) if match["first"] else None
    second = int(match["second"]) if match["second"] else None
    if match["zone"] and root != "TIMESTAMP":
        raise InvalidInputError(f"unknown type: type={text!r}")
    if match["zone"] == "WITH LOCAL TIME ZONE":
        root = "TIMESTAMP_LTZ"
    data_type = _atomic(root, first, second)
    if data_type is None:
        raise InvalidInputError(f"unknown type: type={text!r}")
    return replace(data_type, nullable=nullable)


def _atomic(root: str, first: int | None, second: int | None) -> DataType | None:
    """The type with a name and parameters; None for an invalid combination."""
    if second is not None and root != "DECIMAL":
        return None
    if root in _PLAIN_ROOTS:
        return DataType(root=root) if first is None else None
    if root in ("STRING", "BYTES"):
        return (STRING if root == "STRING" else BYTES) if first is None else None
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        return DataType(root=root, length=1 if first is None else first)
    if root == "DECIMAL":
        digits, scale = 10 if first is None else first, second or 0
        return DataType(root=root, precision=digits, scale=scale) if _is_decimal(digits, scale) else None
    if root not in _DEFAULT_PRECISION:
        return None
    precision = _DEFAULT_PRECISION[root] if first is None else first
    return DataType(root=root, precision=precision) if precision <= 9 else None


def _is_decimal(precision: int, scale: int) -> bool:
    return 1 <= precision <= 38 and 0 <= scale <= precision


def _atomic_text(data_type: DataType) -> str:
    root, nulls = data_type.root, "" if data_type.nullable else " NOT NULL"
    if data_type.length == MAX_LENGTH and root in ("VARCHAR", "VARBINARY"):
        return ("STRING" if root == "VARCHAR" else "BYTES") + nulls
    if root in TEXT_ROOTS or root in BYTES_ROOTS:
        return f"{root}({data_type.length}){nulls}"
    if root == "DECIMAL":
        return f"DECIMAL({data_type.precision}, {data_type.scale}){nulls}"
    if root == "TIMESTAMP_LTZ":
        return f"TIMESTAMP({data_type.precision}) WITH LOCAL TIME ZONE{nulls}"
    if root in ("TIME", "TIMESTAMP"):
        return f"{root}({data_type.precision}){nulls}"
    return f"{root}{nulls}"


def _atomic_of_arrow(arrow: pa.DataType) -> DataType | None:
    types = pa.types
    for root, candidate in _ARROW_OF_ROOT.items():
        if arrow == candidate and root not in TEXT_ROOTS | BYTES_ROOTS | {"TIME"}:
            return DataType(root=root)
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return STRING
    if types.is_fixed_size_binary(arrow) and not types.is_decimal(arrow):
        return DataType(root="BINARY", length=arrow.byte_width)
    if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_binary_view(arrow):
        return BYTES
    if types.is_decimal(arrow) and _is_decimal(arrow.precision, arrow.scale):
        return DataType(root="DECIMAL", precision=arrow.precision, scale=arrow.scale)
    if types.is_timestamp(arrow):
        root = "TIMESTAMP" if arrow.tz is None else "TIMESTAMP_LTZ"
        return DataType(root=root, precision=_TIMESTAMP_OF_UNIT[arrow.unit])
    if types.is_time(arrow):
        return None if types.is_time64(arrow) else DataType(root="TIME", precision=0 if arrow.unit == "s" else 3)
    return DataType(root="DATE") if types.is_date64(arrow) else None


def _spark_root(arrow: pa.DataType) -> str | None:
    """VARIANT, GEOMETRY or GEOGRAPHY if Spark's metadata marks the struct as one."""
    names = {key.decode().upper() for field in arrow for key in field.metadata or {}}
    return next(iter(names & (UNSUPPORTED_ROOTS | {"VARIANT"})), None)


def is_any_list(arrow: pa.DataType) -> bool:
    """Whether an array of the type holds lists, of whatever layout; not maps."""
    types = pa.types
    layouts = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view)
    return any(layout(arrow) for layout in (*layouts, types.is_large_list_view))


def _cast_advice(arrow: pa.DataType) -> str:
    types = pa.types
    if types.is_unsigned_integer(arrow):
        wider = {8: "int16", 16: "int32", 32: "int64", 64: "decimal128(20, 0)"}[arrow.bit_width]
        return f"'cast to {wider}'"
    if types.is_float16(arrow):
        return "'cast to float32'"
    if types.is_duration(arrow) or types.is_interval(arrow):
        return "'cast the interval to a number of its units, for example int64'"
    if types.is_decimal(arrow):
        return "'cast to decimal128 with precision 1 to 38 and scale 0 to the precision'"
    if types.is_null(arrow):
        return "'give the column a type'"
    if types.is_time64(arrow):
        return "'TIME holds milliseconds: make it time32(\"ms\"), or int64 with a number of finer units'"
    return "'cast the column to a type of Paimon'"
