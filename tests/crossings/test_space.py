"""What goes together is made, and what does not is refused in the words that its rule says."""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Final

import pytest

from filestore.options.not_built import NOT_BUILT
from filestore.options.option import At
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions
from tests.crossings.covering import Rule, Space
from tests.crossings.play import Play, RefusedError
from tests.crossings.space import PARAMETERS, ROW_DECIDING, RULES, SIMPLEST, SPACE, shape_of
from tests.crossings.world import world
from tests.support.row_options import row_deciding_options

_NEEDS_NESTED: Final = "of columns whose elements are rows, which no column of a cell has"
_WHICH_OF_THE_OLD: Final = "which of the old partitions one run drops; a cell's run drops all that are old"
_BEFORE: Final = "decides about values before they are rows of the table, which are what an oracle begins with"
NOT_CROSSED: Final[Mapping[str, str]] = {
    "change-tracking": "readers of changes are to see less than the rows that changed, so no oracle of rows applies",
    "change-tracking.untracked-partitions": "as change-tracking",
    "fields.*.count-limit": _NEEDS_NESTED,
    "fields.*.nested-key": _NEEDS_NESTED,
    "fields.*.ts-field": _NEEDS_NESTED,
    "full-compaction.delta-commits": "when a stream compacts fully; a history does so between any two steps",
    "lookup-wait": "whether a stream's batch waits for its compaction; a history compacts between any two steps",
    "partition.expiration-check-interval": "when a stream looks for old partitions; a history does at any step",
    "partition.expiration-max-num": _WHICH_OF_THE_OLD,
    "partition.expiration-strategy": "by the age of files, which compactions renew: no oracle of rows knows it",
    "primary-key": "the key as another engine writes it; a table has it in its schema, which cells have",
    "type": "another kind of table, which no one makes here",
    "watermark.column": "of SQL, for queries that read the table",
    "watermark.expression": "of SQL, for queries that read the table",
    "write.merge-schema.explicit-cast": _BEFORE,
    "write.round-values": _BEFORE,
    "write.stream.commit-user": "who writes, so which batches are known as committed; crossings write each batch once",
}
"""Options of tables and writers that decide about rows, and why they are in no cell. What each does alone is shown in
``tests/engine/request/test_deciding_options.py``."""


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


def test_each_option_of_a_table_that_decides_about_rows_is_crossed_or_said_not_to_be() -> None:
    """A new one has to be put into the space, where it meets all others, or here with a reason."""
    bases = (
        {},
        {"engine": "aggregation"},
        {"engine": "aggregation", "functions": "listed"},
        {"engine": "partial-update"},
        {"partition": "p"},
        {"log": "json"},
        {"rows": "append"},
    )
    cells = [
        {**SIMPLEST, **base, name: value} for name, values in PARAMETERS.items() for value in values for base in bases
    ]
    crossed = {re.sub(r"^fields\.\w+\.", "fields.*.", key) for cell in cells for key in shape_of(cell).options}
    deciding = {
        key for key, option in row_deciding_options(TableOptions, FieldOptions).items() if not option.at & At.READ
    }
    assert {*deciding} - crossed - {*NOT_BUILT} == {*NOT_CROSSED}
    assert len(deciding & crossed) > 20
