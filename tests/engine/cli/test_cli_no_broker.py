"""Commands about a table whose brokers are not there: they ask for them once, and say so in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_FAILED
from logstore.kafka import topics as topics_module
from logstore.kafka.topics import LogTopics

NOBODY = "127.0.0.1:1"
REFUSED = {
    "copy": ("--source-table", "shop.orders", "--target-table", "shop.copied"),
    "lag": ("shop.orders",),
    "replace-main-branch": ("shop.orders", "--branch", "side"),
    "rescale": ("shop.orders", "--bucket-num", "4"),
    "reset-log": ("shop.orders",),
    "sign-log": ("shop.orders",),
    "sync-log": ("shop.orders",),
    "tail": ("shop.orders",),
    "verify": ("shop.orders",),
}
SAID = {"doctor": ("shop.orders",), "metrics": ("shop.orders",)}
NOT_ASKED = {"compact": ("shop.orders",), "describe": ("shop.orders",), "ls": (), "read": ("shop.orders",)}


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """A table with rows, a branch, and a log at brokers that are not there."""
    table = Catalog(str(tmp_path)).create_table("shop.orders", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}))
    table.branches.create("side")
    log = {"log.system": "kafka", "log.kafka.bootstrap.servers": NOBODY, "log.kafka.topic": "shop.orders"}
    for file in tmp_path.rglob("schema-*"):
        schema = json.loads(file.read_text(encoding="utf-8"))
        schema["options"] |= log
        file.write_text(json.dumps(schema), encoding="utf-8")
    return str(tmp_path)


@pytest.fixture
def contacts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of brokers: a contact ends after ``FIRST_CONTACT_S``, another request only after minutes."""
    asked: list[str] = []
    await_contact, wait = LogTopics._await_contact, LogTopics._wait

    def first(topics: LogTopics, answer: Any) -> None:
        asked.append("contact")
        await_contact(topics, answer)

    def later(topics: LogTopics, future: Any, doing: str) -> Any:
        asked.append(doing)
        return wait(topics, future, doing)

    monkeypatch.setattr(LogTopics, "_await_contact", first)
    monkeypatch.setattr(LogTopics, "_wait", later)
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 0.2)
    return asked


@pytest.mark.sweep
@pytest.mark.parametrize("command", [*REFUSED, *SAID])
def test_a_command_asks_once_for_brokers_that_are_not_there(
    command: str, warehouse: str, contacts: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Which takes eight seconds, and no longer: ``tail`` and ``sync-log`` waited for a minute, ``doctor`` twice."""
    code = run_command([command, *(REFUSED | SAID)[command], "--warehouse", warehouse])
    printed = capfd.readouterr()
    assert contacts == ["contact"]
    if command in SAID:
        assert (code, printed.err) == (0, "")
    else:
        assert (code, len(printed.err.splitlines())) == (EXIT_FAILED, 1)
        assert f"brokers cannot be reached: bootstrap.servers={NOBODY}" in printed.err
        assert " fix=check that the broker of log.kafka.bootstrap.servers runs" in printed.err


@pytest.mark.parametrize("command", NOT_ASKED)
def test_a_command_about_files_asks_no_broker(command: str, warehouse: str, contacts: list[str]) -> None:
    assert run_command([command, *NOT_ASKED[command], "--warehouse", warehouse]) == 0
    assert contacts == []


@pytest.mark.sweep
def test_the_script_of_an_example_says_so_too(tmp_path: Path) -> None:
    """Librdkafka itself has a line for each attempt to connect, a hundred of them."""
    assert run_command(["init", str(tmp_path / "demo")]) == 0
    (script,) = (tmp_path / "demo").glob("*.py")
    environment = {**os.environ, "KAFKA": NOBODY}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"the brokers do not answer: KAFKA={NOBODY} reason=")
    assert len(done.stderr.splitlines()) == 1


def test_the_first_contact_leaves_time_for_the_rest_of_ten_seconds() -> None:
    assert topics_module.FIRST_CONTACT_S <= 8
