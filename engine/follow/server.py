"""A table's changes for browsers: server-sent events with positions as ids, so a reconnect loses and repeats nothing.

``GET /changes`` is the stream: each event has up to 1,000 rows as a JSON array, each with its ``_row_kind``.
``Last-Event-ID`` (which a browser's EventSource sends by itself), else ``?from=``, says where to start. ``GET /`` is
the page, if there is one. Where the server has a token, who reads the stream sends it, as ``Authorization: Bearer`` or,
as an EventSource has no headers of its own, as a cookie.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from engine.follow.choices import StartPlace
from engine.follow.clients import COOKIE, Admission
from engine.follow.stream import StreamedChanges, TableStream
from engine.runtime.listener import BoundedListener, TimedHandler
from engine.runtime.logs import is_loopback
from logstore.json.text import object_texts
from lsm.errors import FluvialError, InvalidInputError

logger = logging.getLogger("fluvial.follow")

EVENT_ROWS: Final = 1000
_QUIET_S: Final = 15.0  # then a comment shows whether the client is still there
_MOST_CLIENTS: Final = 100
_REFUSED_STARTS: Final = ("checkpoint.",)  # paths of this machine: only for who starts the server

OpenStream = Callable[[StartPlace, float], TableStream]
"""Opens the stream of a client, which ends when nothing came for some seconds; None: where all clients start."""


class ChangeServer:
    """Serves one table until it is closed. Each client has a stream, and a thread."""

    def __init__(
        self,
        address: tuple[str, int],
        open_stream: OpenStream,
        *,
        page: bytes | None = None,
        hosts: Collection[str] = (),
        token: str | None = None,
    ) -> None:
        """Listen; ``serve`` answers.

        Args:
            address: host and port; 0 is any free port.
            open_stream: see ``OpenStream``.
            page: HTML for ``/``; it may then read the changes, being of the same origin.
            hosts: names by which clients may ask, besides those of this machine on a loopback address; (): any name, on
                other addresses.
            token: what clients of the stream must send; the page needs none, as it has no rows. None: all who reach the
                server read it.

        Raises: InvalidInputError: the address cannot be used, or the token can be guessed or is no text of a header.
        """
        admission = Admission(hosts=frozenset(each.lower() for each in hosts), token=token)
        self.open_stream, self.page = open_stream, page
        self.stopping = threading.Event()
        self.clients = threading.BoundedSemaphore(_MOST_CLIENTS)
        self._streams: set[TableStream] = set()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"owner": self})
        try:
            self._http: BoundedListener = BoundedListener(address, handler)
        except (OSError, OverflowError) as error:
            raise InvalidInputError(
                f"cannot listen: address={address[0]}:{address[1]} reason={error} fix=choose another port"
            ) from error
        self.admission = replace(admission, is_local=is_loopback(str(self._http.server_address[0])))

    @property
    def port(self) -> int:
        """That it listens at."""
        return int(self._http.server_address[1])

    def serve(self) -> None:
        """Answer until ``close`` is called elsewhere."""
        self._http.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        """End all streams, and stop."""
        self.stopping.set()
        with self._lock:
            for stream in self._streams:
                stream.stop()
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve, name="fluvial-events", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def opened(self, start: StartPlace) -> TableStream:
        """A stream that ends with the server. Raises: InvalidInputError."""
        stream = self.open_stream(start, _QUIET_S)
        with self._lock:
            self._streams.add(stream)
        if self.stopping.is_set():
            stream.stop()
        return stream

    def closed(self, stream: TableStream) -> None:
        """Forget a stream, and close it."""
        with self._lock:
            self._streams.discard(stream)
        stream.close()


class _Handler(TimedHandler):
    owner: ChangeServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The page or the stream."""
        asked = urlsplit(self.path)
        if not self.owner.admission.answers_to(self.headers.get("Host", "")):
            said = b"this server answers to 127.0.0.1 and localhost, or the names that it was given\n"
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", said)
        elif asked.path == "/" and self.owner.page is not None:
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.owner.page)
        elif asked.path == "/changes" and not self._is_admitted():
            said = f"the stream needs its token: Authorization: Bearer, or the cookie {COOKIE}\n".encode()
            self._answer(HTTPStatus.UNAUTHORIZED, "text/plain", said)
        elif asked.path == "/changes":
            given = self.headers.get("Last-Event-ID") or next(iter(parse_qs(asked.query).get("from", [])), None)
            self._changes(given)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"GET /changes is the stream\n")

    def do_HEAD(self) -> None:
        """The head of what ``GET`` answers; a stream is opened, and nothing of it is sent."""
        self.do_GET()

    def _is_admitted(self) -> bool:
        return self.owner.admission.admits(self.headers.get("Authorization", ""), self.headers.get("Cookie", ""))

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _changes(self, given: str | None) -> None:
        if not self.owner.clients.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"too many clients\n")
            return
        try:
            self._stream(given)
        finally:
            self.owner.clients.release()

    def _stream(self, given: str | None) -> None:
        try:
            if given is not None and given.startswith(_REFUSED_STARTS):
                raise InvalidInputError(
                    f"not a start for clients: from={given[:80]} fix=send a position, or leave it out"
                )
            stream = self.owner.opened(given)
        except (FluvialError, ArithmeticError, ValueError, TypeError, RecursionError) as error:
            # anything but 200 ends an EventSource: it does not try again with what is refused
            said = str(error) if isinstance(error, FluvialError) else f"not a start of a stream: reason={error!r:.200}"
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", f"{said}\n".encode(errors="replace"))
            return
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                self.owner.closed(stream)
                return
            self.wfile.write(b"retry: 1000\n\n")
            self._follow(stream)
        except OSError:
            logger.debug("a client has gone, or does not read: client=%s", self.client_address)

    def _follow(self, stream: TableStream) -> None:
        """Send what comes; a quiet stream is opened again behind what was sent."""
        try:
            while True:
                position = self._sent(stream)
                if self.owner.stopping.is_set():
                    return
                self.wfile.write(b": still here\n\n")
                stream = self.owner.opened(position)
        except FluvialError as error:
            self.wfile.write(f"event: failed\ndata: {' '.join(str(error).split())}\n\n".encode())

    def _sent(self, stream: TableStream) -> StartPlace:
        """Send a stream to its end; returns the position there."""
        position = stream.start
        try:
            for changes in stream:
                self.wfile.write(event_of(changes))
                position = changes.position
        finally:
            self.owner.closed(stream)
        return position

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests go to the log at level DEBUG, without their query."""
        logger.debug("request: client=%s", self.client_address)


def event_of(changes: StreamedChanges) -> bytes:
    """One event; without rows it only moves the client's position."""
    identity = f"id: {changes.position}\n"
    if not changes.rows.num_rows:
        return f"{identity}\n".encode()
    texts = object_texts(changes.rows.schema.names, changes.rows.columns, suffix="").to_pylist()
    return f"{identity}event: changes\ndata: [{','.join(texts)}]\n\n".encode()
