"""Unions of bitmaps and sketches. That Java reads and merges them: tests/interop/test_interop_engines.py."""

import sys
from collections.abc import Iterable

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.aggregate.sketch_aggregates import bitmap64_bytes, bitmap64_of, union64
from lsm.errors import InvalidInputError
from tests.lsm.stories import Change, merged

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
wide = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 300_000), st.integers(2**48, 2**48 + 2**26))


def fold(function: str, *values: bytes | None) -> bytes:
    story: list[Change] = [("+I", number, {"v": value}) for number, value in enumerate(values)]
    merge = Aggregation(key_names=("k",), fields={"v": FieldAggregate(function=function)})
    ((_, _, row),) = merged(story, merge, columns={"v": pa.binary()})
    found = row["v"]
    assert isinstance(found, bytes)
    return found


def theta(numbers: Iterable[int]) -> bytes:
    sketch = datasketches.update_theta_sketch()
    for number in numbers:
        sketch.update(number)
    return sketch.compact().serialize()


def hll(numbers: Iterable[int], lg_k: int = 12) -> bytes:
    sketch = datasketches.hll_sketch(lg_k)
    for number in numbers:
        sketch.update(number)
    return sketch.serialize_compact()


def set64(numbers: Iterable[int]) -> bytes:
    groups: dict[int, list[int]] = {}
    for number in sorted(set(numbers)):
        groups.setdefault(number >> 16, []).append(number & 0xFFFF)
    return bitmap64_bytes({key: np.array(low, np.uint16) for key, low in groups.items()})


def numbers64(data: bytes) -> set[int]:
    return {key << 16 | int(low) for key, lows in bitmap64_of(data).items() for low in lows}


def test_sets_are_united() -> None:
    """FL-186."""
    assert set(BitMap.deserialize(fold("rbm32", BitMap([1, 5]).serialize(), None, BitMap([5, 9]).serialize()))) == {
        1,
        5,
        9,
    }
    assert numbers64(fold("rbm64", set64([1, 2**40]), set64([1, 2**63]), set64([]))) == {1, 2**40, 2**63}


@LAWS
@given(st.lists(wide, max_size=400))
def test_64_bit_sets_come_back_as_they_were_written(numbers: list[int]) -> None:
    assert numbers64(set64(numbers)) == set(numbers)


def test_a_group_with_many_numbers_is_a_bitmap_and_java_s_runs_are_read() -> None:
    many = set64(range(0, 60_000, 3))
    assert len(many) < 8300
    assert numbers64(many) == set(range(0, 60_000, 3))
    runs = b"\x01" + (1).to_bytes(8, "little") + b"\x04\0\0\0" + (7).to_bytes(6, "big") + bytes(8)
    runs += b"\x01\0\0\0\xfe\x01\0\0\0\x01\x00" + (5).to_bytes(4, "little") + b"\x02\0" + b"\x03\0\x02\0\x09\0\x01\0"
    runs += (1).to_bytes(8, "little") + bytes(8)
    assert numbers64(runs) == {(7 << 16) + low for low in (3, 4, 5, 9, 10)}


@pytest.mark.sweep
@LAWS
@given(st.lists(st.lists(wide, max_size=50), min_size=1, max_size=4))
def test_a_union_of_64_bit_sets_is_that_of_python_s_sets(parts: list[list[int]]) -> None:
    united = bitmap64_bytes(union64([bitmap64_of(set64(part)) for part in parts]))
    assert united == set64(number for part in parts for number in part)


def test_sketches_estimate_the_union() -> None:
    """FL-186: whether they are merged at once or one after the other."""
    parts = [theta(range(start, start + 6000)) for start in (0, 3000, 9000)]
    at_once = fold("theta_sketch", *parts)
    assert at_once == fold("theta_sketch", fold("theta_sketch", *parts[:2]), parts[2])
    assert datasketches.compact_theta_sketch.deserialize(at_once).get_estimate() == pytest.approx(15_000, rel=0.05)
    parts = [hll(range(start, start + 6000)) for start in (0, 3000, 9000)]
    estimate = datasketches.hll_sketch.deserialize(fold("hll_sketch", *parts)).get_estimate()
    assert estimate == pytest.approx(15_000, rel=0.05)
    assert datasketches.hll_sketch.deserialize(fold("hll_sketch", hll([1]), hll([1, 2], 8))).lg_config_k == 8


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "theta_sketch", "hll_sketch"])
def test_one_value_stays_as_it_is_and_two_of_something_else_are_refused(function: str) -> None:
    assert fold(function, None, b"whatever", None) == b"whatever"
    with pytest.raises(
        InvalidInputError, match=f"column=v .* aggregate_function={function}: the bytes cannot be deserialized"
    ):
        fold(function, b"\x01whatever", b"\x01whatever")


@pytest.mark.parametrize("function", ["theta_sketch", "hll_sketch"])
def test_the_error_without_the_library_names_the_extra(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = theta([1]) if function == "theta_sketch" else hll([1])
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(InvalidInputError, match=rf"{function} needs Apache DataSketches: .*fluvial\[sketches\]"):
        fold(function, values, values)
