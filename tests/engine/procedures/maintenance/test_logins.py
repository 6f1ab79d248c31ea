"""A login that an earlier version stored: read as before, named by the doctor, removed by one command."""

import json
from pathlib import Path

import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity, Symptom
from engine.procedures import remove_stored_login
from tests.support.stored_login import store_options
from tests.support.tables import KEY_SCHEMA

SECRET = {"log.kafka.sasl.password": "hush"}


def login(table: Table) -> Symptom:
    return next(each for each in diagnose(examine(table)) if each.check == "login")


@pytest.fixture
def old(tmp_path: Path) -> Table:
    """A table as an earlier version made it, with a branch."""
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    store_options(f"{table.store.paths.root}/schema/schema-0", SECRET)
    return catalog.table("db.t")


def test_a_login_of_flink_is_found_and_removed(tmp_path: Path) -> None:
    """Paimon's connector stores what its CREATE TABLE was given under names of its own; the rest of them stays."""
    table = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    given = {"kafka.bootstrap.servers": "b:9092", "kafka.topic": "t", "kafka.sasl.jaas.config": "password='hush'"}
    schema = Path(f"{table.store.paths.root}/schema/schema-0")
    store_options(schema, given)
    assert login(table).values == {"files": 1, "options": "kafka.sasl.jaas.config"}
    assert run_command(["remove-stored-login", table.name, "--warehouse", str(tmp_path)]) == 0
    left = json.loads(schema.read_text())["options"]
    assert {key for key in given if key in left} == {"kafka.bootstrap.servers", "kafka.topic"}
    assert "hush" not in schema.read_text()


def test_doctor_names_a_stored_login(old: Table) -> None:
    """Not its value; a table without one is well."""
    assert old.options.log_kafka["sasl.password"] == "hush"
    found = login(old)
    assert (found.severity, found.values) == (Severity.WARNING, {"files": 1, "options": "log.kafka.sasl.password"})
    assert "hush" not in str(found)
    assert "remove-stored-login" in str(found.fix)


@pytest.mark.parametrize("words", [["--all"], []], ids=["all", "one"])
def test_a_stored_login_is_removed(
    old: Table, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run shows where it is; after the run the table is as it was, without it."""
    command = ["remove-stored-login", *(words or [old.name]), "--warehouse", str(tmp_path), "--json"]

    def rows() -> object:
        return json.loads(capsys.readouterr().out)["rows"]

    assert run_command([*command, "--dry-run"]) == 0
    found = rows()
    assert login(old).severity is Severity.WARNING
    assert run_command(command) == 0
    assert rows() == found
    cleaned = {"table": "db.t", "file": "schema/schema-0", "options": "log.kafka.sasl.password", "error": None}
    assert found == [cleaned]
    now = Catalog(str(tmp_path)).table(old.name)
    assert login(now).severity is Severity.OK
    assert now.options.log_kafka == {}
    assert now.store.schema.fields == old.store.schema.fields


def test_a_table_that_cannot_be_read_keeps_no_login_in_the_others(old: Table, tmp_path: Path) -> None:
    """It is named beside what was removed."""
    broken = tmp_path / "db.db" / "a" / "schema" / "schema-0"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"{")
    found = Catalog(str(tmp_path))
    assert remove_stored_login.for_all is not None
    rows = remove_stored_login.for_all(found).to_pylist()
    assert [(each["table"], bool(each["error"])) for each in rows] == [("db.t", False), ("db.a", True)]
    assert login(found.table(old.name)).severity is Severity.OK
