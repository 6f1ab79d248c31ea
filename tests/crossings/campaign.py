"""Many histories, each of another cell, and what of the space they have covered by which way to read."""

from collections.abc import Iterator, Mapping
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


class ViolatedError(AssertionError):
    """A history shows a fault."""


class Campaign:
    """One history after the other."""

    def __init__(self, first: int, *, shrink_s: float = 60.0) -> None:
        """Args:
        first: the seed of the rows and of their histories.
        shrink_s: processor time to spend on each violation.
        """
        self._rows, self._wide, self._count = self.rows(first), self.rows(first, WIDE), 0
        self._shrink_s = shrink_s
        self.coverage = Coverage()

    @staticmethod
    def rows(first: int, space: Space = SPACE) -> Iterator[Choice]:
        """Choices without an end, one covering array after the other."""
        for number in count():
            yield from covering_rows(space, f"{first} {number}")

    def history(self, seed: int) -> Outcome:
        """The next one.

        Raises:
            ViolatedError: it shows a fault; with its smallest form.
        """
        self._count += 1
        if self._count % WIDE_SHARE == 0:
            outcome = drawn({**SIMPLEST, **WIDE.cell(next(self._wide))}, seed, steps=2, looks=2)
        else:
            choice = next(self._rows)
            outcome = drawn(SPACE.cell(choice), seed)
            self.coverage.take(choice, set(outcome.done))
        if outcome.violation is not None:
            raise ViolatedError(str(shrunk(outcome.violation, seconds=self._shrink_s)))
        return outcome
