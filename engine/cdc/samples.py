"""Some records of each topic partition: the first and the last, because schema parts change between them."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from engine.cdc.settings import CdcSettings
from engine.cdc.topics import PatternTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    """Records of one topic partition, in order."""

    topic: str
    partition: int
    size: int  # offsets between the first and the last record
    records: tuple[pa.RecordBatch, ...]  # offset, key, value
    is_whole: bool  # nothing lies between the samples


def samples(settings: CdcSettings, *, count: int) -> Iterator[TopicSample]:
    """Read the samples of all partitions, without those of the dead letters.

    Args:
        settings: name the topics.
        count: of records from the start, and as many from the end of each partition.

    Raises:
        UnavailableError: the brokers do not answer.
        CorruptDataError: records were lost while they were read: do it again.
    """
    topics = PatternTopics(settings.properties, settings.pattern)
    positions = topics.positions()
    earliest, latest = topics.earliest(positions), topics.latest(positions)
    for topic, partition in positions:
        if topic == settings.dead_letters:
            continue
        start, end = earliest.get((topic, partition), 0), latest.get((topic, partition), 0)
        is_whole = end - start <= 2 * count
        parts = [(start, end)] if is_whole else [(start, start + count), (end - count, end)]
        ranges = [LogRange(bucket=partition, start_offset=a, end_offset=b) for a, b in parts if b > a]
        records = tuple(
            batch
            for each in ranges
            for batch in read_range(
                settings.properties, topic=topic, log_range=each, columns=["offset", "key", "value"]
            )
        )
        yield TopicSample(topic=topic, partition=partition, size=end - start, records=records, is_whole=is_whole)
