"""Many histories, each of another cell, and what of the space they have covered by which way to read."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np

from tests.crossings.covering import Choice, Space, covering_rows
from tests.crossings.run import Outcome, drawn
from tests.crossings.shrink import shrunk
from tests.crossings.space import SIMPLEST, SPACE, WIDE

WIDE_SHARE: Final = 60
"""One history of so many is of a table of thousands of columns."""


class Coverage:
    """Which pairs and triples of choices each operation and each way to read has met."""

    def __init__(self, space: Space = SPACE) -> None:
        self._sizes = np.array(space.sizes)
        pairs = np.array([group for group in space.groups if len(group) == 2])
        triples = np.array([group for group in space.groups if len(group) == 3])
        self._groups = [each for each in (pairs, triples) if len(each)]
        self._offsets = [np.concatenate([[0], np.cumsum(self._sizes[each].prod(axis=1))]) for each in self._groups]
        self.met: dict[str, list[Any]] = {}

    def take(self, choice: Choice, ways: set[str]) -> None:
        """A history of a cell has gone these ways."""
        chosen = np.array(choice)
        places = [
            offsets[:-1] + self._flat(groups, chosen)
            for groups, offsets in zip(self._groups, self._offsets, strict=True)
        ]
        for way in ways:
            known = self.met.setdefault(way, [np.zeros(int(each[-1]), np.bool_) for each in self._offsets])
            for mask, at in zip(known, places, strict=True):
                mask[at] = True

    def _flat(self, groups: Any, chosen: Any) -> Any:
        found = np.zeros(len(groups), np.int64)
        for column in groups.T:
            found = found * self._sizes[column] + chosen[column]
        return found

    def counts(self) -> Mapping[str, list[int]]:
        """Pairs and triples by way, and of all of them."""
        found = {way: [int(mask.sum()) for mask in known] for way, known in sorted(self.met.items())}
        if self.met:
            whole = [np.logical_or.reduce(masks) for masks in zip(*self.met.values(), strict=True)]
            found["all"] = [int(mask.sum()) for mask in whole]
        return found


def plays(first: int) -> Iterator[tuple[Callable[[object], Outcome], Choice | None]]:
    """What plays a history by its seed, and its choices unless it is of a wide table; one after the other, without end.

    Args:
        first: the seed of the rows.
    """
    rows, wide = _rows(first, SPACE), _rows(first, WIDE)
    for number in count(1):
        if number % WIDE_SHARE == 0:
            yield partial(drawn, {**SIMPLEST, **WIDE.cell(next(wide))}, steps=2, looks=2), None
        else:
            choice = next(rows)
            yield partial(drawn, SPACE.cell(choice)), choice


def _rows(first: int, space: Space) -> Iterator[Choice]:
    """Choices without an end, one covering array after the other."""
    for number in count():
        yield from covering_rows(space, f"{first} {number}")


class ViolatedError(AssertionError):
    """A history shows a fault."""


class Campaign:
    """One history after the other."""

    def __init__(self, first: int, *, shrink_s: float = 60.0) -> None:
        """Args:
        first: the seed of the rows and of their histories.
        shrink_s: processor time to spend on each violation.
        """
        self._plays, self._shrink_s = plays(first), shrink_s
        self.coverage = Coverage()

    def history(self, seed: int) -> Outcome:
        """The next one.

        Raises:
            ViolatedError: it shows a fault; with its smallest form.
        """
        draw, choice = next(self._plays)
        outcome = draw(seed)
        if choice is not None:
            self.coverage.take(choice, set(outcome.done))
        if outcome.violation is not None:
            raise ViolatedError(str(shrunk(outcome.violation, seconds=self._shrink_s)))
        return outcome
