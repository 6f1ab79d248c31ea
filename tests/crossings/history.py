"""A history as a plain value: choices for a table, and steps with literal rows. As text it can be replayed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.crossings.covering import Cell
from tests.crossings.space import PARAMETERS, SIMPLEST, WIDTHS

Step = tuple[str, Mapping[str, Any]]
"""Name of an operation or of a way to read, and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a table is, and what happens to it."""

    cell: Cell
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        given = {name: value for name, value in self.cell.items() if SIMPLEST[name] != value}
        return json.dumps({"cell": given, "steps": [[name, dict(more)] for name, more in self.steps]})

    @classmethod
    def parse(cls, text: str) -> "History":
        """The inverse of ``str``. Raises: ValueError: a parameter or a value of it is not known."""
        body = json.loads(text)
        for name, value in body["cell"].items():
            if value not in (*PARAMETERS.get(name, ()), *(WIDTHS if name == "columns" else ())):
                raise ValueError(f"no such choice: {name}={value}")
        return cls(cell={**SIMPLEST, **body["cell"]}, steps=tuple((name, more) for name, more in body["steps"]))

    def lines(self) -> str:
        """For people: the choices that are not the simplest, then a step a line, and the command that replays it."""
        given = ", ".join(f"{name}={value}" for name, value in self.cell.items() if SIMPLEST[name] != value)
        steps = [
            f"    {name} " + " ".join(f"{key}={json.dumps(each)}" for key, each in more.items())
            for name, more in self.steps
        ]
        return "\n".join([f"table: {given or 'the simplest'}", *steps, f"python -m tests.crossings --replay '{self}'"])

    def with_steps(self, steps: Sequence[Step]) -> "History":
        """Other steps."""
        return replace(self, steps=tuple(steps))
