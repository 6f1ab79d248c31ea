"""Laws of reading ranges of the log, against a real broker."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from engine.broker.broker import Broker
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.log.kept_consumers import IdleConsumers
from logstore.log.log_reader import LOG_SCHEMA, RecordsLostError, _Reading, read_range
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, UnavailableError
from tests.support.clients import delete_records

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()


@pytest.fixture
def producer(kafka: KafkaProperties, topic: str) -> Iterator["Transactions"]:
    running = Transactions(kafka, topic)
    yield running
    running.client.close()


class Transactions:
    """Writes whole transactions of rows ``first .. first + count - 1``."""

    def __init__(self, kafka: KafkaProperties, topic: str) -> None:
        self.topic = topic
        self.client = kafka.producer(ErrorNotes(), transactional_id=f"t-{topic}")
        self.client.init_transactions(20)

    def begin(self, first: int, count: int) -> None:
        self.client.begin_transaction()
        for number in range(first, first + count):
            self.client.produce(self.topic, str(number).encode(), key=b"k", partition=0)
        assert self.client.flush(20) == 0

    def commit(self, first: int, count: int) -> None:
        self.begin(first, count)
        self.client.commit_transaction(20)

    def abort(self, first: int, count: int) -> None:
        self.begin(first, count)
        self.client.abort_transaction(20)


def read_log(kafka: KafkaProperties, topic: str, start: int, end: int, **options: int) -> pa.Table:
    log_range = LogRange(bucket=0, start_offset=start, end_offset=end)
    return pa.Table.from_batches(
        read_range(kafka, topic=topic, log_range=log_range, timeout_s=10, **options), LOG_SCHEMA
    )


def numbers(table: pa.Table) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


def test_a_range_is_read_with_offsets_times_keys_and_nulls(kafka: KafkaProperties, topic: str) -> None:
    plain = kafka.producer(ErrorNotes(), transactional_id=None)
    before = time.time_ns() // 1_000_000
    for key, value in ((b"1", b"a"), (None, b"b"), (b"3", None), (b"", b"")):
        plain.produce(topic, value, key=key, partition=0)
    plain.flush(20)
    plain.close()
    rows = read_log(kafka, topic, 1, 4)
    assert rows.schema == LOG_SCHEMA
    assert rows["offset"].to_pylist() == [1, 2, 3]
    assert rows["key"].to_pylist() == [None, b"3", b""]
    assert rows["value"].to_pylist() == [b"b", None, b""]
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    assert all(before <= moment <= time.time_ns() // 1_000_000 for moment in times)


def test_every_range_over_commits_and_aborts_holds_exactly_its_committed_rows(
    kafka: KafkaProperties, topic: str, producer: Transactions
) -> None:
    """Offsets: rows 0-2, marker, 3 aborted rows, marker, rows 8-9, marker, an aborted row, marker."""
    producer.commit(0, 3)
    producer.abort(100, 3)
    producer.commit(8, 2)
    producer.abort(200, 1)
    committed = [0, 1, 2, 8, 9]
    for start in range(14):
        for end in (start, *range(start + 1, 14, 4), 13):
            if start <= end:
                wanted = [offset for offset in committed if start <= offset < end]
                assert numbers(read_log(kafka, topic, start, end)) == wanted, (start, end)


def test_batches_are_bounded_by_rows_and_by_bytes(kafka: KafkaProperties, topic: str, producer: Transactions) -> None:
    producer.commit(1000, 2500)
    log_range = LogRange(bucket=0, start_offset=0, end_offset=2500)
    by_rows = list(read_range(kafka, topic=topic, log_range=log_range, batch_rows=900))
    assert [rows.num_rows for rows in by_rows] == [900, 900, 700]
    by_bytes = list(read_range(kafka, topic=topic, log_range=log_range, batch_bytes=50))
    assert [rows.num_rows for rows in by_bytes] == [13] * 192 + [4]  # values of 4 bytes
    assert (
        numbers(pa.Table.from_batches(by_rows)) == numbers(pa.Table.from_batches(by_bytes)) == list(range(1000, 3500))
    )


def test_an_empty_range_asks_nobody() -> None:
    nobody = KafkaProperties.parse({"bootstrap.servers": "127.0.0.1:1"})
    assert read_log(nobody, "t", 5, 5).num_rows == 0


def test_an_end_beyond_what_is_visible_is_waited_for(
    kafka: KafkaProperties, topic: str, producer: Transactions
) -> None:
    """Right after a commit the stable end may still be behind the slice that the commit reported."""
    producer.begin(0, 5)
    commit = threading.Timer(0.7, producer.client.commit_transaction, [20])
    commit.start()
    assert numbers(read_log(kafka, topic, 0, 5)) == [0, 1, 2, 3, 4]
    commit.join()


def test_an_end_that_never_comes_is_unavailable_and_says_how_far_it_got(
    kafka: KafkaProperties, topic: str, producer: Transactions
) -> None:
    producer.commit(0, 3)
    with pytest.raises(UnavailableError, match=rf"topic={topic} bucket=0 range=0\.\.9 reached_offset=4"):
        list(read_range(kafka, topic=topic, log_range=LogRange(bucket=0, start_offset=0, end_offset=9), timeout_s=1))


def test_a_reader_may_stop_early(kafka: KafkaProperties, topic: str, producer: Transactions) -> None:
    producer.commit(0, 3000)
    batches = read_range(
        kafka, topic=topic, log_range=LogRange(bucket=0, start_offset=0, end_offset=3000), batch_rows=10
    )
    assert next(batches)["offset"].to_pylist() == list(range(10))
    batches.close()  # type: ignore[attr-defined]


def test_lost_records_are_an_error_with_both_offsets_and_the_fix(
    kafka: KafkaProperties, broker: Broker, topic: str, producer: Transactions
) -> None:
    producer.commit(0, 10)
    delete_records(broker.bootstrap_servers, topic, {0: 6})
    with pytest.raises(
        RecordsLostError, match=r"bucket=0 .*wanted_offset=2 earliest_offset=6 .*retention.*log\.retention"
    ) as caught:
        read_log(kafka, topic, 2, 10)
    lost: RecordsLostError = pickle.loads(pickle.dumps(caught.value))
    assert (str(lost), lost.earliest_offset, lost.end_offset) == (str(caught.value), 6, 11)
    assert numbers(read_log(kafka, topic, 6, 10)) == [6, 7, 8, 9]


def test_what_was_read_before_a_loss_is_returned_before_the_error(
    kafka: KafkaProperties, broker: Broker, topic: str, producer: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that goes on at the earliest offset has then skipped what is lost, and nothing else."""
    producer.commit(0, 10)
    read = _Reading.records

    def cut(reading: _Reading) -> Iterator[list[Any]]:
        messages = next(read(reading))
        reading._next_offset = messages[0].offset() + 1
        yield messages[:1]
        delete_records(broker.bootstrap_servers, topic, {0: 6})
        raise KafkaException(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))

    monkeypatch.setattr(_Reading, "records", cut)
    found = []
    with pytest.raises(RecordsLostError) as caught:
        found.extend(read_range(kafka, topic=topic, log_range=LogRange(bucket=0, start_offset=2, end_offset=10)))
    assert [batch["offset"].to_pylist() for batch in found] == [[2]]
    lost: RecordsLostError = pickle.loads(pickle.dumps(caught.value))
    assert (lost.wanted_offset, lost.earliest_offset, lost.end_offset) == (3, 6, 11)


