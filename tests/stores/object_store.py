"""S3Proxy: a server with Amazon's S3 protocol over a local directory, installed by our jar fetcher.

It is chosen because it honours ``If-None-Match: *`` by a hard link: of many that create a key, one wins. Emulators look
first and write then, which lets two win.
"""

import http.client
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import obstore
from obstore.store import S3Store

from engine.broker.jars import fetch_jars, find_java, read_lock
from tests.stores import processes

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "s3proxy-jars.lock"
ACCESS_KEY, SECRET_KEY = "test-access", "test-secret-never-shown"
REGION = "us-east-1"


def s3proxy_jars() -> tuple[Path, ...]:
    """The archives of the server, fetched once and checked against their lock file."""
    return fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A running server."""

    endpoint: str
    data: Path  # a file below is an object: data/<bucket>/<key>

    @property
    def options(self) -> Mapping[str, str]:
        """Catalog options to reach it by."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY,
            "s3.path.style.access": "true",
        }

    def client(self, bucket: str, endpoint: str | None = None) -> S3Store:
        """A client of its own, not that of the code under test."""
        return S3Store(
            bucket,
            endpoint=endpoint or self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region=REGION,
            client_options={"allow_http": True},
        )

    def make_bucket(self, name: str) -> str:
        """A new bucket; its name again."""
        url = obstore.sign(self.client(name), "PUT", "", timedelta(minutes=5))
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
            assert answer.status == http.client.OK
        return name


class S3Proxy:
    """The server as a context manager; its data goes with the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = processes.free_port()

    def __enter__(self) -> ObjectStore:
        data = self._directory / "data"
        data.mkdir(parents=True)
        settings = self._directory / "s3proxy.conf"
        settings.write_text(
            f"s3proxy.authorization=aws-v2-or-v4\ns3proxy.identity={ACCESS_KEY}\ns3proxy.credential={SECRET_KEY}\n"
            f"s3proxy.endpoint=http://127.0.0.1:{self._port}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={data}\n"
        )
        java = [str(find_java()), "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        jars = os.pathsep.join(map(str, s3proxy_jars()))
        command = [*java, "-cp", jars, "org.gaul.s3proxy.Main", "--properties", str(settings)]
        self._process = processes.start(command, self._directory / "s3proxy.log", self._answers)
        return ObjectStore(endpoint=f"http://127.0.0.1:{self._port}", data=data)

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        except OSError:
            return False
        finally:
            connection.close()
