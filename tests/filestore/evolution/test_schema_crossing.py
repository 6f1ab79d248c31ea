"""Which changes of a schema a reader with older columns may cross: literal cases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from filestore.evolution.crossing import Crossing, crossing
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeDefault,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetComment,
    SetOption,
    apply_changes,
)
from filestore.schema.column_paths import ColumnPosition
from filestore.schema.schema_store import new_schema
from filestore.types.data_types import DataField, DataType, parse_data_type, parse_field

INT, BIGINT, STRING = (parse_data_type(text) for text in ("INT", "BIGINT", "STRING"))
POINT = {"type": "ROW", "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 0, "name": "y", "type": "INT"}]}
PRICE = "DECIMAL(10, 2)"
COLUMNS: dict[str, Any] = {
    "id": "BIGINT",
    "n": "INT",
    "price": PRICE,
    "ratio": "FLOAT",
    "word": "VARCHAR(10)",
    "must": "INT NOT NULL",
    "p": POINT,
    "l": {"type": "ARRAY", "element": POINT},
    "m": {"type": "MAP", "key": "STRING", "value": POINT},
}
FIELDS = [parse_field({"id": 0, "name": name, "type": kind}) for name, kind in COLUMNS.items()]
OPTIONS = {"bucket": "1", "alter-column-null-to-not-null.disabled": "false"}
KNOWN = new_schema(FIELDS, primary_key=["id"], options=OPTIONS, time_ms=0)


def kind(text: str) -> DataType:
    return parse_data_type(text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], Crossing()),
        # nothing of the rows is touched
        ([MoveColumn(("n",), ColumnPosition())], Crossing()),
        ([ChangeComment(("n",), "a number"), SetComment("a table"), ChangeDefault(("n",), "7")], Crossing()),
        ([SetOption("snapshot.num-retained.min", "3")], Crossing()),
        ([ChangeNullability(("n",), False)], Crossing()),
        # columns themselves are checked for nulls when they are read
        ([ChangeNullability(("must",), True)], Crossing()),
        # what is new is not shown
        ([AddColumn(path=("more",), type=INT)], Crossing(added=("more",))),
        ([AddColumn(path=("more",), type=INT, position=ColumnPosition())], Crossing(added=("more",))),
        ([AddColumn(path=("p", "z"), type=INT)], Crossing(added=("p.z",))),
        ([AddColumn(path=("l", "element", "z"), type=INT)], Crossing(added=("l.element.z",))),
        ([AddColumn(path=("m", "value", "z"), type=INT)], Crossing(added=("m.value.z",))),
        # names are followed
        ([RenameColumn(("n",), "number")], Crossing(renamed=("n -> number",))),
        ([RenameColumn(("id",), "key")], Crossing(renamed=("id -> key",))),
        ([RenameColumn(("p", "x"), "left")], Crossing(renamed=("p.x -> p.left",))),
        ([RenameColumn(("l", "element", "x"), "left")], Crossing(renamed=("l.element.x -> l.element.left",))),
        ([RenameColumn(("n",), "a"), RenameColumn(("a",), "b")], Crossing(renamed=("n -> b",))),
        # wider types are read value by value
        ([ChangeType(("n",), BIGINT)], Crossing(widened=("n INT -> BIGINT",))),
        ([ChangeType(("n",), kind("DOUBLE"))], Crossing(widened=("n INT -> DOUBLE",))),
        ([ChangeType(("ratio",), kind("DOUBLE"))], Crossing(widened=("ratio FLOAT -> DOUBLE",))),
        ([ChangeType(("word",), STRING)], Crossing(widened=("word VARCHAR(10) -> STRING",))),
        ([ChangeType(("price",), kind("DECIMAL(12, 2)"))], Crossing(widened=(f"price {PRICE} -> DECIMAL(12, 2)",))),
        ([ChangeType(("m", "value", "y"), BIGINT)], Crossing(widened=("m.value.y INT -> BIGINT",))),
        # null would be a lie
        ([DropColumn(("n",))], Crossing(dropped=("n",))),
        ([DropColumn(("p", "y"))], Crossing(dropped=("p.y",))),
        ([DropColumn(("n",)), AddColumn(path=("n",), type=INT)], Crossing(added=("n",), dropped=("n",))),
    ],
)  # fmt: skip
def test_what_a_change_is_to_a_reader(changes: Sequence[SchemaChange], expected: Crossing) -> None:
    newest = apply_changes(KNOWN, changes)
    assert crossing(KNOWN, newest, KNOWN.column_names) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (ChangeType(("n",), STRING), "column=n type=INT new_type=STRING"),
        (ChangeType(("n",), kind("SMALLINT")), "column=n type=INT new_type=SMALLINT"),
        (ChangeType(("price",), kind("DECIMAL(10, 3)")), r"column=price type=DECIMAL(10, 2) new_type=DECIMAL(10, 3)"),
        (ChangeType(("p", "x"), STRING), "column=p.x type=INT new_type=STRING"),
    ],
)
def test_another_type_is_refused(change: SchemaChange, reason: str) -> None:
    found = crossing(KNOWN, apply_changes(KNOWN, [change]), KNOWN.column_names)
    assert [each.startswith(reason) for each in found.refused] == [True]
    assert found.widened == found.dropped == ()


def test_a_dropped_column_that_is_never_null_is_refused() -> None:
    found = crossing(KNOWN, apply_changes(KNOWN, [DropColumn(("must",))]), KNOWN.column_names)
    assert found == Crossing(refused=("column=must reason='it was dropped, and is NOT NULL'",))


def test_nulls_inside_of_columns_are_refused_where_there_were_none() -> None:
    inner = DataField(id=0, name="x", type=replace(INT, nullable=False))
    known = new_schema([DataField(id=0, name="p", type=DataType(root="ROW", fields=(inner,)))], time_ms=0)
    newest = apply_changes(known, [ChangeNullability(("p", "x"), True)])
    assert crossing(known, newest, ["p"]).refused == ("column=p.x reason='it is nullable now'",)


@pytest.mark.parametrize("change", [DropColumn(("n",)), RenameColumn(("n",), "x"), ChangeType(("n",), STRING)])
def test_columns_that_are_not_read_do_not_matter(change: SchemaChange) -> None:
    assert crossing(KNOWN, apply_changes(KNOWN, [change]), ["id", "p"]) == Crossing()
