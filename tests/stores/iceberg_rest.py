"""Iceberg's own REST catalog server, that of its test fixtures, with names in memory; one jar of Maven Central."""

import shutil
import urllib.request
from pathlib import Path
from typing import Final

from engine.broker.jars import fetch_jars, find_java, read_lock
from tests.stores import processes

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "iceberg-rest-jars.lock"


def iceberg_rest_jars() -> tuple[Path, ...]:
    """The server, fetched once and checked against its lock file."""
    return fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)


class IcebergRestServer:
    """The server as a context manager: its address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = processes.free_port()

    def __enter__(self) -> str:
        java = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        command = [*java, "-cp", str(iceberg_rest_jars()[0]), "org.apache.iceberg.rest.RESTCatalogServer"]
        settings = {"CATALOG_WAREHOUSE": self._directory / "warehouse", "CATALOG_REST_PORT": self._port}
        environment = [f"{name}={value}" for name, value in settings.items()]
        command = [shutil.which("env") or "/usr/bin/env", *environment, *command]
        log = self._directory / "iceberg-rest.log"
        self._process = processes.start(command, log, self._answers)
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/v1/config", timeout=5) as answer:
                return bool(answer.status)
        except OSError:
            return False
