"""The brokers of a cluster in memory: topics, partitions and transactions, by request.

Every method is one request, done at once and whole. What real brokers do later than they answer is done by ``tick``,
which every request calls first: a commit's control records, and requests that were on their way when their client
stopped waiting. Nothing is random: the same requests in the same order give the same answers.

A transaction is fenced by the epoch of its transactional id, control records take an offset, and readers of committed
records see those below the first open transaction of a partition.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from confluent_kafka import KafkaError

COMMITTED, ABORTED = "committed", "aborted"
_LAGS: Final = (0, 2, 0, 5, 1)
"""Requests after which the control records of the n-th end of a transaction are written."""
_LATE: Final = 3
"""Requests after which one arrives that its client no longer waits for."""
_ALIVE: Final = "open"

Change = Callable[[], object]


class RefusedError(Exception):
    """A request that brokers refuse, with the code of ``KafkaError``."""

    def __init__(self, code: int, text: str | None = None) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRecord:
    """A record before it has an offset."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = 0


@dataclass(eq=False, slots=True)
class MemoryTransaction:
    """One transaction of a producer."""

    ends: "dict[MemoryPartition, str]" = field(default_factory=dict)  # open, committed or aborted
    decided: str | None = None  # None: open

    def of(self, known: "MemoryPartition", copied: "MemoryPartition") -> "MemoryTransaction":
        """What a copy of one of its partitions has of it, when it has ended."""
        return MemoryTransaction({copied: self.ends[known]}, self.decided)

    @property
    def is_settled(self) -> bool:
        """Whether all partitions have their control record."""
        return self.decided is not None and _ALIVE not in self.ends.values()


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record with its offset."""

    offset: int
    given: GivenRecord
    transaction: MemoryTransaction | None
    is_control: bool = False


@dataclass(eq=False, slots=True)
class MemoryPartition:
    """The records of one partition; those before ``start`` are deleted, and kept for who checks a history."""

    records: list[StoredRecord] = field(default_factory=list)  # by offset, without gaps
    start: int = 0

    @property
    def end(self) -> int:
        """The next offset."""
        return len(self.records)

    def copy(self) -> "MemoryPartition":
        """Another one with the same records, all of which are settled."""
        known = MemoryPartition(start=self.start)
        known.records = [
            replace(each, transaction=each.transaction and each.transaction.of(self, known)) for each in self.records
        ]
        return known

    @property
    def stable_end(self) -> int:
        """The offset of the first record of an open transaction; the end without one."""
        open_ones = (
            each.offset
            for each in self.records
            if each.transaction is not None and each.transaction.ends[self] == _ALIVE
        )
        return next(open_ones, self.end)

    def all_from(self, start: int) -> list[StoredRecord]:
        """Records from an offset on, also those of open and aborted transactions."""
        return [each for each in self.records[start:] if not each.is_control]

    def committed(self, start: int) -> list[StoredRecord]:
        """Committed records from an offset to the stable end."""
        return [
            each
            for each in self.records[start : self.stable_end]
            if not each.is_control and (each.transaction is None or each.transaction.ends[self] == COMMITTED)
        ]


@dataclass(eq=False, slots=True)
class MemoryTopic:
    """A topic."""

    name: str
    topic_id: str
    partitions: list[MemoryPartition]
    config: dict[str, str]


@dataclass(eq=False, slots=True)
class _TransactionalId:
    epoch: int = -1
    open: MemoryTransaction | None = None
    last: MemoryTransaction | None = None  # the one that ended last in this epoch
    sent: dict[tuple[str, int, int], int] = field(default_factory=dict)  # offset by topic, partition and sequence


@dataclass(eq=False)
class MemoryCluster:
    """Topics and transactional ids."""

    topics: dict[str, MemoryTopic] = field(default_factory=dict)
    made_topics: int = 0
    ended: int = 0
    _ids: dict[str, _TransactionalId] = field(default_factory=dict)
    _later: list[list[object]] = field(default_factory=list)  # requests left, what is done then

    def copy(self) -> "MemoryCluster":
        """A cluster with the same records. Raises: ValueError when something is still to be done."""
        if self._later or any(each.open is not None for each in self._ids.values()):
            raise ValueError("a cluster with open transactions cannot be copied")
        topics = {
            name: MemoryTopic(name, topic.topic_id, [each.copy() for each in topic.partitions], {**topic.config})
            for name, topic in self.topics.items()
        }
        ids = {name: _TransactionalId(each.epoch) for name, each in self._ids.items()}
        return MemoryCluster(topics, self.made_topics, self.ended, ids)

    # ---- time

    def tick(self) -> None:
        """A request arrives: what was to be done by now is done."""
        if not self._later:
            return
        due = [each for each in self._later if each[0] == 0]
        self._later = [[int(each[0]) - 1, each[1]] for each in self._later if each[0] != 0]  # type: ignore[call-overload]
        for _, change in due:
            change()  # type: ignore[operator]

    def arrive_late(self, change: Change) -> None:
        """A request without a client that waits for it: it is carried out some requests later, or refused then."""

        def attempt() -> None:
            with contextlib.suppress(RefusedError):
                change()

        self._later.append([_LATE, attempt])

    def settle(self) -> None:
        """Do everything that is to be done, as time does."""
        while self._later:
            self.tick()

    # ---- transactions

    def init_producer(self, transactional_id: str) -> int:
        """The next epoch of an id; its open transaction is aborted, and one that was ended is completed first."""
        known = self._ids.setdefault(transactional_id, _TransactionalId())
        self._complete(known)
        known.epoch += 1
        if known.open is not None:
            known.open.decided = ABORTED
            self._write_markers(known.open)
        known.open = known.last = None
        known.sent.clear()
        return known.epoch

    def add(
        self,
        transactional_id: str,
        epoch: int,
        place: tuple[str, int],
        sequence: int,
        records: Sequence[GivenRecord],
        *,
        begins: bool,
    ) -> int:
        """Append records to a partition in the producer's transaction; the offset of the first.

        Args:
            transactional_id: of the producer.
            epoch: of the producer.
            place: topic and partition.
            sequence: of the first record among those of this producer and partition; the same one again is not
                appended twice.
            records: to append.
            begins: whether the transaction may begin with them, which a request that arrives late cannot.

        Raises:
            RefusedError: fenced, or there is no such partition.
        """
        known = self._owner(transactional_id, epoch)
        partition = self.partition(*place)
        sent = known.sent.get((*place, sequence))
        if sent is not None:
            return sent
        if known.open is None:
            if not begins:
                raise RefusedError(KafkaError.INVALID_TXN_STATE)
            self._complete(known)
            known.open, known.last = MemoryTransaction(), None
        known.open.ends[partition] = _ALIVE
        first = partition.end
        partition.records += [StoredRecord(first + index, record, known.open) for index, record in enumerate(records)]
        known.sent[(*place, sequence)] = first
        return first

    def open_transaction(self, transactional_id: str) -> MemoryTransaction | None:
        """The open transaction of an id."""
        known = self._ids.get(transactional_id)
        return None if known is None else known.open

    def end(self, transactional_id: str, epoch: int, *, commits: bool, only: MemoryTransaction | None = None) -> None:
        """Commit or abort the producer's transaction; again is the same answer.

        Args:
            transactional_id: of the producer.
            epoch: of the producer.
            commits: False aborts.
            only: the one that is meant, by a request that arrives late; None: the open one.

        Raises:
            RefusedError: fenced, or there is no such transaction.
        """
        known = self._owner(transactional_id, epoch)
        wanted = COMMITTED if commits else ABORTED
        if only is not None and known.open is not only:
            raise RefusedError(KafkaError.INVALID_TXN_STATE)
        if known.open is None:
            if known.last is not None and known.last.decided == wanted:
                return
            raise RefusedError(KafkaError.INVALID_TXN_STATE)
        known.last, known.open = known.open, None
        known.last.decided = wanted
        ended = known.last
        self.ended += 1
        self._later.append([_LAGS[self.ended % len(_LAGS)], lambda: self._write_markers(ended)])

    def _owner(self, transactional_id: str, epoch: int) -> _TransactionalId:
        known = self._ids.get(transactional_id)
        if known is None or known.epoch != epoch:
            raise RefusedError(KafkaError.INVALID_PRODUCER_EPOCH)
        return known

    def _complete(self, known: _TransactionalId) -> None:
        if known.last is not None and not known.last.is_settled:
            self._write_markers(known.last)

    def _write_markers(self, transaction: MemoryTransaction) -> None:
        assert transaction.decided is not None
        for partition, state in transaction.ends.items():
            if state == _ALIVE:
                transaction.ends[partition] = transaction.decided
                partition.records.append(StoredRecord(partition.end, GivenRecord(), None, is_control=True))

    # ---- topics

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic with a new id. Raises: RefusedError: the name is taken."""
        if name in self.topics:
            raise RefusedError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        self.made_topics += 1
        places = [MemoryPartition() for _ in range(partitions)]
        self.topics[name] = MemoryTopic(name, f"memory-topic-{self.made_topics:09d}", places, {**(config or {})})

    def delete_topic(self, name: str) -> None:
        """Remove a topic. Raises: RefusedError: there is none."""
        self.topic(name)
        del self.topics[name]

    def topic(self, name: str) -> MemoryTopic:
        """A topic. Raises: RefusedError: there is none."""
        found = self.topics.get(name)
        if found is None:
            raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return found

    def partition(self, name: str, number: int) -> MemoryPartition:
        """A partition. Raises: RefusedError: there is none."""
        topic = self.topic(name)
        if not 0 <= number < len(topic.partitions):
            raise RefusedError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return topic.partitions[number]

    def delete_records(self, name: str, number: int, before: int) -> int:
        """Delete records before an offset, as retention does; the earliest offset then.

        Raises:
            RefusedError: there is no such partition or offset.
        """
        partition = self.partition(name, number)
        if before > partition.end:
            raise RefusedError(KafkaError.OFFSET_OUT_OF_RANGE)
        partition.start = max(partition.start, before)
        return partition.start