def test_one_idle_consumer_reads_ranges_of_many_topics(
    kafka: KafkaProperties, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range has its own records only, also where the one before was fetched far beyond its end, or failed."""
    topics, made, new_consumer = [new_topic(), new_topic()], list[Any](), KafkaProperties.consumer
    monkeypatch.setattr(
        KafkaProperties, "consumer", lambda *given, **more: made.append(new_consumer(*given, **more)) or made[-1]
    )
    for number, topic in enumerate(topics):
        written = Transactions(kafka, topic)
        written.commit(10_000 * number, 2000)
        written.client.close()
    consumers = IdleConsumers(1)
    for start in (0, 700, 100, 1400):
        for number, topic in enumerate(topics):
            wanted = LogRange(bucket=0, start_offset=start, end_offset=start + 300)
            found = pa.Table.from_batches(read_range(kafka, topic=topic, log_range=wanted, kept=consumers))
            assert numbers(found) == [10_000 * number + each for each in range(start, start + 300)], (topic, start)
    assert len(made) == 1
    lost = LogRange(bucket=0, start_offset=5000, end_offset=5001)
    with pytest.raises(RecordsLostError, match="wanted_offset=5000"):
        list(read_range(kafka, topic=topics[0], log_range=lost, kept=consumers))
    again = LogRange(bucket=0, start_offset=1999, end_offset=2001)
    assert numbers(pa.Table.from_batches(read_range(kafka, topic=topics[0], log_range=again, kept=consumers))) == [1999]
    assert len(made) == 2  # the one that failed is closed
    consumers.close()
    with pytest.raises(RuntimeError, match="closed"):
        made[-1].poll(0)


def test_a_log_that_is_shorter_than_it_was_is_an_error(
    kafka: KafkaProperties, topic: str, producer: Transactions
) -> None:
    producer.commit(0, 3)
    with pytest.raises(RecordsLostError, match=r"wanted_offset=50 .*end_offset=4 .*recreated"):
        read_log(kafka, topic, 50, 60)


def test_a_missing_topic_is_corrupt_data(broker: Broker) -> None:
    impatient = {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": "100"}
    with pytest.raises(CorruptDataError, match=r"topic=nowhere bucket=0 .*missing"):
        read_log(KafkaProperties.parse(impatient), "nowhere", 0, 1)


def test_a_broker_that_is_away_is_unavailable() -> None:
    nobody = KafkaProperties.parse({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(UnavailableError, match="Connection refused"):
        list(read_range(nobody, topic="t", log_range=LogRange(bucket=0, start_offset=0, end_offset=1), timeout_s=1))
