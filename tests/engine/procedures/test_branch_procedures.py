"""Procedures about branches, by Python, SQL and the shell."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import engine
from engine import Catalog, Table
from engine.cli.app import run_command
from engine.procedures import (
    create_branch,
    create_tag,
    delete_branch,
    fast_forward,
    merge_branch,
    replace_main_branch,
    verify,
)
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.procedures.conftest import Call, order_rows
from tests.support.rows import row_set
from tests.support.warehouses import ID_SCHEMA

NewTable = Callable[..., Table]


def orders_of(catalog: Catalog, branch: str | None = None) -> frozenset[tuple[Any, ...]]:
    return row_set(catalog.table("shop.orders", branch=branch))


BASE = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


@pytest.mark.sweep
def test_a_branch_is_made_merged_renamed_and_deleted(new_table: NewTable, catalog: Catalog, call: Call) -> None:
    """BR-07, BR-08, BR-15, BR-44 to BR-46: by any of the three ways, reported in rows."""
    table = new_table()
    create_tag(table, "eod")
    made = {"branch": "dev", "tag_name": "eod", "tagged_snapshot_id": 2}
    assert call("create_branch", branch="dev", tag="eod") == [made]
    assert call("create_branch", branch="dev", snapshot=1, ignore_if_exists=True) == [made]
    catalog.table("shop.orders", branch="dev").write(order_rows(("d2", 3, 7), ("d3", 4, 4)))
    merged = call("merge_branch", branch="dev")
    assert [(each["branch"], each["snapshot_id"], each["files"]) for each in merged] == [("dev", 3, 2)]
    assert orders_of(catalog) == orders_of(catalog, "dev") == {*BASE} - {("d2", 3, 3)} | {("d2", 3, 7), ("d3", 4, 4)}
    assert call("merge_branch", branch="dev")[0]["snapshot_id"] is None
    assert call("rename_branch", from_branch="dev", to_branch="fix") == [{**made, "branch": "fix"}]
    reported = call("delete_branch", branch="fix", dry_run=True)
    assert [(each["branch"], each["data_files"]) for each in reported] == [("fix", 2)]
    assert call("delete_branch", branch="fix") == reported
    assert verify(catalog.table("shop.orders")).num_rows == 0


@pytest.mark.sweep
def test_main_is_forwarded_and_replaced(new_table: NewTable, catalog: Catalog, call: Call) -> None:
    """BR-16, BR-18, BR-26, BR-27, BR-47; Trap 6: what is lost with force is reported."""
    table = new_table()
    create_branch(table, "dev", snapshot=2)
    catalog.table("shop.orders", branch="dev").write(order_rows(("d3", 4, 4)))
    assert call("fast_forward", branch="dev") == [{"snapshot_id": 3, "is_published": True}]
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4)}
    table.write(order_rows(("d3", 5, 5)))
    catalog.table("shop.orders", branch="dev").write(order_rows(("d3", 6, 6)))
    with pytest.raises(ConflictError):
        fast_forward(table, "dev")
    assert call("fast_forward", branch="dev", force=True) == [
        {"snapshot_id": 4, "is_published": False},
        {"snapshot_id": 4, "is_published": True},
    ]
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4), ("d3", 6, 6)}
    replaced = call("replace_main_branch", branch="dev")
    assert [(each["main_branch"], each["dropped_branch"]) for each in replaced] == [("dev", "main")]
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4), ("d3", 6, 6)}
    assert verify(catalog.table("shop.orders")).num_rows == 0
    back = call("replace_main_branch", branch="main")
    assert [(each["main_branch"], each["dropped_branch"]) for each in back] == [("main", "dev")]
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4), ("d3", 6, 6)}


def test_each_door_says_which_branch_is_main(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    """BR-18, BR-33."""
    table = catalog.create_table("db.which", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.Table.from_pylist([{"id": 1}]))
    create_tag(table, "eod")
    for name in ("dev", "fix"):
        create_branch(table, name, tag="eod")

    def said() -> list[object]:
        opened = catalog.table("db.which")
        rows = catalog.system_table("db.which$branches").to_arrow().select(["name", "parent", "is_main"]).to_pylist()
        described = engine.sql(None, "DESCRIBE EXTENDED db.which", catalog=catalog).to_pylist()
        assert run_command(["describe", "db.which", "--json", "--warehouse", catalog.warehouse]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert run_command(["describe", "db.which", "--warehouse", catalog.warehouse]) == 0
        return [
            opened.main_branch,
            table.main_branch,
            [tuple(row.values()) for row in rows],
            [row["data_type"] for row in described if row["col_name"] == "main-branch"],
            shown["branch"],
            shown["main_branch"],
            "main branch: dev" in capsys.readouterr().out,
        ]

    before = [("dev", "main", False), ("fix", "main", False)]
    assert said() == ["main", "main", before, [], "main", "main", False]
    replace_main_branch(table, "dev")
    after = [("dev", "dev", True), ("fix", "dev", False)]
    assert said() == ["dev", "dev", after, ["dev"], "main", "dev", True]
    replace_main_branch(catalog.table("db.which"), "main")
    assert said() == ["main", "main", [("fix", "main", False)], [], "main", "main", False]


def test_the_words_of_the_seed_are_understood(new_table: NewTable, catalog: Catalog, tmp_path: Path) -> None:
    """BR-44 to BR-47: the arguments of the seed's four actions."""
    table = new_table()
    create_tag(table, "tag-1")

    def run(*words: str) -> int:
        return run_command([words[0], "--warehouse", catalog.warehouse, "shop.orders", *words[1:]])

    assert run("create-branch", "--name", "branch-1", "--tag", "tag-1") == 0
    catalog.table("shop.orders", branch="branch-1").write(order_rows(("d3", 4, 4)))
    assert run("merge-branch", "--name", "branch-1") == 0
    assert ("d3", 4, 4) in orders_of(catalog)
    assert run("replace-main-branch", "--name", "branch-1") == 0
    assert run("create-branch", "--name", "branch-2", "--tag", "tag-1") == 0
    assert run("delete-branch", "--name", "branch-2") == 0
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4)}


