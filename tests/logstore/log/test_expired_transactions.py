"""A transaction that brokers ended, because it was open for too long, is called that, and not another writer."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.topics import LogTopics
from logstore.log.log_writer import BucketLogWriter, LogTarget
from lsm.errors import ConflictError, OutcomeUnknownError

SERVERS = "memory:9092"


@pytest.fixture
def environment() -> Iterator[MemoryEnvironment]:
    found = MemoryEnvironment(MemoryCluster())
    with serving(SERVERS, found):
        yield found


@pytest.mark.parametrize("when", ["rows", "commit"])
@pytest.mark.parametrize(
    ("options", "open_s", "cause"),
    [
        ({}, 299, "cause=another writer of this bucket took over"),
        ({}, 301, "cause=brokers ended the transaction, which was open for 301 s: .* raise log.kafka.transaction.time"),
        ({"transaction.timeout.ms": "2000"}, 3, "cause=brokers ended the transaction, which was open for 3 s"),
    ],
)
def test_the_cause_is_the_time_that_a_transaction_was_open(
    environment: MemoryEnvironment, options: dict[str, str], open_s: float, cause: str, when: str
) -> None:
    """Soak, finding 8: the coordinator raises the epoch when the time is over, which looks like another writer."""
    properties = KafkaProperties.parse({"bootstrap.servers": SERVERS, **options})
    LogTopics(properties).create_topic("t", bucket_count=1)
    target = LogTarget(properties=properties, topic="t", table_uuid="u", bucket=0)
    writer = BucketLogWriter(target)
    writer.fence()
    writer.begin(query="q", batch=0)
    writer.append(None, pa.array([b"a", b"b"]))
    environment.sleep(open_s)
    environment.cluster.init_producer(target.transactional_id)

    def go_on() -> None:
        if when == "rows":
            writer.append(None, pa.array([b"c"] * 20_000))
        writer.commit(b"files")

    with pytest.raises((ConflictError, OutcomeUnknownError), match=cause):
        go_on()
    writer.close()
    with BucketLogWriter(target) as again:
        assert again.fence() is None, "nothing of it is visible"
