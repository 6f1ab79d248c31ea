"""The aggregation merge engine."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.errors import InvalidInputError
from tests.lsm.row_engines import aggregated, bytes_of_set
from tests.lsm.stories import COLUMNS, Change, merged, random_story, rows_by_key, story_batch

LAWS = settings(max_examples=80, deadline=None, derandomize=True)
TEXTS = pa.list_(pa.string())
MAP = pa.map_(pa.string(), pa.int32())


def fold(
    function: str, *values: Any, kind: pa.DataType | None = None, retracts: Sequence[int] = (), **options: Any
) -> Any:
    """The aggregate of one column's values; those at `retracts` are taken back."""
    kind = pa.int32() if kind is None else kind
    story: list[Change] = [
        ("-U" if index in retracts else "+I", index, {"v": value}) for index, value in enumerate(values)
    ]
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function=function, **options)})
    ((symbol, number, result),) = merged(story, merge, columns={"v": kind})
    assert (symbol, number) == ("+I", len(values) - 1), "the result is an insert and as new as its newest row"
    return result["v"]


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        ("sum", [1, None, 5], 6),
        ("product", [3, None, 4], 12),
        ("max", [3, None, 9, 4], 9),
        ("min", [None, 5, 2, 7], 2),
        ("last_value", [1, 2, None], None),
        ("last_non_null_value", [1, 2, None], 2),
        ("first_value", [None, 2, 3], None),
        ("first_non_null_value", [None, 2, 3], 2),
        ("first_not_null_value", [None, 2, 3], 2),
    ],
)
def test_numbers_are_folded(function: str, values: list[int | None], expected: int | None) -> None:
    assert fold(function, *values) == expected


@pytest.mark.parametrize(
    "function", ["sum", "product", "max", "min", "last_value", "last_non_null_value", "first_value"]
)
def test_nothing_but_nulls_stays_null(function: str) -> None:
    assert fold(function, None, None) is None


@pytest.mark.parametrize(
    ("kind", "values", "greatest", "least"),
    [
        (pa.string(), ["b", "a", None, "ab"], "b", "a"),
        (pa.float64(), [0.0, -0.0, -1.5], 0.0, -1.5),
        (pa.decimal128(20, 2), [Decimal("1.50"), Decimal("-7.25")], Decimal("1.50"), Decimal("-7.25")),
        (pa.bool_(), [True, False], True, False),
        (pa.binary(), [b"\xff", b"\0"], b"\xff", b"\0"),
    ],
)
def test_the_greatest_and_the_least_of_any_type(
    kind: pa.DataType, values: list[Any], greatest: Any, least: Any
) -> None:
    assert fold("max", *values, kind=kind) == greatest
    assert fold("min", *values, kind=kind) == least


def test_a_sum_takes_values_back() -> None:
    assert fold("sum", 10, 3, 4, retracts=[1]) == 11
    assert fold("sum", None, 3, None, retracts=[1]) == -3
    assert fold("sum", 3, 4, retracts=[0, 1]) == -7
    assert fold("sum", 1.5, 0.25, kind=pa.float64(), retracts=[1]) == 1.25
    assert fold("sum", 1.5, 0.25, kind=pa.float32()) == 1.75


def test_a_product_takes_factors_back() -> None:
    assert fold("product", 12, 3, retracts=[1]) == 4
    assert fold("product", -7, 2, retracts=[1]) == -3, "towards zero, like Java"
    assert fold("product", 3.0, 0.5, kind=pa.float64(), retracts=[1]) == 6.0
    assert fold("product", 3.0, 0.0, kind=pa.float64(), retracts=[1]) == float("inf")
    cents = pa.decimal128(10, 2)
    assert fold("product", Decimal("1.15"), Decimal("0.50"), kind=cents) == Decimal("0.58"), "half up"
    assert fold("product", Decimal("1.00"), Decimal("3.00"), kind=cents, retracts=[1]) == Decimal("0.33")
    with pytest.raises(InvalidInputError, match="a zero factor of a product cannot be retracted"):
        fold("product", 12, 0, retracts=[1])


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_a_number_that_leaves_its_type_is_an_error(kind: pa.DataType) -> None:
    """Java up to 1.4 wraps silently; Paimon 2 and pypaimon refuse. Source: format notes 6.5."""
    high = 2 ** (kind.bit_width - 1) - 1
    assert fold("sum", high - 1, 1, kind=kind) == high
    assert fold("sum", high, high, high, kind=kind, retracts=[1]) == high, "only the result counts"
    for function, values in (("sum", [high, 1]), ("sum", [-high, -2]), ("product", [high, 2])):
        with pytest.raises(
            InvalidInputError, match=f"column=v .* aggregate_function={function}: the result overflows its type"
        ):
            fold(function, *values, kind=kind)


