"""Filters: what SQL text means, what rows pass, what statistics rule out."""

import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.format.statistics import ColumnRange, column_range, truncate_range
from filestore.predicate.evaluation import filter_mask, like_prefix, may_match, to_arrow
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import (
    And,
    Compare,
    CompareOp,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    and_all,
    columns_of,
    conjuncts,
    equal_values,
    on_columns_only,
)
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType, arrow_schema, arrow_type
from lsm.errors import InvalidInputError
from tests.support.samples import ATOMIC, outcome, random_predicate, random_rows, schema_of, table_of

ALL = schema_of(ATOMIC)
SEEDS = st.integers(0, 2**32 - 1)


def _sale(name: str, data_type: DataType, number: int) -> DataField:
    return DataField(id=number, name=name, type=data_type)


ROW = DataType(
    root="ROW",
    fields=(
        _sale("b", DataType(root="INT"), 101),
        _sale("inner", DataType(root="ROW", fields=(_sale("c", DataType(root="DOUBLE"), 103),)), 102),
    ),
)
SALES = TableSchema(
    id=0,
    fields=tuple(
        _sale(name, data_type, number)
        for number, (name, data_type) in enumerate(
            {
                "id": DataType(root="INT"),
                "tiny": DataType(root="TINYINT"),
                "amount": DataType(root="DECIMAL", precision=10, scale=2),
                "name": DataType(root="VARCHAR", length=2**31 - 1),
                "day": DataType(root="DATE"),
                "ts": DataType(root="TIMESTAMP", precision=6),
                "ltz": DataType(root="TIMESTAMP_LTZ", precision=3),
                "clock": DataType(root="TIME", precision=3),
                "price": DataType(root="DOUBLE"),
                "ratio": DataType(root="FLOAT"),
                "paid": DataType(root="BOOLEAN"),
                "raw": DataType(root="VARBINARY", length=10),
                "a": ROW,
                "odd name": DataType(root="INT"),
            }.items()
        )
    ),
    highest_field_id=103,
    partition_keys=(),
    primary_keys=(),
    options={},
    time_ms=0,
)


def compare(column: str, op: str, value: object, *path: str) -> Compare:
    return Compare(column=column, op=CompareOp(op), value=value, path=path)


def never(column: str) -> In:
    return In(column=column, values=())


