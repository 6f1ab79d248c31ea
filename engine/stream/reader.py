"""The interface to Spark: ends of batches, the partitions between them, and their rows.

Spark stores the end of every batch in its checkpoint and asks for the partitions between two ends, again after a
restart. ``plan`` decides where a batch ends, from the table's state in ``watch``.

A new consumer starts threads and connects to brokers, so a task leaves its consumers to the next task of its Python
worker, whose bucket may be another one. An idle consumer has no assignment and fetches nothing; consumers that no task
has used for a while are closed.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from engine.checkpoint.admission import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from engine.lineage.origins import SourceRead, start_of_run
from engine.lineage.stream_job import report_read
from engine.stream.options import StreamOptions
from engine.stream.partitions import partitions_of
from engine.stream.position.position import UNSTARTED, Position
from engine.stream.rows import LogPiece, StreamPiece, StreamRows
from engine.stream.watch import TableWatch
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.environment import KafkaEnvironment
from logstore.log.kept_consumers import IdleConsumers
from lsm.errors import CorruptDataError, InvalidInputError

_MOST_LOGINS: Final = 4  # clusters and logins; a worker mostly reads for one query
_RANGES_AT_ONCE: Final = 2
_IDLE_S: Final = 60.0


_Login = tuple[KafkaProperties, KafkaEnvironment]


class _Held:
    """The consumers of one process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.by_login: list[tuple[_Login, IdleConsumers]] = []  # used last at the end
        self.used_s = 0.0
        self.is_watched = False


