"""Writers of logs that stay open between the batches of one process: the driver of a query, a worker of Spark.

A writer that has committed a batch knows the end of its bucket: no other one can have written there without fencing
it, and a fenced writer cannot write. So the next batch needs neither another producer nor a look at the log's end.

Why it is as strict as a new one. A new writer fences, reads the end, and every later fence shuts it out; a kept one
has done the same, only earlier, and Kafka takes its rows only if no other fence came between: the epoch of a producer
is compared with its first record. So it proves by that record (`BucketLogWriter.is_accepted`) what a fence would have
made true. Until it has, ``engine.log.bucket_log`` keeps the rows, and what is refused begins again with a fence and a
look at the end. A zombie (a paused task, a speculative copy, a task of an executor or a driver taken for dead) that
wakes up with a kept writer is therefore refused by Kafka, if another attempt has fenced since, and then is what it
would have been without one: an attempt that fences late, finds the marker of the batch or of a later one, and adopts
it or stops. Is it not refused, no other attempt has begun to write, and the next one will fence it. Of two ends that
differ, the snapshot's and the writer's, none is believed: the writer is closed.

Open writers have threads and sockets: they are few, and closed when they were not used for a minute.
"""

import atexit
import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Final
from weakref import WeakSet

from logstore.kafka.forks import never_destroyed
from logstore.log.log_writer import BucketLogWriter, LogTarget

_MOST: Final = 16  # each has threads and connections
_LONGEST_S: Final = 60.0  # without a batch

_Place = tuple[str, str]


class KeptWriters:
    """Open writers of buckets. Safe for threads; a copy in another process, and in a forked one, is empty."""

    def __init__(self, *, closes_idle: bool = False) -> None:
        """None is kept yet.

        Args:
            closes_idle: a thread closes those that were not used for a minute, although no other batch comes.
        """
        self._lock = threading.Lock()
        self._writers: dict[_Place, tuple[BucketLogWriter, float]] = {}  # since when
        self._closes_idle = closes_idle
        self._closer: threading.Thread | None = None
        _in_process.add(self)

    def __reduce__(self) -> tuple[type["KeptWriters"], tuple[()]]:
        return KeptWriters, ()

    def take(self, target: LogTarget, end_offset: int) -> BucketLogWriter | None:
        """The writer of a bucket, ready for a batch; None: open and fence a new one.

        Args:
            target: the bucket.
            end_offset: its next offset, as the newest snapshot has it.
        """
        with self._lock:
            found = self._writers.pop(_place(target), None)
        if found is None:
            return None
        writer, _ = found
        is_fresh = not _is_idle(found) and writer.target == target
        if is_fresh and writer.left_offset == end_offset and writer.renew():
            return writer
        writer.close()
        return None

    def put(self, writer: BucketLogWriter) -> None:
        """Keep a writer that has ended its batch, or close it; those that were not used for long are closed."""
        place = _place(writer.target)
        with self._lock:
            closing = self._take_idle()
            if place in self._writers:
                closing.append(self._writers.pop(place)[0])
            if writer.is_renewable and len(self._writers) < _MOST:
                self._writers[place] = writer, _now_s(writer.target)
                self._begin_to_look()
            else:
                closing.append(writer)
        for each in closing:
            each.close()

    def close_idle(self) -> float | None:
        """Close those that were not used for a minute; seconds until the next one was not, None: none is left."""
        with self._lock:
            closing = self._take_idle()
            left_s = [since_s + _LONGEST_S - _now_s(each.target) for each, since_s in self._writers.values()]
            if not left_s:
                self._closer = None
        for each in closing:
            each.close()
        return max(0.0, min(left_s)) if left_s else None

    def close(self) -> None:
        """Close all; others may be kept afterwards."""
        with self._lock:
            found, self._writers = list(self._writers.values()), {}
        for writer, _ in found:
            writer.close()

    def abandon(self) -> None:
        """Forget the writers in a forked process, without touching their sockets: their threads are in the parent."""
        self._lock, self._closer = threading.Lock(), None
        found, self._writers = self._writers, {}
        for writer, _ in found.values():
            never_destroyed(writer)

    def _take_idle(self) -> list[BucketLogWriter]:
        old = [place for place, found in self._writers.items() if _is_idle(found)]
        return [self._writers.pop(place)[0] for place in old]

    def _begin_to_look(self) -> None:
        if self._closes_idle and self._closer is None:
            self._closer = threading.Thread(target=self._look, name="fluvial-idle-writers", daemon=True)
            self._closer.start()

    def _look(self) -> None:
        while (left_s := self.close_idle()) is not None:
            pause(left_s)


@cache
def writers_of_process() -> KeptWriters:
    """The writers that tasks leave to later tasks of their process, of any table, query or batch."""
    kept = KeptWriters(closes_idle=True)
    atexit.register(kept.close)
    return kept


def _abandon_all() -> None:
    for each in list(_in_process):
        each.abandon()


def _place(target: LogTarget) -> _Place:
    """One place for all writers that would fence each other."""
    return target.properties.by_name["bootstrap.servers"], target.transactional_id


def _is_idle(found: tuple[BucketLogWriter, float]) -> bool:
    writer, since_s = found
    return _now_s(writer.target) - since_s > _LONGEST_S


def _now_s(target: LogTarget) -> float:
    return target.properties.environment.monotonic()


pause: Final[Callable[[float], object]] = threading.Event().wait  # nothing sets it
_in_process: Final[WeakSet[KeptWriters]] = WeakSet()
os.register_at_fork(after_in_child=_abandon_all)
