"""A table's columns as Iceberg's: the same ids, down to the elements of nested ones; and how its rows are sorted.

The ids inside lists and maps are those in the data files.
Source: Paimon IcebergDataField; Iceberg spec "Schemas", "Sort Orders".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from filestore.format.statistics import FLOAT_ROOTS
from filestore.schema.file_fields import file_schema
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import FIELD_ID_KEY, TEXT_ROOTS, TIMESTAMP_ROOTS, DataField, DataType
from filestore.types.identity_cache import cached_by_identity
from lsm.errors import InvalidInputError

FIRST_PARTITION_ID: Final = 1_000
KEY_ORDER_ID: Final = 1
UNSORTED: Final[Mapping[str, Any]] = {"order-id": 0, "fields": []}
_PLAIN: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DATE": "date",
    "BINARY": "binary",
    "VARBINARY": "binary",
}


@dataclass(frozen=True, eq=False)
class IcebergColumns:
    """The columns of one schema version, and how its files are partitioned and sorted."""

    schema_json: dict[str, Any]
    spec_json: dict[str, Any]
    order_json: Mapping[str, Any]  # of every file that readers see
    schema: Schema
    spec: PartitionSpec
    last_column_id: int


@cached_by_identity(64)
def iceberg_columns(table: TableSchema, version: int) -> IcebergColumns:
    """The columns of a schema version.

    Args:
        table: its stored schema.
        version: of Iceberg's format, 2 or 3.

    Raises:
        InvalidInputError: a column has a type that this version of Iceberg has not.
    """
    fields = [
        _field(field, stored, version)
        for field, stored in zip(table.fields, file_schema(tuple(table.fields)), strict=True)
    ]
    ids = {field.name: field.id for field in table.fields}
    partition = [
        {"name": name, "transform": "identity", "source-id": ids[name], "field-id": FIRST_PARTITION_ID + index}
        for index, name in enumerate(table.partition_keys)
    ]
    schema_json = {"type": "struct", "schema-id": table.id, "fields": fields}
    spec_json = {"spec-id": 0, "fields": partition}
    schema = Schema.model_validate(schema_json)
    return IcebergColumns(
        schema_json=schema_json,
        spec_json=spec_json,
        order_json=_key_order(table),
        schema=schema,
        spec=PartitionSpec.model_validate(spec_json),
        last_column_id=max(schema.highest_field_id, 0),
    )


def _key_order(table: TableSchema) -> Mapping[str, Any]:
    """Files are sorted by the key, up to the first float: Iceberg has a NaN with a sign first, Paimon all NaNs last."""
    fields = takewhile(lambda field: field.type.root not in FLOAT_ROOTS, table.key_fields)
    order = [
        {"transform": "identity", "source-id": field.id, "direction": "asc", "null-order": "nulls-first"}
        for field in fields
    ]
    return {"order-id": KEY_ORDER_ID, "fields": order} if order else UNSORTED


def timestamp_scale(data_type: DataType) -> int:
    """What turns a stored timestamp into Iceberg's unit: 1000 for milliseconds, which Iceberg has not."""
    return 1_000 if data_type.root in TIMESTAMP_ROOTS and (data_type.precision or 0) <= 3 else 1


def _field(field: DataField, stored: pa.Field, version: int) -> dict[str, Any]:
    shown = {
        "id": field.id,
        "name": field.name,
        "required": not field.type.nullable,
        "type": _type(field.type, stored.type, version, field.name),
    }
    return shown if field.description is None else {**shown, "doc": field.description}


def _type(kind: DataType, stored: pa.DataType, version: int, column: str) -> Any:
    """Iceberg's type. ``stored`` is the Arrow type in data files, whose inner fields have their ids."""
    if kind.root in _PLAIN:
        return _PLAIN[kind.root]
    if kind.root in TEXT_ROOTS:
        return "string"
    if kind.root == "DECIMAL":
        return f"decimal({kind.precision}, {kind.scale})"
    if kind.root in TIMESTAMP_ROOTS:
        name = "timestamp" if kind.root == "TIMESTAMP" else "timestamptz"
        if (kind.precision or 0) <= 6:
            return name
        if version >= 3:
            return f"{name}_ns"
    if kind.root == "ROW":
        fields = [_field(inner, each, version) for inner, each in zip(kind.fields, stored, strict=True)]
        return {"type": "struct", "fields": fields}
    if kind.root == "ARRAY" and kind.element is not None:
        return {
            "type": "list",
            "element-id": _id(stored.value_field, column),
            "element-required": not kind.element.nullable,
            "element": _type(kind.element, stored.value_type, version, column),
        }
    if kind.root == "MAP" and kind.key is not None and kind.value is not None:
        return {
            "type": "map",
            "key-id": _id(stored.key_field, column),
            "key": _type(kind.key, stored.key_type, version, column),
            "value-id": _id(stored.item_field, column),
            "value-required": not kind.value.nullable,
            "value": _type(kind.value, stored.item_type, version, column),
        }
    raise InvalidInputError(
        f"a column has no Iceberg type: column={column} type={kind} metadata.iceberg.format-version={version} "
        "fix='set metadata.iceberg.storage=disabled, or change the type of the column'"
    )


def _id(field: pa.Field, column: str) -> int:
    given = (field.metadata or {}).get(FIELD_ID_KEY)
    if given is None:
        raise InvalidInputError(f"a nested column is too late to have ids in files: column={column}")
    return int(given)
