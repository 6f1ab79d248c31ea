"""Signals to connectors: take a snapshot of a table again, while the changes of the others go on.

Of the kinds of snapshots only the blocking one replaces a table exactly: the connector stops reading changes, publishes
all rows, and continues where it stopped. So every record before the first row is older than the snapshot.

Source: Debezium "Sending signals to a connector", Kafka channel; "Blocking snapshots".
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException

from engine.cdc.rules.names import SourceTable
from engine.kafka.offsets import TopicPosition
from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import topic_right
from lsm.errors import InvalidInputError, UnavailableError

SIGNAL_SETTINGS: Final = "signal.enabled.channels=source,kafka, signal.kafka.topic and signal.kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSignal:
    """Asks one connector for the rows of some tables."""

    prefix: str  # of the connector's topics
    tables: tuple[SourceTable, ...]

    @property
    def text(self) -> str:
        """The value of the record; its key is the prefix."""
        names = [str(each) for each in self.tables]
        data = {"data-collections": names, "type": "BLOCKING"}
        return json.dumps({"type": "execute-snapshot", "data": data})


def signals_for(sources: Sequence[SourceTable], positions: Iterable[TopicPosition]) -> list[SnapshotSignal]:
    """The signals for the source tables of a table, by connector.

    Raises:
        InvalidInputError: no topic is named after a source table, so its connector is not known.
    """
    found: dict[str, list[SourceTable]] = {}
    topics = sorted({topic for topic, _ in positions})
    for source in sources:
        prefixes = [each.removesuffix(f".{source}") for each in topics if each.endswith(f".{source}")]
        if not prefixes:
            raise InvalidInputError(
                f"the connector of a source table is not known: source={source} topics={','.join(topics)} "
                "fix='send it the signal execute-snapshot with type BLOCKING, after the same command with --by-hand'"
            )
        found.setdefault(prefixes[0], []).append(source)
    return [SnapshotSignal(prefix=prefix, tables=tuple(tables)) for prefix, tables in found.items()]


def send_signals(properties: KafkaProperties, topic: str, signals: Sequence[SnapshotSignal]) -> None:
    """Send them and wait until they are acknowledged. Raises: FluvialError."""
    notes = ErrorNotes()
    producer = properties.plain_producer(notes)
    failed: list[KafkaException] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(KafkaException(error))

    for each in signals:
        producer.produce(topic, each.text.encode(), each.prefix.encode(), partition=0, on_delivery=delivered)
    left = producer.flush(OPERATION_TIMEOUT_S)
    if failed:
        doing = f"a signal was refused: topic={topic}"
        absent = f"create the topic {topic}, and let the connector read it: {SIGNAL_SETTINGS}"
        needs = [topic_right("Write", topic)]
        raise error_of_kafka(failed[0], doing, notes, needs=needs, absent=absent) from failed[0]
    if left:
        raise UnavailableError(f"a signal was not accepted in time: topic={topic}{notes.text}")


def check_resnapshot(
    table: str, key: Sequence[str], latest: Mapping[TopicPosition, int], *, are_writers_stopped: bool = False
) -> None:
    """Refuse what a snapshot cannot replace exactly.

    Without a key it can while the source table has no writer.

    Raises:
        InvalidInputError: the table has no key, several partitions, or none that is known.
    """
    if not key and not are_writers_stopped:
        raise InvalidInputError(
            f"a table without a key counts rows twice that change during a snapshot: table={table} "
            "fix='stop the writers of the source table until the snapshot is there, and add --writers-stopped'"
        )
    if len(latest) != 1:
        shown = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(latest)) or "none"
        raise InvalidInputError(
            f"a snapshot has one beginning in one topic partition only: table={table} partitions={shown} "
            "fix='drop the table, and take the job to a new name'"
        )
