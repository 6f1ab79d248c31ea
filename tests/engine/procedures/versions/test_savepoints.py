"""Savepoints as procedures, as commands and as a system table."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from engine import Catalog, Table
from engine.procedures import rollback_to_as_latest, rollback_to_savepoint
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn, SetOption
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.schema.column_paths import ColumnPosition
from filestore.snapshot.retention import Retention
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import order_rows
from tests.support.rows import arrow_rows

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


def test_a_savepoint_is_gone_back_to_across_every_harmless_change(
    new_table: Callable[..., Table], catalog: Catalog, call: Call
) -> None:
    """versions.md H1; and a column that is gone is named, by savepoints, tags and cuts alike."""
    table = new_table()
    call("create_savepoint")
    call("create_tag", tag="eod")
    table.write(order_rows(("d1", 1, 100)))
    catalog.alter_table("shop.orders", [SetOption("snapshot.num-retained.max", "100")])
    assert len(call("rollback_to_savepoint", savepoint=1)) == 1
    changes = [
        AddColumn(path=("note",), type=parse_data_type("STRING"), position=ColumnPosition()),
        RenameColumn(("v",), "value"),
        ChangeType(("value",), parse_data_type("DECIMAL(20, 0)")),
    ]
    catalog.alter_table("shop.orders", changes)
    table = catalog.table("shop.orders")
    table.write(arrow_rows(table.schema.arrow_schema, {"dt": "d1", "id": 2, "value": Decimal(7), "note": "wrong"}))
    assert len(call("rollback_to_as_latest", tag="eod")) == 1
    known = (("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3))
    rows = [{"note": None, "dt": day, "id": key, "value": Decimal(v)} for day, key, v in known]
    assert sorted(table.files.read().to_arrow().to_pylist(), key=lambda row: row["id"]) == rows
    catalog.alter_table("shop.orders", [DropColumn(("value",))])
    for procedure, state in ((rollback_to_savepoint, {"savepoint": 1}), (rollback_to_as_latest, {"tag": "eod"})):
        with pytest.raises(InvalidInputError, match=r"cause='column v was dropped' fix=read"):
            procedure(catalog.table("shop.orders"), **state)


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
