"""The pause matrix: each operation, paused at each place, beside all that others can do to the table meanwhile."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from engine.simulation.explorer import CRASH, PAUSE, every_place
from engine.simulation.history import HistoryPlan, run_history
from engine.simulation.operations import WITH_BRANCH
from engine.simulation.repertoire import fits_setup
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


def pairs() -> Iterator[HistoryPlan]:
    """Every pair, on a setup that has what both need; without a pause."""
    for name in PAUSED:
        for others in MEANWHILE.values():
            needs_branch = bool({name, *others} & WITH_BRANCH)
            yield HistoryPlan(actors=((name,), others), setup="versioned" if needs_branch else "keyed")
            if not needs_branch and all(fits_setup(SETUPS["append"], each) for each in (name, *others)):
                yield HistoryPlan(actors=((name,), others), setup="append")


def matrix() -> Iterator[HistoryPlan]:
    """Every pair with a pause, and with a pause that ends in a crash, at every place."""
    for pair in pairs():
        yield from every_place(pair, (PAUSE, CRASH))


def sampled_matrix(seed: int, *, more: int = 1) -> Iterator[HistoryPlan]:
    """Every pair, paused at the steps that publish, and at some others.

    Args:
        seed: chooses the others.
        more: how many others of each pair.
    """
    rng = random.Random(seed)
    for pair in pairs():
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
