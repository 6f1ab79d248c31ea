"""Leveled compaction."""

import pytest
from hypothesis import given, settings

from lsm.compaction.compaction import CompactionReason, CompactionUnit
from lsm.compaction.leveled import LeveledCompaction
from lsm.errors import InvalidInputError
from lsm.levels import Levels, SortedFile
from tests.lsm.trees import file, names, trees

LAWS = settings(max_examples=100, deadline=None, derandomize=True)
STRATEGY = LeveledCompaction(
    level0_run_count_trigger=2, max_bytes_for_level_base=1000, max_bytes_for_level_multiplier=5
)


def pick(*files: SortedFile, level_count: int = 4) -> CompactionUnit | None:
    return STRATEGY.pick(Levels.of(files, level_count=level_count))


def test_limits_grow_by_the_multiplier() -> None:
    """FL-169: 1 GB times 5 for every further level."""
    default = LeveledCompaction()
    assert [default.limit_bytes(level) >> 30 for level in (1, 2, 3)] == [1, 5, 25]
    assert default.level0_run_count_trigger == 4


def test_few_flushed_files_wait() -> None:
    assert pick(file("a"), file("big", level=3, size=10**9)) is None


def test_level_0_moves_as_a_whole_with_what_it_overlaps() -> None:
    unit = pick(
        file("new", keys=(40, 60), sequences=(9, 9)),
        file("old", keys=(10, 20), sequences=(8, 8)),
        file("left", level=1, keys=(0, 9)),
        file("gap", level=1, keys=(25, 35)),
        file("mid", level=1, keys=(50, 70)),
        file("right", level=1, keys=(71, 99)),
        file("deep", level=2, keys=(0, 99)),
    )
    assert unit is not None
    assert names(unit.files) == ["new", "old", "gap", "mid"], "gap too: an output file may span it"
    assert (unit.output_level, unit.reason) == (1, CompactionReason.LEVEL0_COUNT)


def test_a_level_over_its_limit_gives_the_stretch_that_drags_least_along() -> None:
    unit = pick(
        file("a", level=1, size=600, keys=(0, 29)),
        file("b", level=1, size=600, keys=(30, 59)),
        file("c", level=1, size=600, keys=(60, 99)),
        file("x", level=2, size=900, keys=(0, 35)),
        file("y", level=2, size=100, keys=(50, 80)),
        file("z", level=2, size=900, keys=(85, 99)),
    )
    # 800 bytes are too many: two neighbours must go. a+b drag 1000 bytes along, b+c 1900.
    assert unit is not None
    assert names(unit.files) == ["a", "b", "x", "y"]
    assert (unit.output_level, unit.reason) == (2, CompactionReason.LEVEL_SIZE)


def test_the_level_that_is_most_over_its_limit_goes_first() -> None:
    unit = pick(file("a", level=1, size=1100), file("b", level=2, size=9000, keys=(0, 9)), level_count=5)
    assert unit is not None
    assert (names(unit.files), unit.output_level) == (["b"], 3)


def test_the_top_level_has_no_limit() -> None:
    assert pick(file("a", level=3, size=10**12), level_count=4) is None


@pytest.mark.parametrize(
    "option", ["level0_run_count_trigger", "max_bytes_for_level_base", "max_bytes_for_level_multiplier"]
)
def test_impossible_numbers_are_refused(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{option}=0"):
        LeveledCompaction(**{option: 0})


@pytest.mark.sweep
@LAWS
@given(trees())
def test_nothing_is_picked_exactly_when_no_level_is_over_its_limit(levels: Levels) -> None:
    sizes: dict[int, int] = {}
    for run in levels.runs:
        sizes[run.level] = sizes.get(run.level, 0) + run.size_bytes
    flushed = sum(run.level == 0 for run in levels.runs)
    over = [
        level for level, size in sizes.items() if 0 < level < levels.top_level and size > STRATEGY.limit_bytes(level)
    ]
    assert (STRATEGY.pick(levels) is None) == (flushed < 2 and not over)


@pytest.mark.sweep
@LAWS
@given(trees())
def test_enough_leaves_a_level_to_bring_it_under_its_limit(levels: Levels) -> None:
    unit = STRATEGY.pick(levels)
    if unit is None or unit.reason is not CompactionReason.LEVEL_SIZE:
        return
    moved = unit.runs[0]
    whole = next(run for run in levels.runs if run.level == moved.level)
    assert whole.size_bytes - moved.size_bytes <= STRATEGY.limit_bytes(moved.level)
    first = whole.files.index(moved.files[0])
    assert whole.files[first : first + len(moved.files)] == moved.files, "a stretch has no gaps"
