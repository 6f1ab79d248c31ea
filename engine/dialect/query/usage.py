"""What a statement uses of each table that it reads: the columns, and conditions on the rows.

Both only save work. A column counts as used when its name occurs anywhere in the text, or when a ``*`` or the like
takes all of them. Rows may be left out before Spark sees them when a condition on this table alone is in a place where
Spark would drop them anyway: in WHERE, or in the ON of a join that cannot turn a lost match into a row of nulls.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from engine.dialect.query.references import Reference, StatementText
from filestore.format.statistics import FLOAT_ROOTS
from filestore.predicate.parser import parse_filter
from filestore.predicate.predicate import Predicate
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import INTEGER_ROOTS, DataField
from lsm.errors import InvalidInputError

_TAKE_ALL: Final = frozenset({"|>", "NATURAL", "PIVOT", "UNPIVOT"})
_UTC: Final = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "+00:00"})
_MOMENTS: Final = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedCondition:
    """A condition on one table's rows, or one that cannot be used before Spark, and why."""

    text: str
    predicate: Predicate | None
    reason: str = ""  # without a predicate


def used_columns(text: StatementText, tree: exp.Expr, references: Sequence[Reference]) -> dict[int, Collection[str]]:
    """Names, in lower case, that may be columns of each reference; a reference that is missing uses all of its columns.

    Returns:
        By the start of the reference.
    """
    words = [token.text for token in text.tokens]
    if not _TAKE_ALL.isdisjoint(word.upper() for word in words) or _has_computed_names(text):
        return {}
    names = frozenset(word.lower() for word in words)
    stars = _stars(tree)
    return {each.start: names for each in references if not _is_taken_whole(each, stars)}


def row_conditions(
    reference: Reference, schemas: Mapping[int, TableSchema], *, setting: Callable[[str], str]
) -> Iterator[UsedCondition]:
    """Conditions on the rows of a reference, in places where Spark would drop its rows.

    Args:
        reference: where the table is read.
        schemas: of the references of the statement, by start.
        setting: gives a setting of the session, when it is needed: texts of times have another meaning outside of UTC,
            and constants of numbers without ANSI.
    """
    node = reference.node
    change = node.parent
    select = change if isinstance(change, exp.Delete | exp.Update | exp.Merge) else node.find_ancestor(exp.Select)
    if select is None or any(node.args.get(key) for key in ("sample", "pivots", "joins")) or _has_column_list(node):
        return
    sources = _sources(select)
    if node not in [source for source, _ in sources]:
        return
    reader = _ConditionReader(reference, [source for source, _ in sources], schemas, setting)
    for condition in _placed(select, sources, node):
        for part in condition_parts(condition):
            if reader.concerns(part):
                yield reader.read(part)


# ---- columns


def _has_computed_names(text: StatementText) -> bool:
    """``IDENTIFIER(...)`` names what it computes."""
    return any(text.word(index) == "IDENTIFIER" and text.word(index + 1) == "(" for index in range(len(text.tokens)))


def _stars(tree: exp.Expr) -> Sequence[tuple[str, exp.Expr | None]]:
    """Each star that takes columns, as its qualifier in lower case, and its SELECT."""
    found = []
    for star in tree.find_all(exp.Star):
        parent = star.parent
        if isinstance(parent, exp.Count):
            continue
        qualifier = parent.table.lower() if isinstance(parent, exp.Column) else ""
        found.append((qualifier, star.find_ancestor(exp.Select)))
    return found


def _is_taken_whole(reference: Reference, stars: Sequence[tuple[str, exp.Expr | None]]) -> bool:
    select = reference.node.find_ancestor(exp.Select)
    if select is None or _has_column_list(reference.node):
        return True
    name = reference.visible_name.lower()
    return any(qualifier == name if qualifier else where is select for qualifier, where in stars)


def _has_column_list(node: exp.Table) -> bool:
    alias = node.args.get("alias")
    return isinstance(alias, exp.TableAlias) and bool(alias.args.get("columns"))


# ---- rows

Source = tuple[exp.Expr, exp.Join | None]  # what is read, and the join that adds it


def _sources(select: exp.Expr) -> list[Source]:
    if isinstance(select, exp.Merge):
        return [(select.this, None), (select.args["using"], None)]
    if isinstance(select, exp.Delete | exp.Update):
        return [(select.this, None)]
    clause = select.args.get("from_")
    first: list[Source] = [(clause.this, None)] if isinstance(clause, exp.From) else []
    return [*first, *((join.this, join) for join in select.args.get("joins") or ())]


def _placed(select: exp.Expr, sources: Sequence[Source], node: exp.Table) -> Iterator[exp.Expr]:
    """The conditions without which a row of ``node``, and all rows that it joins, have no effect on the result."""
    if isinstance(select, exp.Merge):
        if node is select.this and not any(each.args.get("source") for each in select.args["whens"].expressions):
            yield select.args["on"]  # a row that it is not true of matches nothing
        return
    index = next(place for place, (source, _) in enumerate(sources) if source is node)
    own_join = sources[index][1]
    if own_join is not None and own_join.side.upper() not in ("RIGHT", "FULL") and own_join.args.get("on"):
        yield own_join.args["on"]  # where it is not true there is no match, which is what a missing row gives
    is_preserved = own_join is None or own_join.side.upper() not in ("LEFT", "FULL")
    for _, join in sources[index + 1 :]:
        assert join is not None
        side, kind = join.side.upper(), join.kind.upper()
        if is_preserved and side != "FULL" and (side != "LEFT" or kind == "SEMI") and kind != "ANTI":
            yield from [join.args["on"]] if join.args.get("on") else []
        is_preserved = is_preserved and side not in ("RIGHT", "FULL")
    where = select.args.get("where")
    if is_preserved and where is not None and not _is_hidden(own_join):
        yield where.this


