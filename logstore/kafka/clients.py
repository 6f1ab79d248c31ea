"""Kafka clients: their configuration, and the translation of their errors to Fluvial's.

Users set the options of the Java client (``log.kafka.*``). Options with the same name in librdkafka
are passed on; options with another name are translated; the rest is refused with a suggested fix.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from logstore.kafka.environment import KafkaEnvironment, environment_of
from logstore.kafka.refusals import OPTION_PREFIX, Right, is_of_connection, is_of_group, is_refusal, refused, unreached
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from lsm.nearest_names import close_names
from lsm.secret_names import STARS, is_secret_name, shown_line

logger = logging.getLogger("fluvial.kafka")

OPERATION_TIMEOUT_S: Final = 60.0
FIRST_CONTACT_S: Final = 8.0
"""Time for brokers that refuse connections or do not resolve to become reachable before a job start fails."""
NEW_LOG: Final = "give the table a new topic (CALL sys.reset_log)"
"""The fix for a topic that can no longer be the log of its table."""

_COMMON: Final[Mapping[str, Any]] = {
    "log_level": 0,  # relevant errors arrive in error_cb; what remains goes through _ClientLog
    "client.id": "fluvial",
    "socket.nagle.disable": True,
}
_PRODUCER: Final[Mapping[str, Any]] = {
    # Connect to every broker in the metadata: else a new producer waits half a second for its coordinator. Not for
    # consumers: they need no coordinator, and 1 in 15 then waited 0.7 s (400 tries).
    "enable.sparse.connections": False,
    "compression.type": "lz4",
    "linger.ms": 5,
    "batch.size": 1 << 20,
    "batch.num.messages": 100_000,
    # the writer enforces a far smaller bound itself, where it can wait without leaving a gap in the order
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 2_097_151,
    "message.timeout.ms": 60_000,
    "transaction.timeout.ms": 300_000,  # files are written while a transaction is open
    "topic.metadata.propagation.max.ms": 5_000,  # a deleted topic fails a flush after 5 s, not 30
}
_LETTERS: Final[Mapping[str, Any]] = {"message.max.bytes": 1 << 28, "batch.size": 1 << 18}
_CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "fluvial",  # required by the client; nothing is ever committed under it
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

REFUSALS_TO_BELIEVE: Final = 3
"""Times that all brokers in reach must refuse a login or certificate: new passwords take a moment to reach them."""

_FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})
TOO_LARGE: Final = frozenset(
    {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE}
)
_NO_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
# The leader of a partition was just elected or changed: a retry refreshes the client's metadata.
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
    """Errors that a client reported in ``error_cb``: the cause, where the error of a call is a symptom."""

    def __init__(self) -> None:
        self.user = "NAME"  # of the client at the brokers, as far as known
        self.client: Mapping[str, str] | None = None  # its properties
        self.last: KafkaError | None = None
        self.all_brokers_down = False  # at some point no broker accepted connections; a slow one does
        self.refusal: KafkaError | None = None  # the last refused login, certificate or right
        self._refusal_count = 0

    def __call__(self, error: KafkaError) -> None:
        """Record an error; to be used as ``error_cb``."""
        if is_of_group(error):
            return  # nothing here needs a group
        self.all_brokers_down |= error.code() == KafkaError._ALL_BROKERS_DOWN
        # "all brokers are down" is less specific than the error of a single broker
        if self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error
        if is_refusal(error):
            self.refusal = error
            self._refusal_count += 1

    def forget(self) -> None:
        """Start from scratch, after a call that succeeded: older errors are not the cause of a later one."""
        self.last = self.refusal = None
        self.all_brokers_down = False
        self._refusal_count = 0

    def check_accepted(self) -> None:
        """End a wait that cannot succeed. Raises: KafkaException, when brokers keep refusing login or certificate."""
        if (
            self.refusal is not None
            and is_of_connection(self.refusal)
            and self.all_brokers_down
            and self._refusal_count >= REFUSALS_TO_BELIEVE
        ):
            raise KafkaException(self.refusal)

    @property
    def missing_topic(self) -> KafkaError | None:
        """The report of a missing topic or partition, after the propagation time of new ones; None: there is none.

        The client gives it to its callback, not as a message.
        """
        return self.last if self.last is not None and self.last.code() in _NO_TOPIC else None

    @property
    def text(self) -> str:
        """Suffix of an error message: `` client_said=...``, or empty."""
        return f" client_said={self.last.name()}: {self.last.str()}" if self.last else ""


class _ClientLog:
    """Takes the client's own messages, which it would print on standard error whatever the level: fenced producers.

    What they mean is raised as an error where it matters.
    """

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Called by the client while it is polled; ``level`` is the client's, 50 for what is an error here."""
        logger.debug(shown_line(message % arguments if arguments else message))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProperties:
    """Validated client properties under librdkafka's names. Small and picklable, unlike the clients made from them."""

    by_name: Mapping[str, str] = field(repr=False)  # holds passwords

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Validate and translate options with the Java client's names, without the ``log.kafka.`` prefix.

        Raises:
            InvalidInputError: ``bootstrap.servers`` is missing, or an option is reserved, unknown to librdkafka
                or unsupported. The message names the option and a fix.
        """
        if not options.get("bootstrap.servers"):
            raise InvalidInputError(
                f"address of the brokers is missing: option={OPTION_PREFIX}bootstrap.servers example=localhost:9092"
            )
        by_name: dict[str, str] = {}
        for name, value in options.items():
            by_name |= translated(name, value, options)
        return cls(by_name=by_name)

    @property
    def user(self) -> str:
        """The name that access lists know this client by; ``NAME`` where only the brokers know it."""
        has_login = self.by_name.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"
        return self.by_name.get("sasl.username", "NAME") if has_login else "ANONYMOUS"

    @property
    def transaction_timeout_s(self) -> float:
        """How long brokers let a transaction stay open."""
        name = "transaction.timeout.ms"
        return int(self.by_name.get(name, _PRODUCER[name])) / 1000

    @property
    def environment(self) -> KafkaEnvironment:
        """The environment that creates the clients, and their clock."""
        return environment_of(self.by_name["bootstrap.servers"])

    def producer(self, notes: ErrorNotes, *, transactional_id: str | None, **overrides: Any) -> Producer:
        """A new idempotent producer, transactional if an id is given."""
        ids = {"transactional.id": transactional_id} if transactional_id else {"enable.idempotence": True}
        return self._client(self.environment.producer, {**_PRODUCER, **self.by_name, **ids, **overrides}, notes)

    def plain_producer(self, notes: ErrorNotes) -> Producer:
        """A new producer that may write a record twice, and that reports every error with the record it is of.

        Of how large a record may be the brokers decide, unless the user has said it.

        An idempotent one that may not write dies of a fatal error instead, which its calls raise in several forms or
        lose (``returned NULL without setting an exception``, confluent-kafka 2.16).
        """
        own = {**_PRODUCER, **_LETTERS, **self.by_name, "enable.idempotence": False}
        return self._client(self.environment.producer, own, notes)

    def consumer(self, notes: ErrorNotes, **overrides: Any) -> Consumer:
        """A new consumer of committed records that reports lost offsets and partition ends."""
        return self._client(self.environment.consumer, {**_CONSUMER, **self.by_name, **overrides}, notes)

    def admin(self, notes: ErrorNotes) -> AdminClient:
        """A new admin client. Keep a reference until all its futures are done."""
        return self._client(self.environment.admin, self.by_name, notes)

    def _client(self, make: Callable[[dict[str, Any]], Any], properties: Mapping[str, Any], notes: ErrorNotes) -> Any:
        notes.user, notes.client = self.user, self.by_name
        try:
            return make({**_COMMON, **properties, "error_cb": notes, "logger": _ClientLog()})
        except KafkaException as error:
            raise self._refused(error.args[0]) from error

    def _refused(self, error: KafkaError) -> InvalidInputError:
        text = error.str()
        for name, value in self.by_name.items():
            text = text.replace(value, STARS) if is_secret_name(name) and value else text
        unknown = re.search(r'No such configuration property: "(.*)"', text)
        file = re.search(r"\b(ssl\.\w+\.location) failed: ", text)
        if file is not None:
            return InvalidInputError(
                f"file of an option cannot be used: option={OPTION_PREFIX}{file[1]} value={self.by_name.get(file[1])}"
                f" said={text!r} fix=name a file in PEM that every worker can read"
            )
        if "sasl.password must be set" in text:
            return InvalidInputError(
                f"login is incomplete: option={OPTION_PREFIX}sasl.password said={text!r}"
                " fix=give user and password to catalog, reader or writer: a table does not store those of its catalog"
            )
        if "mechanism GSSAPI" in text:
            return InvalidInputError(
                f"kind of login is missing: option={OPTION_PREFIX}sasl.mechanism"
                " fix=set it to what the brokers support: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER"
            )
        if unknown is None:
            # the client may use an alias of the option: so list the given names
            given = sorted(OPTION_PREFIX + name for name in self.by_name)
            return InvalidInputError(f"Kafka client refuses a value: said={text!r} options={given}")
        known = [*_COMMON, *_PRODUCER, *_CONSUMER, *JAVA_NAMES, *_WELL_KNOWN]
        similar = [OPTION_PREFIX + name for name in close_names(unknown[1], known, 2)]
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
    """True for errors due to stale metadata: retry until the caller's deadline."""
    return error.args[0].code() in _LEADER_MOVED


