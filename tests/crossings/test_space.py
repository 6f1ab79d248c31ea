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

NOT_CROSSED: Final[Mapping[str, str]] = {
    "change-tracking": "a writer leaves the log out, and its rows are those of another engine's commit",
    "change-tracking.untracked-partitions": "partitions that followers do not see: reads are as without it",
    "fields.*.count-limit": "of nested_update alone",
    "fields.*.nested-key": "of nested_update alone",
    "fields.*.ts-field": "of merge_map_with_keytime alone",
    "full-compaction.delta-commits": "when a writer compacts fully, which histories do between any two steps",
    "lookup-wait": "when a compaction of a stream ends; histories write in batches",
    "partial-update.remove-record-on-sequence-group": "its deletes are compared with Java's in random histories",
    "partition.expiration-check-interval": "when streams drop partitions, as the operation drop_partition does",
    "partition.expiration-max-num": "how many partitions are dropped",
    "partition.expiration-strategy": "which partitions are dropped",
    "partition.expiration-time": "which partitions are dropped",
    "partition.timestamp-formatter": "which partitions are dropped",
    "partition.timestamp-pattern": "which partitions are dropped",
    "primary-key": "the key, as another engine writes it",
    "type": "another kind of table, which is refused",
    "watermark.column": "of SQL, for queries that read the table",
    "watermark.expression": "of SQL, for queries that read the table",
    "write.merge-schema.explicit-cast": "which values a writer casts that do not widen, before they are written",
    "write.round-values": "values before they are written",
    "write.stream.commit-user": "who writes",
}
"""Options of tables and writers that decide about rows, and why they are in no cell."""


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
