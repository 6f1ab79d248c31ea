"""Changes of a table as Spark says them to its catalog, where there is no text: by declarative pipelines."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.types.spark_types import fields_of_spark
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeNullability,
    ChangeType,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
)
from filestore.schema.column_paths import ColumnPosition
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataType
from lsm.errors import InvalidInputError

SPARKS_PROPERTIES: Final = (
    "provider", "owner", "location", "external", "is_managed_location", "table_type", "collation",
)  # fmt: skip
COMMENT: Final = "comment"
BYTES_COLLATION: Final = "UTF8_BINARY"  # Spark's collation of texts, if nothing else is said
_REFUSED: Final = {
    "location": "a table stays where it is in its warehouse",
    "collation": "a table compares texts by their bytes",
}
_KINDS: Final = {
    "UpdateColumnDefaultValue": "a default is a constant: fix='write its value'",
    "ClusterBy": "a table is not clustered by columns: fix='PRIMARY KEY, or the option bucket-key'",
    "AddConstraint": "a table has CHECK constraints: fix='ALTER TABLE ... ADD CONSTRAINT name CHECK (condition)'",
    "UpdateColumnPosition": "a column is moved alone: fix='ALTER TABLE ... ALTER COLUMN a AFTER b, or FIRST'",
}


def table_changes(schema: TableSchema, changes: Sequence[Any]) -> list[SchemaChange]:
    """Spark's ``TableChange``s as Fluvial's.

    Args:
        schema: of the table; what Spark says of its key's nullability is left out: a key is never null.
        changes: objects of the JVM.

    Raises:
        InvalidInputError: a change that is done by SQL only.
    """
    return [made for each in changes for made in _made(schema, each)]


def _made(schema: TableSchema, change: Any) -> Iterator[SchemaChange]:
    kind = str(change.getClass().getSimpleName())
    match kind:
        case "SetProperty" | "RemoveProperty":
            yield from _of_property(str(change.property()), str(change.value()) if kind == "SetProperty" else None)
        case "AddColumn":
            if change.defaultValue() is not None:
                raise InvalidInputError(_KINDS["UpdateColumnDefaultValue"])
            yield AddColumn(
                path=_path(change),
                type=_type(change.dataType(), nullable=bool(change.isNullable())),
                comment=_text(change.comment()),
                position=_position(change.position()),
            )
        case "UpdateColumnType":
            yield ChangeType(_path(change), _type(change.newDataType(), nullable=True))
        case "UpdateColumnNullability":
            if _path(change)[0] not in schema.primary_keys:
                yield ChangeNullability(_path(change), bool(change.nullable()))
        case "UpdateColumnComment":
            yield ChangeComment(_path(change), _text(change.newComment()))
        case "RenameColumn":
            yield RenameColumn(_path(change), _new_name(change))
        case "DeleteColumn":
            yield DropColumn(_path(change))
        case _:
            raise InvalidInputError(
                _KINDS.get(kind, f"a table has no such change: change={kind} fix='see docs/sql.md'")
            )


def _of_property(key: str, text: str | None) -> Iterator[SchemaChange]:
    """``text``: None: it is removed."""
    if key == COMMENT:
        yield SetComment(text)
    elif key in _REFUSED and text not in (None, BYTES_COLLATION):
        raise InvalidInputError(f"{_REFUSED[key]}: {key}={text} fix='leave the clause out'")
    elif key not in SPARKS_PROPERTIES:
        yield RemoveOption(key) if text is None else SetOption(key, text)


def _new_name(change: Any) -> str:
    """Raises: InvalidInputError: Spark gives the words of ``IDENTIFIER('b')`` for a name here, not what they mean."""
    name = str(change.newName())
    if re.match(r"identifier\s*\(", name, re.I):
        raise InvalidInputError(f"the new name of a column is written out: name={name} fix='RENAME COLUMN a TO b'")
    return name


def _position(place: Any) -> ColumnPosition | None:
    if place is None:
        return None
    return ColumnPosition(str(place.column()) if str(place.getClass().getSimpleName()) == "After" else None)


def _path(change: Any) -> tuple[str, ...]:
    return tuple(map(str, change.fieldNames()))


def _type(data_type: Any, *, nullable: bool) -> DataType:
    column = {"name": "_", "type": json.loads(data_type.json()), "nullable": nullable, "metadata": {}}
    return fields_of_spark(StructType.fromJson({"type": "struct", "fields": [column]}))[0].type


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
