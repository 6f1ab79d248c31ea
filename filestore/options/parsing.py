"""How the texts of option values become values: one parser for each kind of value, wherever the text comes from.

A parser raises ValueError with what it expects; ``Option.read`` adds the option and its value.
Source: Paimon MemorySize and TimeUtils: sizes are powers of 1024, a duration without a unit is in milliseconds.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from lsm.errors import InvalidInputError
from lsm.nearest_names import did_you_mean

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Parser(Generic[T_co]):
    """A function from text to value that can say what it reads."""

    read: Callable[[str], T_co]
    kind: str  # of value, as the reference names it

    def __call__(self, value: str) -> T_co:
        """The value. Raises: ValueError with what is expected."""
        return self.read(value)


def reads(kind: str) -> Callable[[Callable[[str], T]], Parser[T]]:
    """Make a parser of a function, which raises ValueError with what it expects."""
    return lambda read: Parser(read, kind)


def boolean_of(name: str, value: object) -> bool:
    """``boolean`` of a value that is given under a name. Raises: InvalidInputError naming both, with a fix."""
    try:
        return boolean(str(value))
    except ValueError as error:
        raise not_valid(name, value, error) from error


def not_valid(name: str, value: object, reason: object) -> InvalidInputError:
    """The error for a value that cannot be read."""
    return InvalidInputError(
        f"option value is not valid: option={name} value={value!r} {reason} "
        f"fix='set {name} to such a value, or leave it out'"
    )


@reads("text")
def text(value: str) -> str:
    """Any text that is not blank, without the blanks around it."""
    if not value.strip():
        raise ValueError("expected='not empty'")
    return value.strip()


@reads("text")
def verbatim(value: str) -> str:
    """Any text that is not blank, with the blanks around it: passwords, and what becomes part of a file name."""
    if not value.strip():
        raise ValueError("expected='not empty'")
    return value


@reads("text")
def file_name(value: str) -> str:
    """What becomes a part of a file's name or the name of a directory."""
    name = text(value)
    _check_component(name)
    return name


def check_prefix(value: str) -> None:
    """Refuse what does not begin the name of a file in its directory. Raises: ValueError with what is expected."""
    _check_component(value)
    if len(value.encode()) > _LONGEST_PREFIX:
        raise ValueError(f"expected='at most {_LONGEST_PREFIX} bytes: the rest of the name comes behind it'")


def check_directory(value: str) -> None:
    """Refuse what is not a directory below another one. Raises: ValueError with what is expected."""
    for each in value.removesuffix("/").split("/"):
        _check_component(each)


def _check_component(name: str) -> None:
    if not name or "/" in name or "\\" in name or name in (".", "..") or any(not each.isprintable() for each in name):
        raise ValueError("expected='a name without / and control characters: files stay in the directory of the table'")
    if len(name.encode(errors="replace")) > _LONGEST_NAME:
        raise ValueError(f"expected='at most {_LONGEST_NAME} bytes, as file systems have it'")


@reads("text")
def any_text(value: str) -> str:
    """Any text, blanks and nothing too."""
    return value


@reads("names")
def names(value: str) -> tuple[str, ...]:
    """Comma-separated names."""
    parts = tuple(part.strip() for part in value.split(","))
    if not all(parts) or len(set(parts)) != len(parts):
        raise ValueError("expected='different names with commas between them'")
    return parts


@reads("boolean")
def boolean(value: str) -> bool:
    """``true`` or ``false`` in any case."""
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("expected='true or false'")
    return word == "true"


@reads("time of day")
def time_of_day_ms(value: str) -> int:
    """Milliseconds since midnight of ``hh:mm``."""
    hours, mark, minutes = value.strip().partition(":")
    is_time = mark and hours.isascii() and hours.isdigit() and minutes.isascii() and minutes.isdigit()
    if not is_time or len(minutes) != 2 or int(hours) > 23 or int(minutes) > 59:
        raise ValueError("expected='hh:mm, as 03:30'")
    return (int(hours) * 60 + int(minutes)) * 60_000


