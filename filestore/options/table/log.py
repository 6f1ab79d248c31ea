"""Options of a table's changes: its Kafka log and its changelog files."""

from typing import Any, Final, Literal, cast

from filestore.options.option import CHANGES, NOTHING, ROWS, STORAGE, At, Option, OptionValues, Stored, derived
from filestore.options.parsing import (
    Parser,
    boolean,
    check_prefix,
    choice,
    duration_ms,
    integer,
    statistics,
    text,
    verbatim,
)
from filestore.options.table.common import COUNT, NUMBER

_MODE: Final = choice("auto", "upsert", "all")
_MODE_OR_NONE: Final = Parser(lambda value: None if _MODE(value) == "auto" else _MODE(value), _MODE.kind)
_FORMATS: Final = cast(
    Parser[Literal["debezium-json", "json", "debezium-avro", "avro"]],
    choice("debezium-json", "json", "debezium-avro", "avro"),
)
AVRO_FORMATS: Final = ("debezium-avro", "avro")
TOMBSTONE_FORMATS: Final = ("json", "avro")
"""Formats in which a delete is a key without a value."""
_LEAST_LEASE_MS: Final = 1000


def _lease_ms(value: str) -> int:
    lease_ms = duration_ms(value)
    if lease_ms < _LEAST_LEASE_MS:
        raise ValueError(f"a duration of at least {_LEAST_LEASE_MS} ms, so that a live writer is not taken for dead")
    return lease_ms


def _system(options: Any) -> str:
    return "kafka" if options.log_kafka.get("bootstrap.servers") else "none"


def _key_format(options: Any) -> str:
    return "avro" if options.log_format in AVRO_FORMATS else "json"


def _mode(options: Any) -> str:
    return "upsert" if options.has_key else "all"


class ChangelogOptions(OptionValues):
    """Changelog files."""

    changelog_producer = Option(
        "changelog-producer",
        choice("none", "input", "lookup", "full-compaction"),
        "none",
        "Where changelog files come from.",
        CHANGES,
        essential=True,
    )
    changelog_producer_row_deduplicate = Option(
        "changelog-producer.row-deduplicate", boolean, False, "Leave out updates that change nothing.", CHANGES
    )
    changelog_file_format = Option(
        "changelog-file.format", choice("parquet", "orc", "avro"), None, "Format of changelog files.", STORAGE
    )
    changelog_file_compression = Option(
        "changelog-file.compression", text, None, "Compression of changelog files.", STORAGE
    )
    changelog_file_prefix = Option(
        "changelog-file.prefix",
        verbatim,
        "changelog-",
        "Start of the names of changelog files.",
        STORAGE,
        essential=True,
        check=check_prefix,
    )
    changelog_file_stats_mode = Option(
        "changelog-file.stats-mode", statistics, None, "Statistics of changelog files.", STORAGE
    )
    changelog_num_retained_min = Option("changelog.num-retained.min", COUNT, None, "Changelogs kept at least.", STORAGE)
    changelog_num_retained_max = Option("changelog.num-retained.max", COUNT, None, "Changelogs kept at most.", STORAGE)
    changelog_time_retained_ms = Option(
        "changelog.time-retained", duration_ms, None, "Age up to which changelogs are kept.", STORAGE
    )
    full_compaction_delta_commits = Option(
        "full-compaction.delta-commits", COUNT, None, "Full compaction after so many commits of a stream.", CHANGES
    )
    lookup_wait = Option("lookup-wait", boolean, True, "A stream's batch waits for its lookup changelog.", CHANGES)
    force_lookup = Option(
        "force-lookup", boolean, False, "Compact as if changelogs were looked up.", ROWS, immutable=True
    )
    delete_force_produce_changelog = Option(
        "delete.force-produce-changelog", boolean, False, "Taken, and not needed: a DELETE emits its changes.", NOTHING
    )


