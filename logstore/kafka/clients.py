"""Kafka clients: their configuration, and their errors in Fluvial's words.

Users give the options they know from the Java client (``log.kafka.*``, FL-54). What librdkafka calls by the same name
passes through; what it calls otherwise is translated; the rest is refused with what to do instead.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, UnavailableError

OPTION_PREFIX: Final = "log.kafka."
OPERATION_TIMEOUT_S: Final = 60.0
FIRST_CONTACT_S: Final = 8.0
"""How long brokers that refuse connections, or whose name nobody knows, get to come up before a job is not started."""

# Ours alone: another value would break exactly-once or the reading of ranges.
_RESERVED: Final = frozenset(
    {
        "transactional.id",
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "isolation.level",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.partition.eof",
        "queue.buffering.max.messages",
        "queue.buffering.max.kbytes",
        "enable.gapless.guarantee",
    }
)
_RENAMED: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_REFUSED: Final = {
    "buffer.memory": "remove it: a writer's buffer is bounded by Fluvial",
    "max.block.ms": "remove it: log.kafka.socket.timeout.ms bounds a request",
    "max.poll.records": "remove it: batches of a reader are bounded by Fluvial",
    "partitioner.class": "remove it: a bucket is a partition",
    "interceptor.classes": "remove it: there are no Java classes here",
    "metric.reporters": "remove it: there are no Java classes here",
    "sasl.login.callback.handler.class": "set log.kafka.sasl.oauthbearer.method=oidc and log.kafka.sasl.oauthbearer.*",
    "sasl.client.callback.handler.class": "set log.kafka.sasl.oauthbearer.method=oidc and log.kafka.sasl.oauthbearer.*",
    "sasl.login.class": "remove it: there are no Java classes here",
    "security.providers": "remove it: there are no Java classes here",
    "ssl.trustmanager.algorithm": "remove it: there are no Java classes here",
    "ssl.keymanager.algorithm": "remove it: there are no Java classes here",
}
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")

_COMMON: Final[Mapping[str, Any]] = {
    "log_level": 0,  # librdkafka would print to stderr; the text that matters arrives in error_cb
    "client.id": "fluvial",
    "socket.nagle.disable": True,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    # Connect to every broker that metadata names: else a new producer waits half a second for its coordinator. Not for
    # consumers: they need no coordinator, and 1 in 15 then waited 0.7 s (400 tries).
    "enable.sparse.connections": False,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 1 << 20,
    "batch.num.messages": 100_000,
    # the writer keeps a far smaller bound itself, where it can wait without leaving a hole in the order
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 2_097_151,
    "message.timeout.ms": 60_000,
    "transaction.timeout.ms": 300_000,  # files are written while a transaction is open
    "topic.metadata.propagation.max.ms": 5_000,  # a deleted topic fails a flush after 5 s, not 30
}
_CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "fluvial",  # the client wants one; nothing is ever committed under it
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # a lost offset must be an error: "earliest" would skip rows silently
    "fetch.queue.backoff.ms": 5,  # default 1000: nearly halves the throughput
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 10,
    "queued.max.messages.kbytes": 32_768,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "topic.metadata.propagation.max.ms": 5_000,
}

_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
_REFUSALS: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)
_NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
# A partition whose leader has just been chosen, or chosen anew: the client learns it by asking again.
_LEADER_MOVED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
_BAD_VALUES: Final = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_RECORD,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.POLICY_VIOLATION,
    }
)


class ErrorNotes:
    """The last thing a client said about its connections: the cause, where the error of a call is only its effect."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.all_brokers_down = False  # at some time no broker could be connected to; a slow one can

    def __call__(self, error: KafkaError) -> None:
        """Take a note; made to be an ``error_cb``."""
        self.all_brokers_down |= error.code() == KafkaError._ALL_BROKERS_DOWN
        # "all brokers are down" only says again what the error of one broker said better
        if self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error

    @property
    def is_missing_topic(self) -> bool:
        """True when a topic or partition is not there, also after the time that a new one takes to be known."""
        return self.last is not None and self.last.code() in _NO_TOPIC

    @property
    def text(self) -> str:
        """For the end of a message: `` client_said=...``, or nothing."""
        return f" client_said={self.last.name()}: {self.last.str()}" if self.last else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProperties:
    """Checked client properties under librdkafka's names. Small and picklable: clients are made where they are used."""

    by_name: Mapping[str, str] = field(repr=False)  # holds passwords

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Check and translate options named as in the Java client, without the ``log.kafka.`` prefix.

        Raises:
            InvalidInputError: ``bootstrap.servers`` is missing, or an option is Fluvial's own, unknown to librdkafka
                or impossible with it. Names the option and what to do.
        """
        if not options.get("bootstrap.servers"):
            raise InvalidInputError(
                f"address of the brokers is missing: option={OPTION_PREFIX}bootstrap.servers example=localhost:9092"
            )
        translated: dict[str, str] = {}
        for name, value in options.items():
            translated.update(_translated(name, value, options))
        return cls(by_name=translated)

    def producer(self, notes: ErrorNotes, *, transactional_id: str | None, **overrides: Any) -> Producer:
        """A new producer; idempotent, and transactional when it has an id."""
        ids = {"transactional.id": transactional_id} if transactional_id else {"enable.idempotence": True}
        return self._client(Producer, {**_PRODUCER, **self.by_name, **ids, **overrides}, notes)

    def consumer(self, notes: ErrorNotes, **overrides: Any) -> Consumer:
        """A new consumer of committed records that reports lost offsets and ends of partitions."""
        return self._client(Consumer, {**_CONSUMER, **self.by_name, **overrides}, notes)

    def admin(self, notes: ErrorNotes) -> AdminClient:
        """A new administration client. Keep it until every future that it gave is done."""
        return self._client(AdminClient, self.by_name, notes)

    def _client(self, make: Callable[[dict[str, Any]], Any], properties: Mapping[str, Any], notes: ErrorNotes) -> Any:
        try:
            return make({**_COMMON, **properties, "error_cb": notes})
        except KafkaException as error:
            raise self._refused(error.args[0]) from error

    def _refused(self, error: KafkaError) -> InvalidInputError:
        text = error.str()
        unknown = re.search(r'No such configuration property: "(.*)"', text)
        if unknown is None:
            # the client may name an option by its other name: so name those that were given
            given = sorted(OPTION_PREFIX + name for name in self.by_name)
            return InvalidInputError(f"Kafka client refuses a value: said={text!r} options={given}")
        known = [*_COMMON, *_PRODUCER, *_CONSUMER, *_RENAMED, *_WELL_KNOWN]
        similar = [OPTION_PREFIX + name for name in difflib.get_close_matches(unknown[1], known, n=2)]
        return InvalidInputError(
            f"Kafka client does not know an option: option={OPTION_PREFIX}{unknown[1]} did_you_mean={similar}"
        )


_WELL_KNOWN: Final = (
    *(
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "message.max.bytes",
    ),
    *(
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "socket.timeout.ms",
    ),
)


def leader_moved(error: KafkaException) -> bool:
    """True for an answer that is only out of date: ask again, until the deadline of whoever asks."""
    return error.args[0].code() in _LEADER_MOVED


def error_of_kafka(error: KafkaException | KafkaError | SystemError, doing: str, notes: ErrorNotes) -> FluvialError:
    """The error to raise for one of Kafka's.

    Args:
        error: what a client raised, or reported for a record.
        doing: lower-case words and ``key=value`` facts that open the message: ``fence failed: topic=t bucket=3``.
        notes: those of the same client.

    Returns:
        ConflictError, UnavailableError, InvalidInputError or CorruptDataError, as `lsm.errors` defines them.
    """
    if isinstance(error, SystemError):
        # confluent-kafka loses the exception when callbacks run in flush() while the fatal error is set; only fencing
        # was seen to do that
        return ConflictError(
            f"{doing} cause=another writer of this bucket took over (client lost its own error: {error})"
        )
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    code = kafka_error.code()
    facts = f"{doing} kafka_error={kafka_error.name()}: {kafka_error.str()}"
    if code in _FENCED:
        return ConflictError(f"{facts} cause=another writer of this bucket took over")
    if code in _TOO_LARGE:
        return InvalidInputError(
            f"{facts} cause=a record is larger than allowed"
            f" fix=raise {OPTION_PREFIX}message.max.bytes and the topic's max.message.bytes together"
        )
    if code in _REFUSALS or (notes.last is not None and notes.last.code() in _REFUSALS):
        return InvalidInputError(
            f"{facts}{notes.text} fix=check {OPTION_PREFIX}security.protocol, sasl.*, ssl.* and the access lists"
        )
    if code in _NO_TOPIC:
        return CorruptDataError(
            f"{facts} cause=the topic or a partition of it is gone fix=restore it, or give the table a new log"
        )
    if code in _BAD_VALUES:
        return InvalidInputError(facts)
    return UnavailableError(f"{facts}{notes.text} fix=check that the broker of {OPTION_PREFIX}bootstrap.servers runs")


def _translated(name: str, value: str, options: Mapping[str, str]) -> dict[str, str]:
    option = OPTION_PREFIX + name
    if name in _RESERVED:
        raise InvalidInputError(f"Kafka option is set by Fluvial itself: option={option} fix=remove it")
    if name.endswith((".serializer", ".deserializer")):
        raise InvalidInputError(
            f"Kafka option is of the Java client: option={option} fix=remove it: records are bytes; see log.format"
        )
    if name in _REFUSED:
        raise InvalidInputError(f"Kafka option is of the Java client: option={option} fix={_REFUSED[name]}")
    if name == "sasl.jaas.config":
        return _login(value)
    if name.startswith("sasl.kerberos.") or (
        name in ("sasl.mechanism", "sasl.mechanisms") and value.upper() == "GSSAPI"
    ):
        raise InvalidInputError(
            f"Kerberos is not in the Python client: option={option}"
            " fix=use SCRAM, OAUTHBEARER or TLS, or build confluent-kafka from source"
        )
    if name in _STORE_TYPES:
        return {}  # looked at beside the store's location
    if name.startswith("ssl.truststore.") and name not in _RENAMED:
        return _trust_store(name, value, options)
    if name == "ssl.keystore.location" and options.get("ssl.keystore.type", "JKS").upper() != "PKCS12":
        raise InvalidInputError(
            f"key store is not PKCS12: option={option} value={value}"
            " fix=convert it with keytool -importkeystore -deststoretype PKCS12"
            f" and set {OPTION_PREFIX}ssl.keystore.type=PKCS12"
        )
    if name == "ssl.endpoint.identification.algorithm" and not value:
        return {name: "none"}  # Java turns the check off with an empty text
    return {_RENAMED.get(name, name): value}


def _login(jaas: str) -> dict[str, str]:
    login = {
        key: value.replace('\\"', '"')
        for key, value in re.findall(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas)
    }
    if not re.search(r"\b(Plain|Scram)LoginModule\b", jaas) or login.keys() != {"username", "password"}:
        raise InvalidInputError(
            f"login cannot be read: option={OPTION_PREFIX}sasl.jaas.config fix=set {OPTION_PREFIX}sasl.username"
            f" and {OPTION_PREFIX}sasl.password, or {OPTION_PREFIX}sasl.oauthbearer.*"
        )
    return {"sasl.username": login["username"], "sasl.password": login["password"]}


def _trust_store(name: str, value: str, options: Mapping[str, str]) -> dict[str, str]:
    if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise InvalidInputError(
            f"trust store is of Java: option={OPTION_PREFIX}{name} fix=export its certificates"
            f" (keytool -exportcert -rfc) and set {OPTION_PREFIX}ssl.ca.location"
        )
    return {"ssl.ca.location": value} if name == "ssl.truststore.location" else {}
