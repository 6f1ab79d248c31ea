"""Rules on rows: conditions with a name, of a table (``CHECK``) or of a job (``expect``), found out in columns.

A row breaks a rule where its condition is false. As in SQL a condition that is null is kept. Deletes and old values are
not looked at, or a row that once came in could never leave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.options.rules import CHECK_PREFIX
from filestore.predicate.predicate import Not, Predicate, columns_of
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError
from lsm.row_kind import retracts

EXAMPLES: Final = 3
"""Most rows that a message shows."""
_MERGED: Final = ("aggregation", "partial-update")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule:
    """A condition that every row is to meet. Picklable."""

    name: str
    condition: str
    predicate: Predicate

    @classmethod
    def parse(cls, name: str, condition: str, schema: TableSchema) -> "RowRule":
        """A rule on the columns of a table. Raises: InvalidInputError naming the rule: not a condition on them."""
        from filestore.predicate.parser import parse_filter

        try:
            predicate = parse_filter(condition, schema)
        except InvalidInputError as error:
            raise InvalidInputError(f"not a condition on the rows of this table: rule={name} reason={error}") from error
        if not columns_of(predicate):
            raise InvalidInputError(f"a rule on rows names a column: rule={name} condition={condition!r}")
        return cls(name=name, condition=condition, predicate=predicate)

    @property
    def columns(self) -> list[str]:
        """The columns that it is about, sorted."""
        return sorted(columns_of(self.predicate))

    def broken(self, rows: pa.RecordBatch, kinds: pa.Array | None = None) -> pa.BooleanArray:
        """(n,) whether a row breaks the rule; never null.

        Args:
            rows: the columns of the table, in their types.
            kinds: (n,) int8 kinds; None: all are inserts.
        """
        from filestore.predicate.evaluation import filter_mask

        broken = filter_mask(Not(part=self.predicate), rows).fill_null(False)
        return broken if kinds is None else pc.and_not(broken, retracts(kinds))


def check_rules(schema: TableSchema) -> tuple[RowRule, ...]:
    """The CHECK constraints of a table, by name. Raises: InvalidInputError: one cannot be read."""
    given = schema.table_options.behind(CHECK_PREFIX)
    return tuple(RowRule.parse(name, given[name], schema) for name in sorted(given))


def refuse_unkept(schema: TableSchema) -> None:
    """Refuse constraints that cannot be read, or that merging would not keep. Raises: InvalidInputError."""
    engine = schema.table_options.merge_engine
    for rule in check_rules(schema):
        if schema.primary_keys and engine in _MERGED:
            raise InvalidInputError(
                f"rows of this table are made of several written ones, of which a constraint says nothing: "
                f"constraint={rule.name} merge-engine={engine} fix='give the rule to the job (expect), for the rows "
                "that it writes'"
            )


def refuse_broken(
    rules: Sequence[RowRule], rows: pa.RecordBatch, kinds: pa.Array | None, *, table: str, keys: Sequence[str]
) -> None:
    """Refuse rows that break a constraint. Raises: InvalidInputError naming it, how many rows do, and some."""
    for rule in rules:
        broken = rule.broken(rows, kinds)
        if broken.true_count:
            raise InvalidInputError(
                f"rows break a constraint: table={table} constraint={rule.name} check='{rule.condition}' "
                f"rows={broken.true_count} of={rows.num_rows} examples={examples_of(rule, rows, broken, keys)} "
                "fix='correct the rows, or leave them out; expect: of a job file can do that'"
            )


def examples_of(
    rule: RowRule, rows: pa.RecordBatch, broken: pa.BooleanArray, keys: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Some of the rows that break a rule: key columns and those of its condition."""
    shown = [*dict.fromkeys([*keys, *rule.columns])]
    found: list[Mapping[str, Any]] = rows.select(shown).filter(broken).slice(0, EXAMPLES).to_pylist()
    return found
