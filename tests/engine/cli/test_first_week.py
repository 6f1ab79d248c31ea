"""What people type on their first days: words of other tools, one name for brokers, tables by ``ls``, no Java."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.command_list import ACTIONS, COMMANDS, GROUPS, WORDS_ELSEWHERE
from engine.runtime.logs import fields_of
from engine.spark import session as sessions
from lsm.errors import InvalidInputError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["drop-table", "db.t"], "DROP TABLE"),
        (["create", "db.t"], "CREATE TABLE"),
        (["vacuum"], "expire-snapshots"),
        (["optimize"], "fluvial compact"),
        (["list_tables"], "fluvial ls"),
        (["migrat-table"], "did_you_mean=migrate-table"),
        (["zzzz"], "fix='fluvial --help'"),
        (["tag", "drop"], "no such command: command=drop fix='fluvial tag --help'"),
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
