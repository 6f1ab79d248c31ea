"""CHAR(n) and VARCHAR(n) in frames: at most n characters.

Texts are kept as they are written: a CHAR is not padded, because the other writers of a table (streams, CDC, Flink) do
not pad it either, and a padded key would be another key. So Spark sees both as VARCHAR(n), with its own rule: blanks
behind the n-th character are cut off, anything else is an error.
"""

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from filestore.types.data_types import MAX_LENGTH, TEXT_ROOTS, DataType
from lsm.errors import InvalidInputError

LENGTH_METADATA: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Spark's own: the metadata of a text column that has a length."""
_TOO_LONG: Final = "a value is too long: "
_LIMIT: Final = re.compile(r" type=\w+\((\d+)\)")
_SPARKS: Final = re.compile(r"(?i)(char|varchar)\((\d+)\)")


class TextLengthError(InvalidInputError):
    """A text is longer than its column; Spark's EXCEED_LIMIT_LENGTH."""

    @classmethod
    def found(cls, words: str) -> InvalidInputError:
        """The error of words that an expression raised."""
        return cls(words) if words.startswith(_TOO_LONG) and _LIMIT.search(words) else InvalidInputError(words)

    @property
    def limit(self) -> str:
        """Characters that the column takes."""
        found = _LIMIT.search(str(self))
        return found[1] if found is not None else ""


def limit_of(data_type: DataType) -> int | None:
    """The most characters of a text; None: no limit, or no text."""
    is_limited = data_type.root in TEXT_ROOTS and data_type.length is not None and data_type.length < MAX_LENGTH
    return data_type.length if is_limited else None


def length_metadata(data_type: DataType) -> dict[str, str]:
    """The metadata by which Spark knows the length of a column; {} without a limit."""
    limit = limit_of(data_type)
    return {} if limit is None else {LENGTH_METADATA: f"varchar({limit})"}


def sized_type(column: T.StructField) -> DataType | None:
    """The type of a column of Spark's that has a length; None: it has none."""
    text = column.metadata.get(LENGTH_METADATA, "") if isinstance(column.dataType, T.StringType) else ""
    found = _SPARKS.fullmatch(text or column.dataType.simpleString())
    if found is None:
        return None
    return DataType(root=found[1].upper(), length=int(found[2]), nullable=column.nullable)


def within_length(value: Column, data_type: DataType, name: str) -> Column:
    """A text as a column with a length stores it; an expression that raises when it is too long.

    Args:
        value: text; null stays null.
        data_type: of the column.
        name: of the column.
    """
    limit = limit_of(data_type)
    if limit is None:
        return value
    problem = F.concat(
        F.lit(f"{_TOO_LONG}column={name} value='"),
        F.substring(value, 1, limit + 1),
        F.lit(f"...' type={data_type.root}({limit}) fix='shorten the value or widen the column'"),
    )
    cut = F.when(F.char_length(F.rtrim(value)) <= limit, F.substring(value, 1, limit))
    return F.when(F.char_length(value) > limit, cut.otherwise(F.raise_error(problem).cast("string"))).otherwise(value)