TEXTS: dict[str, Predicate] = {
    "id > 5": compare("id", ">", 5),
    "5 < id": compare("id", ">", 5),
    "id == 5": compare("id", "=", 5),
    "id != 5": Not(part=compare("id", "=", 5)),
    "ID = -5": compare("id", "=", -5),
    "id = 10L": compare("id", "=", 10),
    "id = '7'": compare("id", "=", 7),
    "`odd name` = 1": compare("odd name", "=", 1),
    "id > 1.5": compare("id", ">", 1),
    "id >= 1.5": compare("id", ">=", 2),
    "id < 1.5": compare("id", "<", 2),
    "id <= -1.5": compare("id", "<=", -2),
    "id = 1.5": never("id"),
    "id <> 1.5": Not(part=never("id")),
    "id < 1e300": Not(part=never("id")),
    "id > double('NaN')": never("id"),
    "id <= double('NaN')": Not(part=never("id")),
    "id > double('-Infinity')": Not(part=never("id")),
    "tiny = 300": never("tiny"),
    "tiny < 128": Not(part=never("tiny")),
    "tiny <= 127": Not(part=never("tiny")),
    "tiny < -128": never("tiny"),
    "tiny >= -128": Not(part=never("tiny")),
    "amount = 1.5": compare("amount", "=", Decimal("1.50")),
    "amount > 1.005": compare("amount", ">", Decimal("1.00")),
    "amount >= 1.005": compare("amount", ">=", Decimal("1.01")),
    "amount = 1.5BD": compare("amount", "=", Decimal("1.50")),
    "amount < 123456789012": Not(part=never("amount")),
    "amount between 1 and 2.5": And(
        parts=(compare("amount", ">=", Decimal("1.00")), compare("amount", "<=", Decimal("2.50")))
    ),
    "amount not between 1 and 2": Not(
        part=And(parts=(compare("amount", ">=", Decimal("1.00")), compare("amount", "<=", Decimal("2.00"))))
    ),
    "name = 'it''s'": compare("name", "=", "it's"),
    "name = 'it' 's'": compare("name", "=", "its"),
    "name = 'a\\'b'": compare("name", "=", "a'b"),
    'name = "x"': compare("name", "=", "x"),
    "name like 'ab%'": StartsWith(column="name", prefix="ab"),
    "name like 'ab'": compare("name", "=", "ab"),
    "name like 'a_b%'": Like(column="name", pattern="a_b%"),
    "name not like '%b'": Not(part=Like(column="name", pattern="%b")),
    "name like 'a\\\\%%'": StartsWith(column="name", prefix="a%"),
    "name like 'a!%!!_' escape '!'": Like(column="name", pattern="a\\%!_"),
    "name not like 'a%' escape '!'": Not(part=StartsWith(column="name", prefix="a")),
    "name like null": Constant(outcome=None),
    "day = '2024-02-29'": compare("day", "=", 19782),
    "day >= date '1969-12-31'": compare("day", ">=", -1),
    "day = cast('2024-2-29' as date)": compare("day", "=", 19782),
    "day > timestamp '1970-01-01 12:00:00'": compare("day", ">", 0),
    "day < timestamp '1970-01-01 12:00:00'": compare("day", "<", 1),
    "ts = '1970-01-01 00:00:01.5'": compare("ts", "=", 1_500_000),
    "ts > timestamp_ntz '1970-01-02'": compare("ts", ">", 86_400_000_000),
    "ts < '1970-01-01 00:00:00.0000015'": compare("ts", "<", 2),
    "ts = '1970-01-01T00:00:00+01:00'": compare("ts", "=", -3_600_000_000),
    "ltz = timestamp '1970-01-01 00:00:00.001Z'": compare("ltz", "=", 1),
    "ltz >= '1970-01-01 00:00:00.0005'": compare("ltz", ">=", 1),
    "ts > date '1970-01-02'": compare("ts", ">", 86_400_000_000),
    "clock < '01:02:03.004'": compare("clock", "<", 3_723_004),
    "price > 1": compare("price", ">", 1.0),
    "price = double('nan')": compare("price", "=", math.nan),
    "price < '1.5'": compare("price", "<", 1.5),
    "ratio = 0.1": compare("ratio", "=", 0.1),
    "paid": compare("paid", "=", True),
    "not paid": Not(part=compare("paid", "=", True)),
    "paid = 'false'": compare("paid", "=", False),
    "paid is true": And(parts=(Not(part=IsNull(column="paid")), compare("paid", "=", True))),
    "raw = X'01FF'": compare("raw", "=", b"\x01\xff"),
    "a.b = 1": compare("a", "=", 1, "b"),
    "a.inner.c is null": IsNull(column="a", path=("inner", "c")),
    "a is not null": Not(part=IsNull(column="a")),
    "id is null or price is not null": Or(parts=(IsNull(column="id"), Not(part=IsNull(column="price")))),
    "id in (1, 2.5, '3', null)": In(column="id", values=(1, 3), has_null=True),
    "id not in (1)": Not(part=In(column="id", values=(1,))),
    "id = null": Constant(outcome=None),
    "id between 1 and null": And(parts=(compare("id", ">=", 1), Constant(outcome=None))),
    "id <=> null": IsNull(column="id"),
    "id <=> 1": And(parts=(Not(part=IsNull(column="id")), compare("id", "=", 1))),
    "id is distinct from 1": Not(part=And(parts=(Not(part=IsNull(column="id")), compare("id", "=", 1)))),
    "1 = 1": Constant(outcome=True),
    "true and (id = 1)": And(parts=(Constant(outcome=True), compare("id", "=", 1))),
    "id = 1 and id = 2 and id = 3": And(parts=tuple(compare("id", "=", each) for each in (1, 2, 3))),
    "id = 1 -- a note": compare("id", "=", 1),
}


@pytest.mark.parametrize("text", TEXTS)
def test_text_means_what_spark_means_by_it(text: str) -> None:
    """FL-181: conditions are typed by the columns that they are about."""
    assert _without_nan(parse_filter(text, SALES)) == _without_nan(TEXTS[text])


def _without_nan(predicate: Predicate) -> Predicate:
    if isinstance(predicate, Compare) and predicate.value != predicate.value:
        return compare(predicate.column, predicate.op, "NaN")
    return predicate


