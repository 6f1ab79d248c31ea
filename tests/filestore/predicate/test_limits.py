"""Filters of any size and depth: refused with a reason, or read and evaluated column by column."""

import random
import re
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.format.statistics import ColumnRange, column_range
from filestore.predicate.evaluation import filter_mask, may_match
from filestore.predicate.parser import LONG, MAX_CHARACTERS, outline_of, parse_filter
from filestore.predicate.predicate import In, Not
from filestore.types.data_types import arrow_type
from lsm.errors import InvalidInputError
from tests.filestore.predicate.test_predicates import SALES

DEEP = {
    "brackets": "(" * 3000 + "id = 1" + ")" * 3000,
    "one list after another": "id IN " + "(" * 3000 + "1" + ")" * 3000,
    "negations": "NOT " * 3000 + "id = 1",
    "signs": "id = " + "- " * 3000 + "1",
    "cases": "CASE WHEN " * 300 + "id = 1",
    "calls": "f(" * 3000 + ")" * 3000,
    "arrays": "id = " + "[" * 3000,
    "growing brackets": "(" * 300 + "id = 1" + "".join(f" OR id = {each})" for each in range(300)),
}


@pytest.mark.parametrize("name", DEEP)
def test_depth_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="nested too deeply") as caught:
        parse_filter(DEEP[name], SALES)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "number", ["9" * 5000, "-" + "9" * 5000, "1." + "9" * 5000, "'" + "9" * 5000 + "'", "'1e999999999'", "'1e-9999999'"]
)
@pytest.mark.parametrize("column", ["id", "amount"])
def test_numbers_that_no_column_holds_are_refused_at_once(column: str, number: str) -> None:
    for text in (f"{column} = {number}", f"{column} IN ({number}, 1)", f"{column} BETWEEN 1 AND {number}"):
        with pytest.raises(InvalidInputError, match=r"number is (too long|out of range)"):
            parse_filter(text, SALES)


