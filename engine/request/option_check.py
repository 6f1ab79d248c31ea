"""Options that a reader or writer is given: those that its place does not take are refused by name."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from filestore.options.log_place import OWN_LOG_KEYS
from filestore.options.option import At
from filestore.options.secrets import shown_value
from filestore.options.table_options import TableOptions, check_option
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names

CLIENT_PREFIX: Final = "log.kafka."
"""Before properties of the Kafka clients of a log."""
REGISTRY_PREFIX: Final = "log.schema-registry."
"""Before the address of the registry of a log's schemas, and what its clients log in with."""
_OWNERS: Final = (
    (At.BATCH_READ | At.STREAM_READ, "reads"),
    (At.BATCH_READ, "batch reads"),
    (At.STREAM_READ, "streams"),
    (At.BATCH_WRITE, "writes"),
    (At.STREAM_WRITE, "sinks"),
)


def is_client_property(key: str) -> bool:
    """Whether any reader and writer may be given an option: a property of its clients, not which log the table has."""
    is_registrys = key.startswith(REGISTRY_PREFIX) and key in TableOptions.declared
    return is_registrys or (key.startswith(CLIENT_PREFIX) and key not in OWN_LOG_KEYS)


def check_belongs(given: Mapping[str, str], keys: Collection[str], what: str) -> None:
    """Refuse options that are not for this place, and values that cannot be read.

    Args:
        given: by today's keys.
        keys: that the place takes, besides client properties.
        what: they are, for messages.

    Raises:
        InvalidInputError: names the option, and where it belongs or the nearest key.
    """
    for key, text in given.items():
        if key not in keys and not is_client_property(key):
            raise refused_option(key, text, keys, what)
        check_option(key, text)


def unknown_option(key: str, known: Iterable[str], what: str) -> InvalidInputError:
    """The error for a key that is not known, with the nearest key that is."""
    names = sorted(known)
    close = close_names(key, names)
    hint = f"did_you_mean={close[0]}" if close else f"known={', '.join(names)}" if names else "fix='leave it out'"
    return InvalidInputError(f"unknown {what}: {key} {hint}")


def refused_option(key: str, value: str, known: Iterable[str], what: str) -> InvalidInputError:
    """The error for a key that a place does not take: where it belongs, or that nothing has it."""
    if key not in TableOptions.declared:
        return unknown_option(key, known, what)
    at = TableOptions.declared[key].at
    owner = next((words for places, words in _OWNERS if at & places == places), None)
    facts = f"not a {what}: {key}={shown_value(key, value)}"
    if owner is None:
        return InvalidInputError(
            f"an option of the table, {facts} fix='set it where the table is made or altered, for all who use it'"
        )
    fix = f"give it to {owner}"
    if key in (*BATCH_KEYS, *STREAM_KEYS) and what in ("write option", "sink option"):
        fix = f"branch={value}" if key == "scan.branch" else "leave it out; what is written comes behind the newest one"
    return InvalidInputError(f"an option of {owner}, {facts} fix='{fix}'")
