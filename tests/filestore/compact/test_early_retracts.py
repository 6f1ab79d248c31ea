"""Values that are taken back count the same in any order, whatever is flushed and compacted between."""

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.diff.table_diff import open_diff
from filestore.table import FileTable
from lsm.row_kind import RowKind
from tests.support.changelogs import changelog_changes
from tests.support.tables import check_metadata, key_table, newest_snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("g", pa.int64())])
SUMS = {"fields.v.aggregate-function": "sum", "fields.n.aggregate-function": "count"}
ENGINES: Mapping[str, Mapping[str, str]] = {
    "aggregation": {
        "merge-engine": "aggregation",
        **SUMS,
        "fields.x.aggregate-function": "product",
        "fields.g.aggregate-function": "max",
        "fields.g.ignore-retract": "true",
    },
    "sequence group": {
        "merge-engine": "partial-update",
        **SUMS,
        "fields.x.aggregate-function": "product",
        "fields.g.sequence-group": "v,n,x",
    },
}
SMALL = {"num-sorted-run.compaction-trigger": "3", "target-file-row-num": "2"}
Event = tuple[str, int, int]
"""Kind, key and value."""
Sums = dict[int, tuple[int, int, float]]


def retracting_table(engine: str, **options: str) -> FileTable:
    given = {key.replace("_", "-"): text for key, text in options.items()}
    return key_table(schema=SCHEMA, **ENGINES[engine], **given)


class Sequence:
    """Numbers the events, so that each is newer than those before."""

    def __init__(self) -> None:
        self.last = 0

    def write(self, table: FileTable, *events: Event) -> None:
        """One batch."""
        first, self.last = self.last, self.last + len(events)
        rows = {
            "id": [key for _, key, _ in events],
            "v": [value for _, _, value in events],
            "n": [1] * len(events),
            "x": [2.0 ** (value % 4) for _, _, value in events],
            "g": range(first, self.last),
        }
        table.write(pa.table(rows, schema=SCHEMA), pa.array([kind for kind, _, _ in events]))


def sums_of(table: FileTable, **travel: Any) -> Sums:
    found = table.read(**travel).to_arrow(columns=["id", "v", "n", "x"]).to_pylist()
    by_id = {row["id"]: (row["v"], row["n"], row["x"]) for row in found}
    assert len(by_id) == len(found)
    return by_id


def added(state: Sums, *events: Event) -> Sums:
    """What the events make of sums."""
    state = dict(state)
    for kind, key, value in events:
        v, n, x = state.get(key, (0, 0, 1.0))
        sign = -1 if kind in ("-U", "-D") else 1
        state[key] = (v + sign * value, n + sign, x * 2.0 ** (sign * (value % 4)))
    return state


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["-U", "-D"])
@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_retract_before_its_row_is_not_forgotten(engine: str, kind: str, compacts: bool, vectors: str) -> None:
    table, sequence, state = retracting_table(engine, **{"deletion-vectors.enabled": vectors}), Sequence(), Sums()
    for event in ((kind, 1, 5), (kind, 1, 3), ("+I", 1, 5), (kind, 2, 7), ("+U", 1, 9), ("+I", 1, 3), ("+I", 2, 7)):
        sequence.write(table, event)
        state = added(state, event)
        assert sums_of(table) == state
        if compacts:
            table.compact(full=True)
            assert sums_of(table) == state
    assert state == {1: (9, 1, 2.0), 2: (0, 0, 1.0)}


def test_a_filter_sees_the_row_that_a_retract_is() -> None:
    """The statistics of its file say 5."""
    for compacts in (False, True):
        table = retracting_table("aggregation")
        Sequence().write(table, ("-U", 1, 5), ("+I", 2, 5))
        if compacts:
            table.compact(full=True)
        assert table.read().to_arrow(columns=["id"], filter="v < 0").to_pylist() == [{"id": 1}]
        assert table.read().to_arrow(columns=["id"], filter="v = 5").to_pylist() == [{"id": 2}]
        assert table.read().to_arrow(columns=["id", "g"], filter="id = 1").to_pylist() == [{"id": 1, "g": None}]


