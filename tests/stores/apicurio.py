"""Apicurio Registry, with the API of Confluent's: a real registry, fetched by our jar fetcher."""

import http.client
import json
import zipfile
from pathlib import Path
from typing import Final

from engine.broker.jars import fetch_jars, find_java, read_lock
from tests.stores import processes

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "apicurio-jars.lock"
API: Final = "/apis/ccompat/v7"


def apicurio_archive() -> Path:
    """The program as one archive, fetched once and checked against its lock file."""
    (archive,) = fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)
    return archive


class Apicurio:
    """The server as a context manager; it keeps everything in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = processes.free_port()

    def __enter__(self) -> str:
        """Its address; schemas must read what the version before wrote, as in Confluent's by default."""
        with zipfile.ZipFile(apicurio_archive()) as archive:
            archive.extractall(self._directory)
        (program,) = self._directory.glob("*-runner.jar")
        java = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        place = [f"-Dquarkus.http.port={self._port}", "-Dquarkus.http.host=127.0.0.1"]
        command = [*java, *place, "-jar", str(program)]
        self._process = processes.start(command, self._directory / "apicurio.log", self._answers)
        assert self._asked("PUT", "/config", {"compatibility": "BACKWARD"}) == http.client.OK
        return f"http://127.0.0.1:{self._port}{API}"

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)

    def _answers(self) -> bool:
        try:
            return self._asked("GET", "/subjects") == http.client.OK
        except OSError:
            return False

    def _asked(self, method: str, path: str, body: object = None) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, API + path, json.dumps(body), {"Content-Type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()
