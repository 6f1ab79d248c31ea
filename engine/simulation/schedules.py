"""Schedules: random ones by a seed, and placed ones that intervene at named places."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.simulation.scheduler import GO, UNTIL_OTHERS_END, Fault, Intervention, Seam

_FAULTS: Final = (Fault.REFUSED, Fault.LOST_ANSWER, Fault.UNSURE)
_PAUSES: Final = (2, 5, 12, 40, 150, UNTIL_OTHERS_END)
_LONG_PAUSES: Final = (150, 300, 600)
_DIES: Final = 0.5
"""Of those that were overtaken."""
_SNAPSHOT: Final = "/snapshot/snapshot-"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionRates:
    """How often a random schedule intervenes: probability at each place."""

    pause: float  # before a change; a fifth of it before others
    crash: float
    fault: float
    late: float = 0.0  # requests to create files that arrive when no one waits for them any more
    overtaken: float = 0.0  # for long, at the start, and before a snapshot is created; who did may die behind it


CALM: Final = InterventionRates(pause=0.05, crash=0.0, fault=0.0)
OVERTAKEN: Final = InterventionRates(pause=0.05, crash=0.0, fault=0.0, overtaken=0.6)
RATES: Final = (
    CALM,
    InterventionRates(pause=0.15, crash=0.0, fault=0.0),
    InterventionRates(pause=0.5, crash=0.0, fault=0.0),
    InterventionRates(pause=0.1, crash=0.02, fault=0.0),
    InterventionRates(pause=0.05, crash=0.0, fault=0.02),
    InterventionRates(pause=0.1, crash=0.01, fault=0.01),
    InterventionRates(pause=0.15, crash=0.01, fault=0.01, late=0.15),
    OVERTAKEN,
)


class RandomSchedule:
    """Few interventions at random places."""

    def __init__(self, rng: random.Random, rates: InterventionRates) -> None:
        """The same state of ``rng`` gives the same schedule."""
        self._rng = rng
        self._rates = rates
        self._has_published: set[int] = set()  # actors that were overtaken right before

    def choose(self, place: Seam) -> Intervention:
        """Implements ``Schedule.choose``."""
        rates = self._rates
        if rates.overtaken and (found := self._overtaken(place)) is not None:
            return found
        weight = 1.0 if place.changes or place.operation == "answer" else 0.2
        pause = self._rng.choice(_PAUSES) if self._rng.random() < rates.pause * weight else 0
        crash = self._rng.random() < rates.crash * weight
        fault = None
        if place.operation not in ("rest", "answer") and self._rng.random() < rates.fault:
            fault = self._rng.choice(_FAULTS if place.changes else [Fault.REFUSED])
        if fault is None and self._rates.late and place.operation == "create_exclusive":
            fault = Fault.LATE if self._rng.random() < rates.late else None
        return Intervention(pause, crash, fault) if pause or crash or fault else GO

    def _overtaken(self, place: Seam) -> Intervention | None:
        """A long pause at the start or before a snapshot is created, a death or another pause behind it; or None."""
        if place.actor in self._has_published:
            self._has_published.discard(place.actor)
            return Intervention(pause=self._rng.choice(_PAUSES), crash=self._rng.random() < _DIES)
        is_published = place.operation == "create_exclusive" and _SNAPSHOT in place.path
        if not (is_published or place.own_step == 1) or self._rng.random() >= self._rates.overtaken:
            return None
        if is_published:
            self._has_published.add(place.actor)
        return Intervention(pause=self._rng.choice(_LONG_PAUSES))

    def next_actor(self, ready: Sequence[int]) -> int:
        """Implements ``Schedule.next_actor``."""
        return self._rng.choice(ready)

    def delay(self) -> int:
        """Implements ``Schedule.delay``."""
        return self._rng.choice(_PAUSES)


@dataclass(slots=True)
class PlacedSchedule:
    """Interventions at given places, by actor and its own step; otherwise actors run one after the other."""

    choices: Mapping[tuple[int, int], Intervention] = field(default_factory=dict)
    late_steps: int = UNTIL_OTHERS_END
    reached: list[Seam] = field(default_factory=list)  # every place, in order

    def choose(self, place: Seam) -> Intervention:
        """Implements ``Schedule.choose``."""
        self.reached.append(place)
        return self.choices.get((place.actor, place.own_step), GO)

    def next_actor(self, ready: Sequence[int]) -> int:
        """Implements ``Schedule.next_actor``."""
        return min(ready)

    def delay(self) -> int:
        """Implements ``Schedule.delay``."""
        return self.late_steps
