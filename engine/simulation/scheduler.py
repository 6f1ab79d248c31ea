"""A deterministic scheduler: each actor has a thread, one of them runs at a time, and they change over at seams only.

An actor reaches a seam right before each operation on a file, before it rests and before it answers. There the
schedule says whether it continues, is paused, dies, or whether the operation fails. A pause behind an operation is a
pause before the next one, because between two seams an actor changes nothing that another could see.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

UNTIL_OTHERS_END: Final = 1 << 60
"""Length of a pause that lasts until no other actor can continue."""
_REST_STEPS: Final = 12
_HANGS_AFTER_S: Final = 120.0


class Crash(BaseException):
    """The process of an actor is dead. Not an ``Exception``, so that no code under test handles it."""


class EndlessError(Exception):
    """A history did not end within its number of steps."""


class Fault(Enum):
    """How a storage operation fails."""

    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "lost answer"  # it happened, but its answer got lost
    UNSURE = "unsure"  # nothing happened, but the caller cannot know
    LATE = "late"  # the caller cannot know, and the request arrives when it no longer waits


@dataclass(frozen=True, slots=True)
class Seam:
    """A seam that an actor has reached."""

    step: int  # of the history, from 1
    actor: int
    own_step: int  # of the actor, from 1
    operation: str  # method of ``FileIO``, "rest" or "answer"
    path: str
    changes: bool  # whether the operation changes files


@dataclass(frozen=True, slots=True)
class Intervention:
    """What happens at a place. Of several, the pause comes first."""

    pause: int = 0  # steps that the others make meanwhile
    crash: bool = False
    fault: Fault | None = None


GO: Final = Intervention()


class Schedule(Protocol):
    """Decides a history. The same schedule and actors give the same history."""

    def choose(self, place: Seam) -> Intervention:
        """What happens at a place."""

    def next_actor(self, ready: Sequence[int]) -> int:
        """Which of the ready actors continues when another one stops."""

    def delay(self) -> int:
        """How many steps a request that is late is on its way."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a trace."""

    step: int
    actor: int
    what: str
    path: str = ""
    note: str = ""


@dataclass(eq=False)
class Actor:
    """One process of the simulation."""

    scheduler: "Scheduler"
    index: int
    name: str
    own_step: int = 0
    wakes_at: int = 0
    is_dead: bool = False
    has_ended: bool = False
    has_late_requests: bool = False  # of the present operation
    created: list[tuple[int, str, bytes]] = field(default_factory=list)  # exclusively: step, path, contents
    thread_id: int = 0  # of the only thread that may reach seams; 0: of no scheduler that runs
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0), repr=False)

    def reach(self, operation: str, path: str, *, changes: bool) -> Fault | None:
        """Come to a seam. Raises: Crash when this process dies here or is dead."""
        return self.scheduler.reach(self, operation, path, changes=changes)

    def rest(self) -> None:
        """Let the others continue for some steps, as a process that sleeps does."""
        self.scheduler.reach(self, "rest", "", changes=False, at_least=_REST_STEPS)

    def restart(self) -> None:
        """Continue as a new process."""
        self.is_dead = False
        self.note("restarts")

    def note(self, what: str, path: str = "", note: str = "") -> None:
        """Add a line to the trace."""
        self.scheduler.trace.append(Event(self.scheduler.step, self.index, what, path, note))