WRONG = {
    "amout > 5": ("unknown column", "did_you_mean=['amount']", ">>>amout<<< > 5"),
    "id = 1 and a.bb = 2": ("unknown field", "did_you_mean=['b']", "id = 1 and a.>>>bb<<< = 2"),
    "id.x = 1": ("only ROW columns have fields", "column=id", ">>>x<<<"),
    "id = 5 and": ("not valid SQL", "a part is missing", ">>>and<<<"),
    "(id = 5": ("not valid SQL", "Expecting )", ">>>5<<<"),
    "name = 'x": ("not valid SQL", "filter=name = 'x"),
    "": ("not valid SQL",),
    "id = name": ("a non-literal", "sql='name'", "id = >>>name<<<"),
    "name = 5": ("a text is compared with something else", "quote the literal", ">>>name = 5<<<"),
    "id = 'five'": ("text is not a number", "'five'"),
    "day = 'yesterday'": ("not a date or timestamp", "'yesterday'"),
    "day = '2023-02-29'": ("no such day", "'2023-02-29'"),
    "ts = '2023-01-01 24:00:00'": ("no such time of day",),
    "day = 5": ("point in time is compared with something else", "'2024-01-31'"),
    "paid = 1": ("boolean is compared", "TRUE or FALSE"),
    "a = 1": ("not orderable", "IS NULL"),
    "id": ("only a boolean column", "column=id"),
    "cast(id as string) = '5'": ("cannot be cast", "cast the literal instead"),
    "id in (select 1)": ("subqueries",),
    "id + 1 = 5": ("a non-literal", "id + 1"),
    "upper(name) = 'A'": ("a non-literal", "UPPER(name)"),
    "name rlike 'a'": ("not supported in filters", "RLIKE"),
    "id = 1; drop table x": ("not supported in filters",),
    "select 1": ("not supported in filters", "SELECT 1"),
    "id like 'a%'": ("LIKE compares a text column", "column=id"),
    "name like 'a\\\\'": ("ESCAPE must stand before",),
    "name like 'ab' escape 'xy'": ("ESCAPE takes one character",),
    "exists (select 1)": ("not supported in filters",),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_filter_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_filter(text, SALES)
    for part in WRONG[text]:
        assert part in str(caught.value)


def test_a_name_in_another_case_must_fit_one_column() -> None:
    schema = schema_of({"A": pa.int32(), "a": pa.int32(), "B": pa.int32()})
    assert parse_filter("a = 1", schema) == compare("a", "=", 1)
    assert parse_filter("b = 1", schema) == compare("B", "=", 1)
    with pytest.raises(InvalidInputError, match="ambiguous"):
        parse_filter("AA = 1 or A.x = 2", schema_of({"Aa": pa.int32(), "aA": pa.int32()}))


# ---- rows


@pytest.mark.sweep
@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS)
def test_rows_pass_as_in_three_valued_logic(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, ALL, rng.choice([0, 1, 20]))
    table = table_of(ALL, rows)
    predicate = random_predicate(rng, ALL)
    expected = [outcome(predicate, row) for row in _as_stored(rows)]
    [batch] = table.combine_chunks().to_batches() or [table.schema.empty_table().to_batches() or _empty(table)]
    assert filter_mask(predicate, batch).to_pylist() == expected
    kept = table.filter(to_arrow(predicate, ALL))
    assert kept.num_rows == expected.count(True)


def _empty(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)


