"""Options of Kafka's Java client as options of the client that is used here."""

import re
from collections.abc import Mapping
from typing import Final

from logstore.kafka.refusals import OPTION_PREFIX
from lsm.errors import InvalidInputError

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
