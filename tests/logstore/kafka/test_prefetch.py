"""Laws of reading ahead: the same items and errors at the same places, a bounded distance ahead, and no thread left."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.kafka.prefetch import prefetched

law = settings(max_examples=60, deadline=None, derandomize=True)


class Source:
    """Counts, then maybe fails; notes what became of it."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self.count = count
        self.error = error
        self.made = 0
        self.closed_in: threading.Thread | None = None

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(self.count):
                self.made += 1
                yield number
            if self.error is not None:
                raise self.error
        finally:
            self.closed_in = threading.current_thread()


def fail_at(ahead: Iterator[int]) -> None:
    for _ in ahead:
        raise ValueError("consumer")


def helpers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "fluvial-prefetch"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@law
@given(st.integers(0, 30), st.integers(1, 4), st.booleans())
def test_items_come_in_order_and_an_error_at_its_place(count: int, depth: int, fails: bool) -> None:
    source = Source(count, ValueError("here") if fails else None)
    found: list[int] = []
    if fails:
        with pytest.raises(ValueError, match="here"):
            found.extend(prefetched(iter(source), depth=depth))
    else:
        found.extend(prefetched(iter(source), depth=depth))
    assert fails or found == list(range(count))
    assert helpers() == []


def test_all_items_before_an_error_are_given() -> None:
    ahead = prefetched(iter(Source(3, KeyError("gone"))), depth=2)
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(ahead)
    assert helpers() == []


@pytest.mark.sweep
@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_is_made_than_asked_for(depth: int) -> None:
    """One is in the consumer's hands, ``depth`` wait, one is held by the producer."""
    source = Source(100)
    ahead = prefetched(iter(source), depth=depth)
    assert next(ahead) == 0
    until(lambda: source.made == depth + 2)
    time.sleep(0.3)
    assert source.made == depth + 2
    ahead.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["closed", "forgotten", "failed"])
def test_a_consumer_that_stops_early_ends_the_thread_and_closes_the_source_in_it(how: str) -> None:
    source = Source(10**9)
    ahead = prefetched(iter(source), depth=2)
    assert next(ahead) == 0
    [helper] = helpers()
    if how == "closed":
        ahead.close()  # type: ignore[attr-defined]
    elif how == "failed":
        with pytest.raises(ValueError, match="consumer"):
            fail_at(ahead)
    del ahead
    until(lambda: not helper.is_alive())
    assert source.closed_in is helper


def test_work_goes_on_while_an_item_is_in_use() -> None:
    source = Source(3)
    for number in prefetched(iter(source), depth=2):
        until(lambda: source.made == 3)
        assert number <= 2
