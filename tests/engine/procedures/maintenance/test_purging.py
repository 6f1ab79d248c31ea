"""purge_files and the repair of manifests, by Python, SQL and the shell."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.procedures import PROCEDURES, create_tag, purge_files, reset_consumer
from filestore.maintenance.orphans import find_orphans
from filestore.scan.snapshot_files import delta_manifests
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call, order_rows

Content = Callable[..., set[tuple[str, int, int]]]


def data_files(table: Table) -> list[str]:
    io, root = table.store.io, table.store.paths.root
    return [
        f"{day}/{bucket}/{name}"
        for day in io.list_names(root)
        if day.startswith("dt=")
        for bucket in io.list_names(f"{root}/{day}")
        for name in io.list_names(f"{root}/{day}/{bucket}")
    ]


def test_a_table_is_emptied_for_good(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    create_tag(table, "eod", snapshot=1)
    table.compact(full=True)
    reset_consumer(table, consumer_id="job", next_snapshot_id=2)
    files = data_files(table)
    would_go = call("purge_files", dry_run=True)
    assert [(each["what"], each["name"]) for each in would_go] == [
        ("rows", "shop.orders"),
        ("consumer", "job"),
        ("tag", "eod"),
        *(("snapshot", name) for name in "123"),
    ]
    assert (data_files(table), table.store.snapshots.ids()) == (files, [1, 2, 3])
    done = call("purge_files")
    assert [(each["what"], each["name"]) for each in done] == [(each["what"], each["name"]) for each in would_go]
    assert sum(each["files"] for each in done[1:]) == len(files)
    assert (content(catalog), data_files(table), table.store.snapshots.ids()) == (set(), [], [4])
    assert table.store.snapshots.tag_names() == []
    assert find_orphans(table.store, before_ms=1 << 60) == []
    table.write(order_rows(("d9", 9, 9)))
    assert content(catalog) == {("d9", 9, 9)}


def test_a_new_table_has_nothing_to_purge(catalog: Catalog) -> None:
    assert purge_files(catalog.create_table("db.t", pa.schema([("a", pa.int64())]))).num_rows == 0


def test_branches_are_not_torn_out(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.store.io.write_new(f"{table.store.paths.root}/branch/branch-b/schema/schema-0", b"{}")
    with pytest.raises(InvalidInputError, match=r"branches=\['b'\] fix=delete the branches first"):
        purge_files(table)
    assert table.store.snapshots.ids() == [1, 2]


def test_lost_manifests_are_taken_out(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    (manifest,) = delta_manifests(table.store, table.store.snapshots.read(2))
    table.store.io.delete(table.store.paths.manifest(manifest.file_name))
    expected: dict[str, Any] = {"path": table.store.paths.manifest(manifest.file_name), "files_added": 1}
    expected["files_taken_away"] = 0
    assert call("remove_unexisting_manifests", dry_run=True) == [{**expected, "snapshot_id": None}]
    assert call("remove_unexisting_manifests") == [{**expected, "snapshot_id": 3}]
    assert content(catalog) == {("d1", 1, 1), ("d1", 2, 2), ("d2", 3, 3)}
    assert call("remove_unexisting_manifests") == []


def test_tables_of_ours_have_no_changelogs_to_expire(new_table: Callable[..., Table], call: Call) -> None:
    new_table()
    assert call("expire_changelogs", retain_min=1, retain_max=1, older_than="2100-01-01", max_deletes=5) == []
    assert "expire_changelogs" in PROCEDURES
