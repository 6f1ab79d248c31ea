"""Markdown pages as tests read them: headings, tables, and words in backquotes."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

Row = tuple[str, ...]
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CELLS = re.compile(r"(?<!\\)\|")


def sections(text: str) -> dict[str, str]:
    """The text below each heading, up to the next one; headings without their ``#``."""
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def table(text: str) -> list[Row]:
    """The rows of the first table: stripped cells, without header and rule."""
    rows: list[Row] = []
    for line in text.splitlines():
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in _CELLS.split(line.strip("|"))))
        elif rows:
            break
    return rows[2:]


def quoted(text: str) -> list[str]:
    """What is in backquotes, code blocks left out."""
    return re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))


def unquoted(cell: str) -> str:
    """A cell that is one word in backquotes."""
    (word,) = quoted(cell)
    return word


def page_types(text: str) -> dict[str, str]:
    """The types of a table of fields whose first cells are name and type, by name, in the order of the page."""
    return {unquoted(row[0]): row[1] for row in table(text)}
