"""The processes of a race: started, killed, frozen, slowed down to moments, started again, and ended in order."""

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from tests.soak.table.actors import Place, run_actor
from tests.soak.table.journal import Deed, read_journal

_PRELOADED: Final = ["tests.soak.table.actors"]
_AT_ONCE: Final = 3
"""Processes that are struck at a time."""
_APART_S: Final = 0.3
_WEIGHTS: Final = {"compactor": 3, "writer": 2, "expirer": 2}
"""Who is struck more often."""
_STRIKES: Final = ("kill", "freeze", "stutter", "stutter and kill")
_END_S: Final = 120.0  # until a process that is asked to end must have


class RaceError(AssertionError):
    """The table, or a process, is not as it must be."""


@dataclass(slots=True)
class Life:
    """A process, from its start to its end."""

    place: Place
    process: Any
    is_killed: bool = False
    ended: int = 0  # nanoseconds of the monotonic clock, when it was found dead

    @property
    def deeds(self) -> list[Deed]:
        return read_journal(self.place.journal, self.place.slot, ended=self.ended)

    def described(self) -> str:
        """What a failure says of it."""
        deeds = self.deeds
        what, error = (deeds[-1].what, deeds[-1].error) if deeds else ("", "")
        trace = deeds[-1].facts.get("trace", "") if deeds else ""
        output = self.place.output.read_text(errors="replace")[-2000:] if self.place.output.exists() else ""
        code = self.process.exitcode
        return f"slot={self.place.slot} code={code} deed={what} error={error}\n{trace or output}"

    def send(self, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, what)


class Processes:
    """Those of one race."""

    def __init__(self, places: Sequence[Place]) -> None:
        """``places``: of the first life of each."""
        self._places = {place.slot: place for place in places}
        self._shared = RawArray("d", 1 + len(places))  # whether all are to end; since when each is at its deed
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._struck: dict[str, tuple[float, Iterator[float]]] = {}  # when the next step is due
        self._next_s = 0.0
        self.lives: dict[str, Life] = {}
        self.dead: list[Life] = []
        self.strikes: Counter[str] = Counter()

    @property
    def deeds(self) -> list[Deed]:
        """What those did that have ended."""
        return [deed for life in self.dead for deed in life.deeds]

    def start_all(self) -> None:
        self._shared[0] = 0.0
        for slot in self._places:
            self.start(slot)

    def start(self, slot: str) -> None:
        place = self._places[slot].life_after(sum(life.place.slot == slot for life in self.dead))
        process = self._context.Process(target=run_actor, args=(place, self._shared))
        process.start()
        self.lives[slot] = Life(place, process)

    def an_ended_one(self) -> Life | None:
        """A process that has ended by itself or by a strike; it is dead from now on."""
        life = next((life for life in self.lives.values() if life.process.exitcode is not None), None)
        if life is not None:
            self._bury(life)
        return life

    def _bury(self, life: Life) -> None:
        life.process.join()
        life.ended = time.monotonic_ns()
        self._shared[life.place.index] = 0.0
        self._struck.pop(life.place.slot, None)
        del self.lives[life.place.slot]
        self.dead.append(life)

    def end_all(self) -> list[Life]:
        """Ask all to end behind what they are at. Returns them. Raises: RaceError: one does not."""
        ended = []
        self._shared[0] = 1.0
        self._struck.clear()
        for life in self.lives.values():
            life.send(signal.SIGCONT)
        until_s = time.monotonic() + _END_S
        while self.lives:
            if (life := self.an_ended_one()) is not None:
                ended.append(life)
                continue
            if time.monotonic() > until_s:
                life = next(iter(self.lives.values()))
                life.send(signal.SIGUSR1)
                time.sleep(0.5)
                raise RaceError(f"a process does not end: {life.described()}")
            time.sleep(0.01)
        return ended

    def kill_all(self) -> None:
        for life in self.lives.values():
            life.send(signal.SIGKILL)
            life.process.join()

    # ---- strikes

    def strike(self, chance: random.Random) -> None:
        """Go on with those that are being struck, and perhaps begin with one more."""
        now_s = time.monotonic()
        for slot, (due_s, turns) in [*self._struck.items()]:
            if now_s < due_s:
                continue
            pause_s = next(turns, None)
            if pause_s is None:
                del self._struck[slot]
            else:
                self._struck[slot] = (now_s + pause_s, turns)
        if now_s < self._next_s or len(self._struck) >= _AT_ONCE:
            return
        self._next_s = now_s + chance.expovariate(1 / _APART_S)
        slots = [slot for slot in self.lives if slot not in self._struck]
        slot = chance.choices(slots, [_WEIGHTS.get(each.split()[0], 1) for each in slots])[0]
        what = chance.choice(_STRIKES)
        self.strikes[what] += 1
        self._struck[slot] = (now_s, _turns(self.lives[slot], what, chance))


def _turns(life: Life, what: str, chance: random.Random) -> Iterator[float]:
    """Does one step of a strike after the other, with the seconds between them.

    Who stutters runs for moments only, so what takes milliseconds takes as long as many deeds of others.
    """
    stops = {"kill": 0, "freeze": 1}.get(what, chance.randint(4, 15))
    longest_s = 2.0 if what == "freeze" else 0.5
    for _ in range(stops):
        life.send(signal.SIGSTOP)
        yield chance.uniform(0.02, longest_s)
        life.send(signal.SIGCONT)
        yield chance.uniform(0.0, 0.008)
    if what.endswith("kill"):
        life.is_killed = True
        life.send(signal.SIGKILL)
