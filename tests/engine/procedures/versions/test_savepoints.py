"""Savepoints as procedures, as commands and as a system table."""

from collections.abc import Callable
from typing import Any

from engine import Catalog, Table
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots

Call = Callable[..., list[dict[str, Any]]]
Content = Callable[..., set[tuple[str, int, int]]]
ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=0, limit=99)


def test_a_savepoint_is_made_gone_back_to_and_deleted(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """SP-18 to SP-20, TAG-19, ``create-savepoint``, ``delete-savepoint --id <id>``: in each of the three ways."""
    table = new_table()
    before = content(catalog)
    [row] = call("create_savepoint")
    assert (row["savepoint_id"], row["record_count"], row["sorted_runs"], row["checkpoints"]) == (1, 3, 1, 0)
    table.overwrite(table.files.read().to_arrow().slice(0, 1))
    list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert content(catalog, options={"scan.savepoint-id": "1"}) == before
    rows = call("rollback_to_savepoint", id=1)
    assert {each["restored_snapshot_id"] for each in rows} == {row["saved_snapshot_id"]}
    assert content(catalog) == before
    assert call("rollback_to_savepoint", savepoint=1) == []
    [shown] = call("delete_savepoint", id=1, dry_run=True)
    [gone] = call("delete_savepoint", id=1)
    assert shown == gone
    assert gone["data_files"] > 0
    assert content(catalog) == before


def test_savepoints_are_shown_as_a_table(new_table: Callable[..., Table], catalog: Catalog, call: Call) -> None:
    """SP-21: the columns of the proposal come first."""
    new_table()
    [saved] = call("create_savepoint")
    found = catalog.system_table("shop.orders$savepoints").to_arrow()
    assert found.schema.names[:4] == ["savepoint_id", "schema_id", "save_time", "record_count"]
    assert {str(found.schema.field(name).type) for name in found.schema.names[:4]} == {"int64"}
    [row] = found.to_pylist()
    assert (row["savepoint_id"], row["schema_id"], row["record_count"]) == (1, 0, 3)
    assert (row["saved_snapshot_id"], row["tag_name"]) == (saved["saved_snapshot_id"], "savepoint-1")
    assert row["checkpoints"] is None