@pytest.mark.parametrize("precision", [3, 18, 19, 38])
def test_a_decimal_that_leaves_its_precision_is_null(precision: int) -> None:
    kind = pa.decimal128(precision, 2)
    high, next_to = Decimal((0, (9,) * precision, -2)), Decimal((0, (9,) * (precision - 1) + (8,), -2))
    assert fold("sum", high, Decimal("-0.01"), kind=kind) == next_to
    assert fold("sum", high, Decimal("0.01"), kind=kind) is None
    assert fold("sum", high, Decimal("0.01"), Decimal("0.02"), kind=kind, retracts=[2]) == next_to
    assert fold("product", high, Decimal("2.00") if precision > 3 else Decimal("2"), kind=kind) is None
    assert fold("product", high, high, Decimal(1), kind=kind) is None


def test_truth_values_are_folded() -> None:
    assert fold("bool_and", True, None, False, True, kind=pa.bool_()) is False
    assert fold("bool_and", True, None, kind=pa.bool_()) is True
    assert fold("bool_or", False, None, True, kind=pa.bool_()) is True
    assert fold("bool_or", None, None, kind=pa.bool_()) is None


def test_texts_are_joined() -> None:
    assert fold("listagg", "x", None, "y", kind=pa.string(), delimiter=";") == "x;y"
    assert fold("listagg", "x", "", "y,x", kind=pa.string()) == "x,y,x"
    assert fold("listagg", "x", "", "y,x", kind=pa.string(), distinct=True) == "x,y"
    assert fold("listagg", "", "", kind=pa.string()) == ""
    assert fold("listagg", None, None, kind=pa.string()) is None


def test_arrays_are_collected() -> None:
    assert fold("collect", ["a", "b"], None, ["b"], [], kind=TEXTS) == ["a", "b", "b"]
    assert fold("collect", ["a", None], [None, "a", "c"], kind=TEXTS, distinct=True) == ["a", None, "c"]
    assert fold("collect", ["a", "b", "b"], ["b"], kind=TEXTS, retracts=[1]) == ["a", "b"]
    assert fold("collect", ["b"], ["a"], kind=TEXTS, retracts=[0]) == ["a"], "there was nothing to take back yet"
    assert fold("collect", [], [], kind=TEXTS) == []
    assert fold("collect", None, ["b"], kind=TEXTS, retracts=[1]) is None
    pairs = pa.list_(pa.struct([("x", pa.int32())]))
    assert fold("collect", [{"x": 1}], [{"x": 1}, {"x": 2}], kind=pairs, distinct=True) == [{"x": 1}, {"x": 2}]


def test_maps_are_merged() -> None:
    assert fold("merge_map", [("a", 1), ("b", 2)], [("b", 9), ("c", None)], kind=MAP) == [
        ("a", 1),
        ("b", 9),
        ("c", None),
    ]
    assert fold("merge_map", [("a", 1), ("b", 2)], [("a", 0)], kind=MAP, retracts=[1]) == [("b", 2)]
    assert fold("merge_map", [("a", 1)], [("a", 1)], kind=MAP, retracts=[0, 1]) is None
    assert fold("merge_map", [("a", 1)], [("a", 1)], [("a", 2)], kind=MAP, retracts=[1]) == [("a", 2)]
    assert fold("merge_map", [], None, kind=MAP) == []


def test_a_retract_of_the_newest_value_leaves_null() -> None:
    assert fold("last_value", 1, 1, retracts=[1]) is None
    assert fold("last_value", 1, None, retracts=[1]) is None
    assert fold("last_non_null_value", 1, 1, retracts=[1]) is None
    assert fold("last_non_null_value", 1, None, retracts=[1]) == 1


