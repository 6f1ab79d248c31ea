"""A Kafka Connect worker with Debezium's connectors as a process of the test session, from jars of Maven Central."""

import http.client
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from engine.broker.class_archive import NewArchive, archive_of, options_of
from engine.broker.jars import fetch_jars, find_java, read_lock
from tests.stores import processes

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "debezium-jars.lock"
_WORKER: Final = """\
bootstrap.servers={brokers}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.replace.null.with.default=false
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=500
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
topic.creation.enable=true
"""
_LOG: Final = """\
status=ERROR
shutdownHook=disable
appender.file.type=Console
appender.file.name=file
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n%ex
rootLogger.level=WARN
rootLogger.appenderRef.file.ref=file
"""
_WAIT_S: Final = 60


def debezium_jars() -> tuple[Path, ...]:
    """Connect, converters to JSON and Avro, and the connectors, fetched once and checked against their lock file."""
    return fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)


class KafkaConnect:
    """A worker as a context manager. Its offsets and connectors are files: a killed worker is continued by `start`."""

    def __init__(self, directory: Path, brokers: str) -> None:
        self._directory = directory
        self._port = processes.free_port()
        self._connectors: dict[str, Mapping[str, str]] = {}
        text = _WORKER.format(brokers=brokers, directory=directory, port=self._port)
        (directory / "worker.properties").write_text(text, encoding="utf-8")
        (directory / "log4j2.properties").write_text(_LOG, encoding="utf-8")

    def __enter__(self) -> "KafkaConnect":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)
        self._archive.keep()

    @property
    def log(self) -> str:
        """What the worker has printed since its start: warnings and errors."""
        return (self._directory / "connect.log").read_text(encoding="utf-8")

    def start(self) -> None:
        """Start it with all connectors that were added, which continue after the offsets that they stored."""
        java, jars = find_java(), debezium_jars()
        self._archive = NewArchive(self._directory)
        files = [self._directory / f"connector-{number}.json" for number in range(len(self._connectors))]
        for file, (name, config) in zip(files, self._connectors.items(), strict=True):
            file.write_text(json.dumps({"name": name, "config": dict(config)}), encoding="utf-8")
        options = ["-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dfile.encoding=UTF-8"]
        options += [*options_of(archive_of(java, jars)), *self._archive.options(archive_of(java, jars))]
        options += [f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}", "-cp"]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [str(java), *options, os.pathsep.join(map(str, jars)), main]
        command += [str(self._directory / "worker.properties"), *map(str, files)]
        self._process = processes.start(command, self._directory / "connect.log", self._answers)
        for name in self._connectors:
            self._wait_for(name)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        processes.end(self._process, signal.SIGKILL)
        self._archive.drop()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let connectors read nothing meanwhile, as if they were late."""
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def add(self, name: str, config: Mapping[str, str]) -> None:
        """Start a connector, and wait until its task runs."""
        code, answer = self._asked("PUT", f"/connectors/{name}/config", config)
        assert code in (http.client.OK, http.client.CREATED), answer
        self._connectors[name] = config
        self._wait_for(name)

    def restart(self, name: str) -> None:
        """Start a connector and its task again, as an operator does with one that is silent."""
        self._asked("POST", f"/connectors/{name}/restart?includeTasks=true")
        self._wait_for(name, has_failed=True)

    def remove(self, name: str) -> None:
        """Stop a connector and forget it."""
        self._asked("DELETE", f"/connectors/{name}")
        self._connectors.pop(name, None)

    def _wait_for(self, name: str, *, has_failed: bool = False) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            _, answer = self._asked("GET", f"/connectors/{name}/status")
            states = [task["state"] for task in answer.get("tasks", ())]
            assert has_failed or "FAILED" not in states, answer
            if states and set(states) == {"RUNNING"}:
                return
            assert time.monotonic() < deadline, (answer, self.log[-4000:])
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return self._asked("GET", "/connectors")[0] == http.client.OK
        except OSError:
            return False

    def _asked(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_WAIT_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()  # a page, not JSON, while the worker starts
            is_json = content and response.headers.get_content_type() == "application/json"
            return response.status, json.loads(content) if is_json else {}
        finally:
            connection.close()
