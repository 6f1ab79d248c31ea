"""Branches with Paimon for Java and pypaimon: each reads and writes the others', and loses nothing by expiry."""

from pathlib import Path
from typing import Any

import pytest

from filestore.branch.branches import Branch, create_branch, delete_branch, list_branches, rename_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.maintenance.verification import verify_files
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from tests.peers import PeerError, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of
from tests.support.tables import expire_all_but

pytestmark = pytest.mark.interop

COLUMNS = [("k", "INT NOT NULL"), ("v", "STRING")]
DEFINITION = TableDefinition(columns=COLUMNS, primary_key=["k"], options={"bucket": "1"})
DEV = "db.t$branch_dev"


def put(peer: Any, warehouse: Path, table: str, *pairs: tuple[int, str]) -> None:
    peer.write(warehouse, table, rows_of(DEFINITION, [{"k": k, "v": v} for k, v in pairs]))


def seen(peer: Any, warehouse: Path, table: str, **more: Any) -> dict[int, str]:
    return {row["k"]: row["v"] for row in peer.read(warehouse, table, **more)}


def is_well(table: FileTable) -> bool:
    return list(verify_files(table.store, progress=lambda done, of: None)) == []


def test_others_read_and_write_our_branches(tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> None:
    """BR-22, BR-49, BR-50; Traps 5, 14: and neither side's expiry of main or of the branch takes what is needed."""
    FLUVIAL.create(tmp_path, "db.t", DEFINITION)
    put(FLUVIAL, tmp_path, "db.t", (1, "a"))
    put(FLUVIAL, tmp_path, "db.t", (2, "b"))
    table = FLUVIAL.table(tmp_path, "db.t")
    create_branch(table.store, "dev", snapshot_id=2)
    base = {1: "a", 2: "b"}
    peers: list[Any] = [java_peer, pypaimon_peer, FLUVIAL]
    for peer in peers:
        assert seen(peer, tmp_path, DEV) == base
        put(peer, tmp_path, DEV, (1, peer.name))
        base[1] = peer.name
        put(peer, tmp_path, "db.t", (5, peer.name))
    java_peer.compact(tmp_path, "db.t")
    java_peer.expire(tmp_path, "db.t", retain=1)
    expire_all_but(table, keep=1)
    branch = table.on_branch("dev")
    for peer in peers:
        assert seen(peer, tmp_path, DEV) == base
        assert seen(peer, tmp_path, "db.t") == {1: "a", 2: "b", 5: "fluvial"}
    java_peer.compact(tmp_path, DEV)
    java_peer.expire(tmp_path, DEV, retain=1)
    put(java_peer, tmp_path, DEV, (6, "java"))
    expire_all_but(branch, keep=1)
    for peer in peers:
        assert seen(peer, tmp_path, DEV) == {**base, 6: "java"}
        assert seen(peer, tmp_path, "db.t") == {1: "a", 2: "b", 5: "fluvial"}
    assert is_well(table)
    merge_branch(table.store, "dev", force=True)
    for peer in peers:
        assert seen(peer, tmp_path, "db.t") == {**base, 6: "java"}
    put(java_peer, tmp_path, DEV, (7, "java"))
    java_peer.compact(tmp_path, DEV)
    java_peer.expire(tmp_path, DEV, retain=1)
    java_peer.compact(tmp_path, "db.t")
    java_peer.expire(tmp_path, "db.t", retain=1)
    assert seen(java_peer, tmp_path, "db.t") == {**base, 6: "java"}
    assert seen(FLUVIAL, tmp_path, DEV) == {**base, 6: "java", 7: "java"}
    delete_branch(table.store, "dev")
    assert seen(java_peer, tmp_path, "db.t") == {**base, 6: "java"}
    assert is_well(table)


NAMES = ["eod", "2026-01-31 07", "[ab]", 'a"b', "a%20b", "ü—日本", "a#b", "a;b", "a+b=c", "x'y"]


def test_java_lists_every_name_that_a_tag_or_branch_may_have(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Issue 16 point 4: its expiry lists all tags and branches."""
    FLUVIAL.create(tmp_path, "db.t", DEFINITION)
    put(FLUVIAL, tmp_path, "db.t", (1, "a"))
    table = FLUVIAL.table(tmp_path, "db.t")
    for name in NAMES:
        create_tag(table.store, name)
        create_branch(table.store, name, tag=name)
    for value in ("b", "c"):
        put(FLUVIAL, tmp_path, "db.t", (1, value))
    assert java_peer.expire(tmp_path, "db.t", retain=1) == 2
    for name in NAMES:
        assert seen(java_peer, tmp_path, "db.t", options={"scan.tag-name": name}) == {1: "a"}, name
        assert seen(java_peer, tmp_path, f"db.t$branch_{name}") == {1: "a"}, name
    assert is_well(table)


def test_we_read_write_merge_and_delete_branches_of_java(tmp_path: Path, java_peer: JavaPeer) -> None:
    """BR-50: they have no note of where they began; their tag says it."""
    java_peer.create(tmp_path, "db.t", DEFINITION)
    put(java_peer, tmp_path, "db.t", (1, "a"))
    java_peer.create_tag(tmp_path, "db.t", "t", snapshot_id=1)
    java_peer.create_branch(tmp_path, "db.t", "dev", tag="t")
    java_peer.create_branch(tmp_path, "db.t", "empty")
    table = FLUVIAL.table(tmp_path, "db.t")
    assert list_branches(table.store) == [
        Branch(name="dev", tag="t", snapshot_id=1), Branch(name="empty", tag=None, snapshot_id=None)
    ]  # fmt: skip
    put(java_peer, tmp_path, DEV, (2, "java"))
    put(FLUVIAL, tmp_path, DEV, (3, "ours"))
    assert seen(java_peer, tmp_path, DEV) == {1: "a", 2: "java", 3: "ours"}
    rename_branch(table.store, "dev", "fix")
    put(java_peer, tmp_path, "db.t$branch_fix", (4, "java"))
    merge_branch(table.store, "fix")
    expire_all_but(table, keep=1)
    wanted = {1: "a", 2: "java", 3: "ours", 4: "java"}
    assert seen(java_peer, tmp_path, "db.t") == seen(FLUVIAL, tmp_path, "db.t") == wanted
    for name in ("fix", "empty"):
        delete_branch(table.store, name)
    assert seen(java_peer, tmp_path, "db.t") == wanted
    assert is_well(table)


def test_what_others_see_of_a_main_that_was_forwarded_replaced_and_moved_back(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    """BR-20, BR-27, BR-32, BR-50: a replaced main by the branch's name only; after that the table as ever."""
    FLUVIAL.create(tmp_path, "db.t", DEFINITION)
    put(FLUVIAL, tmp_path, "db.t", (1, "a"))
    table = FLUVIAL.table(tmp_path, "db.t")
    create_branch(table.store, "dev", snapshot_id=1)
    put(java_peer, tmp_path, DEV, (2, "b"))
    fast_forward(table.store, "dev")
    peers: list[Any] = [java_peer, pypaimon_peer, FLUVIAL]
    for peer in peers:
        assert seen(peer, tmp_path, "db.t") == {1: "a", 2: "b"}
    put(java_peer, tmp_path, "db.t", (3, "lost"))
    replace_main(table.store, "dev")
    for peer in (java_peer, pypaimon_peer):
        with pytest.raises(PeerError):
            peer.read(tmp_path, "db.t")
        put(peer, tmp_path, DEV, (4, peer.name))
    for peer in peers:
        assert seen(peer, tmp_path, DEV) == {1: "a", 2: "b", 4: "pypaimon"}
    assert seen(FLUVIAL, tmp_path, "db.t") == {1: "a", 2: "b", 4: "pypaimon"}
    replace_main(FLUVIAL.table(tmp_path, "db.t").store, "main")
    for peer in peers:
        assert seen(peer, tmp_path, "db.t") == {1: "a", 2: "b", 4: "pypaimon"}
    for peer in peers:
        put(peer, tmp_path, "db.t", (5, peer.name))
    assert seen(pypaimon_peer, tmp_path, "db.t")[5] == "fluvial"
    java_peer.compact(tmp_path, "db.t")
    java_peer.expire(tmp_path, "db.t", retain=1)
    assert is_well(FLUVIAL.table(tmp_path, "db.t"))
