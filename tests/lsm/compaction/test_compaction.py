"""Compaction units, and the laws that every strategy keeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.compaction.compaction import CompactionReason, CompactionStrategy, CompactionUnit, full_compaction
from lsm.compaction.leveled import LeveledCompaction
from lsm.compaction.universal import UniversalCompaction
from lsm.levels import Levels, SortedFile, SortedRun
from tests.lsm.trees import file, names, tree, trees

LAWS = settings(max_examples=100, deadline=None, derandomize=True)
strategies = st.one_of(
    st.builds(
        UniversalCompaction, run_count_trigger=st.integers(1, 6), max_size_amplification_percent=st.integers(0, 400)
    ),
    st.builds(
        LeveledCompaction,
        level0_run_count_trigger=st.integers(1, 4),
        max_bytes_for_level_base=st.integers(1, 2000),
        max_bytes_for_level_multiplier=st.integers(1, 3),
    ),
)


def test_everything_goes_to_the_top_when_forced() -> None:
    levels = tree((0, 10), (0, 10), (3, 50))
    unit = full_compaction(levels)
    assert unit is not None
    assert (unit.runs, unit.output_level, unit.reason) == (levels.runs, 5, CompactionReason.FORCED)
    assert (names(unit.files), unit.size_bytes) == (["f0", "f1", "f2"], 70)


@pytest.mark.parametrize("levels", [tree(), tree((5, 100))])
def test_a_tree_that_is_one_clean_top_run_needs_nothing(levels: Levels) -> None:
    assert full_compaction(levels) is None


def test_a_top_run_with_deletes_is_rewritten_once_more() -> None:
    levels = Levels.of([file("a", level=5, deletes=1)], level_count=6)
    unit = full_compaction(levels)
    assert unit is not None
    assert unit.drops_deletes(levels)


def test_a_tree_of_one_level_still_leaves_level_0() -> None:
    unit = full_compaction(tree((0, 1), (0, 1), level_count=1))
    assert unit is not None
    assert unit.output_level == 1


def _unit(runs: tuple[SortedRun, ...], output_level: int) -> CompactionUnit:
    return CompactionUnit(runs=runs, output_level=output_level, reason=CompactionReason.FORCED)


def test_deletes_stay_while_an_older_row_may_lie_below() -> None:
    levels = tree((0, 10), (0, 10), (5, 100))
    assert not _unit(levels.runs[:2], 4).drops_deletes(levels)
    assert _unit(levels.runs, 5).drops_deletes(levels)


def test_deletes_go_when_nothing_below_has_their_keys() -> None:
    levels = Levels.of([file("a", keys=(0, 9), sequences=(5, 9)), file("b", level=5, keys=(10, 19))], level_count=6)
    assert _unit(levels.runs[:1], 4).drops_deletes(levels)


def test_a_newer_flush_does_not_keep_deletes_alive() -> None:
    levels = Levels.of(
        [file("flush", sequences=(20, 29)), file("a", level=1, sequences=(0, 9), deletes=1)], level_count=2
    )
    assert _unit(levels.runs[1:], 1).drops_deletes(levels)


def test_a_flush_numbered_by_a_second_writer_does() -> None:
    levels = Levels.of(
        [file("flush", sequences=(5, 14)), file("a", level=1, sequences=(0, 9), deletes=1)], level_count=2
    )
    assert not _unit(levels.runs[1:], 1).drops_deletes(levels)


@pytest.mark.sweep
@LAWS
@given(trees(), strategies)
def test_what_is_picked_can_replace_its_inputs(levels: Levels, strategy: CompactionStrategy) -> None:
    """FL-170: every level but 0 stays one sorted run, wherever in the inputs' range the outputs begin and end."""
    unit = strategy.pick(levels)
    if unit is None:
        return
    assert unit.output_level > 0
    low, high = min(run.min_key for run in unit.runs), max(run.max_key for run in unit.runs)
    levels.replaced(unit.runs, [file("out", level=unit.output_level, keys=(low[0], high[0]))])


@pytest.mark.sweep
@LAWS
@given(trees(), strategies)
def test_no_older_row_is_left_above_a_newer_one(levels: Levels, strategy: CompactionStrategy) -> None:
    unit = strategy.pick(levels)
    if unit is None:
        return
    inputs = set(names(unit.files))
    age = {each.file_name: index for index, run in enumerate(levels.runs) for each in run.files}
    for left in levels.files:
        if left.file_name in inputs or left.level > unit.output_level:
            continue
        for each in unit.files:
            if left.overlaps(each.min_key, each.max_key):
                assert age[left.file_name] < age[each.file_name], "an older file would lie above the output"


@pytest.mark.sweep
@LAWS
@given(trees(), strategies)
def test_deletes_are_dropped_only_when_no_older_file_has_the_key(levels: Levels, strategy: CompactionStrategy) -> None:
    unit = strategy.pick(levels)
    if unit is None or not unit.drops_deletes(levels):
        return
    inputs = set(names(unit.files))
    age = {each.file_name: index for index, run in enumerate(levels.runs) for each in run.files}
    older: list[SortedFile] = [
        left
        for left in levels.files
        for each in unit.files
        if left.file_name not in inputs
        and left.overlaps(each.min_key, each.max_key)
        and age[left.file_name] > age[each.file_name]
    ]
    assert older == []


@pytest.mark.sweep
@LAWS
@given(trees(), strategies)
def test_compacting_until_nothing_is_picked_comes_to_an_end(levels: Levels, strategy: CompactionStrategy) -> None:
    for step in range(60):
        unit = strategy.pick(levels)
        if unit is None:
            return
        low, high = min(run.min_key for run in unit.runs), max(run.max_key for run in unit.runs)
        # Halved: compactions drop old versions.
        merged = file(f"out{step}", level=unit.output_level, size=unit.size_bytes // 2, keys=(low[0], high[0]))
        levels = levels.replaced(unit.runs, [merged])
    pytest.fail("compaction does not end")
