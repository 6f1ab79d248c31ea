"""What people type on their first days: words of other tools, one name for brokers, tables by ``ls``, no Java."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from engine import Catalog
from engine.cli import output
from engine.cli.app import run_command
from engine.cli.command_list import ACTIONS, COMMANDS, GROUPS, LISTING_TABLES, WORDS_ELSEWHERE, same_by_meaning
from engine.runtime.logs import fields_of
from engine.spark import session as sessions
from filestore.io.disk import unavailable
from filestore.system_tables import SYSTEM_TABLES
from lsm.errors import InvalidInputError, UnavailableError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drop-table", "db.t"], "fluvial drop db.t"),
        (["create-table", "db.t"], "fluvial create db.t"),
        (["mv", "db.t", "db.u"], "fluvial rename db.a db.b"),
        (["vacuum"], "expire-snapshots"),
        (["optimize"], "fluvial compact"),
        (["list_tables"], "fluvial ls"),
        (["migrat-table"], "did_you_mean=migrate-table"),
        (["zzzz"], "fix='fluvial --help'"),
        (["tag", "drop"], "no such command: command=drop did_you_mean=delete fix='fluvial tag --help'"),
        (["branch", "mv"], "did_you_mean=rename"),
        (["drop-tag"], "did_you_mean=delete-tag"),
        (["tag-rm"], "did_you_mean=delete-tag"),
        (["create_tag"], "did_you_mean=create-tag"),
        (["orphan-files-remove"], "fix='fluvial --help'"),
        (["tag", "list"], "fluvial read 'db.t$tags'"),
        (["show-branches"], "fluvial read 'db.t$branches'"),
        (["checkpoint", "list"], "no such command: command=list fix='fluvial checkpoint --help'"),
    ],
)
def test_a_word_of_another_tool_leads_to_the_command(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(words) == 2
    line = capsys.readouterr().err
    assert said in line
    assert line.count("\n") == 1


def test_no_command_is_a_word_of_another_tool() -> None:
    assert {*WORDS_ELSEWHERE} & {*COMMANDS, *ACTIONS, *GROUPS} == set()
    assert LISTING_TABLES.keys() <= GROUPS.keys()
    assert {*LISTING_TABLES.values()} <= SYSTEM_TABLES.keys()


@pytest.mark.parametrize("name", [*COMMANDS, *ACTIONS])
def test_a_name_in_another_order_or_with_underscores_is_the_same_by_meaning(name: str) -> None:
    known = {*COMMANDS, *ACTIONS}
    assert same_by_meaning(name, known) == name
    assert same_by_meaning(name.replace("-", "_"), known) == name
    verb, dash, things = name.partition("-")
    if dash:
        assert same_by_meaning(f"{things}-{verb}", known) == name
    for other, ours in (("drop", "delete"), ("add", "create"), ("mv", "rename")):
        if verb == ours:
            assert same_by_meaning(f"{other}{dash}{things}", known) == name


def test_tables_are_listed_with_what_is_wrong_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(str(tmp_path))
    for name in ("a.one", "b.two"):
        catalog.create_table(name, pa.schema([("id", pa.int64())]), primary_key=["id"]).write(pa.table({"id": [1]}))
    (tmp_path / "b.db/two/schema/schema-0").write_text("{")
    assert run_command(["ls", "--warehouse", str(tmp_path), "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert (one["table"], one["primary_key"], one["snapshot_id"], one["problem"]) == ("a.one", ["id"], 1, None)
    assert (two["table"], two["problem"] is None) == ("b.two", False)
    assert run_command(["ls", "a", "--warehouse", str(tmp_path)]) == 0
    assert "a.one" in capsys.readouterr().out
    assert run_command(["ls", "aa", "--warehouse", str(tmp_path)]) == 2
    assert "no such database: database=aa" in capsys.readouterr().err


def test_tables_are_created_renamed_and_dropped_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--warehouse", str(tmp_path / "lake")]
    columns = "id BIGINT PRIMARY KEY NOT ENFORCED, day STRING, `odd name` STRING DEFAULT 'it\\'s'"
    made = ["create", "a.t", columns, "--option", "bucket=2", "--option", "my.note=it's", *place]
    assert run_command(made) == 0
    assert run_command(["create", "a.p", "id INT, day STRING", "--partitioned-by", "day", *place]) == 0
    catalog = Catalog(str(tmp_path / "lake"))
    schema = catalog.table("a.t").schema
    assert (schema.column_names, schema.primary_keys) == (("id", "day", "odd name"), ("id",))
    assert (schema.options["bucket"], schema.options["my.note"]) == ("2", "it's")
    assert catalog.table("a.p").schema.partition_keys == ("day",)
    assert run_command(made) == 2
    assert "table exists already: table=a.t" in capsys.readouterr().err
    assert run_command([*made, "--if-not-exists"]) == 0
    assert run_command(["rename", "a.t", "a.u", *place]) == 0
    assert catalog.list_tables("a") == ["p", "u"]
    assert run_command(["drop", "a.t", *place]) == 2
    assert "no such table: table=a.t" in capsys.readouterr().err
    assert run_command(["drop", "a.t", "--if-exists", *place]) == 0
    assert run_command(["drop", "a.u", *place]) == 0
    assert catalog.list_tables("a") == ["p"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "t", "id INT"], "a table is named database.table"),
        (["create", "a.t", "id INTT"], "unknown type"),
        (["create", "a.t", "id INT", "--option", "bucket"], "an option is written key=value"),
        (["create", "a.t", "id INT) AS SELECT (1"], "and no query"),
        (["drop", "t"], "a table is named database.table"),
        (["drop", "a.t$branch_b"], "a branch is not a table of its own"),
        (["topics"], "no brokers"),
    ],
)
def test_what_is_no_table_is_said(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*words, "--warehouse", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_brokers_have_one_name_and_no_option_is_taken_for_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init = ["init", str(tmp_path / "jobs"), "--from-topic", "t"]
    for name in ("--brokers", "--kafka"):
        assert run_command([*init, name, "localhost:1"]) == 1
        assert "bootstrap.servers=localhost:1 " in capsys.readouterr().err
    assert run_command([*init, "--brokers", "localhost:1", "--kafka", "localhost:2"]) == 2
    assert "brokers are given twice" in capsys.readouterr().err
    assert run_command([*init, "--registry", "http://r"]) == 2
    assert "option needs --from-topics: option=--registry" in capsys.readouterr().err


def test_a_statement_may_be_given_as_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--warehouse", str(tmp_path)]
    assert run_command(["sql", "-e", "CREATE TABLE db.t (id BIGINT)", *place]) == 0
    assert run_command(["sql", "-e", "SHOW TABLES IN db", *place]) == 0
    assert "t" in capsys.readouterr().out
    assert run_command(["sql", "SHOW TABLES", "-e", "SHOW TABLES", *place]) == 2


def test_java_that_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ended(_: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(sessions, "start_jvm", ended)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(InvalidInputError, match=r"Java is missing: JAVA_HOME=/nowhere fix=install"):
        sessions._start_jvm({})
    old = tmp_path / "bin/java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"Java is too old: .*version=11 wanted=17"):
        sessions._start_jvm({})


def test_a_list_in_a_message_is_a_list_in_json() -> None:
    said = "x tables=['by_city', 'by day'] ids=[1, 2] none=[] half=[a b] end=5"
    assert fields_of(said) == {
        "tables": ["by_city", "by day"],
        "ids": [1, 2],
        "none": [],
        "half": "[a b]",
        "end": 5,
    }


def printed(columns: list[str], rows: list[list[object]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    output.print_table("", columns, rows, numbers=columns[1:])
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_too_wide_for_its_columns_is_printed_a_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    """No word is broken: what stands in a line can be copied."""
    name = "manifest-list-301e4b7e-f5df-4de3-9183"
    columns = [f"column {number}" for number in range(6)]
    narrow, wide = [name, 1, None, 2, 3, 4], [name] * 5 + ["[x] \\ and more " * 20]
    assert len(printed(columns, [narrow, narrow], capsys)) == 6
    first, *lines = printed(columns, [narrow, wide], capsys)
    assert first == "── 1 of 2 ──"
    assert lines[:3] == [f"column 0  {name}", "column 1  1", "column 2"]
    assert lines[6:8] == ["── 2 of 2 ──", f"column 0  {name}"]
    assert lines[-1] == f"column 5  {str(wide[-1]).rstrip()}"


def test_counts_have_separators_and_what_names_something_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(["", "rows", "snapshot id", "barrier"], [["a", 1234567, 1234567, 6494848374849109716]], capsys)
    assert [each.strip() for each in lines[-2].split("│")[1:-1]] == ["a", "1,234,567", "1234567", "6494848374849109716"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_wrong_with_a_job_file_is_a_line_each(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("warehouse: w\npipelines:\n  - name: p\n    target: a.d\n", encoding="utf-8")
    assert run_command(["--log-format", form, "validate", str(job)]) == 2
    lines = capsys.readouterr().err.splitlines()
    texts = [json.loads(line)["message"] if form == "json" else line.removeprefix("error: ") for line in lines]
    assert [text.partition(" file=")[0] for text in texts] == [
        "a value is missing: key=name",
        "a value is missing: key=pipelines[0].source",
        "a value is missing: key=pipelines[0].checkpoint",
    ]
    assert all(" line=" in text and " fix=" in text for text in texts)


def test_a_time_before_the_first_snapshot_is_answered_with_the_time_of_that_one(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("a.b", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}))
    year = r"earliest=1 earliest_time='20\d\d-\d\d-\d\d \d\d:\d\d:\d\d' latest=1"
    with pytest.raises(InvalidInputError, match=year):
        table.read(timestamp="2020-01-01")


def test_a_warehouse_that_does_not_exist_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["read", "a.b", "--warehouse", str(tmp_path / "wh")]) == 2
    assert "databases=[] cause=there is no such directory fix='check the warehouse" in capsys.readouterr().err
    assert not (tmp_path / "wh").exists()


def test_who_may_not_write_is_said() -> None:
    right = r"no right to a file: action=write path=/t/x user=\w+ fix="
    with pytest.raises(UnavailableError, match=right), unavailable("write", "/t/x"):
        raise PermissionError(13, "Permission denied")
    other = "file system error: action=write path=/t/x error="
    with pytest.raises(UnavailableError, match=other), unavailable("write", "/t/x"):
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("name", ["SQLQueryContextLogger", "DataFrameQueryContextLogger"])
def test_a_wrong_statement_is_not_logged_beside_its_error(name: str) -> None:
    sessions._log_errors_once()
    assert logging.getLogger(name).disabled
