"""Iceberg metadata beside Java: Iceberg's own reader of ours, and Paimon's metadata of the same table."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.compact.compactor import compact_buckets
from filestore.compact.row_order import RowOrder
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.iceberg.publication import publish_iceberg
from filestore.scan.snapshot_files import deletion_indexes
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import DataType
from tests.peers import PeerError, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.duckdb_peer import DuckDB
from tests.peers.iceberg_java import IcebergJava
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of
from tests.support.iceberg import live_entries, metadata_json
from tests.support.tables import expire_all_but

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
VECTORS = {"metadata.iceberg.format-version": "3", "deletion-vectors.enabled": "true"}
VECTORS |= {"num-sorted-run.compaction-trigger": "6", "compaction.max-size-amplification-percent": "100000"}
VECTORS |= {"deletion-vectors.bitmap64": "true", "metadata.iceberg.storage": "table-location"}


def several(ids: range, v: str) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


@pytest.mark.long
def test_vectors_show_each_commit_to_iceberg(tmp_path: Path, iceberg_java: IcebergJava, duckdb_peer: DuckDB) -> None:
    """Issue 20 point 1: version 3; updates and deletes are seen as of each commit, by tag, and on a branch."""
    table = FileCatalog(str(tmp_path)).create_table(
        "db.t", SCHEMA, primary_key=["id"], options={"bucket": "2", **VECTORS}
    )
    root, store = table.store.paths.root, table.store
    states: dict[int, Any] = {}
    vectors = 0
    for turn in range(7):
        table.write(several(range(turn, turn + 6), f"v{turn}"))
        if turn % 3 == 1:
            table.write(several(range(turn, turn + 2), ""), pa.array([3, 3], pa.int8()))
        table.compact()
        newest = store.snapshots.latest_id()
        assert newest is not None
        states[newest] = sorted(tuple(row.values()) for row in table.read().to_arrow().to_pylist())
        assert sorted(iceberg_java.read(root)) == states[newest]
        if turn == 2:
            create_tag(store, "eod")
            tagged = states[newest]
            create_branch(store, "dev", tag="eod")
            branch = table.on_branch("dev")
            branch.write(several(range(1, 4), "of dev"))
            branch.write(several(range(20, 22), "of dev"))
            branch.write(several(range(5, 7), ""), pa.array([3, 3], pa.int8()))
            branch.compact()
        if _vectors(table) and not vectors:  # refused, not read without them
            with pytest.raises(PeerError, match="not a valid Puffin file"):
                duckdb_peer.read(root)
        vectors = max(vectors, _vectors(table))
    table.compact(full=True)
    assert sorted(iceberg_java.read(root)) == states[max(states)]
    assert sorted(iceberg_java.read(root, ref="eod")) == tagged
    of_branch = sorted(tuple(row.values()) for row in branch.read().to_arrow().to_pylist())
    assert (20, "of dev") in of_branch
    assert sorted(iceberg_java.read(root, ref="dev")) == of_branch
    for snapshot_id, state in states.items():
        assert sorted(iceberg_java.read(root, snapshot_id=snapshot_id)) == state
    assert vectors > 0
    marked = [each for group in deletion_indexes(store, store.snapshots.latest()).values() for each in group]
    assert _vectors(table) == sum(len(each.index_vectors) for each in marked)


def test_duckdb_reads_what_we_read(tmp_path: Path, duckdb_peer: DuckDB) -> None:
    """Issue 20 point 1: version 2; overwrites, clustering, a branch, changed columns, expiry, time travel, filters."""
    catalog = FileCatalog(str(tmp_path))
    schema = pa.schema([("pt", pa.string()), ("id", pa.int64()), ("v", pa.float64())])
    options = {"metadata.iceberg.storage": "table-location", "metadata.iceberg.compaction.min.file-num": "3"}
    table = catalog.create_table("db.t", schema, partition_by=["pt"], options=options)
    root = table.store.paths.root
    states: dict[int, Any] = {}

    def check() -> None:
        states[table.store.snapshots.latest_id() or 0] = sorted(
            (tuple(row.values()) for row in table.read().to_arrow().to_pylist()), key=nulls_last
        )
        assert duckdb_peer.read(root) == states[table.store.snapshots.latest_id() or 0]

    for turn in range(6):
        ids = range(turn * 10, turn * 10 + 10)
        table.write(pa.table({"pt": ["a", "b"] * 5, "id": ids, "v": [None, float(turn)] * 5}, schema=schema))
        check()
    create_branch(table.store, "dev", snapshot_id=max(states))
    table.on_branch("dev").write(pa.table({"pt": ["c"], "id": [70], "v": [0.5]}, schema=schema))
    table.overwrite(pa.table({"pt": ["b"], "id": [7], "v": [0.5]}, schema=schema), {"pt": "b"})
    check()
    head = metadata_json(table)["refs"]["dev"]["snapshot-id"]
    of_branch = [tuple(row.values()) for row in table.on_branch("dev").read().to_arrow().to_pylist()]
    assert duckdb_peer.read(root, snapshot_id=head) == sorted(of_branch, key=nulls_last)
    compact_buckets(table.store, order=RowOrder.of(table.store.schema, ["v", "id"], "hilbert"))
    check()
    assert duckdb_peer.read(root, where="pt = 'a' AND id BETWEEN 12 AND 16") == [
        each for each in states[max(states)] if each[0] == "a" and 12 <= each[1] <= 16
    ]
    expire_all_but(table, 4)
    catalog.alter_table(
        "db.t", [RenameColumn(path=("v",), name="w"), AddColumn(path=("n",), type=DataType(root="INT"))]
    )
    before = max(states)
    table = catalog.table("db.t")
    table.write(pa.table({"pt": ["c"], "id": [99], "w": [1.5], "n": pa.array([3], pa.int32())}))
    check()
    assert duckdb_peer.read(root, snapshot_id=before) == [row[:3] for row in states[before]]
    with pytest.raises(PeerError, match="snapshot"):
        duckdb_peer.read(root, snapshot_id=1)


def nulls_last(row: tuple[Any, ...]) -> list[Any]:
    return [(value is None, value) for value in row]


def _vectors(table: FileTable) -> int:
    return sum(each["content"] == 1 for each in live_entries(metadata_json(table)).values())


DEFINITION = TableDefinition(
    columns=[
        ("pt", "STRING NOT NULL"),
        ("k", "INT NOT NULL"),
        ("v", "STRING"),
        ("n", "DOUBLE"),
        ("d", "DECIMAL(10, 2)"),
        ("t", "TIMESTAMP(3)"),
        ("b", "BIGINT"),
    ],
    primary_key=["pt", "k"],
    partition_by=["pt"],
    options={"bucket": "1", "metadata.iceberg.storage": "table-location", "num-sorted-run.compaction-trigger": "3"},
)


def keys_of(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(row[:2] for row in rows)


def write_pairs(peer: Any, warehouse: Path, start: int, name: str = "db.t") -> None:
    given = [
        {"pt": pt, "k": k, "v": f"v{start}", "n": float(k), "d": None, "t": None, "b": -k}
        for pt in "ab"
        for k in range(start, start + 3)
    ]
    peer.write(warehouse, name, rows_of(DEFINITION, given))


def test_our_metadata_is_paimons(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Issue 20 point 1: of one table, field by field: schemas, partitions, and every live file's entry, but its order.

    Java's Paimon leaves files of a key unsorted for Iceberg; they are sorted by it, by any engine.
    """
    java_peer.create(tmp_path, "db.t", DEFINITION)
    write_pairs(java_peer, tmp_path, 0)
    java_peer.compact(tmp_path, "db.t")
    table = FileCatalog(str(tmp_path)).table("db.t")
    theirs = metadata_json(table)
    their_files = live_entries(theirs)
    shutil.rmtree(tmp_path / "db.db" / "t" / "metadata")
    publish_iceberg(table.store)
    ours = metadata_json(table)
    differ = {  # times are of the clock there, of the snapshot here
        "table-uuid",
        "last-updated-ms",
        "snapshots",
        "properties",
        "refs",
        "snapshot-log",
        "metadata-log",
        "sort-orders",
        "default-sort-order-id",
    }
    assert {key: ours[key] for key in theirs if key not in differ} == {
        key: value for key, value in theirs.items() if key not in differ
    }
    assert [each["order-id"] for each in theirs["sort-orders"]] == [0]
    by_key = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    assert ours["sort-orders"] == [*theirs["sort-orders"], {"order-id": 1, "fields": [by_key]}]
    assert ours["default-sort-order-id"] == 1
    ids = ("snapshot-id", "sequence-number", "schema-id")
    assert {key: ours["snapshots"][-1][key] for key in ids} == {key: theirs["snapshots"][-1][key] for key in ids}
    our_files = live_entries(ours)
    assert our_files.keys() == their_files.keys()
    assert len(our_files) == 2
    for path, entry in their_files.items():
        known = {key: value for key, value in entry.items() if value is not None}
        assert {key: our_files[path][key] for key in known} == known
        assert (our_files[path]["sort_order_id"], entry.get("sort_order_id")) == (1, None)


