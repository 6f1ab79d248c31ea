"""Server-sent events, by a real HTTP client: ids are positions, so reconnects lose and repeat nothing."""

import http.client
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from engine import Catalog, Table
from engine.follow.server import ChangeServer
from tests.stores.azurite import node
from tests.stores.processes import free_port
from tests.support.markdown import ROOT
from tests.support.streams import content, fold, rows
from tests.support.warehouses import ID_SCHEMA

PAGE = ROOT / "docs/examples/live-table.html"


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "2"})
    made.write(rows(range(5), 'quo"te\nline'))
    return made


@pytest.fixture
def server(table: Table) -> Iterator[ChangeServer]:
    def open_stream(start: Any, quiet_s: float) -> Any:
        return table.stream(start or "full", max_rows=2, idle_s=min(quiet_s, 0.05))

    with ChangeServer(("127.0.0.1", 0), open_stream, page=PAGE.read_bytes()) as running:
        yield running


class Browser:
    """What an EventSource does: it keeps the last id, and sends it when it connects again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.last: str | None = None
        self.rows: list[dict[str, Any]] = []
        self.comments = 0

    def read(self, events: int) -> None:
        """Connect, take some events, and go, maybe in the middle of one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", "/changes", headers={} if self.last is None else {"Last-Event-ID": self.last})
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        while events:
            line = answer.readline().decode().rstrip("\n")
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                self.last = fields.get("id", self.last)
                if fields.get("event") == "changes":
                    self.rows += json.loads(fields["data"])
                    events -= 1
                fields = {}
        answer.close()
        connection.close()


@pytest.mark.sweep
def test_reconnects_lose_and_repeat_nothing(table: Table, server: ChangeServer) -> None:
    """Connections end after one, two, … events, within and between batches, while the table is written."""
    browser = Browser(server.port)
    browser.read(1)
    assert len(browser.rows) == 2
    table.write(rows([1, 7], "new"))
    browser.read(2)
    table.write(rows([2], kind="-D"))
    while len(browser.rows) < 5 + 2 + 1:
        browser.read(1)
    assert len(browser.rows) == 8
    assert fold(browser.rows) == content(table)


@pytest.mark.sweep
def test_a_quiet_stream_stays_open(table: Table, server: ChangeServer) -> None:
    """It is looked at by comments, and goes on at its position."""
    browser = Browser(server.port)
    browser.read(3)
    writer = browser.last
    assert writer is not None
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/changes", headers={"Last-Event-ID": writer})
    answer = connection.getresponse()
    quiet = 0
    while quiet < 3:
        quiet += answer.readline().startswith(b": still here")
    table.write(rows([8]))
    line = b""
    while not line.startswith(b"data: "):
        line = answer.readline()
    assert [row["id"] for row in json.loads(line.removeprefix(b"data: "))] == [8]
    answer.close()
    connection.close()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("path", "headers", "status", "said"),
    [
        ("/", {}, 200, "EventSource"),
        ("/nothing", {}, 404, "GET /changes"),
        ("/changes", {"Last-Event-ID": "{"}, 400, "not a position"),
        ("/changes?from=missing.here", {}, 400, "missing.here"),
        ("/", {"Host": "evil.example:80"}, 403, "localhost"),
    ],
)
def test_answers(server: ChangeServer, path: str, headers: dict[str, str], status: int, said: str) -> None:
    """Refusals are no stream that a browser would open again; other names of this machine are refused."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == status
        assert said in answer.read().decode()
        length = answer.headers["Content-Length"]
        connection.request("HEAD", path, headers=headers)
        head = connection.getresponse()
        assert (head.status, head.headers["Content-Length"], head.read()) == (status, length, b"")


def test_a_look_at_the_head_of_the_stream_is_answered_and_holds_no_place(server: ChangeServer) -> None:
    """It was 501; more of them than there are places for clients."""
    for _ in range(105):
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
            connection.request("HEAD", "/changes")
            answer = connection.getresponse()
            assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
            assert answer.read() == b""


STARTS = [
    '{"version":1,"phase":"log","snapshot":1e400,"schema":0,"offsets":{}}',
    '{"version":1,"phase":"log","snapshot":1,"schema":0,"offsets":{"0":1e400}}',
    "[" * 20_000,
    "{" * 3000 + "}",
    '{"at":' * 5000,
    "timestamp.-1e400",
    "snapshot." + "9" * 5000,
    "9" * 5000,
    "tag.\x00",
    "\ud800",
    "checkpoint./etc",
    "checkpoint.",
]


def test_no_start_of_a_client_costs_a_place(server: ChangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred malformed starts, from any page, shut the server for all."""
    monkeypatch.setattr(server, "clients", threading.BoundedSemaphore(2))
    for start in [*STARTS, *STARTS]:
        for _ in range(2):  # a place is free again soon after its answer, not before
            assert server.clients.acquire(timeout=20)
        server.clients.release(2)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
            given = quote(start.encode("utf-8", "surrogatepass"))
            connection.request("GET", f"/changes?from={given[:60_000]}")
            answer = connection.getresponse()
            assert answer.status in (400, 414), (start[:60], answer.status)
            assert b"Traceback" not in answer.read()


