"""The difference of two sorted sets of rows."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.merge.row_diff import diff_runs, differs
from lsm.row_kind import VALUE_KIND, RowKind
from tests.lsm.key_columns import KEY_TYPES

LAWS = settings(max_examples=150, deadline=None, derandomize=True)
SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("b", pa.list_(pa.string()))])
Rows = dict[int, tuple[int | None, list[str | None] | None]]


def source(rows: Rows, batch_rows: int = 3) -> Any:
    whole = pa.Table.from_pylist([{"k": k, "a": a, "b": b} for k, (a, b) in sorted(rows.items())], schema=SCHEMA)
    return lambda: iter(whole.to_batches(max_chunksize=batch_rows))


def emitted_rows(tables: Iterator[pa.Table]) -> list[tuple[str, Any, Any, Any]]:
    found = []
    for table in tables:
        assert table.num_rows
        assert table.column_names == ["k", "a", "b", VALUE_KIND]
        found += [(RowKind(row[VALUE_KIND]).symbol, row["k"], row["a"], row["b"]) for row in table.to_pylist()]
    return found


def diff(before: Sequence[Rows], after: Sequence[Rows], **options: Any) -> list[tuple[str, Any, Any, Any]]:
    return emitted_rows(
        diff_runs([source(each) for each in before], [source(each) for each in after], key_names=["k"], **options)
    )


def expected_diff(before: Rows, after: Rows) -> list[tuple[str, Any, Any, Any]]:
    found: list[tuple[str, Any, Any, Any]] = []
    for key in sorted({*before, *after}):
        if key not in after:
            found.append(("-D", key, *before[key]))
        elif key not in before:
            found.append(("+I", key, *after[key]))
        elif before[key] != after[key]:
            found += [("-U", key, *before[key]), ("+U", key, *after[key])]
    return found


def test_every_kind_of_change() -> None:
    before: Rows = {1: (1, None), 2: (2, ["x"]), 3: (3, [None]), 4: (None, [])}
    after: Rows = {2: (2, ["x"]), 3: (3, [None, None]), 4: (None, None), 5: (5, [])}
    assert diff([before], [after]) == [
        ("-D", 1, 1, None),
        ("-U", 3, 3, [None]),
        ("+U", 3, 3, [None, None]),
        ("-U", 4, None, []),
        ("+U", 4, None, None),
        ("+I", 5, 5, []),
    ]


def test_nothing_to_compare_with() -> None:
    rows: Rows = {1: (1, None), 2: (2, None)}
    assert [change[0] for change in diff([], [rows])] == ["+I", "+I"]
    assert [change[0] for change in diff([rows], [])] == ["-D", "-D"]
    assert diff([rows], [rows]) == []
    assert diff([], []) == []


states = st.dictionaries(
    st.integers(0, 40),
    st.tuples(st.none() | st.integers(0, 2), st.none() | st.lists(st.none() | st.sampled_from("xy"), max_size=2)),
)


@pytest.mark.sweep
@LAWS
@given(before=states, after=states, section_rows=st.integers(1, 8), run_count=st.integers(1, 3))
def test_a_difference_is_the_dictionary_difference(
    before: Rows, after: Rows, section_rows: int, run_count: int
) -> None:
    """However many runs a side has, and wherever sections are cut."""

    def runs(rows: Rows) -> list[Rows]:
        return [{k: row for k, row in rows.items() if k % run_count == number} for number in range(run_count)]

    assert diff(runs(before), runs(after), section_rows=section_rows) == expected_diff(before, after)


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **KEY_TYPES,
    "list": (pa.list_(pa.float64()), st.lists(st.none() | st.sampled_from([0.0, 1.5, math.nan]), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(st.sampled_from("ab"), st.none() | st.integers(0, 1)).map(lambda each: list(each.items())),
    ),
    "row": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {"x": st.none() | st.integers(0, 1), "y": st.none() | st.lists(st.none() | st.just("a"), max_size=2)}
        ),
    ),
    "deep": (
        pa.map_(pa.int32(), pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.date32())), ("f", pa.float32())]))),
        st.dictionaries(
            st.integers(0, 1),
            st.none()
            | st.lists(
                st.none()
                | st.fixed_dictionaries(
                    {
                        "m": st.none() | st.just([]) | st.just([("k", None)]) | st.just([("k", 1)]),
                        "f": st.none() | st.sampled_from([0.0, math.nan]),
                    }
                ),
                max_size=2,
            ),
            max_size=2,
        ).map(lambda each: list(each.items())),
    ),
    "nothing": (pa.null(), st.none()),
}


def canonical(value: Any) -> Any:
    """Equal exactly when two values are the same: NaN equals itself, -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return {key: canonical(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(each) for each in value]
    return value


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_values_of_every_type_are_compared_with_their_nulls(name: str, data: st.DataObject) -> None:
    kind, value = VALUES[name]
    pool = st.sampled_from(data.draw(st.lists(st.none() | value, min_size=1, max_size=4)))
    pairs = data.draw(st.lists(st.tuples(pool, pool), max_size=12))
    start = data.draw(st.integers(0, len(pairs)))  # slices: children do not begin where their parents do
    left, right = (pa.array([pair[side] for pair in pairs], kind).slice(start) for side in (0, 1))
    told_apart = [
        canonical(one) != canonical(two) for one, two in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    assert differs(left, right).tolist() == told_apart


def test_not_a_number_is_one_value_whatever_its_bits() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x3FF0000000000000], np.uint64)
    left, right = pa.array(bits.view(np.float64)), pa.array(np.roll(bits, 1).view(np.float64))
    assert differs(left, right).tolist() == [True, False, True]


def test_a_column_that_is_ignored_is_shown_and_makes_no_difference() -> None:
    before: Rows = {1: (1, ["x"]), 2: (2, ["x"]), 3: (3, [])}
    after: Rows = {1: (1, ["y"]), 2: (7, ["y"]), 4: (4, [])}
    assert diff([before], [after], ignored=["b"]) == [
        ("-U", 2, 2, ["x"]),
        ("+U", 2, 7, ["y"]),
        ("-D", 3, 3, []),
        ("+I", 4, 4, []),
    ]


@pytest.mark.sweep
def test_memory_does_not_grow_with_the_rows() -> None:
    """Batches are taken from both sides in step."""
    taken = [0, 0]

    def rows(side: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, 400_000, 1_000):
            taken[side] += 1
            keys = pa.array(range(start, start + 1_000), pa.int64())
            yield pa.RecordBatch.from_arrays([keys, keys], names=["k", "v"])

    ahead = 0
    changes = diff_runs([lambda: rows(0)], [lambda: rows(1)], key_names=["k"], section_rows=10_000)
    assert list(changes) == []
    assert taken == [400, 400]

    def with_one_change(side: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows(side)):
            if side and number % 10 == 5:
                batch = pa.RecordBatch.from_arrays([batch.column(0), pa.nulls(1_000, pa.int64())], names=["k", "v"])
            yield batch

    taken[:] = [0, 0]
    seen = 0
    for table in diff_runs(
        [lambda: with_one_change(0)], [lambda: with_one_change(1)], key_names=["k"], section_rows=10_000
    ):
        seen = max(seen, table.column("k")[-1].as_py() // 1_000)
        ahead = max(ahead, taken[0] - seen, taken[1] - seen)
    assert ahead < 40, "read far ahead of what was reported"
