"""An expression of PyArrow means the same with and without us: compared with PyArrow on random rows."""

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.predicate.conditions import FunctionCall, Ref, Value, exact_predicate, wider_predicate
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.given_filter import condition_of, given_filter, predicate_of
from filestore.schema.schema_store import new_schema
from lsm.errors import InvalidInputError

ARROW = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("ms")),
        ("m", pa.decimal128(10, 2)),
        ("r", pa.struct([("x", pa.int64())])),
    ]
)
SCHEMA = new_schema(ARROW, time_ms=0)
VALUES: dict[str, list[Any]] = {
    "i": [None, -1, 0, 1, 7],
    "f": [None, math.nan, -0.0, 0.0, 1.5, math.inf],
    "s": [None, "", "a", "ab", "b"],
    "b": [None, True, False],
    "d": [None, date(2026, 1, 1), date(1969, 1, 1)],
    "t": [None, datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1000)],
    "m": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.00")],
    "r": [None, {"x": None}, {"x": 1}],
}
ROWS = pa.table({name: pa.array([values[row % len(values)] for row in range(360)], ARROW.field(name).type)
                 for name, values in VALUES.items()}, schema=ARROW)  # fmt: skip
CONSTANTS: dict[str, list[Any]] = {
    **VALUES,
    "i": [*VALUES["i"], 0.5, 2**40, Decimal("1.5")],
    "d": [*VALUES["d"], datetime(2026, 1, 1, 12)],
}
COMPARE = [pc.equal, pc.not_equal, pc.less, pc.less_equal, pc.greater, pc.greater_equal]


@st.composite
def single_tests(draw: st.DrawFn) -> pc.Expression:
    name = draw(st.sampled_from([each for each in VALUES if each != "r"]))
    column, kind = pc.field(name), draw(st.integers(0, 6))
    if kind == 0:
        return column.is_null() if draw(st.booleans()) else column.is_valid()
    if kind == 1 and name not in ("d", "m"):
        return column.isin(pa.array(draw(st.lists(st.sampled_from(VALUES[name]), max_size=3)), ARROW.field(name).type))
    if kind == 2:
        return pc.starts_with(pc.field("s"), "a") if draw(st.booleans()) else pc.match_like(pc.field("s"), "%b")
    if kind == 3:
        return pc.field("b")
    if kind == 4:
        return pc.equal(pc.field("r", "x"), pa.scalar(draw(st.sampled_from([1, 2]))))
    constant = draw(st.sampled_from([each for each in CONSTANTS[name] if each is not None]))
    sides = [column, pc.scalar(constant)]
    return draw(st.sampled_from(COMPARE))(*(sides if draw(st.booleans()) else reversed(sides)))


EXPRESSIONS = st.recursive(
    single_tests(), lambda inner: st.one_of(st.builds(lambda a, b: a & b, inner, inner),
                                     st.builds(lambda a, b: a | b, inner, inner), st.builds(lambda a: ~a, inner)),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.sweep
@settings(max_examples=250, deadline=None)
@given(EXPRESSIONS)
def test_the_rows_are_those_of_arrow(expression: pc.Expression) -> None:
    wanted = ROWS.filter(expression)
    batch = ROWS.combine_chunks().to_batches()[0]
    found = given_filter(expression, SCHEMA, ARROW)
    kept = batch if found.predicate is None else batch.filter(filter_mask(found.predicate, batch).fill_null(False))
    rows = pa.Table.from_batches(found.of(kept, ARROW.names), ARROW)
    assert repr(rows.to_pylist()) == repr(wanted.to_pylist())
    condition = condition_of(expression)
    assert condition is not None
    wider = wider_predicate(condition, SCHEMA)
    if wider is not None:
        mask = filter_mask(wider, batch).fill_null(False)
        assert pc.sum(mask).as_py() >= wanted.num_rows


def test_a_tree_is_read_with_repeated_calls() -> None:
    inner = (pc.field("i") > 1) & (pc.field("r", "x") == 2)
    assert condition_of(inner) == FunctionCall(
        "and_kleene",
        (
            FunctionCall("greater", (Ref(("i",)), Value(pa.scalar(1)))),
            FunctionCall("equal", (Ref(("r", "x")), Value(pa.scalar(2)))),
        ),
    )


@pytest.mark.parametrize(
    ("expression", "is_exact", "is_known"),
    [
        (pc.field("i") > 1, True, True),
        (pc.field("f") > 1.0, False, True),
        (~(pc.field("f") > 1.0), False, False),
        ((pc.field("f") > 1.0) & (pc.field("i") > 1), False, True),
        ((pc.field("i") > 1) | (pc.utf8_length(pc.field("s")) > 1), False, False),
        ((pc.field("i") > 1) & (pc.utf8_length(pc.field("s")) > 1), False, True),
        (pc.field("i").cast(pa.int64()) > 1, False, False),
    ],
)
def test_what_leaves_out_files(expression: pc.Expression, is_exact: bool, is_known: bool) -> None:
    condition = condition_of(expression)
    assert condition is not None
    assert (exact_predicate(condition, SCHEMA) is not None) == is_exact
    assert (wider_predicate(condition, SCHEMA) is not None) == is_known


def test_a_reader_that_prunes_only_refuses_what_it_cannot_prune_by() -> None:
    assert predicate_of(pc.field("i") > 1, SCHEMA) == predicate_of("i > 1", SCHEMA)
    with pytest.raises(InvalidInputError, match="this expression is not supported here: filter="):
        predicate_of(pc.field("f") > 1.0, SCHEMA)
