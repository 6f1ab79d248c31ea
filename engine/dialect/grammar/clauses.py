"""Parts that several statements have: literals, partitions, columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from sqlglot import TokenType

from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import parse_expression
from engine.dialect.grammar.statements import PartitionSpec
from engine.dialect.grammar.type_grammar import read_type
from filestore.options.rules import CHECK_PREFIX
from filestore.schema.column_paths import ColumnPosition
from filestore.types.data_types import DataField, DataType
from lsm.errors import InvalidInputError

_BEHIND_DEFAULT: Final = (
    ",", ")", "NOT", "NULL", "COMMENT", "GENERATED", "CHECK", "CONSTRAINT", "PRIMARY", "PRIMARY KEY", "FIRST", "AFTER",
)  # fmt: skip
_TYPED: Final = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True)
class CheckClause:
    """A CHECK constraint."""

    name: str | None  # None: it is numbered
    condition: str


@dataclass(frozen=True, kw_only=True)
class ColumnClause:
    """A column with all that may follow its name."""

    path: tuple[str, ...]
    type: DataType | None = None  # None: it is computed
    expression: str | None = None
    comment: str | None = None
    default: str | None = None
    is_key: bool = False
    position: ColumnPosition | None = None
    checks: tuple["CheckClause", ...] = ()

    @property
    def field(self) -> DataField:
        """The column of a table; its id is given later."""
        assert self.type is not None
        return DataField(id=0, name=self.path[-1], type=self.type, description=self.comment, default_value=self.default)


def read_literal(cursor: Cursor) -> str | None:
    """The text of a value: a text in quotes, ``DATE '...'``, a number, ``TRUE``, ``FALSE``; None for ``NULL``."""
    if cursor.take("NULL"):
        return None
    word = cursor.take_any("TRUE", "FALSE")
    if word is not None:
        return word.lower()
    if cursor.sees_any(*_TYPED):
        cursor.index += 1
        return cursor.string()
    if cursor.sees_string():
        return cursor.string()
    sign = cursor.take_any("-", "+")
    token = cursor.token
    if token is None or token.token_type is not TokenType.NUMBER:
        raise cursor.problem("syntax error, expected a value: a text in quotes, a number, TRUE, FALSE or NULL")
    cursor.index += 1
    return f"-{token.text}" if sign == "-" else token.text


def read_default(cursor: Cursor) -> str | None:
    """The value behind DEFAULT. Raises: InvalidInputError: an expression, which is no constant."""
    start, before = cursor.start, cursor.index
    try:
        found = read_literal(cursor)
    except InvalidInputError:
        cursor.index = before
        parse_expression(cursor)  # what is none is a syntax error
    else:
        if cursor.at_end() or cursor.sees_any(*_BEHIND_DEFAULT):
            return found
        cursor.index = before
        parse_expression(cursor)
    raise cursor.problem("a default is a constant: fix='write its value'", start, cursor.stop)


def read_partition(cursor: Cursor) -> PartitionSpec:
    """``(column = value, ...)`` behind the word PARTITION."""
    spec: dict[str, str | None] = {}

    def read(inner: Cursor) -> None:
        start = inner.start
        name = inner.name("a partition column")
        if name in spec:
            raise inner.problem("partition column is named twice", start, inner.stop)
        if not inner.take("="):
            raise inner.problem("syntax error, expected = and a value: this statement needs values")
        spec[name] = read_literal(inner)

    cursor.listed(read)
    return spec


def read_position(cursor: Cursor) -> ColumnPosition | None:
    """``FIRST`` or ``AFTER column``; None: neither."""
    if cursor.take("FIRST"):
        return ColumnPosition()
    return ColumnPosition(cursor.name("a column")) if cursor.take("AFTER") else None


def read_expression_text(cursor: Cursor) -> str:
    """The text of an expression."""
    start = cursor.start
    parse_expression(cursor)
    return cursor.text[start : cursor.stop]


def read_column(cursor: Cursor, *, names: tuple[str, ...] | None = None) -> ColumnClause:
    """A column with its type or expression and its clauses, in any order.

    Args:
        cursor: at the column, or behind its name.
        names: the name, when it has been read.
    """
    path = cursor.names("a column") if names is None else names
    if cursor.take("AS"):
        expression = read_expression_text(cursor)
        comment = cursor.string() if cursor.take("COMMENT") else None
        return ColumnClause(path=path, expression=expression, comment=comment)
    data_type = read_type(cursor)
    found = _Clauses()
    while found.read(cursor):
        pass
    if found.expression is not None:
        return ColumnClause(path=path, expression=found.expression, comment=found.comment)
    if found.not_null:
        data_type = replace(data_type, nullable=False)
    return ColumnClause(
        path=path,
        type=data_type,
        comment=found.comment,
        default=found.default,
        is_key=found.is_key,
        position=found.position,
        checks=tuple(found.checks),
    )


def read_key_words(cursor: Cursor) -> bool:
    """``[CONSTRAINT name] PRIMARY KEY``; False when something else comes, and then nothing was taken."""
    before = cursor.index
    if cursor.take("CONSTRAINT"):
        cursor.name("the name of the constraint")
        if not _take_primary_key(cursor):
            raise cursor.problem("syntax error, expected PRIMARY KEY or CHECK")
        return True
    if _take_primary_key(cursor):
        return True
    cursor.index = before
    return False


def read_not_enforced(cursor: Cursor) -> None:
    """``NOT ENFORCED [RELY | NORELY]``, which may be left out. Raises: InvalidInputError at ENFORCED."""
    if cursor.sees("ENFORCED"):
        raise cursor.problem("keys are not checked when rows come, the newest row of a key wins: write NOT ENFORCED")
    cursor.take("NOT", "ENFORCED")
    cursor.take_any("RELY", "NORELY")


class _Clauses:
    """What follows a column's type."""

    def __init__(self) -> None:
        self.comment: str | None = None
        self.default: str | None = None
        self.expression: str | None = None
        self.position: ColumnPosition | None = None
        self.is_key = False
        self.not_null = False
        self.checks: list[CheckClause] = []

    def read(self, cursor: Cursor) -> bool:
        """Take one clause; False when none comes."""
        if cursor.take("NOT", "NULL"):
            self.not_null = True
        elif cursor.take("NULL"):
            return True
        elif cursor.take("COMMENT"):
            self.comment = cursor.string()
        elif cursor.take("DEFAULT"):
            self.default = read_default(cursor)
        elif cursor.sees("GENERATED"):
            _take_generated(cursor)
            self.expression = read_expression_text(cursor)
        elif (check := read_check(cursor)) is not None:
            self.checks.append(check)
        elif read_key_words(cursor):
            self.is_key = True
            read_not_enforced(cursor)
        else:
            position = read_position(cursor)
            self.position = position or self.position
            return position is not None
        return True


