"""Writers of one log wait for each other: tickets are small files beside the snapshots.

A turn is politeness, not safety. It only keeps live writers from fencing each other; what a writer may commit is
decided by fences, markers and commits alone. So a writer that was taken for dead by mistake loses time, never rows.

``log-turns/<number>`` is created exclusively, never changed, and deleted once: by its writer, or by one that takes it
for dead. ``log-turns/<number>.beat`` is rewritten while the writer lives, so that it can never bring back a ticket.
Without others a turn costs one creation, one list and one deletion.
"""

import json
import logging
import os
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from engine.request.writer_options import WriterOptions
from engine.runtime.times import sql_time_text
from filestore.io.file_io import FileIO, delete_leftover
from filestore.options.table_options import TableOptions
from filestore.table_store import TableStore
from logstore.kafka.environment import MACHINE, KafkaEnvironment, environment_of
from lsm.errors import ConflictError, FluvialError, OutcomeUnknownError

# ---- Decides which writer has the turn, from the tickets of the queue; pure: no files, clocks or threads
#
# A ticket counts once its writer has stored it and then sees no higher one. Among tickets that count, the lowest
# number has the turn: first come, first served. Two writers cannot both have the turn: of two tickets that are stored
# at the same time, the writer of the later one sees the other, and a lower number that arrives late withdraws.


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


# ---- Writers of one log wait for each other: tickets are small files beside the snapshots


logger = logging.getLogger("fluvial.turns")

TURNS_DIRECTORY: Final = "log-turns"  # beside snapshot/ and manifest/; other readers of the layout ignore it
_BEAT: Final = ".beat"
_BEATS_IN_LEASE: Final = 4
_LEAST_POLL_S: Final = 0.01  # of the next in the queue; those behind look less often
_LOOKS_BETWEEN: Final = 2  # a wait is as long as so many looks take: object stores answer slowly, and cost
_LONGEST_POLL_S: Final = 1.0
_SIMULATED_POLLS: Final = 16  # within a lease, where looking takes no time
_WARN_S: Final = 60.0

_hints: Final[dict[str, int]] = {}
"""By directory, the number that this process tries first: saves a look at the queue while no other process writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The turn of one writer. Picklable: tasks ask it, too."""

    io: FileIO
    directory: str
    ticket: Ticket
    table: str

    @property
    def path(self) -> str:
        """The file of the ticket."""
        return f"{self.directory}/{self.ticket.number}"

    def is_held(self) -> bool:
        """Whether no other writer has taken this one for dead. Reads a file. Raises: UnavailableError."""
        found = _read(self.io, self.path)
        return found is not None and found.get("id") == self.ticket.id

    def check(self, doing: str) -> None:
        """Refuse what a writer without its turn must not begin. Raises: ConflictError."""
        if not self.is_held():
            raise ConflictError(
                f"another writer took over the turn: table={self.table} holder={self.ticket.holder} {doing} "
                "cause=this process gave no sign of life for log.turn-lease"
            )

    def is_queued(self, holder: str) -> bool:
        """Whether a writer is in the queue. Raises: UnavailableError."""
        return any(each.holder == holder for each in _tickets(self.io, self.directory, _numbers(self)).values())


class _Place:
    """A ticket in the queue with the thread that shows that its writer lives."""

    def __init__(self, turn: Turn, beat_s: float, environment: KafkaEnvironment) -> None:
        self.turn = turn
        self.counts = False
        self._environment = environment
        self._began_s = environment.monotonic()
        self._beat_s = beat_s
        self._beats = 0
        self._is_lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="fluvial-turn", daemon=True)
        if environment.max_threads:
            self._thread.start()

    def leave(self, *, is_lost: bool = False) -> None:
        """Give the ticket back. Never raises: what stays is removed by the next writer."""
        self._stop.set()
        if self._environment.max_threads:
            self._thread.join(self._beat_s)  # storage may not answer
        turn = self.turn
        with suppress(FluvialError, OSError):
            is_old = self._environment.monotonic() - self._began_s > self._beat_s * _BEATS_IN_LEASE / 2
            if not (is_lost or self._is_lost) and (not is_old or turn.is_held()):  # the number may be another's by now
                turn.io.delete(turn.path)
            if self._beats:
                turn.io.delete(turn.path + _BEAT)

    def _beat(self) -> None:
        turn = self.turn
        while not self._stop.wait(self._beat_s):
            with suppress(FluvialError, OSError):
                if not turn.is_held():
                    self._is_lost = True
                    return
                body = json.dumps({"id": turn.ticket.id, "beat": self._beats + 1}).encode()
                self._beats += 1
                turn.io.replace(turn.path + _BEAT, body)


