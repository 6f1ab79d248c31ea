"""A dead letter is taken however large the record was: no record stops a pipeline that sends its bad ones away."""

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from engine.kafka.dead_letters import CUT_HEADER, OFFSET_HEADER, DeadLetters, newest_letters
from engine.kafka.offsets import OffsetRange
from logstore.json.reading import BadRecord
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from lsm.errors import InvalidInputError

pytestmark = pytest.mark.broker


def letters_of(kafka: KafkaProperties, topic: str, count: int) -> list[tuple[str, int, dict[str, bytes]]]:
    """Offset header, bytes and headers of each letter, by the offset of its record."""
    consumer = kafka.consumer(ErrorNotes(), **{"auto.offset.reset": "earliest", "fetch.max.bytes": 1 << 27})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[str, int, dict[str, bytes]]] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            headers = dict(message.headers())
            found.append((headers[OFFSET_HEADER].decode(), len(message.value() or b""), headers))
    consumer.close()
    return sorted(found, key=lambda each: each[0])


@pytest.mark.parametrize("config", [{}, {"max.message.bytes": "20000"}])
def test_a_letter_is_cut_only_where_the_topic_does_not_take_it_whole(
    kafka: KafkaProperties, new_topic: Callable[..., str], config: dict[str, str]
) -> None:
    topic = new_topic(**config)
    sizes = [10, 1_010_000, 1_040_000, 5_000_000, 30]
    values = [random.Random(size).randbytes(size) for size in sizes]  # lz4 makes nothing smaller
    records = pa.RecordBatch.from_pydict(
        {"offset": range(len(sizes)), "key": pa.array([b"k"] * len(sizes), pa.binary()), "value": pa.array(values)}
    )
    letters = DeadLetters(kafka, topic)
    bad = [BadRecord(index=index, reason="why") for index in range(len(sizes))]
    letters.send(records, bad, OffsetRange(topic="source", partition=0, start_offset=0, end_offset=len(sizes)))
    letters.flush()
    found = letters_of(kafka, topic, len(sizes))
    limit = int(config.get("max.message.bytes", 1_048_588))
    for (offset, size, headers), whole in zip(found, sizes, strict=True):
        assert headers[CUT_HEADER].decode() == str(whole + 1) if CUT_HEADER in headers else size == whole
        assert (CUT_HEADER in headers) is (whole + 200 > limit), offset
        assert size >= min(whole, limit // 4)
    shown = newest_letters(kafka, topic, last=9, timeout_s=20)
    assert {each.source: each.size_bytes for each in shown} == {
        f"source/0/{number}": size + 1 for number, size in enumerate(sizes)
    }
    assert {each.reason for each in shown} == {"why"}
    assert max(len(each.value) for each in shown) == 200
    assert [each.offset for each in shown] == sorted((each.offset for each in shown), reverse=True)
    assert newest_letters(kafka, topic, last=2, timeout_s=20) == shown[:2]


def test_letters_of_no_topic_are_an_error_that_says_so(kafka: KafkaProperties) -> None:
    with pytest.raises(InvalidInputError, match="there is none before the first"):
        newest_letters(kafka, "no-letters-yet", last=2, timeout_s=20)
