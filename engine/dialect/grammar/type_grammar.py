"""Column types as Spark and Flink write them: ``DECIMAL(10, 2) NOT NULL``, ``ARRAY<STRING>``, ``ROW<a INT>``.

In a statement ``TIMESTAMP`` alone is Spark's, with the local time zone; with a precision it is Flink's, without.
``BINARY`` alone is Spark's bytes of any length. In a job file a name alone is what it is in the schema of a table.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import tokens_of
from engine.dialect.grammar.places import SourceText
from filestore.types.data_types import TYPE_NAMES, DataField, DataType, parse_data_type
from lsm.errors import InvalidInputError

_WORDS: Final[Mapping[str, str]] = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DOUBLE PRECISION": "DOUBLE",
    "CHARACTER": "CHAR",
    "CHAR VARYING": "VARCHAR",
    "CHARACTER VARYING": "VARCHAR",
    "TIMESTAMP_NTZ": "TIMESTAMP",
}
_LOCAL: Final = ("WITH", "LOCAL", "TIME", "ZONE")
_NESTED: Final = frozenset({"ARRAY", "MULTISET", "MAP", "ROW", "STRUCT"})
TYPE_WORDS: Final = (*sorted(_NESTED), *sorted(_WORDS), *sorted(TYPE_NAMES))
"""The first words of types."""
_Alone = Mapping[str, str | None]
"""What names without a length or precision mean; None: one is needed; others are as in the schema of a table."""
_IN_STATEMENT: Final[_Alone] = {
    "TIMESTAMP": "TIMESTAMP_LTZ",
    "TIME": "TIME(3)",  # what is kept, and what Spark shows
    "BINARY": "BYTES",
    **dict.fromkeys(("CHAR", "VARCHAR", "VARBINARY")),
}
_IN_SCHEMA: Final[_Alone] = {}


def read_type(cursor: Cursor) -> DataType:
    """The type at the cursor of a statement, with its NOT NULL; field ids inside it count from 0.

    Raises:
        InvalidInputError: at the place.
    """
    return _read(cursor, _IN_STATEMENT)


def parse_type(text: str) -> DataType:
    """The type that a text of a job file consists of; otherwise as ``read_type``."""
    source = SourceText.of(text)
    cursor = Cursor(source, tokens_of(source))
    found = _read(cursor, _IN_SCHEMA)
    if not cursor.at_end():
        raise cursor.problem("syntax error, expected the end of the type")
    return found


def _read(cursor: Cursor, alone: _Alone) -> DataType:
    found = _read_plain(cursor, alone)
    while (word := cursor.take_any("ARRAY", "MULTISET")) is not None:
        found = DataType(root=word, element=found)
    if cursor.take("NOT", "NULL"):
        return replace(found, nullable=False)
    cursor.take("NULL")
    return found


def _read_plain(cursor: Cursor, alone: _Alone) -> DataType:
    word = cursor.take_any(*_NESTED)
    if word is None:
        return _read_atomic(cursor, alone)
    if word in ("ROW", "STRUCT"):
        return _read_row(cursor, alone)
    cursor.expect("<")
    first = _read(cursor, alone)
    if word != "MAP":
        cursor.expect(">")
        return DataType(root=word, element=first)
    cursor.expect(",")
    value = _read(cursor, alone)
    cursor.expect(">")
    return DataType(root="MAP", key=replace(first, nullable=False), value=value)


def _read_row(cursor: Cursor, alone: _Alone) -> DataType:
    closing = ")" if cursor.take("(") else ">"
    if closing == ">":
        cursor.expect("<")
    fields = [_read_field(cursor, alone, 0)]
    while cursor.take(","):
        fields.append(_read_field(cursor, alone, len(fields)))
    cursor.expect(closing)
    return DataType(root="ROW", fields=tuple(fields))


def _read_field(cursor: Cursor, alone: _Alone, index: int) -> DataField:
    start = cursor.start
    name = cursor.name("the name of a field")
    cursor.take(":")
    data_type = _read(cursor, alone)
    comment = cursor.string() if cursor.take("COMMENT") or cursor.sees_string() else None
    if not name.strip():
        raise cursor.problem("a field has no name", start, cursor.stop)
    return DataField(id=index, name=name, type=data_type, description=comment)


def _read_atomic(cursor: Cursor, alone: _Alone) -> DataType:
    start = cursor.start
    word = cursor.word("a type")
    root = _WORDS.get(word, word)
    numbers: list[int] = cursor.listed(Cursor.whole_number) if cursor.sees("(") else []
    text: str | None = f"{root}({', '.join(map(str, numbers))})" if numbers else alone.get(root, root)
    if root == "TIMESTAMP":
        text = _timestamp_text(cursor, word, text)
    if text is None:
        raise cursor.problem(f"type needs a length, for any length write {_any_length(root)}", start, cursor.stop)
    try:
        return parse_data_type(text)
    except InvalidInputError as error:
        raise cursor.problem("syntax error, unknown type", start, cursor.stop) from error


def _timestamp_text(cursor: Cursor, word: str, text: str | None) -> str | None:
    digits = text[text.index("(") :] if text is not None and "(" in text else ""
    if cursor.take(*_LOCAL):
        return f"TIMESTAMP_LTZ{digits}"
    is_plain = cursor.take("WITHOUT", "TIME", "ZONE") or word == "TIMESTAMP_NTZ"
    return f"TIMESTAMP{digits}" if is_plain else text


def _any_length(root: str) -> str:
    return "BYTES" if root == "VARBINARY" else "STRING"
