"""The default of a column in a schema part, as a literal of the column's type."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from logstore.format.source.column_values import row_plan
from logstore.json.decoding import decode_objects
from logstore.json.reading import reading_of

_COLUMN = "x"


def default_literal(part: Mapping[str, Any], data_type: pa.DataType) -> str | None:
    """The default written as text; None: it has none, or the type has no literals.

    Args:
        part: the schema part of a column.
        data_type: of the column.
    """
    default = part.get("default")
    if default is None or pa.types.is_nested(data_type) or pa.types.is_binary(data_type):
        return None
    row = {"fields": [{**part, "field": _COLUMN}]}
    plan = row_plan(row, {_COLUMN: reading_of(data_type, lenient=True)}, out_of_range="null")
    decoded = decode_objects(pa.array([json.dumps({_COLUMN: default})]), plan.reading)
    if not len(decoded.rows):
        return None
    value = plan.converted(decoded.rows).values.field(_COLUMN)
    text = value.cast(pa.string())[0].as_py()
    return None if text is None else str(text)
