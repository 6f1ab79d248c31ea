"""What the source of a job plans: topics that join, topics that are gone or recreated, requests."""

from engine.cdc.source import next_position, planned_ranges

A, B = ("shop.a", 0), ("shop.b", 0)


def planned(start: dict[str, object], end: dict[str, object]) -> list[tuple[str, int, int]]:
    return [(each.topic, each.start_offset, each.end_offset) for each in planned_ranges(start, end)]


def test_a_topic_joins_at_its_earliest_record_and_idle_ones_are_not_planned() -> None:
    first = next_position({}, {A: 3}, {A: 5}, [], limit=None)
    assert planned({}, first) == [("shop.a", 3, 5)]
    assert next_position(first, {}, {A: 5}, [], limit=None) == first  # nothing new: no batch
    second = next_position(first, {B: 7}, {A: 5, B: 9}, [], limit=None)
    assert planned(first, second) == [("shop.b", 7, 9)]
    assert planned({}, {}) == []


def test_a_topic_that_is_gone_keeps_its_position_and_a_recreated_one_is_read_from_its_beginning() -> None:
    first = next_position({}, {A: 0, B: 0}, {A: 5, B: 9}, [], limit=None)
    assert next_position(first, {}, {A: 5}, [], limit=None) == first
    again = next_position(first, {}, {A: 2, B: 9}, [], limit=None)
    assert planned(first, again) == [("shop.a", 0, 2)]


def test_a_request_is_a_batch_of_its_own_with_the_ends_of_all_partitions() -> None:
    first = next_position({}, {A: 0}, {A: 5}, [], limit=None)
    asked = next_position(first, {}, {A: 5}, ["resume-orders"], limit=None)
    assert planned(first, asked) == [("shop.a", 5, 5)]
    assert next_position(asked, {}, {A: 5}, [], limit=None) == asked  # answered: nothing more to do


def test_a_limit_is_shared() -> None:
    end = next_position({}, {A: 0, B: 0}, {A: 30, B: 10}, [], limit=8)
    assert planned({}, end) == [("shop.a", 0, 6), ("shop.b", 0, 2)]
