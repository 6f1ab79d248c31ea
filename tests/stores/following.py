"""A job that follows a real source in the test's own process: its batches without Spark, its tables compared."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from engine import Catalog
from engine.cdc.batch import CdcBatches
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings
from engine.cdc.signals import request_snapshots
from engine.cdc.source import next_position, planned_ranges
from engine.cdc.state import StateFiles
from engine.cdc.tables import PastValues
from engine.cdc.topics import PatternTopics
from engine.cdc.verify.verification import Verified, followed_by, known_sources, verified
from engine.runtime.steps import Observer, ignore
from logstore.kafka.clients import KafkaProperties
from tests.stores.debezium import ChangeSource

_WAIT_S: Final = 60


class Follower:
    """Tables of the database ``shop`` that follow a source."""

    def __init__(
        self, source: ChangeSource, directory: Path, *, past: PastValues | None = None, **settings: Any
    ) -> None:
        """Nothing is read yet.

        Args:
            source: its connector is started by the test.
            directory: for the warehouse.
            past: see ``CdcBatches``.
            settings: more of the job's.
        """
        properties = KafkaProperties.parse({"bootstrap.servers": source.brokers})
        self.source, self._past = source, past
        self.catalog = Catalog(str(directory / "warehouse"))
        pattern = rf"{source.name}\..*(?<!\.message)(?<!\.fence)"
        self.settings = CdcSettings(
            name="shop", database="shop", pattern=pattern, properties=properties, options={"bucket": "1"}, **settings
        )
        self._topics = PatternTopics(properties, pattern, clock=_always_later())
        self._position: dict[str, Any] = {}
        self._batch_id = -1
        self._runs = 0
        self._batches = self._started()

    def catch_up(self) -> BatchReport:
        """One batch with everything that the source has published up to now."""
        self.source.records()
        return self.step()

    def step(self, dies_after: int | None = None) -> BatchReport:
        """One batch with what the topics have at this moment.

        Args:
            dies_after: so many steps of its tables; then another driver repeats the batch. None: it lives.
        """
        positions = self._topics.positions()
        earliest, latest = self._topics.earliest(positions), self._topics.latest(positions)
        planned = next_position(self._position, earliest, latest, self.state.request_names(), limit=None)
        self._batch_id += 1
        ranges = planned_ranges(self._position, planned)
        if dies_after is not None:
            with suppress(Killed):
                self._started(_death(dies_after)).write(ranges, self._batch_id)
            self._batches = self._started()
        report = self._batches.write(ranges, self._batch_id)
        self._position = planned
        return report

    def resnapshot(
        self, table: str, topic: str, *, drops: bool, are_writers_stopped: bool = False, meanwhile: Sequence[str] = ()
    ) -> None:
        """As ``fluvial cdc resnapshot``, with the topic of signals; runs statements, and waits for the rows.

        After half of the time it does what ``fluvial cdc status`` says: starts the connector again, and asks again.
        """
        deadline = time.monotonic() + 2 * _WAIT_S
        for wait_s in (_WAIT_S, 0):
            latest = self._topics.latest(self._topics.positions())
            request_snapshots(
                self.state, self.settings, [table], latest, topic=topic, at_ms=time.time_ns() // 1_000_000, drops=drops,
                are_writers_stopped=are_writers_stopped,
            )  # fmt: skip
            self.source.execute(*meanwhile)
            self.step()
            name = table if table in self.state.tables() else table.rpartition(".")[2]
            while self.state.table(name).parked is not None and time.monotonic() < deadline - wait_s:
                self.catch_up()
                self._batches = self._started()
            if self.state.table(name).parked is None:
                return
            self.source.connect.restart(self.source.name)
        raise AssertionError((self.state.table(table).parked, self.source.connect.log[-3000:]))

    def _started(self, observe: Observer = ignore) -> CdcBatches:
        """A driver, with nothing in memory."""
        self._runs += 1
        self.state = StateFiles(self.catalog.file_io, self.catalog.warehouse, "shop")
        return CdcBatches(
            self.catalog, self.settings, self.state, commit_user="query-1", run_id=f"run-{self._runs}", threads=1,
            observe=observe, past=self._past,
        )  # fmt: skip

    def verified(self) -> dict[str, Verified]:
        """Each source table against its table, by the source's name without the schema."""
        followed, known = followed_by(self.settings, self.state), known_sources(self.state)
        found = verified(self.source.url, self.catalog, followed, known=known)
        return {each.source.name: each for each in found if each.source.name != "fence"}

    def differences(self) -> dict[str, list[object]]:
        """What is not equal; empty when all is."""
        return {
            name: list(each.comparison.differences) if each.comparison is not None else [each.problem]
            for name, each in self.verified().items()
            if not each.is_equal
        }


class Killed(BaseException):
    """The end of a driver."""


def _death(after: int) -> Observer:
    left = iter(range(after))

    def observe(*_: object) -> None:
        if next(left, None) is None:
            raise Killed

    return observe


def _always_later() -> Any:
    times = iter(range(0, 10**9, 1000))
    return lambda: float(next(times))
