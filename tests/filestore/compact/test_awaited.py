"""Compactions that the writer of rows does, because readers wait for them."""

import logging
from typing import Any

import pytest

import filestore.compact.compactor
from filestore.table import FileTable
from lsm.errors import ConflictError, CorruptDataError, OutcomeUnknownError, UnavailableError
from tests.support.tables import content, key_table, newest_snapshot, rows

VECTORS = {"deletion-vectors.enabled": "true"}
FAILURES = [
    IndexError("index 0 is out of bounds"),
    MemoryError(),
    OSError(28, "No space left on device"),
    ConflictError("another compaction"),
    UnavailableError("no answer"),
    OutcomeUnknownError("perhaps"),
    CorruptDataError("a file is lost"),
]


def failing(error: BaseException) -> Any:
    def run(*_: object) -> Any:
        raise error

    return run


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_a_write_is_acknowledged_whatever_happens_to_the_compaction_behind_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its rows are committed: a caller who gets an error writes them again."""
    table = key_table(**VECTORS)
    table.write(rows((1, 1)))
    with monkeypatch.context() as broken, caplog.at_level(logging.INFO, "fluvial"):
        broken.setattr(filestore.compact.compactor, "run_task", failing(error))
        done = table.write(rows((1, 2), (2, 2)))
    assert done.snapshot == newest_snapshot(table)
    assert "db.t" in caplog.text
    table.compact()
    assert content(table) == {1: 2, 2: 2}


def test_an_interrupt_of_the_compaction_behind_a_write_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    table: FileTable = key_table(**VECTORS)
    monkeypatch.setattr(filestore.compact.compactor, "run_task", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        table.write(rows((1, 1)))
