"""Logins in the files of a table: where they are found, and that nothing else is lost when they go."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import SetOption
from filestore.evolution.stored_login import StoredLogin, find_logins, remove_logins
from filestore.refs.live_references import branch_names
from filestore.table import FileTable
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from tests.support.stored_login import store_options

SECRETS = {
    "log.kafka.sasl.password": "hush",
    "log.kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="hush";',
    "log.kafka.ssl.key.pem": "hush",
    "log.schema-registry.basic-auth.user-info": "u:hush",
}
OF_FLINK = {  # what its CREATE TABLE was given, as Paimon's connector stores it
    "kafka.sasl.password": "hush",
    "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="hush";',
    "kafka.ssl.keystore.password": "hush",
}
ADDRESS = "log.schema-registry.url"


@pytest.fixture
def table(tmp_path: Path) -> FileTable:
    """A table of two schema versions with a branch."""
    catalog = FileCatalog(str(tmp_path))
    catalog.create_table("db.t", pa.schema([("id", pa.int64())]), options={"bucket": "-1", "log.kafka.client.id": "c"})
    catalog.alter_table("db.t", [SetOption("target-file-size", "1 mb")])
    create_branch(catalog.table("db.t").store, "b")
    return catalog.table("db.t")


def files(table: FileTable, *names: str) -> list[Path]:
    root = Path(table.store.paths.root)
    return [root / name for name in names]


@pytest.mark.parametrize("key", SECRETS)
def test_a_login_is_not_store_options(tmp_path: Path, key: str) -> None:
    """No schema takes a secret of a login, when a table is made or later; the error has the option and no value."""
    catalog = FileCatalog(str(tmp_path))
    columns = pa.schema([("id", pa.int64())])
    with pytest.raises(InvalidInputError, match=f"options={key} fix='give it to the catalog") as made:
        catalog.create_table("db.t", columns, options={"bucket": "-1", key: SECRETS[key]})
    catalog.create_table("db.t", columns, options={"bucket": "-1"})
    with pytest.raises(InvalidInputError, match=f"options={key} fix='give it to the catalog") as altered:
        catalog.alter_table("db.t", [SetOption(key, SECRETS[key])])
    assert "hush" not in str(made.value) + str(altered.value)
    assert catalog.table("db.t").store.schemas.ids() == [0]


def test_an_address_with_a_password_is_not_store_options(tmp_path: Path) -> None:
    """The fix names the option that takes the login of a registry."""
    with pytest.raises(InvalidInputError, match=r"options=log\.schema-registry\.url .*basic-auth\.user-info"):
        FileCatalog(str(tmp_path)).create_table(
            "db.t", pa.schema([("id", pa.int64())]), options={"bucket": "-1", ADDRESS: "https://u:hush@r.example:81/a"}
        )


def test_stored_logins_are_found_and_removed(table: FileTable) -> None:
    """Of every version, branch and note; other options and members that are not known stay."""
    paths = files(table, "schema/schema-0", "schema/schema-1", "branch/branch-b/schema/schema-0")
    for path in paths:
        store_options(path, {**SECRETS, **OF_FLINK, ADDRESS: "https://u:hush@r.example:81/a"})
    (origin,) = files(table, "branch/branch-b/ORIGIN")
    store_options(origin, {"log.kafka.sasl.password": "hush"})
    (log,) = files(table, "branch/branch-b/LOG")
    log.write_text(json.dumps({"log.system": "kafka", "log.kafka.sasl.password": "hush"}))

    found = find_logins(table.store, branch_names(table.store))
    assert [each.path for each in found] == sorted(map(str, (*paths, origin, log)))
    assert found[-1] == StoredLogin(path=str(paths[1]), options=tuple(sorted((*SECRETS, *OF_FLINK, ADDRESS))))

    assert remove_logins(table.store, lambda: branch_names(table.store)) == found
    assert find_logins(table.store, branch_names(table.store)) == []
    assert "hush" not in "".join(path.read_text() for path in (*paths, origin, log))
    body = json.loads(paths[1].read_text())
    assert body["unknown"] == [1]
    assert body["options"][ADDRESS] == "https://r.example:81/a"
    assert (body["options"]["log.kafka.client.id"], body["options"]["target-file-size"]) == ("c", "1 mb")
    assert json.loads(log.read_text()) == {"log.system": "kafka"}
    assert remove_logins(table.store, lambda: branch_names(table.store)) == []


def test_a_change_beside_the_removal_is_refused_or_cleaned(table: FileTable) -> None:
    """An ALTER that was decided on a version with the login does not bring it back: it decides again."""
    (newest,) = files(table, "schema/schema-1")
    store_options(newest, SECRETS)
    catalog = FileCatalog(str(Path(table.store.paths.root).parent.parent))
    schemas = catalog.table("db.t").store.schemas
    decided_on = schemas.read(1)
    remove_logins(table.store, lambda: branch_names(table.store))
    with pytest.raises(ConflictError, match="schema version changed meanwhile"):
        schemas.create(replace(decided_on, id=2), after=decided_on)
    assert schemas.ids() == [0, 1]


@pytest.mark.parametrize("body", ["", "[]", "{"])
def test_a_broken_file_is_named(table: FileTable, body: str) -> None:
    """A search that skipped it would say that there is no login."""
    (path,) = files(table, "schema/schema-0")
    path.write_text(body)
    with pytest.raises(CorruptDataError, match=str(path)):
        find_logins(table.store, branch_names(table.store))