def integer(least: int = -(2**63), greatest: int = 2**63 - 1) -> Parser[int]:
    """A whole number within bounds."""
    bounds = f"{least} or more" if greatest >= 2**31 - 1 else f"{least} to {greatest}"

    def parse(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            number = greatest + 1
        if not least <= number <= greatest:
            raise ValueError(f"expected='a whole number, {bounds}'")
        return number

    return Parser(parse, "integer" if least == -(2**63) else f"integer, {bounds}")


@reads("fraction")
def fraction(value: str) -> float:
    """A number from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("expected='a number from 0 to 1'")
    return number


def choice(*words: str, refused: Mapping[str, str] = MappingProxyType({})) -> Parser[str]:
    """One of a few words, any case, given back in lower case; ``refused``: why others are not taken, for messages."""

    def parse(value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            cause = f" cause='{refused[word]}'" if word in refused else ""
            raise ValueError(f"expected='{' | '.join(words)}'{cause}")
        return word

    return Parser(parse, " | ".join(words))


def member(kind: type[E]) -> Parser[E]:
    """A member of an enumeration by its value, any case."""
    words = [str(each.value) for each in kind]

    def parse(value: str) -> E:
        word = value.strip().lower()
        if word not in words:
            raise ValueError(f"expected='{' | '.join(words)}'{did_you_mean(word, words)}")
        return kind(word)

    return Parser(parse, " | ".join(words))


@reads("size")
def size_bytes(value: str) -> int:
    """``128 mb``, ``1g``, ``4096`` as bytes."""
    match = _AMOUNT.fullmatch(value.strip().lower())
    factor = SIZE_UNITS.get(match["unit"]) if match else None
    if match is None or factor is None:
        raise ValueError("expected='a size such as 128 mb (units b, kb, mb, gb, tb)'")
    return int(match["number"]) * factor


@reads("size")
def some_bytes(value: str) -> int:
    """A size as ``size_bytes`` has it, but not 0."""
    number = size_bytes(value)
    if number < 1:
        raise ValueError("expected='a size such as 1 gb, more than 0'")
    return number


@reads("duration")
def duration_ms(value: str) -> int:
    """``1 h``, ``10ms``, ``7 d`` as milliseconds."""
    match = _AMOUNT.fullmatch(value.strip().lower())
    factor_ns = DURATION_UNITS.get(match["unit"]) if match else None
    if match is None or factor_ns is None:
        raise ValueError("expected='a duration such as 10 ms, 5 min, 1 h, 7 d'")
    return int(match["number"]) * factor_ns // 1_000_000


@reads("duration")
def retention_ms(value: str) -> int | None:
    """A duration as milliseconds, or ``unlimited``, which is None."""
    return None if value.strip().lower() == "unlimited" else duration_ms(value)


@reads("statistics")
def statistics(value: str) -> str:
    """``none``, ``counts``, ``full`` or ``truncate(n)``."""
    word = value.strip().lower().replace(" ", "")
    if word not in ("none", "counts", "full") and not re.fullmatch(r"truncate\([1-9]\d*\)", word):
        raise ValueError("expected='none | counts | full | truncate(16)'")
    return word


@reads("text by level")
def per_level(value: str) -> Mapping[int, str]:
    """``0:avro,3:parquet`` as word by level."""
    levels: dict[int, str] = {}
    for part in value.split(","):
        level, colon, word = part.partition(":")
        if not colon or not level.strip().isdigit() or not word.strip():
            raise ValueError("expected='level:value pairs such as 0:avro,3:parquet'")
        levels[int(level)] = word.strip().lower()
    return levels


def choice_per_level(*words: str) -> Parser[Mapping[int, str]]:
    """``0:avro,3:parquet`` as one of a few words by level."""
    one = choice(*words)

    def parse(value: str) -> Mapping[int, str]:
        return {level: one(word) for level, word in per_level(value).items()}

    return Parser(parse, f"{one.kind} by level")


@reads("statistics by level")
def statistics_per_level(value: str) -> Mapping[int, str]:
    """``0:none,3:full`` as statistics mode by level."""
    return {level: statistics(word) for level, word in per_level(value).items()}


_LONGEST_NAME: Final = 255
_LONGEST_PREFIX: Final = 150
_AMOUNT: Final = re.compile(r"(?P<number>\d+)\s*(?P<unit>[a-zµ]*)")
SIZE_UNITS: Final[Mapping[str, int]] = {
    word: 1024**power
    for power, words in enumerate(
        (
            ("", "b", "byte", "bytes"),
            ("k", "kb", "kib", "kibibytes"),
            ("m", "mb", "mib", "mebibytes"),
            ("g", "gb", "gib", "gibibytes"),
            ("t", "tb", "tib", "tebibytes"),
        )
    )
    for word in words
}
DURATION_UNITS: Final[Mapping[str, int]] = {
    word: factor
    for factor, words in (
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
        (1_000, ("us", "µs", "micro", "micros", "microsecond", "microseconds")),
        (1_000_000, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (60_000_000_000, ("m", "min", "minute", "minutes")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (86_400_000_000_000, ("d", "day", "days")),
    )
    for word in words
}
