"""Universal compaction."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.compaction.compaction import CompactionReason
from lsm.compaction.universal import UniversalCompaction
from lsm.errors import InvalidInputError
from lsm.levels import Levels
from tests.lsm.trees import tree, trees

LAWS = settings(max_examples=100, deadline=None, derandomize=True)
Picked = tuple[int, int, CompactionReason] | None


def pick(levels: Levels, *, trigger: int = 3, amplification: int = 200, ratio: int = 1) -> Picked:
    """(runs taken, output level, reason) of the unit."""
    strategy = UniversalCompaction(
        run_count_trigger=trigger, max_size_amplification_percent=amplification, size_ratio_percent=ratio
    )
    unit = strategy.pick(levels)
    if unit is None:
        return None
    assert unit.runs == levels.runs[: len(unit.runs)]
    return len(unit.runs), unit.output_level, unit.reason


def test_below_the_trigger_nothing_happens() -> None:
    """FL-171."""
    assert pick(tree((0, 1), (0, 1)), trigger=3) is None
    assert UniversalCompaction().pick(tree((0, 1), (0, 1), (0, 1), (0, 1))) is None


def test_wasted_space_compacts_everything() -> None:
    """FL-172, FL-174: newer runs weigh more than 200 % of the oldest one."""
    assert pick(tree((0, 100), (0, 101), (5, 100))) == (3, 5, CompactionReason.SIZE_AMPLIFICATION)


def test_space_at_the_limit_is_not_wasted() -> None:
    assert pick(tree((0, 150), (0, 150), (5, 150))) == (3, 5, CompactionReason.SIZE_RATIO)
    assert pick(tree((0, 10), (4, 190), (5, 100))) is None


def test_space_is_looked_at_first() -> None:
    """FL-174: all three checks would say something here."""
    assert pick(tree((0, 1), (0, 1), (0, 1), (0, 1))) == (4, 5, CompactionReason.SIZE_AMPLIFICATION)


def test_runs_of_similar_size_are_joined() -> None:
    """FL-173, FL-175: 100 + 101 are alike within one percent, 1000 is not."""
    assert pick(tree((0, 100), (3, 101), (4, 1000), (5, 5000))) == (2, 3, CompactionReason.SIZE_RATIO)


@pytest.mark.parametrize(("second", "expected"), [(101, 2), (102, None)])
def test_one_percent_is_the_slack(second: int, expected: int | None) -> None:
    picked = pick(tree((0, 100), (2, second), (5, 10_000)))
    assert (picked[0] if picked else None) == expected


def test_joining_stops_before_a_run_larger_than_all_that_were_joined() -> None:
    """Trap 4: the seed's words would join tiny runs with huge ones; RocksDB and Paimon stop there."""
    assert pick(tree((0, 10), (0, 10), (4, 20), (5, 1000)), trigger=4) == (3, 4, CompactionReason.SIZE_RATIO)
    assert pick(tree((0, 10), (4, 900), (5, 1000)), trigger=3) is None


def test_joined_sizes_add_up() -> None:
    assert pick(tree((0, 10), (0, 10), (2, 20), (3, 40), (5, 1000))) == (4, 4, CompactionReason.SIZE_RATIO)


def test_a_large_run_of_level_0_or_1_does_not_stop_what_has_begun() -> None:
    """The output has to go below it in any case. Source: Paimon's UniversalCompaction at HEAD."""
    assert pick(tree((0, 10), (0, 10), (0, 500), (1, 400), (5, 5000))) == (4, 4, CompactionReason.SIZE_RATIO)


def test_too_many_runs_force_the_newest_together() -> None:
    """FL-176: 4 runs, 3 allowed: the newest two, however different."""
    assert pick(tree((0, 1), (3, 50), (4, 500), (5, 5000))) == (2, 3, CompactionReason.RUN_COUNT)


def test_forced_runs_take_similar_ones_along() -> None:
    assert pick(tree((0, 1), (2, 50), (3, 51), (4, 500), (5, 5000)), trigger=4) == (3, 3, CompactionReason.RUN_COUNT)


