"""A table as the CREATE TABLE statement that creates it again."""

from collections.abc import Mapping
from typing import Final

from engine.dialect.ddl.table_parts import (
    COMMENT_PREFIX,
    WATERMARK_COLUMN,
    WATERMARK_EXPRESSION,
    TableParts,
    quoted_where_needed,
)
from engine.log.table_topic import default_names
from engine.table import Table
from filestore.options.log_place import OWN_LOG_KEYS, TOPIC_KEY
from filestore.options.rules import CHECK_PREFIX, COMPUTED_PREFIX
from filestore.options.secrets import without_secrets
from filestore.schema.schema_store import PATH_KEY
from filestore.types.data_types import MAX_LENGTH, DataField, DataType

_ESCAPES: Final = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})
_PLAIN_VALUES: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "BOOLEAN"})


def create_statement(table: Table, name: str, place: str | None = None) -> str:
    """``CREATE TABLE ...`` of a table.

    Args:
        table: the table; secrets among its options are masked.
        name: full name in the statement.
        place: its directory, where that is not in the directory of its database.
    """
    schema = table.schema
    parts = TableParts.of(schema.options)
    lines = [_column_text(field) for field in schema.fields]
    for column in parts.computed:
        lines.append(f"{quoted_where_needed(column.name)} AS {column.expression}{_comment_text(column.comment)}")
    if parts.watermark is not None:
        path = ".".join(quoted_where_needed(each) for each in parts.watermark.column.split("."))
        lines.append(f"WATERMARK FOR {path} AS {parts.watermark.expression}")
    if schema.primary_keys:
        lines.append(f"PRIMARY KEY ({_names(schema.primary_keys)}) NOT ENFORCED")
    for key, condition in sorted(schema.options.items()):
        if key.startswith(CHECK_PREFIX):
            lines.append(f"CONSTRAINT {quoted_where_needed(key.removeprefix(CHECK_PREFIX))} CHECK ({condition})")
    text = f"CREATE TABLE {name} (\n  " + ",\n  ".join(lines) + "\n)"
    if schema.comment is not None:
        text += f"\nCOMMENT {quoted_text(schema.comment)}"
    if schema.partition_keys:
        text += f"\nPARTITIONED BY ({_names(schema.partition_keys)})"
    shown = {**shown_options(table), **({} if place is None else {PATH_KEY: place})}
    options = [f"{quoted_text(key)} = {quoted_text(value)}" for key, value in shown.items()]
    return text + "\nWITH (\n  " + ",\n  ".join(options) + "\n)"


def shown_options(table: Table) -> Mapping[str, str]:
    """The options that a user may set, sorted; secrets are masked."""
    left_out = {*OWN_LOG_KEYS, WATERMARK_COLUMN, WATERMARK_EXPRESSION}
    table_id = table.options.log_transactional_id_prefix or table.name
    if table.options.log_topic not in default_names(table.name, table_id):
        left_out.remove(TOPIC_KEY)
    return without_secrets(
        {
            key: text
            for key, text in table.schema.options.items()
            if key not in left_out and not key.startswith((COMPUTED_PREFIX, COMMENT_PREFIX, CHECK_PREFIX))
        }
    )


def type_text(data_type: DataType) -> str:
    """A type in the syntax of CREATE TABLE."""
    return _plain_type(data_type) + ("" if data_type.nullable else " NOT NULL")


def quoted_text(text: str) -> str:
    """A text in quotes."""
    return f"'{text.translate(_ESCAPES)}'"


def _plain_type(data_type: DataType) -> str:
    if data_type.root == "ROW":
        return f"STRUCT<{', '.join(_field_text(field) for field in data_type.fields)}>"
    if data_type.key is not None and data_type.value is not None:
        return f"MAP<{_plain_type(data_type.key)}, {type_text(data_type.value)}>"
    if data_type.element is not None:
        return f"{data_type.root}<{type_text(data_type.element)}>"
    if data_type.root in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        return f"{data_type.root}({data_type.precision})"
    if data_type.root == "BINARY" and data_type.length == MAX_LENGTH:
        return f"BINARY({data_type.length})"
    plain = str(data_type)
    return plain.removesuffix(" NOT NULL")


def _field_text(field: DataField) -> str:
    return f"{quoted_where_needed(field.name)}: {type_text(field.type)}{_comment_text(field.description)}"


def _column_text(field: DataField) -> str:
    default = ""
    if field.default_value is not None:
        is_plain = field.type.root in _PLAIN_VALUES
        default = f" DEFAULT {field.default_value if is_plain else quoted_text(field.default_value)}"
    return f"{quoted_where_needed(field.name)} {type_text(field.type)}{default}{_comment_text(field.description)}"


def _comment_text(comment: str | None) -> str:
    return "" if comment is None else f" COMMENT {quoted_text(comment)}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(quoted_where_needed(name) for name in names)
