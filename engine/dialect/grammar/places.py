"""Places in the text that was given, and errors that point at them."""

from dataclasses import dataclass
from typing import Final

from lsm.errors import InvalidInputError
from lsm.secret_names import shown_pairs

_EXCERPT: Final = 120  # characters of a line that an error shows


class SqlSyntaxError(InvalidInputError):
    """A text that cannot be read. The message shows the place: below its first line come the line and a caret."""


class OwnSyntaxError(SqlSyntaxError):
    """What Fluvial's grammar has and Spark's has not is misused: Spark's parser would not say what is wrong."""


class WordElsewhereError(SqlSyntaxError):
    """A statement of another table format, about a table that may be Fluvial's: the message has the call for it."""

    def __init__(self, message: str, table: tuple[str, ...] = ()) -> None:
        """``table``: the parts of its name."""
        super().__init__(message)
        self.table = table


@dataclass(frozen=True)
class SourceText:
    """A part of what was given: one statement, or something inside it."""

    text: str
    whole: str  # all that was given
    base: int  # where ``text`` begins in it

    @classmethod
    def of(cls, text: str) -> "SourceText":
        """A text that is all that was given."""
        return cls(text, text, 0)

    def part(self, start: int, stop: int) -> "SourceText":
        """A part of this part."""
        return SourceText(self.text[start:stop], self.whole, self.base + start)

    def problem(
        self, problem: str, start: int, stop: int, kind: type[SqlSyntaxError] = SqlSyntaxError
    ) -> InvalidInputError:
        """An error with line, column, the words in question and, below, the line with a caret.

        Args:
            problem: what is wrong there.
            start: offset in ``text`` of the first character in question; its length is the end.
            stop: offset after the last.
            kind: of the error.
        """
        whole = shown_pairs(self.whole, keeps_length=True)
        start = min(self.base + start, self.base + len(self.text.rstrip()))
        stop = max(start, self.base + stop)
        line_start = whole.rfind("\n", 0, start) + 1
        line_stop = whole.find("\n", start)
        line = whole[line_start : line_stop if line_stop >= 0 else len(whole)]
        column = start - line_start
        shown = max(0, column - _EXCERPT // 2) if len(line) > _EXCERPT else 0
        line, at = line[shown : shown + _EXCERPT], column - shown
        near = whole[start:stop] or "end of text"
        indent = "".join(char if char == "\t" else " " for char in line[:at])
        carets = "^" * max(1, min(stop - start, len(line) - at))
        return kind(
            f"{problem}: line={whole.count(chr(10), 0, start) + 1} column={column + 1} near={_short(near)!r}\n"
            f"  {line}\n  {indent}{carets}"
        )


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 40 else flat[:37] + "..."
