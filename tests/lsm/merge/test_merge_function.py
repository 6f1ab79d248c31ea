"""Deduplicate and first-row: which of the rows of a key stands."""

import pytest

from lsm.errors import InvalidInputError
from lsm.merge.merge_function import Deduplicate, FirstRow
from tests.lsm.stories import Change, merged, values_of


def a(changes: list[Change]) -> list[int]:
    return [values["a"] for values in values_of(changes)]


def test_the_larger_number_wins() -> None:
    """FL-160."""
    assert merged([("+I", 0, {"a": 1}), ("+U", 1, {"a": 2})], Deduplicate()) == [
        ("+U", 1, {"a": 2, "b": None, "g": None})
    ]


def test_the_place_of_a_row_says_nothing_about_its_age() -> None:
    assert a(merged([("+I", 5, {"a": 5}), ("+I", 1, {"a": 1})], Deduplicate())) == [5]


@pytest.mark.parametrize("kind", ["-D", "-U"])
def test_a_retract_as_newest_row_removes_the_key(kind: str) -> None:
    story: list[Change] = [("+I", 0, {"a": 1}), (kind, 1, {"a": 1})]
    assert merged(story, Deduplicate()) == []
    assert merged(story, Deduplicate(), drop_deletes=False) == [(kind, 1, {"a": 1, "b": None, "g": None})]


def test_a_key_that_was_removed_can_come_back() -> None:
    assert a(merged([("+I", 0, {"a": 1}), ("-D", 1, {"a": 1}), ("+I", 2, {"a": 3})], Deduplicate())) == [3]


@pytest.mark.parametrize("add_is_first", [True, False])
def test_of_an_add_and_a_retract_with_one_number_the_add_is_newer(add_is_first: bool) -> None:
    story: list[Change] = [("+I", 3, {"a": 1}), ("-D", 3, {"a": 2})]
    assert a(merged(story if add_is_first else story[::-1], Deduplicate())) == [1]


def test_a_sequence_field_decides_before_the_number_and_null_is_oldest() -> None:
    story: list[Change] = [("+I", 0, {"a": 1, "g": 9}), ("+I", 1, {"a": 2, "g": 3}), ("+I", 2, {"a": 3})]
    assert a(merged(story, Deduplicate(), sequence_names=["g"])) == [1]
    assert a(merged(story, Deduplicate(), sequence_names=["g"], sequence_descending=True)) == [2]


def test_of_equal_sequence_fields_the_larger_number_wins_in_both_directions() -> None:
    story: list[Change] = [("+I", 1, {"a": 1, "g": 5}), ("+I", 0, {"a": 2, "g": 5})]
    assert a(merged(story, Deduplicate(), sequence_names=["g"])) == [1]
    assert a(merged(story, Deduplicate(), sequence_names=["g"], sequence_descending=True)) == [1]


def test_ignored_deletes_are_as_if_they_were_not_there() -> None:
    story: list[Change] = [("+I", 0, {"a": 1}), ("-D", 1, {"a": 1})]
    assert a(merged(story, Deduplicate(ignore_delete=True))) == [1]
    assert a(merged([("+I", 0, {"a": 1}), ("+U", 1, {"a": 2})], Deduplicate(ignore_delete=True))) == [2]
    assert merged([("-D", 0, {}), ("-D", 1, {})], Deduplicate(ignore_delete=True)) == []


def test_a_single_retract_stands_as_it_is() -> None:
    story: list[Change] = [("-U", 3, {"a": 1})]
    for merge in (Deduplicate(), Deduplicate(ignore_delete=True), FirstRow(), FirstRow(ignore_delete=True)):
        assert merged(story, merge) == []
        assert len(merged(story, merge, drop_deletes=False)) == 1
        # Also when another key makes a merge necessary.
        both: list[Change] = [*story, ("+I", 0, {"k": 2, "a": 7}), ("+I", 1, {"k": 2, "a": 8})]
        assert len(merged(both, merge)) == 1
        assert len(merged(both, merge, drop_deletes=False)) == 2


def test_the_first_row_stands() -> None:
    story: list[Change] = [("+I", 7, {"a": 2}), ("+I", 3, {"a": 1}), ("+U", 9, {"a": 3})]
    assert merged(story, FirstRow()) == [("+I", 3, {"a": 1, "b": None, "g": None})]


def test_a_first_row_is_not_taken_back() -> None:
    story: list[Change] = [("+I", 0, {"a": 1}), ("-D", 1, {"a": 1})]
    with pytest.raises(InvalidInputError, match=r"first-row does not support retracts: .* fix=set ignore-delete=true"):
        merged(story, FirstRow())
    assert a(merged(story, FirstRow(ignore_delete=True))) == [1]
    assert a(merged([("-D", 0, {"a": 1}), ("+I", 1, {"a": 2})], FirstRow(ignore_delete=True))) == [2]
