"""Records as Debezium published them: what is kept of them, and how two runs are compared.

``python -m tests.stores.change_samples [programs of a PostgreSQL with contrib]`` makes the files again.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final

from engine.broker.broker import Broker
from tests.stores.change_scenarios import MARIADB, POSTGRES, POSTGRES_CONTRIB, Scenario
from tests.stores.debezium import ChangeRecord, ChangeSource, MariaDbSource, PostgresSource
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.mariadb import MariaDb
from tests.stores.postgres import Postgres

DIRECTORY: Final = Path(__file__).parents[1] / "golden" / "debezium"
# What differs between two runs: times, places in the source's log, transactions, and the name of the database.
_VOLATILE: Final = re.compile(
    r'"(ts_ms|ts_us|ts_ns|lsn|txId|sequence|gtid|file|pos|thread|version|databaseName|changeLsn)": ?'
    r'("(?:[^"\\]|\\.)*"|[0-9]+|\{[^}]*\})'
)
_TRANSACTION: Final = re.compile(r'"id":"[0-9]+[:-][0-9:-]*"')


def prefix(name: str) -> str:
    """The database of a sample, with which its topics begin."""
    return f"shop_{name}".replace("-", "_")


def read(name: str) -> list[ChangeRecord]:
    """The sample of a scenario, in the order of the file: by topic, then offset."""
    places: dict[str, Iterator[int]] = {}
    records = []
    for line in (DIRECTORY / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        parts = json.loads(line)
        key, value = (None if text is None else text.encode() for text in (parts["key"], parts["value"]))
        offset = next(places.setdefault(parts["topic"], count()))
        records.append(ChangeRecord(topic=parts["topic"], partition=0, offset=offset, key=key, value=value))
    return records


def written(records: Iterable[ChangeRecord]) -> str:
    """A sample's text: a record is a line with topic, key and value, both as text."""
    lines = []
    for each in records:
        key, value = (None if content is None else content.decode() for content in (each.key, each.value))
        lines.append(json.dumps({"topic": each.topic, "key": key, "value": value}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)


def comparable(records: Sequence[ChangeRecord], database: str) -> list[str]:
    """Lines that are equal for two runs of a scenario.

    Args:
        records: of one run.
        database: its name, which is in topics and schemas.
    """
    text = re.sub(rf"\b{database}\b", "shop", written(records).replace('\\"', '"').replace("\\\\", "\\"))
    return _TRANSACTION.sub('"id":"?"', _VOLATILE.sub(r'"\1":?', text)).splitlines()


def published(scenario: Scenario, source: ChangeSource) -> list[ChangeRecord]:
    """What Debezium publishes of a scenario: one heartbeat, no transactions of fences only, no other databases.

    A snapshot of MariaDB publishes the schemas of all databases of the server, also of those that other tests made.
    """
    source.execute(*scenario.before)
    source.start(scenario.settings)
    with source.connect.frozen():  # Debezium asks for defaults when it reads a change: those of the end
        source.execute(*scenario.after)
    records = [each for each in _once(source.records()) if _database(each) in {"", source.name}]
    fences = _fences([each for each in records if each.topic.endswith(".transaction")])
    return [each for each in records if not each.topic.endswith(".transaction") or _transaction(each) not in fences]


def _database(record: ChangeRecord) -> str:
    payload = json.loads(record.value or b"{}").get("payload") or {}
    return str((payload.get("source") or {}).get("db", ""))


def _transaction(record: ChangeRecord) -> str:
    """Of PostgreSQL the number only: Debezium's identifiers of one transaction differ in the place in the log."""
    return str(json.loads(record.value or b"{}")["payload"]["id"]).partition(":")[0]


def _fences(records: Sequence[ChangeRecord]) -> set[str]:
    """The transactions of fences only; the last one may not have ended."""
    found = {_transaction(records[-1])} if records else set()
    for each in records:
        names = [of["data_collection"] for of in json.loads(each.value or b"{}")["payload"]["data_collections"] or ()]
        if names and all("LogicalDecodingMessage" in name or name.endswith(".fence") for name in names):
            found.add(_transaction(each))
    return found


def _once(records: Iterable[ChangeRecord]) -> Iterator[ChangeRecord]:
    is_first = True
    for each in records:
        if not each.topic.startswith("__debezium-heartbeat") or is_first:
            is_first &= not each.topic.startswith("__debezium-heartbeat")
            yield each


def _write(name: str, scenario: Scenario, source: ChangeSource) -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    (DIRECTORY / f"{name}.jsonl").write_text(written(published(scenario, source)), encoding="utf-8")
    source.close()


def main(programs: Path | None) -> None:
    """Make the samples again.

    Args:
        programs: of a PostgreSQL with contrib; None: its sample stays as it is.
    """
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fluvial-samples-")))
        brokers = stack.enter_context(Broker(home / "broker")).bootstrap_servers
        (home / "connect").mkdir()
        connect = stack.enter_context(KafkaConnect(home / "connect", brokers))
        server = stack.enter_context(Postgres())
        for name, scenario in POSTGRES.items():
            _write(name, scenario, PostgresSource(prefix(name), server, connect, brokers))
        server = stack.enter_context(MariaDb())
        for number, (name, scenario) in enumerate(MARIADB.items()):
            _write(name, scenario, MariaDbSource(prefix(name), server, connect, brokers, home, number))
        if programs is not None:
            server = stack.enter_context(Postgres(programs))
            for name, scenario in POSTGRES_CONTRIB.items():
                _write(name, scenario, PostgresSource(prefix(name), server, connect, brokers))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
