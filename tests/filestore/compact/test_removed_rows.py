"""Merge engines whose deletes remove the row: what was there does not come back, in any order of merges."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.compact.compactor import pick_tasks
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from tests.support.rows import write_changes
from tests.support.tables import check_metadata, memory_catalog

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("g", pa.int64())])
ENGINES: dict[str, dict[str, str]] = {
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {"aggregation.remove-record-on-delete": "true", "fields.a.aggregate-function": "sum"},
}


def removing(engine: str, **options: str) -> FileTable:
    given = {"merge-engine": engine} | ENGINES[engine] | {key.replace("_", "-"): text for key, text in options.items()}
    return memory_catalog().create_table("db.t", SCHEMA, primary_key=["id"], options=given)


def write_changes_of_1(table: FileTable, *data: tuple[str, dict[str, Any]]) -> None:
    write_changes(table, *((kind, {"id": 1} | row) for kind, row in data))


def values_by_id(table: FileTable) -> dict[int, tuple[Any, Any]]:
    return {row["id"]: (row["a"], row["b"]) for row in table.read().to_arrow().to_pylist()}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_that_is_deleted_and_written_again_in_one_batch_begins_anew(engine: str) -> None:
    """FL-186, FL-187: Paimon would show the old values again (FORMAT.md, Decision 91)."""
    table = removing(engine, write_only="true")
    write_changes_of_1(table, ("+I", {"a": 1, "b": "x"}), ("+I", {"id": 2, "a": 5}))
    write_changes_of_1(table, ("+U", {"a": 3}), ("-D", {}), ("+I", {"a": 7}), ("+I", {"id": 2, "b": "y"}))
    assert values_by_id(table) == {1: (7, None), 2: (5, "y")}
    [split] = table.read().plan().splits
    assert sorted(file.row_count for file in split.files) == [1, 2, 2]
    table.compact(full=True)
    assert values_by_id(table) == {1: (7, None), 2: (5, "y")}
    check_metadata(table)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_compaction_with_deletes_takes_the_older_rows_along(engine: str) -> None:
    """A delete that is merged with later rows, above older ones, would be forgotten."""
    options = {"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000000"}
    table = removing(engine, **options)
    rows = [("+I", {"id": number, "a": number * 7919 % 10007, "b": "x"}) for number in range(3000)]
    write_changes_of_1(table, *rows)
    table.compact(full=True)
    for number in (1, 2):
        write_changes_of_1(table, ("+I", {"id": number, "a": 1}))
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert not task.drops_deletes, "nothing was deleted: the large file below stays"
    write_changes_of_1(table, ("-D", {}))
    write_changes_of_1(table, ("+I", {"a": 7}))
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert task.drops_deletes
    table.compact()
    assert values_by_id(table)[1] == (7, None)
    assert len(values_by_id(table)) == 3000


values = st.fixed_dictionaries(
    {"id": st.integers(0, 4), "a": st.none() | st.integers(0, 9), "b": st.none() | st.sampled_from("xyz")}
)
deeds = st.lists(
    st.lists(st.tuples(st.sampled_from(["+I", "+U", "-D"]), values), min_size=1, max_size=8) | st.booleans(),
    min_size=2,
    max_size=9,
)


@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(history=deeds)
def test_rows_are_those_of_a_dictionary(engine: str, history: list[Any]) -> None:
    """FL-166, FL-186, FL-187: writes and compactions in any order."""
    table = removing(engine, **{"num-sorted-run.compaction-trigger": "2", "target-file-row-num": "2"})
    there: dict[int, tuple[Any, Any]] = {}
    for deed in history:
        if isinstance(deed, bool):
            table.compact(full=deed)
        else:
            write_changes_of_1(table, *deed)
            for kind, row in deed:
                a, b = there.pop(row["id"], (None, None))
                if kind != "-D":
                    new = row["a"] if a is None or row["a"] is None or engine == "partial-update" else a + row["a"]
                    there[row["id"]] = (a if new is None else new, b if row["b"] is None else row["b"])
        assert values_by_id(table) == there
    check_metadata(table)
