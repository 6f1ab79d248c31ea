"""What strategies promise of a tree whatever was flushed into it and in which order."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.compaction.compaction import CompactionReason, CompactionStrategy, CompactionUnit, full_compaction, merge_cost
from lsm.compaction.leveled import LeveledCompaction
from lsm.compaction.universal import EarlyFullCompaction, OffPeakHours, UniversalCompaction
from lsm.levels import Levels, SortedFile
from tests.lsm.trees import file, tree, trees

LAWS = settings(max_examples=60, deadline=None, derandomize=True)
FLUSHES = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 80), st.integers(0, 19)), min_size=1, max_size=40)
Flush = tuple[int, int, int]  # size, first key, keys after it


def check_legal(levels: Levels, unit: CompactionUnit) -> None:
    """Newest runs only, an output between level 1 and the top, and nothing older left above it."""
    assert 0 < unit.output_level <= levels.top_level
    assert unit.files
    taken = {each.file_name for each in unit.files}
    for run in levels.runs:
        if run.level == 0 and not taken & {each.file_name for each in run.files}:
            newer = [each for each in unit.files if each.level == 0]
            assert all(run.max_sequence_number > each.max_sequence_number for each in newer) or not newer


def merged(unit: CompactionUnit, name: str, percent_left: int, now_ms: int) -> list[SortedFile]:
    """One file instead of the unit's: between nothing saved and most of it."""
    files = unit.files
    return [
        file(
            name,
            level=unit.output_level,
            size=max(unit.size_bytes * percent_left // 100, max(each.size_bytes for each in files)),
            keys=(min(each.min_key[0] for each in files), max(each.max_key[0] for each in files)),
            sequences=(
                min(each.min_sequence_number for each in files),
                max(each.max_sequence_number for each in files),
            ),
            created=now_ms,
        )
    ]


def history(
    strategy: Callable[[int], CompactionStrategy],
    flushes: list[Flush],
    percent_left: int,
    check: Callable[[Levels, int], None],
    *,
    level_count: int,
) -> None:
    """Flush, compact while there is something to compact, check; again and again. A flush takes a second."""
    levels = Levels.of([], level_count=level_count)
    for number, (size, first, width) in enumerate(flushes):
        now_ms = number * 1000
        flushed = file(
            f"flush-{number}", size=size, keys=(first, first + width), sequences=(number, number), created=now_ms
        )
        levels = levels.replaced([], [flushed])
        for turn in range(100):
            unit = strategy(now_ms).pick(levels)
            if unit is None:
                break
            check_legal(levels, unit)
            levels = levels.replaced(unit.runs, merged(unit, f"merged-{number}-{turn}", percent_left, now_ms))
        else:
            raise AssertionError("compaction comes to no end")
        check(levels, now_ms)


@LAWS
@given(FLUSHES, st.integers(1, 6), st.integers(0, 300), st.integers(0, 50), st.integers(50, 100), st.booleans())
def test_universal_bounds_runs_and_waste(
    flushes: list[Flush], trigger: int, amplification: int, ratio: int, percent_left: int, at_once: bool
) -> None:
    """FL-171 to FL-177: never more runs than the trigger; with as many as it, no more waste than is allowed."""
    strategy = UniversalCompaction(
        run_count_trigger=trigger,
        max_size_amplification_percent=amplification,
        size_ratio_percent=ratio,
        moves_level0_at_once=at_once,
    )

    def check(levels: Levels, _now_ms: int) -> None:
        runs = levels.runs
        assert len(runs) <= trigger
        if len(runs) == trigger:
            newer = sum(run.size_bytes for run in runs[:-1])
            assert newer * 100 <= amplification * runs[-1].size_bytes
        assert not (at_once and runs[0].level == 0)

    history(lambda _: strategy, flushes, percent_left, check, level_count=trigger + 1)


@pytest.mark.sweep
@LAWS
@given(FLUSHES, st.integers(1, 5), st.integers(1, 1000), st.integers(2, 5), st.integers(50, 100))
def test_leveled_keeps_the_size_of_every_level(
    flushes: list[Flush], trigger: int, base: int, multiplier: int, percent_left: int
) -> None:
    """FL-169, FL-170: level 0 has less files than its trigger, every other level but the top is within its limit."""
    strategy = LeveledCompaction(
        level0_run_count_trigger=trigger, max_bytes_for_level_base=base, max_bytes_for_level_multiplier=multiplier
    )

    def check(levels: Levels, _now_ms: int) -> None:
        assert sum(run.level == 0 for run in levels.runs) < trigger
        for run in levels.runs:
            assert run.level in (0, levels.top_level) or run.size_bytes <= strategy.limit_bytes(run.level)
        assert len({run.level for run in levels.runs if run.level}) == sum(run.level > 0 for run in levels.runs)

    history(lambda _: strategy, flushes, percent_left, check, level_count=5)


@pytest.mark.sweep
@LAWS
@given(
    FLUSHES,
    st.none() | st.integers(1, 9000),
    st.none() | st.integers(0, 2000),
    st.none() | st.integers(0, 2000),
    st.sampled_from(["universal", "leveled"]),
)
def test_early_full_compactions_keep_their_limits(
    flushes: list[Flush], interval_ms: int | None, total: int | None, incremental: int | None, style: str
) -> None:
    """FL-174: whatever lies above the top level is younger, smaller or part of a larger bucket than was asked for."""
    usual: CompactionStrategy = UniversalCompaction() if style == "universal" else LeveledCompaction()

    def strategy(now_ms: int) -> CompactionStrategy:
        return EarlyFullCompaction(
            otherwise=usual,
            now_ms=now_ms,
            interval_ms=interval_ms,
            total_size_bytes=total,
            incremental_size_bytes=incremental,
        )

    def check(levels: Levels, now_ms: int) -> None:
        top = [run for run in levels.runs if run.level == levels.top_level]
        above = sum(run.size_bytes for run in levels.runs if run not in top)
        if len(levels.runs) < 2:
            return
        assert total is None or above + sum(run.size_bytes for run in top) >= total
        assert incremental is None or above <= incremental
        if interval_ms is not None:
            assert top
            assert now_ms - max(each.creation_time_ms for each in top[0].files) < interval_ms

    history(strategy, flushes, 100, check, level_count=5)


def test_each_limit_alone() -> None:
    """compaction.optimization-interval, .total-size-threshold, .incremental-size-threshold, by their edges."""
    levels = Levels.of(
        [file("new", size=30, sequences=(9, 9), created=5000), file("old", level=4, size=100, created=1000)],
        level_count=5,
    )

    def picked(now_ms: int = 0, **limits: int) -> CompactionReason | None:
        unit = EarlyFullCompaction(otherwise=UniversalCompaction(), now_ms=now_ms, **limits).pick(levels)
        if unit is not None:
            assert (unit.runs, unit.output_level) == (levels.runs, 4)
        return None if unit is None else unit.reason

    early = CompactionReason.EARLY_FULL
    assert (picked(2999, interval_ms=2000), picked(3000, interval_ms=2000)) == (None, early)
    assert (picked(total_size_bytes=130), picked(total_size_bytes=131)) == (None, early)
    assert (picked(incremental_size_bytes=30), picked(incremental_size_bytes=29)) == (None, early)
    assert picked(10**9) is None
    nothing_on_top = tree((0, 10), (0, 10), level_count=5)
    found = EarlyFullCompaction(otherwise=UniversalCompaction(), now_ms=0, interval_ms=10**9).pick(nothing_on_top)
    assert found is not None, "the top level has nothing to read at all"
    one = tree((0, 10), level_count=5)
    assert EarlyFullCompaction(otherwise=UniversalCompaction(), now_ms=0, total_size_bytes=99).pick(one) is None


def test_off_peak_hours_may_go_over_midnight() -> None:
    """compaction.offpeak.start.hour, .end.hour, -ratio: the end is not one of them."""
    day = OffPeakHours(start_hour=9, end_hour=17, ratio_percent=80)
    night = OffPeakHours(start_hour=22, end_hour=6, ratio_percent=80)
    assert [hour for hour in range(24) if day.ratio_at(hour)] == list(range(9, 17))
    assert [hour for hour in range(24) if night.ratio_at(hour)] == [0, 1, 2, 3, 4, 5, 22, 23]
    assert not any(OffPeakHours(start_hour=5, end_hour=5, ratio_percent=80).ratio_at(hour) for hour in range(24))


@pytest.mark.sweep
@LAWS
@given(trees())
def test_one_run_costs_readers_nothing(levels: Levels) -> None:
    """What is compacted first is what readers pay most for; afterwards they pay nothing."""
    runs, size = len(levels.runs), sum(each.size_bytes for each in levels.files)
    assert merge_cost(levels) == max(runs - 1, 0) * size
    unit = full_compaction(levels)
    if unit is not None:
        assert merge_cost(levels.replaced(unit.runs, merged(unit, "all", 100, 0))) == 0
    assert (full_compaction(levels, even_if_done=True) is None) == (not levels.runs)