def test_as_many_runs_as_the_trigger_are_not_too_many() -> None:
    assert pick(tree((0, 1), (4, 50), (5, 500)), trigger=3) is None


def test_the_output_lands_just_above_the_next_run() -> None:
    assert pick(tree((0, 10), (0, 10), (5, 1000))) == (2, 4, CompactionReason.SIZE_RATIO)


def test_the_output_never_lands_in_level_0() -> None:
    """With the next run on level 1 there is no room above it: it is taken too, however large."""
    assert pick(tree((0, 10), (0, 10), (1, 1000), (5, 9000))) == (3, 4, CompactionReason.SIZE_RATIO)
    assert pick(tree((0, 1), (0, 50), (1, 500), (5, 5000))) == (3, 4, CompactionReason.RUN_COUNT)


def test_no_run_of_level_0_is_left_above_the_output() -> None:
    levels = tree((0, 10), (0, 40), (0, 100), (0, 300), (3, 900), (5, 9000))
    assert pick(levels, trigger=5) == (4, 2, CompactionReason.RUN_COUNT)


def test_all_runs_go_to_the_top() -> None:
    assert pick(tree((0, 10), (0, 10), (0, 10)), amplification=1000) == (3, 5, CompactionReason.SIZE_RATIO)


@pytest.mark.parametrize(
    "options",
    [{"run_count_trigger": 0}, {"max_size_amplification_percent": -1}, {"size_ratio_percent": -1}],
)
def test_impossible_numbers_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        UniversalCompaction(**options)


@pytest.mark.sweep
@LAWS
@given(trees(), st.integers(1, 6), st.integers(0, 400), st.integers(0, 50))
def test_a_unit_is_a_prefix_and_what_stays_lies_below_it(
    levels: Levels, trigger: int, amplification: int, ratio: int
) -> None:
    strategy = UniversalCompaction(
        run_count_trigger=trigger, max_size_amplification_percent=amplification, size_ratio_percent=ratio
    )
    unit = strategy.pick(levels)
    if unit is None:
        assert len(levels.runs) <= trigger, "too many runs are never in shape"
        return
    taken = len(unit.runs)
    assert unit.runs == levels.runs[:taken]
    assert taken > 1
    assert 0 < unit.output_level <= levels.top_level
    assert all(run.level > unit.output_level for run in levels.runs[taken:])
    assert all(run.level <= unit.output_level for run in unit.runs)
    assert unit.drops_deletes(levels) or taken < len(levels.runs)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(0, 1), (5, 1000)], (1, 4)),
        ([(0, 1), (0, 1), (4, 1000), (5, 5000)], (2, 3)),
        ([(0, 100), (4, 90), (5, 5000)], (2, 4)),  # alike in size
        ([(0, 1), (1, 1000), (5, 5000)], (2, 4)),  # nothing fits between level 0 and level 1
        ([(0, 1)], (1, 5)),
        ([(4, 1), (5, 100)], None),
    ],
)
def test_level_0_can_be_moved_at_once(runs: list[tuple[int, int]], expected: tuple[int, int] | None) -> None:
    """FL-135: a changelog that is looked up does not wait for more runs. Source: Paimon's ForceUpLevel0Compaction."""
    unit = UniversalCompaction(moves_level0_at_once=True).pick(tree(*runs))
    assert (None if unit is None else (len(unit.runs), unit.output_level)) == expected


@pytest.mark.sweep
@LAWS
@given(trees())
def test_moved_at_once_level_0_is_empty_afterwards(levels: Levels) -> None:
    unit = UniversalCompaction(moves_level0_at_once=True).pick(levels)
    level0 = [run for run in levels.runs if run.level == 0]
    assert unit is not None or not level0
    if unit is not None and level0:
        assert list(unit.runs[: len(level0)]) == level0
        assert unit.output_level >= 1
        left = levels.runs[len(unit.runs) :]
        assert all(run.level > unit.output_level for run in left)
