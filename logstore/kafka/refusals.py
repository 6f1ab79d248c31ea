"""Permanent refusals of brokers: of a login, a certificate or a right; errors name the option or rule to change.

The client reports a refused login or certificate through its error callback, again and again, and the call itself only
times out; a missing right is the error of the call. Retrying helps with neither. The client does not say why it refuses
a certificate, so the reason is then found by a TLS handshake with the broker.
"""

import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException

ASK_S: Final = 3.0

_PLACE: Final = re.compile(r"://(?:\[([^\]]+)\]|([^:/\s]+)):(\d+)")
_EXPIRED: Final = 10  # codes of OpenSSL's verification
_NOT_YET: Final = 9
_OTHER_NAME: Final = frozenset({62, 64})  # of a host, of an address


def server_fault(by_name: Mapping[str, str], said: str) -> str | None:
    """The problem of a broker's certificate, as `` cause=... fix=...``; None: nothing, or it is not known.

    Args:
        by_name: the properties of the client.
        said: its message, which names the broker; else those of ``bootstrap.servers`` are asked.
    """
    for host, port in _brokers(by_name, said):
        try:
            context = _context(by_name)
            with socket.create_connection((host, port), ASK_S) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return _fault(error, f"{host}:{port}")
        except (OSError, ValueError):
            continue  # the client's own message stays
    return None


def client_fault(said: str, *, has_certificate: bool) -> str | None:
    """The brokers' objection to the client's certificate, by the alert that they sent; None: they sent none.

    Args:
        said: the client's message.
        has_certificate: whether the client has one.
    """
    alert = re.search(r"alert (certificate \w+|bad certificate|unsupported certificate|unknown ca)", said)
    if alert is None:
        return None
    if not has_certificate:
        return (
            " cause=the brokers want a certificate of the client"
            " fix=set log.kafka.ssl.certificate.location and log.kafka.ssl.key.location"
        )
    if alert[1] == "unknown ca":
        why = "the brokers do not know the authority of the client's certificate"
    elif alert[1] == "certificate expired":
        why = "the client's certificate has expired"
    else:
        why = f"the brokers refuse the client's certificate ({alert[1]})"
    return f" cause={why} fix=set log.kafka.ssl.certificate.location to one that they accept, and its key"


def _fault(error: ssl.SSLCertVerificationError, place: str) -> str:
    if error.verify_code in _OTHER_NAME:
        return (
            f" cause=the certificate of the broker is for another host name: broker={place}"
            f" said={error.verify_message!r}"
            " fix=use in log.kafka.bootstrap.servers, and as the brokers' advertised.listeners, a name that it has"
        )
    if error.verify_code in (_EXPIRED, _NOT_YET):
        when = "has expired" if error.verify_code == _EXPIRED else "is not valid yet"
        return (
            f" cause=the certificate of the broker {when}: broker={place}"
            " fix=give the broker a new one, or correct the clock of this machine"
        )
    return (
        f" cause=the certificate of the broker is signed by an unknown authority: broker={place}"
        f" said={error.verify_message!r} fix=set log.kafka.ssl.ca.location to the authority's certificate (PEM)"
    )


def _context(by_name: Mapping[str, str]) -> ssl.SSLContext:
    file, text = by_name.get("ssl.ca.location"), by_name.get("ssl.ca.pem")
    context = ssl.create_default_context(cafile=file, cadata=text)
    context.check_hostname = by_name.get("ssl.endpoint.identification.algorithm", "https") != "none"
    return context


def _brokers(by_name: Mapping[str, str], said: str) -> list[tuple[str, int]]:
    found = [(bracketed or host, int(port)) for bracketed, host, port in _PLACE.findall(said)]
    if not found:
        servers = (f"://{each.strip().rpartition('://')[2]}" for each in by_name["bootstrap.servers"].split(","))
        found = [(bracketed or host, int(port)) for bracketed, host, port in _PLACE.findall(" ".join(servers))]
    return list(dict.fromkeys(found))[:3]


OPTION_PREFIX: Final = "log.kafka."

