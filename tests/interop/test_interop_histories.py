"""Random histories of versions, read by Paimon for Java: every branch and tag, the oldest and the newest snapshots."""

import os
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from filestore.branch.main_replacement import replace_main
from filestore.layout.paths import MAIN_BRANCH
from tests.filestore.branch.test_branch_histories import BranchedTable, branched_table
from tests.filestore.refs.test_file_references import OPTIONS, Content
from tests.interop.test_interop_branches import DEFINITION, DEV, put, seen
from tests.peers import PeerError
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.support.roots import branches_of
from tests.support.tables import reopened

STEPS = 60


def on_disk(versioned: BranchedTable, warehouse: Path) -> None:
    """The table's files, with main where other engines look for it."""
    if versioned.table.store.paths.branch != MAIN_BRANCH:
        replace_main(versioned.table.store, MAIN_BRANCH)
        versioned.table = reopened(versioned.table, versioned.io)
    for name, body in versioned.io.files.items():
        path = warehouse / Path(name).relative_to("/warehouse")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2, 2 + int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "1"))))
@pytest.mark.parametrize(("kind", "nests"), [*zip(OPTIONS, cycle([False, True]), strict=False)])
def test_java_reads_what_a_history_left(tmp_path: Path, java_peer: JavaPeer, kind: str, nests: bool, seed: int) -> None:
    """Issue 16: after tags, savepoints, branches, merges, fast-forwards, replaced mains, rollbacks and expiries."""
    versioned = branched_table(kind, seed, steps=STEPS, nests=nests)
    on_disk(versioned, tmp_path)
    states = 0

    def found(name: str, **more: Any) -> Content:
        return frozenset((row["p"], row["id"], row["v"]) for row in java_peer.read(tmp_path, name, **more))

    for table in branches_of(versioned.table):
        branch, snapshots = table.store.paths.branch, table.store.snapshots
        name = "db.t" if branch == MAIN_BRANCH else f"db.t$branch_{branch}"
        ids = snapshots.ids()
        for each in {*ids[:1], *ids[-1:]}:
            assert found(name, snapshot_id=each) == versioned.content(table, snapshot_id=each), (name, each)
        tags = snapshots.tag_names() if branch == MAIN_BRANCH else []  # see below
        for tag in tags:
            travel = {"scan.tag-name": tag}
            assert found(name, options=travel) == versioned.content(table, tag=tag), (name, tag)
        states += len({*ids[:1], *ids[-1:]}) + len(tags)
    assert states > 2


def test_java_travels_to_tags_of_main_only(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Also on branches that it made: it looks for each name among the tags of main."""
    java_peer.create(tmp_path, "db.t", DEFINITION)
    put(java_peer, tmp_path, "db.t", (1, "a"))
    java_peer.create_tag(tmp_path, "db.t", "start", snapshot_id=1)
    java_peer.create_branch(tmp_path, "db.t", "dev", tag="start")
    put(java_peer, tmp_path, DEV, (2, "b"))
    java_peer.create_tag(tmp_path, DEV, "own", snapshot_id=2)
    with pytest.raises(PeerError, match="Tag 'own' doesn't exist"):
        java_peer.read(tmp_path, DEV, options={"scan.tag-name": "own"})
    assert seen(FLUVIAL, tmp_path, DEV, options={"scan.tag-name": "own"}) == {1: "a", 2: "b"}
