"""The lag of a source: what is committed in its topics and not delivered, and how old that is."""

import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from engine.deploy.pipeline.job_watch import ClusterWatch, SourceLag, lag_behind, undelivered, watching
from engine.kafka.offsets import Offsets
from engine.kafka.options import KafkaSourceOptions
from engine.kafka.rows import without_control_records
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopic
from logstore.log.record_times import FirstRecord, first_records
from logstore.offsets import LogOffsets


@pytest.mark.parametrize(
    ("delivered", "ends", "first", "expected"),
    [
        ({("t", 0): 5}, {("t", 0): 5}, {}, (0, 0.0, 0)),
        ({("t", 0): 5}, {("t", 0): 5}, {0: (1, 9)}, (0, 0.0, 0)),  # it was delivered meanwhile
        ({("t", 0): 5, ("t", 1): 1}, {("t", 0): 9, ("t", 1): 1}, {0: (7_500, 10)}, (4, 2.5, 40)),
        ({("t", 0): 5, ("t", 1): 1}, {("t", 0): 9, ("t", 1): 3}, {0: (7_500, 10), 1: (9_000, 1)}, (6, 2.5, 42)),
        ({("t", 0): 5}, {("t", 0): 5, ("t", 1): 3}, {1: (9_000, 0)}, (3, 1.0, 0)),  # a new partition
        ({("t", 0): 5}, {("t", 0): 6}, {}, (1, 0.0, 0)),  # only a marker, or unknown
        ({("t", 0): 5}, {("t", 0): 6}, {0: (None, 7)}, (1, 0.0, 7)),  # a record without a time
        ({("t", 0): 5}, {("t", 0): 6}, {0: (12_000, 7)}, (1, 0.0, 7)),  # a clock that is ahead
        ({("t", 0): 5}, {("t", 0): 3}, {}, (0, 0.0, 0)),  # a topic that was made again
    ],
)
def test_lag(
    delivered: Offsets,
    ends: Offsets,
    first: dict[int, tuple[int | None, int]],
    expected: tuple[int, float, int],
) -> None:
    """``first``: time and size of the first record that waits, by partition."""
    records = {("t", part): FirstRecord(time_ms=ms, size_bytes=size) for part, (ms, size) in first.items()}
    found = lag_behind(delivered, ends, first=records, now_ms=10_000)
    assert (found.records, found.seconds, found.size_bytes) == expected


def test_an_empty_value_without_a_key_is_a_control_record_and_nothing_else_is() -> None:
    """A log in JSON has them for Flink, which would end at a null; behind a key an empty value is a bad record."""
    keys, values = pa.array([None, b"k", None, None], pa.binary()), pa.array([b"", b"", b"{}", None], pa.binary())
    assert without_control_records(keys, values).to_pylist() == [None, b"", b"{}", None]


def send(kafka: KafkaProperties, topic: str, *records: tuple[int, int]) -> None:
    """Records as (partition, milliseconds)."""
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for partition, time_ms in records:
        producer.produce(topic, b"{}", partition=partition, timestamp=time_ms)
    assert producer.flush(10) == 0


@pytest.mark.broker
def test_lag_is_true_at_the_moment_of_asking(kafka: KafkaProperties, new_topic: Callable[..., str]) -> None:
    """Without a batch in between; the age is that of the oldest record that waits, over all partitions."""
    topic, now_ms = new_topic(bucket_count=3), time.time_ns() // 1_000_000
    send(kafka, topic, (0, now_ms - 90_000), (0, now_ms - 60_000), (1, now_ms - 30_000))
    assert first_records(kafka, {(topic, 0): 1, (topic, 1): 0, (topic, 2): 0}, timeout_s=5) == {
        (topic, 0): FirstRecord(time_ms=now_ms - 60_000, size_bytes=2),
        (topic, 1): FirstRecord(time_ms=now_ms - 30_000, size_bytes=2),
    }
    servers = kafka.by_name["bootstrap.servers"]
    options = KafkaSourceOptions.parse({"kafka.bootstrap.servers": servers, "subscribe": topic})
    delivered: dict[tuple[str, int], int] = {}
    watch = ClusterWatch(kafka, {"p": (options, lambda: delivered or None)})
    watch.look()
    assert (watch.lags, watch.unreachable_s) == ({}, None)
    delivered |= {(topic, 0): 1, (topic, 1): 0, (topic, 2): 0}
    watch.look()
    assert (watch.lags["p"].records, watch.lags["p"].size_bytes) == (2, 4)
    assert 60 <= watch.lags["p"].seconds < 120
    delivered |= {(topic, 0): 2, (topic, 1): 1}
    watch.look()
    assert watch.lags == {"p": SourceLag(records=0, seconds=0.0, size_bytes=0)}
    assert undelivered(delivered, {(topic, 0): 2}) == {}


@pytest.mark.sweep
def test_an_outage_is_seen_within_ten_seconds_and_its_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the watch's own thread, which a batch that hangs does not keep."""
    monkeypatch.setattr("engine.deploy.pipeline.job_watch._PERIOD_S", 0.05)
    looked: list[float | None] = []
    cluster = ClusterWatch(KafkaProperties.parse({"bootstrap.servers": "localhost:1"}))
    began_s = time.monotonic()
    with watching([cluster], lambda each: looked.append(each.unreachable_s)) as watch:
        while not looked and time.monotonic() - began_s < 10:
            time.sleep(0.02)
        [lost_s] = watch.reachable().values()
    assert lost_s is not None
    cluster._cluster = type("Answers", (), {"check_reachable": lambda _: None})()  # type: ignore[assignment]
    cluster.look()
    assert cluster.unreachable_s is None


def test_topics_of_dead_letters_have_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sources, and those that are given; a topic that is not there yet has none."""

    class Cluster:
        def check_reachable(self) -> None: ...

        def find_topic(self, name: str) -> LogTopic | None:
            known = LogTopic(name=name, topic_id="x", bucket_count=2, replication=1, is_complete=True)
            return known if name != "absent" else None

        def end_offsets(self, name: str, buckets: range) -> LogOffsets:
            return LogOffsets({bucket: 10 + bucket for bucket in buckets})

    servers = {"kafka.bootstrap.servers": "localhost:1"}
    letters = {"on-bad-record": "dead-letter", "dead-letter.topic": "rejected"}
    options = KafkaSourceOptions.parse({**servers, "subscribe": "t", **letters})
    properties = KafkaProperties.parse({"bootstrap.servers": "localhost:1"})
    watch = ClusterWatch(properties, {"p": (options, lambda: None)}, dead_letters=["aside", "absent"])
    monkeypatch.setattr(watch, "_cluster", Cluster())
    watch.look()
    assert (watch.unreachable_s, watch.dead_letters) == (None, {"rejected": 21, "aside": 21})
