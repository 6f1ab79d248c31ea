"""Kafka clients of tests. They print nothing, also where they outlive their broker."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient


def quiet_producer(servers: str, **options: Any) -> Producer:
    """A producer; dots of option names are two underscores: ``quiet_producer(servers, transactional__id="a")``.

    It keeps the order of records: without idempotence, a request that a new topic's leader refuses is sent again behind
    the next one.
    """
    return Producer(_quiet(servers, {"enable__idempotence": True, **options}))


def quiet_consumer(servers: str, **options: Any) -> Consumer:
    """A consumer that stores no offsets; option names as those of `quiet_producer`."""
    return Consumer(_quiet(servers, {"group__id": "test", "enable__auto__commit": False, **options}))


def quiet_admin(servers: str) -> AdminClient:
    """An administrator's client."""
    return AdminClient(_quiet(servers, {}))


def delete_records(servers: str, topic: str, before: Mapping[int, int]) -> None:
    """Delete the oldest records of partitions, as retention does: those before an offset, or all of them for -1."""
    spots = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    admin = quiet_admin(servers)  # its futures end only while it is there
    for future in admin.delete_records(spots).values():
        future.result(30)


def _quiet(servers: str, options: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return {"bootstrap.servers": servers, "log_level": 0, **named}
