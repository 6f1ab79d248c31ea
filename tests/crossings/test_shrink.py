"""A failing history comes down to the steps, rows and choices that it needs."""

from typing import Any

from tests.crossings.history import History, Step
from tests.crossings.run import Violation
from tests.crossings.shrink import shrunk
from tests.crossings.space import SIMPLEST


def fails(history: History) -> Violation | None:
    """Where ORC has a key 3 with ``a``, and a compaction comes behind it."""
    written: list[dict[str, Any]] = []
    for name, given in history.steps:
        if name == "write":
            written += [row for row in given["rows"] if row["k"] == 3 and "a" in row]
        if name == "compact" and written and history.cell["format"] == "orc":
            return Violation(history=history, what="rows mismatch", message="a row is gone")
    return None


def test_what_is_left_is_what_it_takes() -> None:
    rows: list[dict[str, Any]] = [{"k": key % 5, "a": key, "c": "x"} for key in range(9)]
    steps: list[Step] = [
        ("write", {"rows": rows, "kinds": ["+I"] * 9}),
        ("rows", {}),
        ("tag", {"name": "x", "at": 0}),
        ("compact", {"full": True}),
    ]
    history = History(cell={**SIMPLEST, "format": "orc", "thin": "yes"}, steps=tuple(steps * 3))
    found = shrunk(Violation(history=history, what="rows mismatch", message=""), fails=fails)
    assert found.history.steps == (("write", {"rows": [{"k": 3, "a": 8}]}), ("compact", {}))
    assert found.history.cell == {**SIMPLEST, "format": "orc"}
    assert "table: format=orc\n    write rows=" in found.history.lines()