EVENTS = st.tuples(st.sampled_from(["+I", "+U", "-U", "-D"]), st.integers(0, 4), st.integers(0, 9))
HISTORY = st.lists(
    st.tuples(st.lists(EVENTS, min_size=1, max_size=6), st.sampled_from(["", "", "minor", "full"])),
    min_size=1,
    max_size=8,
)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("vectors", ["false", "true"])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(history=HISTORY, file_format=st.sampled_from(["parquet", "orc", "avro"]))
def test_sums_are_those_of_a_dictionary_whenever_compactions_run(
    engine: str, vectors: str, history: list[tuple[list[Event], str]], file_format: str
) -> None:
    """FL-166, FL-186, FL-187: at every step, also of older snapshots, and of the differences between them."""
    options = {"deletion-vectors.enabled": vectors, "file.format": file_format}
    table, sequence, state = retracting_table(engine, **SMALL, **options), Sequence(), Sums()
    states: dict[int, Sums] = {}
    for events, compaction in history:
        sequence.write(table, *events)
        state = added(state, *events)
        if compaction:
            table.compact(full=compaction == "full")
        assert sums_of(table) == state
        low = {key: each for key, each in state.items() if each[0] < 0}
        assert {*table.read().to_arrow(columns=["id"], filter="v < 0").column("id").to_pylist()} == {*low}
        states[newest_snapshot(table).id] = state
    check_metadata(table)
    for snapshot_id, then in states.items():
        assert sums_of(table, snapshot_id=snapshot_id) == then
    first, last = min(states), max(states)
    if first < last:
        found = dict(states[first])
        for batch, kinds in open_diff(table, str(first), str(last)).changes():
            for row, kind in zip(batch.to_pylist(), kinds.to_pylist(), strict=True):
                if RowKind(kind).is_retract:
                    assert found.pop(row["id"]) == (row["v"], row["n"], row["x"])
                else:
                    found[row["id"]] = (row["v"], row["n"], row["x"])
        assert found == states[last]


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@settings(max_examples=8, deadline=None, derandomize=True)
@given(history=HISTORY)
def test_the_changelog_of_compactions_folds_to_the_sums(
    engine: str, producer: str, history: list[tuple[list[Event], str]]
) -> None:
    """A -U and a -D have the row that was there, a +I a key that was not."""
    table = retracting_table(engine, **SMALL, **{"changelog-producer": producer, "write-only": "true"})
    compacting, sequence, state = table.with_options({"write-only": "false"}), Sequence(), Sums()
    folded: Sums = {}
    for events, compaction in [*history, ([], "full")]:
        if events:
            sequence.write(table, *events)
            state = added(state, *events)
        done = compacting.compact(full=compaction == "full") if compaction else None
        if done is None or done.snapshot is None:
            continue
        for kind, key, v, n, x, _ in changelog_changes(table, done.snapshot):
            if kind in ("-U", "-D"):
                assert folded.pop(key) == (v, n, x)
            else:
                assert key not in folded
                folded[key] = (v, n, x)
        if producer == "lookup" or compaction == "full":
            assert folded == state


def test_rows_are_written_again_as_they_are() -> None:
    """A restored state, and a rescaled one."""
    table = retracting_table("aggregation")
    rnd = random.Random(1)
    Sequence().write(table, *((rnd.choice(["-U", "+I", "-D"]), rnd.randrange(9), rnd.randrange(9)) for _ in range(30)))
    before = sums_of(table)
    assert any(each[0] < 0 for each in before.values())
    table.compact(full=True)
    assert sums_of(table) == before
    assert all(split.raw_convertible for split in table.read().plan().splits)
