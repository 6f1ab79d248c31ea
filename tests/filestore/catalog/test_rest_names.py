"""A REST catalog of Paimon's, read only: a server by its published interface, and pypaimon as another client of it."""

import json
import pickle
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError, UnavailableError
from lsm.secret_names import is_same_place
from tests.peers.pypaimon_peer import peer_python

TOKEN = "s3cret"
PAGE = 2
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
PYPAIMON = """
import json, sys
from pypaimon import CatalogFactory
catalog = CatalogFactory.create(json.loads(sys.argv[1]))
builder = catalog.get_table("shop.orders").new_read_builder()
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
print(json.dumps([catalog.list_databases(), catalog.list_tables("shop"), sorted(rows.to_pylist(), key=str)]))
"""


class Answers(BaseHTTPRequestHandler):
    """config, databases and tables of Paimon's rest-catalog-open-api.yaml, in pages."""

    served: FileCatalog
    status: int | None = None  # of every answer but the configuration

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        names = [unquote_plus(each) for each in parts.path.split("/") if each]
        query = parse_qs(parts.query)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.answer(401, {"message": "no such token", "code": 401})
        elif names == ["v1", "config"]:
            assert query["warehouse"] == ["lake"]
            self.answer(200, {"defaults": {"prefix": "no"}, "overrides": {"prefix": "a b"}})
        elif self.status is not None:
            self.answer(self.status, {"message": "broken", "code": self.status})
        else:
            assert names[:2] == ["v1", "a b"]
            found = self.found(names[2:], query)
            self.answer(404 if found is None else 200, found or {"message": "not there", "code": 404})

    def found(self, names: list[str], query: dict[str, list[str]]) -> dict[str, Any] | None:
        served = self.served
        if names == ["databases"]:
            return self.page("databases", served.list_databases(), query)
        if names[0] != "databases" or not served.database_exists(names[1]):
            return None
        database = names[1]
        if len(names) == 2:
            return {"name": database, "location": f"{served.warehouse}/{database}.db", "options": {"owner": "me"}}
        if len(names) == 3:
            return self.page("tables", [*served.list_tables(database), "files"], query)
        if names[3] == "files":
            schema = {"fields": [], "partitionKeys": [], "primaryKeys": [], "options": {"type": "format-table"}}
            return {"id": "f", "name": "files", "path": "/elsewhere", "schemaId": 0, "schema": schema}
        name = f"{database}.{names[3]}"
        if not served.table_exists(name):
            return None
        table = served.table(name)
        if names[4:] == ["snapshot"]:
            newest = table.store.snapshots.latest()
            assert newest is not None
            shown = json.loads(Path(table.store.paths.snapshot(newest.id)).read_bytes())
            sizes = {"recordCount": 2, "fileSizeInBytes": 1, "fileCount": 2, "lastFileCreationTime": 1}
            return {"snapshot": {"snapshot": shown, **sizes}}
        if names[4:]:
            return None
        stored = json.loads(Path(table.store.paths.schema(table.schema.id)).read_bytes())
        keys = ("fields", "partitionKeys", "primaryKeys", "options", "comment")
        schema = {key: stored.get(key) for key in keys}
        body = {"id": "1", "name": names[3], "path": table.store.paths.root, "isExternal": False, "schema": schema}
        return {**body, "schemaId": table.schema.id, "owner": "me", "createdAt": 1, "updatedAt": 1}

    def page(self, key: str, names: list[str], query: dict[str, list[str]]) -> dict[str, Any]:
        first = int(query.get("pageToken", ["0"])[0])
        token = str(first + PAGE) if first + PAGE < len(names) else None
        return {key: names[first : first + PAGE], "nextPageToken": token}

    def answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FileCatalog, str]]:
    """What is served, and where."""
    served = FileCatalog(str(tmp_path_factory.mktemp("lake")))
    for number in range(5):
        served.create_table(f"shop.t{number}", SCHEMA, options={"bucket": "-1"})
    orders = served.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    orders.write(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    orders.write(pa.table({"id": [2], "v": ["c"]}))
    for name in ("b", "c"):
        served.create_database(name)
    Answers.served = served
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield served, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def options_of(uri: str, **more: str) -> dict[str, str]:
    given = {"metastore": "rest", "uri": uri, "rest.warehouse": "lake", "token.provider": "bear", "token": TOKEN}
    return {**given, **more}


def test_tables_are_found_and_read(server: tuple[FileCatalog, str]) -> None:
    """Issue 20 point 5: names on several pages, a prefix, another format left out; the state is that of the files."""
    served, uri = server
    catalog = FileCatalog(served.warehouse, options_of(uri))
    assert catalog.list_databases() == ["b", "c", "shop"]
    assert catalog.list_tables("shop") == ["orders", "t0", "t1", "t2", "t3", "t4"]
    assert not catalog.database_exists("nothing")
    assert not catalog.table_exists("shop.files")
    with pytest.raises(InvalidInputError, match=r"no such table: table=shop\.order .*did_you_mean=shop\.orders"):
        catalog.table("shop.order")
    table = pickle.loads(pickle.dumps(catalog.table("shop.orders").store))
    assert table.paths.root == served.table("shop.orders").store.paths.root
    read = Catalog(served.warehouse, options=options_of(uri)).table("shop.orders")
    assert sorted(read.read().to_arrow().to_pylist(), key=str) == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]
    assert read.read(version="1").to_arrow().num_rows == 2


