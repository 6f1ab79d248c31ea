"""A text with some of its parts replaced, and the way back: what Spark says of the new text, in words of the old."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Characters from ``start`` up to ``stop`` become ``text``; the same place twice inserts."""

    start: int
    stop: int
    text: str


@dataclass(frozen=True, slots=True)
class Spliced:
    """A statement for Spark. Edits do not overlap, and are in order."""

    original: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, original: str, edits: Sequence[Edit]) -> "Spliced":
        """A text and its changes, in any order."""
        return cls(original, tuple(sorted(edits, key=lambda each: (each.start, each.stop))))

    @property
    def text(self) -> str:
        """What Spark gets."""
        return self.part(0, len(self.original))

    def part(self, start: int, stop: int) -> str:
        """What Spark gets of a part of the original; an edit is in it when it lies inside."""
        parts = []
        place = start
        for edit in self.edits:
            if edit.start >= place and edit.stop <= stop:
                parts += [self.original[place : edit.start], edit.text]
                place = edit.stop
        return "".join([*parts, self.original[place:stop]])

    def place(self, offset: int) -> int:
        """Where in the original an offset of the new text comes from: the start of the edit, when it is inside one."""
        shift = 0
        for edit in self.edits:
            if offset < edit.start + shift:
                break
            if offset < edit.start + shift + len(edit.text):
                return edit.start
            shift += len(edit.text) - (edit.stop - edit.start)
        return offset - shift


def with_names(text: str, names: Mapping[str, str]) -> str:
    """A message of Spark's with the user's names for the temporary ones.

    Args:
        text: of an error or a plan.
        names: what to write for each temporary name.
    """
    for temporary, name in names.items():
        text = re.sub(rf"`{temporary}`|\b{temporary}\b", name.replace("\\", r"\\"), text)
    return text
