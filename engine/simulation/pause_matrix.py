"""The pause matrix: each operation, paused at each place, beside all that others can do to the table meanwhile.

Once for tables of files, once for tables with a log.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from typing import Final, NamedTuple

from engine.simulation.explorer import CRASH, PAUSE, dead_behind, every_place
from engine.simulation.history import run_history
from engine.simulation.log.operations import ADOPTERS, SINKS
from engine.simulation.operations import WITH_BRANCH
from engine.simulation.plan import HistoryPlan
from engine.simulation.repertoire import OPERATION_NAMES, fits_setup
from engine.simulation.scheduler import Intervention
from engine.simulation.schedules import PlacedSchedule
from engine.simulation.setups import SETUPS

PAUSED: Final = (
    "write", "upsert", "overwrite", "delete", "stream", "compact-full", "compact-dedicated", "rescale", "tag",
    "tag-newest", "savepoint", "branch", "merge", "fast-forward", "expire", "clean",
)  # fmt: skip
"""What is paused."""

MEANWHILE: Final = {
    "expire": ("write", "write", "expire"),
    "rollback": ("rollback",),
    "rollback and write": ("rollback", "write", "write"),
    "drop": ("drop",),
    "drop and create": ("drop", "create", "write", "write"),
    "rename": ("rename",),
    "rescale": ("rescale",),
    "replace-main": ("replace-main",),
    "compaction": ("compact-full",),
    "another writer": ("upsert", "write"),
}
"""What others do meanwhile, by name."""

PAUSED_WITH_LOG: Final = (
    "log-write", "log-upsert", "log-sink", "log-adopt", "log-delete", "log-overwrite", "log-untracked", "log-read",
    "log-trim", "compact-full", "compact-dedicated", "tag-newest", "savepoint", "expire", "clean",
)  # fmt: skip
"""What is paused on a table with a log."""

MEANWHILE_WITH_LOG: Final = {
    "expire": ("log-write", "log-write", "expire"),
    "overwrite": ("log-overwrite",),
    "delete": ("log-delete",),
    "retention": ("log-trim", "log-write"),
    "reader": ("log-read",),
    "compaction": ("compact-full",),
    "another writer": ("log-upsert", "log-write"),
    "another query": ("log-sink", "log-sink"),
    "a writer that leaves the log out": ("log-untracked", "log-write"),
}
"""What others do meanwhile to a table with a log, by name."""


_SNAPSHOT: Final = "/snapshot/snapshot-"
FORKING: Final = ("compact-full", "compact-dedicated", "rescale", "overwrite", "write", "stream")
"""Operations that publish into a number that others have freed."""

FREEING: Final = ("write", "write", "expire")
"""Operations of others before that."""

DELETING: Final = (
    (("delete-tag",), "tagged"),
    (("write", "compact-full", "expire", "delete-tag"), "tagged"),
    (("delete-savepoint",), "saved"),
    (("write-next-day", "tag-batch"), "batches"),
    (("write-next-day", "expire-tags"), "batches"),
    (("write", "expire"), "tagged"),
    (("clean",), "tagged"),
    (("clean",), "saved"),
)
"""What takes that fork for one of the history, and the setup for it."""


def pairs() -> Iterator[HistoryPlan]:
    """Every pair, on a setup that has what both need; without a pause."""
    for name in PAUSED:
        for others in MEANWHILE.values():
            needs_branch = bool({name, *others} & WITH_BRANCH)
            yield HistoryPlan(actors=((name,), others), setup="versioned" if needs_branch else "keyed")
            if not needs_branch and all(fits_setup(SETUPS["append"], each) for each in (name, *others)):
                yield HistoryPlan(actors=((name,), others), setup="append")


def pairs_with_log() -> Iterator[HistoryPlan]:
    """Every pair on a table with a log, in each setup that has what both need; without a pause."""
    setups = [each for each in SETUPS.values() if each.has_log]
    for name in PAUSED_WITH_LOG:
        for others in MEANWHILE_WITH_LOG.values():
            if name in (*SINKS, *ADOPTERS) and any(each in SINKS for each in others):
                continue  # two queries of one name, and a job that takes over a query's batch while the query runs
            for setup in setups:
                if all(fits_setup(setup, each) for each in (name, *others)):
                    yield HistoryPlan(actors=((name,), others), setup=setup.name)


def matrix(paused: Collection[str] = OPERATION_NAMES) -> Iterator[HistoryPlan]:
    """Every pair with a pause, also one that ends in a crash, at every place; of these paused operations.

    And with a crash right behind each change that the paused one makes.
    """
    for pair in (each for each in chain(pairs(), pairs_with_log()) if each.actors[0][0] in paused):
        yield from every_place(pair, (PAUSE, CRASH))
        yield from dead_behind(every_place(pair, (PAUSE,), changes_only=True))
    yield from forks(paused)


def forks(forking: Collection[str] = OPERATION_NAMES, *, steps: int | None = None) -> Iterator[HistoryPlan]:
    """Writers that publish into a freed number, beside all that deletes: before it, and at every place within it.

    The writer dies behind the creation; or it stays there, until the deletion has ended; or it continues at once; or it
    takes its snapshot back when the deletion has come to that place.

    Args:
        forking: only these writers.
        steps: how many places of the deletion; None: all.
    """
    for name in (each for each in FORKING if each in forking):
        for deleting, setup in DELETING:
            if not all(fits_setup(SETUPS[setup], each) for each in (name, *deleting)):
                continue
            plan = HistoryPlan(actors=((name,), (*FREEING, *deleting)), setup=setup)
            step = next(each.own_step for each in _places(plan.actors[:1], setup) if each.publishes)
            others = _places(plan.actors[1:], setup)
            start = [each.own_step for each in others if each.operation == "answer"][len(FREEING) - 1] + 1
            creates, deletes = (0, step, _pause(1)), (1, start, _pause(2))
            for at in range(start, others[-1].own_step + 1)[:steps]:
                place = (1, at, _pause(2))
                yield replace(plan, choices=(creates, place, (0, step + 1, Intervention(crash=True))))
                yield replace(plan, choices=(creates, place, (0, step + 1, _pause(3))))
                yield replace(plan, choices=(creates, place))
                if at > start:
                    yield replace(plan, choices=(creates, deletes, (0, step + 1, _pause(3)), (1, at, _pause(4))))


def _pause(rank: int) -> Intervention:
    """A pause that ends when no one else can continue, those of lower ranks first."""
    return Intervention(pause=1 << (40 + 4 * rank))


def sampled_matrix(seed: int, *, more: int = 1) -> Iterator[HistoryPlan]:
    """Every pair, paused at the steps that publish, and at some others; of those with a log one in three.

    Args:
        seed: chooses the others.
        more: how many others of each pair.
    """
    rng = random.Random(seed)
    for pair in chain(pairs(), islice(pairs_with_log(), seed % 3, None, 3)):
        (name,), meanwhile = pair.actors
        places = _places(((name,),), pair.setup)
        publishing = [each.own_step for each in places if each.operation == "create_exclusive"]
        others = [each.own_step for each in places]
        for step in dict.fromkeys([*publishing, *rng.sample(others, min(more, len(others)))]):
            yield replace(pair, actors=((name,), meanwhile), choices=((0, step, PAUSE),))


class _Place(NamedTuple):
    own_step: int
    operation: str
    publishes: bool  # a snapshot


@cache
def _places(actors: tuple[tuple[str, ...], ...], setup: str) -> list[_Place]:
    """The places of an actor that is alone."""
    alone = run_history(HistoryPlan(actors=actors, setup=setup))
    assert isinstance(alone.schedule, PlacedSchedule)
    return [
        _Place(each.own_step, each.operation, _SNAPSHOT in each.path and each.operation == "create_exclusive")
        for each in alone.schedule.reached
    ]
