"""Retries of optimistic work: an attempt that lost to another writer is planned again, on the state that won."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from lsm.errors import ConflictError

Done = TypeVar("Done")
Pause = TypeVar("Pause", int, float)


class LostRaceError(ConflictError):
    """Nothing of this attempt is visible, or its outcome is unknown: the next attempt looks, and may win."""


def pauses(first: Pause, longest: Pause) -> Iterator[Pause]:
    """Pauses without end, in one unit: each is twice the one before, up to the longest."""
    pause = first
    while True:
        yield pause
        pause = min(2 * pause, longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses between attempts: each is twice the one before, up to a limit."""

    sleep: Callable[[float], None]  # seconds
    first_ms: int
    longest_ms: int

    def pauses_ms(self) -> Iterator[int]:
        """The pauses, without end."""
        return pauses(self.first_ms, self.longest_ms)


def retrying(
    attempt: Callable[[], Done],
    *,
    attempts: int,
    on: type[ConflictError] = ConflictError,
    replan: Callable[[ConflictError], object] = lambda error: None,
    backoff: Backoff | None = None,
) -> Done:
    """What the first attempt returns that does not conflict.

    Args:
        attempt: leaves nothing behind when it conflicts.
        attempts: how often at most, at least 1.
        on: the conflict that another attempt may win; every other error ends the retries.
        replan: called between two attempts, before the pause, and not after the last one. What it raises ends the
            retries.
        backoff: pauses between attempts; None: there are none.

    Raises:
        ConflictError: that of the last attempt.
    """
    assert attempts > 0, attempts
    pauses_ms = None if backoff is None else backoff.pauses_ms()
    for _ in range(attempts - 1):
        try:
            return attempt()
        except on as error:
            replan(error)
        if backoff is not None and pauses_ms is not None:
            backoff.sleep(next(pauses_ms) / 1000)
    return attempt()
