"""Checks the sources of a running job every few seconds: whether brokers answer, and how much is not yet delivered.

While a micro-batch waits for a broker, its query reports nothing for a minute. So the watch has a thread and a
connection of its own for each cluster and each table. It runs only where its results are shown.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from engine.kafka.offsets import Offsets, TopicPosition
from engine.kafka.options import KafkaSourceOptions
from engine.kafka.source_topics import SourceTopics
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.record_times import FirstRecord, first_records
from lsm.errors import FluvialError, MissingTopicError

# ---- How far a query is behind the topics that it reads: records that it has not delivered, and the age of the
# oldest


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLag:
    """What is committed in the topics and not delivered yet."""

    records: int  # offsets: those of markers and aborted transactions count
    seconds: float  # since the oldest of them was written; 0 when there is none
    size_bytes: int  # estimated: each record of a partition is as large as the first that waits there

    def to_json(self) -> dict[str, float]:
        """Under the names of gauges."""
        return {"lag_records": self.records, "lag_seconds": round(self.seconds, 1), "lag_bytes": self.size_bytes}


def undelivered(delivered: Offsets, ends: Offsets) -> dict[TopicPosition, int]:
    """Where the records that wait begin, by partition; a partition that is new waits from its beginning."""
    return {position: start for position, end in ends.items() if (start := delivered.get(position, 0)) < end}


def lag_behind(
    delivered: Offsets, ends: Offsets, *, first: Mapping[TopicPosition, FirstRecord], now_ms: int
) -> SourceLag:
    """The lag of a query.

    Args:
        delivered: the next offset of each partition that no finished batch has.
        ends: committed end offsets.
        first: the first record that waits in each partition, as far as they are known.
        now_ms: the time to compare with; a record of a clock that is ahead has the age 0.
    """
    waiting = {position: ends[position] - start for position, start in undelivered(delivered, ends).items()}
    known = {position: record for position, record in first.items() if position in waiting}
    times = [record.time_ms for record in known.values() if record.time_ms is not None]
    return SourceLag(
        records=sum(waiting.values()),
        seconds=max(0, now_ms - min(times, default=now_ms)) / 1000,
        size_bytes=sum(waiting[position] * record.size_bytes for position, record in known.items()),
    )


# ---- Checks the sources of a running job every few seconds: whether brokers answer, and how much is not yet
# delivered


_PERIOD_S: Final = 4.0
_TIMEOUT_S: Final = 4.0  # with the period: an outage is seen within 10 s

logger = logging.getLogger("fluvial.job")

Delivered = Callable[[], Offsets | None]
"""The end of the last finished batch of a query; None: it has none yet."""


class ClusterWatch:
    """The brokers of one cluster, and the sources that read there."""

    def __init__(
        self,
        properties: KafkaProperties,
        sources: Mapping[str, tuple[KafkaSourceOptions, Delivered]] | None = None,
        *,
        dead_letters: Iterable[str] = (),
    ) -> None:
        """Nothing is asked yet.

        Args:
            properties: of its clients.
            sources: by pipeline.
            dead_letters: topics of dead letters there, beside those of the sources.
        """
        self.servers = properties.by_name["bootstrap.servers"]
        self.name = f"bootstrap.servers={self.servers}"
        self.lags: Mapping[str, SourceLag] = {}  # by pipeline, as of the last look that was answered
        self._properties = properties
        self._delivered = {name: delivered for name, (_, delivered) in (sources or {}).items()}
        self._options = {name: options for name, (options, _) in (sources or {}).items()}
        self._letter_topics = {*dead_letters} | {
            each.dead_letter_topic for each in self._options.values() if each.dead_letter_topic is not None
        }
        self.dead_letters: Mapping[str, int] = {}  # end of each such topic, summed over its partitions, as of then
        self._topics: dict[str, SourceTopics] = {}
        self._cluster: LogTopics | None = None
        self._lost_s: float | None = None  # when brokers did not answer first, on ``time.monotonic``

    @property
    def unreachable_s(self) -> float | None:
        """Seconds since the brokers stopped to answer; None: they answer."""
        lost_s = self._lost_s
        return None if lost_s is None else time.monotonic() - lost_s

    def look(self) -> None:
        """Ask once; takes seconds when nothing answers."""
        asked_s = time.monotonic()
        try:
            if self._cluster is None:
                self._cluster = LogTopics(self._properties, timeout_s=_TIMEOUT_S)
            self._cluster.check_reachable()
            self.lags = {name: lag for name in self._options if (lag := self._lag(name)) is not None}
            self.dead_letters = _ends(self._cluster, sorted(self._letter_topics))
        except FluvialError as error:
            if self._lost_s is None:
                self._lost_s = asked_s
                logger.warning("brokers do not answer: bootstrap.servers=%s reason=%s", self.servers, error)
            return
        if self._lost_s is not None:
            logger.warning(
                "brokers answer again: bootstrap.servers=%s after_s=%.0f", self.servers, time.monotonic() - self._lost_s
            )
            self._lost_s = None

    def _lag(self, name: str) -> SourceLag | None:
        """The lag of a pipeline; None: it has delivered nothing yet, or its topic is not there."""
        delivered = self._delivered[name]()
        if delivered is None:
            return None
        topics = self._topics.setdefault(name, SourceTopics(self._options[name], timeout_s=_TIMEOUT_S))
        try:
            ends = topics.latest()
        except MissingTopicError:
            return None
        first = first_records(self._properties, undelivered(delivered, ends), timeout_s=_TIMEOUT_S)
        return lag_behind(delivered, ends, first=first, now_ms=time.time_ns() // 1_000_000)


def _ends(cluster: LogTopics, names: Iterable[str]) -> dict[str, int]:
    """Ends of topics, summed over their partitions, without those that do not exist. Raises: FluvialError."""
    found = {name: cluster.find_topic(name) for name in names}
    return {
        name: sum(cluster.end_offsets(name, range(topic.bucket_count)).values())
        for name, topic in found.items()
        if topic is not None
    }


class ShownLag(Protocol):
    """The lag of a pipeline."""

    def to_json(self) -> dict[str, Any]:
        """Under the names of gauges: ``lag_records``, ``lag_seconds``, ``lag_bytes``, ``lag_snapshots``."""


class Watched(Protocol):
    """A watched source: a cluster, or a table."""

    @property
    def name(self) -> str:
        """Name of the source in messages."""

    @property
    def lags(self) -> Mapping[str, ShownLag]:
        """Lag by pipeline, as of the last answered request."""

    @property
    def unreachable_s(self) -> float | None:
        """Seconds since it answered last; None: it answers."""

    def look(self) -> None:
        """Ask once."""


class JobWatch:
    """The clusters of a job, and the tables that it reads."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched

    def reachable(self) -> dict[str, float | None]:
        """For each address, None where brokers answer, else the seconds since their last answer."""
        return {each.servers: each.unreachable_s for each in self._watched if isinstance(each, ClusterWatch)}

    def lags(self) -> dict[str, dict[str, float]]:
        """The lag of each pipeline that reads topics or a table and has delivered something."""
        return {name: lag for each in self._watched for name, lag in lags_now(each).items()}


