"""Column types in SQL: ``DECIMAL(10, 2) NOT NULL``, ``ARRAY<STRING>``, ``ROW<a INT, b STRING>``.

Words and parameters are those of Paimon's and Flink's SQL; Spark's ``STRUCT<a: INT>`` is accepted too.
"""

import re
from dataclasses import replace
from typing import Final

from filestore.types.data_types import DataField, DataType, parse_data_type
from lsm.errors import InvalidInputError

_NESTED: Final = re.compile(r"(ARRAY|MULTISET|MAP|ROW|STRUCT)\s*<", re.IGNORECASE)
_NAME: Final = re.compile(r"(?:`((?:[^`]|``)+)`|(\w+))\s*:?\s*")
_SUFFIX: Final = re.compile(r"(?:NOT\s+NULL|NULL)?", re.IGNORECASE)
_ATOMIC_END: Final = ",>"


def quoted(name: str) -> str:
    """A column or table name in backquotes, for SQL and Spark, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def parse_sql_type(text: str) -> DataType:
    """Parse a column type; field ids inside a ROW count from 0.

    Raises:
        InvalidInputError: not a type; the message has the position of the error.
    """
    parser = _Parser(text)
    found = parser.read_type()
    if parser.rest.strip():
        raise parser.problem("something follows the type")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def problem(self, fact: str) -> InvalidInputError:
        return InvalidInputError(f"not a type: type={self.text!r} position={self.at} reason={fact}")

    def read_type(self) -> DataType:
        self._skip_blanks()
        nested = _NESTED.match(self.text, self.at)
        if nested is None:
            return self._read_atomic()
        self.at = nested.end()
        root = nested[1].upper()
        match root:
            case "ARRAY" | "MULTISET":
                found = DataType(root=root, element=self.read_type())
            case "MAP":
                key = self.read_type()
                self._expect(",")
                found = DataType(root=root, key=replace(key, nullable=False), value=self.read_type())
            case _:
                found = DataType(root="ROW", fields=self._read_fields())
        self._expect(">")
        return replace(found, nullable=self._read_nullable())

    def _read_fields(self) -> tuple[DataField, ...]:
        fields: list[DataField] = []
        while True:
            self._skip_blanks()
            name = _NAME.match(self.text, self.at)
            if name is None:
                raise self.problem("a field name belongs here")
            self.at = name.end()
            plain = name[1].replace("``", "`") if name[1] else name[2]
            fields.append(DataField(id=len(fields), name=plain, type=self.read_type()))
            self._skip_blanks()
            if not self.rest.startswith(","):
                return tuple(fields)
            self.at += 1

    def _read_atomic(self) -> DataType:
        """Up to the comma or bracket that ends the type; the comma inside ``DECIMAL(10, 2)`` does not."""
        depth = 0
        end = self.at
        while end < len(self.text) and (depth or self.text[end] not in _ATOMIC_END):
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            end += 1
        word = self.text[self.at : end].strip()
        if not word:
            raise self.problem("a type belongs here")
        try:
            found = parse_data_type(word)
        except InvalidInputError as error:
            raise self.problem(f"unknown type {word!r}") from error
        self.at = end
        return found

    def _read_nullable(self) -> bool:
        self._skip_blanks()
        suffix = _SUFFIX.match(self.text, self.at)
        assert suffix is not None
        self.at = suffix.end()
        return not suffix[0].upper().startswith("NOT")

    def _expect(self, mark: str) -> None:
        self._skip_blanks()
        if not self.rest.startswith(mark):
            raise self.problem(f"{mark!r} belongs here")
        self.at += 1

    def _skip_blanks(self) -> None:
        self.at += len(self.rest) - len(self.rest.lstrip())
