"""Column types as Spark and Flink write them.

``TIMESTAMP`` alone is Spark's, with the local time zone; with a precision it is Flink's, without. ``BINARY`` alone is
Spark's bytes of any length.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from engine.dialect.grammar.cursor import Cursor
from filestore.types.data_types import BYTES, DataField, DataType, parse_data_type
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
_NEEDS_LENGTH: Final = frozenset({"CHAR", "VARCHAR", "VARBINARY"})
_LOCAL: Final = ("WITH", "LOCAL", "TIME", "ZONE")
_NESTED: Final = frozenset({"ARRAY", "MULTISET", "MAP", "ROW", "STRUCT"})


def read_type(cursor: Cursor) -> DataType:
    """The type at the cursor, with its NOT NULL; field ids inside it count from 0.

    Raises:
        InvalidInputError: at the place.
    """
    found = _read_plain(cursor)
    while (word := cursor.take_any("ARRAY", "MULTISET")) is not None:
        found = DataType(root=word, element=found)
    if cursor.take("NOT", "NULL"):
        return replace(found, nullable=False)
    cursor.take("NULL")
    return found


def _read_plain(cursor: Cursor) -> DataType:
    word = cursor.take_any(*_NESTED)
    if word is None:
        return _read_atomic(cursor)
    if word in ("ROW", "STRUCT"):
        return _read_row(cursor)
    cursor.expect("<")
    first = read_type(cursor)
    if word != "MAP":
        cursor.expect(">")
        return DataType(root=word, element=first)
    cursor.expect(",")
    value = read_type(cursor)
    cursor.expect(">")
    return DataType(root="MAP", key=replace(first, nullable=False), value=value)


def _read_row(cursor: Cursor) -> DataType:
    closing = ")" if cursor.take("(") else ">"
    if closing == ">":
        cursor.expect("<")
    fields = [_read_field(cursor, 0)]
    while cursor.take(","):
        fields.append(_read_field(cursor, len(fields)))
    cursor.expect(closing)
    return DataType(root="ROW", fields=tuple(fields))


def _read_field(cursor: Cursor, index: int) -> DataField:
    start = cursor.start
    name = cursor.name("the name of a field")
    cursor.take(":")
    data_type = read_type(cursor)
    comment = cursor.string() if cursor.take("COMMENT") or cursor.sees_string() else None
    if not name.strip():
        raise cursor.problem("a field has no name", start, cursor.stop)
    return DataField(id=index, name=name, type=data_type, description=comment)


def _read_atomic(cursor: Cursor) -> DataType:
    start = cursor.start
    word = cursor.word("a type")
    root = _WORDS.get(word, word)
    numbers: list[int] = cursor.listed(Cursor.whole_number) if cursor.sees("(") else []
    if root == "TIMESTAMP":
        root = _timestamp_root(cursor, word, numbers)
    if root == "TIME" and not numbers:
        numbers = [3]  # what is kept, and what Spark shows
    if root == "BINARY" and not numbers:
        return BYTES
    if root in _NEEDS_LENGTH and not numbers:
        raise cursor.problem(f"type needs a length, for any length write {_any_length(root)}", start, cursor.stop)
    text = f"{root}({', '.join(map(str, numbers))})" if numbers else root
    try:
        return parse_data_type(text)
    except InvalidInputError as error:
        raise cursor.problem("syntax error, unknown type", start, cursor.stop) from error


def _timestamp_root(cursor: Cursor, word: str, numbers: list[int]) -> str:
    if cursor.take(*_LOCAL):
        return "TIMESTAMP_LTZ"
    is_plain = cursor.take("WITHOUT", "TIME", "ZONE")
    return "TIMESTAMP" if is_plain or numbers or word == "TIMESTAMP_NTZ" else "TIMESTAMP_LTZ"


def _any_length(root: str) -> str:
    return "BYTES" if root == "VARBINARY" else "STRING"