def _is_hidden(join: exp.Join | None) -> bool:
    """The right side of a semi or anti join: WHERE does not see it."""
    return join is not None and join.kind.upper() in ("SEMI", "ANTI")


def condition_parts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of a condition that must all be true."""
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        for part in inner.flatten():
            yield from condition_parts(part)
    else:
        yield inner


class _ConditionReader:
    """Turns conditions on one source of a SELECT into filters on its table."""

    def __init__(
        self,
        reference: Reference,
        sources: Sequence[exp.Expr],
        schemas: Mapping[int, TableSchema],
        setting: Callable[[str], str],
    ) -> None:
        self._reference = reference
        self._schema = schemas[reference.start]
        self._columns = {name.lower() for name in self._schema.column_names}
        self._others = [source for source in sources if source is not reference.node]
        self._other_names = {source.alias_or_name.lower() for source in self._others}
        self._schemas = schemas
        self._setting = setting

    def concerns(self, condition: exp.Expr) -> bool:
        """Whether it has columns and all of them are of this source."""
        columns = list(condition.find_all(exp.Column))
        return (
            bool(columns)
            and condition.find(exp.Query) is None
            and all(self._path(column) is not None for column in columns)
        )

    def read(self, condition: exp.Expr) -> UsedCondition:
        """The condition as a filter."""
        text = condition.sql(dialect="spark")
        problem = self._problem(condition)
        if problem is None:
            stripped = exp.Paren(this=condition.copy())
            for column in list(stripped.find_all(exp.Column)):
                path = self._path(column)
                assert path is not None
                column.replace(_column(path))
            try:
                return UsedCondition(
                    text=text, predicate=parse_filter(stripped.this.sql(dialect="spark"), self._schema)
                )
            except InvalidInputError as error:
                problem = str(error).partition(" filter=")[0]
        return UsedCondition(text=text, predicate=None, reason=problem)

    def _problem(self, condition: exp.Expr) -> str | None:
        """Why the condition cannot be put into other words safely; None when it can."""
        literals = [each.name for each in condition.find_all(exp.Literal) if each.is_string]
        if any("\\" in text or "'" in text for text in literals) or condition.find(exp.RawString, exp.Concat):
            return "a text with quotes or backslashes"
        if self._sees_times(condition) and self._setting("spark.sql.session.timeZone") not in _UTC:
            return "texts of times depend on the session's time zone, which is not UTC"
        converts = self._converts_numbers(condition, has_texts=bool(literals))
        if converts and self._setting("spark.sql.ansi.enabled").lower() != "true":
            return "texts and constants with a type are converted to numbers as without ANSI"
        return None

    def _converts_numbers(self, condition: exp.Expr, *, has_texts: bool) -> bool:
        if any(each.to.this.value in _NUMBERS for each in condition.find_all(exp.Cast)):
            return True
        return has_texts and any(field.type.root in _NUMBERS for field in self._fields(condition))

    def _sees_times(self, condition: exp.Expr) -> bool:
        if any(each.to.this in _MOMENTS for each in condition.find_all(exp.Cast)):
            return True
        return any(field.type.root not in _TIMELESS for field in self._fields(condition))

    def _fields(self, condition: exp.Expr) -> list[DataField]:
        """The columns of the table that are in a condition."""
        tops = {
            (self._path(column) or [exp.Identifier(this="")])[0].name.lower()
            for column in condition.find_all(exp.Column)
        }
        return [field for field in self._schema.fields if field.name.lower() in tops]

    def _path(self, column: exp.Column) -> list[exp.Identifier] | None:
        """The column's name in the table and the fields inside it; None when it may be another source's."""
        parts = [part for part in column.parts if isinstance(part, exp.Identifier)]
        if len(parts) != len(column.parts) or isinstance(column.parent, exp.Dot):
            return None
        first = parts[0].name.lower()
        if len(parts) > 1:
            if first == self._reference.visible_name.lower() and first not in self._columns | self._other_names:
                return parts[1:]
            if first in self._other_names:
                return None
        return parts if first in self._columns and self._is_only_ours(first) else None

    def _is_only_ours(self, name: str) -> bool:
        for other in self._others:
            start = other.meta.get("span", (-1,))[0]
            schema = self._schemas.get(start)
            if schema is None or name in (each.lower() for each in schema.column_names):
                return False
        return True


_NUMBERS: Final = INTEGER_ROOTS | FLOAT_ROOTS | {"DECIMAL"}
_TIMELESS: Final = _NUMBERS | {"BOOLEAN", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DATE"}


def _column(path: Sequence[exp.Identifier]) -> exp.Column:
    names = [exp.Identifier(this=part.name, quoted=True) for part in reversed(path)]
    return exp.Column(**dict(zip(("this", "table", "db", "catalog"), names, strict=False)))
