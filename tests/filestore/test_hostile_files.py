"""A stranger's table: whatever its files name, nothing outside of its directory is opened, changed or deleted."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, repeat
from pathlib import Path

import pytest

from lsm.errors import FluvialError
from tests.fuzz.__main__ import fuzzed
from tests.support.faults import MemoryFileIO
from tests.support.hostile import HOSTILE, edits
from tests.support.hostile_table import OPERATIONS, ORDERS, metadata, one_of_a_kind, survives, whole
from tests.support.tables import reopened


@pytest.mark.sweep
def test_the_table_has_a_file_of_every_kind() -> None:
    """And all operations work on it unedited: else the sweep below would show nothing."""
    table = whole()
    kinds = {Path(path).parent.name for path in metadata(table)}
    assert kinds >= {"manifest", "snapshot", "schema", "tag", "savepoint", "branch-dev"}
    names = {Path(path).name.partition("-")[0] for path in metadata(table)}
    assert {"index", "manifest", "ORIGIN", "savepoint", "tag", "stat", "LATEST"} <= names
    done = set()
    for order in ORDERS:
        copy = reopened(table, MemoryFileIO(table.store.io.files))  # type: ignore[attr-defined]
        for name in order:
            with suppress(FluvialError):
                OPERATIONS[name](copy)
                done.add(name)
    assert done >= OPERATIONS.keys() - {"merge"}
    for order in ORDERS:
        body = table.store.io.read_bytes(table.store.paths.latest_hint)
        assert survives(table, body, table.store.paths.latest_hint, order) == []


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("value", HOSTILE)
def test_no_name_leads_out_of_the_table(value: str) -> None:
    """Each text of one file of every kind, in a snapshot and a branch that are read and cleaned."""
    assert led_out(value, repeat(ORDERS[2])) == {}


@pytest.mark.long
@pytest.mark.sweep
def test_no_name_leads_an_operation_out_of_the_table() -> None:
    """Every operation, forwards and backwards in turn, from one text to the next.

    ``python -m tests.fuzz`` has each operation on each edited table as it was.
    """
    assert led_out(HOSTILE[0], cycle(ORDERS[:2])) == {}


def led_out(value: str, orders: Iterator[list[str]]) -> dict[str, list[str]]:
    """What did not survive the value, by file and place; each edit with the next order of operations."""
    table, found = whole(), {}
    for path in one_of_a_kind(table):
        for what, body in edits(table.store.io.read_bytes(path), [value]):
            if complaints := survives(table, body, path, next(orders)):
                found[f"{path.removeprefix(table.store.paths.root)} {what}"] = complaints
    return found


@pytest.mark.long
@pytest.mark.sweep
def test_the_fuzzer_counts_what_each_reader_did() -> None:
    """Of a few edits: all that was asked for was done, and some of it refused."""
    counts = fuzzed(kinds=2, values=HOSTILE[:1])
    assert counts["edits"] > 4
    assert counts["outside"] == 0
    assert counts["operations"]["read"]["refused"] > 0
    assert {sum(each.values()) for each in counts["operations"].values()} == {counts["edits"]}
    assert json.loads(json.dumps(counts)) == counts
