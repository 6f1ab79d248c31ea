"""Laws of the log writer, against a real broker; the faults are of real processes."""

import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from engine.broker.broker import Broker
from engine.log.table_log import fence_all
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.environment import MACHINE
from logstore.kafka.topics import LogTopics
from logstore.log import log_writer
from logstore.log.log_reader import read_range
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import INLINE_PAYLOAD_BYTES, LogTail, read_tail
from logstore.offsets import LogRange
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]


@pytest.fixture
def target(kafka: KafkaProperties, new_topic: Callable[..., str]) -> LogTarget:
    topic = new_topic()
    return LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)


def text_values(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def log_of(target: LogTarget, start: int = 0, end: int | None = None) -> list[tuple[bytes | None, bytes | None]]:
    """Committed (key, value) pairs of the bucket; without an `end` all of them, and open transactions are ended."""
    if end is None:
        end = fence_all([target])[target.bucket].end_offset
    log_range = LogRange(bucket=target.bucket, start_offset=start, end_offset=end)
    batches = list(read_range(target.properties, topic=target.topic, log_range=log_range, timeout_s=20))
    return [pair for rows in batches for pair in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)]


def write_texts(target: LogTarget, batch: int, *texts: str, payload: bytes = b"files") -> Any:
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=batch)
        writer.append(None, text_values(*texts))
        return writer.commit(payload)


def append_and_commit(writer: BucketLogWriter, *texts: str) -> None:
    for text in texts:
        writer.append(None, text_values(text))
    writer.commit(b"")


def test_a_new_bucket_has_no_marker_and_ends_at_0(target: LogTarget) -> None:
    with BucketLogWriter(target) as writer:
        assert writer.fence() is None
        assert writer.tail == LogTail(bucket=0, marker=None, end_offset=0, earliest_offset=0)


def test_a_committed_batch_is_read_back_with_keys_tombstones_and_its_slice(target: LogTarget) -> None:
    """FL-122, FL-123: the key is the record's; it is null where there is none."""
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(pa.array([b"1", None], pa.binary()), text_values("a", "b"))
        writer.append(pa.array([b"3"], pa.binary()), pa.array([None], pa.binary()))
        done = writer.commit(b"files")
    assert (done.start_offset, done.end_offset, done.row_count) == (0, 3, 3)
    assert log_of(target, end=done.end_offset) == [(b"1", b"a"), (None, b"b"), (b"3", None)]


def test_the_marker_of_the_last_batch_carries_everything_a_repeated_attempt_needs(target: LogTarget) -> None:
    write_texts(target, 6, "a", payload=b"old")
    done = write_texts(target, 7, "b", "c", payload=b"\x00\nnew")
    with BucketLogWriter(target) as writer:
        marker = writer.fence()
    assert marker is not None
    assert (marker.query, marker.batch, marker.row_count, marker.payload) == ("q", 7, 2, b"\x00\nnew")
    assert (marker.start_offset, marker.end_offset) == (done.start_offset, done.end_offset)
    assert marker.is_final
    assert not marker.is_pointer


def test_rows_are_invisible_until_the_commit_and_gone_after_an_abort(target: LogTarget, topics: LogTopics) -> None:
    """FL-57, FL-127: readers see a batch at its commit, not before."""
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, text_values(*map(str, range(20_000))))
        assert writer._transaction is not None
        assert writer._transaction._producer.flush(30) == 0  # an abort drops rows that the client has not sent
        writer.abort()
    done = write_texts(target, 0, "kept")
    assert done.start_offset == 20_000  # behind all rows but the last, which a commit sends, and the abort's marker
    assert log_of(target) == [(None, b"kept")]


def test_many_appends_stay_in_order_and_side_by_side(target: LogTarget) -> None:
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        for start in range(0, 60_000, 7_000):
            writer.append(None, text_values(*map(str, range(start, min(start + 7_000, 60_000)))))
        done = writer.commit(b"")
    assert done.end_offset - done.start_offset == done.row_count == 60_000
    assert [int(value or b"") for _, value in log_of(target, end=done.end_offset)] == list(range(60_000))