_LOGIN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)
_ASK_S: Final = 5.0
_UNTRUSTED: Final = "certificate verify failed"  # sometimes with the code of a lost connection
_HAS_CERTIFICATE: Final = frozenset({"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"})
_CLOSED_ON_GREETING: Final = ("PLAINTEXT broker listener", "SSL connection closed by peer", "SSL listener")
_RESOURCES: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A right that a call needs, in the words of ``kafka-acls``."""

    operation: str
    resource: str  # topic, transactional-id or cluster
    name: str = ""
    is_prefix: bool = False  # the name is the start of the resources' names

    def __str__(self) -> str:
        return " ".join(filter(None, (self.operation, "on", self.resource, self.name + "*" * self.is_prefix)))

    def command(self, user: str) -> str:
        """The arguments of ``kafka-acls`` that grant it."""
        resource = f"--{self.resource} {self.name}".rstrip() + " --resource-pattern-type prefixed" * self.is_prefix
        return f"kafka-acls --add --allow-principal User:{user} --operation {self.operation} {resource}"


def topic_right(operation: str, topic: str) -> Right:
    """A right on one topic."""
    return Right(operation=operation, resource="topic", name=topic)


def is_refusal(error: KafkaError) -> bool:
    """True when brokers do not accept this client: what it may not do, or who it is."""
    return is_of_connection(error) or error.code() in _RESOURCES


def is_of_connection(error: KafkaError) -> bool:
    """True for a refused login or certificate, which no other call of the client survives either."""
    text = error.str()
    return (
        error.code() in _LOGIN
        or error.code() == KafkaError._SSL
        or _UNTRUSTED in text
        or ("alert" in text and client_fault(text, has_certificate=False) is not None)
    )


def is_of_group(error: KafkaError) -> bool:
    """True for a refused consumer group, which nothing here needs: offsets are kept in tables and checkpoints."""
    return bool(error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED)


def hidden_refusal(client: Consumer, topic: str) -> KafkaError | None:
    """The refusal of a topic that a consumer without rights takes for missing or silent; None: another reason."""
    try:
        error = client.list_topics(topic, timeout=_ASK_S).topics[topic].error
    except KafkaException:
        return None
    return error if error is not None and is_refusal(error) else None


def refused(error: KafkaError, needs: Iterable[Right], user: str, client: Mapping[str, str] | None = None) -> str:
    """The end of a message about a refusal: `` cause=... fix=...``.

    Args:
        error: a refusal.
        needs: every right that the call needs.
        user: name of the client at the brokers.
        client: its properties, to ask a broker why its certificate is not accepted; None: unknown.
    """
    resource = _RESOURCES.get(error.code())
    if resource is not None:
        return _missing_right(resource, needs, user)
    text = error.str()
    of_client = client_fault(text, has_certificate=client is not None and not _HAS_CERTIFICATE.isdisjoint(client))
    if of_client is not None:
        return of_client
    if _UNTRUSTED in text:
        known = None if client is None else server_fault(client, text)
        return known or (
            " cause=the broker's certificate is signed by an unknown authority, is for another host name or has expired"
            f" fix=set {OPTION_PREFIX}ssl.ca.location to the authority's certificate (PEM), and use in"
            f" {OPTION_PREFIX}bootstrap.servers the host name that the certificate has"
        )
    if error.code() == KafkaError._SSL:
        return (
            " cause=broker and client do not agree on TLS or its certificates"
            f" fix=check {OPTION_PREFIX}ssl.* and {OPTION_PREFIX}security.protocol"
        )
    if "SASL state" in text:
        return (
            " cause=this listener of the brokers has no logins"
            f" fix=check {OPTION_PREFIX}security.protocol and the port in {OPTION_PREFIX}bootstrap.servers"
        )
    if "mechanism handshake" in text or error.code() == KafkaError.UNSUPPORTED_SASL_MECHANISM:
        return (
            " cause=the brokers do not offer this kind of login"
            f" fix=set {OPTION_PREFIX}sasl.mechanism to one that they support"
        )
    return (
        f" user={user} cause=the brokers do not know the user, or the password is wrong"
        f" fix=check {OPTION_PREFIX}sasl.username, {OPTION_PREFIX}sasl.password and {OPTION_PREFIX}sasl.mechanism"
    )


def unreached(last: KafkaError | None) -> str:
    """The end of a message about brokers that do not answer: `` fix=...``.

    Args:
        last: the last and most specific error that the client reported beside the call.
    """
    said = last.str() if last is not None else ""
    if last is not None and last.code() == KafkaError._ALL_BROKERS_DOWN:  # connections open, and close without a word
        return (
            f" cause=brokers close the connection fix=check {OPTION_PREFIX}security.protocol: a listener with TLS or"
            " logins hangs up on other clients"
        )
    if any(sign in said for sign in _CLOSED_ON_GREETING):
        return (
            f" cause=this listener does not speak TLS, or a broker stops fix=check {OPTION_PREFIX}security.protocol and"
            f" the port in {OPTION_PREFIX}bootstrap.servers"
        )
    return f" fix=check that the broker of {OPTION_PREFIX}bootstrap.servers runs"


def _missing_right(resource: str, needs: Iterable[Right], user: str) -> str:
    # of rights on the cluster, that to write with an idempotent producer comes with the right to write a topic
    missing = [right for right in needs if right.resource == resource or resource == "cluster"]
    if not missing:
        return f" user={user} fix=let the brokers' access lists allow it: resource={resource}"
    rights = ", ".join(map(str, missing))
    return f" missing_right='{rights}' user={user} fix={'; '.join(right.command(user) for right in missing)}"
