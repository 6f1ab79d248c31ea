"""What listens for requests of HTTP, and keeps its places for those who ask.

A client that sends nothing, never ends its request or reads nothing costs no other client its answer, and the process
no thread without end.
"""

import io
import logging
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

logger = logging.getLogger("fluvial.listening")

_MOST_CONNECTIONS: Final = 300  # each has a thread and a descriptor
_FREED_S: Final = 0.5  # a thread whose connection was ended ends within
HEAD_S: Final = 20.0  # for a whole request, also the next one of a connection
SEND_S: Final = 30.0  # for what a client reads slowly


class BoundedListener(ThreadingHTTPServer):
    """Takes a bounded number of connections: a new one ends the one that has not sent a request for longest.

    Where all have sent one, the new one is closed at once. Its handlers are ``TimedHandler``.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: "type[TimedHandler]") -> None:
        """Listen. Raises: OSError, OverflowError: the address cannot be used."""
        self.address_family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._places = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._waiting: dict[socket.socket, None] = {}  # for their requests, longest first
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Implements ``process_request`` of the base class."""
        if self._places.acquire(blocking=False) or self._takes_place():
            self.waits(request)
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def waits(self, connection: socket.socket) -> None:
        """A connection has not sent its next request."""
        with self._lock:
            self._waiting.setdefault(connection)

    def has_asked(self, connection: socket.socket) -> None:
        """A connection has sent a request, or ends."""
        with self._lock:
            self._waiting.pop(connection, None)

    def _takes_place(self) -> bool:
        """Whether one is free after all; on a busy machine the thread of the first that is ended may not have ended."""
        while self._is_freed():
            if self._places.acquire(timeout=_FREED_S):
                return True
        return False

    def _is_freed(self) -> bool:
        with self._lock:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            del self._waiting[longest]
            with suppress(OSError):
                longest.shutdown(socket.SHUT_RDWR)  # its thread ends
            return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Implements ``process_request_thread`` of the base class."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.has_asked(request)
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What a request has raised goes to the log."""
        logger.warning("a request failed: client=%s", client_address, exc_info=True)


class TimedHandler(BaseHTTPRequestHandler):
    """Reads a request within ``HEAD_S`` as a whole, and writes to a client that reads within ``SEND_S``."""

    server: BoundedListener

    def setup(self) -> None:
        """Of the base; requests have a time limit as a whole."""
        super().setup()
        self.rfile.close()
        self._within = _Within(self.connection)
        self.rfile = io.BufferedReader(self._within)

    def handle_one_request(self) -> None:
        """Implements ``handle_one_request`` of the base class."""
        self._within.deadline = time.monotonic() + HEAD_S
        self.server.waits(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Implements ``parse_request`` of the base class, which has read all of the request."""
        is_request = super().parse_request()
        self.server.has_asked(self.connection)
        self.connection.settimeout(SEND_S)
        return is_request


class _Within(io.RawIOBase):
    """What a client sends until a moment, however slowly."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(0.001, self.deadline - time.monotonic()))
        return self._connection.recv_into(buffer)
