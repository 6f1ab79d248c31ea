"""Which writers of a log stay open between batches. What a query writes by them: engine/write/driver."""

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.topics import LogTopics
from logstore.log.kept_writers import KeptWriters
from logstore.log.log_writer import BucketLogWriter, LogTarget
from lsm.errors import ConflictError


@pytest.fixture
def environment() -> Iterator[MemoryEnvironment]:
    found = MemoryEnvironment(MemoryCluster())
    with serving("memory:9092", found):
        yield found


def target(bucket: int, topic: str = "t") -> LogTarget:
    properties = KafkaProperties.parse({"bootstrap.servers": "memory:9092"})
    return LogTarget(properties=properties, topic=topic, table_uuid="u", bucket=bucket)


def write(writer: BucketLogWriter, batch: int) -> int:
    """A batch of two records; returns the end of the bucket."""
    writer.begin(query="q", batch=batch)
    writer.append(None, pa.array([b"a", b"b"]))
    return writer.commit(b"files").end_offset


def with_a_batch(bucket: int) -> tuple[BucketLogWriter, int]:
    """A writer that has just written batch 0, and the end."""
    writer = BucketLogWriter(target(bucket))
    writer.fence()
    return writer, write(writer, 0)


def is_open(writer: BucketLogWriter) -> bool:
    return writer.is_renewable


def test_the_next_batch_is_written_without_a_fence(environment: MemoryEnvironment) -> None:
    """What the writer knows of the end is what a fence would find."""
    LogTopics(target(0).properties).create_topic("t", bucket_count=1)
    kept = KeptWriters()
    writer, end = with_a_batch(0)
    for batch in (1, 2):
        kept.put(writer)
        assert kept.take(target(0), end) is writer
        assert writer.tail.marker is not None
        assert (writer.tail.marker.batch, writer.tail.end_offset) == (batch - 1, end)
        end = write(writer, batch)
    kept.put(writer)
    again = kept.take(target(0), end)
    assert again is not None
    with BucketLogWriter(target(0)) as other:
        assert other.fence() == again.tail.marker
        assert (other.tail.end_offset, other.tail.earliest_offset) == (end, again.tail.earliest_offset)
    with pytest.raises(ConflictError, match="another writer of this bucket took over"):
        write(again, 3)


def test_a_writer_is_taken_once_and_only_where_it_knows_the_end(environment: MemoryEnvironment) -> None:
    LogTopics(target(0).properties).create_topic("t", bucket_count=4)
    kept = KeptWriters()
    writers, ends = zip(*map(with_a_batch, range(4)), strict=True)
    for each in writers:
        kept.put(each)
    assert kept.take(target(0), ends[0]) is writers[0]
    assert kept.take(target(0), ends[0]) is None
    assert kept.take(target(1), ends[1] + 3) is None, "another writer has committed"
    assert kept.take(target(2, "another"), ends[2]) is None, "the log was replaced"
    environment.sleep(61)
    assert kept.take(target(3), ends[3]) is None
    assert not any(map(is_open, writers[1:]))


def test_few_are_kept_and_not_for_long(environment: MemoryEnvironment) -> None:
    LogTopics(target(0).properties).create_topic("t", bucket_count=21)
    kept, first = KeptWriters(), [with_a_batch(bucket)[0] for bucket in range(20)]
    for each in first:
        kept.put(each)
    assert [*map(is_open, first)] == [True] * 16 + [False] * 4
    fenced = BucketLogWriter(target(20))
    assert not fenced.renew()
    fenced.fence()
    assert not fenced.renew(), "it has written nothing"
    kept.put(fenced)
    environment.sleep(61)
    late, end = with_a_batch(20)
    kept.put(late)
    assert not any(map(is_open, first))
    assert pickle.loads(pickle.dumps(kept)).take(target(20), end) is None, "a copy in a task"
    kept.close()
    assert not is_open(late)
    assert kept.take(target(20), end) is None
