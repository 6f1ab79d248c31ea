"""A table against a dictionary: whatever is done in whatever order, both say the same."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from filestore.commit.committable import Committable
from filestore.commit.table_commit import TableCommit
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import SnapshotRef
from filestore.table import FileTable
from filestore.write.table_write import TableWrite
from lsm.row_kind import RowKind
from tests.support.rows import rows_by
from tests.support.tables import check_metadata, memory_catalog, referenced_files

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int32()), ("v", pa.int64()), ("s", pa.string())])
Row = dict[str, Any]
Oracle = dict[tuple[str, int], Row]


def deduplicate(old: Row | None, new: Row) -> Row:
    return new


def partial_update(old: Row | None, new: Row) -> Row:
    return new if old is None else {name: old[name] if new[name] is None else new[name] for name in new}


def sum_up(old: Row | None, new: Row) -> Row:
    if old is None:
        return new
    total = None if old["v"] is None and new["v"] is None else (old["v"] or 0) + (new["v"] or 0)
    return {**new, "v": total, "s": old["s"] if new["s"] is None else new["s"]}


def by_sequence(old: Row | None, new: Row) -> Row:
    """``sequence.field=v``: null is oldest, of equal ones the later row wins."""
    least = -(2**63)
    return (
        new
        if old is None or (least if new["v"] is None else new["v"]) >= (least if old["v"] is None else old["v"])
        else old
    )


SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
ENGINES: Mapping[str, tuple[Callable[[Row | None, Row], Row], Mapping[str, str], bool]] = {
    "deduplicate": (deduplicate, {}, True),
    "sequence-field": (by_sequence, {"sequence.field": "v"}, False),
    "partial-update": (partial_update, {"merge-engine": "partial-update"}, False),
    "aggregation": (sum_up, SUM, False),
}

row_values = st.fixed_dictionaries(
    {
        "p": st.sampled_from(["a", "b"]),
        "id": st.integers(0, 12),
        "v": st.none() | st.integers(-3, 30),
        "s": st.none() | st.sampled_from(["x", "yy", "zzzzzzzzzzzzzzzzzzzzzzzz"]),
    }
)


class TableModel(RuleBasedStateMachine):
    """One writer that commits, is reopened and compacts, next to a dictionary."""

    engine = "deduplicate"
    style = "universal"

    def __init__(self) -> None:
        super().__init__()
        self.fold, self.engine_options, self.takes_deletes = ENGINES[self.engine]
        self.oracle: Oracle = {}
        self.history: dict[int, Oracle] = {}
        self.pending: list[tuple[Row, RowKind]] = []
        self.identifier = 0

    @initialize(
        buckets=st.integers(1, 3),
        partitioned=st.booleans(),
        trigger=st.integers(2, 4),
        file_bytes=st.sampled_from(["1 b", "128 mb"]),
        file_format=st.sampled_from(["parquet", "parquet", "avro", "orc"]),
    )
    def create(self, buckets: int, partitioned: bool, trigger: int, file_bytes: str, file_format: str) -> None:
        options = {
            "bucket": str(buckets),
            "num-sorted-run.compaction-trigger": str(trigger),
            "level0_file_num_compaction_trigger": str(trigger),
            "max_bytes_for_level_base": "10000",
            "target-file-size": file_bytes,
            "target-file-row-num": "3",
            "compaction.style": self.style,
            "file.format": file_format,
            "manifest.merge-min-count": "3",
            "source.split.open-file-cost": "1 b",
            **self.engine_options,
        }
        self.table: FileTable = memory_catalog().create_table(
            "db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"] if partitioned else [], options=options
        )
        self.view = LiveFiles.latest(self.table.store)
        self.open_writer()

    def open_writer(self) -> None:
        self.view.advance()
        self.base_id = self.view.snapshot_id
        self.writer = TableWrite(self.table, max_sequence_numbers=self.view.max_sequence_numbers(), budget_bytes=2_000)

    @rule(data=st.lists(st.tuples(row_values, st.sampled_from([0, 0, 2, 3])), min_size=1, max_size=12))
    def write(self, data: list[tuple[Row, int]]) -> None:
        changes = [(row, RowKind(kind if self.takes_deletes else 0)) for row, kind in data]
        rows = pa.Table.from_pylist([row for row, _ in changes], schema=SCHEMA)
        self.writer.write(rows, pa.array([int(kind) for _, kind in changes], pa.int8()))
        self.pending += changes

    @rule()
    def flush(self) -> None:
        self.writer.flush()

    @rule()
    def commit(self) -> None:
        messages = self.writer.prepare_commit()
        committable = Committable(identifier=self.identifier, messages=messages, base=SnapshotRef(self.base_id, ""))
        result = TableCommit(self.table.store, "model").commit(committable)
        assert result.snapshot is not None
        assert TableCommit(self.table.store, "model").commit(committable).already_committed
        self.identifier += 1
        self.base_id = result.snapshot.id
        for row, kind in self.pending:
            key = (row["p"], row["id"])
            if kind is RowKind.DELETE:
                self.oracle.pop(key, None)
            else:
                self.oracle[key] = self.fold(self.oracle.get(key), row)
        self.pending = []
        self.remember()

    @rule()
    def reopen(self) -> None:
        self.writer.abort()
        self.pending = []
        self.table = FileTable.open(
            "db.t",
            self.table.store.paths.root,
            io=self.table.store.io,
            clock=self.table.store.clock,
            names=self.table.store.names,
        )
        self.view = LiveFiles.latest(self.table.store)
        self.open_writer()

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        if self.table.compact(full=full) is None:
            return
        if full:
            live = LiveFiles.latest(self.table.store)
            for key in live.buckets():
                levels = live.levels(key)
                assert len(levels.runs) == 1
                assert levels.runs[0].delete_count == 0
        self.remember()

    @precondition(lambda self: not self.pending)
    @rule(data=st.lists(row_values, max_size=5))
    def overwrite(self, data: list[Row]) -> None:
        by_key = {(row["p"], row["id"]): row for row in data}
        if self.engine != "deduplicate":
            data = list(by_key.values())
        self.table.overwrite(pa.Table.from_pylist(data, schema=SCHEMA))
        gone = {row["p"] for row in data} if self.table.schema.partition_keys else {"a", "b"}
        self.oracle = {key: row for key, row in self.oracle.items() if key[0] not in gone} | by_key
        self.remember()
        self.writer.abort()
        self.open_writer()

    @rule(
        low=st.integers(0, 12),
        length=st.integers(0, 5),
        text=st.sampled_from(["", " and p = 'a'", " and v > 10", " and s is null", " and (s <> 'x' or v < 0)"]),
        columns=st.permutations(SCHEMA.names),
        count=st.integers(1, 4),
    )
    def read_some(self, low: int, length: int, text: str, columns: list[str], count: int) -> None:
        found = self.table.read().to_arrow(
            columns=columns[:count], filter=f"id >= {low} and id <= {low + length}{text}"
        )
        test: Callable[[Row], bool | None] = {
            "": lambda row: True,
            " and p = 'a'": lambda row: row["p"] == "a",
            " and v > 10": lambda row: row["v"] is not None and row["v"] > 10,
            " and s is null": lambda row: row["s"] is None,
            " and (s <> 'x' or v < 0)": lambda row: (
                (row["s"] is not None and row["s"] != "x") or (row["v"] is not None and row["v"] < 0)
            ),
        }[text]
        expected = [row for row in self.oracle.values() if low <= row["id"] <= low + length and test(row)]
        assert found.column_names == columns[:count]
        assert sorted(map(repr, found.to_pylist())) == sorted(
            repr({name: row[name] for name in columns[:count]}) for row in expected
        )

    @rule(data=st.data())
    def travel(self, data: st.DataObject) -> None:
        if self.history:
            snapshot_id = data.draw(st.sampled_from(sorted(self.history)))
            assert rows_by(("p", "id"), self.table, snapshot_id=snapshot_id) == self.history[snapshot_id]

    @invariant()
    def the_view_is_the_table(self) -> None:
        if not hasattr(self, "view"):
            return
        self.view.advance()
        fresh = LiveFiles.latest(self.table.store)
        assert {key: {*self.view.files(key)} for key in self.view.buckets()} == {
            key: {*fresh.files(key)} for key in fresh.buckets()
        }
        assert self.view.max_sequence_numbers() == fresh.max_sequence_numbers()

    def remember(self) -> None:
        assert rows_by(("p", "id"), self.table) == self.oracle
        latest_id = self.table.store.snapshots.latest_id()
        if latest_id is not None:
            self.history[latest_id] = dict(self.oracle)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.writer.abort()
            check_metadata(self.table)
            data_files = {name for name in self.table.store.io.files if "/bucket-" in name}  # type: ignore[attr-defined]
            assert data_files == referenced_files(self.table), "orphans, or files that are missing"


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("style", ["universal", "leveled"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_is_a_dictionary(engine: str, style: str) -> None:
    """FL-139, FL-160 to FL-182: writes, deletes, flushes, compactions, overwrites, reopened writers, filtered reads."""
    model = type("Model", (TableModel,), {"engine": engine, "style": style})
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "25")),
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
