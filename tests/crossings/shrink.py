"""A failing history made small: fewer steps, fewer rows, fewer values, and the simplest choices that still show it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.crossings.history import History, Step
from tests.crossings.run import Violation, replayed
from tests.crossings.space import PARAMETERS, SIMPLEST, SPACE

Fails = Callable[[History], Violation | None]


def shrunk(found: Violation, *, seconds: float = 60.0, fails: Fails | None = None) -> Violation:
    """The smallest history of a kind that shows it too: of its way, and as wrong rows or as the same error.

    Args:
        found: what is wrong.
        seconds: processor time to spend.
        fails: what plays a history.
    """
    until, best = time.process_time() + seconds, found
    play = fails or (lambda history: replayed(history).violation)
    is_smaller = True
    while is_smaller and time.process_time() < until:
        is_smaller = False
        for smaller in _smaller(best.history):
            if time.process_time() > until:
                break
            again = play(smaller)
            if again is not None and again.what == found.what:
                best, is_smaller = again, True
                break
    return best


def _smaller(history: History) -> Iterator[History]:
    steps = history.steps
    for size in (len(steps) // 2, len(steps) // 4, 1):
        for at in range(len(steps) - max(size, 1), -1, -max(size, 1)):
            if size:
                yield history.with_steps((*steps[:at], *steps[at + size :]))
    for name in PARAMETERS:
        if history.cell[name] != SIMPLEST[name]:
            cell = {**history.cell, name: SIMPLEST[name]}
            if not SPACE.refusals(cell):
                yield replace(history, cell=cell)
    for at, step in enumerate(steps):
        for other in _simpler(step):
            yield history.with_steps((*steps[:at], other, *steps[at + 1 :]))


def _simpler(step: Step) -> Iterator[Step]:
    name, given = step
    rows: list[Mapping[str, Any]] = given.get("rows", [])
    for at in range(len(rows)):
        fewer = {**given, "rows": rows[:at] + rows[at + 1 :]}
        if given.get("kinds"):
            fewer["kinds"] = given["kinds"][:at] + given["kinds"][at + 1 :]
        if len(rows) > 1:
            yield name, fewer
    for at, row in enumerate(rows):
        for slot in row:
            if slot not in ("k", "f", "p", "q", "g", "h"):
                less = {each: value for each, value in row.items() if each != slot}
                yield name, {**given, "rows": [*rows[:at], less, *rows[at + 1 :]]}
    for key in given:
        if key not in ("rows", "kinds", "name", "at", "before", "after", "column", "seconds", "a", "p", "buckets"):
            yield name, {each: value for each, value in given.items() if each != key}
    yield from ((name, fewer) for fewer in _simpler_kinds(given))


def _simpler_kinds(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    kinds = given.get("kinds") or []
    if kinds and {*kinds} == {"+I"}:
        yield {key: value for key, value in given.items() if key != "kinds"}
        return
    for at, kind in enumerate(kinds):
        if kind != "+I":
            yield {**given, "kinds": [*kinds[:at], "+I", *kinds[at + 1 :]]}
