"""Parses SQL filters in Spark's dialect to predicates with values of the columns' types.

sqlglot parses the text; this module accepts what is exactly defined on one table's columns, and refuses the rest.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from filestore.predicate.literals import INTEGER_BITS, Literal, cast_literal, check_length, compare, is_in
from filestore.predicate.predicate import And, CompareOp, Constant, In, IsNull, Like, Not, Or, Predicate, StartsWith
from filestore.predicate.sql_problems import excerpt, problem_of, sql_text
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataField, DataType, timestamp_unit
from filestore.types.text_values import LiteralMismatchError, Moment, parse_float, parse_moment, parse_time
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names

# ---- Long lists of values in filters: ``id IN (1, 2, ...)`` with as many values as a user's program has.
#
# sqlglot takes 20 microseconds for a value. Lists of plain numbers and texts are therefore taken out of the text
# before it is parsed, and read column by column; a word of their own takes their place in it. Shorter lists, and
# those with anything else in them, stay where they are.


LONG: Final = 64
"""Values from which on a list is long."""

_NUMBER: Final = r"-?\d{1,400}(?:\.\d{1,400})?"
_TEXT: Final = r"'[^'\\]*'"
_LIST: Final = "|".join(rf"{each}(?:\s*,\s*{each}){{{LONG - 1},}}+" for each in (_NUMBER, _TEXT))
# What may hold such a list without being one comes first: texts, names and comments.
_WORDS: Final = re.compile(
    rf"(?P<unread>--|/\*|\b[rR]['\"])|\b[iI][nN]\s*\(\s*(?P<list>{_LIST})\s*\)"
    r"|'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"|`[^`]*`|(?P<open>[(\[{])|(?P<close>[)\]}])",
    re.DOTALL,
)
_PREFIX: Final = "long_list_"
_IN_PLACE: Final = re.compile(rf":{_PREFIX}\d+")


class Outline(NamedTuple):
    """A filter without its long lists."""

    text: str  # with a word such as :long_list_0 in the place of each
    lists: Sequence[str]  # values as they were written, with commas between them
    depth: int  # of the innermost brackets

    def shown(self, start: int, stop: int, *, is_marked: bool = False) -> str:
        """``excerpt`` of the filter."""
        return self.without_words(excerpt(self.text, start, stop, is_marked=is_marked))

    def without_words(self, text: str) -> str:
        """A part of the filter with an ellipsis for each long list."""
        return _IN_PLACE.sub("…", text) if self.lists else text


def outline_of(text: str) -> Outline:
    """The long lists of a filter, and the rest of it."""
    parts: list[str] = []
    lists: list[str] = []
    done = depth = deepest = 0
    is_read = _PREFIX not in text
    for found in _WORDS.finditer(text):
        if found["open"] or found["close"]:
            depth += 1 if found["open"] else -1
            deepest = max(deepest, depth)
        elif found["unread"]:
            is_read = False  # what is a comment or a raw text is for sqlglot to say
        elif found["list"]:
            parts += [text[done : found.start("list")], f":{_PREFIX}{len(lists)}"]
            lists.append(found["list"])
            done = found.end("list")
    if not is_read or not lists:
        return Outline(text, (), deepest)
    return Outline("".join([*parts, text[done:]]), lists, deepest)


def number_of_list(name: str) -> int | None:
    """Which of the lists a word in the outline is in the place of."""
    return int(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None


def plain_values(written: str, data_type: DataType) -> tuple[Any, ...] | None:
    """The values of a list in the domain of a column, by kernels of Arrow; None: they have to be read one by one."""
    if data_type.root in INTEGER_ROOTS:
        try:
            numbers = pc.utf8_trim_whitespace(pa.array(written.split(","), pa.string())).cast(pa.int64())
        except pa.ArrowInvalid:  # a text, a fraction, or more than 64 bits
            return None
        most = 2 ** (INTEGER_BITS[data_type.root] - 1)
        values = numbers.to_pylist()
        return tuple(values) if most >= 2**63 else tuple(each for each in values if -most <= each < most)
    is_text, kernel = written.startswith("'"), _KERNELS.get(data_type.root)
    if data_type.root in TEXT_ROOTS and is_text:
        return _texts(written)
    if kernel is None or is_text is (data_type.root in _NUMBERS):
        return None
    try:
        given = _texts(written) if is_text else pc.utf8_trim_whitespace(pa.array(written.split(","), pa.string()))
        found = kernel(pa.array(given, pa.string()), data_type)
    except pa.ArrowInvalid:  # another way to write it, more digits than the column has, or out of range
        return None
    return None if found is None else tuple(found.to_pylist())


def _texts(written: str) -> tuple[str, ...]:
    return tuple(written[1:-1].split("'")[::2])


def _floats(given: pa.Array, data_type: DataType) -> pa.Array | None:
    values = given.cast(pa.float64())
    numbers = values.to_numpy()
    return None if np.any((numbers == 0) & np.signbit(numbers)) else values


def _decimals(given: pa.Array, data_type: DataType) -> pa.Array | None:
    precision, scale = data_type.precision or 0, data_type.scale or 0
    if pc.max(pc.utf8_length(given)).as_py() > _MOST_PRECISION - scale:
        return None  # Arrow does not notice that such a number is too long
    values = given.cast(pa.decimal128(_MOST_PRECISION, scale))
    limit = pa.scalar(Decimal(10**precision - 1).scaleb(-scale, _EXACT), values.type)
    return values.filter(pc.less_equal(pc.abs(values), limit))


def _days(given: pa.Array, data_type: DataType) -> pa.Array | None:
    return given.cast(pa.date32()).cast(pa.int32()) if _have_form(given, _DAY) else None


def _moments(given: pa.Array, data_type: DataType) -> pa.Array | None:
    unit = timestamp_unit(data_type)
    return given.cast(pa.timestamp(unit)).cast(pa.int64()) if _have_form(given, _MOMENT) else None


def _have_form(given: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(given, pattern)).as_py())


_DAY: Final = r"^\d{4}-\d\d-\d\d$"
_MOMENT: Final = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,9})?$"
_MOST_PRECISION: Final = 38
_EXACT: Final = Context(prec=80)
_NUMBERS: Final = frozenset({"FLOAT", "DOUBLE", "DECIMAL"})
_KERNELS: Final[Mapping[str, Callable[[pa.Array, DataType], pa.Array | None]]] = {
    "FLOAT": _floats,
    "DOUBLE": _floats,
    "DECIMAL": _decimals,
    "DATE": _days,
    **dict.fromkeys(TIMESTAMP_ROOTS, _moments),
}


def literals_of(written: str) -> list[Literal]:
    """The values of a list as literals, in order."""
    if written.startswith("'"):
        return [*written[1:-1].split("'")[::2]]
    return [Decimal(each) if "." in each else int(each) for each in map(str.strip, written.split(","))]


# ---- Parses SQL filters in Spark's dialect to predicates with values of the columns' types


_OPS: Final[Mapping[type[exp.Expr], CompareOp]] = {
    exp.EQ: CompareOp.EQ,
    exp.NEQ: CompareOp.NE,
    exp.LT: CompareOp.LT,
    exp.LTE: CompareOp.LE,
    exp.GT: CompareOp.GT,
    exp.GTE: CompareOp.GE,
}
_FLIPPED: Final = {
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}
_NUMBER_TYPES: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})
_MOMENT_TYPES: Final = (
    exp.DType.DATE,
    exp.DType.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ,
    exp.DType.TIMESTAMPTZ,
    exp.DType.TIMESTAMPLTZ,
)

ColumnRef = tuple[str, tuple[str, ...], DataType]


MAX_CHARACTERS: Final = 1_000_000
"""Of a filter, its long lists of values not counted."""
MAX_DEPTH: Final = 100
"""Of brackets in brackets; each takes a dozen frames of the stack."""


def parse_filter(text: str, schema: TableSchema) -> Predicate:
    """Parse the condition of a WHERE clause: comparisons of columns with literals, combined by AND, OR and NOT.

    Raises: InvalidInputError that shows the position: a syntax error, an unknown column, a literal that does not fit
        its column, unsupported SQL; a filter that is too long or too deep.
    """
    outline = outline_of(text)
    if len(outline.text) > MAX_CHARACTERS:
        raise InvalidInputError(
            f"filter is too long: characters={len(outline.text)} most={MAX_CHARACTERS} "
            "fix='write lists of values as IN (...) with plain numbers or texts, or filter what is read'"
        )
    if outline.depth > MAX_DEPTH:
        raise _too_deep(outline)
    try:
        tree = sqlglot.parse_one(outline.text, dialect="spark")
        return _FilterReader(outline, schema).read(tree)
    except SqlglotError as error:
        reason, place = problem_of(error, outline.text)
        place = outline.without_words(place)
        raise InvalidInputError(f"filter is not valid SQL: reason={reason!r} filter={place}") from error
    except LiteralMismatchError as error:
        raise InvalidInputError(f"{error} filter={outline.shown(0, 0)}") from error
    except RecursionError:
        raise _too_deep(outline) from None


def _too_deep(outline: Outline) -> InvalidInputError:
    return InvalidInputError(
        f"filter is nested too deeply: brackets={outline.depth} filter={outline.shown(0, 0)} "
        "fix='leave out brackets and repeated NOT or minus signs; write many values as IN (...)'"
    )


class _FilterReader:
    """Converts one syntax tree; holds the text for error positions and the columns to resolve."""

    def __init__(self, outline: Outline, schema: TableSchema) -> None:
        self._outline = outline
        self._fields = schema.fields

    def read(self, node: exp.Expr) -> Predicate:
        reader = _READERS.get(type(node))
        if reader is None:
            raise self._error(
                "not supported in filters",
                node,
                f"sql={sql_text(node)!r} expected='comparisons of columns with literals, AND OR NOT'",
            )
        return reader(self, node)

    def read_logic(self, node: exp.Expr) -> Predicate:
        make = And if isinstance(node, exp.And) else Or
        return make(parts=tuple(self.read(part) for part in node.flatten()))

    def read_not(self, node: exp.Expr) -> Predicate:
        return Not(part=self.read(node.this))

    def read_paren(self, node: exp.Expr) -> Predicate:
        return self.read(node.this)

    def read_constant(self, node: exp.Expr) -> Predicate:
        return Constant(outcome=None if isinstance(node, exp.Null) else bool(node.this))

    def read_flag(self, node: exp.Expr) -> Predicate:
        reference = self._column(node)
        if reference[2].root != "BOOLEAN":
            details = f"column={reference[0]} type={reference[2]} fix='compare it with a literal'"
            raise self._error("only a boolean column is a condition by itself", node, details)
        return self._compare(node, reference, CompareOp.EQ, True)

    def read_compare(self, node: exp.Expr) -> Predicate:
        op = _OPS[type(node)]
        left, right = node.this.unnest(), node.expression.unnest()
        if self._is_column(left):
            return self._compare(node, self._column(left), op, self._literal(right))
        if self._is_column(right):
            return self._compare(node, self._column(right), _FLIPPED.get(op, op), self._literal(left))
        return self._compare_literals(node, op, self._literal(left), self._literal(right))

    def read_null_safe(self, node: exp.Expr) -> Predicate:
        left, right = node.this.unnest(), node.expression.unnest()
        column, literal = (left, right) if self._is_column(left) else (right, left)
        name, path, _ = reference = self._column(column)
        value = self._literal(literal)
        is_null = IsNull(column=name, path=path)
        equal: Predicate = is_null
        if value is not None:
            equal = And(parts=(Not(part=is_null), self._compare(node, reference, CompareOp.EQ, value)))
        return Not(part=equal) if isinstance(node, exp.NullSafeNEQ) else equal

    def read_is(self, node: exp.Expr) -> Predicate:
        right = node.expression
        if isinstance(right, exp.Null) and self._is_column(node.this.unnest()):
            name, path, _ = self._column(node.this.unnest())
            return IsNull(column=name, path=path)
        inner = self.read(node.this)
        if isinstance(right, exp.Boolean) and isinstance(node.this.unnest(), exp.Column):
            name, path, _ = self._column(node.this.unnest())
            given = Not(part=IsNull(column=name, path=path))
            return And(parts=(given, inner if right.this else Not(part=inner)))
        raise self._error("filters cannot use this IS", node, f"sql={sql_text(node)!r} expected='a column'")

    def read_in(self, node: exp.Expr) -> Predicate:
        if node.args.get("query") or not node.expressions:
            raise self._error("filters cannot hold subqueries", node, "expected='a list of literals'")
        name, path, data_type = self._column(node.this.unnest())
        written = self._long_list(node.expressions[0])
        if written is not None:
            values = plain_values(written, data_type)
            if values is not None:
                return In(column=name, path=path, values=values)
            literals = literals_of(written)
        else:
            literals = [self._literal(item.unnest()) for item in node.expressions]
        return self._typed(node, lambda: is_in(name, path, data_type, literals))

    def _long_list(self, node: exp.Expr) -> str | None:
        """The values of a list that was taken out of the text."""
        number = number_of_list(node.name) if isinstance(node, exp.Placeholder) and self._outline.lists else None
        return None if number is None else self._outline.lists[number]

    def read_between(self, node: exp.Expr) -> Predicate:
        reference = self._column(node.this.unnest())
        low, high = self._literal(node.args["low"].unnest()), self._literal(node.args["high"].unnest())
        bounds = [(CompareOp.GE, low), (CompareOp.LE, high)]
        if node.args.get("symmetric"):
            raise self._error("filters cannot use BETWEEN SYMMETRIC", node, "")
        return And(parts=tuple(self._compare(node, reference, op, literal) for op, literal in bounds))

    def read_like(self, node: exp.Expr) -> Predicate:
        escape = "\\"
        if isinstance(node, exp.Escape):
            escape, node = self._escape(node), node.this
        if not isinstance(node, exp.Like):
            raise self._error("ESCAPE is only allowed with LIKE", node, "")
        name, path, data_type = self._column(node.this.unnest())
        pattern = self._literal(node.expression.unnest())
        if data_type.root not in TEXT_ROOTS or not (pattern is None or isinstance(pattern, str)):
            raise self._error("LIKE compares a text column with a text", node, f"column={name} type={data_type}")
        matched: Predicate = Constant(outcome=None)
        if pattern is not None:
            matched = self._like(node, (name, path, data_type), pattern, escape)
        # sqlglot negates LIKE on the node itself, unlike IN and BETWEEN.
        return Not(part=matched) if node.args.get("negate") else matched

    def _escape(self, node: exp.Expr) -> str:
        escape = self._literal(node.expression)
        if not isinstance(escape, str) or len(escape) != 1 or escape in "%_":
            raise self._error("ESCAPE takes one character that is not a wildcard", node, f"escape={escape!r}")
        return escape

    def _like(self, node: exp.Expr, reference: ColumnRef, pattern: str, escape: str) -> Predicate:
        name, path, _ = reference
        parts: list[str] = []  # literal characters; wildcards are prefixed by NUL
        characters = iter(pattern)
        for character in characters:
            if character == escape:
                escaped = next(characters, "")
                if escaped not in ("%", "_", escape):
                    raise self._error("ESCAPE must stand before a wildcard or itself", node, f"pattern={pattern!r}")
                parts.append(escaped)
            else:
                parts.append(f"\0{character}" if character in "%_" else character)
        wildcards = [index for index, part in enumerate(parts) if len(part) == 2]
        if not wildcards:
            return self._compare(node, reference, CompareOp.EQ, "".join(parts))
        if wildcards == [len(parts) - 1] and parts[-1] == "\0%":
            return StartsWith(column=name, path=path, prefix="".join(parts[:-1]))
        quoted = (part[1] if len(part) == 2 else f"\\{part}" if part in "%_\\" else part for part in parts)
        return Like(column=name, path=path, pattern="".join(quoted))

    def _compare(self, node: exp.Expr, reference: ColumnRef, op: CompareOp, literal: Literal) -> Predicate:
        name, path, data_type = reference
        return self._typed(node, lambda: compare(name, path, data_type, op, literal))

    def _typed(self, node: exp.Expr, make: Callable[[], Predicate]) -> Predicate:
        try:
            return make()
        except LiteralMismatchError as error:
            raise InvalidInputError(f"{error} filter={self._marked(node)}") from error

    def _compare_literals(self, node: exp.Expr, op: CompareOp, left: Any, right: Any) -> Predicate:
        """Comparisons of literals such as ``1 = 1``, which query generators write."""
        if left is None or right is None:
            return Constant(outcome=None)
        if type(left) is not type(right):
            raise self._error("literals of different types are compared", node, "expected='a column and a literal'")
        outcomes = {"=": left == right, "<": left < right, ">": left > right}
        equal, less, greater = outcomes["="], outcomes["<"], outcomes[">"]
        chosen = {
            CompareOp.EQ: equal,
            CompareOp.NE: not equal,
            CompareOp.LT: less,
            CompareOp.LE: less or equal,
            CompareOp.GT: greater,
            CompareOp.GE: greater or equal,
        }
        return Constant(outcome=chosen[op])

    # ---- columns

    def _is_column(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column | exp.Dot)

    def _column(self, node: exp.Expr) -> ColumnRef:
        """Column name, path inside it, and type at the path."""
        if not isinstance(node, exp.Column | exp.Dot):
            raise self._error("a column was expected", node, f"sql={sql_text(node)!r}")
        identifiers = list(node.parts)
        field = self._resolve(identifiers[0], self._fields, "column")
        path: list[str] = []
        inner = field
        for identifier in identifiers[1:]:
            if inner.type.root != "ROW":
                raise self._error("only ROW columns have fields", identifier, f"column={inner.name} type={inner.type}")
            inner = self._resolve(identifier, inner.type.fields, "field")
            path.append(inner.name)
        return field.name, tuple(path), inner.type

    def _resolve(self, identifier: exp.Expr, fields: tuple[DataField, ...], what: str) -> DataField:
        """Resolve by exact name, else by a unique case-insensitive match, as in Spark."""
        name = identifier.name
        exact = [field for field in fields if field.name == name]
        alike = exact or [field for field in fields if field.name.lower() == name.lower()]
        if len(alike) == 1:
            return alike[0]
        names = [field.name for field in fields]
        if alike:
            raise self._error(f"{what} name is ambiguous without case", identifier, f"{what}={name} columns={names}")
        guesses = close_names(name, names, 3) or sorted(names)[:10]
        raise self._error(f"unknown {what}", identifier, f"{what}={name} did_you_mean={guesses}")

    # ---- literals

    def _literal(self, node: exp.Expr) -> Literal:
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else _number(str(node.this))
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Neg):
            number = self._literal(node.this.unnest())
            if isinstance(number, int | float | np.float32 | Decimal) and not isinstance(number, bool):
                return -number
        if isinstance(node, exp.HexString):
            return bytes.fromhex(node.name if len(node.name) % 2 == 0 else f"0{node.name}")
        if isinstance(node, exp.RawString):
            return str(node.name)
        if isinstance(node, exp.Concat):
            return self._adjacent_texts(node)
        if isinstance(node, exp.Cast):
            return self._cast(node)
        hint = f""" fix="a text is in quotes: '{node.name}'\"""" if isinstance(node, exp.Column) else ""
        raise self._error("a column is compared with a non-literal", node, f"sql={sql_text(node)!r}{hint}")

    def _adjacent_texts(self, node: exp.Expr) -> str:
        """``'it''s'``: adjacent quotes are an escaped quote (Spark 4); separated strings are concatenated."""
        parts = node.expressions
        if not all(isinstance(part, exp.Literal) and part.is_string for part in parts):
            raise self._error("a column is compared with a non-literal", node, "expected='a text'")
        tokens = [token for token in Spark().tokenize(self._outline.text) if token.token_type == TokenType.STRING]
        first = next(index for index, token in enumerate(tokens) if token.start == parts[0].meta.get("start"))
        text = str(parts[0].name)
        for before, token, part in zip(tokens[first:], tokens[first + 1 :], parts[1:], strict=False):
            text += ("'" if token.start == before.end + 1 else "") + part.name
        return text

    def _cast(self, node: exp.Cast) -> Literal:
        """``DATE '…'``, ``TIMESTAMP '…'``, ``CAST(literal AS type)``, ``10L``, ``1.5BD``."""
        inner = node.this.unnest()
        if self._is_column(inner):
            raise self._error("a column cannot be cast in a filter", node, "fix='cast the literal instead'")
        literal = self._literal(inner)
        target = node.to.this
        if literal is None:
            return None
        try:
            if target.value in _NUMBER_TYPES:
                return cast_literal(literal, target.value, [int(each.this.name) for each in node.to.expressions])
            if target in _MOMENT_TYPES and isinstance(literal, str):
                nanos = parse_moment(literal)
                return Moment(nanos - nanos % 86_400_000_000_000 if target is exp.DType.DATE else nanos)
            if target is exp.DType.TIME and isinstance(literal, str):
                return Moment(parse_time(literal))
        except LiteralMismatchError as error:
            if node.args.get("safe"):  # TRY_CAST
                return None
            raise InvalidInputError(f"{error} filter={self._marked(node)}") from error
        if target in exp.DataType.TEXT_TYPES and isinstance(literal, str):
            return literal
        if target is exp.DType.BINARY and isinstance(literal, str):
            return literal.encode()
        raise self._error("literal cannot be cast in a filter", node, f"sql={sql_text(node)!r}")

    # ---- errors

    def _error(self, fact: str, node: exp.Expr, details: str) -> InvalidInputError:
        return InvalidInputError(f"{fact}: {details} filter={self._marked(node)}".replace(":  ", ": "))

    def _marked(self, node: exp.Expr) -> str:
        """The filter with ``>>>`` and ``<<<`` around the node's text, if sqlglot recorded its position."""
        spans = [inner.meta for inner in node.walk() if "start" in inner.meta]
        if not spans:
            return self._outline.shown(0, 0)
        start, end = min(span["start"] for span in spans), max(span["end"] for span in spans) + 1
        return self._outline.shown(start, end, is_marked=True)