class TaskConsumers:
    """Idle consumers by cluster and login. Thread-safe; in a forked process it is empty."""

    def __init__(self, idle_s: float = _IDLE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        """Without a consumer.

        Args:
            idle_s: seconds after which unused consumers are closed; it may take up to twice as long.
            now_s: a monotonic clock.
        """
        self._idle_s, self._now_s = idle_s, now_s
        self._held = _Held()

    def of(self, properties: KafkaProperties) -> IdleConsumers:
        """The consumers for a cluster under a login, to be given to ``read_range``."""
        if self._held.process != os.getpid():
            for _, each in self._held.by_login:
                each.abandon()
            self._held = _Held()
        held, login = self._held, (properties, properties.environment)
        with held.lock:
            found = next((each for known, each in held.by_login if known == login), None)
            consumers = found or IdleConsumers(_RANGES_AT_ONCE)
            others = [pair for pair in held.by_login if pair[0] != login]
            held.by_login = [*others, (login, consumers)][-_MOST_LOGINS:]
            held.used_s = self._now_s()
            if not held.is_watched:
                held.is_watched = True
                threading.Thread(target=self._close_unused, args=(held,), name="fluvial-idle", daemon=True).start()
        for _, dropped in others[: max(0, len(others) + 1 - _MOST_LOGINS)]:
            dropped.close()
        return consumers

    def close(self) -> None:
        """Close all consumers; ``of`` may create new ones afterwards."""
        with self._held.lock:
            closing, self._held.by_login = self._held.by_login, []
        for _, each in closing:
            each.close()

    def _close_unused(self, held: _Held) -> None:
        is_unused = False
        while not is_unused:
            time.sleep(self._idle_s)
            with held.lock:
                is_unused = self._now_s() - held.used_s >= self._idle_s
                if is_unused:
                    closing, held.by_login, held.is_watched = held.by_login, [], False
        for _, each in closing:
            each.close()  # one that a range is using is closed when it comes back


_HERE: Final = TaskConsumers()


def consumers_of(properties: KafkaProperties) -> IdleConsumers:
    """The idle consumers of this process for a cluster under a login."""
    return _HERE.of(properties)


class _Part(InputPartition):
    def __init__(
        self, pieces: Sequence[StreamPiece], lineage_read: SourceRead | None, lineage_start: SourceRead | None
    ) -> None:
        super().__init__(None)
        self.pieces = pieces
        self.lineage_read = lineage_read  # one part of a batch reports what the batch read
        self.lineage_start = lineage_start  # and of a run's first batch with rows, where the run began


class HybridStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table. All methods but ``read`` run in one process that lives as long as the query."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._rows = StreamRows.of(options)
        self._watching: TableWatch | None = None
        self._begin: Position | None = None  # of this run
        self._first: dict[str, Any] | None = None  # start of its first batch with rows

    def __getstate__(self) -> Mapping[str, Any]:
        """Tasks get a copy without connections and caches."""
        return self.__dict__ | {"_watching": None}

    def initialOffset(self) -> dict[str, Any]:
        """The start offset, equal for every new query: the actual start is stored in the end of its first batch."""
        return dict(UNSTARTED)

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit by rows, possibly unlimited; ``latestOffset`` applies the other limits itself."""
        return ReadMaxRows(self._options.limits.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; equal to ``start`` when there is nothing to deliver.

        Raises:
            CorruptDataError: data after ``start`` is lost, and the options do not say how to continue.
            InvalidInputError: the table's schema changed in a way that the stream cannot follow.
        """
        if isinstance(limit, ReadAllAvailable):
            raise InvalidInputError(
                "a trigger that takes everything in one batch is not supported: fix=use trigger(availableNow=True)"
            )
        if start == UNSTARTED:
            begin = self._watch.with_commit(self._watch.begin())
            self._starts(begin)
            return replace(self._watch.next(begin), begin=begin).to_json()
        here = self._watch.pinned(Position.from_json(start).place)
        self._starts(here)
        end = self._watch.next(here)
        if end == here:
            self._watch.keep_alive(here)
            return start
        return end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks' input between two offsets; the same after a restart.

        Raises: CorruptDataError: data was removed since planning, and the options do not say how to continue.
        """
        last = Position.from_json(end)
        first = last.begin if start == UNSTARTED else Position.from_json(start)
        if first is None:
            raise CorruptDataError(f"the end of the first batch has no start of the stream: end={end}")
        view = self._watch.check_history(last)
        history = view.history
        base_of = history.base_of if self._options.normalizes else None
        planned = self._watch.steps_between(first.place, last)
        parts = partitions_of(planned, history, view.table_log, base_of, self._watch.newest_schema)
        self._starts(first)
        began = self._began(start, last.read, has_rows=bool(parts))
        return [
            _Part(pieces, None, None) if index else _Part(pieces, last.read, began)
            for index, pieces in enumerate(parts)
        ]

    def _starts(self, here: Position) -> None:
        """Record where this run begins, if it does: where tasks alone know the job's name, those do."""
        if self._begin is None:
            self._begin = here
            self._watch.record_start(here)

    def _began(self, start: dict[str, Any], read: SourceRead | None, *, has_rows: bool) -> SourceRead | None:
        """Start of this run, for its first batch with rows, also when Spark asks for it again; None: a later batch."""
        if self._first is None and has_rows:
            self._first = start
        begin = None if self._begin is None else self._begin.read
        return start_of_run(begin, read) if self._first == start else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part; Spark creates the part of an empty batch itself."""
        if isinstance(partition, _Part):
            logs = (piece.log for piece in partition.pieces if isinstance(piece, LogPiece))
            log = next(logs, None)  # all pieces are of one table
            yield from self._rows.read(partition.pieces, None if log is None else consumers_of(log.properties))
            if partition.lineage_read is not None:
                store, job = self._options.table.store, self._options.job
                report_read(store, partition.lineage_read, job, partition.lineage_start)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything before this offset is processed: earlier snapshots may expire."""
        if end != UNSTARTED:
            self._watch.record_progress(Position.from_json(end))

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the current end of the table, where the query will end."""
        self._watch.stop_at_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the table and the stream's lag, for the progress report."""
        watching = self._watching
        return None if watching is None or watching.lag is None else watching.lag.to_json()

    @property
    def _watch(self) -> TableWatch:
        if self._watching is None:
            self._watching = TableWatch(self._options)
        return self._watching
