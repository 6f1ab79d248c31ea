"""``write.merge-schema``: what becomes of a table's schema when rows bring other columns. Literal cases, and laws."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.evolution.schema_change import AddColumn, ChangeType, SchemaChange, apply_changes
from filestore.evolution.schema_merge import MergeRules, are_numbers, merge_changes
from filestore.schema.schema_store import new_schema
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import can_cast, widens
from filestore.types.data_types import DataField, DataType, parse_data_type, parse_field
from lsm.errors import InvalidInputError

ADDS, WIDENS, CASTS = MergeRules(), MergeRules(widens=True), MergeRules(widens=True, casts=True)
POINT = {"type": "ROW", "fields": [{"id": 0, "name": "x", "type": "INT"}]}
WIDER_POINT = {"type": "ROW", "fields": [*POINT["fields"], {"id": 0, "name": "y", "type": "STRING NOT NULL"}]}  # type: ignore[misc]


def kind(json: Any) -> DataType:
    return parse_data_type(json)


def columns(**kinds: Any) -> list[DataField]:
    return [parse_field({"id": 0, "name": name, "type": each}) for name, each in kinds.items()]


def table_schema(**kinds: Any) -> TableSchema:
    return new_schema(columns(id="BIGINT", **kinds), primary_key=["id"], options={"bucket": "1"}, time_ms=0)


NESTED = table_schema(
    p=POINT, l={"type": "ARRAY", "element": POINT}, m={"type": "MAP", "key": "INT", "value": POINT}
)  # fmt: skip


@pytest.mark.parametrize(
    ("known", "given_columns", "expected"),
    [
        (table_schema(a="INT"), columns(a="INT"), []),
        (table_schema(a="INT"), columns(), []),
        (table_schema(a="INT NOT NULL"), columns(a="INT"), []),  # values tell
        (table_schema(a="INT"), columns(a="INT", b="INT NOT NULL"), [AddColumn(path=("b",), type=kind("INT"))]),
        (NESTED, columns(p=POINT), []),
        (NESTED, columns(p=WIDER_POINT), [AddColumn(path=("p", "y"), type=kind("STRING"))]),
        (NESTED, columns(p={"type": "ROW", "fields": []}), []),
        (
            NESTED,
            columns(l={"type": "ARRAY", "element": WIDER_POINT}),
            [AddColumn(path=("l", "element", "y"), type=kind("STRING"))],
        ),
        (
            NESTED,
            columns(m={"type": "MAP", "key": "INT", "value": WIDER_POINT}),
            [AddColumn(path=("m", "value", "y"), type=kind("STRING"))],
        ),
        # lengths and digits are no types of frames
        (table_schema(a="VARCHAR(3)"), columns(a="STRING"), []),
        (table_schema(a="CHAR(3)"), columns(a="STRING"), []),
        (table_schema(a="BINARY(3)"), columns(a="BYTES"), []),
        (table_schema(a="TIMESTAMP(3)"), columns(a="TIMESTAMP(6)"), []),
        (table_schema(a="BIGINT"), columns(a="SMALLINT"), []),
        (table_schema(a="DECIMAL(10, 2)"), columns(a="DECIMAL(5, 1)"), []),
        (table_schema(a="DECIMAL(10, 2)"), columns(a="SMALLINT"), []),
    ],
)
def test_new_columns_are_added_as_nullable_ones_at_the_end(
    known: TableSchema, given_columns: Sequence[DataField], expected: Sequence[SchemaChange]
) -> None:
    for rules in (ADDS, WIDENS, CASTS):
        found = merge_changes(known, given_columns, rules)
        assert found == list(expected)
        if found:
            after = apply_changes(known, found)
            assert after.column_names[: len(known.column_names)] == known.column_names
            assert merge_changes(after, given_columns, rules) == [], "what is merged is not merged again"


NO = "no type holds the values of both"
WIDENING = "set write.merge-schema.type-widening=true"
CAST = "set write.merge-schema.explicit-cast=true"


@pytest.mark.parametrize(
    ("known", "new", "widened", "cast"),
    [  # the column's type, the rows', the column's afterwards with type-widening, and with explicit-cast
        ("INT", "BIGINT", "BIGINT", "BIGINT"),
        ("TINYINT", "SMALLINT", "SMALLINT", "SMALLINT"),
        ("FLOAT", "DOUBLE", "DOUBLE", "DOUBLE"),
        ("INT", "DOUBLE", "DOUBLE", "DOUBLE"),
        ("INT", "FLOAT", "DOUBLE", "DOUBLE"),
        ("SMALLINT", "FLOAT", "FLOAT", "FLOAT"),
        ("FLOAT", "INT", "DOUBLE", "DOUBLE"),
        ("DECIMAL(10, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 2)"),
        ("DECIMAL(10, 2)", "DECIMAL(8, 4)", "DECIMAL(12, 4)", "DECIMAL(12, 4)"),
        ("INT", "DECIMAL(5, 2)", "DECIMAL(12, 2)", "DECIMAL(12, 2)"),
        ("DECIMAL(5, 2)", "BIGINT", "DECIMAL(21, 2)", "DECIMAL(21, 2)"),
        ("DECIMAL(38, 2)", "DECIMAL(38, 4)", NO, NO),
        ("BIGINT", "DOUBLE", CAST, "DOUBLE"),
        ("DOUBLE", "BIGINT", CAST, "DOUBLE"),
        ("DECIMAL(10, 2)", "DOUBLE", CAST, "DOUBLE"),
        ("INT", "STRING", CAST, "STRING"),
        ("STRING", "INT", CAST, "STRING"),
        ("VARCHAR(5)", "DATE", CAST, "VARCHAR(5)"),
        ("BYTES", "STRING", CAST, "BYTES"),
        ("STRING", "BYTES", CAST, "BYTES"),
        ("BOOLEAN", "INT", CAST, "INT"),
        ("INT", "BOOLEAN", CAST, "INT"),
        ("DATE", "TIMESTAMP(6)", CAST, "TIMESTAMP(6)"),
        ("TIMESTAMP(3)", "DATE", CAST, "TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", CAST, "TIMESTAMP(3)"),
        ("BOOLEAN", "DECIMAL(5, 2)", NO, NO),
        ("DATE", "INT", NO, NO),
        ("INT", POINT, "one is nested", "one is nested"),
        (POINT, "INT", "one is nested", "one is nested"),
    ],
)
def test_types_become_the_narrowest_that_holds_both(known: Any, new: Any, widened: str, cast: str) -> None:
    schema, rows = table_schema(a=known), columns(a=new)
    with pytest.raises(InvalidInputError, match=r"column=a type=.* given=.* write.merge-schema=true fix=") as caught:
        merge_changes(schema, rows, ADDS)
    if widened not in (NO, CAST) and not widened.startswith("one"):
        assert WIDENING in str(caught.value)
    for rules, expected in ((WIDENS, widened), (CASTS, cast)):
        if expected in (NO, CAST) or expected.startswith("one"):
            with pytest.raises(InvalidInputError, match="column=a type=") as caught:
                merge_changes(schema, rows, rules)
            assert expected in str(caught.value)
            continue
        changes = merge_changes(schema, rows, rules)
        assert changes == ([] if expected == known else [ChangeType(("a",), kind(expected))])
        after = apply_changes(schema, changes).field("a").type
        assert str(after) == expected
        assert merge_changes(table_schema(a=expected), rows, rules) == []


def test_inner_types_widen_in_place() -> None:
    wide = {"type": "ROW", "fields": [{"id": 0, "name": "x", "type": "BIGINT"}]}
    given_columns = columns(
        p=wide, l={"type": "ARRAY", "element": wide}, m={"type": "MAP", "key": "INT", "value": wide}
    )
    assert merge_changes(NESTED, given_columns, WIDENS) == [
        ChangeType(("p", "x"), kind("BIGINT")),
        ChangeType(("l", "element", "x"), kind("BIGINT")),
        ChangeType(("m", "value", "x"), kind("BIGINT")),
    ]
    with pytest.raises(InvalidInputError, match=r"column=m .*keys of a map keep their type"):
        merge_changes(NESTED, columns(m={"type": "MAP", "key": "BIGINT", "value": POINT}), WIDENS)


def test_numbers_that_are_checked_one_by_one_need_no_wider_column() -> None:
    """Python's integers come as BIGINT, whatever they are."""
    rules = MergeRules(fitting=are_numbers)
    assert merge_changes(table_schema(a="INT"), columns(a="BIGINT"), rules) == []
    with pytest.raises(InvalidInputError, match="explicit-cast"):
        merge_changes(table_schema(a="INT"), columns(a="STRING"), rules)


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="column=A existing=a"):
        merge_changes(table_schema(a="INT"), columns(A="INT"), ADDS)


