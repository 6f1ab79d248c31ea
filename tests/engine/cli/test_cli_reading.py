"""``fluvial read`` and ``fluvial lag``: any state of a table by one word; hints instead of empty tables."""

import json
import logging
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete

from engine import Catalog
from engine.cli.app import cli, run_command
from engine.cli.commands.sql import completions
from engine.cli.exit_codes import EXIT_INVALID
from engine.cli.place import table_names
from engine.procedures import create_branch, create_savepoint, create_tag
from lsm.errors import InvalidInputError
from tests.support.tables import expire_all_but


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    catalog = Catalog(str(tmp_path_factory.mktemp("reading")))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1]}, schema=schema))
    create_tag(table, "eod")
    create_savepoint(table)
    create_branch(table, "dev", "eod")
    catalog.table("db.t$branch_dev").write(pa.table({"id": [7]}, schema=schema))
    table.write(pa.table({"id": [2]}, schema=schema))
    return catalog.warehouse


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("1", [1]),
        ("snapshot.1", [1]),
        ("eod", [1]),
        ("savepoint.1", [1]),
        ("latest", [1, 2]),
        ("timestamp.2999-01-01", [1, 2]),
        ("dev.latest", [1, 7]),
        ("dev.eod", [1]),
    ],
)
def test_a_word_names_a_state(word: str, ids: list[int], warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same words as in SQL and in ``fluvial diff``."""
    assert run_command(["read", "db.t", "--at", word, "--json", "--warehouse", warehouse]) == 0
    assert sorted(json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()) == ids


def test_a_wrong_word_is_refused(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["read", "db.t", "--at", "eon", "--warehouse", warehouse]) == EXIT_INVALID
    assert "no such version" in capsys.readouterr().err
    assert run_command(["read", "db.t$files", "--at", "eod", "--warehouse", warehouse]) == EXIT_INVALID
    assert "a system table has no other states" in capsys.readouterr().err


def test_columns_are_those_of_the_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.u", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}))
    create_tag(table, "old")
    from engine import sql

    sql(None, "ALTER TABLE db.u ADD COLUMN v STRING", catalog)
    for at, columns in ((["--at", "old"], '"id"'), ([], '"id","v"')):
        assert run_command(["read", "db.u", *at, "--format", "csv", "--warehouse", str(tmp_path)]) == 0
        assert capsys.readouterr().out.splitlines()[0] == columns


def test_a_table_is_described_and_inspected_as_of_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The words of ``fluvial read``; also of a snapshot that only its tag keeps."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.u", pa.schema([("id", pa.int64())]), primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1]}))
    create_tag(table, "old")
    from engine import sql

    sql(None, "ALTER TABLE db.u ADD COLUMN v STRING", catalog)
    table = catalog.table("db.u")
    for number in (2, 3):
        table.write(pa.table({"id": [number], "v": ["x"]}))

    def shown(command: str, *words: str) -> dict[str, Any]:
        assert run_command([command, "db.u", *words, "--json", "--warehouse", str(tmp_path)]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    assert [each["name"] for each in shown("describe", "--at", "old")["columns"]] == ["id"]
    assert [each["name"] for each in shown("describe")["columns"]] == ["id", "v"]
    for is_expired in (False, True):
        if is_expired:
            expire_all_but(table.files, 1)
        old, newest = shown("inspect", "--at", "old"), shown("inspect")
        assert [each["id"] for each in old["snapshots"]] == [1]
        assert [(each["file_count"], each["row_count"]) for each in old["buckets"]] == [(1, 1)]
        assert newest["buckets"][0]["file_count"] == 3
        assert run_command(["inspect", "db.u", "--at", "old", "--warehouse", str(tmp_path)]) == 0
        capsys.readouterr()
    picture = tmp_path / "old.svg"
    words = ["inspect", "db.u", "--at", "old", "--svg", str(picture), "--warehouse", str(tmp_path)]
    assert run_command(words) == 0
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert run_command(["inspect", "db.u", "--at", "eon", "--warehouse", str(tmp_path)]) == EXIT_INVALID
    assert "no such version" in capsys.readouterr().err


def test_lag_without_streams_says_how_to_name_one(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lag", "db.t", "--warehouse", warehouse]) == 0
    out = capsys.readouterr().out
    assert out.startswith("db.t: snapshot ")
    assert "name a query by --checkpoint DIR" in out


def test_it_says_how_many_rows_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.many", pa.schema([("id", pa.int64())]), options={"bucket": "-1"})
    table.write({"id": range(1500)})

    def said(*more: str) -> str:
        assert run_command(["read", "db.many", "--warehouse", str(tmp_path), *more]) == 0
        return capsys.readouterr().err

    assert said() == "20 of 1,500 rows are shown: see --limit\n"
    assert said("--filter", "id > 0") == "20 of at most 1,500 rows are shown: see --limit\n"
    assert [said("--filter", "id < 20"), said("--limit", "5"), said("--format", "csv")] == ["", "", ""]


def completed(*words: str) -> list[str]:
    *before, last = words
    shell = ShellComplete(cli, {}, "fluvial", "_FLUVIAL_COMPLETE")
    return [each.value for each in shell.get_completions([*before], last)]


def test_tables_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the shell, from the warehouse of the command line or the environment, and at the prompt of SQL."""
    catalog = Catalog(str(tmp_path))
    for name in ("shop.orders", "shop.lines", "web.visits"):
        catalog.create_table(name, pa.schema([("id", pa.int64())]))

    assert completed("read", "--warehouse", str(tmp_path), "sh") == ["shop.lines", "shop.orders"]
    monkeypatch.setenv("FLUVIAL_WAREHOUSE", str(tmp_path))
    assert completed("describe", "shop.o") == ["shop.orders"]
    assert completed("tag", "create", "web.") == ["web.visits"]
    assert completed("read", "nope.") == []
    assert "tag" in completed("t")
    assert completed("tag", "cr") == ["create", "create-from-timestamp"]
    tables = partial(table_names, catalog)
    assert completions("shop.", tables) == ["shop.lines", "shop.orders"]
    assert completions("sel", tables) == ["select"]
    assert completions("VAL", tables) == ["VALUES"]
    assert completions("w", tables) == ["web.visits", "when", "where", "with"]


def test_tags_branches_and_versions_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the command's table, however it is given; a name that is to be new is not among them."""
    table = Catalog(str(tmp_path)).create_table("shop.orders", pa.schema([("id", pa.int64())]))
    table.write({"id": [1]})
    for tag in ("eod-1", "eod-2", "first"):
        create_tag(table, tag)
    create_savepoint(table)
    create_branch(table, "dev", "first")
    monkeypatch.setenv("FLUVIAL_WAREHOUSE", str(tmp_path))
    assert completed("read", "shop.orders", "--at", "e") == ["eod-1", "eod-2"]
    assert completed("read", "shop.orders", "--at", "savepoint.") == ["savepoint.1"]
    assert completed("diff", "shop.orders", "eod-1", "eod-") == ["eod-1", "eod-2"]
    assert completed("tail", "shop.orders", "--from", "f") == ["first"]
    assert completed("tag", "delete", "shop.orders", "--tag", "f") == ["first"]
    assert completed("delete-tag", "--database", "shop", "--table", "orders", "--tag", "f") == ["first"]
    assert completed("branch", "merge", "shop.orders", "--branch", "d") == ["dev"]
    assert completed("tag", "create", "shop.orders", "--tag", "f") == []
    assert completed("branch", "create", "shop.orders", "--tag", "f") == ["first"]
    assert completed("branch", "create", "shop.orders", "--branch", "d") == []
    for nothing in (["read", "--at"], ["read", "shop.nothing", "--at"], ["delete-tag", "--tag"]):
        assert completed(*nothing, "") == []


@pytest.mark.parametrize("fault", [OSError("away"), RuntimeError("a bug"), InvalidInputError("no such warehouse")])
def test_completion_shows_no_error(
    fault: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor a log message: both would be typed into the line of the user."""

    def failing(*_: object) -> list[str]:
        logging.getLogger("fluvial.x").warning("slow")
        raise fault

    monkeypatch.setattr("engine.cli.place.table_names", failing)
    assert completed("read", "--warehouse", str(tmp_path), "s") == []
    assert completed("read", "--config", str(tmp_path / "none.yaml"), "s") == []
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("fluvial.x").isEnabledFor(logging.WARNING)


def test_completion_does_not_wait_for_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = threading.Event(), threading.Event()

    def hanging(*_: object) -> list[str]:
        asked.set()
        answer.wait()
        return ["shop.orders"]

    monkeypatch.setattr("engine.cli.place.table_names", hanging)
    monkeypatch.setattr("engine.cli.place._PATIENCE_S", 0.01)
    assert completed("read", "--warehouse", str(tmp_path), "s") == []
    assert asked.wait(30)
    answer.set()
