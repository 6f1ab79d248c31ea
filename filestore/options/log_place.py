"""Which log a table has: options that are set together, when the table gets a log, another one, or none."""

from collections.abc import Mapping
from typing import Final

from filestore.options.table_options import TableOptions

SERVERS_KEY: Final = "log.kafka.bootstrap.servers"
SYSTEM_KEY: Final = TableOptions.log_system.key
TOPIC_KEY: Final = TableOptions.log_topic.key
TOPIC_ID_KEY: Final = TableOptions.log_topic_id.key
TABLE_ID_KEY: Final = TableOptions.log_transactional_id_prefix.key
ADOPTED_KEY: Final = TableOptions.log_topic_is_adopted.key
GENERATION_KEY: Final = TableOptions.log_generation.key
MARKER_KEY_KEY: Final = TableOptions.log_marker_key.key
BUCKET_KEY: Final = TableOptions.bucket.key

_OWN: Final = (TOPIC_KEY, TOPIC_ID_KEY, TABLE_ID_KEY, ADOPTED_KEY, GENERATION_KEY, MARKER_KEY_KEY)
_PLACE: Final = (SYSTEM_KEY, SERVERS_KEY, *_OWN)
OWN_LOG_KEYS: Final = frozenset(_OWN)
"""Options of a table that no other table has: its topic's, and its id."""


def log_place(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's options that say which log it has; its partitions are the buckets, so their number, too."""
    return {key: options[key] for key in (*_PLACE, BUCKET_KEY) if key in options}


def in_other_place(options: Mapping[str, str], place: Mapping[str, str]) -> dict[str, str]:
    """A table's options with another log, or with none.

    Args:
        options: of the table.
        place: from ``log_place``; the number of buckets stays where it has none.
    """
    others = {key: text for key, text in options.items() if key not in _PLACE}
    return {**others, **place}