def error_of_kafka(
    error: KafkaException | KafkaError | SystemError,
    doing: str,
    notes: ErrorNotes,
    *,
    needs: Iterable[Right] = (),
    expired_s: float | None = None,
    absent: str | None = None,
) -> FluvialError:
    """The Fluvial error to raise for a Kafka error.

    Args:
        error: raised by a client, or reported for a record.
        doing: start of the message, lower-case fact and ``key=value`` pairs: ``fence failed: topic=t bucket=3``.
        notes: error notes of the same client.
        needs: the rights that the call needs, to name the missing one.
        expired_s: how long the transaction was open, if that is longer than brokers let it.
        absent: what a user does where the topic does not exist; None: it is that of a log.

    Returns:
        ConflictError, UnavailableError, InvalidInputError or CorruptDataError, as `lsm.errors` defines them.
    """
    if isinstance(error, SystemError):
        # confluent-kafka raises its fatal error among callbacks in flush(), and Python wraps it, once for each call
        # that it passes through; only fencing and missing rights were seen to do that
        cause = error.__cause__
        while isinstance(cause, SystemError):
            cause = cause.__cause__
        if not (isinstance(cause, KafkaException) and is_refusal(cause.args[0])):
            return ConflictError(f"{doing}{_shut_out(expired_s)} (client lost its own error: {error})")
        error = cause
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    code = kafka_error.code()
    facts = f"{doing} kafka_error={kafka_error.name()}: {kafka_error.str()}"
    beside = "" if kafka_error is notes.last else notes.text
    if code in _FENCED:
        return ConflictError(f"{facts}{_shut_out(expired_s)}")
    if code in TOO_LARGE:
        return InvalidInputError(
            f"{facts} cause=a record is larger than allowed"
            f" fix=raise {OPTION_PREFIX}message.max.bytes and the topic's max.message.bytes together"
        )
    if is_refusal(kafka_error):
        return InvalidInputError(f"{facts}{refused(kafka_error, needs, notes.user, notes.client)}")
    if notes.refusal is not None and code not in _BAD_VALUES:
        return InvalidInputError(f"{facts}{beside}{refused(notes.refusal, needs, notes.user, notes.client)}")
    if code in _NO_TOPIC and absent is not None:
        return InvalidInputError(f"{facts} cause=the topic does not exist fix={absent}")
    if code in _NO_TOPIC:
        return CorruptDataError(f"{facts} cause=the topic or a partition of it is missing fix=restore it, or {NEW_LOG}")
    if code in _BAD_VALUES:
        return InvalidInputError(facts)
    return UnavailableError(f"{facts}{beside}{unreached(notes.last)}")


