"""Expiry and tags by both sides on one table: nothing that either needs goes."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine import Table
from engine.cuts.tags import CutRecord, tag_cut
from filestore.io.file_io import SystemClock
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.live_references import changelog_references
from filestore.refs.savepoint_files import SavedCheckpoint
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.automatic_tags import create_due_tags
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, expired_tags, list_tags
from tests.peers import DELETE, INSERT, Row, TableDefinition
from tests.peers.agreement import FLUVIAL, Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of
from tests.support.tables import expire_all_but

pytestmark = pytest.mark.interop

COLUMNS = [("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING"), ("n", "INT")]
DAY_MS = 86_400_000


def is_well(table: FileTable) -> bool:
    return list(verify_files(table.store, progress=lambda done, of: None)) == []


def rows_at(peer: Any, warehouse: Path, tag: str) -> list[Row]:
    return peer.read(warehouse, "db.t", options={"scan.tag-name": tag})  # type: ignore[no-any-return]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "options", [{"changelog-producer": "input"}, {"deletion-vectors.enabled": "true"}], ids=["changelog", "vectors"]
)
def test_both_sides_expire_a_table_that_both_write(
    tmp_path: Path, java_peer: JavaPeer, assert_peers_agree: Agreement, options: dict[str, str]
) -> None:
    """Issue 6 point 7; TAG-64, TAG-65: expiry by Java on our tables and by us on Java's loses nothing."""
    definition = TableDefinition(
        columns=COLUMNS, primary_key=["pt", "k"], partition_by=["pt"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3", "manifest.merge-min-count": "3", **options},
    )  # fmt: skip
    java_peer.create(tmp_path, "db.t", definition)
    choice, contents = random.Random(7), {}
    writes_ours = "deletion-vectors.enabled" not in options
    for turn in range(12):
        rows = [{"pt": choice.choice("ab"), "k": choice.randint(0, 9), "v": f"v{turn}", "n": turn} for _ in range(6)]
        unique = list({(row["pt"], row["k"]): row for row in rows}.values())
        kinds = [DELETE if choice.random() < 0.2 else INSERT for _ in unique]
        writer: Any = FLUVIAL if turn % 3 == 1 and writes_ours else java_peer
        writer.write(tmp_path, "db.t", rows_of(definition, unique), kinds=kinds)
        table = FLUVIAL.table(tmp_path, "db.t")
        latest = table.store.snapshots.latest_id()
        assert latest is not None
        if turn in (2, 6):
            java_peer.create_tag(tmp_path, "db.t", f"java{turn}", snapshot_id=latest)
            contents[f"java{turn}"] = java_peer.read(tmp_path, "db.t")
        if turn in (4, 8):
            create_tag(table.store, f"ours{turn}", retained_ms=DAY_MS)
            contents[f"ours{turn}"] = java_peer.read(tmp_path, "db.t")
        if turn == 7:
            java_peer.expire(tmp_path, "db.t", retain=2)
        if turn in (5, 9):
            assert expire_all_but(table, keep=2)
    java_peer.compact(tmp_path, "db.t")
    assert expire_all_but(table, keep=1)
    assert is_well(table)
    rows_now = assert_peers_agree(table.store.paths.root)
    for name, expected in contents.items():
        assert rows_at(java_peer, tmp_path, name) == rows_at(FLUVIAL, tmp_path, name) == expected
    for name in sorted(contents):
        delete_tag(table.store, name)
        assert is_well(table)
    assert java_peer.read(tmp_path, "db.t") == rows_now
    java_peer.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": 1, "v": "new", "n": 99}]))
    assert assert_peers_agree(table.store.paths.root) != rows_now


def test_tags_are_read_by_everybody(tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> None:
    """TAG-23..TAG-25: a copy of the snapshot's file, with and without a retention."""
    definition = TableDefinition(columns=COLUMNS, primary_key=["pt", "k"], options={"bucket": "1"})
    FLUVIAL.create(tmp_path, "db.t", definition)
    FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": 1, "v": "x", "n": 1}]))
    table = FLUVIAL.table(tmp_path, "db.t")
    create_tag(table.store, "plain")
    create_tag(table.store, "timed", retained_ms=1500)
    java_peer.create_tag(tmp_path, "db.t", "java", snapshot_id=1)
    FLUVIAL.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": 1, "v": "y", "n": 2}]))
    table.compact(full=True)
    expire_all_but(table, keep=1)
    for name in ("plain", "timed", "java"):
        for peer in (java_peer, pypaimon_peer, FLUVIAL):
            assert [row["v"] for row in rows_at(peer, tmp_path, name)] == ["x"], (peer, name)
    assert [(tag.name, tag.snapshot.id, tag.retained_ms) for tag in list_tags(table.store)] == [
        ("java", 1, None), ("plain", 1, None), ("timed", 1, 1500),
    ]  # fmt: skip
    table.store.clock.sleep(1.6)
    assert [tag.name for tag in expired_tags(table.store)] == ["timed"]


def test_java_spares_savepoints_and_cuts(tmp_path: Path, java_peer: JavaPeer) -> None:
    """SP-20, TAG-64: Java's expiry, its deletion of other tags and its search for orphans lose nothing of a savepoint.

    Java knows the savepoint by its tag, and skips what the tag of a cut says beside its snapshot.
    """
    definition = TableDefinition(
        columns=COLUMNS, primary_key=["pt", "k"], partition_by=["pt"],
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "3", "manifest.merge-min-count": "3"},
    )  # fmt: skip
    java_peer.create(tmp_path, "db.t", definition)

    def write(turn: int) -> FileTable:
        row = {"pt": "a", "k": turn % 3, "v": f"v{turn}", "n": turn}
        writer: Any = FLUVIAL if turn % 2 else java_peer
        writer.write(tmp_path, "db.t", rows_of(definition, [row]), kinds=[INSERT])
        return FLUVIAL.table(tmp_path, "db.t")

    for turn in range(4):
        table = write(turn)
    saved = create_savepoint(table.store, keep_checkpoints=lambda _: [kept_checkpoint(table)])
    expected = java_peer.read(tmp_path, "db.t")
    java_peer.create_tag(tmp_path, "db.t", "beside", snapshot_id=saved.saved_snapshot_id)  # the same snapshot, twice
    table = write(4)
    record = CutRecord(id="c", tables={"db.t": table.store.snapshots.latest_id() or 0}, batches={})
    tag_cut({"db.t": table.store}, "cut", record)
    at_cut = java_peer.read(tmp_path, "db.t")
    for turn in range(5, 9):
        table = write(turn)
    java_peer.compact(tmp_path, "db.t")
    assert java_peer.expire(tmp_path, "db.t", retain=1) > 4
    java_peer.delete_tag(tmp_path, "db.t", "beside")
    (Path(table.store.paths.root) / "manifest/manifest-00000000-0000-4000-8000-000000000000-0").write_bytes(b"lost")
    assert java_peer.clean_orphans(tmp_path, "db.t", before_ms=2**62) >= 1
    assert is_well(table)
    assert rows_at(java_peer, tmp_path, "savepoint-1") == rows_at(FLUVIAL, tmp_path, "savepoint-1") == expected
    assert rows_at(java_peer, tmp_path, "cut") == rows_at(FLUVIAL, tmp_path, "cut") == at_cut
    assert all(table.store.io.exists(path) for path in saved.own_paths(table.store.paths))
    assert delete_savepoint(table.store, 1).metadata > set(saved.own_paths(table.store.paths))
    assert is_well(table)
    assert rows_at(java_peer, tmp_path, "cut") == at_cut


def kept_checkpoint(table: FileTable) -> SavedCheckpoint:
    directory = f"checkpoint-{table.store.names.uuid()}"
    table.store.io.write_new(f"{table.store.paths.savepoint_dir}/{directory}/offsets/7", b"v1")
    return SavedCheckpoint(
        query_id="q", commit_user="q", batch_id=7, location="/c", directory=directory, files=("offsets/7",), sources=()
    )


@dataclass(frozen=True)
class Tomorrow(SystemClock):
    """The machine's, a day ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + DAY_MS


def test_automatic_tags_and_a_rollback_are_fine_with_everybody(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, assert_peers_agree: Agreement
) -> None:
    """TAG-02, TAG-03, TAG-60: the directory of success files is no tag; Java goes on from where we went back to."""
    options = {"bucket": "1", "tag.automatic-creation": "process-time", "tag.create-success-file": "true"}
    definition = TableDefinition(columns=COLUMNS, primary_key=["pt", "k"], options=options)

    def write(peer: Any, key: int, v: str) -> None:
        peer.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": key, "v": v, "n": 1}]))

    FLUVIAL.create(tmp_path, "db.t", definition)
    write(FLUVIAL, 1, "x")
    table = FLUVIAL.table(tmp_path, "db.t")
    (ours,) = create_due_tags(replace(table.store, clock=Tomorrow())).created
    assert Path(table.store.paths.tag_success_file(ours.name)).is_file()
    write(java_peer, 1, "y")
    java_peer.create_tag(tmp_path, "db.t", "java", snapshot_id=2)
    assert Path(table.store.paths.tag_success_file("java")).is_file()  # as Java leaves it too
    assert table.store.snapshots.tag_names() == [ours.name, "java"]
    for peer in (java_peer, pypaimon_peer, FLUVIAL):
        assert [row["v"] for row in rows_at(peer, tmp_path, ours.name)] == ["x"], peer
    write(java_peer, 2, "z")
    java_peer.expire(tmp_path, "db.t", retain=1)  # Java lists the tags, past the directory
    plan = plan_rollback(table.store, table.store.snapshots.tag(ours.name))
    assert [str(each.reference) for each in plan.removals] == ["snapshot 3", "tag java"]
    roll_back(table.store, plan)
    assert is_well(table)
    assert [row["v"] for row in assert_peers_agree(table.store.paths.root)] == ["x"]
    write(java_peer, 3, "after")
    write(FLUVIAL, 4, "ours")
    assert [row["v"] for row in assert_peers_agree(table.store.paths.root)] == ["x", "after", "ours"]
    assert table.store.snapshots.ids() == [1, 2, 3]
    java_peer.create_tag(tmp_path, "db.t", "again", snapshot_id=3)
    assert is_well(table)


@pytest.mark.parametrize("producer", ["lookup", "input", "none"])
def test_both_sides_expire_changelogs_that_outlive_their_snapshots(
    tmp_path: Path, java_peer: JavaPeer, producer: str
) -> None:
    """Issue 1, finding 1: no hole is left, which would fail Java's next commit, and its changes can be read."""
    options = {
        "bucket": "1", "changelog-producer": producer, "snapshot.num-retained.max": "2",
        "snapshot.num-retained.min": "1", "changelog.num-retained.max": "6",
    }  # fmt: skip
    definition = TableDefinition(columns=COLUMNS, primary_key=["pt", "k"], partition_by=["pt"], options=options)
    java_peer.create(tmp_path, "db.t", definition)
    written = iter(range(100))

    def write(peer: Any, count: int) -> None:
        for turn in (next(written) for _ in range(count)):
            peer.write(tmp_path, "db.t", rows_of(definition, [{"pt": "a", "k": turn % 3, "v": f"v{turn}", "n": turn}]))

    def table() -> FileTable:
        return FLUVIAL.table(tmp_path, "db.t")

    write(java_peer, 7)
    assert is_well(table())
    write(FLUVIAL, 9)
    FLUVIAL.compact(tmp_path, "db.t")
    list(expire_snapshots(table().store, Retention.of(table().options)))
    assert is_well(table())
    write(java_peer, 2)
    list(expire_snapshots(table().store, Retention(min_count=1, max_count=1, age_ms=0, limit=100)))
    kept = sorted(each.snapshot_id for each in changelog_references(table().store))
    latest = table().store.snapshots.latest_id()
    assert latest is not None
    assert kept == list(range(kept[0], latest))
    assert is_well(table())
    write(java_peer, 4)
    assert is_well(table())
    assert {row["k"]: row["n"] for row in java_peer.read(tmp_path, "db.t")} == {0: 21, 1: 19, 2: 20}
    assert {row["k"]: row["n"] for row in FLUVIAL.read(tmp_path, "db.t")} == {0: 21, 1: 19, 2: 20}
    first = min(each.snapshot_id for each in changelog_references(table().store))
    start = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(first)}
    with Table(table()).stream(None, follow=False, options=start) as stream:
        changed = [row for each in stream for row in each.rows.to_pylist()]
    assert {row["k"]: row["n"] for row in changed} == {0: 21, 1: 19, 2: 20}
