"""The command ``fluvial simulate``: interleavings of real operations, with crashes and failing storage, and a check."""

import logging
import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, Final

import click
from rich.console import Console

from engine.cli.exit_codes import EXIT_FAILED
from engine.cli.output import console, json_option, notes, print_json
from engine.cli.place import WarehousePlace, with_optional_place
from engine.simulation.explorer import Exploration, explore, random_plan
from engine.simulation.history import HistoryPlace, SimulatedHistory
from engine.simulation.pause_matrix import matrix
from engine.simulation.plan import HistoryPlan
from engine.simulation.repertoire import OPERATION_NAMES, operation
from filestore.catalog.warehouse import open_warehouse
from filestore.io.file_io import RandomNames
from filestore.options.catalog_options import CatalogOptions

_SECONDS: Final = 60.0
_SHOWN_EVERY_S: Final = 5.0
_MOST_FAILED: Final = 5
_SEEDS: Final = 2**48


@click.command()
@click.option("--histories", metavar="N", type=click.IntRange(1), help="Stop after this many histories.")
@click.option("--seconds", metavar="S", type=click.FloatRange(0), help="Stop after this time. [default: 60]")
@click.option("--seed", metavar="N", type=int, help="Of the first history; alone: of the only one, which is replayed.")
@click.option("--history", metavar="JSON", help="Replay the history of this plan, as a failure prints it.")
@click.option("--operations", metavar="A,B", help="Names of the operations to choose from; default all.")
@click.option("--matrix", "is_matrix", is_flag=True, help="Every pause of every operation beside every other one.")
@click.option("--trace", is_flag=True, help="Print the trace of a history that is replayed although it is right.")
@json_option
@with_optional_place
def simulate(
    place: WarehousePlace | None,
    histories: int | None,
    seconds: float | None,
    seed: int | None,
    history: str | None,
    operations: str | None,
    is_matrix: bool,
    trace: bool,
    as_json: bool,
) -> int:
    """Interleave, crash and fail real operations on small tables, and check what is left.

    Without --warehouse the tables are in memory; with it, in a new directory of that warehouse, which is deleted at
    the end. The same seed gives the same history. Exit codes: 0; 1 when a history violates what must hold.
    """
    names = OPERATION_NAMES if operations is None else tuple(each.strip() for each in operations.split(","))
    for name in names:
        operation(name, 0)
    plans: Iterable[HistoryPlan]
    if history is not None:
        plans = [HistoryPlan.of_json(history)]
    elif is_matrix:
        plans = matrix(names)
    elif seed is not None and histories is None and seconds is None:
        plans = [random_plan(seed, names)]
    else:
        first = random.randrange(_SEEDS) if seed is None else seed
        plans = (random_plan(each, names) for each in count(first))
    is_one = isinstance(plans, list)
    limit_s = seconds if seconds is not None or histories or is_matrix else _SECONDS
    report = _Report(limit_s=None if is_one else limit_s, histories=histories)
    with _places(place) as place_of, _silence():
        found = explore(plans, goes_on=report.goes_on, place=place_of, done=report.done)
    report.print(found, as_json=as_json, with_trace=trace and is_one)
    return EXIT_FAILED if found.failed else 0


class _Report:
    """Progress while histories run, and the result."""

    def __init__(self, *, limit_s: float | None, histories: int | None) -> None:
        self._began_s = self._shown_s = time.monotonic()
        self._limit_s, self._histories = limit_s, histories
        self._notes: Console = notes()
        self._last: SimulatedHistory | None = None

    def goes_on(self, found: Exploration) -> bool:
        now_s = time.monotonic()
        if now_s - self._shown_s >= _SHOWN_EVERY_S:
            self._shown_s = now_s
            self._notes.print(
                f"{found.histories:,} histories, {self._per_minute(found):,} a minute, {len(found.failed)} violations"
            )
        is_late = self._limit_s is not None and now_s - self._began_s >= self._limit_s
        is_done = self._histories is not None and found.histories >= self._histories
        return not (is_late or is_done or len(found.failed) >= _MOST_FAILED)

    def done(self, history: SimulatedHistory) -> None:
        self._last = history
        if history.problems:  # at once: the run may be stopped before its end
            self._notes.print(
                f"violation: {history.problems[0]} replay: {_replay(history)}", soft_wrap=True, markup=False
            )

    def print(self, found: Exploration, *, as_json: bool, with_trace: bool) -> None:
        if as_json:
            print_json(self._as_json(found))
            return
        out = console()
        shown = found.failed or ([self._last] if with_trace and self._last is not None else [])
        for history in shown:
            _print_history(out, history)
        out.print(
            f"{found.histories:,} histories, {found.steps:,} steps, {self._per_minute(found):,} histories a minute, "
            f"{len(found.failed)} violations",
            soft_wrap=True,
        )

    def _per_minute(self, found: Exploration) -> int:
        return round(found.histories / max(time.monotonic() - self._began_s, 0.001) * 60)

    def _as_json(self, found: Exploration) -> dict[str, Any]:
        return {
            "histories": found.histories,
            "steps": found.steps,
            "histories_per_minute": self._per_minute(found),
            "acknowledged": dict(sorted(found.operations.items())),
            "violations": [
                {
                    "seed": each.plan.seed,
                    "plan": each.plan.to_json(),
                    "problems": list(each.problems),
                    "trace": each.trace(),
                }
                for each in found.failed
            ],
        }


def _print_history(out: Console, history: SimulatedHistory) -> None:
    out.print(f"history: {history.plan}", soft_wrap=True, markup=False)
    for problem in history.problems:
        out.print(f"  violation: {problem}", soft_wrap=True, markup=False)
    for line in history.trace():
        out.print(f"  {line}", soft_wrap=True, markup=False)
    out.print(f"  replay: {_replay(history)}", soft_wrap=True, markup=False)


def _replay(history: SimulatedHistory) -> str:
    plan = history.plan
    how = f"--seed {plan.seed}" if plan.seed is not None else f"--history '{plan.to_json()}'"
    return f"fluvial simulate {how}"


@contextmanager
def _silence() -> Iterator[None]:
    """Without the warnings of operations that are interrupted on purpose."""
    logger = logging.getLogger("fluvial")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _places(place: WarehousePlace | None) -> Iterator[Any]:
    """Where the n-th history has its files; what is there is deleted at the end."""
    if place is None:
        yield lambda number: None
        return
    found = open_warehouse(place.warehouse, CatalogOptions.parse(place.options), environment=os.environ)
    top = f"{found.root}/fluvial-simulation-{RandomNames().uuid()}"
    made: list[str] = []

    def next_place(number: int) -> HistoryPlace:
        for root in made:
            found.io.delete_tree(root)
        made[:] = [f"{top}/{number}"]
        return HistoryPlace(root=made[0], io=found.io)

    try:
        yield next_place
    finally:
        for root in chain(made, [top]):
            found.io.delete_tree(root)
