"""The logins to the brokers and the schema registry of a table's log: options that are the user's, not the table's."""

from collections.abc import Iterable, Mapping
from typing import Final

_LOGINS: Final[Mapping[str, tuple[str, ...]]] = {
    "log.kafka.bootstrap.servers": ("log.kafka.security.protocol", "log.kafka.sasl.", "log.kafka.ssl."),
    "log.schema-registry.url": (
        "log.schema-registry.basic-auth.",
        "log.schema-registry.bearer-auth.",
        "log.schema-registry.ssl.",
    ),
}
"""By the option with the address: how the options of the login begin."""


def login_of(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that are a login."""
    return _behind(options, _LOGINS)


def login_for(table: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """The logins among options that are for a table's addresses: others must not get a password.

    Args:
        table: the options of the table.
        options: addresses and logins.
    """
    return _behind(options, [address for address in _LOGINS if table.get(address) == options.get(address)])


def _behind(options: Mapping[str, str], addresses: Iterable[str]) -> dict[str, str]:
    starts = tuple(start for address in addresses for start in _LOGINS[address])
    return {key: value for key, value in options.items() if starts and key.startswith(starts)}