@pytest.mark.long
def test_paimon_and_we_go_on_with_each_others_metadata(
    tmp_path: Path, java_peer: JavaPeer, iceberg_java: IcebergJava
) -> None:
    """Issue 20 point 1: each commits in turn; Iceberg reads the table's rows after each turn, and the history grows.

    Java drops the order of a key and the branch, and we bring them back.
    """
    java_peer.create(tmp_path, "db.t", DEFINITION)
    root = tmp_path / "db.db" / "t"
    for turn in range(4):
        peer = (java_peer, FLUVIAL)[turn % 2]
        write_pairs(peer, tmp_path, turn)
        peer.compact(tmp_path, "db.t")
        is_ours, found = turn % 2 == 1, iceberg_java.table(str(root))
        assert found.sortOrders().keySet().contains(1) == is_ours
        assert found.refs().containsKey("dev") == is_ours
        assert keys_of(iceberg_java.read(str(root))) == [(pt, k) for pt in "ab" for k in range(turn + 3)]
        if turn == 0:
            table = FileCatalog(str(tmp_path)).table("db.t")
            create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
        if is_ours:
            write_pairs(FLUVIAL, tmp_path, 20 + turn, name="db.t$branch_dev")
            FLUVIAL.compact(tmp_path, "db.t$branch_dev")
            branch = FileCatalog(str(tmp_path)).table("db.t$branch_dev").read().to_arrow().to_pylist()
            assert keys_of(iceberg_java.read(str(root), ref="dev")) == keys_of(tuple(row.values()) for row in branch)
            assert keys_of(iceberg_java.read(str(root))) == [(pt, k) for pt in "ab" for k in range(turn + 3)]
    hint = (root / "metadata" / "version-hint.text").read_text()
    shown = json.loads((root / "metadata" / f"v{hint}.metadata.json").read_text())["snapshots"]
    assert len(shown) >= 2
