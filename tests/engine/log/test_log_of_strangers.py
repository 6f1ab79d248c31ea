"""A table's files may be another's: the clients of its log load, trust and log in with what the opener gave alone."""

from pathlib import Path

import pytest

from engine import Catalog
from engine.log.table_log import TableLog, at_log_of
from engine.monitor.doctor import diagnose, examine
from engine.request.writer_options import TABLE_WRITE_KEYS, WriterOptions
from filestore.evolution.schema_change import SetOption
from filestore.options.log_place import SERVERS_KEY
from filestore.table_view import TableView
from lsm.errors import InvalidInputError
from tests.support.stored_login import store_options
from tests.support.tables import KEY_SCHEMA

HOSTILE = {
    "log.kafka.plugin.library.paths": "/evil.so",
    "log.kafka.metadata.broker.list": "evil:1",
    "log.kafka.enable.ssl.certificate.verification": "false",
    "log.kafka.ssl.engine.location": "/evil.so",
    "log.kafka.sasl.oauthbearer.token.endpoint.url": "http://evil",
    "log.kafka.of.a.later.client": "x",
}
MINE = {
    SERVERS_KEY: "mine:9093",
    "log.kafka.security.protocol": "SASL_SSL",
    "log.kafka.sasl.mechanism": "PLAIN",
    "log.kafka.sasl.username": "u",
    "log.kafka.sasl.password": "hush",
    "log.kafka.ssl.ca.location": "/etc/ca.pem",
}
LOGIN = {key.removeprefix("log.kafka.") for key in MINE if key != SERVERS_KEY}


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """With a table whose files a stranger wrote: its log is at the victim's brokers."""
    table = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    place = {SERVERS_KEY: MINE[SERVERS_KEY], "log.kafka.topic": "t", "log.kafka.topic-id": "i", "log.system": "kafka"}
    store_options(table.store.paths.schema(0), {**HOSTILE, **place, "log.kafka.linger.ms": "3"})
    return str(tmp_path)


def client(log: TableLog | None) -> dict[str, str]:
    assert log is not None
    return dict(log.properties.by_name)


def test_a_file_of_a_table_adds_nothing_to_the_clients_but_address_and_tuning(
    warehouse: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert client(Catalog(warehouse).table("db.t").log) == {"bootstrap.servers": "mine:9093", "linger.ms": "3"}
    assert all(key in caplog.text for key in HOSTILE)
    opened = client(Catalog(warehouse, options=MINE).table("db.t").log)
    assert opened == {"linger.ms": "3", **{key.removeprefix("log.kafka."): text for key, text in MINE.items()}}


def test_the_doctor_names_what_has_no_effect_and_one_command_removes_it(warehouse: str) -> None:
    table = Catalog(warehouse).table("db.t")
    found = next(each for each in diagnose(examine(table)) if each.check == "login")
    assert found.values["options"] == ", ".join(sorted(HOSTILE))
    assert "no effect" in found.fact
    assert "remove-stored-login" in str(found.fix)


def test_a_login_does_not_follow_a_table_to_other_brokers(warehouse: str) -> None:
    table = Catalog(warehouse, options=MINE).table("db.t")
    store_options(table.store.paths.schema(0), {SERVERS_KEY: "theirs:1"})
    assert not LOGIN & client(Catalog(warehouse, options=MINE).table("db.t").log).keys()
    moved = at_log_of(table.store, Catalog(warehouse).table("db.t").store.schema)
    assert not LOGIN & client(TableLog.of(TableView(moved))).keys()


@pytest.mark.parametrize("key", [*HOSTILE, "log.kafka.security.protocol", "log.schema-registry.ssl.ca.location"])
def test_no_table_takes_what_is_its_openers_to_give(tmp_path: Path, key: str) -> None:
    catalog = Catalog(str(tmp_path))
    message = f"options={key} fix='give it to the catalog"
    with pytest.raises(InvalidInputError, match=message):
        catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", key: "x"})
    assert not catalog.table_exists("db.t")
    catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=message):
        catalog.alter_table("db.t", [SetOption(key, "x")])


def test_a_table_that_is_made_stores_nothing_that_is_its_catalogs(tmp_path: Path) -> None:
    given = {key: text for key, text in {**MINE, **HOSTILE}.items() if key != SERVERS_KEY}
    table = Catalog(str(tmp_path), options={**given, "log.kafka.linger.ms": "3"}).create_table("db.t", KEY_SCHEMA)
    assert not given.keys() & table.schema.options.keys()
    assert table.schema.options["log.kafka.linger.ms"] == "3"


def test_what_a_writer_is_given_is_its_own(warehouse: str) -> None:
    """Its login too, beside the address; an address of its own does not get the catalog's login."""

    def opened(**options: str) -> dict[str, str]:
        given = {f"log.kafka.{key.replace('_', '.')}": text for key, text in options.items()}
        table = Catalog(warehouse, options=MINE).table("db.t")
        return client(TableLog.of(table.files, WriterOptions.parse(given, TABLE_WRITE_KEYS)))

    assert opened(debug="all")["debug"] == "all"
    assert opened(sasl_username="me") == {**opened(), "sasl.username": "me"}
    assert not LOGIN & opened(bootstrap_servers="other:1").keys()
    stranger = Catalog(warehouse).table("db.t").files
    with pytest.raises(InvalidInputError, match=rf"address=mine:9093 fix='give {SERVERS_KEY} beside it'"):
        TableLog.of(stranger, WriterOptions.parse({"log.kafka.sasl.password": "hush"}, TABLE_WRITE_KEYS))
