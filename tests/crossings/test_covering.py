"""Covering arrays against brute force: each pair and triple that some row can have is in one."""

import random
from itertools import combinations, product

import pytest

from tests.crossings.campaign import Coverage
from tests.crossings.covering import Rule, Space, Uncovered, covering_rows
from tests.crossings.space import SPACE


def random_space(seed: int) -> Space:
    """Up to seven parameters of up to four values, and rules about two or three of them."""
    chance = random.Random(seed)
    parameters = {
        name: [f"{name}{each}" for each in range(chance.randint(1, 4))] for name in "abcdefg"[: chance.randint(3, 7)]
    }
    rules = []
    for number in range(chance.randint(0, 6)):
        names = tuple(chance.sample(list(parameters), chance.choice([2, 2, 3])))
        every = list(product(*(parameters[name] for name in names)))
        refused = frozenset(chance.sample(every, chance.randint(0, max(len(every) // 3, 1))))
        rules.append(Rule(name=f"{number}", parameters=names, refuses=lambda *values, no=refused: values in no))
    return Space(parameters=parameters, rules=rules, triples_of=frozenset(chance.sample(list(parameters), 3)))


def allowed_rows(space: Space) -> set[tuple[int, ...]]:
    return {row for row in product(*map(range, space.sizes)) if not space.refusals(space.cell(row))}


def met(space: Space, rows: set[tuple[int, ...]]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    return {(group, tuple(row[place] for place in group)) for row in rows for group in space.groups}


@pytest.mark.parametrize("seed", range(25))
def test_every_pair_and_triple_that_a_row_can_have_is_in_one(seed: int) -> None:
    space = random_space(seed)
    rows, possible = set(covering_rows(space, seed)), allowed_rows(space)
    assert rows <= possible
    assert met(space, rows) == met(space, possible)
    assert len(rows) <= len(possible)


@pytest.mark.parametrize("seed", range(25))
def test_a_choice_is_completed_where_some_row_has_it(seed: int) -> None:
    space, chance = random_space(seed), random.Random(seed)
    possible = allowed_rows(space)
    for _ in range(20):
        places = chance.sample(range(len(space.names)), chance.randint(1, 3))
        partial = tuple(chance.randrange(size) if at in places else -1 for at, size in enumerate(space.sizes))
        fitting = {
            row for row in possible if all(want in (-1, value) for want, value in zip(partial, row, strict=True))
        }
        found = space.completed(partial)
        assert (found in fitting) if fitting else found is None


def test_the_same_seed_gives_the_same_rows() -> None:
    space = random_space(3)
    assert list(covering_rows(space, 5)) == list(covering_rows(space, 5))


@pytest.mark.long
def test_the_tables_of_the_product_have_each_pair_and_each_triple_that_decides_about_rows() -> None:
    """What is left when no row adds anything is refused by rules, whatever the rest of the row is."""
    coverage, uncovered = Coverage(), Uncovered(SPACE)
    rows = list(covering_rows(SPACE))
    for row in rows:
        assert not SPACE.refusals(SPACE.cell(row))
        uncovered.take(row)
        coverage.take(row, {"any"})
    for group, mask in uncovered.left.items():
        for values in zip(*mask.nonzero(), strict=True):
            partial = [-1] * len(SPACE.names)
            for place, value in zip(group, values, strict=True):
                partial[place] = int(value)
            assert SPACE.completed(tuple(partial)) is None, (group, values)
    assert coverage.counts()["any"][0] > 0.9 * sum(a * b for a, b in combinations(SPACE.sizes, 2))
    assert len(rows) < 500
