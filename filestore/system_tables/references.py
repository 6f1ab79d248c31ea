"""System tables of references to snapshots: tags, savepoints, branches, consumers."""

import datetime as dt
from dataclasses import replace
from typing import Any, Final

import orjson
import pyarrow as pa

from filestore.branch.branches import Branch, list_branches
from filestore.layout.branch_state import main_branch
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.branch_origins import origin_of, parent_of
from filestore.refs.savepoint_files import list_savepoints
from filestore.snapshot.snapshot import Snapshot
from filestore.snapshot.snapshot_store import SnapshotStore
from filestore.system_tables.history import table_of
from filestore.system_tables.json_columns import json_text
from filestore.system_tables.system_table import SystemTable
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns

_TAGS: Final = parse_columns(
    "tag_name string, tagged_snapshot_id int64, schema_id int64, commit_time int64, record_count int64?, "
    "create_time timestamp[ms]?, time_retained string?"
)


def _tags(store: TableStore, _: Snapshot | None) -> pa.Table:
    rows = []
    for name in store.snapshots.tag_names():
        path = store.paths.tag(name)
        try:
            body = store.io.read_bytes(path)
        except FileNotFoundError:
            continue  # deleted since it was listed
        tagged = Snapshot.from_json(body, source=path)
        rows.append(
            {
                "tag_name": name,
                "tagged_snapshot_id": tagged.id,
                "schema_id": tagged.schema_id,
                "commit_time": tagged.time_ms,
                "record_count": tagged.total_record_count,
                **_retention(orjson.loads(body)),
            }
        )
    return table_of(rows, _TAGS)


def _retention(body: dict[str, Any]) -> dict[str, Any]:
    """Creation time and lifetime of a tag, if recorded: a local date-time array, and seconds."""
    made, seconds = body.get("tagCreateTime"), body.get("tagTimeRetained")
    found: dict[str, Any] = {"create_time": None, "time_retained": None}
    if isinstance(made, list) and 3 <= len(made) <= 7:
        year, month, day, *clock = made
        hour, minute, second, nanos = (*clock, 0, 0, 0, 0)[:4]
        found["create_time"] = dt.datetime(
            year, month, day, hour, minute, second, nanos // 1000, tzinfo=dt.UTC
        ).replace(tzinfo=None)
    if seconds is not None:
        found["time_retained"] = str(dt.timedelta(seconds=float(seconds)))
    return found


_SAVEPOINTS: Final = parse_columns(
    "savepoint_id int64, schema_id int64, save_time int64, record_count int64, saved_snapshot_id int64, "
    "full_manifest_list string, tag_name string?, checkpoints string?"
)


def _savepoints(store: TableStore, _: Snapshot | None) -> pa.Table:
    tags = set(store.snapshots.tag_names())
    rows = [
        {
            "savepoint_id": each.id,
            "schema_id": each.schema_id,
            "save_time": each.save_time_ms,
            "record_count": each.record_count,
            "saved_snapshot_id": each.saved_snapshot_id,
            "full_manifest_list": each.full_manifest_list,
            "tag_name": each.tag_name if each.tag_name in tags else None,
            "checkpoints": json_text(
                [
                    {
                        "query_id": kept.query_id,
                        "commit_user": kept.commit_user,
                        "batch_id": kept.batch_id,
                        "location": kept.location,
                        "sources": list(kept.sources),
                    }
                    for kept in each.checkpoints
                ]
            )
            if each.checkpoints
            else None,
        }
        for each in list_savepoints(store)
    ]
    return table_of(rows, _SAVEPOINTS)


_BRANCHES: Final = parse_columns(
    "name string, tag_name string?, tagged_snapshot_id int64?, branch_name string, create_time instant?, "
    "latest_snapshot_id int64?, parent string, "  # main's name for branches of main, and for main itself
    "is_main bool"  # it has a row here since it replaced the former main
)


def _branches(store: TableStore, _: Snapshot | None) -> pa.Table:
    rows, main = [], main_branch(store.io, store.paths.root)
    store = replace(store, main_branch=main)
    found = list_branches(store)
    if main != MAIN_BRANCH:
        origin = origin_of(store, main)
        found.append(Branch(name=main, tag=origin.tag, snapshot_id=origin.snapshot_id))
    for branch in sorted(found, key=lambda each: each.name):
        paths = store.paths.with_branch(branch.name)
        schemas = store.io.list_names(paths.schema_dir)
        rows.append(
            {
                "name": branch.name,
                "tag_name": branch.tag,
                "tagged_snapshot_id": branch.snapshot_id,
                "branch_name": branch.name,  # column of Paimon's table
                "create_time": store.io.modified_ms(f"{paths.schema_dir}/{schemas[0]}") if schemas else None,
                "latest_snapshot_id": SnapshotStore(store.io, paths).latest_id(),
                "parent": main if branch.name == main else parent_of(store, branch.name),
                "is_main": branch.name == main,
            }
        )
    return table_of(rows, _BRANCHES)


_CONSUMERS: Final = parse_columns(
    "consumer_id string, next_snapshot_id int64, snapshots_behind int64, log_offsets string?, last_seen instant?"
)


def _consumers(store: TableStore, _: Snapshot | None) -> pa.Table:
    latest_id = store.snapshots.latest_id() or 0
    rows = []
    for name, next_id in store.consumers.next_snapshots().items():
        had = store.snapshots.find(min(next_id - 1, latest_id)) if next_id > 1 else None
        try:
            seen_ms: int | None = store.io.modified_ms(store.paths.consumer(name))
        except FileNotFoundError:
            continue  # deleted since it was listed
        rows.append(
            {
                "consumer_id": name,
                "next_snapshot_id": next_id,
                "snapshots_behind": max(0, latest_id - next_id + 1),
                "log_offsets": json_text(dict(sorted(had.log_offsets.items()))) if had and had.log_offsets else None,
                "last_seen": seen_ms,
            }
        )
    return table_of(rows, _CONSUMERS)


TAGS: Final = SystemTable(name="tags", doc="The tags and the snapshots they keep.", schema=_TAGS, rows=_tags)
SAVEPOINTS: Final = SystemTable(
    name="savepoints", doc="The savepoints and what they keep.", schema=_SAVEPOINTS, rows=_savepoints
)
BRANCHES: Final = SystemTable(
    name="branches", doc="The branches, the branches and tags they began at.", schema=_BRANCHES, rows=_branches
)
CONSUMERS: Final = SystemTable(
    name="consumers", doc="The named readers and what they want next.", schema=_CONSUMERS, rows=_consumers
)
