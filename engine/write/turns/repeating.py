"""A batch that lost its turn finds out what became of it, and is written again: as a restart would do it."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from engine.write.turns.ticket_queue import TicketQueue, Turn
from lsm.errors import ConflictError, OutcomeUnknownError, TakenOverError

logger = logging.getLogger("fluvial.turns")

_Done = TypeVar("_Done")

MOST_ATTEMPTS: Final = 5


class AwaitedWriterError(ConflictError):
    """The log holds a batch of a writer that is in the queue, and completes it in its turn: let it go first."""


class StaleReadError(ConflictError):
    """Rows were computed from a state that has changed: only the caller can compute them again."""


def write_in_turn(
    queue: TicketQueue,
    attempt: Callable[[Turn], _Done],
    *,
    before_again: Callable[[], object],
    patience_s: float | None,
    attempts: int = MOST_ATTEMPTS,
) -> _Done:
    """What the first attempt returns that no other writer of the log cut off.

    Args:
        queue: of the table.
        attempt: begins by looking into log and table for what an earlier attempt left.
        before_again: called between two attempts; what it raises ends them.
        patience_s: see ``TicketQueue.turn``; of all waiting together.
        attempts: how often at most.

    Raises:
        ConflictError: that of the last attempt, or the others took too long.
        OutcomeUnknownError: of the last attempt.
    """
    failures, waited_s = 0, 0.0
    while True:
        began_s = time.monotonic()
        with queue.turn(patience_s=None if patience_s is None else max(0.0, patience_s - waited_s)) as turn:
            waited_s += time.monotonic() - began_s
            is_mine = True
            while is_mine:
                try:
                    return attempt(turn)
                except (TakenOverError, StaleReadError):
                    raise
                except (ConflictError, OutcomeUnknownError) as error:
                    failures += 1
                    if failures >= attempts:
                        raise
                    logger.warning("a batch is tried again: attempt=%d reason=%s", failures, error)
                    is_mine = not isinstance(error, AwaitedWriterError)
                before_again()
                is_mine = is_mine and turn.is_held()
