"""Long lists of values in filters: ``id IN (1, 2, ...)`` with as many values as a user's program has.

sqlglot takes 20 microseconds for a value. Lists of plain numbers and texts are therefore taken out of the text before
it is parsed, and read column by column; a word of their own takes their place in it. Shorter lists, and those with
anything else in them, stay where they are.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.predicate.literals import INTEGER_BITS, Literal
from filestore.predicate.sql_problems import excerpt
from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataType, timestamp_unit

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
