"""Laws of deletes whose row has only its key: what the connector writes for the other columns is no value of the row.

The records are those of Debezium 3.4 for a table of PostgreSQL with REPLICA IDENTITY DEFAULT.
"""

import json
from typing import Any, Final

import pyarrow as pa
import pytest

from logstore.format.debezium import DecodedChanges, PartialDeletes, decode_envelopes
from logstore.format.source.unavailable import is_blank
from lsm.row_kind import RowKind

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int32()),
        ("a", pa.int32()),
        ("t", pa.string()),
        ("u", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(9, 2)),
        ("n", pa.int32()),
        ("b", pa.bool_()),
        ("f", pa.float64()),
        ("e", pa.date32()),
        ("by", pa.binary()),
        ("l", pa.list_(pa.int32())),
    ]
)
_PRICE: Final = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}, "default": "Arw="}
_FIELDS: Final = [
    {"field": "id", "type": "int32"},
    {"field": "a", "type": "int32"},
    {"field": "t", "type": "string"},
    {"field": "u", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "d", "type": "bytes", **_PRICE},
    {"field": "n", "type": "int32", "optional": True},
    {"field": "b", "type": "boolean"},
    {"field": "f", "type": "double"},
    {"field": "e", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "by", "type": "bytes"},
    {"field": "l", "type": "array", "items": {"type": "int32", "optional": True}},
]
FILLED: Final[dict[str, Any]] = {
    "id": 1, "a": 0, "t": "", "u": "1970-01-01T00:00:00Z", "d": "Arw=", "n": None, "b": False, "f": 0.0, "e": 0,
    "by": "", "l": [],
}  # fmt: skip
WHOLE: Final = {**FILLED, "a": 5}
ONLY_ID: Final = {**dict.fromkeys(SCHEMA.names), "id": 1}


def _event(before: dict[str, Any], *, with_part: bool = True) -> str:
    payload = {"before": before, "after": None, "op": "d"}
    if not with_part:
        return json.dumps(payload)
    sides = [{"field": side, "type": "struct", "fields": _FIELDS, "optional": True} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": sides}, "payload": payload})


def _key(**values: Any) -> str:
    part = {"type": "struct", "fields": [{"field": name, "type": "int32"} for name in values]}
    return json.dumps({"schema": part, "payload": values})


def _decoded(
    *records: tuple[str | None, str | None], rule: PartialDeletes, schema: pa.Schema = SCHEMA, names: Any = ()
) -> DecodedChanges:
    keys, values = (pa.array([None if each is None else each.encode() for each in side], pa.binary()) for side in zip(
        *records, strict=True
    ))  # fmt: skip
    return decode_envelopes(values, schema=schema, keys=keys, key_names=names, on_error="collect", partial_deletes=rule)


@pytest.mark.parametrize("names", [(), ("id",)])
def test_what_was_not_logged_is_null_and_not_the_zero_of_its_type(names: tuple[str, ...]) -> None:
    """The key is known by the record's key or by its columns' names; the row that was logged stays as it is."""
    found = _decoded((_key(id=1), _event(FILLED)), (_key(id=1), _event(WHOLE)), rule="null", names=names)
    first, second = found.rows.to_pylist()
    assert first == ONLY_ID
    assert (second["a"], second["t"], second["b"], second["l"]) == (5, "", False, [])
    assert found.kinds.to_pylist() == [RowKind.DELETE, RowKind.DELETE]


def test_without_a_schema_part_the_zero_of_a_type_stands_for_what_was_not_logged() -> None:
    """A default of the source is not known there: its column is taken for a value, and so is the row."""
    narrow = pa.schema([each for each in SCHEMA if each.name != "d"])
    rest = {name: value for name, value in FILLED.items() if name != "d"}
    for event, schema, is_bare in ((rest, narrow, True), (FILLED | {"d": "7.00"}, SCHEMA, False)):
        found = _decoded(('{"id": 1}', _event(event, with_part=False)), rule="null", schema=schema)
        assert (found.rows.to_pylist()[0]["t"] is None) is is_bare


@pytest.mark.parametrize("key", [None, '"1"', "1", "[1]", "no json", '{"other": 1}'])
def test_a_row_stays_where_its_key_is_not_known(key: str | None) -> None:
    found = _decoded((key, _event(FILLED)), rule="null")
    assert found.rows.to_pylist()[0]["t"] == ""


def test_a_row_that_is_all_key_lacks_nothing() -> None:
    schema = pa.schema([("id", pa.int32()), ("a", pa.int32())])
    found = _decoded((_key(id=0, a=0), _event({"id": 0, "a": 0})), rule="fail", schema=schema)
    assert (found.rows.to_pylist(), found.bad) == ([{"id": 0, "a": 0}], ())


def test_where_the_values_are_needed_such_a_delete_is_a_bad_record() -> None:
    """With its row, without it, and as a tombstone alone; a delete with its values is none, nor is its tombstone."""
    keyed = json.dumps({"before": None, "after": None, "op": "d"})
    records = [
        (_key(id=1), _event(FILLED)), (_key(id=2), keyed), (_key(id=3), None), (_key(id=4), _event(WHOLE)),
        (_key(id=4), None),
    ]  # fmt: skip
    found = _decoded(*records, rule="fail", names=("id",))
    assert [each.index for each in found.bad] == [0, 1, 2]
    assert all("REPLICA IDENTITY FULL" in each.reason for each in found.bad)
    assert [row["a"] for row in found.rows.to_pylist()] == [5]
    kept = _decoded(*records, rule="keep", names=("id",))
    assert ([each["t"] for each in kept.rows.to_pylist()], kept.bad) == (["", None, None, ""], ())


@pytest.mark.parametrize(
    ("blank", "value", "kind"),
    [
        (["", "0", "0.00", "00:00:00Z", "1970-01-01T00:00:00Z", "P0Y0M0DT0H0M0S", "{}", "[]"], "x", pa.string()),
        ([b"", b"\0\0"], b"\0\1", pa.binary()),
        ([{"x": 0, "y": ""}], {"x": 0, "y": "1"}, pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ([[]], [("a", 1)], pa.map_(pa.string(), pa.int32())),
        ([[]], [0], pa.list_(pa.int8())),
        ([0], 1, pa.time32("ms")),
        ([0.0, -0.0], float("nan"), pa.float32()),
    ],
)
def test_the_zero_of_each_type_is_blank(blank: list[Any], value: Any, kind: pa.DataType) -> None:
    found = is_blank(pa.array([None, *blank, value], kind))
    assert found.tolist() == [True] * (len(blank) + 1) + [False]
    assert is_blank(pa.array([value, None], kind).slice(1)).tolist() == [True]
