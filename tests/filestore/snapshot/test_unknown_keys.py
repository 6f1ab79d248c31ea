"""Keys of snapshot files that only their writer knows: copies of a snapshot have them, the next snapshot has not."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from filestore.branch.branches import create_branch
from filestore.branch.fast_forward import fast_forward
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag, read_tag, rename_tag, replace_tag
from tests.support.tables import key_table, reopened, rows

NEW: Final = {"signature": {"by": "someone", "of": [1, 2]}, "rowLevel": None}
LEAST: Final = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def with_new_keys(table: FileTable) -> None:
    """As if another engine of tomorrow had committed the newest snapshot."""
    io, paths = table.store.io, table.store.paths
    latest = table.store.snapshots.latest()
    assert latest is not None
    body = orjson.loads(io.read_bytes(paths.snapshot(latest.id)))
    io.replace(paths.snapshot(latest.id), orjson.dumps(body | NEW))


def new_keys_of(table: FileTable, path: str) -> Mapping[str, Any]:
    body = orjson.loads(table.store.io.read_bytes(path))
    return {key: body[key] for key in NEW if key in body}


def test_copies_of_a_snapshot_keep_unknown_keys_and_the_next_one_has_none() -> None:
    """FL-157: tags, branches, fast-forward and rollback; Java drops them from its tags."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    with_new_keys(table)
    table = reopened(table, table.store.io)
    store, paths = table.store, table.store.paths
    create_tag(store, "kept", retained_ms=10**9)
    rename_tag(store, "kept", "renamed")
    create_tag(store, "other")
    replace_tag(store, "other", snapshot_id=1)
    create_branch(store, "side", tag="renamed")
    table.write(rows((1, 2)))
    for path in (paths.tag("renamed"), paths.tag("other")):
        assert new_keys_of(table, path) == NEW, path
    assert new_keys_of(table, paths.with_branch("side").snapshot(1)) == NEW
    assert new_keys_of(table, paths.with_branch("side").tag("renamed")) == NEW
    assert new_keys_of(table, paths.snapshot(2)) == {}
    list(expire_snapshots(store, LEAST))
    assert not store.io.exists(paths.snapshot(1))
    roll_back(store, plan_rollback(store, read_tag(store, "renamed").snapshot))
    assert new_keys_of(table, paths.snapshot(1)) == NEW
    reopened(table, table.store.io).on_branch("side").write(rows((3, 3)))
    fast_forward(reopened(table, table.store.io).store, "side")
    assert new_keys_of(table, paths.snapshot(1)) == NEW
    assert new_keys_of(table, paths.snapshot(2)) == {}