class LogOptions(OptionValues):
    """The log in Kafka."""

    log_system = derived(
        "log.system",
        choice("none", "kafka"),
        None,
        "Where changes go within seconds; kafka once servers are set, else none.",
        CHANGES,
        by=_system,
    )
    log_kafka_bootstrap_servers = Option("log.kafka.bootstrap.servers", text, None, "Brokers.", NOTHING)
    log_topic = Option(
        "log.kafka.topic",
        text,
        None,
        "Topic; default: made from database, table and branch. One that exists must be empty.",
        NOTHING,
    )
    log_topic_id = Option(
        "log.kafka.topic-id",
        text,
        None,
        "Id of the topic that was made with the table.",
        NOTHING,
        stored=Stored.BY_ENGINE,
    )
    log_generation = Option(
        "log.generation",
        integer(0, 2**63 - 1),
        0,
        "Id of the schema version that gave the table its present log.",
        STORAGE,
        stored=Stored.BY_ENGINE,
    )
    log_topic_is_adopted = Option(
        "log.kafka.topic-is-adopted",
        boolean,
        False,
        "The topic was there before the table, and stays when it is dropped.",
        NOTHING,
        essential=True,
        immutable=True,
        stored=Stored.BY_ENGINE,
    )
    log_marker_key = Option(
        "log.marker-key",
        text,
        None,
        "Name of the key in the table's directory that signs what the log says of files.",
        NOTHING,
        stored=Stored.BY_ENGINE,
    )
    log_retention_ms = Option(
        "log.retention", duration_ms, None, "Life of the log; default: the cluster's.", STORAGE, essential=True
    )
    log_consistency = Option(
        "log.consistency",
        choice("transactional", "eventual"),
        "transactional",
        "Visible at the commit, or at once.",
        CHANGES,
        essential=True,
    )
    log_overwrite = Option(
        "log.overwrite",
        choice("none", "changes"),
        "none",
        "What the log gets of commits that bypass it, as overwrites: a control record, or the changes.",
        CHANGES,
    )
    log_changelog_mode = derived(
        "log.changelog-mode",
        _MODE_OR_NONE,
        "auto",
        "auto: upsert with a key, all without.",
        CHANGES,
        by=_mode,
        immutable=True,
    )
    log_key_format = derived(
        "log.key.format",
        choice("json", "avro"),
        None,
        "Format of log keys; default: that of the values, json or avro.",
        STORAGE,
        by=_key_format,
    )
    log_format = Option("log.format", _FORMATS, "debezium-json", "Format of log values.", STORAGE, essential=True)
    log_registry_url = Option("log.schema-registry.url", text, None, "Schema registry of the Avro formats.", NOTHING)
    log_registry_user_info = Option(
        "log.schema-registry.basic-auth.user-info",
        verbatim,
        None,
        "user:password of the registry.",
        NOTHING,
        stored=Stored.BY_OPENER,
        secret=True,
    )
    log_registry_token = Option(
        "log.schema-registry.bearer-auth.token",
        verbatim,
        None,
        "Token of the registry.",
        NOTHING,
        stored=Stored.BY_OPENER,
        secret=True,
    )
    log_registry_ca = Option(
        "log.schema-registry.ssl.ca.location",
        text,
        None,
        "PEM file of the registry's certificate authority.",
        NOTHING,
        stored=Stored.BY_OPENER,
    )
    log_scan = Option(
        "log.scan",
        choice("full", "latest", "from-timestamp"),
        "full",
        "Where a stream starts.",
        CHANGES,
        at=At.STREAM_READ,
    )
    log_scan_timestamp_ms = Option(
        "log.scan.timestamp-mills", NUMBER, None, "Start of a stream, epoch milliseconds.", ROWS | CHANGES, at=At.READ
    )
    log_scan_normalize = Option(
        "log.scan.normalize",
        boolean,
        False,
        "Complete changes by looking up what they replace: -U beside +U.",
        CHANGES,
        at=At.STREAM_READ,
    )
    log_scan_remove_normalize = Option(
        "log.scan.remove-normalize",
        boolean,
        False,
        "Do not complete changes by state (unsafe for aggregates).",
        CHANGES,
        at=At.STREAM_READ,
    )
    streaming_read_mode = Option(
        "streaming-read-mode",
        choice("log", "file"),
        None,
        "Where a stream reads; log once there is one.",
        CHANGES,
        at=At.STREAM_READ,
    )
    log_system_auto_register = Option(
        "log.system.auto-register", boolean, True, "Make and drop the topic with the table.", NOTHING
    )
    log_system_partitions = Option(
        "log.system.partitions", COUNT, None, "Partitions of the topic; must equal bucket.", NOTHING
    )
    log_replication = Option(
        "log.system.replication", integer(1, 32767), 1, "Replicas of the topic.", NOTHING, essential=True
    )
    log_ignore_delete = Option("log.ignore-delete", boolean, False, "No deletes in the log.", CHANGES)
    log_transactional_id_prefix = Option(
        "log.transactional-id.prefix",
        text,
        None,
        "Start of the transactional ids; default: the table's id.",
        NOTHING,
        stored=Stored.BY_ENGINE,
    )
    log_commit_token_topic = Option("log.commit-token.topic", text, None, "Topic of commit tokens.", NOTHING)
    log_turn_lease_ms = Option(
        "log.turn-lease",
        Parser(_lease_ms, duration_ms.kind),
        10_000,
        "Writers of one log wait for each other; one without a sign of life for so long loses its turn.",
        NOTHING,
    )
    log_turn_timeout_ms = Option(
        "log.turn-timeout",
        duration_ms,
        60_000,
        "How long a batch waits for its turn to write the log; a stream waits as long as others make progress.",
        NOTHING,
        at=At.BATCH_WRITE,
    )
    log_header_schema_id = Option(
        "log.header.schema-id", boolean, True, "Schema id of each batch in the header of its last record.", STORAGE
    )
    log_on_offset_lost = Option(
        "log.on-offset-lost",
        choice("fail", "resnapshot", "earliest"),
        "fail",
        "What a reader does after lost offsets.",
        ROWS | CHANGES,
        at=At.READ,
    )