def lags_now(watched: Watched) -> dict[str, dict[str, float]]:
    """Gauges by pipeline, as of the last answer; the age of the oldest waiting record also grows without an answer."""
    lost_s = watched.unreachable_s or 0.0
    found = {name: lag.to_json() for name, lag in watched.lags.items()}
    return {name: lag | {"lag_seconds": round(lag["lag_seconds"] + lost_s, 1)} for name, lag in found.items()}


NO_WATCH: Final = JobWatch(())
"""Of a job that shows its health nowhere."""


@contextmanager
def watching(watched: Sequence[Watched], on_look: Callable[[Watched], None] = lambda _: None) -> Iterator[JobWatch]:
    """Look at clusters and tables while the block runs.

    Args:
        watched: each in a thread of its own.
        on_look: called there after each look.
    """
    ended = threading.Event()

    def run(each: Watched) -> None:
        while not ended.wait(_PERIOD_S):
            try:
                each.look()
                on_look(each)
            except Exception:  # a look that fails takes nothing from the job
                logger.warning("could not be looked at: %s", each.name, exc_info=True)

    threads = [threading.Thread(target=run, args=(each,), name="fluvial-watch", daemon=True) for each in watched]
    for each in threads:
        each.start()
    try:
        yield JobWatch(watched)
    finally:
        ended.set()
        for each in threads:
            each.join(_TIMEOUT_S)
