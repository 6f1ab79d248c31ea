"""Publishes a change stream to a topic, all changes of a flight to one partition and in order."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, Producer

from benchmarks.demo.flights import ChangeStream
from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from lsm.errors import UnavailableError

_IN_FLIGHT: Final = 200_000
_WAIT_S: Final = 0.05


def publish_flights(
    stream: ChangeStream, properties: KafkaProperties, topic: str, *, on_sent: Callable[[int], None] = lambda _: None
) -> int:
    """Send every change; return the bytes of keys and values.

    Args:
        stream: the changes.
        properties: properties of the cluster.
        topic: an existing topic.
        on_sent: called with the number of records of each batch.

    Raises:
        UnavailableError: the broker did not accept all changes.
    """
    notes = ErrorNotes()
    producer = properties.producer(notes, transactional_id=None)
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            refused.append(error)

    size_bytes = 0
    for records in stream.records():
        size_bytes += records.nbytes
        _send(producer, topic, records, delivered)
        while len(producer) > _IN_FLIGHT:
            producer.poll(_WAIT_S)
        on_sent(records.num_rows)
    left = producer.flush(OPERATION_TIMEOUT_S)
    if refused:
        raise error_of_kafka(refused[0], f"changes were refused: topic={topic} count={len(refused)}", notes)
    if left:
        raise UnavailableError(f"changes were not accepted in time: topic={topic} left={left}{notes.text}")
    return size_bytes


def _send(producer: Producer, topic: str, records: pa.RecordBatch, delivered: Callable[..., None]) -> None:
    """The client partitions by the hash of the key, as Debezium does."""
    keys = records["key"].cast(pa.binary()).to_pylist()
    values = records["value"].cast(pa.binary()).to_pylist()
    for key, value in zip(keys, values, strict=True):
        producer.produce(topic, value, key, on_delivery=delivered)
    producer.poll(0)
