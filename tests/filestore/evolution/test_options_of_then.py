"""Options name columns: of an older state they are about the same columns, whatever their names are by now."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine import procedures
from engine.table import Table
from filestore.evolution.schema_change import AddColumn, RenameColumn, SchemaChange, SetOption
from filestore.schema.column_options import options_at
from filestore.types.data_types import DataField, parse_data_type
from tests.support.tables import memory_catalog

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("g", pa.int64()), ("h", pa.int64())])
SWAPPED = (RenameColumn(("a",), "x"), RenameColumn(("g",), "a"), RenameColumn(("x",), "g"))
TAKEN = (
    RenameColumn(("a",), "b"),
    AddColumn(path=("a",), type=parse_data_type("BIGINT")),
    SetOption("fields.a.aggregate-function", "max"),
)
KINDS: Mapping[str, Mapping[str, str]] = {
    "sums": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"},
    "maxima": {
        "merge-engine": "aggregation",
        "fields.a.aggregate-function": "max",
        "fields.g.aggregate-function": "min",
    },
    "sequence": {"sequence.field": "g,h"},
    "groups": {"merge-engine": "partial-update", "fields.g.sequence-group": "a", "fields.h.sequence-group": ""},
    "expiry": {"record-level.expire-time": "1 d", "record-level.time-field": "a"},
    "indexed": {"file-index.bloom-filter.columns": "a,g", "file-index.bloom-filter.a.fpp": "0.5"},
    "levels": {"sequence.field": "g", "deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
}
CHANGES: Mapping[str, tuple[SchemaChange, ...]] = {
    "all": tuple(RenameColumn((name,), f"{name}2") for name in "agh"),
    "swapped": SWAPPED,
    "one": (RenameColumn(("g",), "other"),),
}


def state_rows(table: Table, **state: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.read(**state).to_arrow().to_pylist()), key=repr)


def changes_between(table: Table, before: str, after: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.diff(before, after).to_arrow().to_pylist()), key=repr)


@pytest.mark.sweep
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_older_state_folds_its_rows_as_it_did(kind: str, change: str) -> None:
    """Rows of one key in several files, which are merged when they are read."""
    catalog = memory_catalog()
    options = {"bucket": "1", **{key: text for key, text in KINDS[kind].items() if text}}
    table = Table(catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options))
    for a, g, h in ((3, 5, 1), (4, 2, 9), (1, 5, 0), (None, 7, None)):
        table.write(pa.table({"k": [1, a or 2], "a": [a, 8], "g": [g, 1], "h": [h, 1]}, schema=SCHEMA))
    procedures.create_tag(table, "then")
    before = {state: state_rows(table, version=state) for state in ("1", "2", "3", "4", "then")}
    differences = {pair: changes_between(table, *pair) for pair in (("1", "3"), ("4", "2"), ("2", "then"))}
    newest = state_rows(table)
    catalog.alter_table("db.t", list(CHANGES[change]))
    now = Table(catalog.table("db.t"))
    assert {state: state_rows(now, version=state) for state in before} == before
    assert {pair: changes_between(now, *pair) for pair in differences} == differences
    assert state_rows(now) == newest
    now.compact(full=True)
    assert {state: state_rows(now, version=state) for state in before} == before


def test_a_name_that_another_column_has_by_now_is_not_mistaken() -> None:
    """The sum is that of the old column, though the newest one of its name is a maximum."""
    catalog = memory_catalog()
    options = {"bucket": "1", **KINDS["sums"]}
    table = Table(catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options))
    for _ in range(2):
        table.write(pa.table({"k": [1], "a": [3], "g": [0], "h": [0]}, schema=SCHEMA))
    for change in TAKEN:
        catalog.alter_table("db.t", [change])
    assert state_rows(Table(catalog.table("db.t")), snapshot_id=2) == [(1, 6, 0, 0)]
    assert state_rows(Table(catalog.table("db.t"))) == [(1, 6, 0, 0, None)]


def fields(**ids: int) -> list[DataField]:
    return [DataField(id=each, name=name, type=parse_data_type("INT")) for name, each in ids.items()]


def test_options_of_columns_that_were_not_there_are_left_out() -> None:
    options = {
        "sequence.field": "n,g", "fields.n.aggregate-function": "sum", "fields.g.sequence-group": "a,n",
        "record-level.time-field": "n", "file-index.bloom-filter.columns": "n,a",
        "file-index.bloom-filter.n.fpp": "0.1", "file-index.in-manifest-threshold": "1 b", "bucket": "1",
    }  # fmt: skip
    assert options_at(options, fields(a=1, g=2, n=3), fields(b=1, g=2)) == {
        "sequence.field": "g", "fields.g.sequence-group": "b", "file-index.bloom-filter.columns": "b",
        "file-index.in-manifest-threshold": "1 b", "bucket": "1",
    }  # fmt: skip
    assert options_at(options, fields(a=1, g=2, n=3), fields(n=3, a=1, g=2, later=4)) is options