class Scheduler:
    """Runs actors to their end. For one history."""

    def __init__(self, schedule: Schedule, *, most_steps: int = 50_000) -> None:
        """``most_steps``: a history that takes more does not end."""
        self.trace: list[Event] = []
        self.step = 0
        self.has_faults = False  # whether any operation failed on purpose
        self.had_late_requests = False  # whether any arrived whose caller did not wait for it any more
        self.schedule = schedule
        self._most_steps = most_steps
        self._actors: list[Actor] = []
        self._late: list[tuple[int, Callable[[], None]]] = []  # requests on their way: step of arrival, what they do
        self._is_done = threading.Event()
        self._errors: list[BaseException] = []

    @property
    def is_endless(self) -> bool:
        """Whether the history was cut off."""
        return self.step > self._most_steps

    def run(self, programs: Sequence[tuple[str, Callable[[Actor], None]]]) -> None:
        """Run programs, by the names of their actors, until all have ended.

        Raises: EndlessError; and what a program raises that is neither handled nor a crash.
        """
        self._actors = [Actor(self, index, name) for index, (name, _) in enumerate(programs)]
        threads = [
            threading.Thread(target=self._live, args=(actor, program), name=f"simulated-{actor.name}", daemon=True)
            for actor, (_, program) in zip(self._actors, programs, strict=True)
        ]
        for thread in threads:
            thread.start()
        self._actors[self.schedule.next_actor(range(len(programs)))].turn.release()
        if not self._is_done.wait(_HANGS_AFTER_S):
            raise EndlessError("an actor waits for something that is not a seam")
        for thread in threads:
            thread.join(_HANGS_AFTER_S)
        if self._errors:
            raise self._errors[0]
        if self.is_endless:
            raise EndlessError(f"the history takes more than {self._most_steps} steps")
        self._arrive(UNTIL_OTHERS_END)

    def send_late(self, request: Callable[[], None]) -> None:
        """Carry a request out some steps later, at the latest when all actors have ended."""
        self._late.append((min(self.step + self.schedule.delay(), UNTIL_OTHERS_END), request))

    def _arrive(self, until: int) -> None:
        """Carry out what arrives up to a step."""
        due = [request for step, request in self._late if step <= until]
        self.had_late_requests |= bool(due)
        self._late = [each for each in self._late if each[0] > until]
        for request in due:
            request()

    def reach(self, actor: Actor, operation: str, path: str, *, changes: bool, at_least: int = 0) -> Fault | None:
        """See ``Actor.reach``."""
        if actor.is_dead:
            raise Crash
        if actor.thread_id not in (0, threading.get_ident()):
            raise AssertionError(f"a seam on a thread that is not the actor's: operation={operation} path={path}")
        self.step += 1
        actor.own_step += 1
        if self.is_endless:
            actor.is_dead = True
            raise Crash
        if self._late:
            self._arrive(self.step)
        woken = next((each for each in self._actors if 0 < each.wakes_at <= self.step and not each.has_ended), None)
        if woken is not None and woken is not actor:
            self._hand_over(actor, woken)
        choice = self.schedule.choose(Seam(self.step, actor.index, actor.own_step, operation, path, changes))
        pause = max(choice.pause, at_least)
        if pause:
            if choice.pause:
                actor.note("is paused before", path, operation)
            actor.wakes_at = min(self.step + pause, UNTIL_OTHERS_END)
            self._hand_over(actor, self._choose_next(actor))
        if choice.crash:
            actor.is_dead = True
            actor.note("crashes before", path, operation)
            raise Crash
        if choice.fault is not None:
            self.has_faults = True
        return choice.fault

    def _live(self, actor: Actor, program: Callable[[Actor], None]) -> None:
        actor.turn.acquire()
        actor.thread_id = threading.get_ident()
        try:
            program(actor)
        except Crash:
            pass
        except BaseException as error:  # noqa: BLE001  (it is raised by the thread that waits)
            self._errors.append(error)
        actor.has_ended = True
        following = self._choose_next(actor)
        if following is None:
            self._is_done.set()
        else:
            following.wakes_at = 0
            following.turn.release()

    def _choose_next(self, actor: Actor) -> Actor | None:
        """Who continues instead of an actor: one that is awake, else the one that wakes first."""
        others = [each for each in self._actors if not each.has_ended and each is not actor]
        awake = [each.index for each in others if each.wakes_at <= self.step]
        if awake:
            return self._actors[self.schedule.next_actor(awake)]
        left = others if actor.has_ended else [*others, actor]
        return min(left, key=lambda each: (each.wakes_at, each.index), default=None)

    def _hand_over(self, actor: Actor, following: Actor | None) -> None:
        if following is None or following is actor:
            actor.wakes_at = 0
            return
        following.wakes_at = 0
        following.turn.release()
        actor.turn.acquire()
        actor.wakes_at = 0