def read_check(cursor: Cursor) -> CheckClause | None:
    """``[CONSTRAINT name] CHECK (condition) [ENFORCED]``; None when something else comes: nothing was taken.

    Raises: InvalidInputError at NOT ENFORCED.
    """
    before, name = cursor.index, None
    if cursor.take("CONSTRAINT"):
        name = cursor.name("the name of the constraint")
    if not cursor.sees("CHECK", "("):
        cursor.index = before
        return None
    cursor.take("CHECK")
    cursor.expect("(")
    condition = read_expression_text(cursor)
    cursor.expect(")")
    if cursor.sees("NOT", "ENFORCED"):
        raise cursor.problem("a CHECK is held by every writer: leave out NOT ENFORCED")
    cursor.take("ENFORCED")
    cursor.take_any("RELY", "NORELY")
    return CheckClause(name, condition)


def check_options(checks: Sequence[CheckClause]) -> dict[str, str]:
    """The options of a table for its constraints. Raises: InvalidInputError: a name is there twice."""
    options: dict[str, str] = {}
    numbers = (f"{CHECK_PREFIX}check_{number}" for number in count(1))
    taken = {f"{CHECK_PREFIX}{each.name}" for each in checks}
    for each in checks:
        key = next(key for key in numbers if key not in taken) if each.name is None else CHECK_PREFIX + each.name
        if key in options:
            raise InvalidInputError(f"constraint is there twice: constraint={each.name} fix='rename one of them'")
        options[key] = each.condition
    return options


def _take_generated(cursor: Cursor) -> None:
    """``GENERATED ALWAYS AS``, before an expression. Raises: InvalidInputError for an identity column."""
    start = cursor.start
    cursor.expect("GENERATED")
    by_default = cursor.take("BY", "DEFAULT")
    if not by_default:
        cursor.expect("ALWAYS")
    cursor.expect("AS")
    if by_default or cursor.sees_any("IDENTITY"):
        raise cursor.problem(
            "identity columns are not supported, no writer counts for the others: give the values in the rows, such as "
            "uuid() or a number of the source",
            start,
            cursor.stop,
        )


def _take_primary_key(cursor: Cursor) -> bool:
    return cursor.take("PRIMARY KEY") or cursor.take("PRIMARY", "KEY")
