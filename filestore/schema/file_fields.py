"""The columns of a data file, and their ids, down to the elements of nested ones.

Key-value files hold the primary key once more in front, then the two system columns, then the table's own columns.
Source: Paimon KeyValue.schema, SpecialFields, ParquetSchemaConverter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa

from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import FIELD_ID_KEY, DataField, DataType, arrow_type
from filestore.types.identity_cache import cached_by_identity
from lsm.row_kind import KEY_PREFIX, ROW_ID, SEQUENCE_NUMBER, VALUE_KIND

KEY_FIELD_ID_START: Final = 1_073_741_823
SEQUENCE_NUMBER_ID: Final = 2_147_483_646
VALUE_KIND_ID: Final = 2_147_483_645
ROW_ID_ID: Final = 2_147_483_642

SEQUENCE_NUMBER_COLUMN: Final = DataField(
    id=SEQUENCE_NUMBER_ID, name=SEQUENCE_NUMBER, type=DataType(root="BIGINT", nullable=False)
)
VALUE_KIND_COLUMN: Final = DataField(id=VALUE_KIND_ID, name=VALUE_KIND, type=DataType(root="TINYINT", nullable=False))

TRACKING_COLUMNS: Final = (
    DataField(id=ROW_ID_ID, name=ROW_ID, type=DataType(root="BIGINT", nullable=False)),
    SEQUENCE_NUMBER_COLUMN,
)
"""What ``row-tracking.enabled`` knows of each row: its id, and the snapshot that wrote it last."""

_NESTED_ID_START: Final = 536_870_911
_NESTED_DEPTHS: Final = 1_024  # ids of one column's elements lie this far from those of the next column


@cached_by_identity(64)  # a write of many buckets makes many files of one schema
def file_fields(
    schema: TableSchema, *, key_values: bool, thin: bool = False, tracked: bool = False
) -> tuple[DataField, ...]:
    """The columns of a data file in file order: a key-value file's, or just the table's for an append file.

    A thin key-value file does not hold the key once more. A tracked append file holds ids that its rows had before.
    """
    if not key_values:
        return (*schema.fields, *(TRACKING_COLUMNS if tracked else ()))
    keys = () if thin else _key_columns(tuple(schema.key_fields))
    return (*keys, SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, *schema.fields)


def has_id_columns(schema: TableSchema) -> bool:
    """Whether ids are among the columns of rows that are read with this schema."""
    return any(field.id == ROW_ID_ID for field in schema.fields)


def with_id_columns(schema: TableSchema) -> TableSchema:
    """The columns of rows that are read with their ids. A schema for reads: no table is stored with it."""
    return schema if has_id_columns(schema) else replace(schema, fields=(*schema.fields, *TRACKING_COLUMNS))


@lru_cache(256)
def _key_columns(fields: tuple[DataField, ...]) -> tuple[DataField, ...]:
    return tuple(
        replace(
            field,
            id=KEY_FIELD_ID_START + field.id,
            name=KEY_PREFIX + field.name,
            type=replace(field.type, nullable=False),
        )
        for field in fields
    )


def file_schema(fields: Sequence[DataField]) -> pa.Schema:
    """Arrow schema as it is written, with field ids on every level."""
    return _file_schema(tuple(fields))  # the same object, if it is a tuple


@cached_by_identity(256)
def _file_schema(fields: tuple[DataField, ...]) -> pa.Schema:
    return pa.schema([_file_field(field) for field in fields])


def _file_field(field: DataField) -> pa.Field:
    return _with_id(field.name, _file_type(field.type, field.id, 0), field.type.nullable, field.id)


def _file_type(data_type: DataType, field_id: int, depth: int) -> pa.DataType:
    """The Arrow type whose inner fields carry ids; ``depth`` counts the lists and maps around it."""
    if data_type.root == "ROW":
        return pa.struct([_file_field(field) for field in data_type.fields])
    inner_id = field_id * _NESTED_DEPTHS + depth + 1
    if data_type.root == "ARRAY" and data_type.element is not None:
        element = _file_type(data_type.element, field_id, depth + 1)
        return pa.list_(_with_id("element", element, data_type.element.nullable, _NESTED_ID_START + inner_id))
    if data_type.root in ("MAP", "MULTISET"):
        key, value = map_parts(data_type)
        return pa.map_(
            _with_id("key", _file_type(key, field_id, depth + 1), False, _NESTED_ID_START - inner_id),
            _with_id("value", _file_type(value, field_id, depth + 1), value.nullable, _NESTED_ID_START + inner_id),
        )
    return arrow_type(data_type)


def map_parts(data_type: DataType) -> tuple[DataType, DataType]:
    """Key and value type of a MAP; a MULTISET is a map of its elements to their counts."""
    if data_type.root == "MULTISET":
        assert data_type.element is not None
        return data_type.element, DataType(root="INT", nullable=False)
    assert data_type.key is not None
    assert data_type.value is not None
    return data_type.key, data_type.value


def _with_id(name: str, arrow: pa.DataType, nullable: bool, field_id: int) -> pa.Field:
    # Parquet ids are int32; a nested id of a very late column would not fit and is optional anyway.
    metadata = {FIELD_ID_KEY: str(field_id).encode()} if -(2**31) <= field_id < 2**31 else None
    return pa.field(name, arrow, nullable=nullable, metadata=metadata)


def leaf_columns(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The atomic columns inside a column, itself when it is one: Parquet path and values."""
    kind = array.type
    if pa.types.is_struct(kind):
        for index, inner in enumerate(kind):
            yield from leaf_columns(f"{path}.{inner.name}", array.field(index))
    elif pa.types.is_map(kind):
        yield from leaf_columns(f"{path}.key_value.key", array.keys)
        yield from leaf_columns(f"{path}.key_value.value", array.items)
    elif pa.types.is_list(kind):
        yield from leaf_columns(f"{path}.list.element", array.values)
    else:
        yield path, array