@pytest.mark.parametrize(
    "function", ["max", "min", "first_value", "first_non_null_value", "bool_and", "bool_or", "listagg"]
)
def test_what_cannot_be_taken_back_is_an_error_unless_ignored(function: str) -> None:
    value, kind = {"b": (True, pa.bool_()), "l": ("x", pa.string())}.get(function[0], (7, pa.int32()))
    with pytest.raises(
        InvalidInputError, match=rf"column=v aggregate_function={function} retract_count=1 fix=set fields\.v"
    ):
        fold(function, value, value, kind=kind, retracts=[1])
    assert fold(function, value, value, kind=kind, retracts=[1], ignore_retract=True) == value


@pytest.mark.parametrize(
    ("function", "value"),
    [("sum", "x"), ("product", "x"), ("bool_and", "x"), ("listagg", 1), ("collect", 1), ("merge_map", 1), ("max", [1])],
)
def test_a_type_that_does_not_fit_is_named(function: str, value: Any) -> None:
    kind = pa.scalar(value).type
    with pytest.raises(InvalidInputError, match=f"cannot aggregate: column=v .* aggregate_function={function}: "):
        fold(function, value, value, kind=kind)


def test_an_unknown_function_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown aggregate function: function=median allowed="):
        FieldAggregate(function="median")


SUM = Aggregation(key_names=("k",), fields={"a": FieldAggregate(function="sum")})


def test_columns_without_a_function_keep_the_last_value_that_is_not_null() -> None:
    assert merged([("+I", 0, {"a": 1, "b": "x"}), ("+I", 1, {"b": None})], SUM) == [
        ("+I", 1, {"a": 1, "b": "x", "g": None})
    ]


def test_the_default_function_is_for_every_other_column() -> None:
    merge = Aggregation(key_names=("k",), default=FieldAggregate(function="max"))
    story: list[Change] = [("+I", 0, {"a": 1, "b": "x"}), ("+I", 1, {"a": -4, "b": "b"})]
    assert merged(story, merge) == [("+I", 1, {"a": 1, "b": "x", "g": None})]


def test_sequence_fields_keep_the_newest_value() -> None:
    merge = Aggregation(key_names=("k",), default=FieldAggregate(function="sum"), sequence_names=("g",))
    story: list[Change] = [("+I", 0, {"a": 1, "g": 9}), ("+I", 1, {"a": 2, "g": 3})]
    assert merged(story, merge, columns={"a": pa.int32(), "g": pa.int32()}, sequence_names=["g"]) == [
        ("+I", 0, {"a": 3, "g": 9})
    ]


def test_a_delete_takes_back_but_the_row_stays() -> None:
    assert merged([("+I", 0, {"a": 10}), ("-D", 1, {"a": 10})], SUM) == [("+I", 1, {"a": 0, "b": None, "g": None})]


def test_a_delete_removes_the_row_if_so_wished() -> None:
    merge = Aggregation(key_names=("k",), fields=SUM.fields, remove_record_on_delete=True)
    story: list[Change] = [("+I", 0, {"a": 10, "b": "x"}), ("-D", 1, {"a": 10}), ("+I", 2, {"a": 2})]
    assert merged(story[:2], merge) == []
    assert merged(story[:2], merge, drop_deletes=False) == [("-D", 1, {"a": 10, "b": None, "g": None})]
    # What comes next is added to the delete's own values. Source: format notes 10.3, agg_delete_then_add.
    assert merged(story, merge) == [("+I", 2, {"a": 12, "b": None, "g": None})]


def test_a_single_row_is_not_aggregated_while_there_may_be_older_ones() -> None:
    story: list[Change] = [("-U", 0, {"a": 3}), ("+I", 1, {"k": 2, "a": 1}), ("+I", 2, {"k": 2, "a": 1})]
    assert merged(story, SUM, drop_deletes=False)[0] == ("-U", 0, {"a": 3, "b": None, "g": None})
    assert merged(story, SUM)[1] == ("+I", 2, {"k": 2, "a": 2, "b": None, "g": None})


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_a_retract_without_older_rows_is_what_it_takes_back_from_nothing(kind: str) -> None:
    """So a compaction between it and its row changes nothing; that it is a row is true of two of them, too."""
    early: Change = (kind, 0, {"a": 5, "b": "x"})
    assert merged([early], SUM) == [("+I", 0, {"a": -5, "b": None, "g": None})]
    assert merged([early, (kind, 1, {"a": 3})], SUM) == [("+I", 1, {"a": -8, "b": None, "g": None})]
    for story in ([early], merged([early], SUM)):
        assert merged([*story, ("+I", 1, {"a": 9, "b": "y"})], SUM) == [("+I", 1, {"a": 4, "b": "y", "g": None})]


