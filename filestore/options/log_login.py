"""Who may give which option of a table's log: what its files may say, and what is only who opens it to say.

A table's files may be another's. They say where the log is and how its clients are tuned. What a client trusts, loads,
opens or logs in with is given by who opens the table, beside the address that it is for; this is decided by lists of
what is harmless, so that an option that is not known is the opener's.
"""

from collections.abc import Mapping
from typing import Final

from filestore.options.option import Stored
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

_CLIENT: Final = "log.kafka."
_SERVERS: Final = "log.kafka.bootstrap.servers"
_REGISTRY: Final = "log.schema-registry.url"
_LOGINS: Final[Mapping[str, tuple[str, ...]]] = {
    _SERVERS: (
        "log.kafka.security.protocol",
        "log.kafka.sasl.",
        "log.kafka.enable.sasl.",
        "log.kafka.ssl.",
        "log.kafka.enable.ssl.",
        "log.kafka.https.",
    ),
    _REGISTRY: ("log.schema-registry.basic-auth.", "log.schema-registry.bearer-auth.", "log.schema-registry.ssl."),
}
"""By the option with the address: how the options of the login begin."""
_TUNING: Final = frozenset(
    name
    for names in (
        "client.id client.rack group.id group.instance.id",
        "message.max.bytes max.request.size message.copy.max.bytes receive.message.max.bytes",
        "topic.metadata.refresh.interval.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse",
        "topic.metadata.propagation.max.ms metadata.max.age.ms metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms allow.auto.create.topics api.version.request",
        "api.version.request.timeout.ms",
        "socket.timeout.ms socket.send.buffer.bytes socket.receive.buffer.bytes socket.keepalive.enable",
        "socket.nagle.disable socket.max.fails socket.connection.setup.timeout.ms connections.max.idle.ms",
        "reconnect.backoff.ms reconnect.backoff.max.ms reconnect.backoff.jitter.ms retry.backoff.ms",
        "retry.backoff.max.ms broker.address.ttl broker.address.family enable.sparse.connections",
        "queue.buffering.max.ms queue.buffering.max.messages queue.buffering.max.kbytes",
        "queue.buffering.backpressure.threshold linger.ms message.send.max.retries retries",
        "compression.codec compression.type compression.level batch.num.messages batch.size acks",
        "request.required.acks enable.idempotence enable.gapless.guarantee max.in.flight",
        "max.in.flight.requests.per.connection delivery.timeout.ms message.timeout.ms request.timeout.ms",
        "transaction.timeout.ms sticky.partitioning.linger.ms partitioner",
        "fetch.wait.max.ms fetch.max.wait.ms fetch.queue.backoff.ms fetch.message.max.bytes",
        "max.partition.fetch.bytes fetch.max.bytes fetch.min.bytes fetch.error.backoff.ms queued.min.messages",
        "queued.max.messages.kbytes check.crcs session.timeout.ms heartbeat.interval.ms max.poll.interval.ms",
        "isolation.level enable.auto.commit enable.auto.offset.store auto.offset.reset enable.partition.eof",
    )
    for name in names.split()
)
"""Sizes, times, compression and delivery: whatever a file says here, the worst is a slow client or none."""
_ADDRESS_OF: Final[tuple[tuple[str, str], ...]] = ((_CLIENT, _SERVERS), ("log.schema-registry.", _REGISTRY))


def is_openers(key: str) -> bool:
    """Whether an option of a table's log is only its opener's to give: a file's word for it has no effect.

    Its declaration says so; without one, of a client library, it is unless it is known as harmless.
    """
    if (declared := TableOptions.declared.get(key)) is not None:
        return declared.stored is Stored.BY_OPENER
    if key.startswith(_CLIENT):
        return key.removeprefix(_CLIENT) not in _TUNING
    return key.startswith(_LOGINS[_REGISTRY])


def openers_of(options: Mapping[str, str]) -> list[str]:
    """Keys of the options that are only the opener's, sorted."""
    return sorted(filter(is_openers, options))


def login_of(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are a login."""
    starts = tuple(start for login in _LOGINS.values() for start in login)
    return {key: value for key, value in options.items() if key.startswith(starts)}


def login_for(table: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What is given for a table's addresses, with these: others must not get a password.

    Args:
        table: the options of the table.
        given: by who opens it: addresses, logins and what else is only the opener's.
    """
    same = {key for key in _LOGINS if table.get(key) is not None and table.get(key) == given.get(key)}
    return {key: text for key, text in given.items() if key in same or (is_openers(key) and address_of(key) in same)}


def with_given(before: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """What an opener has given, with more of it; an address does not inherit the login that was given for another."""
    moved = {key for key in _LOGINS if key in options and options[key] != before.get(key)}
    kept = {key: text for key, text in before.items() if not (is_openers(key) and address_of(key) in moved)}
    return {**kept, **options}


def trusted_options(options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The options by which a table's log is opened.

    Args:
        options: in force for the table, from files and from its opener.
        given: by its opener; what is only the opener's has effect by this alone, at the address given beside it.

    Raises:
        InvalidInputError: a login is given without the address that it is for.
    """
    harmless = {key: text for key, text in options.items() if not is_openers(key)}
    unaddressed = {key: text for key, text in given.items() if is_openers(key) and address_of(key) not in given}
    for key in login_of(unaddressed):
        if harmless.get(address_of(key)) is not None:
            raise InvalidInputError(
                f"a login is given without the address that it is for: option={key} "
                f"address={harmless[address_of(key)]} fix='give {address_of(key)} beside it'"
            )
    return {**harmless, **unaddressed, **login_for(harmless, given)}


def address_of(key: str) -> str:
    """The option with the address that an option of the opener is for."""
    return next(address for start, address in _ADDRESS_OF if key.startswith(start))
