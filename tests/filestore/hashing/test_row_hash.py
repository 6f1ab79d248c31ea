"""The hash of rows: equal rows and no others have equal hashes, whatever the arrays look like in memory."""

import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.hashing.row_hash import row_hashes
from filestore.schema.schema_store import new_schema
from filestore.types.data_types import DataField

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "b": (pa.bool_(), st.booleans()),
    "i": (pa.int8(), st.integers(-2, 2)),
    "l": (pa.int64(), st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)])),
    "f": (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan])),
    "d": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "m": (pa.decimal128(38, 2), st.sampled_from([Decimal("0.00"), Decimal("-1.25"), Decimal(10) ** 30])),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "a\0", "sevenby", "eightbyt", "eightbyt9", "é" * 9])),
    "y": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"x" * 16, b"x" * 17])),
    "t": (pa.timestamp("us"), st.sampled_from([datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)])),
    "c": (pa.date32(), st.sampled_from([date(1970, 1, 1), date(1969, 12, 31)])),
    "h": (pa.time32("ms"), st.sampled_from([time(0), time(23, 59, 59)])),
    "a": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 1), max_size=3)),
    "n": (pa.list_(pa.list_(pa.string())), st.lists(st.none() | st.lists(st.sampled_from(["", "x"]), max_size=2))),
    "p": (pa.map_(pa.string(), pa.int32()), st.dictionaries(st.sampled_from("xy"), st.none() | st.integers(0, 1))),
    "r": (
        pa.struct([("u", pa.int32()), ("v", pa.struct([("w", pa.string())]))]),
        st.fixed_dictionaries(
            {
                "u": st.none() | st.integers(0, 1),
                "v": st.none() | st.fixed_dictionaries({"w": st.none() | st.just("x")}),
            }
        ),
    ),
    "q": (
        pa.list_(pa.struct([("k", pa.int64()), ("z", pa.list_(pa.float64()))])),
        st.lists(
            st.none()
            | st.fixed_dictionaries({"k": st.integers(0, 1), "z": st.none() | st.lists(st.just(-0.0), max_size=2)}),
            max_size=2,
        ),
    ),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])
FIELDS = new_schema(SCHEMA, time_ms=0).fields
ROWS = st.fixed_dictionaries({name: st.none() | values for name, (_, values) in VALUES.items()})


def hashes(rows: list[dict[str, Any]], names: list[str] | None = None) -> list[tuple[int, int]]:
    return hashes_of(pa.RecordBatch.from_pylist(rows, schema=SCHEMA), names)


def hashes_of(batch: pa.RecordBatch, names: list[str] | None = None) -> list[tuple[int, int]]:
    fields = [field for field in FIELDS if names is None or field.name in names]
    one, two = row_hashes([batch.column(field.name) for field in fields], fields)
    return list(zip(one.to_pylist(), two.to_pylist(), strict=True))


@pytest.mark.sweep
@given(ROWS, ROWS, ROWS)
@settings(max_examples=60)
def test_rows_have_one_hash_exactly_when_they_are_equal(one: Any, two: Any, three: Any) -> None:
    """FL-184: rows are kept apart by their values, of every type, nulls and NaN included."""
    names = list(VALUES)
    mixed = [{name: (one, two)[bits >> at & 1][name] for at, name in enumerate(names)} for bits in (0, 1, 6, 73, 4097)]
    rows = [one, two, three, *mixed, dict(one), dict(three)]
    found = hashes(rows)
    texts = [repr([row[name] for name in names]) for row in rows]  # -0.0 is not 0.0 and nan is nan
    for first in range(len(rows)):
        for second in range(first):
            assert (found[first] == found[second]) == (texts[first] == texts[second])
            assert (found[first][0] == found[second][0]) == (found[first][1] == found[second][1])


@pytest.mark.sweep
@given(st.lists(ROWS, min_size=1, max_size=6), st.data())
@settings(max_examples=40)
def test_the_hash_is_of_the_values_not_of_the_arrays(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """FL-184: slices, gathered rows and single rows have the hashes that the whole batch has."""
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    whole = hashes_of(batch)
    start = data.draw(st.integers(0, len(rows) - 1))
    assert hashes_of(batch.slice(start)) == whole[start:]
    order = data.draw(st.permutations(range(len(rows))))
    assert hashes_of(batch.take(pa.array(order))) == [whole[place] for place in order]
    assert [hashes([row])[0] for row in rows] == whole


def test_many_rows_and_few_have_the_same_hashes() -> None:
    """FL-184: 100,000 different rows have 100,000 hashes, those of each row alone."""
    count = 100_000
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(count), pa.int64()), pa.array([f"name-{number % 977}" for number in range(count)])],
        names=["l", "s"],
    )
    found = hashes_of(batch, ["l", "s"])
    assert len({half for half, _ in found}) == len({half for _, half in found}) == count
    for place in (0, 32_767, 32_768, 65_537, count - 1):
        assert hashes_of(batch.slice(place, 1), ["l", "s"]) == [found[place]]


def test_a_column_without_values_changes_no_hash() -> None:
    """FL-184: a column that is added later is null in old rows, and they keep their hashes."""
    row = {"s": "x", "l": 7}
    assert hashes([row]) == hashes([row], ["s", "l"]) == hashes([row], ["l", "q", "s"])
    assert hashes([{**row, "i": 0}]) != hashes([row])


def test_all_nans_are_one() -> None:
    """FL-184: whatever bits a NaN has, in both widths; and -0.0 is another row than 0.0."""
    for bits, floats in ((np.uint64, np.float64), (np.uint32, np.float32)):
        width = np.dtype(bits).itemsize * 8
        quiet = (0x7FF8 << 48) if width == 64 else 0x7FC0_0000
        patterns = np.array([quiet, quiet + 1, quiet | 1 << (width - 1)], bits)
        column = pa.array(np.concatenate([patterns.view(floats), np.array([0.0, -0.0], floats)]))
        field = FIELDS[SCHEMA.get_field_index("d" if width == 64 else "f")]
        one, two = row_hashes([column], [field])
        assert [len(set(half.to_pylist()[:3])) for half in (one, two)] == [1, 1]
        assert len(set(one.to_pylist())) == len(set(two.to_pylist())) == 3


def test_values_do_not_move_between_columns() -> None:
    """FL-184: the same value in another column is another row."""
    fields = [DataField(id=number, name=name, type=FIELDS[2].type) for number, name in enumerate("xy")]
    columns = [pa.array([1, 2, None, 1]), pa.array([2, 1, 1, None])]
    one, two = row_hashes(columns, fields)
    assert len(set(one.to_pylist())) == len(set(two.to_pylist())) == 4


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"l": 1, "s": "eightbyt9"}, (-2183025131888691074, -705402947584572307)),
        (
            {"d": math.nan, "m": Decimal("-1.25"), "a": [1, None], "p": {"x": 1}, "r": {"u": 1, "v": {"w": "x"}}},
            (-6957523495781192276, 4460933680838225786),
        ),
    ],
)
def test_hashes_never_change(row: dict[str, Any], expected: tuple[int, int]) -> None:
    """FL-184: hashes are stored, so these never change."""
    assert hashes([row]) == [expected]