ATOMIC = [
    kind(each)
    for each in (
        "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(5, 2)", "DECIMAL(20, 10)", "DECIMAL(38, 0)",
        "BOOLEAN", "STRING", "VARCHAR(5)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(6)",
        "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    )
]  # fmt: skip


@given(st.sampled_from(ATOMIC), st.sampled_from(ATOMIC))
def test_nothing_of_either_side_is_lost_by_widening(known: DataType, new: DataType) -> None:
    try:
        changes = merge_changes(table_schema(a=known.to_json()), columns(a=new.to_json()), WIDENS)
    except InvalidInputError:
        return
    for change in changes:
        assert isinstance(change, ChangeType)
        assert change.type.root == known.root or widens(known, change.type)
        assert change.type.root == new.root or widens(new, change.type)


@given(st.sampled_from(ATOMIC), st.sampled_from(ATOMIC))
def test_casts_exist_for_old_values_and_new_ones(known: DataType, new: DataType) -> None:
    try:
        changes = merge_changes(table_schema(a=known.to_json()), columns(a=new.to_json()), CASTS)
    except InvalidInputError:
        return
    after = changes[0].type if changes and isinstance(changes[0], ChangeType) else known
    assert can_cast(known, after)
    assert can_cast(new, after)
    assert merge_changes(table_schema(a=after.to_json()), columns(a=known.to_json()), CASTS) == []
    assert merge_changes(table_schema(a=after.to_json()), columns(a=new.to_json()), CASTS) == []


def test_a_part_that_does_nothing_by_itself_is_refused() -> None:
    schema = table_schema(a="INT")
    with pytest.raises(InvalidInputError, match=r"type-widening=true fix=set write.merge-schema"):
        MergeRules.of(schema.table_options, widens=True)
    assert MergeRules.of(schema.table_options) is None
    of_table = new_schema(columns(a="INT"), options={"write.merge-schema": "true"}, time_ms=0).table_options
    assert MergeRules.of(of_table) == ADDS
    assert MergeRules.of(of_table, widens=True) == WIDENS
    assert MergeRules.of(of_table, merges=False) is None
