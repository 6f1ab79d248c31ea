"""The default of a column in a schema part, as a literal of the column's type.

Connectors publish no expression: where the database computes a default, as ``now()``, records have a stand-in, which no
row has.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from logstore.format.source.column_values import UNIT_OF_DATE, UNIT_OF_TIMESTAMP, row_plan
from logstore.json.decoding import decode_objects
from logstore.json.reading import reading_of

_COLUMN = "x"
_EPOCH: Final = re.compile(r"0|1970-01-01(T00:00(:00(\.0+)?)?)?Z?")
_MOMENTS: Final = frozenset(
    {*UNIT_OF_DATE, *UNIT_OF_TIMESTAMP, "io.debezium.time.ZonedTimestamp"}
    | {f"io.debezium.time.Iso{each}" for each in ("Date", "Timestamp")}
)
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_OF_SESSION: Final = frozenset(
    {"CURRENT_USER", "SESSION_USER", "CURRENT_ROLE", "USER", "CURRENT_CATALOG", "CURRENT_SCHEMA"}
)


def is_stand_in(part: Mapping[str, Any]) -> bool:
    """Whether the default in a schema part stands for an expression, such as ``now()``.

    Measured with Debezium 3.4: 1970 for moments, zeros for a UUID, the name of a function of the session. A literal
    1970 is taken for one of these. A sequence has 0, as many a plain column.
    """
    default, kind = str(part.get("default")), part.get("name")
    if kind in _MOMENTS:
        return _EPOCH.fullmatch(default) is not None
    if kind == "io.debezium.data.Uuid":
        return default == _NO_UUID
    return default in _OF_SESSION


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
