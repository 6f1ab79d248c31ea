"""A job over a cluster in memory: its batches without Spark, one thread, and rows of its tables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Catalog
from engine.cdc.batch import CdcBatches
from engine.cdc.report import BatchReport
from engine.cdc.rules.names import SourceTable
from engine.cdc.settings import CdcSettings
from engine.cdc.source import next_position, planned_ranges
from engine.cdc.state import StateFiles
from engine.cdc.tables import PastValues
from engine.kafka.offsets import TopicPosition
from engine.runtime.steps import Observer, ignore
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from logstore.kafka.topics import LogTopics
from tests.support.change_events import Record, send

SERVERS = "cdc.memory:9092"


@dataclass
class MemoryJob:
    """One job; ``sent`` records are taken by the next ``batch``."""

    catalog: Catalog
    settings: CdcSettings
    position: dict[str, Any] = field(default_factory=dict)
    batch_id: int = -1
    commit_user: str = "query-1"
    runs: int = 0
    now_ms: int = 1_763_859_700_000
    past: PastValues | None = None  # what the source says of rows from before a column
    has_topic_ids: bool = False  # as clusters before Kafka 2.8
    _batches: CdcBatches | None = None

    @property
    def state(self) -> StateFiles:
        return StateFiles(self.catalog.file_io, self.catalog.warehouse, self.settings.name)

    def send(self, *records: Record) -> None:
        topics = LogTopics(self.settings.properties)
        for name in {each[0] for each in records}:
            if topics.find_topic(name) is None:
                topics.create_topic(name, bucket_count=1)
        send(self.settings.properties, *records)

    def batch(self, *records: Record, observe: Observer = ignore) -> BatchReport:
        """Send records, plan a batch and write it."""
        self.send(*records)
        self.planned = (self.position, self._next())
        self.batch_id += 1
        done = self.again(observe=observe)
        self.position = self.planned[1]
        return done

    def again(self, observe: Observer = ignore) -> BatchReport:
        """Write the planned batch, once more if it was."""
        if self._batches is None or observe is not ignore:
            self.runs += 1
            self._batches = CdcBatches(
                self.catalog, self.settings, self.state, commit_user=self.commit_user, run_id=f"run-{self.runs}",
                threads=1, observe=observe, now_ms=lambda: self.now_ms,
                past=self.past,
            )  # fmt: skip
        return self._batches.write(planned_ranges(*self.planned), self.batch_id)

    def restarted(self) -> None:
        """What a killed driver leaves: nothing in memory."""
        self._batches = None

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = self.catalog.table(f"{self.settings.database}.{table}").read().to_arrow()
        return sorted(found.to_pylist(), key=repr)

    def live(self, table: str, source: str | None = None) -> Mapping[str, str]:
        """The columns of a table that have the values of its source table now, by their names there."""
        return self.state.table(table).sequence_of(SourceTable.parse(source or f"public.{table}")).live

    def snapshots(self, table: str) -> int:
        return self.catalog.table(f"{self.settings.database}.{table}").store.snapshots.latest_id() or 0

    def _next(self) -> dict[str, Any]:
        topics = LogTopics(self.settings.properties)
        cluster: MemoryCluster = self.settings.properties.environment.cluster  # type: ignore[attr-defined]
        names = [name for name in cluster.topics if name.startswith("shop.")]
        latest: dict[TopicPosition, int] = {
            (name, partition): offset
            for name in names
            for partition, offset in _ends(topics, name, range(len(cluster.topic(name).partitions))).items()
        }
        earliest = dict.fromkeys(latest, 0)
        pending = self.state.pending(now_ms=self.now_ms, max_wait_ms=self.settings.max_wait_s * 1000)
        ids = {name: cluster.topic(name).topic_id for name in names} if self.has_topic_ids else {}
        return next_position(self.position, earliest, latest, pending, limit=None, topic_ids=ids)


def _ends(topics: LogTopics, name: str, partitions: range) -> Mapping[int, int]:
    """Committed ends, once the commit has reached all partitions."""
    while (found := topics.end_offsets(name, partitions)) != topics.written_offsets(name, partitions):
        continue
    return found


@contextmanager
def memory_job(tmp_path: Path, **settings: Any) -> Iterator[MemoryJob]:
    """A job ``shop`` into the database ``shop``."""
    with serving(SERVERS, MemoryEnvironment(MemoryCluster())):
        made = CdcSettings(
            name="shop",
            database="shop",
            pattern=r"shop\..*",
            properties=KafkaProperties.parse({"bootstrap.servers": SERVERS}),
            **{"options": {"bucket": "1"}, **settings},
        )
        yield MemoryJob(Catalog(str(tmp_path / "warehouse")), made)