def _shut_out(expired_s: float | None) -> str:
    """Why brokers take nothing more from a producer: its own error is the same for both causes."""
    if expired_s is None:
        return " cause=another writer of this bucket took over"
    return (
        f" cause=brokers ended the transaction, which was open for {expired_s:.0f} s: this process stood still, or the"
        f" batch takes too long fix=run it again, and raise {OPTION_PREFIX}transaction.timeout.ms if that was no pause"
    )


# ---- Options of Kafka's Java client as options of the client that is used here


# Set only by Fluvial: another value would break exactly-once or range reads.
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
JAVA_NAMES: Final = {
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Names of the same options, by Java's."""
_UNSUPPORTED: Final = {
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


def translated(name: str, value: str, options: Mapping[str, str]) -> dict[str, str]:
    """What one option of a user is to the client: options of it, by name; {} for what another one says with it.

    Args:
        name: without ``log.kafka.``.
        value: its text.
        options: all that the user gave, by such names.

    Raises:
        InvalidInputError: it is Fluvial's own, or of Java alone; says what to do instead.
    """
    option = OPTION_PREFIX + name
    if name in _RESERVED:
        raise InvalidInputError(f"Kafka option is set by Fluvial itself: option={option} fix=remove it")
    if name == "metadata.broker.list":  # wins over the other, silently
        raise InvalidInputError(
            f"Kafka option is another name of the brokers: option={option} fix=set {OPTION_PREFIX}bootstrap.servers"
        )
    if name.endswith((".serializer", ".deserializer")):
        raise InvalidInputError(
            f"Kafka option is specific to Java: option={option} fix=remove it: records are bytes; see log.format"
        )
    if name in _UNSUPPORTED:
        raise InvalidInputError(f"Kafka option is specific to Java: option={option} fix={_UNSUPPORTED[name]}")
    if name == "sasl.jaas.config":
        return _login(value)
    if name.startswith("sasl.kerberos.") or (
        name in ("sasl.mechanism", "sasl.mechanisms") and value.upper() == "GSSAPI"
    ):
        raise InvalidInputError(
            f"Kerberos is not supported by the Python client: option={option}"
            " fix=use SCRAM, OAUTHBEARER or TLS, or build confluent-kafka from source"
        )
    if name in _STORE_TYPES:
        return {}  # handled together with the store's location
    if name.startswith("ssl.truststore.") and name not in JAVA_NAMES:
        return _trust_store(name, value, options)
    if name == "ssl.keystore.location" and options.get("ssl.keystore.type", "JKS").upper() != "PKCS12":
        raise InvalidInputError(
            f"key store is not PKCS12: option={option} value={value}"
            " fix=convert it with keytool -importkeystore -deststoretype PKCS12"
            f" and set {OPTION_PREFIX}ssl.keystore.type=PKCS12"
        )
    if name == "ssl.endpoint.identification.algorithm" and not value:
        return {name: "none"}  # an empty value disables the check in Java
    return {JAVA_NAMES.get(name, name): value}


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
            f"trust store is in a Java format: option={OPTION_PREFIX}{name} fix=export its certificates"
            f" (keytool -exportcert -rfc) and set {OPTION_PREFIX}ssl.ca.location"
        )
    return {"ssl.ca.location": value} if name == "ssl.truststore.location" else {}
