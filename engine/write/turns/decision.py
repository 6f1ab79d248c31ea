"""Decides which writer has the turn, from the tickets of the queue; pure: no files, clocks or threads.

A ticket counts once its writer has stored it and then sees no higher one. Among tickets that count, the lowest number
has the turn: first come, first served. Two writers cannot both have the turn: of two tickets that are stored at the
same time, the writer of the later one sees the other, and a lower number that arrives late withdraws.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One writer in the queue, as others see it."""

    number: int
    id: str  # a number may be used again, an id is not
    holder: str  # commit user
    place: str  # host and process, for messages
    since_ms: int  # epoch; when it was put, for messages
    beat: int = 0  # rises while the writer lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The last sign of life of a ticket, by the clock of the process that watches it."""

    id: str
    beat: int
    at_s: float


class Verdict(Enum):
    """The action of the owner of a ticket."""

    GO = "go"  # it has the turn
    WAIT = "wait"
    WITHDRAW = "withdraw"  # the number is lower than one that came before: take a higher one
    LOST = "lost"  # others took the writer for dead: take another ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result of reading the queue."""

    verdict: Verdict
    ahead: tuple[Ticket, ...] = ()  # live ones, ascending: the first has the turn
    dead: tuple[Ticket, ...] = ()  # to be removed by any writer that sees it


def sightings(seen: Mapping[int, Sighting], tickets: Mapping[int, Ticket], *, now_s: float) -> dict[int, Sighting]:
    """The sightings after one more look; what left the queue is forgotten.

    Args:
        seen: those before, by number.
        tickets: what was read now.
        now_s: monotonic seconds.
    """
    found = {}
    for number, ticket in tickets.items():
        before = seen.get(number)
        is_same = before is not None and (before.id, before.beat) == (ticket.id, ticket.beat)
        found[number] = (
            before if is_same and before is not None else Sighting(id=ticket.id, beat=ticket.beat, at_s=now_s)
        )
    return found


def whose_turn(
    own: Ticket,
    numbers: Collection[int],
    ahead: Mapping[int, Ticket],
    seen: Mapping[int, Sighting],
    *,
    counts: bool,
    now_s: float,
    lease_s: float,
) -> Decision:
    """Decide for the owner of one ticket.

    Args:
        own: its ticket.
        numbers: of all tickets that are in the queue.
        ahead: those with lower numbers, as they were last read; one that was not read counts as live.
        seen: sightings of these.
        counts: an earlier look saw no higher ticket, so that it stands in the queue.
        now_s: monotonic seconds.
        lease_s: a ticket without a sign of life for so long is dead. So is an older one of the same holder, which
            writes one batch at a time: it is of an earlier attempt or run.
    """
    if own.number not in numbers:
        return Decision(verdict=Verdict.LOST)
    if not counts and max(numbers) > own.number:
        return Decision(verdict=Verdict.WITHDRAW)
    lower = sorted(number for number in numbers if number < own.number)
    known = [ahead[number] for number in lower if number in ahead]
    dead = tuple(each for each in known if each.holder == own.holder or _is_silent(each, seen, now_s, lease_s))
    live = tuple(each for each in known if each not in dead)
    return Decision(verdict=Verdict.WAIT if len(dead) < len(lower) else Verdict.GO, ahead=live, dead=dead)


def _is_silent(ticket: Ticket, seen: Mapping[int, Sighting], now_s: float, lease_s: float) -> bool:
    last = seen.get(ticket.number)
    is_same = last is not None and (last.id, last.beat) == (ticket.id, ticket.beat)
    return is_same and last is not None and now_s - last.at_s >= lease_s