@pytest.mark.parametrize(
    ("function", "kind", "value", "expected"),
    [
        ("count", pa.int64(), 1, -1),
        ("product", pa.float64(), 4.0, 0.25),
        ("product", pa.int32(), 4, None),
        ("last_value", pa.int32(), 4, None),
        ("last_non_null_value", pa.int32(), 4, None),
        ("collect", TEXTS, ["a"], None),
        ("merge_map", MAP, [("a", 1)], None),
    ],
)
def test_every_function_takes_back_from_nothing(function: str, kind: pa.DataType, value: Any, expected: Any) -> None:
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function=function)})
    [(symbol, _, row)] = merged([("-U", 0, {"v": value})], merge, columns={"v": kind})
    assert (symbol, row["v"]) == ("+I", expected)


def test_a_product_of_floats_takes_back_a_factor_that_comes_later() -> None:
    assert fold("product", 2.0, 2.0, 3.0, 5.0, 3.0, kind=pa.float64(), retracts=[0, 4]) == 5.0


def test_retracts_that_every_column_ignores_are_no_row() -> None:
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function="max", ignore_retract=True)})
    early: Change = ("-D", 0, {"v": 3})
    assert merged([early], merge, columns={"v": pa.int32()}) == []
    assert merged([early, ("-U", 1, {"v": 3})], merge, columns={"v": pa.int32()}) == []


def test_a_retract_that_a_function_refuses_is_left_alone_where_another_writer_left_it_alone() -> None:
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function="max")})
    assert merged([("-D", 0, {"v": 3})], merge, columns={"v": pa.int32()}) == []


@pytest.mark.parametrize(
    ("function", "kind", "value", "left"),
    [
        ("last_value", pa.string(), "x", "x"),
        ("product", pa.int32(), 3, 3),
        ("collect", TEXTS, ["a"], []),
        ("merge_map", MAP, [("a", 1)], []),
    ],
)
def test_a_column_that_may_not_be_null_is_not_after_a_retract(
    function: str, kind: pa.DataType, value: Any, left: Any
) -> None:
    """Else no compaction could write the row."""
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function=function)})
    rows = pa.Table.from_batches([story_batch([("-U", 0, {"v": value})], {"v": kind})])
    place = rows.schema.get_field_index("v")
    rows = rows.cast(rows.schema.set(place, rows.schema.field(place).with_nullable(False)))
    assert merge.single(rows, drop_deletes=True).column("v").to_pylist() == [left]


def _some(*choices: str, distinct: bool = False) -> Callable[[Random], list[str]]:
    def draw(random: Random) -> list[str]:
        drawn = random.choices(choices, k=random.randint(0, 3))
        return list(dict.fromkeys(drawn)) if distinct else drawn

    return draw


ITEM = pa.struct([("id", pa.int32()), ("v", pa.string()), ("w", pa.float64())])
ITEMS = pa.list_(ITEM)
TIMED = pa.map_(pa.string(), pa.struct([("x", pa.int32()), ("at", pa.string()), ("y", pa.int32())]))


def items(random: Random) -> list[dict[str, Any] | None]:
    return [
        None
        if random.random() < 0.1
        else {
            "id": random.choice([None, 1, 2, 3]),
            "v": random.choice([None, "p", "q"]),
            "w": random.choice([None, 0.5]),
        }
        for _ in range(random.randint(0, 3))
    ]


def timed(random: Random) -> list[tuple[str, Any]]:
    return [
        (
            key,
            None
            if random.random() < 0.2
            else {"x": random.randint(0, 9), "at": random.choice([None, "1", "2", "10"]), "y": 1},
        )
        for key in _some("x", "y", "z", distinct=True)(random)
    ]


