"""Rows of choices in which every pair, and every triple of the parameters that matter most, occurs: a covering array.

Greedy, one row at a time: a row begins with choices that no row before it had together, and takes for each further
parameter the value that completes most of them. Rules say which choices are refused together; a rule is about a few
parameters and is compiled to the choices that it forbids, so that a row can be completed by looking at these alone.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np

Cell = Mapping[str, str]
"""A value for every parameter."""
Choice = tuple[int, ...]
"""Values by their place in the parameter's list; -1 is not chosen yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is refused, said about a few parameters."""

    name: str
    parameters: tuple[str, ...]
    refuses: Callable[..., bool]  # of their values, in this order
    message: str = ""  # part of what the product says


@dataclass(frozen=True)
class Space:
    """Parameters with their values, the simplest first, and what is refused."""

    parameters: Mapping[str, Sequence[str]]
    rules: Sequence[Rule] = ()
    triples_of: frozenset[str] = frozenset()  # parameters of which each triple counts, not only each pair

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters in order."""
        return tuple(self.parameters)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each has."""
        return tuple(len(values) for values in self.parameters.values())

    @cached_property
    def groups(self) -> list[tuple[int, ...]]:
        """Places of the parameters whose choices must occur together: pairs, then triples."""
        deciding = [place for place, name in enumerate(self.names) if name in self.triples_of]
        return [*combinations(range(len(self.names)), 2), *combinations(deciding, 3)]

    def cell(self, choice: Choice) -> dict[str, str]:
        """The values of a complete choice."""
        return {name: self.parameters[name][value] for name, value in zip(self.names, choice, strict=True)}

    def choice(self, cell: Cell) -> Choice:
        """Places of a cell's values."""
        return tuple(self.parameters[name].index(cell[name]) for name in self.names)

    def refusals(self, cell: Cell) -> list[Rule]:
        """The rules that refuse a cell."""
        return [rule for rule in self.rules if rule.refuses(*(cell[name] for name in rule.parameters))]

    @cached_property
    def _forbidden(self) -> list[tuple[tuple[int, ...], frozenset[tuple[int, ...]]]]:
        """Of each rule: its parameters, and the values that it refuses."""
        found = []
        for rule in self.rules:
            places = tuple(self.names.index(name) for name in rule.parameters)
            values = [self.parameters[name] for name in rule.parameters]
            refused = frozenset(
                each
                for each in product(*(range(len(one)) for one in values))
                if rule.refuses(*(one[value] for one, value in zip(values, each, strict=True)))
            )
            found.append((places, refused))
        return found

    @cached_property
    def _rules_of(self) -> Mapping[int, Sequence[int]]:
        """The rules that a parameter is in."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, (places, _) in enumerate(self._forbidden):
            for place in places:
                found[place].append(number)
        return found

    def fits(self, choice: list[int], place: int) -> bool:
        """Whether no rule about a parameter refuses what is chosen, as far as all that it is about is chosen."""
        for number in self._rules_of.get(place, ()):
            places, refused = self._forbidden[number]
            values = tuple(choice[each] for each in places)
            if -1 not in values and values in refused:
                return False
        return True

    def _narrowed(self, choice: list[int], changed: Sequence[int]) -> list[tuple[int, int]] | None:
        """Choose what rules leave one value for; the places that were chosen, or None where nothing is left."""
        waiting, chosen = list(changed), []
        while waiting:
            for number in self._rules_of.get(waiting.pop(), ()):
                places, refused = self._forbidden[number]
                values = [choice[each] for each in places]
                if values.count(-1) > 1:
                    continue
                if -1 not in values:
                    if tuple(values) in refused:
                        return None
                    continue
                gap = values.index(-1)
                left = [
                    value
                    for value in range(self.sizes[places[gap]])
                    if (*values[:gap], value, *values[gap + 1 :]) not in refused
                    and self._may(choice, places[gap], value)
                ]
                if not left:
                    return None
                if len(left) == 1:
                    choice[places[gap]] = left[0]
                    chosen.append((places[gap], left[0]))
                    waiting.append(places[gap])
        return chosen

    def _may(self, choice: list[int], place: int, value: int) -> bool:
        choice[place] = value
        fits = self.fits(choice, place)
        choice[place] = -1
        return fits

    def completed(self, choice: Choice) -> Choice | None:
        """The choice with values for the rest, the simplest that rules allow; None where there are none."""
        found = self._completed(list(choice), [place for place, value in enumerate(choice) if value >= 0])
        return None if found is None else tuple(found)

    def _completed(self, choice: list[int], changed: Sequence[int]) -> list[int] | None:
        if self._narrowed(choice, changed) is None:
            return None
        bound = [place for place in self._rules_of if choice[place] < 0]
        if not bound:
            return [max(value, 0) for value in choice]
        place = min(bound, key=lambda each: (-len(self._rules_of[each]), each))
        for value in range(self.sizes[place]):
            tried = list(choice)
            tried[place] = value
            found = self._completed(tried, [place])
            if found is not None:
                return found
        return None


class Uncovered:
    """Choices that must occur together and have not yet."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.left = {group: np.ones([space.sizes[place] for place in group], np.bool_) for group in space.groups}
        self._partners: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        for group in space.groups:
            for at, place in enumerate(group):
                self._partners[place].append((group, at))
        refused: dict[tuple[int, int], Any] = {}
        for places, values in space._forbidden:
            if len(places) == 2:
                pair = (min(places), max(places))
                mask = refused.setdefault(pair, np.zeros([space.sizes[place] for place in pair], np.bool_))
                for each in values:
                    mask[tuple(value for _, value in sorted(zip(places, each, strict=True)))] = True
        for group, mask in self.left.items():
            for pair in combinations(group, 2):
                if pair in refused:
                    self._forget(group, mask, pair, refused[pair])

    @staticmethod
    def _forget(group: tuple[int, ...], mask: Any, pair: tuple[int, int], refused: Any) -> None:
        shape = [mask.shape[at] if group[at] in pair else 1 for at in range(len(group))]
        mask &= ~refused.reshape(shape)

    def count(self) -> int:
        """How many are left."""
        return sum(int(mask.sum()) for mask in self.left.values())

    def take(self, choice: Choice) -> int:
        """A row has these; how many of them are new."""
        new = 0
        for group, mask in self.left.items():
            at = tuple(choice[place] for place in group)
            new += bool(mask[at])
            mask[at] = False
        return new

    def some(self, chance: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Choices that are left, of one group; None: there are none."""
        open_ = [group for group, mask in self.left.items() if mask.any()]
        if not open_:
            return None
        group = chance.choice(open_)
        return group, tuple(int(each) for each in chance.choice(np.argwhere(self.left[group])))

    def drop(self, group: tuple[int, ...], values: tuple[int, ...]) -> None:
        """These cannot occur: rules refuse each row with them."""
        self.left[group][values] = False
        if len(group) == 2:
            mask = np.zeros([self.space.sizes[place] for place in group], np.bool_)
            mask[values] = True
            for other, left in self.left.items():
                if len(other) > 2 and set(group) <= set(other):
                    self._forget(other, left, (group[0], group[1]), mask)

    def gains(self, choice: list[int], place: int) -> Any:
        """(values,) how many that are left each value of a parameter would complete."""
        found = np.zeros(self.space.sizes[place], np.int64)
        for group, at in self._partners[place]:
            index: list[Any] = [choice[each] for each in group]
            index[at] = slice(None)
            if -1 not in index[:at] and -1 not in index[at + 1 :]:
                found += self.left[group][tuple(index)]
        return found


def covering_rows(space: Space, seed: object = 0) -> Iterator[Choice]:
    """Complete choices that no rule refuses; together they have every pair and triple that some row can have.

    Args:
        space: what is chosen from.
        seed: another one gives other rows.
    """
    chance = random.Random(f"covering {seed}")
    uncovered = Uncovered(space)
    while (begin := uncovered.some(chance)) is not None:
        row = _row(space, uncovered, chance, *begin)
        if row is None:
            uncovered.drop(*begin)
            continue
        uncovered.take(row)
        yield row


def _row(
    space: Space, uncovered: Uncovered, chance: random.Random, group: tuple[int, ...], values: tuple[int, ...]
) -> Choice | None:
    choice = [-1] * len(space.names)
    for place, value in zip(group, values, strict=True):
        choice[place] = value
    if space._narrowed(choice, group) is None or space.completed(tuple(choice)) is None:
        return None
    order = [place for place in range(len(choice)) if place not in group]
    chance.shuffle(order)
    order.sort(key=lambda place: space.names[place] not in space.triples_of)
    for place in order:
        if choice[place] >= 0:
            continue
        gains = uncovered.gains(choice, place)
        ranked = sorted(range(len(gains)), key=lambda value: (-gains[value], chance.random()))
        for value in ranked:
            tried = list(choice)
            tried[place] = value
            if space._narrowed(tried, [place]) is not None and space.completed(tuple(tried)) is not None:
                choice = tried
                break
    return tuple(choice)
