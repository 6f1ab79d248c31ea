"""What streams need of tables that Java writes too: its changes, read from files, and places that both sides know."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.changelog.snapshot_changes import ChangeSplit, plan_changelog, plan_changes, plan_diff, read_changes
from filestore.snapshot.change_tracking import ChangeSource, changes_of
from filestore.table import FileTable
from lsm.row_kind import RowKind
from tests.peers import DELETE, INSERT, TableDefinition, normalise
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING"), ("n", "INT")]
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "deletion-vectors": {"deletion-vectors.enabled": "true"},
    "lookup": {"changelog-producer": "lookup"},
    "input": {"changelog-producer": "input"},
    "partial-update": {"merge-engine": "partial-update"},
    "first-row": {"merge-engine": "first-row"},
}


def apply(table: FileTable, splits: tuple[ChangeSplit, ...], state: dict[Any, Any]) -> None:
    for split in splits:
        for batch, kinds in read_changes(table, split):
            for kind, row in zip(kinds.to_pylist(), batch.to_pylist(), strict=True):
                key = (row["pt"], row["k"])
                if RowKind(kind).is_retract:
                    state.pop(key, None)
                else:
                    state[key] = row


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_java_give_its_table_at_every_snapshot(tmp_path: Path, java_peer: JavaPeer, kind: str) -> None:
    """FL-33: commits of another engine are read from files; its compactions, and changelogs of these, add nothing."""
    definition = TableDefinition(
        columns=COLUMNS,
        primary_key=["pt", "k"],
        partition_by=["pt"],
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "3", **KINDS[kind]},
    )
    java_peer.create(tmp_path, "db.t", definition)
    choice = random.Random(kind)
    takes_deletes = kind in ("plain", "deletion-vectors", "lookup", "input")
    for turn in range(7):
        rows = []
        for _ in range(choice.randint(1, 12)):
            value = None if choice.random() < 0.3 else f"v{turn}"
            rows.append({"pt": choice.choice("ab"), "k": choice.randint(0, 9), "v": value, "n": turn})
        kinds = [DELETE if takes_deletes and choice.random() < 0.3 else INSERT for _ in rows]
        java_peer.write(tmp_path, "db.t", rows_of(definition, rows), kinds=kinds)
    java_peer.compact(tmp_path, "db.t")
    table = FLUVIAL.table(tmp_path, "db.t")
    state: dict[Any, Any] = {}
    previous = None
    for snapshot_id in table.store.snapshots.ids():
        snapshot = table.store.snapshots.read(snapshot_id)
        assert snapshot.is_external
        if changes_of(snapshot, has_log=False) is ChangeSource.FILES:
            apply(table, plan_changes(table.store, previous, snapshot), state)
        whole: dict[Any, Any] = {}
        apply(table, plan_diff(table.store, None, snapshot), whole)
        assert whole == state, f"snapshot {snapshot_id} {snapshot.commit_kind}"
        previous = snapshot
    assert normalise(rows_of(definition, state.values())) == java_peer.read(tmp_path, "db.t")


def test_consumers_of_both_sides_hold_back_expiry(tmp_path: Path, java_peer: JavaPeer) -> None:
    """FL-57: consumer-id is Paimon's."""
    definition = TableDefinition(columns=COLUMNS, primary_key=["pt", "k"], options={"bucket": "1"})
    FLUVIAL.create(tmp_path, "db.t", definition)
    for turn in range(5):
        FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": turn, "v": "x", "n": turn}]))
    table = FLUVIAL.table(tmp_path, "db.t")
    table.store.consumers.write("ours", 3)
    java_peer.reset_consumer(tmp_path, "db.t", "theirs", 4)
    assert java_peer.consumers(tmp_path, "db.t") == {"ours": 3, "theirs": 4} == table.store.consumers.next_snapshots()
    java_peer.expire(tmp_path, "db.t", retain=1)
    assert table.store.snapshots.ids() == [3, 4, 5]
    assert pa.Table.from_batches(
        [
            batch
            for split in plan_changes(table.store, None, table.store.snapshots.read(3))
            for batch, _ in read_changes(table, split)
        ]
    ).column("k").to_pylist() == [2]
    table.store.consumers.delete("ours")
    java_peer.expire(tmp_path, "db.t", retain=1)
    assert table.store.snapshots.ids() == [4, 5]


COMPACTED: dict[str, dict[str, str]] = {
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {"changelog-producer": "full-compaction"},
    "lookup-partial-update": {"changelog-producer": "lookup", "merge-engine": "partial-update"},
    "lookup-first-row": {"changelog-producer": "lookup", "merge-engine": "first-row"},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", COMPACTED)
def test_java_and_we_go_on_with_each_others_changelogs(tmp_path: Path, java_peer: JavaPeer, kind: str) -> None:
    """FL-135: both write and compact one table in turn; either's readers get the same changes, which add up to it."""
    definition = TableDefinition(
        columns=COLUMNS, primary_key=["pt", "k"], partition_by=["pt"], options={"bucket": "1", **COMPACTED[kind]}
    )
    FLUVIAL.create(tmp_path, "db.t", definition)
    choice = random.Random(kind)
    state: dict[Any, Any] = {}
    seen = 0
    for turn in range(6):
        is_ours = turn % 2 == 0
        rows = [
            {"pt": choice.choice("ab"), "k": choice.randint(0, 9), "v": choice.choice([None, f"v{turn}"]), "n": turn}
            for _ in range(6)
        ]
        takes_deletes = kind in ("lookup", "full-compaction")
        kinds = [DELETE if takes_deletes and choice.random() < 0.3 else INSERT for _ in rows]
        (FLUVIAL if is_ours else java_peer).write(tmp_path, "db.t", rows_of(definition, rows), kinds=kinds)
        table = FLUVIAL.table(tmp_path, "db.t")
        if is_ours:
            table.compact(full=True)
        else:
            java_peer.compact(tmp_path, "db.t")
        newest = table.store.snapshots.latest_id() or 0
        theirs = java_peer.changes(tmp_path, "db.t", after=seen, until=newest) if seen else []
        ours = []
        for snapshot_id in range(seen + 1, newest + 1):
            for split in plan_changelog(table.store, None, table.store.snapshots.read(snapshot_id)):
                for batch, numbers in read_changes(table, split):
                    ours += list(zip(numbers.to_pylist(), normalise(pa.Table.from_batches([batch])), strict=True))
        assert ours, f"turn {turn}"
        if seen:
            assert sorted(map(repr, theirs)) == sorted(map(repr, ours))
        for number, row in ours:
            key = (row["pt"], row["k"])
            assert (key in state) == RowKind(number).is_retract or number == RowKind.UPDATE_AFTER
            if RowKind(number).is_retract:
                assert state.pop(key) == row
            else:
                state[key] = row
        assert normalise(rows_of(definition, state.values())) == java_peer.read(tmp_path, "db.t"), f"turn {turn}"
        seen = newest
