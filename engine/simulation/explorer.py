"""Exploration: many histories, random ones by seeds or one intervention at every place of a pair of operations."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.simulation.history import HistoryPlace, SimulatedHistory, run_history
from engine.simulation.log.operations import ADOPTERS, SINKS, TWIN
from engine.simulation.plan import HistoryPlan
from engine.simulation.repertoire import OPERATION_NAMES, fits_setup
from engine.simulation.scheduler import UNTIL_OTHERS_END, Fault, Intervention
from engine.simulation.schedules import OVERTAKEN, RATES, PlacedSchedule
from engine.simulation.setups import SETUPS

_WRITERS: Final = ("write", "upsert", "overwrite", "stream", "delete")
_LOG_WRITERS: Final = ("log-write", "log-upsert", "log-delete", "log-adopt")
_SETUPS: Final = (
    "keyed",
    "keyed",
    "versioned",
    "versioned",
    "tagged",
    "saved",
    "batches",
    "empty",
    "append",
    "logged",
    "logged",
    "logged-exact",
    "logged-append",
)
_QUERIES: Final = 0.6
"""How often a query writes a table with a log."""
_OVERTAKEN: Final = ("compact-full", "compact-dedicated", "overwrite", "write", "stream", "rescale", "delete")
"""Operations that create a snapshot too late."""
_FREEING: Final = (("write", "write", "expire"), ("write", "expire"), ("write", "write", "expire-some"), ("rollback",))
"""Operations that free the number of that snapshot meanwhile."""
_DELETING: Final = (
    ("delete-tag",), ("delete-savepoint",), ("tag-batch",), ("write-next-day", "tag-batch"),
    ("write-next-day", "expire-tags"), ("replace-tag",), ("clean",), ("write", "expire"), ("rollback",),
)  # fmt: skip
"""Operations that may take that snapshot for one of the history."""
_FORMATS: Final = ("parquet", "avro")
_TWO_WRITERS: Final = 0.2
"""How often two are overtaken."""
_MOST_ACTORS: Final = 4
_MOST_OPERATIONS: Final = 3

PAUSE: Final = Intervention(pause=UNTIL_OTHERS_END)
CRASH: Final = Intervention(pause=UNTIL_OTHERS_END, crash=True)
"""It dies where it was paused, behind what the others did: so it differs from a crash before them."""
INTERVENTIONS: Final = {
    "pause": PAUSE,
    "crash": Intervention(crash=True),
    "pause, crash": CRASH,
    "refused": Intervention(fault=Fault.REFUSED),
    "lost answer": Intervention(fault=Fault.LOST_ANSWER),
    "unsure": Intervention(fault=Fault.UNSURE),
    "pause, lost answer": Intervention(pause=UNTIL_OTHERS_END, fault=Fault.LOST_ANSWER),
}
"""What is done at a place, by name."""


@dataclass(slots=True)
class Exploration:
    """What many histories showed."""

    histories: int = 0
    steps: int = 0
    operations: dict[str, int] = field(default_factory=dict)  # acknowledged, by name
    failed: list[SimulatedHistory] = field(default_factory=list)

    def add(self, history: SimulatedHistory) -> None:
        """Count a history."""
        self.histories += 1
        self.steps += history.steps
        for deed in history.deeds:
            if deed.is_acknowledged:
                self.operations[deed.name] = self.operations.get(deed.name, 0) + 1
        if history.problems:
            self.failed.append(history)


def random_plan(seed: int, operations: Sequence[str] = OPERATION_NAMES) -> HistoryPlan:
    """The random history of a seed: a setup, two to four actors of one to three operations, and a schedule.

    Args:
        seed: the same one gives the same history.
        operations: names of those to choose from.
    """
    rng = random.Random(f"plan {seed}")
    fitting = [name for name in _SETUPS if any(fits_setup(SETUPS[name], each) for each in operations)]
    setup = SETUPS[rng.choice(fitting)]
    rates = rng.choice(RATES)
    possible = [name for name in operations if fits_setup(setup, name)]
    if setup.has_log:
        actors = _log_actors(rng, possible)
    elif rates is OVERTAKEN and (found := _overtaken_actors(rng, possible)):
        actors = found
    else:
        actors = _actors(rng, [name for name in possible if name in _WRITERS] or possible, possible)
    names_used = {name for names in actors for name in names}
    if {"rename", "create"} <= names_used:  # an interrupted operation is completed where it is: one table is enough
        actors = [tuple("alter" if name == "create" else name for name in names) for names in actors]
    return HistoryPlan(
        actors=tuple(actors),
        setup=setup.name,
        file_format=rng.choice(_FORMATS),
        is_object_store=rng.random() < 0.5 and "rename" not in names_used,
        seed=seed,
        rates=rates,
    )


def _actors(rng: random.Random, first: Sequence[str], others: Sequence[str]) -> list[tuple[str, ...]]:
    found = []
    for index in range(rng.randint(2, _MOST_ACTORS)):
        names = first if index == 0 else others
        found.append(tuple(rng.choice(names) for _ in range(rng.randint(1, _MOST_OPERATIONS))))
    return found


def _overtaken_actors(rng: random.Random, possible: Sequence[str]) -> list[tuple[str, ...]]:
    """A writer, others that free the number of its snapshot, and what deletes files; none: one is not possible."""
    writers = [(each,) for each in _OVERTAKEN if each in possible]
    found: list[tuple[str, ...]] = []
    for choices in (writers, _FREEING, _DELETING):
        fitting = [names for names in choices if {*names} <= {*possible}]
        if not fitting:
            return []
        found.append(rng.choice(fitting))
    return [*found, rng.choice(writers)] if rng.random() < _TWO_WRITERS else found


def _log_actors(rng: random.Random, possible: Sequence[str]) -> list[tuple[str, ...]]:
    """One query may write a table with a log, perhaps two runs of it at once; else jobs, some of which adopt."""
    others = [name for name in possible if name not in SINKS]
    queries = [name for name in possible if name in SINKS]
    if not others or (queries and rng.random() < _QUERIES):
        name, jobs = rng.choice(queries), [name for name in others if name not in ADOPTERS]
        runs: list[tuple[str, ...]] = (
            [(name,), (name,)] if name == TWIN else [(name,) * rng.randint(1, _MOST_OPERATIONS)]
        )
        return [*runs, *_actors(rng, jobs, jobs)[len(runs) :]] if jobs else runs
    return _actors(rng, [name for name in others if name in _LOG_WRITERS] or others, others)


def every_place(
    plan: HistoryPlan,
    interventions: Iterable[Intervention],
    *,
    changes_only: bool = False,
    is_wanted: Callable[[str, str], bool] = lambda operation, path: True,
) -> Iterator[HistoryPlan]:
    """The histories with one intervention at each place of the first actor.

    Args:
        plan: without interventions.
        interventions: tried at each place; faults only where files are read or changed.
        changes_only: only at places before files change, and before the answer.
        is_wanted: only at places with these operations and paths.
    """
    alone = run_history(replace(plan, actors=plan.actors[:1], choices=()))
    assert isinstance(alone.schedule, PlacedSchedule)
    choices = [*interventions]
    for place in alone.schedule.reached:
        is_answer = place.operation in ("answer", "rest")
        if (changes_only and not place.changes and not is_answer) or not is_wanted(place.operation, place.path):
            continue
        for choice in choices:
            if choice.fault is not None and (is_answer or not (place.changes or choice.fault is Fault.REFUSED)):
                continue
            yield replace(plan, choices=((0, place.own_step, choice),))


def dead_behind(plans: Iterable[HistoryPlan]) -> Iterator[HistoryPlan]:
    """The first actor comes to its place as before, does what it was about to do, and dies before it can look again."""
    for plan in plans:
        ((actor, step, _),) = plan.choices
        yield replace(plan, choices=(*plan.choices, (actor, step + 1, Intervention(crash=True))))


def explore(
    plans: Iterable[HistoryPlan],
    *,
    goes_on: Callable[[Exploration], bool] = lambda found: True,
    place: Callable[[int], HistoryPlace | None] = lambda number: None,
    done: Callable[[SimulatedHistory], None] = lambda history: None,
) -> Exploration:
    """Run histories.

    Args:
        plans: of the histories, in order.
        goes_on: asked before each; False ends the exploration.
        place: where the n-th history has its files; None: in memory.
        done: called with each history.
    """
    found, sound = Exploration(), set[int]()
    for plan in plans:
        if not goes_on(found):
            break
        history = run_history(plan, place=place(found.histories), sound=sound)
        found.add(history)
        done(history)
    return found
