"""What pages are made of: sections of facts, rows and drawings, and forms. Templates alone make HTML of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, urlencode

from engine.runtime.times import time_text
from engine.runtime.units import count_text, size_text

_LONGEST: Final = 500  # characters of a cell
ACT_PATH: Final = "/act"
"""The one address that takes POST, if actions are allowed."""
Tone = Literal["", "good", "warn", "bad", "soft", "add", "drop", "old"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value: plain text, escaped by the templates."""

    text: str
    href: str = ""
    kind: Tone = ""
    tip: str = ""
    time_ms: int | None = None  # the page shows how long ago that is
    svg: str = ""  # of engine.drawing, without its style, in place of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePart:
    """A part of a page; empty parts are left out."""

    name: str  # an id in the page
    title: str = ""
    note: str = ""
    facts: Sequence[tuple[str, Cell]] = ()
    columns: Sequence[Cell] = ()
    rows: Sequence[Sequence[Cell]] = ()
    numbers: frozenset[int] = frozenset()  # columns that are aligned to the right
    svg: str = ""  # of engine.drawing, without its style
    is_open: bool = True  # else behind its title


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An input of a form. ``kind``: text, search, range or hidden."""

    name: str
    value: str
    label: str = ""
    kind: str = "text"
    hint: str = ""
    shown: str = ""  # the value of a range, in words
    least: int = 0  # of a range
    most: int = 0
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageForm:
    """A form above the sections."""

    inputs: Sequence[Input]
    button: str = "show"
    action: str = ""  # an address that changes something; empty: the same page, with other parameters
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page. ``forms`` are not replaced while it is shown, sections are."""

    title: str
    sections: Sequence[PagePart]
    path: Sequence[tuple[str, str]] = ()  # names and addresses of the pages above
    forms: Sequence[PageForm] = ()
    is_partial: bool = False  # more is known in a moment


def text_cell(value: object, kind: Tone = "") -> Cell:
    """Any value as text, cut where it is too long; None is empty."""
    text = "" if value is None else str(value)
    return Cell(text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", kind=kind)


def count_cell(value: int | None, kind: Tone = "") -> Cell:
    """A count, with separators."""
    return Cell(text="" if value is None else count_text(value), kind=kind)


def size_cell(value: int | None, kind: Tone = "") -> Cell:
    """Bytes."""
    return Cell(text="" if value is None else size_text(value), kind=kind)


def time_cell(time_ms: int | None) -> Cell:
    """A time, and how long ago it is."""
    return Cell(text="" if time_ms is None else time_text(time_ms), time_ms=time_ms)


def heads(*words: str) -> list[Cell]:
    """Headings of columns."""
    return [Cell(text=each) for each in words]


def table_address(name: str, page: str = "", **query: str) -> str:
    """The address of a table's page, for any name ``database.table``."""
    database, _, table = name.partition(".")
    asked = urlencode({key: value for key, value in query.items() if value})
    return f"/table/{quote(database, safe='')}/{quote(table, safe='')}{page}{'?' if asked else ''}{asked}"


def what_if_address(name: str, snapshot_id: int) -> str:
    """The address of the page with what follows from a snapshot."""
    return f"/what-if?{urlencode({'table': name, 'snapshot': snapshot_id})}"
