"""Retries: which errors they answer, and what happens between two attempts, against a list of outcomes."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.errors import ConflictError, OutcomeUnknownError, UnavailableError
from lsm.retry import Backoff, LostRaceError, pauses, retrying

OUTCOMES = st.sampled_from(["won", "lost", "unknown", "interrupted"])
ERRORS: dict[str, BaseException] = {
    "lost": ConflictError("lost"),
    "unknown": OutcomeUnknownError("unknown"),
    "interrupted": KeyboardInterrupt(),
}


def test_pauses_double_up_to_the_longest() -> None:
    assert [*islice(pauses(0.05, 0.3), 5)] == [0.05, 0.1, 0.2, 0.3, 0.3]
    assert [*islice(Backoff(sleep=lambda _: None, first_ms=3, longest_ms=10).pauses_ms(), 4)] == [3, 6, 10, 10]


@given(st.lists(OUTCOMES, min_size=8, max_size=8), st.integers(1, 8))
def test_only_lost_attempts_are_repeated_each_after_a_new_plan_and_a_longer_pause(
    outcomes: list[str], attempts: int
) -> None:
    steps: list[str] = []
    left = iter(outcomes)

    def attempt() -> str:
        outcome = next(left)
        steps.append(outcome)
        if outcome != "won":
            raise ERRORS[outcome]
        return outcome

    backoff = Backoff(sleep=lambda seconds: steps.append(f"{1000 * seconds:.0f} ms"), first_ms=10, longest_ms=50)
    decisive = next((place for place, each in enumerate(outcomes[:attempts]) if each != "lost"), attempts - 1)
    expected: list[str] = []
    for place, pause_ms in zip(range(decisive), [10, 20, 40, *[50] * 8], strict=False):
        expected += [outcomes[place], "plan", f"{pause_ms} ms"]
    expected.append(outcomes[decisive])

    def run() -> str:
        return retrying(attempt, attempts=attempts, replan=lambda error: steps.append("plan"), backoff=backoff)

    if outcomes[decisive] == "won":
        assert run() == "won"
    else:
        with pytest.raises(type(ERRORS[outcomes[decisive]])) as raised:
            run()
        assert raised.value is ERRORS[outcomes[decisive]]
    assert steps == expected


def test_a_conflict_of_another_kind_and_a_plan_that_fails_end_the_retries() -> None:
    calls: list[int] = []

    def fails(error: ConflictError) -> None:
        calls.append(len(calls))
        raise error

    with pytest.raises(ConflictError, match="numbers"):
        retrying(lambda: fails(ConflictError("numbers")), attempts=5, on=LostRaceError)
    assert calls == [0]

    def late(error: ConflictError) -> None:
        raise UnavailableError("too late") from error

    with pytest.raises(UnavailableError, match="too late"):
        retrying(lambda: fails(LostRaceError("race")), attempts=5, on=LostRaceError, replan=late)
    assert calls == [0, 1]