def _as_stored(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """FLOAT columns keep 32 bits of what was given."""
    return [
        {name: pa.scalar(value, pa.float32()).as_py() if name == "f32" else value for name, value in row.items()}
        for row in rows
    ]


def test_nan_is_the_greatest_and_equals_itself() -> None:
    column = pa.array([1.0, math.nan, None, -0.0, math.inf])
    rows = pa.RecordBatch.from_arrays([column], ["x"])
    schema = schema_of({"x": pa.float64()})
    for text, expected in {
        "x > 1": [False, True, None, False, True],
        "x = double('NaN')": [False, True, None, False, False],
        "x >= double('NaN')": [False, True, None, False, False],
        "x < double('NaN')": [True, False, None, True, True],
        "x <= double('NaN')": [True, True, None, True, True],
        "x > double('NaN')": [False, False, None, False, False],
        "x <> double('NaN')": [True, False, None, True, True],
        "x = 0": [False, False, None, True, False],
        "x in (double('NaN'), 0)": [False, True, None, True, False],
        "x not in (1, null)": [False, None, None, None, None],
    }.items():
        assert filter_mask(parse_filter(text, schema), rows).to_pylist() == expected, text


def test_a_float_is_compared_as_the_double_that_it_is() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([0.1, 0.5], pa.float32())], ["x"])
    schema = schema_of({"x": pa.float32()})
    assert filter_mask(parse_filter("x = 0.1", schema), rows).to_pylist() == [False, False]
    assert filter_mask(parse_filter("x > 0.1", schema), rows).to_pylist() == [True, True]
    assert filter_mask(parse_filter("x = 0.5", schema), rows).to_pylist() == [False, True]


def test_fields_of_rows_are_null_where_the_row_is() -> None:
    values = [{"b": 1, "inner": {"c": 0.5}}, {"b": None, "inner": None}, None]
    rows = pa.RecordBatch.from_arrays([pa.array(values, arrow_type(ROW))], ["a"])
    for text, expected in {
        "a.b = 1": [True, None, None],
        "a.inner.c > 0": [True, None, None],
        "a.b is null": [False, True, True],
        "a is null": [False, False, True],
    }.items():
        predicate = parse_filter(text, SALES)
        assert filter_mask(predicate, rows).to_pylist() == expected, text
        assert pa.Table.from_batches([rows]).filter(to_arrow(predicate, SALES)).num_rows == expected.count(True), text


# ---- statistics


@pytest.mark.sweep
@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS)
def test_a_file_with_a_matching_row_is_never_left_out(seed: int) -> None:
    """FL-181: whatever the statistics keep: exact, truncated, without counts, or of some columns only."""
    rng = random.Random(seed)
    rows = random_rows(rng, ALL, rng.choice([1, 2, 2, 10]))
    table = table_of(ALL, rows)
    ranges = {field.name: _kept_range(rng, table.column(field.name), field) for field in ALL.fields}
    known = {name: part for name, part in ranges.items() if rng.random() < 0.9}
    for _ in range(20):
        predicate = random_predicate(rng, ALL)
        if any(outcome(predicate, row) is True for row in _as_stored(rows)):
            assert may_match(predicate, known, len(rows)), predicate


def _kept_range(rng: random.Random, column: pa.ChunkedArray, field: DataField) -> ColumnRange:
    exact = column_range(column, field.type)
    has_nan = exact.may_hold_nan
    if has_nan and rng.random() < 0.5:
        exact = ColumnRange(null_count=exact.null_count)
    elif has_nan and (exact.min != exact.min or exact.max != exact.max):
        exact = ColumnRange(null_count=exact.null_count, may_hold_nan=True)
    kept = truncate_range(exact, field.type, rng.choice([1, 2, 16]))
    if rng.random() < 0.2:
        kept = ColumnRange(min=kept.min, max=kept.max, may_hold_nan=kept.may_hold_nan)
    return kept


TEN_TO_TWENTY = {"id": ColumnRange(min=10, max=20, null_count=1), "name": ColumnRange(min="ab", max="ad", null_count=0)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 15", True),
        ("id = 21", False),
        ("id > 20", False),
        ("id >= 20", True),
        ("id < 10", False),
        ("id <> 15", True),
        ("id in (1, 30)", False),
        ("id in (1, 30, null)", False),
        ("id not in (1, null)", False),
        ("id is null", True),
        ("name is null", False),
        ("not (id >= 10)", False),
        ("not (id > 10)", True),
        ("id = 5 or name = 'ac'", True),
        ("id = 5 or name = 'x'", False),
        ("id = 15 and name = 'x'", False),
        ("name like 'ac%'", True),
        ("name like 'b%'", False),
        ("name like 'b_%x'", False),
        ("name not like 'a%'", False),
        ("price > 3", True),
        ("id = null", False),
        ("a.b = 5", True),
    ],
)
def test_files_are_left_out_when_nothing_can_match(text: str, expected: bool) -> None:
    """FL-181."""
    assert may_match(parse_filter(text, SALES), TEN_TO_TWENTY, 5) is expected


