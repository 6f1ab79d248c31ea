"""System tables of a table's definition: schemas, options, aggregate functions of columns."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from filestore.options.secrets import without_secrets
from filestore.schema.row_counts import seen_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.system_tables.history import table_of
from filestore.system_tables.json_columns import json_text
from filestore.system_tables.system_table import SystemTable
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.data_types import parse_columns

_SCHEMAS: Final = parse_columns(
    "schema_id int64, fields string, partition_keys string, primary_keys string, options string, comment string?, "
    "update_time instant"
)


def _schemas(store: TableStore, _: Snapshot | None) -> pa.Table:
    rows = [
        {
            "schema_id": each.id,
            "fields": json_text([field.to_json() for field in each.fields]),
            "partition_keys": json_text(list(each.partition_keys)),
            "primary_keys": json_text(list(each.primary_keys)),
            "options": json_text(without_secrets(each.options)),
            "comment": each.comment,
            "update_time": each.time_ms,
        }
        for each in (seen_schema(store.schemas.read(schema_id)) for schema_id in store.schemas.ids())
    ]
    return table_of(rows, _SCHEMAS)


_OPTIONS: Final = parse_columns("key string, value string, source string")


def _options(store: TableStore, _: Snapshot | None) -> pa.Table:
    options = TableView(store).schema.options
    stored = store.schemas.latest()
    known: Mapping[str, str] = {} if stored is None else stored.options
    rows = [
        {"key": key, "value": value, "source": "table" if known.get(key) == options[key] else "reader"}
        for key, value in without_secrets(options).items()
    ]
    return table_of(rows, _OPTIONS)


_AGGREGATION_FIELDS: Final = parse_columns(
    "field_name string, field_type string, function string?, function_options string?, comment string?"
)
_FUNCTION: Final = ".aggregate-function"
_DEFAULT_FUNCTION: Final = "fields.default-aggregate-function"


def _aggregation_fields(store: TableStore, _: Snapshot | None) -> pa.Table:
    table = TableView(store)
    texts = table.options.shown()
    rows: list[dict[str, Any]] = []
    for field in table.schema.fields:
        prefix = f"fields.{field.name}"
        given = {key: value for key, value in texts.items() if key.startswith(f"{prefix}.")}
        is_folded = field.name not in table.schema.primary_keys and table.options.merge_engine == "aggregation"
        default = texts.get(_DEFAULT_FUNCTION) if is_folded else None
        rest = {key: value for key, value in sorted(given.items()) if key != prefix + _FUNCTION}
        rows.append(
            {
                "field_name": field.name,
                "field_type": str(field.type),
                "function": given.get(prefix + _FUNCTION, default),
                "function_options": json_text(rest) if rest else None,
                "comment": field.description,
            }
        )
    return table_of(rows, _AGGREGATION_FIELDS)


SCHEMAS: Final = SystemTable(name="schemas", doc="Every version of the schema.", schema=_SCHEMAS, rows=_schemas)
OPTIONS_TABLE: Final = SystemTable(
    name="options", doc="The options that are set, and where.", schema=_OPTIONS, rows=_options
)
AGGREGATION_FIELDS: Final = SystemTable(
    name="aggregation_fields",
    doc="The function that folds each column.",
    schema=_AGGREGATION_FIELDS,
    rows=_aggregation_fields,
)
