"""The order of writers, without files: every interleaving of a few writers is a list of whose step is next."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.write.ticket_queue import Sighting, Ticket, Verdict, sightings, whose_turn

LEASE_S = 10.0


def ticket(number: int, holder: str = "a", *, id: str = "", beat: int = 0) -> Ticket:
    return Ticket(number=number, id=id or f"{holder}-{number}", holder=holder, place="h/1", since_ms=0, beat=beat)


@dataclass
class Queue:
    """A directory of tickets, and what its writers did, in order."""

    tickets: dict[int, Ticket] = field(default_factory=dict)
    holding: set[str] = field(default_factory=set)
    counted: list[str] = field(default_factory=list)  # writers in the order in which their tickets began to count
    went: list[str] = field(default_factory=list)
    now_s: float = 0.0


def writer(queue: Queue, name: str, guess: int, *, dies: bool = False) -> Iterator[None]:
    """One writer; between two yields is one operation on files that nothing can cut in two."""
    number, lives = guess, 0
    while True:
        while number in queue.tickets:
            yield
            number = max([*queue.tickets, number]) + 1
            yield
        lives += 1
        own = queue.tickets[number] = ticket(number, name, id=f"{name}.{lives}")
        counts, seen, ahead = False, dict[int, Sighting](), dict[int, Ticket]()
        yield
        while True:
            numbers = set(queue.tickets)
            yield
            if counts:
                ahead = {each: queue.tickets[each] for each in numbers if each < number and each in queue.tickets}
                seen = sightings(seen, ahead, now_s=queue.now_s)
            found = whose_turn(own, numbers, ahead, seen, counts=counts, now_s=queue.now_s, lease_s=LEASE_S)
            for each in found.dead:
                queue.tickets.pop(each.number, None)
            if found.verdict in (Verdict.WITHDRAW, Verdict.LOST):
                if found.verdict is Verdict.WITHDRAW:
                    del queue.tickets[number]
                number = max([*numbers, number]) + 1
                break
            if not counts:
                queue.counted.append(name)
            counts = True
            if found.verdict is Verdict.WAIT:
                if number in queue.tickets:
                    queue.tickets[number] = replace(own, beat=queue.tickets[number].beat + 1)
                yield
                continue
            queue.went.append(name)
            queue.holding.add(name)
            assert len(queue.holding) == 1, f"two have the turn: {queue.holding}"
            if dies:
                queue.holding.clear()
                return
            yield
            yield
            queue.holding.remove(name)
            del queue.tickets[number]
            return


def played(queue: Queue, writers: list[Iterator[None]], schedule: list[int]) -> None:
    """Let the writers go by the schedule, then one after the other until all are done."""
    left = [*writers]

    def step(each: Iterator[None]) -> None:
        if next(each, "done") == "done":
            left.remove(each)

    for index in schedule:
        if left:
            step(left[index % len(left)])
    for _ in range(2000):
        for each in [*left]:
            step(each)
        queue.now_s += 0.1
        if not left:
            return
    raise AssertionError(f"stuck: {queue}")


GUESSES = st.lists(st.integers(1, 4), min_size=2, max_size=4)
SCHEDULE = st.lists(st.integers(0, 3), max_size=60)


@pytest.mark.sweep
@given(GUESSES, SCHEDULE)
def test_one_at_a_time_in_the_order_in_which_they_came(guesses: list[int], schedule: list[int]) -> None:
    """FL-87, FL-88: whatever numbers they try first, and however their operations interleave."""
    queue = Queue()
    played(queue, [writer(queue, f"w{index}", guess) for index, guess in enumerate(guesses)], schedule)
    assert sorted(queue.went) == [f"w{index}" for index in range(len(guesses))]
    assert queue.tickets == {}


@given(GUESSES, SCHEDULE)
def test_who_counts_is_not_overtaken_by_who_comes_later(guesses: list[int], schedule: list[int]) -> None:
    """FL-90: none starves. The latecomer begins when the others count."""
    queue = Queue()
    first = [writer(queue, f"w{index}", guess) for index, guess in enumerate(guesses)]
    for _ in range(200):
        for each in first:
            if len(queue.counted) < len(guesses) and not queue.went:
                next(each)
    if queue.went:
        return  # one had the turn before the others came
    waiting = set(queue.counted)
    played(queue, [*first, writer(queue, "late", 1)], schedule)
    assert set(queue.went[: len(waiting)]) == waiting


@given(GUESSES, SCHEDULE, st.integers(0, 3))
def test_a_dead_writer_delays_the_others_by_a_lease(guesses: list[int], schedule: list[int], dead: int) -> None:
    """FL-91."""
    queue = Queue()
    writers = [
        writer(queue, f"w{index}", guess, dies=index == dead % len(guesses)) for index, guess in enumerate(guesses)
    ]
    played(queue, writers, schedule)
    assert len(queue.went) == len(guesses)
    assert queue.now_s <= 2 * LEASE_S


@given(st.integers(0, 100), st.floats(0, 30))
def test_a_beat_keeps_a_ticket_alive(beat: int, passed_s: float) -> None:
    own, other = ticket(2, "a"), ticket(1, "b", beat=beat)
    seen = sightings({}, {1: other}, now_s=0.0)

    def verdict(now: Ticket) -> Verdict:
        later = sightings(seen, {1: now}, now_s=passed_s)
        found = whose_turn(own, {1, 2}, {1: now}, later, counts=True, now_s=passed_s, lease_s=LEASE_S)
        assert found.verdict is not Verdict.GO or found.dead == (now,)
        return found.verdict

    assert verdict(other) is (Verdict.GO if passed_s >= LEASE_S else Verdict.WAIT)
    assert verdict(ticket(1, "b", beat=beat + 1)) is Verdict.WAIT
    assert verdict(ticket(1, "b", id="another of this number", beat=beat)) is Verdict.WAIT


def test_an_older_ticket_of_the_same_holder_goes_at_once() -> None:
    """A query that was started again, or a batch that is tried again, does not wait for itself."""
    older, other, own = ticket(1, "q"), ticket(2, "b"), ticket(3, "q")
    found = whose_turn(own, {1, 2, 3}, {1: older, 2: other}, {}, counts=True, now_s=0.0, lease_s=LEASE_S)
    assert (found.verdict, found.dead, found.ahead) == (Verdict.WAIT, (older,), (other,))


def test_a_ticket_that_others_removed_is_lost() -> None:
    assert whose_turn(ticket(3), {4}, {}, {}, counts=True, now_s=0.0, lease_s=LEASE_S).verdict is Verdict.LOST
