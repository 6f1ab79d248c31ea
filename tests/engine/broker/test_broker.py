"""Laws of the broker: real processes, one directory each."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.broker.broker import Broker
from engine.broker.class_archive import archive_of
from engine.broker.jars import broker_jars, find_java
from engine.log.table_log import fence_all
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError, UnavailableError

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests of this module may stop and kill."""
    with Broker(tmp_path_factory.mktemp("own")) as running:
        yield running


def append_and_commit(writer: BucketLogWriter) -> None:
    writer.append(None, pa.array([b"a", b"b", b"c"]))
    writer.commit(b"")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def sizes_of(broker: Broker) -> dict[str, int]:
    """Bytes of each segment of the log in which the broker keeps what it knows of topics and of itself."""
    segments = (broker.data_dir / "kafka-logs" / "__cluster_metadata-0").glob("*.log")
    return {each.name: each.stat().st_size for each in segments}


def eventually(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_a_broker_maps_the_classes_that_one_before_it_kept(own: Broker) -> None:
    own.stop()  # which makes the archive, if none has
    pid = own.start().status().pid
    assert str(archive_of(find_java(), broker_jars())) in Path(f"/proc/{pid}/maps").read_text()


def test_status_says_what_runs_where(own: Broker) -> None:
    status = own.status()
    assert status.running
    assert status.pid is not None
    assert is_alive(status.pid)
    assert status.bootstrap_servers == own.bootstrap_servers == Broker(own.data_dir).bootstrap_servers
    assert "started (kafka.server.KafkaRaftServer)" in status.log_file.read_text()


def test_no_other_user_of_the_machine_reads_its_records(own: Broker) -> None:
    """Before, the directory was open: who has no login to a broker without logins could read its files as well."""
    records = own.data_dir / "kafka-logs"
    assert records.stat().st_mode & 0o077 == 0
    segments = [*records.glob("__cluster_metadata-0/*.log")]
    assert segments
    assert {each.stat().st_mode & 0o077 for each in [own.data_dir / "broker.log", *segments]} == {0}


def test_starting_what_runs_changes_nothing(own: Broker) -> None:
    pid = own.status().pid
    again = Broker(own.data_dir).start()
    assert (again.status().pid, again.bootstrap_servers) == (pid, own.bootstrap_servers)
    with pytest.raises(InvalidInputError, match=r"another port.*wanted='127\.0\.0\.1:19999'"):
        Broker(own.data_dir, port=19_999).start()


def test_a_broker_that_nobody_uses_writes_nothing(own: Broker) -> None:
    """Issue 13, 7: it runs beside Spark or other tests, and its own records cost as much as answering to nobody."""
    own.start()

    def rests() -> bool:
        before = sizes_of(own)
        time.sleep(1.5)  # three times the interval of Kafka's default
        return bool(before) and sizes_of(own) == before

    assert eventually(rests)


@pytest.mark.long
def test_a_kill_and_a_restart_keep_port_topics_and_committed_batches(own: Broker) -> None:
    """An open transaction of a dead writer does not survive as rows, a committed one does."""
    kafka = KafkaProperties.parse({"bootstrap.servers": own.bootstrap_servers})
    topic = LogTopics(kafka).create_topic("kept", bucket_count=1)
    target = LogTarget(properties=kafka, topic="kept", table_uuid="kept", bucket=0)
    with BucketLogWriter(target) as writer:
        writer.fence()
        writer.begin(query="q", batch=0)
        writer.append(None, pa.array([b"a", b"b", b"c"]))
        done = writer.commit(b"files")
    open_writer = BucketLogWriter(target, timeout_s=5)
    open_writer.fence()
    open_writer.begin(query="q", batch=1)
    open_writer.append(None, pa.array([b"x"] * 100))
    port = own.bootstrap_servers
    own.kill()
    assert not own.status().running
    own.start()
    assert own.bootstrap_servers == port
    tail = fence_all([target])[0]
    assert tail.end_offset == done.end_offset
    assert tail.marker is not None
    assert tail.marker.batch == 0
    log_range = LogRange(bucket=0, start_offset=0, end_offset=done.end_offset)
    assert pa.Table.from_batches(read_range(kafka, topic="kept", log_range=log_range))["value"].to_pylist() == [
        b"a",
        b"b",
        b"c",
    ]
    assert LogTopics(kafka).describe_topic("kept", topic_id=topic.topic_id, bucket_count=1) == topic
    open_writer.close()


def test_a_broker_that_hangs_makes_a_writer_fail_in_time_and_not_hang(own: Broker) -> None:
    kafka = KafkaProperties.parse({"bootstrap.servers": own.bootstrap_servers})
    LogTopics(kafka).create_topic("hang", bucket_count=1)
    target = LogTarget(properties=kafka, topic="hang", table_uuid="hang", bucket=0)
    writer = BucketLogWriter(target, timeout_s=1)
    writer.fence()
    writer.begin(query="q", batch=0)
    pid = own.status().pid
    assert pid is not None
    began = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(
            UnavailableError, match=r"broker does not accept rows in time: topic=hang bucket=0 waiting_rows=3"
        ):
            append_and_commit(writer)
        writer.close()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert time.monotonic() - began < 30
    assert fence_all([target])[0].marker is None


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInputError, match=f"port is taken: port={port}"):  # exit code 2, as of `serve`
            Broker(tmp_path, port=port).start()


def test_a_broker_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"storage cannot be formatted.*StorageTool"):
        Broker(tmp_path, jars=[tmp_path / "none.jar"]).start()


def test_a_directory_without_a_broker_is_not_running(tmp_path: Path) -> None:
    status = Broker(tmp_path / "none").status()
    assert (status.running, status.pid, status.bootstrap_servers) == (False, None, None)
    with pytest.raises(InvalidInputError, match="never started"):
        _ = Broker(tmp_path / "none").bootstrap_servers
    Broker(tmp_path / "none").stop()


def test_a_process_id_that_is_used_again_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    (tmp_path / "broker.pid").write_text(str(os.getpid()))
    assert not Broker(tmp_path).status().running
    Broker(tmp_path).stop()


def test_a_stop_is_in_order_and_a_second_one_does_nothing(own: Broker) -> None:
    pid = own.status().pid
    assert pid is not None
    own.stop()
    own.stop()
    assert not is_alive(pid)
    status = own.status()
    assert (status.running, status.pid) == (False, None)
    assert status.bootstrap_servers is not None
    assert "shut down completed (kafka.server.BrokerServer)" in status.log_file.read_text()


START = """
import sys
from engine.broker.broker import Broker
print(Broker(sys.argv[1], detached=sys.argv[2] == "detached").start().status().pid, flush=True)
sys.stdin.read()
"""


def started_by_another_process(data_dir: Path, how: str) -> tuple["subprocess.Popen[str]", int]:
    command = [sys.executable, "-c", START, str(data_dir), how]
    owner = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


def test_an_attached_broker_dies_with_its_owner_and_a_detached_one_lives_on(own: Broker) -> None:
    own.stop()
    owner, attached = started_by_another_process(own.data_dir, "attached")
    owner.kill()
    owner.communicate()
    assert eventually(lambda: not is_alive(attached))
    owner, detached = started_by_another_process(own.data_dir, "detached")
    owner.kill()
    owner.communicate()
    assert own.status().pid == detached
    kafka = KafkaProperties.parse({"bootstrap.servers": own.bootstrap_servers})
    assert LogTopics(kafka).find_topic("none") is None
    own.stop()
    assert not is_alive(detached)