@pytest.mark.sweep
def test_another_client_finds_the_same(server: tuple[FileCatalog, str]) -> None:
    """The server is one to pypaimon too, so what it answers is what the interface means."""
    _, uri = server
    given = options_of(uri, warehouse="lake")
    command = [str(peer_python()), "-I", "-c", PYPAIMON, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    databases, tables, rows = json.loads(done.stdout.splitlines()[-1])
    assert sorted(databases) == ["b", "c", "shop"]
    assert sorted(tables) == ["files", "orders", "t0", "t1", "t2", "t3", "t4"]
    assert rows == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]


@pytest.mark.sweep
def test_nothing_is_written(server: tuple[FileCatalog, str]) -> None:
    """Rows, tables, columns, maintenance: all is the server's, and no file appears."""
    served, uri = server
    catalog = FileCatalog(served.warehouse, options_of(uri))
    table = catalog.table("shop.orders")
    before = sorted(map(str, Path(served.warehouse).rglob("*")))
    writes = [
        lambda: table.write(pa.table({"id": [3], "v": ["d"]})),
        lambda: table.compact(full=True),
        lambda: catalog.create_table("shop.new", SCHEMA),
        lambda: catalog.create_database("new"),
        lambda: catalog.drop_table("shop.orders"),
        lambda: catalog.drop_database("b"),
        lambda: catalog.alter_table("shop.orders", [AddColumn(path=("w",), type=parse_data_type("INT"))]),
        lambda: catalog.rename_table("shop.orders", "shop.other"),
    ]
    for write in writes:
        with pytest.raises(InvalidInputError, match=r"REST catalog is only read|cannot be renamed"):
            write()
    assert sorted(map(str, Path(served.warehouse).rglob("*"))) == before
    assert table.read().to_arrow().num_rows == 2


@pytest.mark.sweep
def test_answers_that_are_none(server: tuple[FileCatalog, str], monkeypatch: pytest.MonkeyPatch) -> None:
    served, uri = server
    for options, problem in [
        (options_of(uri, token="other"), r"refuses the login: .*status=401.*no such token.*fix='set token'"),
        (options_of("thrift://h:1"), r"metastore=rest needs its server: uri=thrift://h:1 fix="),
        (options_of(uri.replace("//", "//u:pw@")), r"needs its server: uri=http://\S*127\S+ fix="),
        ({"metastore": "rest", "uri": uri, "token": "x"}, r"token\.provider and token go together"),
        (options_of(uri, **{"lock.enabled": "true"}), r"has no lock: .*fix='leave it out'"),
    ]:
        with pytest.raises(InvalidInputError, match=problem):
            FileCatalog(served.warehouse, options).list_databases()
    monkeypatch.setattr(Answers, "status", 500)
    with pytest.raises(UnavailableError, match=r"does not answer: .*status=500.*broken"):
        FileCatalog(served.warehouse, options_of(uri)).list_databases()
    with pytest.raises(UnavailableError, match=r"does not answer: url=http://127\.0\.0\.1:9/"):
        FileCatalog(served.warehouse, options_of("http://127.0.0.1:9")).list_databases()
    shown = repr(FileCatalog(served.warehouse, options_of(uri))._tables)
    assert TOKEN not in shown


class Elsewhere(BaseHTTPRequestHandler):
    """Answers with one answer, and notes the tokens that it gets."""

    body = b"{}"
    to: str | None = None
    tokens: list[str | None]

    def do_GET(self) -> None:
        self.tokens.append(self.headers["Authorization"])
        self.send_response(200 if self.to is None else 302)
        if self.to is not None:
            self.send_header("Location", self.to)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def answering(**members: Any) -> Iterator[tuple[str, list[str | None]]]:
    tokens: list[str | None] = []
    handler = type("Handler", (Elsewhere,), {**members, "tokens": tokens})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", tokens
        running.shutdown()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_redirect_elsewhere_never_carries_the_token(tmp_path: Path, host: str) -> None:
    with answering() as (other, stolen), answering(to=other.replace("127.0.0.1", host)) as (uri, tokens):
        with pytest.raises(UnavailableError, match="another address, which gets no token"):
            FileCatalog(str(tmp_path), options_of(uri)).list_databases()
        assert (tokens, stolen) == ([f"Bearer {TOKEN}"], [])
    for one, other in [("http://h/a", "https://h/a"), ("http://h/", "http://h:81/"), ("http://h/", "http://g/")]:
        assert not is_same_place(one, other)
    assert is_same_place("https://H/x", "https://h:443/y")


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b"[" * 200_000, b"<html>", b"", b"\xff", b" " * (65 << 20)])
def test_a_hostile_answer_is_an_error_that_names_the_server(tmp_path: Path, body: bytes) -> None:
    with answering(body=body) as (uri, _), pytest.raises(UnavailableError, match=f"does not answer: url={uri}"):
        FileCatalog(str(tmp_path), options_of(uri)).list_databases()