def _number(text: str) -> int | float | Decimal:
    """An exact number; with an exponent a double, as in Spark."""
    check_length(text)
    if text.lstrip("+-").isdigit():
        return int(text)
    if "e" in text.lower():
        return parse_float(text)
    try:
        return Decimal(text.strip())
    except ArithmeticError:
        raise LiteralMismatchError(f"text is not a number: text={text!r}") from None


_READERS: Final[Mapping[type[exp.Expr], Callable[[_FilterReader, Any], Predicate]]] = {
    exp.And: _FilterReader.read_logic,
    exp.Or: _FilterReader.read_logic,
    exp.Not: _FilterReader.read_not,
    exp.Paren: _FilterReader.read_paren,
    exp.Boolean: _FilterReader.read_constant,
    exp.Null: _FilterReader.read_constant,
    exp.Column: _FilterReader.read_flag,
    exp.Dot: _FilterReader.read_flag,
    **dict.fromkeys(_OPS, _FilterReader.read_compare),
    exp.NullSafeEQ: _FilterReader.read_null_safe,
    exp.NullSafeNEQ: _FilterReader.read_null_safe,
    exp.Is: _FilterReader.read_is,
    exp.In: _FilterReader.read_in,
    exp.Between: _FilterReader.read_between,
    exp.Like: _FilterReader.read_like,
    exp.Escape: _FilterReader.read_like,
}
