"""Levels, runs and sections."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.errors import CorruptDataError
from lsm.levels import Levels, SortedFile, sections
from tests.lsm.trees import file, names, tree, trees

LAWS = settings(max_examples=100, deadline=None, derandomize=True)


def test_level_0_is_ordered_by_recency_then_the_levels_follow() -> None:
    levels = Levels.of(
        [
            file("deep", level=2),
            file("old", sequences=(0, 5)),
            file("b", sequences=(7, 9), created=1),
            file("a", sequences=(7, 9), created=1),
            file("later", sequences=(7, 9), created=2),
            file("wide", sequences=(6, 9)),
            file("mid", level=1),
        ],
        level_count=6,
    )
    assert [run.files[0].file_name for run in levels.runs] == ["wide", "a", "b", "later", "old", "mid", "deep"]
    assert [run.level for run in levels.runs] == [0, 0, 0, 0, 0, 1, 2]


def test_a_level_is_one_run_in_key_order() -> None:
    levels = Levels.of([file("z", level=3, keys=(50, 60)), file("a", level=3, keys=(1, 49))], level_count=6)
    (run,) = levels.runs
    assert names(run.files) == ["a", "z"]
    assert (run.min_key, run.max_key, run.size_bytes, run.row_count) == ((1,), (60,), 200, 20)


def test_files_of_one_level_that_share_a_key_are_corrupt() -> None:
    with pytest.raises(CorruptDataError, match="files of one level overlap: level=1 left=a right=b"):
        Levels.of([file("b", level=1, keys=(5, 9)), file("a", level=1, keys=(1, 5))], level_count=6)


def test_files_of_level_0_may_overlap() -> None:
    assert len(Levels.of([file("a"), file("b")], level_count=6).runs) == 2


@pytest.mark.parametrize(
    ("levels", "highest", "top"),
    [(tree(), -1, 5), (tree((0, 1)), 0, 5), (tree((0, 1), (4, 1)), 4, 5), (tree((9, 1)), 9, 9)],
)
def test_the_top_is_the_last_configured_level_or_a_deeper_one_in_use(levels: Levels, highest: int, top: int) -> None:
    assert (levels.highest_non_empty_level, levels.top_level) == (highest, top)


def test_a_compaction_replaces_its_inputs() -> None:
    levels = Levels.of(
        [file("new"), file("old", level=5, keys=(0, 9)), file("kept", level=5, keys=(10, 19))], level_count=6
    )
    after = levels.replaced(levels.runs[:1], [file("out", level=5, keys=(20, 30))])
    assert names(after.files) == ["old", "kept", "out"]
    with pytest.raises(CorruptDataError):
        levels.replaced(levels.runs[:1], [file("out", level=5, keys=(5, 30))])


def test_files_that_touch_no_other_make_sections_of_their_own() -> None:
    found = sections([file("c", keys=(20, 30)), file("a", keys=(0, 5)), file("b", keys=(5, 9))])
    assert [[names(run.files) for run in section] for section in found] == [[["a"], ["b"]], [["c"]]]


def test_disjoint_files_of_a_section_are_chained_within_their_level() -> None:
    big = file("big", level=5, keys=(0, 99), sequences=(0, 9))
    left, right = file("left", level=1, keys=(0, 40), sequences=(10, 19)), file("right", level=1, keys=(41, 99))
    (section,) = sections([right, big, left])
    assert [names(run.files) for run in section] == [["big"], ["left", "right"]]


@pytest.mark.sweep
@LAWS
@given(trees())
def test_sections_partition_the_files_and_share_no_key(levels: Levels) -> None:
    found = sections(levels.files)
    flat = [each for section in found for run in section for each in run.files]
    assert sorted(names(flat)) == sorted(names(levels.files))
    for left, right in pairwise(found):
        assert max(run.max_key for run in left) < min(run.min_key for run in right)
    for section in found:
        for run in section:
            assert all(a.max_key < b.min_key for a, b in pairwise(run.files))
        assert [run.max_sequence_number for run in section] == sorted(run.max_sequence_number for run in section)


@pytest.mark.sweep
@LAWS
@given(trees())
def test_a_section_has_as_many_runs_as_files_meet_in_one_key(levels: Levels) -> None:
    def depth(files: list[SortedFile]) -> int:
        return max(sum(each.overlaps((key,), (key,)) for each in files) for key in range(100))

    for section in sections(levels.files):
        assert len(section) == depth([each for run in section for each in run.files])


@LAWS
@given(st.lists(st.integers(0, 99), min_size=2, max_size=2).map(sorted), st.integers(0, 99))
def test_overlap_includes_both_ends(keys: list[int], key: int) -> None:
    assert file("a", keys=(keys[0], keys[1])).overlaps((key,), (key,)) == (keys[0] <= key <= keys[1])
