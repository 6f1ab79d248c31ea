"""A table's claim to a topic that it did not create: the first record of every partition.

Only a topic in which nothing was ever written can be claimed. The records of a claim are one transaction, which is
committed only if each of them got offset 0: of two tables that claim at once, one gets the topic.
"""

import contextlib
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import Right, topic_right
from logstore.kafka.topics import LogTopic, LogTopics
from logstore.kafka.transactions import call_until_done, close_producer, initialize, transaction_error
from logstore.log.control_record import HEADER, encode_genesis
from lsm.errors import FluvialError, InvalidInputError, OutcomeUnknownError, UnavailableError

_POLL_S: Final = 0.1


def check_claimable(topics: LogTopics, topic: LogTopic, *, bucket_count: int) -> None:
    """Refuse a topic that cannot become the log of a new table.

    Args:
        topics: connection to its brokers.
        topic: a topic that exists.
        bucket_count: buckets of the table.

    Raises:
        InvalidInputError: it has another number of partitions, or something was written to it.
        UnavailableError: the brokers do not answer.
    """
    if topic.bucket_count != bucket_count:
        raise InvalidInputError(
            f"topic exists with another partition count: topic={topic.name} partitions={topic.bucket_count}"
            f" buckets={bucket_count} fix=choose another log.kafka.topic, or bucket={topic.bucket_count}"
        )
    # the end, not the retained records: any offset ever used belongs to another writer
    written = {
        bucket: end for bucket, end in topics.written_offsets(topic.name, range(bucket_count)).items() if end > 0
    }
    if written:
        raise InvalidInputError(
            f"topic exists and was written to, by a table or another program: topic={topic.name} end_offsets={written}"
            " fix=choose another log.kafka.topic, leave the option out, or create that topic again if it is not needed"
        )


def empty_value(log_format: str) -> bytes | None:
    """The value of a claim or a control record: the one that readers of a format skip.

    Paimon's source in Flink takes a record without a value for a delete, and fails if it has no key either; an envelope
    of no bytes is nothing to it, nor to Flink's own debezium-json.
    """
    return b"" if log_format == "debezium-json" else None


def claim_topic(
    properties: KafkaProperties,
    topic: LogTopic,
    *,
    table_id: str,
    value: bytes | None = None,
    timeout_s: float = OPERATION_TIMEOUT_S,
) -> None:
    """Claim a topic for a table. Afterwards every partition begins with the claim, and ends at ``CLAIM_END``.

    Args:
        properties: client properties of the cluster.
        topic: see `check_claimable`, which has passed it.
        table_id: the table's id.
        value: of the record, see `empty_value`.
        timeout_s: timeout of each wait for the broker.

    Raises:
        InvalidInputError: another table or program was faster, a right is missing, or the topic takes no records
            without a key. The topic is not claimed.
        UnavailableError: the broker does not answer. The topic is not claimed.
        OutcomeUnknownError: the broker did not confirm the claim.
    """
    claim = _Claim(properties, topic, table_id, value, timeout_s)
    try:
        claim.write()
    except (KafkaException, SystemError) as error:
        raise claim.error(error) from error
    finally:
        claim.close()


class _Claim:
    def __init__(
        self, properties: KafkaProperties, topic: LogTopic, table_id: str, value: bytes | None, timeout_s: float
    ) -> None:
        self._value = value
        self._topic = topic
        self._table_id = table_id
        self._timeout_s = timeout_s
        self._notes = ErrorNotes()
        self._offsets: dict[int, int] = {}
        self._failure: KafkaError | None = None
        self._has_begun = False
        self._is_idle = False
        self._producer = properties.producer(self._notes, transactional_id=f"fluvial.{table_id}.claim")

    def write(self) -> None:
        producer, header = self._producer, [(HEADER, encode_genesis(self._table_id))]
        initialize(producer, self._notes, self._timeout_s)
        producer.begin_transaction()
        self._has_begun = True
        for bucket in range(self._topic.bucket_count):
            producer.produce(
                self._topic.name, self._value, partition=bucket, headers=header, on_delivery=self._delivered
            )
        self._flush()
        late = {bucket: offset for bucket, offset in sorted(self._offsets.items()) if offset != 0}
        if late:
            raise InvalidInputError(
                f"topic was written to while it was claimed: topic={self._topic.name} offsets={late}"
                f" table_id={self._table_id} cause=another table or program uses it"
                " fix=choose another log.kafka.topic, or leave the option out"
            )
        try:
            call_until_done(producer.commit_transaction, self._timeout_s)
        except (KafkaException, SystemError) as error:
            raise OutcomeUnknownError(
                f"claim of a topic was sent and not confirmed: topic={self._topic.name} table_id={self._table_id}"
                f" kafka_error={error} fix=choose another log.kafka.topic, or create that topic again"
            ) from error
        self._is_idle = True

    def close(self) -> None:
        close_producer(self._producer, is_idle=self._is_idle)

    def error(self, error: KafkaException | SystemError) -> FluvialError:
        with contextlib.suppress(KafkaException, SystemError):
            self._producer.poll(0)  # delivers pending error callbacks
        doing = f"topic cannot be claimed: topic={self._topic.name} table_id={self._table_id}"
        # what failed the transaction first; afterwards its records are reported as purged
        cause = (transaction_error(self._producer) if self._has_begun else None) or self._failure or error
        if isinstance(cause, KafkaError) and cause.code() == KafkaError.INVALID_RECORD:
            return InvalidInputError(
                f"{doing} kafka_error={cause.str()} cause=a compacted topic takes no records without a key"
                " fix=set cleanup.policy=delete for the topic, or choose another log.kafka.topic"
            )
        ids = Right(operation="Write", resource="transactional-id", name=f"fluvial.{self._table_id}.", is_prefix=True)
        return error_of_kafka(cause, doing, self._notes, needs=[topic_right("Write", self._topic.name), ids])

    def _flush(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while self._failure is None and len(self._offsets) < self._topic.bucket_count:
            self._producer.poll(_POLL_S)
            self._notes.check_accepted()
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"topic cannot be claimed: topic={self._topic.name} timeout_s={self._timeout_s:g}{self._notes.text}"
                )
        if self._failure is not None:
            raise KafkaException(self._failure)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failure = self._failure or error
        else:
            self._offsets[message.partition()] = message.offset()