def test_all_null_columns_match_only_is_null() -> None:
    ranges = {"id": ColumnRange(null_count=5)}
    assert not may_match(parse_filter("id > 0", SALES), ranges, 5)
    assert not may_match(parse_filter("not (id > 0)", SALES), ranges, 5)
    assert may_match(parse_filter("id is null", SALES), ranges, 5)
    assert not may_match(parse_filter("id is not null", SALES), ranges, 5)
    assert not may_match(Constant(outcome=True), {}, 0)


def test_floats_beyond_the_maximum_may_be_nan() -> None:
    """Some writers forget NaN in their statistics."""
    ranges = {"price": ColumnRange(min=1.0, max=2.0, null_count=0, may_hold_nan=True)}
    assert may_match(parse_filter("price > 5", SALES), ranges, 3)
    assert not may_match(parse_filter("price = 5", SALES), ranges, 3)
    assert not may_match(parse_filter("price < 1", SALES), ranges, 3)
    assert may_match(parse_filter("price = double('NaN')", SALES), ranges, 3)


# ---- structure


def test_columns_and_conjuncts_of_a_filter() -> None:
    predicate = parse_filter("id = 1 and (a.b = 2 or name like 'x%') and not (price > 1)", SALES)
    assert columns_of(predicate) == {"id", "a", "name", "price"}
    assert [columns_of(part) for part in conjuncts(predicate)] == [{"id"}, {"a", "name"}, {"price"}]
    assert and_all(conjuncts(predicate)) == predicate
    assert and_all([]) is None


def test_the_part_of_a_filter_that_looks_at_some_columns_only() -> None:
    predicate = parse_filter("id = 1 and (a.b = 2 or name = 'x') and name = 'y' and 1 = 1", SALES)
    assert on_columns_only(predicate, ["id", "name"]) == parse_filter("id = 1 and name = 'y'", SALES)
    assert on_columns_only(predicate, ["price"]) is None
    assert on_columns_only(None, ["id"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 1", {1}),
        ("id = 1 and price > 2", {1}),
        ("id = 1 or id in (2, 3)", {1, 2, 3}),
        ("id = 1 or price = 2", None),
        ("id in (1, 2) and id in (2, 3)", {2}),
        ("id is null or id = 1", {None, 1}),
        ("id > 1", None),
        ("not (id = 1)", None),
        ("id = 1.5", set()),
        ("id = null", set()),
        ("a.b = 1", None),
    ],
)
def test_equal_values_are_all_that_a_column_can_have(text: str, expected: set[object] | None) -> None:
    found = equal_values(parse_filter(text, SALES), "a" if text.startswith("a.") else "id")
    assert found == (None if expected is None else frozenset(expected))


def test_float_zero_confines_a_column_to_nothing_that_could_be_hashed() -> None:
    assert equal_values(compare("price", "=", 0.0), "price") is None
    assert equal_values(compare("price", "=", 0.5), "price") == {0.5}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SEEDS)
def test_a_passing_row_has_one_of_the_equal_values(seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng, ALL, 20)
    predicate = random_predicate(rng, ALL)
    for field in ALL.fields:
        values = equal_values(predicate, field.name)
        if values is not None and field.name != "f32":
            assert all(row[field.name] in values for row in rows if outcome(predicate, row) is True)


def test_the_prefix_of_a_pattern_ends_at_its_first_wildcard() -> None:
    assert [like_prefix(p) for p in ["ab%c", "a\\%b_", "%", "a\\\\%", ""]] == ["ab", "a%b", "", "a\\", ""]


def test_arrow_fields_of_the_sample_are_those_of_the_schema() -> None:
    assert arrow_schema(SALES.fields).names == list(SALES.column_names)


@given(st.lists(st.integers(-40, 40), max_size=60), st.sets(st.integers(-50, 50)), st.booleans())
def test_a_list_of_values_finds_the_same_rows_in_numbers_that_rise(
    numbers: list[int], values: set[int], rise: bool
) -> None:
    """By bisection there, by hashes elsewhere; the oracle is a set."""
    column = pa.array(sorted(numbers) if rise else numbers, pa.int32())
    found = filter_mask(In(column="id", values=tuple(values)), pa.record_batch({"id": column}))
    assert found.to_pylist() == [number in values for number in column.to_pylist()]
