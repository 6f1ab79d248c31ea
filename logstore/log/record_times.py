"""When records were written: the time of the first one behind each of some positions."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from logstore.kafka.clients import ErrorNotes, KafkaProperties

_POLL_S: Final = 0.1
_ONE_BATCH: Final = {"fetch.message.max.bytes": 1024, "queued.min.messages": 1}  # a broker sends at least one


def first_times(
    properties: KafkaProperties, positions: Mapping[tuple[str, int], int], *, timeout_s: float
) -> dict[tuple[str, int], int]:
    """The timestamps of the first committed records at or behind positions, in epoch milliseconds.

    Args:
        properties: of the cluster.
        positions: offset by (topic, partition).
        timeout_s: for all of them.

    Returns:
        Those that were found in time; none for a partition that ends there, or has no times.
    """
    if not positions:
        return {}
    found: dict[tuple[str, int], int] = {}
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
            kind, time_ms = message.timestamp() if message.error() is None else (0, -1)
            if time_ms >= 0 and kind:
                found[position] = time_ms
            consumer.pause([TopicPartition(*position)])
    except KafkaException:
        return found  # what is asked here is only shown: the reader of the records says what is wrong
    finally:
        consumer.close()
    return found
