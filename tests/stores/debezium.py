"""Databases whose changes Debezium publishes: each with a connector, slot, publication and topics of its own."""

import subprocess
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pymysql
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from sqlalchemy import make_url

from tests.stores.kafka_connect import KafkaConnect
from tests.stores.postgres import programs
from tests.support.clients import quiet_consumer

_WAIT_S: Final = 60
_COMMON: Final = {
    "tasks.max": "1",
    "snapshot.mode": "initial",
    "provide.transaction.metadata": "true",
    "skipped.operations": "none",
    "poll.interval.ms": "20",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
    # a request has one batch of each partition: what is before a fence goes with it or before it, if it fits into one
    "producer.override.batch.size": "900000",
    "producer.override.max.request.size": "8000000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """A record as Debezium published it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class ChangeSource(ABC):
    """A database of a server, and its connector, once `start` was called.

    Its topics begin with `name` and a dot; its transactions are in ``<name>.transaction``.
    """

    def __init__(self, name: str, url: str, connect: KafkaConnect, brokers: str) -> None:
        """Make the database.

        Args:
            name: of the database, the connector and the topics' prefix.
            url: of the server, for SQLAlchemy; `url` becomes that of the database.
            connect: runs the connector.
            brokers: get the records.
        """
        self.name, self.connect, self.brokers = name, connect, brokers
        self._server = make_url(url)
        self._fences = 0
        self._connection = self._connected()
        self.url = self._server.set(database=name).render_as_string(hide_password=False)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own where none is open."""
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def reconnect(self) -> None:
        """Connect to the database again, whose server was killed; its connector's task is started again, as by hand."""
        self._connection.close()
        self._connection = self._reconnected()
        self.connect.restart(self.name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start the connector: first a snapshot, then changes.

        Args:
            settings: more of the connector's, or other values.
        """
        own = {"topic.prefix": self.name, "database.hostname": "127.0.0.1", "database.port": str(self._server.port)}
        own |= {"database.user": str(self._server.username), "database.password": str(self._server.password)}
        self.connect.add(self.name, {**_COMMON, **own, **self._settings(), **(settings or {})})
        self._await_snapshot()

    def fence(self) -> str:
        """Make a change after all that were made before, and give the text that is in its record only."""
        self._fences += 1
        mark = f"fence-{self._fences}-of-{self.name}"
        self._emit(mark)
        return mark

    def records(self) -> list[ChangeRecord]:
        """All records up to now, by topic in their order, without those of fences."""
        return self._read_to(self.fence())

    def _await_snapshot(self) -> None:
        """Until changes are read: a statement that rewrites a table would hide its rows from a snapshot that runs."""
        deadline, marks, found = time.monotonic() + _WAIT_S, list[bytes](), list[ChangeRecord]()
        with _reading(self.brokers) as consumer:
            while not any(self._is_fence(each, mark) for each in found for mark in marks):
                assert time.monotonic() < deadline, self.connect.log[-4000:]
                marks.append(self.fence().encode())
                if consumer.list_topics(timeout=10).topics.get(self._fence_topic()) and not consumer.assignment():
                    consumer.assign(_positions({self._fence_topic(): 1}))
                found += _read(consumer, 0.1)

    def _read_to(self, mark: str) -> list[ChangeRecord]:
        """All records when that of a fence is there."""
        found: list[ChangeRecord] = []
        seen: dict[str, int] = {}
        with _reading(self.brokers) as consumer:
            deadline = time.monotonic() + _WAIT_S
            is_last = is_restarted = False
            while not is_last:  # topics are looked for once more after the fence
                is_last = any(self._is_fence(each, mark.encode()) for each in found)
                assert time.monotonic() < deadline, (sorted(seen), self.connect.log[-4000:])
                # MariaDB's was silent once after a kill: it had connected while the server still served the dead one
                if not is_restarted and time.monotonic() > deadline - _WAIT_S / 2:
                    is_restarted = True
                    self.connect.restart(self.name)
                names = consumer.list_topics(timeout=10).topics
                new = [name for name in names if name not in seen and self._is_topic(name)]
                seen |= {name: len(names[name].partitions) for name in new}
                if new:
                    consumer.incremental_assign(_positions({name: seen[name] for name in new}))
                found += _read(consumer, 0.05)
            places = [TopicPartition(name, each) for name, count in seen.items() for each in range(count)]
            count = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in places)
            while len(found) < count:
                assert time.monotonic() < deadline
                found += _read(consumer, 0.05)
        found = [each for each in found if each.topic != self._fence_topic()]
        return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))

    def _is_topic(self, name: str) -> bool:
        return name.startswith(f"{self.name}.") or name in (self.name, f"__debezium-heartbeat.{self.name}")

    def _is_fence(self, record: ChangeRecord, mark: bytes) -> bool:
        value = record.value or b""
        is_change = b'"op":"r"' not in value
        forms = (mark, b64encode(mark), mark.hex().encode())  # by binary.handling.mode
        return record.topic == self._fence_topic() and is_change and any(each in value for each in forms)

    def close(self) -> None:
        """Stop the connector and drop the database."""
        self.connect.remove(self.name)
        self._connection.close()

    @abstractmethod
    def _connected(self) -> Any:
        """A connection to the database, which is made first."""

    @abstractmethod
    def _reconnected(self) -> Any:
        """A connection to the database."""

    @abstractmethod
    def _settings(self) -> dict[str, str]:
        """The connector's own settings."""

    @abstractmethod
    def _emit(self, mark: str) -> None:
        """Make a change with a text in it."""

    @abstractmethod
    def _fence_topic(self) -> str:
        """Where the changes of ``_emit`` are published."""


class PostgresSource(ChangeSource):
    """A database of PostgreSQL; its slot and publication have its name."""

    def pgbench(self, *arguments: str) -> None:
        """Run PostgreSQL's benchmark on this database, and wait for its end."""
        done = subprocess.run(self.pgbench_command(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def pgbench_command(self, *arguments: str) -> list[str]:
        """What `pgbench` runs."""
        return [str(programs() / "pgbench"), *arguments, self._address(self.name)]

    def _connected(self) -> psycopg.Connection[Any]:
        with psycopg.connect(self._address("postgres"), autocommit=True) as server:
            server.execute(f'CREATE DATABASE "{self.name}"')
        return self._reconnected()

    def _reconnected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._address(self.name), autocommit=True)

    def _address(self, database: str) -> str:
        url = self._server.set(drivername="postgresql", database=database)
        return url.render_as_string(hide_password=False)

    def _settings(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.dbname": self.name,
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "all_tables",
        }

    def _emit(self, mark: str) -> None:
        self.rows(f"SELECT pg_logical_emit_message(true, 'fence', '{mark}')")

    def _fence_topic(self) -> str:
        return f"{self.name}.message"

    def close(self) -> None:
        """Stop the connector, and drop the slot, which would keep the server's log."""
        super().close()
        with psycopg.connect(self._address("postgres"), autocommit=True) as server:
            deadline = time.monotonic() + _WAIT_S
            active = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active"
            while server.execute(active, (self.name,)).fetchone():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            gone = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"
            server.execute(gone, (self.name,))
            server.execute(f'DROP DATABASE "{self.name}" WITH (FORCE)')


class MariaDbSource(ChangeSource):
    """A database of MariaDB."""

    def __init__(self, name: str, url: str, connect: KafkaConnect, brokers: str, directory: Path, number: int) -> None:
        """As that of any source.

        Args:
            directory: where the connector keeps the history of the schemas.
            number: of the connector among the servers that replicate.
        """
        self._database: str | None = None
        super().__init__(name, url, connect, brokers)
        self._history, self._number = directory / f"{name}.history", number

    def _reconnected(self) -> Any:
        url = self._server
        return pymysql.connect(
            host=str(url.host), port=int(url.port or 0), user=str(url.username), password=str(url.password),
            autocommit=True, charset="utf8mb4", database=self._database,
        )  # fmt: skip

    def _connected(self) -> Any:
        connection = self._reconnected()
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{self.name}` CHARACTER SET utf8mb4")
            cursor.execute(f"USE `{self.name}`")
            self._database = self.name
            cursor.execute("CREATE TABLE fence (mark VARCHAR(99) PRIMARY KEY)")
        return connection

    def _settings(self) -> dict[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.server.id": str(5400 + self._number),
            "database.include.list": self.name,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self._history),
            "database.ssl.mode": "disable",
        }

    def _emit(self, mark: str) -> None:
        self.execute(f"INSERT INTO fence VALUES ('{mark}')")

    def _fence_topic(self) -> str:
        return f"{self.name}.{self.name}.fence"

    def close(self) -> None:
        """Stop the connector and drop the database."""
        self.connect.remove(self.name)
        self.execute(f"DROP DATABASE `{self.name}`")
        self._connection.close()


@contextmanager
def _reading(brokers: str) -> Iterator[Consumer]:
    consumer = quiet_consumer(brokers, fetch__wait__max__ms=10)
    try:
        yield consumer
    finally:
        consumer.close()


def _positions(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, each, OFFSET_BEGINNING) for name, count in topics.items() for each in range(count)]


def _read(consumer: Consumer, timeout_s: float) -> Iterable[ChangeRecord]:
    return [
        ChangeRecord(
            topic=each.topic(), partition=each.partition(), offset=each.offset(), key=each.key(), value=each.value()
        )
        for each in consumer.consume(1000, timeout_s)
        if each.error() is None
    ]
