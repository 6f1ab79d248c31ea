"""Parts of a table that only SQL uses, stored in options: computed columns and the watermark.

``computed-column.<n>`` is ``name AS expression`` in Spark's SQL; ``computed-column-comment.<n>`` its comment.
``watermark.column`` and ``watermark.expression`` define how late rows may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.dialect.grammar.clauses import read_expression_text
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import tokens_of
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.statements import ComputedColumn, Watermark
from engine.types.quoting import quoted
from filestore.options.rules import COMPUTED_PREFIX
from lsm.errors import InvalidInputError

COMMENT_PREFIX: Final = "computed-column-comment."
WATERMARK_COLUMN: Final = "watermark.column"
WATERMARK_EXPRESSION: Final = "watermark.expression"


@dataclass(frozen=True, kw_only=True)
class TableParts:
    """The computed columns and watermark of one table."""

    computed: tuple[ComputedColumn, ...]
    watermark: Watermark | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TableParts":
        """Parse the options of a table. Raises: InvalidInputError for an invalid text."""
        keys = [key for key in options if key.startswith(COMPUTED_PREFIX)]
        numbers = sorted((key.removeprefix(COMPUTED_PREFIX) for key in keys), key=lambda each: (len(each), each))
        computed = tuple(
            _parsed(options[COMPUTED_PREFIX + number], options.get(COMMENT_PREFIX + number)) for number in numbers
        )
        column, expression = options.get(WATERMARK_COLUMN), options.get(WATERMARK_EXPRESSION)
        watermark = None if column is None or expression is None else Watermark(column=column, expression=expression)
        return cls(computed=computed, watermark=watermark)


def computed_options(columns: Sequence[ComputedColumn], stored: Sequence[str]) -> dict[str, str]:
    """The options for computed columns. Raises: InvalidInputError for a duplicate name."""
    options = {}
    for number, column in enumerate(columns):
        if column.name in stored:
            raise InvalidInputError(f"column is there twice: column={column.name} fix='rename one of them'")
        options[f"{COMPUTED_PREFIX}{number}"] = f"{quoted_where_needed(column.name)} AS {column.expression}"
        if column.comment is not None:
            options[f"{COMMENT_PREFIX}{number}"] = column.comment
    return options


def quoted_where_needed(name: str) -> str:
    """A name in backticks where it needs them."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if is_plain and name.upper() not in _RESERVED else quoted(name)


_RESERVED: Final = frozenset({"CONSTRAINT", "PRIMARY", "WATERMARK", "AS", "PARTITION", "LIKE", "PERIOD"})


def _parsed(text: str, comment: str | None) -> ComputedColumn:
    cursor = Cursor(SourceText.of(text), tokens_of(SourceText.of(text)))
    name = cursor.name("the name of a computed column")
    cursor.expect("AS")
    expression = read_expression_text(cursor)
    cursor.expect_end()
    return ComputedColumn(name=name, expression=expression, comment=comment)
