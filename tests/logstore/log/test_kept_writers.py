"""Which writers of a log stay open between batches. What is written by them: engine/write, engine/write/driver."""

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine.broker.broker import Broker
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.topics import LogTopics
from logstore.log import kept_writers
from logstore.log.kept_writers import KeptWriters
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker_key import MarkerKey
from lsm.errors import ConflictError
from tests.support.waiting import wait_until

KEEPING_PROCESS = Path(__file__).with_name("keeping_process.py")


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


def send_two(writer: BucketLogWriter) -> None:
    writer.append(None, pa.array([b"a", b"b"]))
    assert writer.is_accepted(waits=True)


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


OTHERS = {
    "password": lambda was: replace(was, properties=with_option(was, "sasl.password", "new")),
    "login": lambda was: replace(was, properties=with_option(was, "sasl.username", "another")),
    "topic that was made again": lambda was: replace(was, topic_id="b"),
    "topic of a log that was replaced": lambda was: replace(was, topic="t2"),
    "key of its markers": lambda was: replace(was, key=MarkerKey(secret=b"k" * 32, place="p")),
}


def with_option(was: LogTarget, name: str, value: str) -> KafkaProperties:
    return KafkaProperties(by_name={**was.properties.by_name, name: value})


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_is_another_log_or_another_login_never_meets_the_writer(
    environment: MemoryEnvironment, change: Callable[[LogTarget], LogTarget]
) -> None:
    """Also where offsets and transactional ids are equal; the old writer is closed at once."""
    was = replace(target(0), topic_id="a")
    LogTopics(was.properties).create_topic("t", bucket_count=1)
    kept, writer = KeptWriters(), BucketLogWriter(was)
    writer.fence()
    end = write(writer, 0)
    kept.put(writer)
    assert kept.take(change(was), end) is None
    assert not is_open(writer)
    assert kept.take(was, end) is None


def test_a_table_that_was_made_again_and_other_tables_have_writers_of_their_own(environment: MemoryEnvironment) -> None:
    LogTopics(target(0).properties).create_topic("t", bucket_count=1)
    kept, writers = KeptWriters(), {}
    for table in ("old", "new"):
        writers[table] = BucketLogWriter(replace(target(0), topic=table, table_uuid=table))
        LogTopics(target(0).properties).create_topic(table, bucket_count=1)
        writers[table].fence()
        end = write(writers[table], 0)
        kept.put(writers[table])
    for table in ("old", "new"):
        assert kept.take(writers[table].target, end) is writers[table]


def test_brokers_prove_a_kept_writer_by_its_first_row_and_not_by_one_that_it_holds_back(
    environment: MemoryEnvironment,
) -> None:
    LogTopics(target(0).properties).create_topic("t", bucket_count=1)
    kept = KeptWriters()
    writer, end = with_a_batch(0)
    kept.put(writer)
    assert kept.take(target(0), end) is writer
    writer.begin(query="q", batch=1)
    writer.append(None, pa.array([b"a"]))
    assert not writer.is_accepted(waits=True)
    writer.append(None, pa.array([b"b"]))
    assert writer.is_accepted(waits=True)
    assert writer.commit(b"files").row_count == 2


@pytest.mark.parametrize("with_rows", [True, False])
def test_brokers_take_no_row_of_a_kept_writer_behind_another_fence(
    environment: MemoryEnvironment, with_rows: bool
) -> None:
    """Whether or not who fenced has left something that would show."""
    LogTopics(target(0).properties).create_topic("t", bucket_count=1)
    kept = KeptWriters()
    writer, end = with_a_batch(0)
    kept.put(writer)
    with BucketLogWriter(target(0)) as other:
        other.fence()
        if with_rows:
            write(other, 1)
        assert kept.take(target(0), end) is writer
        writer.begin(query="q", batch=1)
        with pytest.raises(ConflictError, match="another writer of this bucket took over"):
            send_two(writer)
        writer.close()


def test_idle_writers_are_closed_although_no_other_batch_comes(
    environment: MemoryEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    LogTopics(target(0).properties).create_topic("t", bucket_count=3)
    kept, waits = KeptWriters(closes_idle=True), threading.Semaphore(0)
    monkeypatch.setattr(kept_writers, "pause", lambda seconds: waits.acquire(timeout=60))
    (first, _), (second, end) = with_a_batch(0), with_a_batch(1)
    kept.put(first)
    environment.sleep(40)
    kept.put(second)
    environment.sleep(21)
    waits.release()
    wait_until(lambda: not is_open(first), "the first one is idle")
    assert is_open(second)
    environment.sleep(40)
    waits.release()
    wait_until(lambda: not is_open(second), "the second one is idle, too")
    third, end = with_a_batch(2)
    kept.put(third)
    assert kept.take(target(2), end) is third, "and more are kept afterwards"
    waits.release(9)


@pytest.mark.broker
def test_a_forked_process_has_no_writer_of_its_parent_and_both_end(
    broker: Broker, new_topic: Callable[[], str]
) -> None:
    """The parent writes on with its own; neither waits for threads that the other has."""
    command = [sys.executable, str(KEEPING_PROCESS), broker.bootstrap_servers, new_topic()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"child": 0, "end": 5}  # two batches of two rows, and a control record between