def test_memory_is_bounded_while_the_broker_takes_rows(target: LogTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of 1 MB still lets 16 MB through: append waits for the broker."""
    monkeypatch.setattr("logstore.kafka.transactions._BUFFER_BYTES", 1 << 20)
    big = pa.array([os.urandom(1000) * 10] * 100, pa.binary())
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        for _ in range(16):
            writer.append(None, big)
            assert writer._transaction is not None
            assert writer._transaction._sent_bytes <= 1 << 20
        assert writer.commit(b"").row_count == 1600


def test_a_batch_without_rows_leaves_the_log_alone(target: LogTarget) -> None:
    before = write_texts(target, 0, "a")
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=1)
        writer.append(None, text_values())
        empty = writer.commit(b"files")
    assert (empty.start_offset, empty.end_offset, empty.row_count) == (before.end_offset, before.end_offset, 0)
    assert log_of(target) == [(None, b"a")]


def test_a_batch_leaves_no_error_of_the_client_behind(target: LogTarget) -> None:
    """The client never frees what a transactional call raises, so a batch that goes well must not ask what failed."""

    def errors() -> list[KafkaError]:
        return [each for each in gc.get_objects() if isinstance(each, KafkaError)]

    before = errors()  # of other tests in this process; kept, since ids of freed objects are used again
    known = {id(each) for each in before}
    for batch in range(5):
        write_texts(target, batch, "a", "b")
    new = [each for each in errors() if id(each) not in known]
    assert len(new) < 5, new  # not one for each batch; clients of other tests in this process may add their own


def test_the_second_writer_shuts_out_the_first(target: LogTarget) -> None:
    with BucketLogWriter(target) as zombie, BucketLogWriter(target) as heir:
        zombie.fence()
        zombie.begin(query="q", batch=0)
        zombie.append(None, text_values("zombie", "zombie"))
        heir.fence()
        heir.begin(query="q", batch=0)
        heir.append(None, text_values("heir"))
        heir.commit(b"")
        with pytest.raises((ConflictError, OutcomeUnknownError), match=f"topic={target.topic} bucket=0.*took over"):
            zombie.commit(b"")
    assert log_of(target) == [(None, b"heir")]


def test_fencing_all_buckets_settles_what_dead_writers_left_open(
    kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(bucket_count=6)
    targets = [LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=bucket) for bucket in range(6)]
    ends = {target.bucket: write_texts(target, 3, "a", "b").end_offset for target in targets[:5]}
    dead = BucketLogWriter(targets[0])
    dead.fence()
    dead.begin(query="q", batch=4)
    dead.append(None, text_values("x", "y"))
    tails = fence_all(targets)
    assert {bucket: tail.end_offset for bucket, tail in tails.items()} == {**ends, 5: 0}
    assert {bucket: tail.marker.batch if tail.marker else None for bucket, tail in tails.items()} == {
        **dict.fromkeys(range(5), 3),
        5: None,
    }
    with pytest.raises((ConflictError, OutcomeUnknownError)):
        dead.commit(b"")
    dead.close()


def test_eventual_rows_are_visible_before_the_batch_ends(target: LogTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-58, FL-190: seen at once, however long the batch takes."""
    monkeypatch.setattr(log_writer, "CHUNK_ROWS", 10)
    with BucketLogWriter(target, eventual=True) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, text_values(*map(str, range(25))))
        early = [value for _, value in log_of(target, end=24)]
        writer.append(None, text_values("last"))
        done = writer.commit(b"files")
    assert early == [str(number).encode() for number in range(24)]
    assert done.row_count == 26
    assert done.end_offset > done.start_offset + 26  # a transaction marker lies between its chunks
    assert len(log_of(target, done.start_offset, done.end_offset)) == 26
    with BucketLogWriter(target) as writer:
        marker = writer.fence()
    assert marker is not None
    assert (marker.start_offset, marker.end_offset, marker.row_count) == (done.start_offset, done.end_offset, 26)


