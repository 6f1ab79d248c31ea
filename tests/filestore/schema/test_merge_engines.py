"""From options to merge functions: what is in force, and what is refused before rows wait for it."""

from typing import Any

import pyarrow as pa
import pytest

from filestore.evolution.schema_change import SetOption
from filestore.schema.merge_engine import merge_function
from filestore.table import FileTable
from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.errors import InvalidInputError
from lsm.merge.partial_update import PartialUpdate
from tests.support.tables import memory_catalog

ROW = pa.struct([("id", pa.int64()), ("at", pa.string())])
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("f", pa.bool_()),
        ("b", pa.binary()),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("rows", pa.list_(ROW)),
        ("timed", pa.map_(pa.string(), ROW)),
    ]
)
AGGREGATION = {"merge-engine": "aggregation"}
PARTIAL = {"merge-engine": "partial-update"}


def table_with(options: dict[str, str]) -> FileTable:
    return memory_catalog().create_table("db.t", SCHEMA, primary_key=["k"], options=options)


@pytest.mark.parametrize(
    ("column", "function", "more", "text"),
    [
        ("s", "sum", {}, "only numbers"),
        ("s", "product", {}, "only numbers"),
        ("x", "count", {}, "only integer columns"),
        ("l", "max", {}, "only orderable types"),
        ("rows", "min", {}, "only orderable types"),
        ("n", "bool_and", {}, "only BOOLEAN"),
        ("n", "listagg", {}, "only strings"),
        ("m", "collect", {}, "only arrays"),
        ("l", "merge_map", {}, "only maps"),
        ("m", "merge_map_with_keytime", {}, "only maps of rows"),
        ("timed", "merge_map_with_keytime", {"ts-field": "id"}, "the time column of nested rows must be STRING"),
        ("timed", "merge_map_with_keytime", {"ts-field": "when"}, "nested rows lack a column: ts-field=when"),
        ("l", "nested_update", {}, "only ARRAY<ROW>"),
        (
            "rows",
            "nested_update",
            {"nested-key": "id,no"},
            r"nested rows lack a column: nested-key=id,no missing=\['no'\]",
        ),
        ("rows", "nested_partial_update", {}, "set fields.<column>.nested-key"),
        ("s", "rbm32", {}, "only VARBINARY"),
        ("s", "theta_sketch", {}, "only VARBINARY"),
        ("n", "median", {}, "unknown aggregate function"),
    ],
)
def test_a_function_that_does_not_fit_its_column_is_refused_when_the_table_is_made(
    column: str, function: str, more: dict[str, str], text: str
) -> None:
    """FL-186: else the first merge would fail, and the table could not be read any more."""
    options = {f"fields.{column}.{key}": value for key, value in {"aggregate-function": function, **more}.items()}
    with pytest.raises(InvalidInputError, match=text):
        table_with(AGGREGATION | options)
    catalog = memory_catalog()
    catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=AGGREGATION)
    with pytest.raises(InvalidInputError, match=text):
        catalog.alter_table("db.t", [SetOption(key, value) for key, value in options.items()])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            AGGREGATION | {"aggregation.remove-record-on-delete": "true", "fields.n.ignore-retract": "true"},
            "cannot both remove the row and be ignored",
        ),
        (
            PARTIAL
            | {"fields.n.sequence-group": "s", "ignore-delete": "true"}
            | {"partial-update.remove-record-on-sequence-group": "n"},
            "cannot both remove the row and be ignored",
        ),
        (PARTIAL | {"fields.n.aggregate-function": "sum"}, "needs a sequence group"),
        (PARTIAL | {"fields.default-aggregate-function": "max"}, "needs a sequence group"),
    ],
)
def test_options_that_java_refuses_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        table_with(options)


def test_every_option_of_a_function_arrives() -> None:
    """Options fields.<column>.*."""
    options: dict[str, Any] = {
        "fields.default-aggregate-function": "last_value",
        "fields.rows.aggregate-function": "nested_update",
        "fields.rows.nested-key": "id, at",
        "fields.rows.count-limit": "7",
        "fields.timed.aggregate-function": "merge_map_with_keytime",
        "fields.timed.ts-field": "at",
        "fields.s.aggregate-function": "listagg",
        "fields.s.list-agg-delimiter": "; ",
        "fields.s.distinct": "true",
        "fields.s.ignore-retract": "true",
        "sequence.field": "n",
    }
    table = table_with(AGGREGATION | options)
    merge = merge_function(table.schema, table.options)
    assert isinstance(merge, Aggregation)
    fields = merge.fields
    assert fields["x"] == FieldAggregate(function="last_value")
    assert fields["rows"] == FieldAggregate(function="nested_update", nested_key=("id", "at"), count_limit=7)
    assert fields["timed"] == FieldAggregate(function="merge_map_with_keytime", time_field="at")
    assert fields["s"] == FieldAggregate(function="listagg", delimiter="; ", distinct=True, ignore_retract=True)
    assert not {"k", "n"} & set(fields), "the key stays, the sequence is the newest"


def test_the_default_function_is_for_members_of_sequence_groups_too() -> None:
    """FL-187, as in Java: not for the sequence itself."""
    groups = {"fields.n.sequence-group": "x,s", "fields.f.sequence-group": "b,l,m,rows,timed"}
    table = table_with(
        PARTIAL | groups | {"fields.default-aggregate-function": "first_value", "fields.x.aggregate-function": "sum"}
    )
    merge = merge_function(table.schema, table.options)
    assert isinstance(merge, PartialUpdate)
    assert {name: each.function for name, each in merge.aggregates.items()} == {
        **dict.fromkeys(["s", "b", "l", "m", "rows", "timed"], "first_value"),
        "x": "sum",
    }
    columns = {"k": [1], "n": [1], "x": [1.0], "s": ["a"]}
    table.write(pa.table(columns))
    table.write(pa.table(columns | {"n": [2], "s": ["b"]}))
    assert table.read().to_arrow(columns=["n", "x", "s"]).to_pylist() == [{"n": 2, "x": 2.0, "s": "a"}]
