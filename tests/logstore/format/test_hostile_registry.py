"""A registry that is not what it says: it gets no login of another, no memory, no time, and no raw error."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from logstore.format import schema_registry
from logstore.format.schema_registry import SchemaRegistry
from lsm.errors import FluvialError, InvalidInputError, UnavailableError


class Served(ThreadingHTTPServer):
    """Answers everything with one answer, and notes the logins that it is given."""

    daemon_threads = True

    def __init__(self, body: bytes = b"", *, to: str | None = None, drips: str | None = None) -> None:
        self.body, self.to, self.drips, self.logins = body, to, drips, list[str | None]()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Served

    def do_GET(self) -> None:
        self.server.logins.append(self.headers.get("Authorization"))
        if self.server.drips == "head":
            self._drip(b"HTTP/1.0 200 OK\r\nX: ")
            return
        if self.server.to is not None and "again" not in self.path:
            self.send_response(302)
            self.send_header("Location", self.server.to)
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if self.server.drips == "body":
            self._drip(b"")
            return
        self.wfile.write(self.server.body)

    do_POST = do_GET

    def _drip(self, first: bytes) -> None:
        self.wfile.write(first)
        while True:
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def served(server: Served) -> Iterator[Served]:
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


GOOD = b'{"schema": "\\"long\\""}'


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("login", [{"user_info": "u:hush"}, {"token": "hush"}])
def test_a_login_does_not_follow_a_redirect_to_another_address(login: dict[str, str], host: str) -> None:
    with served(Served(GOOD)) as other, served(Served(to=f"http://{host}:{other.server_port}/x")) as first:
        registry = SchemaRegistry(url=first.url, **login)  # type: ignore[arg-type]
        with pytest.raises(UnavailableError, match="another address, which gets no login"):
            registry.schema_text(1)
        assert other.logins == []


def test_a_redirect_on_the_same_address_is_followed() -> None:
    with served(Served(GOOD, to="/again")) as server:
        assert SchemaRegistry(url=server.url, token="t").schema_text(1) == '"long"'
        assert server.logins == ["Bearer t", "Bearer t"]


HOSTILE = {
    "a list": b"[]",
    "a number": b"5",
    "null": b"null",
    "no text": b'{"schema": 5}',
    "no schema": b"{}",
    "nested": b"[" * 200_000,
    "no JSON": b"<html>",
    "no bytes": b"",
    "no UTF-8": b"\xff\xfe",
    "large": b" " * (schema_registry._MOST_BYTES + 10),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_an_error_that_names_the_registry(body: bytes) -> None:
    with served(Served(body)) as server:
        registry = SchemaRegistry(url=server.url)
        with pytest.raises(FluvialError, match=f"schema.registry.url={server.url}"):
            registry.schema_text(1)
        with pytest.raises(FluvialError, match=f"schema.registry.url={server.url}"):
            registry.register("s", '"long"')


@pytest.mark.parametrize("text", [b"x", b"[" * 100_000])
def test_a_hostile_schema_is_an_error_that_names_the_registry(text: bytes) -> None:
    with served(Served(b'{"schema": "' + text + b'"}')) as server:
        registry = SchemaRegistry(url=server.url)
        with pytest.raises(InvalidInputError, match=f"schema.registry.url={server.url} schema_id=1 "):
            registry.schema(1)


@pytest.mark.parametrize("drips", ["head", "body"])
def test_an_answer_has_one_time_limit_however_it_comes(drips: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_TIMEOUT_S", 0.5)
    with served(Served(drips=drips)) as server:
        registry = SchemaRegistry(url=server.url)
        with pytest.raises(UnavailableError, match=r"no whole answer within 0\.5 s"):
            registry.schema_text(1)
