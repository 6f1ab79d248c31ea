"""What listens for all of a network without a password says so; at this machine's own address nothing is said."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from engine.cli import app
from engine.cli.commands import serve, tail
from engine.deploy.config.job_config import HealthConfig
from engine.deploy.pipeline import health
from engine.runtime.metrics import serve_metrics
from tests.support.rows import id_rows
from tests.support.warehouses import new_table


@contextmanager
def silent_server(*given: Any, **named: Any) -> Iterator[None]:
    yield


@contextmanager
def stopped(stop: threading.Event, *given: Any) -> Iterator[None]:
    stop.set()
    yield


def of_serve(host: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(serve, "_serving", silent_server)
    patch.setattr(serve, "stop_on_signals", stopped)
    assert app.run_command(["serve", "--warehouse", str(place), "--host", host, "--port", "0"]) == 0


def of_tail(host: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    table = new_table(place)
    table.write(id_rows([1]))
    patch.setattr(tail, "stop_on_signals", stopped)
    assert app.run_command(["tail", table.name, "--warehouse", str(place), "--serve", f"{host}:0"]) == 0


def of_metrics(host: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    with serve_metrics(0, host=host, registry=CollectorRegistry()):
        pass


def of_health(host: str, place: Path, patch: pytest.MonkeyPatch) -> None:
    health._server(HealthConfig(port=0, host=host), None).server_close()  # type: ignore[arg-type]


DOORS = {
    "serve": (of_serve, "act as the user of this process, without a password"),
    "tail --serve": (of_tail, "read the changes, without a password"),
    "metrics": (of_metrics, "read the metrics, with names of tables and jobs, without a password"),
    "health": (of_health, "read the job's state, with names of tables, without a password"),
}


@pytest.mark.parametrize(("opens", "said"), DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_who_may_reach_it_is_said(
    opens: Callable[[str, Path, pytest.MonkeyPatch], None],
    said: str,
    host: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING", logger="fluvial.listening")
    opens(host, tmp_path, monkeypatch)
    text = " ".join(f"{capsys.readouterr().err} {caplog.text}".split())
    assert ("all who reach" in text, said in text) == (host == "0.0.0.0",) * 2
    assert host != "0.0.0.0" or "fix='listen at 127.0.0.1" in text
