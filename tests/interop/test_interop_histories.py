"""Random histories of versions, read by Paimon for Java: every branch and tag, the oldest and the newest snapshots."""

from pathlib import Path
from typing import Any

import pytest

from filestore.branch.main_replacement import replace_main
from filestore.layout.paths import MAIN_BRANCH
from tests.filestore.branch.test_branch_histories import BranchedTable, branched_table
from tests.filestore.refs.test_file_references import OPTIONS, Content
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


@pytest.mark.parametrize("nests", [False, True], ids=["", "nested"])
@pytest.mark.parametrize("kind", OPTIONS)
def test_java_reads_what_a_history_left(tmp_path: Path, java_peer: JavaPeer, kind: str, nests: bool) -> None:
    """Issue 16: after tags, savepoints, branches, merges, fast-forwards, replaced mains, rollbacks and expiries."""
    versioned = branched_table(kind, 1, steps=STEPS, nests=nests)
    on_disk(versioned, tmp_path)
    states = 0

    def seen(name: str, **more: Any) -> Content:
        return frozenset((row["p"], row["id"], row["v"]) for row in java_peer.read(tmp_path, name, **more))

    for table in branches_of(versioned.table):
        branch, snapshots = table.store.paths.branch, table.store.snapshots
        name = "db.t" if branch == MAIN_BRANCH else f"db.t$branch_{branch}"
        ids = snapshots.ids()
        for each in {*ids[:1], *ids[-1:]}:
            assert seen(name, snapshot_id=each) == versioned.content(table, snapshot_id=each), (name, each)
        for tag in snapshots.tag_names():
            found = seen(name, options={"scan.tag-name": tag})
            assert found == versioned.content(table, tag=tag), (name, tag)
        states += len({*ids[:1], *ids[-1:]}) + len(snapshots.tag_names())
    assert states > 3