_NONE: Final[Mapping[str, Turn]] = MappingProxyType({})
_held: Final[ContextVar[Mapping[str, Turn]]] = ContextVar("fluvial-turns", default=_NONE)
"""By directory, what this thread has: a statement that has the turn does not wait for its own write."""


class TicketQueue:
    """The writers of one log, in the order in which they came."""

    def __init__(self, store: TableStore, holder: str) -> None:
        """Nothing is read or written yet."""
        self._store, self._io = store, store.io
        self._environment = environment_of(store.options.log_kafka_bootstrap_servers or "")
        self._is_machine = self._environment is MACHINE
        self._holder = holder
        self._lease_s = store.options.log_turn_lease_ms / 1000
        self._directory = f"{store.paths.branch_root}/{TURNS_DIRECTORY}"

    @contextmanager
    def turn(self, *, patience_s: float | None) -> Iterator[Turn]:
        """Wait for the turn and hold it for the length of the block; a thread that holds it does not wait.

        Args:
            patience_s: most seconds to wait for other writers; None: wait for as long as they make progress.

        Raises:
            NoTurnError: the other writers took longer; the message names the holder of the turn.
            UnavailableError: a file system error.
        """
        outer = _held.get().get(self._directory)
        if outer is not None and outer.is_held():
            yield outer
            return
        place = self._wait(patience_s)
        token = _held.set({**_held.get(), self._directory: place.turn})
        try:
            yield place.turn
        finally:
            _held.reset(token)
            place.leave()

    def _wait(self, patience_s: float | None) -> _Place:
        began_s = warned_s = self._environment.monotonic()
        place, watch = self._join(), _Watch(self)
        try:
            while True:
                look_s = self._environment.monotonic()
                numbers = _numbers(place.turn)
                decision = watch.look(place, numbers)
                for each in decision.dead:
                    self._remove(each)
                if decision.verdict is Verdict.GO:
                    return place
                if decision.verdict is not Verdict.WAIT:
                    place.leave(is_lost=decision.verdict is Verdict.LOST)
                    place = self._join(max([*numbers, place.turn.ticket.number]) + 1)
                    continue
                place.counts = True
                now_s = self._environment.monotonic()
                self._check_patience(patience_s, decision, now_s - began_s)
                if now_s - warned_s >= _WARN_S:
                    warned_s = now_s
                    logger.warning("a batch waits: %s", self._waiting(decision, now_s - began_s))
                least_s = _LEAST_POLL_S if self._is_machine else self._lease_s / _SIMULATED_POLLS
                poll_s = max(least_s, _LOOKS_BETWEEN * (now_s - look_s)) * max(1, len(decision.ahead))
                self._store.clock.sleep(min(poll_s, _LONGEST_POLL_S))
        except BaseException:
            place.leave()
            raise

    def _join(self, number: int | None = None) -> _Place:
        """Put a ticket under the first free number from this one on."""
        if number is None:
            number = _hints.get(self._directory, 1) if self._is_machine else 1
        while True:
            ticket = Ticket(
                number=number,
                id=self._store.names.uuid(),
                holder=self._holder,
                place=f"{socket.gethostname()}/{os.getpid()}",
                since_ms=self._store.clock.now_ms(),
            )
            turn = Turn(io=self._io, directory=self._directory, ticket=ticket, table=self._store.name)
            with suppress(OutcomeUnknownError):  # of this holder, who removes it when it stands in the way
                if self._io.create_exclusive(turn.path, _encoded(ticket)):
                    if self._is_machine:
                        _hints[self._directory] = number + 1
                    return _Place(turn, self._lease_s / _BEATS_IN_LEASE, self._environment)
            number = max([*_numbers(turn), number]) + 1

    def _remove(self, ticket: Ticket) -> None:
        logger.info(
            "a writer that gives no sign of life loses its place: table=%s holder=%s place=%s since=%s",
            self._store.name, ticket.holder, ticket.place, sql_time_text(ticket.since_ms),
        )  # fmt: skip
        path = f"{self._directory}/{ticket.number}"
        self._io.delete(path)
        delete_leftover(self._io, path + _BEAT)
        begun = f".{ticket.number}{_BEAT}."  # a sign of life that it died over
        for name in self._io.list_names(self._directory) if self._is_machine else ():
            if name.startswith(begun):
                delete_leftover(self._io, f"{self._directory}/{name}")

    def _check_patience(self, patience_s: float | None, decision: Decision, waited_s: float) -> None:
        if patience_s is not None and waited_s >= patience_s:
            raise NoTurnError(
                f"{self._waiting(decision, waited_s)} {TableOptions.log_turn_timeout_ms.key}={patience_s:g} s "
                "fix='run it again, or let it wait longer'"
            )

    def _waiting(self, decision: Decision, waited_s: float) -> str:
        who = "holder=unknown"
        for first in decision.ahead[:1]:
            who = f"holder={first.holder} place={first.place} since='{sql_time_text(first.since_ms)}'"
        return (
            f"another writer of the log has its turn: table={self._store.name} {who} ahead={len(decision.ahead)} "
            f"waited_s={waited_s:.0f}"
        )