def test_an_error_that_is_not_foreseen_costs_no_place_either(caplog: pytest.LogCaptureFixture) -> None:
    def broken(start: Any, quiet_s: float) -> Any:
        raise KeyError("unforeseen")

    with ChangeServer(("127.0.0.1", 0), broken) as server:
        server.clients = threading.BoundedSemaphore(1)
        for _ in range(3):
            with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
                connection.request("GET", "/changes")
                with pytest.raises(http.client.RemoteDisconnected):
                    connection.getresponse()
        assert server.clients.acquire(timeout=20)
        assert "unforeseen" in caplog.text


def test_a_client_that_does_not_read_gives_its_place_back(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.listener.SEND_S", 0.5)
    wide = rows(range(20_000), "x" * 1000)
    table.write(wide)
    with ChangeServer(("127.0.0.1", 0), lambda start, quiet_s: table.stream("full", idle_s=quiet_s)) as server:
        server.clients = threading.BoundedSemaphore(1)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            client.sendall(b"GET /changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(10)
            assert server.clients.acquire(timeout=30)


def asking(port: int, head: bytes = b"GET /changes HTTP/1.1\r\nHost: localhost\r\n\r\n") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(head)
    return client


def read_until(client: socket.socket, text: bytes) -> None:
    found = b""
    while text not in found:
        piece = client.recv(1 << 16)
        assert piece, found[:200]
        found = found[-len(text) :] + piece


def test_who_sends_no_request_does_not_keep_others_out(server: ChangeServer) -> None:
    """A place is for those who ask: the one that has waited longest for a request is ended for a new one."""
    server._http._places = threading.BoundedSemaphore(2)
    with ExitStack() as held:
        idle = [held.enter_context(asking(server.port, b"GET / HT")) for _ in range(2)]
        read_until(held.enter_context(asking(server.port)), b"retry: 1000")
        assert idle[0].recv(10) == b""
        read_until(held.enter_context(asking(server.port)), b"retry: 1000")
        assert idle[1].recv(10) == b""
        assert held.enter_context(asking(server.port)).recv(10) == b"", "both places have streams"


def test_a_client_finds_a_place_though_threads_end_late(server: ChangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine: the first connection that is ended keeps its place; one of the next ones leaves its own."""
    listener = server._http
    listener._places, ended = threading.BoundedSemaphore(3), listener._is_freed
    first: list[bool] = []

    def freed() -> bool:
        if first:
            return ended()
        first.append(True)
        with listener._lock:
            listener._waiting.pop(next(iter(listener._waiting)))  # it is asked to end, and does not
        return True

    monkeypatch.setattr(listener, "_is_freed", freed)
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(asking(server.port, b"GET / HT"))
        read_until(held.enter_context(asking(server.port)), b"retry: 1000")
    assert first


@pytest.mark.long
def test_a_hundred_good_clients_do_not_notice_two_thousand_hostile_ones(table: Table) -> None:
    """They hold connections without requests, never end their requests, send nonsense, and read nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard == resource.RLIM_INFINITY or hard >= 6000, "this process needs more descriptors: ulimit -n 6000"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6000), hard))
    heads = [
        b"",
        b"GET /changes HTTP/1.1\r\nX: ",
        b"\x00" * 100,
        b"GET /changes?from={1e999 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ]

    def open_stream(start: Any, quiet_s: float) -> Any:
        return table.stream(start or "latest", idle_s=quiet_s)

    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        server = held.enter_context(ChangeServer(("127.0.0.1", 0), open_stream))
        good = [held.enter_context(asking(server.port)) for _ in range(90)]
        for each in good:
            read_until(each, b"retry: 1000")
        for number in range(2000):
            with suppress(OSError):  # refused, or ended while it sends
                held.enter_context(asking(server.port, heads[number % len(heads)]))
        for _ in range(10):  # they come while all places are taken
            good.append(held.enter_context(asking(server.port)))
            read_until(good[-1], b"retry: 1000")
        table.write(rows([77], "news"))
        for each in good:
            read_until(each, b"news")
        assert len(good) == 100


@pytest.mark.parametrize(
    ("address", "hosts", "asked", "is_answered"),
    [
        ("127.0.0.1", (), "localhost:8080", True),
        ("127.0.0.1", (), "evil.example", False),
        ("127.0.0.1", ("tables.example",), "Tables.example:80", True),
        ("0.0.0.0", (), "any.example", True),
        ("0.0.0.0", ("tables.example",), "tables.example", True),
        ("0.0.0.0", ("tables.example",), "evil.example", False),
        ("0.0.0.0", ("tables.example",), "localhost", False),
        ("0.0.0.0", ("tables.example",), "", False),
    ],
)
def test_a_server_answers_to_the_names_that_it_was_given(
    address: str, hosts: tuple[str, ...], asked: str, is_answered: bool
) -> None:
    def refused(start: Any, quiet_s: float) -> Any:
        raise AssertionError

    with ExitStack() as stack:
        server = stack.enter_context(ChangeServer((address, 0), refused, page=b"page", hosts=hosts))
        connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)))
        connection.request("GET", "/", headers={"Host": asked})
        assert (connection.getresponse().status == 200) is is_answered


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= 50


