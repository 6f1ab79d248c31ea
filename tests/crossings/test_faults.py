"""The faults that are planted to see what a campaign finds."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from tests.crossings.faults import FAULTS, planted
from tests.crossings.history import History, Step
from tests.crossings.run import replayed
from tests.crossings.space import SIMPLEST


def _write(*rows: Mapping[str, Any], **more: Any) -> Step:
    return "write", {"rows": list(rows), **more}


_FULL: Final[Step] = ("compact", {"full": True})
_TAG: Final[Step] = ("tag", {"name": "x", "at": -1})
_TAGGED: Final[Step] = ("tagged", {"name": "x"})
_ONE: Final = _write({"k": 1, "a": 1})
_RETRACTED: Final = _write({"k": 1, "a": 2}, kinds=["-D"])
_NEW_A: Final[tuple[Step, ...]] = (("drop", {"column": "a"}), ("add", {"name": "a"}))
SHOWN: Final[Mapping[str, tuple[Mapping[str, str], tuple[Step, ...]]]] = {
    "rows are numbered as they are chosen (B1)": (
        {"format": "orc", "vectors": "on", "producer": "lookup"},
        (_write(*({"k": key, "a": 1} for key in range(5))), _FULL, _write({"k": 3, "a": 2}), ("rows", {})),
    ),
    "a dropped column revives by its name": ({}, (_ONE, *_NEW_A, ("rows", {}))),
    "null overwrites in a partial update": ({"engine": "partial-update"}, (_ONE, _write({"k": 1, "d": 1}))),
    "the first row is the last": ({"engine": "first-row"}, (_ONE, _write({"k": 1, "a": 2}), _FULL)),
    "dynamic overwrites are static, and the other way about": (
        {"partition": "p"},
        (_write({"k": 1, "p": "a"}, {"k": 2, "p": "b"}), ("overwrite", {"rows": [{"k": 3, "p": "a"}]})),
    ),
    "expiry deletes one file too many": (
        {},
        (_ONE, _TAG, _write({"k": 1, "a": 2}), _FULL, _write({"k": 2}), ("expire", {"keep": 1}), _TAGGED),
    ),
    "a branch merge loses deletes": (
        {},
        (
            _ONE,
            ("branch", {"name": "dev", "at": -1}),
            _write({"k": 3, "a": 1}),
            _write({"k": 1}, kinds=["-D"], branch="dev"),
            ("merge", {"name": "dev"}),
        ),
    ),
    "a compaction drops deletes above the top level": (
        {"style": "leveled"},
        (_ONE, _FULL, _write({"k": 2}), _write({"k": 1}, kinds=["-D"]), ("compact", {})),
    ),
    "options keep the names of today in older states": (
        {"sequence": "g"},
        (
            _write({"k": 1, "a": 1, "g": 2}),
            _write({"k": 1, "a": 2, "g": 1}),
            _TAG,
            ("rename", {"column": "g", "name": "z"}),
            _write({"k": 2, "g": 1}),
            _TAGGED,
        ),
    ),
    "a compaction forgets the sequence field": (
        {"sequence": "g"},
        (_write({"k": 1, "a": 1, "g": 2}), _write({"k": 1, "a": 2, "g": 1}), _FULL),
    ),
    "deletion vectors are not applied in one format": (
        {"rows": "append", "vectors": "on", "format": "orc"},
        (_write({"k": 1, "a": 1}, {"k": 2, "a": 2}), ("delete", {"a": 1})),
    ),
    "a retraction is added to a sum": (
        {"engine": "aggregation", "functions": "sum"},
        (_write({"k": 1, "a": 2}), _write({"k": 1, "a": 1}, kinds=["-D"])),
    ),
    "a tag is read with the schema of today": (
        {},
        (_ONE, _TAG, ("rename", {"column": "a", "name": "z"}), _write({"k": 2, "d": 1}), _TAGGED),
    ),
    "a file is pruned that has the value as its greatest": (
        {},
        (_write({"k": 1, "a": 1}, {"k": 2, "a": 2}), ("rows", {"filter": ["=", "a", 2]})),
    ),
    "union reads forget deletes": (
        {"log": "debezium-json"},
        (_write({"k": 1, "a": 1}, {"k": 2, "a": 1}), ("ahead", {"rows": [{"k": 1}], "kinds": ["-D"]})),
    ),
    "copies in memory keep deleted rows": (
        {"log": "debezium-json"},
        (_write({"k": 1, "a": 1}, {"k": 2, "a": 1}), ("ahead", {"rows": [{"k": 1}], "kinds": ["-D"]})),
    ),
    "bounded streams do not look back (B7)": (
        {},
        (_ONE, _write({"k": 1, "a": 2}), ("follow", {"name": "q"}), ("rollback", {"at": 0}), ("follow", {"name": "q"})),
    ),
    "early retractions are forgotten (C5)": (
        {"engine": "aggregation", "functions": "sum"},
        (_RETRACTED, _write({"k": 1, "a": 3})),
    ),
    "rows expire while their batch is read (B2)": (
        {"expiry": "BIGINT"},
        (
            _write({"k": 1, "t": 0}, {"k": 2, "t": 0}, {"k": 3, "t": 100}),
            ("follow", {"name": "q", "batches": 2, "max_rows": 1}),
            ("wait", {"seconds": 130}),
            ("follow", {"name": "q"}),
        ),
    ),
    "files that two states share are not compared (B8)": (
        {"format": "orc"},
        (_ONE, *_NEW_A, _write({"k": 2, "d": 1}), ("difference", {"before": 1, "after": 0})),
    ),
    "manifests of wide tables cannot be decoded (A1)": ({"columns": "5000"}, (_ONE,)),
}
"""What a history has to do so that a fault shows: parameters of the table that are not the simplest, and steps."""


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.long] if "wide" in name else []


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    """What it replaces is there: a fault of code that has another name finds nothing."""
    with planted(name):
        pass


@pytest.mark.sweep
@pytest.mark.parametrize("name", [pytest.param(each, marks=_marks(each)) for each in SHOWN])
def test_a_planted_fault_is_shown_by_a_history_that_is_right_without_it(name: str) -> None:
    """What a campaign draws by chance can show it, and its oracle knows better."""
    cell, steps = SHOWN[name]
    history = History(cell={**SIMPLEST, **cell}, steps=steps)
    with planted(name):
        assert replayed(history).violation is not None
    assert replayed(history).violation is None
