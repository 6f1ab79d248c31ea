"""The pause matrix: each operation, paused at each place, beside all that others can do to the table meanwhile.

Once for tables of files, once for tables with a log.
"""

import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from typing import Final

from engine.simulation.explorer import CRASH, PAUSE, dead_behind, every_place
from engine.simulation.history import run_history
from engine.simulation.log.operations import ADOPTERS, SINKS
from engine.simulation.operations import WITH_BRANCH
from engine.simulation.plan import HistoryPlan
from engine.simulation.repertoire import OPERATION_NAMES, fits_setup
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


def sampled_matrix(seed: int, *, more: int = 1) -> Iterator[HistoryPlan]:
    """Every pair, paused at the steps that publish, and at some others; of those with a log one in three.

    Args:
        seed: chooses the others.
        more: how many others of each pair.
    """
    rng = random.Random(seed)
    for pair in chain(pairs(), islice(pairs_with_log(), seed % 3, None, 3)):
        (name,), meanwhile = pair.actors
        places = _places(name, pair.setup)
        publishing = [step for step, operation in places if operation == "create_exclusive"]
        others = [step for step, _ in places]
        for step in dict.fromkeys([*publishing, *rng.sample(others, min(more, len(others)))]):
            yield replace(pair, actors=((name,), meanwhile), choices=((0, step, PAUSE),))


@cache
def _places(name: str, setup: str) -> list[tuple[int, str]]:
    """Steps of an operation that is alone, with what it does there."""
    alone = run_history(HistoryPlan(actors=((name,),), setup=setup))
    assert isinstance(alone.schedule, PlacedSchedule)
    return [(place.own_step, place.operation) for place in alone.schedule.reached]
