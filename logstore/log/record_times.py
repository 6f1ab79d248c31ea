"""When records were written, and how large they are: the first one behind each of some positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from logstore.kafka.clients import ErrorNotes, KafkaProperties

_POLL_S: Final = 0.1
_ONE_BATCH: Final = {"fetch.message.max.bytes": 1024, "queued.min.messages": 1}  # a broker sends at least one


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRecord:
    """A record."""

    time_ms: int | None  # epoch; None: it has none
    size_bytes: int  # of key and value


def first_records(
    properties: KafkaProperties, positions: Mapping[tuple[str, int], int], *, timeout_s: float
) -> dict[tuple[str, int], FirstRecord]:
    """The first committed records at or behind positions.

    Args:
        properties: of the cluster.
        positions: offset by (topic, partition).
        timeout_s: for all of them.

    Returns:
        Those that were found in time; none for a partition that ends there.
    """
    if not positions:
        return {}
    found: dict[tuple[str, int], FirstRecord] = {}
    left = set(positions)
    clock = properties.environment
    consumer = properties.consumer(ErrorNotes(), **_ONE_BATCH)
    try:
        consumer.assign([TopicPartition(topic, part, offset) for (topic, part), offset in positions.items()])
        deadline = clock.monotonic() + timeout_s
        while left and clock.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            position = (message.topic(), message.partition())
            if position not in left:
                continue
            left.remove(position)
            if message.error() is None:
                kind, time_ms = message.timestamp()
                size_bytes = len(message.key() or b"") + len(message.value() or b"")
                has_time = bool(kind) and time_ms >= 0
                found[position] = FirstRecord(time_ms=time_ms if has_time else None, size_bytes=size_bytes)
            consumer.pause([TopicPartition(*position)])
    except KafkaException:
        return found  # what is asked here is only shown: the reader of the records says what is wrong
    finally:
        consumer.close()
    return found