@pytest.mark.sweep
def test_the_page_shows_the_table_through_the_end_of_its_server(table: Table, tmp_path: Path) -> None:
    """``fluvial tail --serve`` and the page of the examples, by the EventSource of Node.js. The server ends while the
    page is open, and another one answers there: the page goes on, and counts each change once."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    arguments = ["db.t", "--warehouse", str(tmp_path / "warehouse"), "--from", "full", "--serve", address]
    serve = [sys.executable, "-m", "engine.cli", "tail", *arguments, "--page", str(PAGE)]
    script = Path(__file__).with_name("browser.js")
    look = [node(), "--experimental-eventsource", str(script), str(PAGE)]
    with running(serve, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert f"http://{address}/changes" in server.stderr.readline()
        with running([*look, f"http://{address}", "5"], stdout=subprocess.PIPE) as page:
            assert page.stdout is not None
            shown = json.loads(page.stdout.readline())
            assert shown["head"] == ["id", "v"]
            assert sorted(row[0] for row in shown["rows"]) == [0, 1, 2, 3, 4]
            assert shown["state"] == "5 rows, 5 changes"
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0
            table.write(rows([1, 7], "new"))
            table.write(rows([2], kind="-D"))
            with running(serve, stderr=subprocess.PIPE):
                while count_of(shown) < 8:
                    shown = json.loads(page.stdout.readline())
                assert count_of(shown) == 8
    assert {(row[0],): {"id": row[0], "v": row[1]} for row in shown["rows"]} == content(table)


def count_of(shown: dict[str, Any]) -> int:
    """Of changes, as the page says it: ``5 rows, 8 changes``; 0 while it is not connected."""
    return int(shown["state"].split()[2]) if shown["state"].endswith(" changes") else 0


@contextmanager
def running(command: list[str], **pipes: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that is ended with the block."""
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()