def test_eventual_chunks_are_also_cut_by_time(target: LogTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-190: sub-second delay."""
    monkeypatch.setattr(log_writer, "CHUNK_S", 0.0)
    with BucketLogWriter(target, eventual=True) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, text_values("a", "b"))
        assert log_of(target, end=1) == [(None, b"a")]
        writer.commit(b"")


def test_a_marker_that_is_too_large_is_refused_before_anything_is_visible(target: LogTarget) -> None:
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, text_values("a"))
        with pytest.raises(InvalidInputError, match="store the commit message in a file"):
            writer.commit(b"x" * INLINE_PAYLOAD_BYTES)
    write_texts(target, 0, "b", payload=b"x" * (INLINE_PAYLOAD_BYTES - 1))
    assert log_of(target) == [(None, b"b")]


@pytest.mark.parametrize("position", [0, 1, 2, 3], ids=["first", "second", "held-back", "last"])
def test_a_record_above_the_clients_limit_names_the_option(target: LogTarget, position: int) -> None:
    texts = ["a", "b", "c", "d"]
    texts[position] = "x" * 1_100_000
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        with pytest.raises(InvalidInputError, match=r"log\.kafka\.message\.max\.bytes"):
            append_and_commit(writer, *texts)
    assert log_of(target) == []


@pytest.mark.parametrize("position", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_record_above_the_topics_limit_is_refused_and_never_half_committed(
    kafka: KafkaProperties, new_topic: Callable[..., str], position: int
) -> None:
    topic = new_topic(max_message_bytes="2000")
    target = LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)
    texts = ["a", "b", "c"]
    texts[position] = os.urandom(3000).hex()
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        with pytest.raises(InvalidInputError, match=r"max\.message\.bytes"):
            append_and_commit(writer, *texts)
    write_texts(target, 0, "ok")
    assert log_of(target) == [(None, b"ok")]


def test_rows_of_a_foreign_producer_inside_a_batch_are_noticed(target: LogTarget) -> None:
    foreign = target.properties.producer(ErrorNotes(), transactional_id=None)
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, text_values(*map(str, range(1000))))
        writer._producer.flush(10)
        foreign.produce(target.topic, b"foreign", partition=0)
        foreign.flush(10)
        with pytest.raises(ConflictError, match="another producer writes to the topic"):
            writer.commit(b"")
    foreign.close()
    with BucketLogWriter(target) as writer:  # the caller compares it with what snapshots have
        assert writer.fence() is None
        assert (writer.tail.is_foreign, writer.tail.end_offset) == (True, 1000)
    with pytest.raises(CorruptDataError, match=f"no marker: topic={target.topic} bucket=0 offset=999"):
        read_tail(target.properties, topic=target.topic, bucket=0)


def test_a_deleted_topic_is_corrupt_data_not_a_pause(
    broker: Broker, topics: LogTopics, new_topic: Callable[..., str]
) -> None:
    impatient = {"bootstrap.servers": broker.bootstrap_servers, "topic.metadata.propagation.max.ms": "200"}
    target = LogTarget(properties=KafkaProperties.parse(impatient), topic=new_topic(), table_uuid="deleted", bucket=0)
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        topics.delete_topic(target.topic)
        with pytest.raises(CorruptDataError, match="missing"):
            append_and_commit(writer, "a", "b")


def test_a_writer_that_wrote_before_sees_soon_that_its_topic_is_gone(
    broker: Broker, topics: LogTopics, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client knows the topic: it would wait for a minute, and hold the turn of the table's log."""
    monkeypatch.setattr(type(MACHINE), "look_s", 0.5)
    properties = KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})
    target = LogTarget(properties=properties, topic=new_topic(), table_uuid="kept", bucket=0)
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        append_and_commit(writer, "a", "b")
        assert writer.renew()
        writer.begin(query="q", batch=1)
        topics.delete_topic(target.topic)
        began = time.monotonic()
        with pytest.raises(CorruptDataError, match=r"missing.*CALL sys.reset_log"):
            append_and_commit(writer, "c", "d")
        assert time.monotonic() - began < 30, "not when its rows are too old"


def test_a_missing_broker_is_unavailable_and_says_what_the_client_saw() -> None:
    nobody = KafkaProperties.parse({"bootstrap.servers": "127.0.0.1:1"})
    target = LogTarget(properties=nobody, topic="t", table_uuid="u", bucket=2)
    with (
        BucketLogWriter(target, timeout_s=1) as writer,
        pytest.raises(UnavailableError, match=r"topic=t bucket=2.*client_said=_TRANSPORT.*Connection refused"),
    ):
        writer.fence()


# ---- faults of processes ---------------------------------------------------------------------------------------

ROWS = 3_000
STEPS = ("start", "fenced", "mid", "before commit", "after commit")
FAULTS = [
    *((step, how, 0.0) for step in STEPS for how in ("SIGKILL", "SIGSTOP")),
    *(("in commit", how, after_s) for after_s in (0.0, 0.001, 0.002, 0.005, 0.01) for how in ("SIGKILL", "SIGSTOP")),
]


class Attempts:
    """The other end of attempt_server.py."""

    def __init__(self, broker: Broker) -> None:
        self._servers = broker.bootstrap_servers
        self._numbers = count()
        self._heard: dict[int, queue.Queue[Mapping[str, Any]]] = {}
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("attempt_server.py"))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def start(self, topic: str, bucket: int, batch: int, salt: str, **special: Any) -> int:
        number = next(self._numbers)
        self._heard[number] = queue.Queue()
        spec = {
            "fault_step": None,
            "fault_signal": "SIGKILL",
            "fault_after_s": 0.0,
            "looks_at_marker": True,
            "eventual": False,
        }
        spec |= {"id": number, "servers": self._servers, "topic": topic, "bucket": bucket, "batch": batch, "salt": salt}
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({**spec, "row_count": ROWS, **special}) + "\n")
        self._server.stdin.flush()
        return number

    def hear(self, number: int) -> Mapping[str, Any]:
        """What the attempt says next: that it reached its fault, or how it ended."""
        return self._heard[number].get(timeout=60)

    def run(self, topic: str, bucket: int, batch: int, salt: str, **special: Any) -> Mapping[str, Any]:
        heard = self.hear(self.start(topic, bucket, batch, salt, **special))
        assert "result" in heard, heard
        result: Mapping[str, Any] = heard["result"]
        return result

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(30)
        self._listener.join(30)
        self._server.stdout.close()

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            heard = json.loads(line)
            self._heard[heard["id"]].put(heard)


