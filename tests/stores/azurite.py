"""Azurite: Microsoft's emulator of Azure's Blob service, from npm, pinned by a lock file with checksums.

It takes one request after the other, so ``If-None-Match: *`` is honoured as the service does: of many that create a
blob, one wins.
"""

import base64
import hashlib
import hmac
import http.client
import urllib.request
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.stores import processes
from tests.stores.npm import node, npm_packages

ACCOUNT: Final = "devstoreaccount1"
# The key that every Azurite has, as its documentation says.
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API: Final = "2023-11-03"


def azurite_packages() -> Path:
    """The directory of the server's packages."""
    return npm_packages("azurite")


@dataclass(frozen=True, kw_only=True)
class AzureEmulator:
    """A running server."""

    endpoint: str  # without the account

    def make_container(self, name: str) -> str:
        """A new container; its name again."""
        date, path = formatdate(usegmt=True), f"/{ACCOUNT}/{name}"
        lines = [
            "PUT",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{_API}",
            f"/{ACCOUNT}{path}",
            "restype:container",
        ]
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": _API,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        request = urllib.request.Request(f"{self.endpoint}{path}?restype=container", method="PUT", headers=headers)
        with urllib.request.urlopen(request) as answer:
            assert answer.status == http.client.CREATED
        return name


class Azurite:
    """The server as a context manager; it keeps blobs in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = processes.free_port()

    def __enter__(self) -> AzureEmulator:
        script = azurite_packages() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        command = [node(), str(script), *where, "--silent", "--skipApiVersionCheck", "--inMemoryPersistence"]
        is_up = lambda: processes.is_listening(self._port)  # noqa: E731
        self._process = processes.start(command, self._directory / "azurite.log", is_up)
        return AzureEmulator(endpoint=f"http://127.0.0.1:{self._port}")

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)


def endpoint_of_account(endpoint: str) -> str:
    """Where the account is at a server, or at a proxy in front of it."""
    assert urlsplit(endpoint).path == ""
    return f"{endpoint}/{ACCOUNT}"
