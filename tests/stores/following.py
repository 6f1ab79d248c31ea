"""A job that follows a real source in the test's own process: its batches without Spark, its tables compared."""

from pathlib import Path
from typing import Any

from engine import Catalog
from engine.cdc.batch import CdcBatches
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings
from engine.cdc.source import next_position, planned_ranges
from engine.cdc.state import StateFiles
from engine.cdc.topics import PatternTopics
from engine.cdc.verify.verification import Verified, followed_by, verified
from logstore.kafka.clients import KafkaProperties
from tests.stores.debezium import ChangeSource


class Follower:
    """Tables of the database ``shop`` that follow a source."""

    def __init__(self, source: ChangeSource, directory: Path, **settings: Any) -> None:
        """Nothing is read yet.

        Args:
            source: its connector is started by the test.
            directory: for the warehouse.
            settings: more of the job's.
        """
        properties = KafkaProperties.parse({"bootstrap.servers": source.brokers})
        self.source = source
        self.catalog = Catalog(str(directory / "warehouse"))
        pattern = rf"{source.name}\..*(?<!\.message)(?<!\.fence)"
        self.settings = CdcSettings(
            name="shop", database="shop", pattern=pattern, properties=properties, options={"bucket": "1"}, **settings
        )
        self._topics = PatternTopics(properties, pattern, clock=_always_later())
        self._position: dict[str, Any] = {}
        self._batch_id = -1
        self.state = StateFiles(self.catalog.file_io, self.catalog.warehouse, "shop")
        self._batches = CdcBatches(
            self.catalog, self.settings, self.state, commit_user="query-1", run_id="run-1", threads=1
        )

    def catch_up(self) -> BatchReport:
        """One batch with everything that the source has published up to now."""
        self.source.records()
        return self.step()

    def step(self) -> BatchReport:
        """One batch with what the topics have at this moment."""
        positions = self._topics.positions()
        earliest, latest = self._topics.earliest(positions), self._topics.latest(positions)
        planned = next_position(self._position, earliest, latest, self.state.request_names(), limit=None)
        self._batch_id += 1
        report = self._batches.write(planned_ranges(self._position, planned), self._batch_id)
        self._position = planned
        return report

    def verified(self) -> dict[str, Verified]:
        """Each source table against its table, by the source's name without the schema."""
        found = verified(self.source.url, self.catalog, followed_by(self.settings, self.state))
        return {each.source.name: each for each in found if each.source.name != "fence"}

    def differences(self) -> dict[str, list[object]]:
        """What is not equal; empty when all is."""
        return {
            name: list(each.comparison.differences) if each.comparison is not None else [each.problem]
            for name, each in self.verified().items()
            if not each.is_equal
        }


def _always_later() -> Any:
    times = iter(range(0, 10**9, 1000))
    return lambda: float(next(times))
