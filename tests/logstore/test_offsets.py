"""Laws of log positions."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError

positions = st.dictionaries(st.integers(0, 6), st.integers(0, 50), max_size=6)
law = settings(max_examples=100, deadline=None, derandomize=True)


@law
@given(positions, positions)
def test_one_position_is_after_another_when_no_bucket_is_behind(ours: dict[int, int], other: dict[int, int]) -> None:
    expected = all(bucket in ours and ours[bucket] >= other[bucket] for bucket in other)
    assert LogOffsets(ours).is_at_or_after(other) is expected


@law
@given(positions, positions)
def test_positions_only_advance(ours: dict[int, int], newer: dict[int, int]) -> None:
    if any(newer[bucket] < ours.get(bucket, 0) for bucket in newer):
        with pytest.raises(CorruptDataError, match="log offset moves backwards: bucket="):
            LogOffsets(ours).advanced(newer)
    else:
        advanced = LogOffsets(ours).advanced(newer)
        assert dict(advanced) == {**ours, **newer}
        assert advanced.is_at_or_after(ours)
        assert advanced.is_at_or_after(newer)


@law
@given(positions, positions, positions)
def test_two_positions_join_in_the_first_that_is_behind_neither(
    ours: dict[int, int], other: dict[int, int], further: dict[int, int]
) -> None:
    joined = LogOffsets(ours).joined(other)
    assert joined == LogOffsets(other).joined(ours)
    assert joined.is_at_or_after(ours)
    assert joined.is_at_or_after(other)
    behind_both = LogOffsets(further).joined(ours).joined(other)
    assert behind_both.is_at_or_after(joined)


@pytest.mark.sweep
@law
@given(positions, positions)
def test_ranges_lead_from_one_position_to_the_next(start: dict[int, int], steps: dict[int, int]) -> None:
    end = {bucket: start.get(bucket, 0) + step for bucket, step in steps.items()}
    ranges = LogOffsets(start).ranges_until(end)
    assert [range_.bucket for range_ in ranges] == sorted(bucket for bucket, step in steps.items() if step)
    assert not any(range_.is_empty for range_ in ranges)
    assert {range_.bucket: range_.end_offset for range_ in ranges} == {
        bucket: end[bucket] for bucket in end if steps[bucket]
    }
    assert all(range_.start_offset == start.get(range_.bucket, 0) for range_ in ranges)


def test_a_position_is_a_value() -> None:
    one = LogOffsets({3: 30, 1: 10})
    assert list(one) == [1, 3]
    assert one == LogOffsets({1: 10, 3: 30}) == {1: 10, 3: 30}
    assert hash(one) == hash(LogOffsets({1: 10, 3: 30}))
    assert pickle.loads(pickle.dumps(one)) == one
    assert LogOffsets() == {}


@pytest.mark.parametrize("bad", [{-1: 0}, {0: -5}])
def test_a_negative_bucket_or_offset_is_corrupt(bad: dict[int, int]) -> None:
    with pytest.raises(CorruptDataError, match="negative"):
        LogOffsets(bad)


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (3, 2)])
def test_a_range_does_not_run_backwards(start: int, end: int) -> None:
    with pytest.raises(CorruptDataError, match="reversed: bucket=4"):
        LogRange(bucket=4, start_offset=start, end_offset=end)
