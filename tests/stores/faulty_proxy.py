"""A proxy in front of an object store that loses answers, or plays a store without conditional writes."""

import http.client
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Decision = Callable[[str, str], bool]
"""Of method and path."""
Headers = Sequence[tuple[str, str]]
CONDITIONS = ("If-None-Match", "x-goog-if-generation-match")
"""That an object is not there: of S3 and Azure, of Google."""


class FaultyProxy:
    """What it does may be changed at any time."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.loses_answer: Decision = lambda method, path: False
        self.loses_request: Decision = lambda method, path: False
        self.lost = 0
        self.knows_conditions = True
        self.remove: Callable[[str], None] | None = None
        """Called with the path before a conditional PUT: so a store that ignores conditions overwrites."""
        self.endpoint = ""
        self.to_store: Callable[[str, str, Headers], Headers] = lambda method, path, headers: headers
        """Of method, path and headers: the headers that the store gets."""
        self.to_client: Callable[[Headers], Headers] = lambda headers: headers
        self.conditions: list[tuple[str, str]] = []
        """Header and value of the conditions of PUTs, in order."""

    def lose_once(self, method: str, part: str) -> Decision:
        """True the first time that such a request comes."""
        lock, left = threading.Lock(), [1]

        def decide(given: str, path: str) -> bool:
            with lock:
                if given == method and part in path and left[0]:
                    left[0] = 0
                    return True
            return False

        return decide


class Handler(BaseHTTPRequestHandler):
    """Passes requests on to ``host``, as ``proxy`` says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet
    host: str
    proxy: FaultyProxy

    def pass_on(self) -> None:
        proxy, asked = self.proxy, (self.command, unquote(self.path))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.requests.append(" ".join(asked))
        if proxy.loses_request(*asked):
            proxy.lost += 1
            self.close_connection = True
            return
        found = [(name, self.headers[name]) for name in CONDITIONS if self.headers.get(name)]
        if found:
            proxy.conditions += found
            if not proxy.knows_conditions:
                self._answer(501, [], b"<Error><Code>NotImplemented</Code></Error>")
                return
            if proxy.remove is not None:
                proxy.remove(self.path)
        status, headers, content = self._forwarded(body)
        if proxy.loses_answer(*asked):
            proxy.lost += 1
            self.close_connection = True
        else:
            self._answer(status, headers, content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = pass_on

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _forwarded(self, body: bytes) -> tuple[int, Headers, bytes]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.proxy.to_store(self.command, self.path, self.headers.items()):
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, self.proxy.to_client(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: Headers, content: bytes) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()


@contextmanager
def faulty_proxy(endpoint: str) -> Iterator[FaultyProxy]:
    """A proxy of the store at an endpoint, with an endpoint of its own."""
    proxy = FaultyProxy()
    handler = type("BoundHandler", (Handler,), {"host": urlsplit(endpoint).netloc, "proxy": proxy})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    proxy.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