SPECS: Mapping[str, tuple[pa.DataType, Callable[[Random], Any], FieldAggregate]] = {
    "last": (pa.int32(), lambda random: random.randint(0, 9), FieldAggregate(function="last_value")),
    "known": (pa.string(), lambda random: random.choice("xyz"), FieldAggregate()),
    "first": (
        pa.int32(),
        lambda random: random.randint(0, 9),
        FieldAggregate(function="first_non_null_value", ignore_retract=True),
    ),
    "sum": (pa.int64(), lambda random: random.randint(-9, 9), FieldAggregate(function="sum")),
    "cents": (pa.decimal128(10, 2), lambda random: Decimal(random.randint(-9, 9)), FieldAggregate(function="sum")),
    "high": (pa.string(), lambda random: random.choice("xyz"), FieldAggregate(function="max", ignore_retract=True)),
    "low": (pa.int32(), lambda random: random.randint(-9, 9), FieldAggregate(function="min", ignore_retract=True)),
    "wide": (
        pa.decimal128(38, 0),
        lambda random: Decimal(random.randint(-9, 9)) * 10**30,
        FieldAggregate(function="max", ignore_retract=True),
    ),
    "all": (pa.bool_(), lambda random: random.random() < 0.7, FieldAggregate(function="bool_and", ignore_retract=True)),
    "texts": (
        pa.string(),
        lambda random: random.choice(["", "x", "y"]),
        FieldAggregate(function="listagg", ignore_retract=True),
    ),
    "bag": (TEXTS, _some("x", "y", "z"), FieldAggregate(function="collect")),
    "set": (
        TEXTS,
        _some("x", "y", "z", distinct=True),
        FieldAggregate(function="collect", distinct=True, ignore_retract=True),
    ),
    "map": (
        MAP,
        lambda random: [(key, random.randint(0, 9)) for key in sorted(_some("x", "y", "z", distinct=True)(random))],
        FieldAggregate(function="merge_map"),
    ),
    "count": (pa.int32(), lambda random: random.randint(0, 3), FieldAggregate(function="count")),
    "factor": (pa.int64(), lambda random: random.choice([-3, 1, 2, 7]), FieldAggregate(function="product")),
    "opening": (
        pa.int32(),
        lambda random: random.randint(0, 9),
        FieldAggregate(function="first_value", ignore_retract=True),
    ),
    "items": (ITEMS, items, FieldAggregate(function="nested_update", nested_key=("id", "v"))),
    "every_item": (ITEMS, items, FieldAggregate(function="nested_update")),
    "adding_items": (
        ITEMS,
        items,
        FieldAggregate(function="nested_update", nested_key=("v",), ignore_retract=True),
    ),
    "few_items": (
        ITEMS,
        items,
        FieldAggregate(function="nested_update", nested_key=("id",), count_limit=3),
    ),
    "parts": (
        ITEMS,
        items,
        FieldAggregate(function="nested_partial_update", nested_key=("id",), ignore_retract=True),
    ),
    "timed": (
        TIMED,
        timed,
        FieldAggregate(function="merge_map_with_keytime", time_field="at", ignore_retract=True),
    ),
    "numbers": (
        pa.binary(),
        lambda random: bytes_of_set({random.randint(0, 100_000) for _ in range(3)}),
        FieldAggregate(function="rbm32", ignore_retract=True),
    ),
}


@pytest.mark.sweep
@LAWS
@given(st.integers(0, 2**32), st.booleans())
def test_columns_fold_like_rows_one_by_one(seed: int, remove_on_delete: bool) -> None:
    columns = {name: kind for name, (kind, _, _) in SPECS.items()}
    specs = {name: spec for name, (_, _, spec) in SPECS.items()}
    story = random_story(seed, {name: draw for name, (_, draw, _) in SPECS.items()})
    merge = Aggregation(key_names=("k",), fields=specs, remove_record_on_delete=remove_on_delete)
    expected = [
        rows[0] if len(rows) == 1 else aggregated(rows, specs, remove_on_delete=remove_on_delete)
        for rows in rows_by_key(story).values()
    ]
    found = merged(story, merge, columns=columns, drop_deletes=False)
    assert [(kind, {name: row[name] for name in columns}) for kind, _, row in found] == expected


def test_columns_that_are_not_asked_for_are_not_needed() -> None:
    assert merged([("+I", 0, {"b": "x"}), ("+I", 1, {"b": "y"})], SUM, columns={"b": COLUMNS["b"]}) == [
        ("+I", 1, {"b": "y"})
    ]
