"""Whatever listens for requests: a hostile client costs no other one its answer, and no thread permanently."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from engine.deploy.config.job_config import HealthConfig
from engine.deploy.pipeline.health import Health, _server
from engine.follow.server import ChangeServer
from engine.runtime import listener
from engine.runtime.metrics import serve_metrics
from engine.ui import app
from tests.support.consoles import running

BEGUN = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@contextmanager
def of_changes(place: Path) -> Iterator[int]:
    with ChangeServer(("127.0.0.1", 0), lambda *given: pytest.fail("no stream is asked for"), page=b"here") as server:
        yield server.port


@contextmanager
def of_metrics(place: Path) -> Iterator[int]:
    with serve_metrics(0, registry=CollectorRegistry()) as port:
        yield port


class Fine(Health):
    """The state of a job that is well."""

    def __init__(self) -> None:
        pass

    def state(self) -> dict[str, object]:
        return {"live": True, "ready": True}


@contextmanager
def of_health(place: Path) -> Iterator[int]:
    with _server(HealthConfig(port=0), Fine()) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def of_console(place: Path) -> Iterator[int]:
    with running(place) as client:
        yield client.port


Opened = Callable[[Path], AbstractContextManager[int]]
SERVERS = {"tail --serve": of_changes, "metrics": of_metrics, "health": of_health, "ui": of_console}
each_server = pytest.mark.parametrize("opened", SERVERS.values(), ids=SERVERS)


def asking(port: int, head: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(head)
    return client


@each_server
@pytest.mark.parametrize("first", [b"", BEGUN], ids=["silent", "dripping"])
def test_a_request_that_never_ends_is_ended(
    opened: Opened, first: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of which a byte comes now and then."""
    for place in (listener, app):
        monkeypatch.setattr(place, "HEAD_S", 0.3)
    with opened(tmp_path) as port, asking(port, first) as client:
        client.settimeout(0.05)
        while True:
            try:
                if client.recv(1000) == b"":
                    break
            except TimeoutError:
                with suppress(OSError):
                    client.sendall(b"x" if first else b"")
            except ConnectionError:
                break


@each_server
def test_who_sends_no_request_does_not_keep_others_out(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is for those who ask: the one that has waited longest for a request is ended for a new one."""
    for place in (listener, app):
        monkeypatch.setattr(place, "_MOST_CONNECTIONS", 4)
    with opened(tmp_path) as port, ExitStack() as held:
        for head in [b"", BEGUN] * 8:
            held.enter_context(asking(port, head))
        for _ in range(3):
            answered = held.enter_context(asking(port, WHOLE))
            status = answered.recv(100).split()[1]
            assert status in (b"200", b"401", b"403"), status


def test_a_client_of_the_console_that_does_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SEND_S", 0.3)
    stop, size = threading.Event(), 1 << 26

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("x" * size)(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=app.serve, args=(answer, listening), kwargs={"stop": stop})
        thread.start()
        with asking(listening.getsockname()[1], WHOLE) as client:
            assert client.recv(10)
            threading.Event().wait(1.5)
            received = 0
            with suppress(ConnectionError):
                while piece := client.recv(1 << 20):
                    received += len(piece)
            assert received < size
        stop.set()
        thread.join()
