"""What goes together is made, and what does not is refused in the words that its rule says."""

import re
from collections.abc import Iterator
from itertools import product

import pytest

from tests.crossings.covering import Rule, Space
from tests.crossings.play import Play, RefusedError
from tests.crossings.space import PARAMETERS, ROW_DECIDING, RULES, SIMPLEST, SPACE
from tests.crossings.world import world


def cells_that_only_one_rule_refuses(rule: Rule, *, most: int = 12) -> Iterator[dict[str, str]]:
    others = Space(parameters=PARAMETERS, rules=[each for each in RULES if each is not rule])
    given = [each for each in product(*(PARAMETERS[name] for name in rule.parameters)) if rule.refuses(*each)]
    for values in given[:: max(len(given) // most, 1)]:
        partial = [-1] * len(others.names)
        for name, value in zip(rule.parameters, values, strict=True):
            partial[others.names.index(name)] = PARAMETERS[name].index(value)
        found = others.completed(tuple(partial))
        if found is not None:
            yield others.cell(found)


@pytest.mark.sampled(8)
@pytest.mark.sweep
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_refuses_is_refused_in_its_words(rule: Rule) -> None:
    cells = list(cells_that_only_one_rule_refuses(rule))
    assert cells, "no table breaks this rule alone"
    for cell in cells:
        assert SPACE.refusals(cell) == [rule]
        with world() as place, pytest.raises(RefusedError, match=re.escape(rule.message)):
            Play(cell, place)


def test_the_simplest_table_is_refused_by_no_rule() -> None:
    assert not SPACE.refusals(SIMPLEST)
    assert len(ROW_DECIDING) == 20
