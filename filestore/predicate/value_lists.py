"""Long lists of values in filters: ``id IN (1, 2, ...)`` with as many values as a user's program has.

sqlglot takes 20 microseconds for a value. Lists of plain numbers and texts are therefore taken out of the text before
it is parsed, and read column by column; a word of their own takes their place in it. Shorter lists, and those with
anything else in them, stay where they are.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from filestore.predicate.literals import INTEGER_BITS, Literal
from filestore.predicate.sql_problems import excerpt
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, DataType

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
    if data_type.root in TEXT_ROOTS and written.startswith("'"):
        return tuple(written[1:-1].split("'")[::2])
    return None


def literals_of(written: str) -> list[Literal]:
    """The values of a list as literals, in order."""
    if written.startswith("'"):
        return [*written[1:-1].split("'")[::2]]
    return [Decimal(each) if "." in each else int(each) for each in map(str.strip, written.split(","))]