def test_several_branches_go_together_or_none_does(new_table: NewTable, catalog: Catalog) -> None:
    """BR-45: as Paimon's comma list."""
    table = new_table()
    create_branch(table, "one")
    create_branch(table, "two")
    with pytest.raises(InvalidInputError, match="no such branch"):
        delete_branch(table, "one,nope")
    assert [each["branch"] for each in delete_branch(table, "one, two").to_pylist()] == ["one", "two"]


def test_merge_and_replacement_work_on_a_table_that_was_opened_on_a_branch(
    new_table: NewTable, catalog: Catalog
) -> None:
    """BR-43: ``CALL sys.merge_branch('t$branch_b', 'b')`` means the same."""
    table = new_table()
    create_branch(table, "dev", snapshot=2)
    there = catalog.table("shop.orders$branch_dev")
    there.write(order_rows(("d3", 4, 4)))
    merge_branch(there, "dev")
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4)}
    replace_main_branch(there, "dev")
    assert orders_of(catalog) == {*BASE, ("d3", 4, 4)}


@pytest.mark.sweep
def test_a_dry_run_lists_the_keys_that_both_changed(new_table: NewTable, catalog: Catalog, call: Call) -> None:
    """H3: with the rows of both and of what they had in common; force decides these alone."""
    table = new_table()
    create_branch(table, "dev", snapshot=2)
    catalog.table("shop.orders", branch="dev").write(order_rows(("d1", 1, 5), ("d2", 3, 5)))
    table.write(order_rows(("d1", 1, 6), ("d1", 2, 6)))
    before = orders_of(catalog)
    (found,) = call("merge_branch", branch="dev", dry_run=True)
    assert (found["snapshot_id"], found["conflicts"]) == (None, 1)
    shown = [json.loads(found[name]) for name in ("key", "base_row", "main_row", "branch_row")]
    (value,) = shown[1]
    assert shown == [{"dt": "d1", "id": 1}, {value: 9}, {value: 6}, {value: 5}]
    assert orders_of(catalog) == before
    with pytest.raises(ConflictError, match=r"keys=\[\{'dt': 'd1', 'id': 1\}\] count=1"):
        merge_branch(table, "dev")
    assert call("merge_branch", branch="dev", force=True)[0]["conflicts"] == 1
    assert orders_of(catalog) == {("d1", 1, 5), ("d1", 2, 6), ("d2", 3, 5)}