@pytest.fixture(scope="module")
def attempts(broker: Broker) -> Iterator[Attempts]:
    running = Attempts(broker)
    yield running
    running.close()


def batches_in_log(target: LogTarget, end: int) -> list[tuple[int, str, list[int]]]:
    """The committed log as runs of (batch, salt, row numbers)."""
    runs: list[tuple[int, str, list[int]]] = []
    for _, value in log_of(target, end=end):
        batch, number, salt = json.loads(value or b"")
        if not runs or runs[-1][:2] != (batch, salt):
            runs.append((batch, salt, []))
        runs[-1][2].append(number)
    return runs


def three_batches_with_a_fault(
    attempts: Attempts, target: LogTarget, step: str, how: str, after_s: float = 0.0, **special: Any
) -> list[str]:
    """Batches 0, 1, 2, where the first attempt at 1 meets the fault; gives the salts that the driver knows."""
    topic, bucket = target.topic, target.bucket
    reported = [attempts.run(topic, bucket, 0, "first", **special)]
    fault = {"fault_step": step, "fault_signal": how, "fault_after_s": after_s}
    victim = attempts.start(topic, bucket, 1, "victim", **fault, **special)
    met = attempts.hear(victim)
    reported.append(attempts.run(topic, bucket, 1, "replay", **special))
    if how == "SIGSTOP" and "reached" in met:
        os.kill(met["pid"], signal.SIGCONT)
        end = attempts.hear(victim)  # the zombie: shut out, or a witness of what the other one did
        assert (
            end.get("error") in ("ConflictError", "OutcomeUnknownError") or end["result"]["salt"] == reported[1]["salt"]
        ), end
    reported.append(attempts.run(topic, bucket, 2, "third", **special))
    assert reported[2]["end"] > reported[1]["end"] > reported[0]["end"]
    return [result["salt"] for result in reported]


def test_each_batch_is_in_the_log_exactly_once_whatever_happens_to_its_first_writer(
    attempts: Attempts, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """FL-57, FL-127: kill -9 and zombies at every step of the protocol, with rows that differ between attempts."""
    topic = new_topic(bucket_count=len(FAULTS))
    targets = [
        LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=bucket) for bucket in range(len(FAULTS))
    ]
    with ThreadPoolExecutor(4) as threads:
        reported = list(
            threads.map(lambda target, fault: three_batches_with_a_fault(attempts, target, *fault), targets, FAULTS)
        )
    tails = fence_all(targets)
    for target, fault, salts in zip(targets, FAULTS, reported, strict=True):
        assert salts[0] == "first", fault
        assert salts[1] == ("victim" if fault[0] == "after commit" else salts[1]), fault
        log = batches_in_log(target, tails[target.bucket].end_offset)
        assert log == [(batch, salt, list(range(ROWS))) for batch, salt in enumerate(salts)], fault


def test_without_looking_at_the_marker_a_batch_is_written_twice(
    attempts: Attempts, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """The control: the same faults do repeat rows when the protocol is broken, so the test above can fail."""
    topic = new_topic()
    target = LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)
    three_batches_with_a_fault(attempts, target, "after commit", "SIGKILL", looks_at_marker=False)
    log = batches_in_log(target, fence_all([target])[0].end_offset)
    assert [batch for batch, _, _ in log] == [0, 1, 1, 2]


def test_an_eventual_batch_is_complete_after_a_crash_though_rows_may_repeat(
    attempts: Attempts, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """FL-128, FL-129: a replay repeats rows; the newest value of each key is that of the confirmed attempt."""
    topic = new_topic()
    target = LogTarget(properties=kafka, topic=topic, table_uuid=topic, bucket=0)
    salts = three_batches_with_a_fault(attempts, target, "before commit", "SIGKILL", eventual=True)
    newest: dict[tuple[int, int], str] = {}
    for batch, salt, numbers in batches_in_log(target, fence_all([target])[0].end_offset):
        newest |= {(batch, number): salt for number in numbers}
    assert newest == {(batch, number): salt for batch, salt in enumerate(salts) for number in range(ROWS)}
