"""The login to the brokers of a table's log: options of a table that are the user's, not the table's."""

from collections.abc import Mapping
from typing import Final

SERVERS_KEY: Final = "log.kafka.bootstrap.servers"
_LOGIN: Final = ("log.kafka.security.protocol", "log.kafka.sasl.", "log.kafka.ssl.")


def login_of(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the options that are the login."""
    return {key: value for key, value in options.items() if key.startswith(_LOGIN)}


def login_for(servers: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """The login among the options, if it is one for these brokers; else nothing: others must not get a password."""
    return login_of(options) if servers == options.get(SERVERS_KEY) else {}