def test_length_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"too long: characters=\d+ most=1000000 fix=") as caught:
        parse_filter("id = 1 OR " * (MAX_CHARACTERS // 10) + "id = 2", SALES)
    assert len(str(caught.value)) < 300


INTERNAL = [
    "id =",
    "id IN (",
    "id BETWEEN 1 AND",
    "name LIKE",
    "id FORM 3",
    "id = 3 )",
    "id = `",
    "id = 'a",
    "id = \x1b[4m",
    ")",
]


@pytest.mark.parametrize("text", INTERNAL)
def test_errors_name_nothing_of_the_parser_and_hold_no_terminal_escapes(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_filter(text, SALES)
    message = str(caught.value)
    assert "sqlglot" not in message
    assert "<class" not in message
    assert "\x1b" not in message
    assert len(message) < 300


# ---- long lists

WRITTEN: dict[str, Callable[[random.Random], str]] = {
    "id": lambda chance: str(chance.choice([chance.randrange(-9, 9), 2**31 - 1, -(2**31), 2**31, 2**64])),
    "tiny": lambda chance: str(chance.randrange(-200, 200)),
    "amount": lambda chance: chance.choice([f"{chance.randrange(9)}.{chance.randrange(9999)}", "1" * 30, "-3"]),
    "price": lambda chance: chance.choice([f"{chance.randrange(9)}.5", "0", "-0.0", "3"]),
    "ratio": lambda chance: f"{chance.randrange(9)}.1",
    "name": lambda chance: f"'{chance.choice(['', 'a', ' b ', 'ä, b', ')', '--', '/*'])}'",
    "day": lambda chance: f"'2024-01-{chance.randrange(1, 28):02}'",
}


@pytest.mark.sweep
@settings(deadline=None, max_examples=40)
@given(st.sampled_from([*WRITTEN]), st.integers(0, 2**32 - 1), st.booleans())
def test_a_long_list_is_the_list(column: str, seed: int, is_not: bool) -> None:
    """The same predicate, whether sqlglot reads the list or kernels do."""
    chance = random.Random(seed)
    values = [WRITTEN[column](chance) for _ in range(LONG + chance.randrange(9))]
    written = chance.choice([", ", ",", " ,\n"]).join(values)
    text = f"id > 1 AND {column} {'NOT ' if is_not else ''}IN ({written}) OR name = 'IN (1, 2)'"
    assert len(outline_of(text).lists) == 1
    by_list = parse_filter(text, SALES)
    # a NULL leaves a list where it is
    by_parser = parse_filter(text.replace(written, f"{written}, NULL", 1), SALES)
    assert repr(by_list).replace("-0.0", "0.0") == repr(by_parser).replace("has_null=True", "has_null=False")


@pytest.mark.parametrize(
    "text",
    [
        f"name = 'id IN ({', '.join(map(str, range(LONG)))})'",
        f'name = "id IN ({", ".join(map(str, range(LONG)))})"',
        f"id = 1 /* id IN ({', '.join(map(str, range(LONG)))}) */",
        f"id = 1 -- id IN ({', '.join(map(str, range(LONG)))})",
        f"name = r'\\' OR id IN ({', '.join(map(str, range(LONG)))})",
        f"id IN ({', '.join(map(str, range(LONG)))}, NULL)",
        f"id IN ({', '.join(map(str, range(LONG)))}) OR id = :long_list_0",
    ],
)
def test_what_is_no_plain_list_stays_in_the_text(text: str) -> None:
    assert outline_of(text).text == text


def test_errors_beside_a_long_list_do_not_repeat_it() -> None:
    written = ", ".join(map(str, range(1000)))
    long = f"id IN ({written})"
    for text in (f"{long} AND nome = 1", f"day IN ({written})", f"{long} AND", f"id + 1 IN ({written})"):
        with pytest.raises(InvalidInputError) as caught:
            parse_filter(text, SALES)
        assert "IN (…)" in str(caught.value)
        assert "long_list" not in str(caught.value)


@pytest.mark.sweep
@given(st.sampled_from(["id", "price", "name"]), st.integers(0, 2**32 - 1))
def test_statistics_rule_out_what_no_value_of_a_list_is_in(column: str, seed: int) -> None:
    chance = random.Random(seed)
    one: Callable[[], object] = {
        "id": lambda: chance.randrange(-5, 5),
        "price": lambda: chance.choice([0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")]),
        "name": lambda: chance.choice(["", "a", "ab", "b"]),
    }[column]
    arrow = arrow_type(SALES.field(column).type)
    rows = pa.array([one() for _ in range(chance.randrange(1, 4))], arrow)
    wanted = In(column=column, values=tuple(one() for _ in range(chance.randrange(4))))
    found = column_range(rows, SALES.field(column).type)
    mask = filter_mask(wanted, pa.RecordBatch.from_arrays([rows], [column])).to_pylist()
    assert may_match(wanted, {column: found}, len(rows)) or True not in mask
    assert may_match(Not(part=wanted), {column: found}, len(rows)) or False not in mask
    if wanted.values and found.min is not None and column == "id":
        bounds = ColumnRange(min=found.min, max=found.max, null_count=0)
        assert may_match(wanted, {column: bounds}, 9) == any(found.min <= each <= found.max for each in wanted.values)


def _seconds(action: Callable[[], object]) -> float:
    """The fastest of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.sweep
def test_two_hundred_thousand_values_cost_what_reading_their_text_costs() -> None:
    """Reading, evaluation and pruning, against splitting the text and making a set of it in Python."""
    numbers = ", ".join(map(str, range(200_000)))
    rows = pa.RecordBatch.from_arrays([pa.array(range(10_000), pa.int32())], ["id"])
    ranges = [{"id": ColumnRange(min=each, max=each + 9, null_count=0)} for each in range(0, 200_000, 200)]

    def baseline() -> object:
        return {int(each) for each in numbers.split(",")}

    def used() -> object:
        predicate = parse_filter(f"id IN ({numbers})", SALES)
        return filter_mask(predicate, rows), [may_match(predicate, each, 10) for each in ranges]

    assert _seconds(used) < 20 * _seconds(baseline)


def test_lists_are_read_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not value by value."""
    monkeypatch.setattr("filestore.predicate.parser.literals_of", None)
    numbers = parse_filter(f"id IN ({','.join(map(str, range(LONG)))})", SALES)
    texts = parse_filter(f"name IN ({','.join(repr(str(each)) for each in range(LONG))})", SALES)
    day, moment = "'2024-02-29'", "'2024-02-29 10:11:12.345'"
    plain = {"price": "1.5", "ratio": "7", "amount": "12.34", "day": day, "ts": moment, "ltz": moment}
    for column, one in plain.items():
        parse_filter(f"{column} IN ({', '.join([one] * LONG)})", SALES)
    assert (numbers, texts) == (
        In(column="id", values=(*range(LONG),)),
        In(column="name", values=tuple(map(str, range(LONG)))),
    )


NUMBERS = ["0", "-0", "0.0", "-0.0", "1", "-1.5", "12.340", "12.345", "99999999.99", "100000000", "9" * 39, "9" * 400]
MOMENTS = [
    "1970-01-01", "0000-01-01", "0001-12-31", "9999-12-31", "2024-02-29", "2024-1-31", "2024-01", "2024",
    "2024-02-29 10:11", "2024-02-29 10", "2024-02-29 10:11:12", "2024-02-29T10:11:12", "1600-01-01 00:00:00",
    "2024-02-29 10:11:12.3", "2024-02-29 10:11:12.345678", "2024-02-29 10:11:12.3456789", "2024-02-29 10:11:12Z",
    "2024-02-29 10:11:12+01:00", " 2024-02-29", "2023-02-29", "2024-02-29 24:00:00", "2024-02-29 23:59:60", "no day",
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "written"),
    [(column, each) for column in ("price", "ratio", "amount") for each in NUMBERS]
    + [(column, f"'{each}'") for column in ("day", "ts", "ltz") for each in MOMENTS]
    + [("price", "'1.5'"), ("amount", "'1.5'"), ("day", "1"), ("ts", "1.5")],
)
def test_a_long_list_has_the_values_of_a_short_one(column: str, written: str) -> None:
    """What kernels read is what is read one by one, or refused alike."""
    try:
        short = parse_filter(f"{column} IN ({written})", SALES)
    except InvalidInputError as error:
        with pytest.raises(InvalidInputError, match=re.escape(str(error).partition(" filter=")[0])):
            parse_filter(f"{column} IN ({', '.join([written] * LONG)})", SALES)
        return
    long = parse_filter(f"{column} IN ({', '.join([written] * LONG)})", SALES)
    assert isinstance(short, In)
    assert isinstance(long, In)
    assert long.values == short.values * LONG
    assert {type(each) for each in long.values} == {type(each) for each in short.values}
