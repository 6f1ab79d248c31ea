"""The login of a broker of this machine: who has not read its password file neither reads nor writes a topic."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from engine import Catalog
from engine.broker import broker as broker_module
from engine.broker.broker import Broker, Listening
from engine.cli.app import run_command
from engine.cli.commands import broker as broker_commands
from lsm.errors import FluvialError, InvalidInputError
from tests.support.clients import quiet_admin
from tests.support.rows import id_rows
from tests.support.warehouses import new_table


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("guarded"), has_login=True) as running:
        yield running


def log_options(broker: Broker) -> dict[str, str]:
    """What ``fluvial broker start`` prints."""
    return {f"log.kafka.{name}": text for name, text in broker.status().client_options.items()}


@pytest.mark.broker
@pytest.mark.long
def test_a_table_is_written_and_read_with_what_the_start_prints_and_not_without(
    tmp_path: Path, guarded: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = ["--dir", str(guarded.data_dir)]
    assert run_command(["broker", "start", *directory]) == 0  # it runs
    printed = capsys.readouterr().out
    given = log_options(guarded)
    assert all(f"{name}=" in printed for name in given)
    assert guarded.client_properties["sasl.password"] not in printed
    table = new_table(Catalog(str(tmp_path), options=given))
    table.write(id_rows([1, 2]))
    assert table.read(options={"scan.log.union": "true"}).to_arrow().num_rows == 2
    assert run_command(["broker", "create-topic", "in", *directory]) == 0
    servers = {"log.kafka.bootstrap.servers": guarded.bootstrap_servers}
    for wrong in (servers, {**given, "log.kafka.sasl.password": "guessed"}):
        with pytest.raises(FluvialError):
            Catalog(str(tmp_path), options=wrong).table(table.name).write(id_rows([3]))


@pytest.mark.broker
@pytest.mark.long
def test_no_other_door_of_the_broker_is_open(guarded: Broker) -> None:
    known = Listening.of(guarded.data_dir)
    assert known is not None
    for port in (known.port, known.controller_port):
        client = quiet_admin(f"127.0.0.1:{port}")
        with pytest.raises(KafkaException):
            client.list_topics(timeout=2)
    for name in ("password", "server.properties"):
        assert (guarded.data_dir / name).stat().st_mode & 0o077 == 0
    assert "password" not in Path(f"/proc/{guarded.status().pid}/cmdline").read_text()


@pytest.mark.broker
@pytest.mark.long
def test_a_restart_keeps_login_and_password_until_one_says_otherwise(guarded: Broker) -> None:
    before = guarded.client_properties
    guarded.stop()
    again = Broker(guarded.data_dir).start()
    assert again.client_properties == before
    with pytest.raises(InvalidInputError, match=r"with another login: known=.* with a login.* fix='stop it"):
        Broker(guarded.data_dir, has_login=False).start()
    again.stop()
    guarded.start()


@pytest.mark.parametrize(
    ("host", "has_login", "expected"),
    [
        (None, None, False),
        ("localhost", None, False),
        ("127.0.0.9", None, False),
        (None, True, True),
        ("10.1.2.3", None, True),
        ("gateway.example", None, True),
        ("gateway.example", False, False),
    ],
)
def test_an_address_that_others_reach_has_a_login_unless_one_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str | None, has_login: bool | None, expected: bool
) -> None:
    monkeypatch.setattr(broker_module, "_is_free", lambda *_: True)
    for each in (Broker(tmp_path, host=host, has_login=has_login), Broker(tmp_path)):  # the second one as the first
        each._prepare()
        found = Listening.of(tmp_path)
        assert found is not None
        assert (found.has_login, found.host) == (expected, host or "127.0.0.1")
        assert ("PlainLoginModule" in (tmp_path / "server.properties").read_text()) == expected
    Broker(tmp_path, host="198.51.100.1")._prepare()
    found = Listening.of(tmp_path)
    assert found is not None
    assert found.has_login


def test_a_directory_of_before_starts_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "_is_free", lambda *_: True)
    (tmp_path / "ports.json").write_text(json.dumps({"port": 20_001, "controller_port": 20_002}))
    Broker(tmp_path)._prepare()
    assert Listening.of(tmp_path) == Listening(port=20_001, controller_port=20_002)


@pytest.mark.parametrize(("flag", "is_said"), [("--no-login", True), ("--login", False)])
def test_an_open_door_is_said_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, is_said: bool
) -> None:
    def start(self: Broker, *_: Any) -> Broker:
        self._prepare()
        return self

    monkeypatch.setattr(broker_module, "_is_free", lambda *_: True)
    monkeypatch.setattr(Broker, "start", start)
    monkeypatch.setattr(Broker, "_live_pid", lambda self: 7)
    assert run_command(["broker", "start", "--dir", str(tmp_path), "--host", "gateway.example", flag]) == 0
    assert ("read and write all topics, without a password" in capsys.readouterr().err) == is_said


@pytest.mark.parametrize("host", broker_commands._EVERYWHERE)
def test_an_address_that_no_client_can_ask_for_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert run_command(["broker", "start", "--dir", str(tmp_path), "--host", host]) == 2
    assert "fix='give the name of one of them'" in " ".join(capsys.readouterr().err.split())