class NoTurnError(ConflictError):
    """Other writers of the log took longer than this one waits. Nothing was read or written."""


def turn_of_job(store: TableStore, options: WriterOptions) -> AbstractContextManager[object]:
    """A turn of a statement or batch, to read and write without other writers between; without a log nothing waits.

    Raises: as ``TicketQueue.turn``, when entered.
    """
    if not store.has_log:
        return nullcontext()
    queue = TicketQueue(store, store.new_commit_user())
    return queue.turn(patience_s=options.turn_timeout_s(store.options))


class _Watch:
    """The state of one waiting writer: the signs of life of the writers before it."""

    def __init__(self, queue: TicketQueue) -> None:
        self._queue = queue
        self._tickets: Mapping[int, Ticket] = {}
        self._seen: Mapping[int, Sighting] = {}
        self._read_s = float("-inf")

    def look(self, place: _Place, numbers: Collection[int]) -> Decision:
        """Read what is new, all of it from time to time, and decide."""
        turn, queue = place.turn, self._queue
        now_s = queue._environment.monotonic()
        lower = {number for number in numbers if number < turn.ticket.number}
        if lower and place.counts:
            is_due = now_s - self._read_s >= queue._lease_s / _BEATS_IN_LEASE
            wanted = lower if is_due else lower - self._tickets.keys()
            kept = {} if is_due else {number: each for number, each in self._tickets.items() if number in lower}
            self._tickets = {**kept, **_tickets(queue._io, queue._directory, wanted)}
            self._read_s = now_s if is_due else self._read_s
            self._seen = sightings(self._seen, self._tickets, now_s=now_s)
        return whose_turn(
            turn.ticket, numbers, self._tickets, self._seen, counts=place.counts, now_s=now_s, lease_s=queue._lease_s
        )


def _numbers(turn: Turn) -> list[int]:
    names = turn.io.list_names(turn.directory)
    return [int(name) for name in names if name.isascii() and name.isdigit()]


def _tickets(io: FileIO, directory: str, numbers: Collection[int]) -> dict[int, Ticket]:
    """The tickets that still exist, with their signs of life."""
    found = {}
    for number in sorted(numbers):
        path = f"{directory}/{number}"
        body = _read(io, path)
        if body is not None:
            ticket = _decoded(number, body)
            beat = _read(io, path + _BEAT) or {}
            found[number] = replace(ticket, beat=int(beat["beat"])) if beat.get("id") == ticket.id else ticket
    return found


def _encoded(ticket: Ticket) -> bytes:
    body = {"id": ticket.id, "holder": ticket.holder, "place": ticket.place, "since": ticket.since_ms}
    return json.dumps(body).encode()


def _decoded(number: int, body: Mapping[str, Any]) -> Ticket:
    """A ticket that cannot be read gives no sign of life, and so is removed in time."""
    ticket_id, holder, place = (str(body.get(name, "?")) for name in ("id", "holder", "place"))
    since = body.get("since")
    since_ms = since if isinstance(since, int) else 0
    return Ticket(number=number, id=ticket_id, holder=holder, place=place, since_ms=since_ms)


def _read(io: FileIO, path: str) -> dict[str, Any] | None:
    """None: there is no such file."""
    try:
        body = json.loads(io.read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
