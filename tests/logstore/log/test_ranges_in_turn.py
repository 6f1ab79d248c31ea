"""A reader of many ranges in turn: however a log is cut into ranges, its one consumer gives the committed rows."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final

import pyarrow as pa
import pytest

from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.log.kept_consumers import KeptConsumers
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from tests.logstore.log.test_log_reader import Transactions, numbers

END: Final = 13  # rows 0 to 2, marker, 3 aborted rows, marker, rows 8 and 9, marker, an aborted row, marker
COMMITTED: Final = (0, 1, 2, 8, 9)
SERVERS: Final = "memory:9092"


@pytest.fixture
def memory() -> Iterator[tuple[KafkaProperties, str]]:
    """A topic of one partition in a cluster in memory, whose time passes only by waiting."""
    cluster = MemoryCluster()
    with serving(SERVERS, MemoryEnvironment(cluster)):
        cluster.create_topic("t", 1)
        yield KafkaProperties.parse({"bootstrap.servers": SERVERS}), "t"


def write_turns(kafka: KafkaProperties, topic: str) -> None:
    producer = Transactions(kafka, topic)
    producer.commit(0, 3)
    producer.abort(100, 3)
    producer.commit(8, 2)
    producer.abort(200, 1)
    producer.client.close()


def read_in_turn(kafka: KafkaProperties, topic: str, cuts: Sequence[int], timeout_s: float = 5) -> list[list[int]]:
    kept = KeptConsumers(waits_for_end=True)
    found = []
    for start, end in pairwise(cuts):
        log_range = LogRange(bucket=0, start_offset=start, end_offset=end)
        read = read_range(kafka, topic=topic, log_range=log_range, timeout_s=timeout_s, kept=kept)
        found.append([each for batch in read for each in numbers(pa.table(batch))])
    kept.close()
    return found


def wanted(cuts: Sequence[int]) -> list[list[int]]:
    return [[each for each in COMMITTED if start <= each < end] for start, end in pairwise(cuts)]


def test_every_division_into_ranges_gives_each_committed_row_once(memory: tuple[KafkaProperties, str]) -> None:
    """A consumer learns once where the log ends: a range of markers alone, behind that, waits for nothing."""
    kafka, topic = memory
    write_turns(kafka, topic)
    for count in range(4):
        for between in combinations(range(1, END), count):
            cuts = (0, *between, END)
            assert read_in_turn(kafka, topic, cuts) == wanted(cuts), cuts


@pytest.mark.parametrize("ahead", [1, 2, 3, 4])
def test_a_range_of_a_marker_is_read_at_once_while_the_log_grows(
    memory: tuple[KafkaProperties, str], ahead: int
) -> None:
    """Cut before or behind each marker, or within the rows, so that the end of the log is met at any place."""
    kafka, topic = memory
    producer, kept, found = Transactions(kafka, topic), KeptConsumers(waits_for_end=True), []
    here = 0
    for turn in range(12):
        producer.commit(3 * turn, 3)
        for end in sorted({min(here + ahead, 4 * turn + 4), 4 * turn + 3, 4 * turn + 4}):
            log_range = LogRange(bucket=0, start_offset=here, end_offset=end)
            for batch in read_range(kafka, topic=topic, log_range=log_range, timeout_s=5, kept=kept):
                found += numbers(pa.table(batch))
            here = end
    kept.close()
    assert found == [*range(36)]


@pytest.mark.broker
def test_a_range_of_a_marker_is_read_at_once_from_a_broker(
    kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """A table of an eventual log stood still for a minute behind a batch that was cut before a marker."""
    topic, turns = new_topic(), 40
    producer = Transactions(kafka, topic)
    for turn in range(turns):
        producer.commit(3 * turn, 3)
    producer.client.close()
    cuts = [0, *(4 * turn + place for turn in range(turns) for place in (3, 4))]
    found = read_in_turn(kafka, topic, cuts)
    assert [row for rows in found for row in rows] == [*range(3 * turns)]
