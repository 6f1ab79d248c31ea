"""A transactional producer of a cluster in memory."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from logstore.kafka.memory.cluster import GivenRecord, MemoryTransaction, RefusedError
from logstore.kafka.memory.requests import NoAnswerError, Requests, timed_out

_FENCED: Final = "This instance has been fenced by a newer instance"
_LOST: Final = "<method 'flush' of 'cimpl.Producer' objects> returned a result with an exception set"
_FENCED_CODES: Final = (KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


@dataclass(slots=True)
class _Queued:
    place: tuple[str, int]
    sequence: int
    record: GivenRecord
    report: Callable[[KafkaError | None, Message | None], None] | None


class MemoryProducer:
    """A producer with a transactional id, as ``confluent_kafka.Producer``: its states, its errors and its reports.

    Records leave it with ``poll``, ``flush`` and ``commit_transaction``, all that wait for one partition at once.
    """

    def __init__(self, properties: Mapping[str, Any], requests: Requests) -> None:
        assert "transactional.id" in properties, "only transactional producers"
        self._id = str(properties["transactional.id"])
        self._requests = requests
        self._state = "Init"
        self._epoch = -1
        self._fatal: KafkaError | None = None
        self._is_fatal_reported = True
        self._queue: deque[_Queued] = deque()
        self._reports: deque[tuple[_Queued, KafkaError | None, int]] = deque()
        self._unanswered = 0  # first records of the queue: they are sent again as they were
        self._failed = 0
        self._has_begun = False  # brokers know the transaction
        self._pending: str | None = None  # the call that timed out: it has to be called again before any other
        self._next_sequence: dict[tuple[str, int], int] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Records without a report."""
        return len(self._queue) + len(self._reports)

    # ---- transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """Fence older producers of the id. Raises: KafkaException."""
        self._enter("init_transactions", "Init")

        def init() -> int:
            return self._requests.cluster.init_producer(self._id)

        try:
            self._epoch = self._requests.request("init_transactions", self._id, init, changes=True)
        except NoAnswerError:
            raise self._timed_out("init_transactions", timeout) from None
        self._pending = None
        self._state = "Ready"

    def begin_transaction(self) -> None:
        """Begin; brokers learn of it with the first record. Raises: KafkaException."""
        self._enter("begin_transaction", "Ready")
        self._state = "InTransaction"
        self._failed = 0
        self._has_begun = False

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send what waits, and commit. Raises: KafkaException."""
        self._enter("commit_transaction", "InTransaction", "Aborting")
        self._send()
        self._serve_quietly()
        self._check_fatal()
        if self._queue:
            raise self._timed_out("commit_transaction", timeout)
        if self._failed:
            self._state, self._pending = "Aborting", None
            raise KafkaException(
                KafkaError(
                    KafkaError._INCONSISTENT,
                    f"{self._failed} message(s) failed delivery (see individual delivery reports)",
                    txn_requires_abort=True,
                )
            )
        self._end(commits=True, timeout=timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Drop what waits, and abort. Raises: KafkaException."""
        self._enter("abort_transaction", "InTransaction", "Aborting")
        self.purge()
        self._serve_quietly()
        self._end(commits=False, timeout=timeout)

    def _end(self, *, commits: bool, timeout: float) -> None:
        if self._has_begun:
            cluster = self._requests.cluster
            meant = cluster.open_transaction(self._id)

            def end(only: MemoryTransaction | None = None) -> None:
                cluster.end(self._id, self._epoch, commits=commits, only=only)

            name = "commit_transaction" if commits else "abort_transaction"
            try:
                self._requests.request(name, self._id, end, changes=True, late=lambda: end(meant))
            except NoAnswerError:
                raise self._timed_out(name, timeout) from None
            except RefusedError:
                raise KafkaException(self._fail(f"Failed to end transaction: Local: {_FENCED}")) from None
        self._state, self._pending = "Ready", None

    # ---- records

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        on_delivery: Callable[..., None] | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> None:
        """Let a record wait to be sent. Raises: KafkaException."""
        self._check_open()
        if self._fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message: Local: Fatal error"))
        if self._state != "InTransaction" or self._pending is not None:
            raise KafkaException(KafkaError(KafkaError._STATE, "Unable to produce message: Local: Erroneous state"))
        place = (topic, partition)
        sequence = self._next_sequence.get(place, 0)
        self._next_sequence[place] = sequence + 1
        record = GivenRecord(key=key, value=value, headers=tuple(headers or ()), timestamp_ms=self._requests.now_ms())
        self._queue.append(_Queued(place, sequence, record, on_delivery))

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int = -1) -> int:
        """Let records wait; the number of those that do, the others have ``_error``."""
        queued = 0
        for message in messages:
            try:
                self.produce(topic, message.get("value"), message.get("key"), partition)
            except KafkaException as error:
                message["_error"] = error.args[0]
            else:
                queued += 1
        return queued

    def poll(self, timeout: float = -1) -> int:
        """Send what waits, and report. Raises: KafkaException, SystemError."""
        self._check_open()
        self._send()
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Send what waits, and report; the number of records without a report. Raises: KafkaException, SystemError."""
        self._check_open()
        self._send()
        if self._queue:
            self._requests.sleep(timeout)
        self._serve()
        return len(self)

    def purge(self) -> None:
        """Drop what waits to be sent."""
        self._check_open()
        self._unanswered = 0
        while self._queue:
            self._reports.append((self._queue.popleft(), KafkaError(KafkaError._PURGE_QUEUE), -1))

    def close(self) -> bool:
        """End the client; its open transaction stays open until the id is used again."""
        self._is_closed = True
        return True

    def _send(self) -> None:
        while self._queue and self._fatal is None:
            place = self._queue[0].place
            others = (at for at, each in enumerate(self._queue) if each.place != place)
            count = self._unanswered or next(others, len(self._queue))
            batch = [self._queue[index] for index in range(count)]
            try:
                first = self._send_batch(place, batch)
            except NoAnswerError:
                self._unanswered = count
                return
            except RefusedError as refused:
                fenced = refused.code in _FENCED_CODES
                if fenced:
                    how = "ProduceRequest failed" if self._has_begun else "Failed to add partitions to transaction"
                    self._fail(f"{how}: Local: {_FENCED}")
                else:
                    self._failed += count
                code = KafkaError._PURGE_QUEUE if fenced and not self._has_begun else refused.code
                error = KafkaError(code)
                self._reports.extend((each, error, -1) for each in batch)
            else:
                self._has_begun = True
                self._reports.extend((each, None, first + index) for index, each in enumerate(batch))
            self._unanswered = 0
            for _ in range(count):
                self._queue.popleft()

    def _send_batch(self, place: tuple[str, int], batch: list[_Queued]) -> int:
        records = [each.record for each in batch]
        topic, cluster = self._requests.cluster.topics.get(place[0]), self._requests.cluster
        if topic is not None and place[1] >= len(topic.partitions):
            raise RefusedError(KafkaError._UNKNOWN_PARTITION)

        def add(*, begins: bool = True) -> int:
            return cluster.add(self._id, self._epoch, place, batch[0].sequence, records, begins=begins)

        target = f"{place[0]}/{place[1]}"
        return self._requests.request("produce", target, add, changes=True, late=lambda: add(begins=False))

    def _serve(self) -> int:
        """Call back; a fatal error is raised once, and among reports as another error."""
        served = len(self._reports)
        self._report()
        if self._fatal is not None and not self._is_fatal_reported:
            self._is_fatal_reported = True
            failure = KafkaException(self._fatal)
            if not served:
                raise failure
            raise SystemError(_LOST) from failure
        return served

    def _report(self) -> None:
        while self._reports:
            queued, error, offset = self._reports.popleft()
            if queued.report is not None:
                topic, partition = queued.place
                given = queued.record
                queued.report(
                    error,
                    Message(
                        topic=topic, partition=partition, offset=offset, key=given.key, value=given.value, error=error
                    ),
                )

    def _serve_quietly(self) -> None:
        if self._fatal is None:
            self._serve()

    def _fail(self, text: str) -> KafkaError:
        self._fatal = KafkaError(KafkaError._FENCED, text, fatal=True)
        self._is_fatal_reported = False
        return self._fatal

    def _timed_out(self, call: str, timeout: float) -> KafkaException:
        self._pending = call
        self._requests.sleep(timeout)
        return timed_out("Timed out waiting for operation to finish, retry call to resume", is_retriable=True)

    def _enter(self, call: str, *states: str) -> None:
        self._check_open()
        self._check_fatal()
        if self._pending not in (None, call):
            text = f"Conflicting {self._pending} API call is already in progress"
            raise KafkaException(KafkaError(KafkaError._CONFLICT, text, retriable=True))
        if self._state not in states:
            raise KafkaException(KafkaError(KafkaError._STATE, f"Operation not valid in state {self._state}"))

    def _check_fatal(self) -> None:
        if self._fatal is not None:
            raise KafkaException(self._fatal)

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("Producer has been closed")
