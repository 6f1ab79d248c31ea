"""Consumers that outlive a range of the log: a new one has threads to start and brokers to connect to.

For a reader that follows a few buckets they stay where their ranges ended, and fetch what comes next while the reader
works: when it is wanted, it is mostly here already. For a reader of many topics they are idle between two ranges.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException

from logstore.kafka.clients import ErrorNotes
from logstore.kafka.forks import never_destroyed

_MOST: Final = 16  # each has threads and connections, and holds what it fetched ahead
_LOOK_S: Final = 5.0
_PATIENT: Final[Mapping[str, Any]] = {"fetch.wait.max.ms": 250}
"""A fetch returns with the first byte; an idle reader asks four times a second."""


_QUICK: Final[Mapping[str, Any]] = {"fetch.wait.max.ms": 2}
"""A client has one fetch under way at a broker: the one behind a range's end holds up that of the next range."""


@dataclass(slots=True, kw_only=True)
class KeptConsumer:
    """A consumer between two ranges of one bucket."""

    consumer: Consumer
    notes: ErrorNotes
    end_offset: int | None = None  # of the range that it has read; None: it has read nothing
    ahead: list[Any] = field(default_factory=list)  # messages behind that range which it has returned already
    known_end: int = 0  # the last end of the log that it returned, with all before it; it says each once
    topics: set[str] = field(default_factory=set)  # that it has read


class KeptConsumers:
    """At most 16 consumers, one for each bucket that was read last. Thread-safe; close it."""

    def __init__(self, *, waits_for_end: bool) -> None:
        """None yet.

        Args:
            waits_for_end: ranges end behind their last record, so that the reader has to learn where the log ends.
        """
        self.properties: Mapping[str, Any] = {} if waits_for_end else _PATIENT
        self._lock = threading.Lock()
        self._by_bucket: OrderedDict[tuple[str, int], KeptConsumer] = OrderedDict()
        self._is_closed = False

    def take(self, topic: str, bucket: int, start_offset: int) -> KeptConsumer | None:
        """The consumer whose next offset is this one; the caller owns it from now on. None: there is none."""
        with self._lock:
            found = self._by_bucket.pop((topic, bucket), None)
        if found is not None and found.end_offset != start_offset:
            found.consumer.close()
            return None
        if found is not None:
            found.notes.forget()
        return found

    def put(self, topic: str, bucket: int, kept: KeptConsumer, *, end_offset: int) -> None:
        """Keep a consumer behind the range that it has read."""
        kept.end_offset = end_offset
        dropped = []
        with self._lock:
            if self._is_closed:
                dropped.append(kept)
            else:
                dropped += filter(None, [self._by_bucket.pop((topic, bucket), None)])
                self._by_bucket[topic, bucket] = kept
                if len(self._by_bucket) > _MOST:
                    dropped.append(self._by_bucket.popitem(last=False)[1])
        for each in dropped:
            each.consumer.close()

    def close(self) -> None:
        """Close them all, and those that are still in use when they come back."""
        with self._lock:
            self._is_closed = True
            dropped = list(self._by_bucket.values())
            self._by_bucket.clear()
        for each in dropped:
            each.consumer.close()


class IdleConsumers:
    """Consumers that fetch nothing between two ranges, and read any bucket next. Thread-safe; close it."""

    properties: Final = _QUICK

    def __init__(self, most: int) -> None:
        """None yet; so many stay, which is the number of ranges that are read at a time."""
        self._most = most
        self._lock = threading.Lock()
        self._idle: list[KeptConsumer] = []

    def take(self, topic: str, bucket: int, start_offset: int) -> KeptConsumer | None:
        """An idle consumer, which the caller owns from now on and assigns to the bucket; None: all are in use."""
        with self._lock:
            found = self._idle.pop() if self._idle else None
        if found is None:
            return None
        found.notes.forget()
        if topic not in found.topics:
            try:
                found.consumer.list_topics(topic, timeout=_LOOK_S)  # by itself it looks for new ones once in a second
            except KafkaException:
                found.consumer.close()  # a new one finds out why
                return None
        return found

    def put(self, topic: str, bucket: int, kept: KeptConsumer, *, end_offset: int) -> None:
        """Keep a consumer that has read a range; records that it has fetched beyond the range are dropped."""
        kept.topics.add(topic)
        kept.consumer.unassign()
        kept.end_offset, kept.ahead, kept.known_end = None, [], 0
        with self._lock:
            is_kept = len(self._idle) < self._most
            if is_kept:
                self._idle.append(kept)
        if not is_kept:
            kept.consumer.close()

    def abandon(self) -> None:
        """Forget the clients in a forked process, without touching them: their threads are in the parent process."""
        for each in self._idle:
            never_destroyed(each.consumer)

    def close(self) -> None:
        """Close the idle ones, and those that are still in use when they come back."""
        with self._lock:
            self._most = 0
            dropped, self._idle = self._idle, []
        for each in dropped:
            each.consumer.close()


RangeConsumers = KeptConsumers | IdleConsumers
"""Where a reader of ranges takes its consumer from, and leaves it."""
