"""A console that answers, and one who asks it."""

import http.client
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Final

from engine import Catalog
from engine.follow.clients import COOKIE, Admission
from engine.ui.app import PART_HEADER, application, serve
from engine.ui.console import Console

TOKEN: Final = "a-token-of-tests-only"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def tag(self) -> str:
        return self.headers["etag"]

    def links(self, start: str = "/") -> list[str]:
        return [unescape(each) for each in re.findall(r'href="([^"]*)"', self.text) if each.startswith(start)]


@dataclass(frozen=True)
class Client:
    """Sends requests as they are given, with the cookie of the token unless other headers are."""

    port: int
    cookie: str = field(default="")

    @property
    def admitted(self) -> dict[str, str]:
        return {"Cookie": f"{self.cookie}={TOKEN}"}

    def ask(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: str | None = None
    ) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.request(method, path, body, self.admitted if headers is None else headers)
            found = connection.getresponse()
            text = found.read().decode()
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, text)

    def part(self, path: str, tag: str = "") -> Answer:
        """What the script of a page asks for."""
        return self.ask(path, headers={**self.admitted, PART_HEADER: "main", "If-None-Match": tag})


@contextmanager
def running(
    catalog: Catalog | Path, *, job_files: tuple[str, ...] = (), allows_actions: bool = False
) -> Iterator[Client]:
    """A console whose pages wait until all that they show is known."""
    opened = catalog if isinstance(catalog, Catalog) else Catalog(str(catalog))
    console = Console(opened, job_files=job_files, allows_actions=allows_actions, patience_s=100)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        admission = Admission(is_local=True, token=TOKEN, cookie=f"{COOKIE}-{port}")
        thread = threading.Thread(
            target=serve, args=(application(console, admission), listener), kwargs={"stop": stop}, daemon=True
        )
        thread.start()
        try:
            yield Client(port, admission.cookie)
        finally:
            stop.set()
            thread.join()
            console.close()


def cells(text: str) -> list[list[str]]:
    """The rows of the last grid of a page."""
    body = text.rpartition("<tbody>")[2].partition("</tbody>")[0] if "<tbody>" in text else ""
    rows = [each for each in body.split("<tr>") if each.strip()]
    return [[unescape(re.sub("<[^>]*>", "", each)) for each in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]
