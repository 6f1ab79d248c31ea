"""How a schema file says where a table's log is: in the words by which Paimon's connector for Flink finds it.

The file has one name for the brokers and one for the topic, the connector's; in memory they have FLIP-188's. So the two
cannot differ: what ALTER, a moved broker or another engine sets is what both sides use. Logins are not among them.

``log.system=kafka`` makes a Flink job read a snapshot and then the log from its offsets. The file has it where that is
right: where Flink can decode the log, and its first snapshot has all rows. Elsewhere the file leaves it out, which is
"none" to the connector, so that it reads files; here a table with the id of its topic has its log all the same. Of such
a file the connector refuses some options, in batch too: those have other names there.
"""

from collections.abc import Mapping
from typing import Final

from filestore.options.table_options import TableOptions

_SYSTEM_KEY: Final = TableOptions.log_system.key
_TOPIC_ID_KEY: Final = TableOptions.log_topic_id.key
_KAFKA: Final = "kafka"
STORED_NAMES: Final[Mapping[str, str]] = {
    "log.kafka.bootstrap.servers": "kafka.bootstrap.servers",
    TableOptions.log_topic.key: "kafka.topic",
}
"""What schema files call the options that name the log."""
_FOR_FLINK: Final[Mapping[str, str]] = {"kafka.transaction.timeout.ms": "900000"}
"""What Flink's writer of the log asks for besides: by default it wants an hour, and brokers allow 15 minutes."""
_REFUSED_WITHOUT_LOG: Final = (
    (TableOptions.log_consistency.key, "eventual"),
    (TableOptions.log_changelog_mode.key, "upsert"),
    (TableOptions.streaming_read_mode.key, "log"),
)
"""What the connector takes for a mistake without ``log.system``. Source: its ``AbstractFlinkTableFactory``."""
_SAID_WITH_LOG: Final = _REFUSED_WITHOUT_LOG[:1]  # the others are what holds anyway, and a job may leave out the log
ASIDE: Final = "fluvial."
"""Before the names of these options where the connector is not to know them."""
_HELD_NAMES: Final = {
    **{stored: held for held, stored in STORED_NAMES.items()},
    **{ASIDE + key: key for key, _ in _REFUSED_WITHOUT_LOG},
}
# with the others Flink's first snapshot is without level 0, whose rows it expects from the changelog of a compaction
_PRODUCERS_OF_WHOLE_STARTS: Final = ("none", "input")


def options_for_file(options: Mapping[str, str], parsed: TableOptions, *, on_branch: bool = False) -> dict[str, str]:
    """The options of a table as its schema file has them.

    Args:
        options: of the table, under our names.
        parsed: the same.
        on_branch: a branch's, which are main's and name main's log: no Flink job may continue with that log.
    """
    stored = {STORED_NAMES.get(key, key): text for key, text in options.items()}
    if _SYSTEM_KEY in stored:
        stored[_SYSTEM_KEY] = stored[_SYSTEM_KEY].strip().lower()  # the connector takes "Kafka" for another system
    if _TOPIC_ID_KEY in options:
        stored = {**_FOR_FLINK, **stored}
    return _aside(_without_log_system(stored) if on_branch or not flink_reads_log(parsed) else stored)


def without_log_system(stored: Mapping[str, str]) -> dict[str, str]:
    """The options of a schema file by which Flink reads files alone; in memory they are the same as before."""
    return _aside(_without_log_system(stored))


def _without_log_system(stored: Mapping[str, str]) -> dict[str, str]:
    is_said = _TOPIC_ID_KEY in stored and stored.get(_SYSTEM_KEY) == _KAFKA
    return {key: text for key, text in stored.items() if not (is_said and key == _SYSTEM_KEY)}


def _aside(stored: Mapping[str, str]) -> dict[str, str]:
    said = _SAID_WITH_LOG if stored.get(_SYSTEM_KEY) == _KAFKA else ()
    refused = {pair for pair in _REFUSED_WITHOUT_LOG if pair not in said}
    return {ASIDE + key if (key, text.strip().lower()) in refused else key: text for key, text in stored.items()}


def options_of_file(stored: Mapping[str, str]) -> dict[str, str]:
    """The options of a table from those of its schema file, by any writer; what has our names already wins."""
    held = {key: text for key, text in stored.items() if key not in _HELD_NAMES and text != _FOR_FLINK.get(key)}
    for key, text in stored.items():
        if key in _HELD_NAMES:
            held.setdefault(_HELD_NAMES[key], text)
    if _TOPIC_ID_KEY in held:
        held.setdefault(_SYSTEM_KEY, _KAFKA)
    return held


def flink_reads_log(options: TableOptions) -> bool:
    """Whether Paimon's connector for Flink, on its own, reads a snapshot and then the log, and misses nothing."""
    return (
        options.log_format == "debezium-json"  # "json" is of inserts alone there, and Avro is another one
        and options.changelog_producer in _PRODUCERS_OF_WHOLE_STARTS
        and not options.deletion_vectors_enabled
        and not options.force_lookup
        and options.merge_engine != "first-row"
        and not options.row_counts  # the records lack the hidden columns
    )
