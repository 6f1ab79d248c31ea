"""How rows become visible and when old states are deleted."""

from typing import Final, Literal, cast

from filestore.options.option import NOTHING, ROWS, STORAGE, At, Option, OptionValues
from filestore.options.parsing import (
    Parser,
    boolean,
    choice,
    duration_ms,
    file_name,
    integer,
    size_bytes,
    text,
    time_of_day_ms,
)
from filestore.options.table.common import COUNT, DAY_MS, INT_MAX, MIB, NUMBER
from filestore.options.time_zone import UTC_ZONE, parse_time_zone

_STRATEGY: Final = cast(Parser[Literal["values-time", "update-time"]], choice("values-time", "update-time"))
_MANIFEST_FORMAT: Final = cast(Parser[Literal["avro", "orc", "parquet"]], choice("avro", "orc", "parquet"))


class CommitOptions(OptionValues):
    """Commits and manifests."""

    commit_user_prefix = Option("commit.user-prefix", file_name, None, "Readable start of commit users.", NOTHING)
    write_stream_commit_user = Option(
        "write.stream.commit-user",
        file_name,
        None,
        "Commit user of a streaming query; default: its id.",
        ROWS,
        at=At.STREAM_WRITE,
    )
    commit_force_compact = Option("commit.force-compact", boolean, False, "Compact before every commit.", STORAGE)
    commit_force_create_snapshot = Option(
        "commit.force-create-snapshot", boolean, False, "Publish empty commits.", STORAGE
    )
    snapshot_ignore_empty_commit = Option(
        "snapshot.ignore-empty-commit", boolean, None, "Leave out empty commits.", STORAGE
    )
    commit_timeout_ms = Option("commit.timeout", duration_ms, None, "Longest commit.", NOTHING)
    commit_max_retries = Option(
        "commit.max-retries", NUMBER, 10, "Attempts after a lost race.", NOTHING, essential=True
    )
    commit_min_retry_wait_ms = Option(
        "commit.min-retry-wait", duration_ms, 10, "First wait between attempts.", NOTHING, essential=True
    )
    commit_max_retry_wait_ms = Option(
        "commit.max-retry-wait", duration_ms, 10_000, "Longest wait between attempts.", NOTHING, essential=True
    )
    commit_strict_mode_last_safe_snapshot = Option(
        "commit.strict-mode.last-safe-snapshot",
        integer(-1),
        None,
        "Fail on commits of other writers after this snapshot.",
        NOTHING,
    )
    commit_callbacks = Option(
        "commit.callbacks",
        text,
        None,
        "Entry points of fluvial.commit-callbacks that are called after commits of rows.",
        NOTHING,
    )
    tag_callbacks = Option("tag.callbacks", text, None, "Python entry points called after a tag.", NOTHING)
    metastore_partitioned_table = Option(
        "metastore.partitioned-table",
        boolean,
        False,
        "List the partitions in the catalog's Hive metastore.",
        NOTHING,
        immutable=True,
    )
    commit_lock = Option(
        "commit.lock",
        choice("auto", "rename", "conditional-put", "jdbc", "file"),
        "auto",
        "How a snapshot is claimed: a file that one writer can create, or under a lock (file; jdbc: the catalog's).",
        NOTHING,
    )
    dynamic_partition_overwrite = Option(
        "dynamic-partition-overwrite",
        boolean,
        True,
        "Overwrite only partitions that get rows.",
        ROWS,
        at=At.BATCH_WRITE,
    )
    overwrite_upgrade = Option("overwrite-upgrade", boolean, True, "Put overwritten files on the top level.", STORAGE)
    write_sequence_number_init_mode = Option(
        "write.sequence-number-init-mode", text, None, "Start of sequence numbers; only the default is supported.", ROWS
    )
    manifest_target_bytes = Option(
        "manifest.target-file-size",
        size_bytes,
        8 * MIB,
        "Size at which a new manifest begins.",
        STORAGE,
        essential=True,
    )
    manifest_merge_min_count = Option(
        "manifest.merge-min-count", COUNT, 30, "Small manifests that are merged.", STORAGE, essential=True
    )
    manifest_full_threshold_bytes = Option(
        "manifest.full-compaction-threshold-size",
        size_bytes,
        16 * MIB,
        "Size that starts a full merge of manifests.",
        STORAGE,
        essential=True,
    )
    manifest_format = Option(
        "manifest.format",
        _MANIFEST_FORMAT,
        "avro",
        "Format of manifests and their lists; Paimon reads one alone in a table.",
        STORAGE,
        essential=True,
        immutable=True,
    )
    manifest_compression = Option(
        "manifest.compression",
        choice("zstd", "zstandard", "deflate", "none", "null", "snappy"),
        "zstd",
        "Compression of manifests.",
        STORAGE,
        essential=True,
    )


class VersionOptions(OptionValues):
    """Snapshots, tags, savepoints, branches."""

    snapshot_num_retained_min = Option("snapshot.num-retained.min", COUNT, 10, "Snapshots kept at least.", STORAGE)
    snapshot_num_retained_max = Option("snapshot.num-retained.max", COUNT, INT_MAX, "Snapshots kept at most.", STORAGE)
    snapshot_time_retained_ms = Option(
        "snapshot.time-retained", duration_ms, DAY_MS, "Age up to which snapshots are kept.", STORAGE
    )
    snapshot_expire_limit = Option("snapshot.expire.limit", COUNT, 50, "Snapshots expired at once.", STORAGE)
    snapshot_expire_execution_mode = Option(
        "snapshot.expire.execution-mode", choice("sync", "async"), "sync", "Who expires.", NOTHING
    )
    snapshot_clean_empty_directories = Option(
        "snapshot.clean-empty-directories", boolean, False, "Remove empty directories.", NOTHING
    )
    sink_process_time_zone = Option(
        "sink.process-time-zone",
        Parser(parse_time_zone, "time zone"),
        UTC_ZONE,
        "Zone of tag.create-time, of savepoint.create-time, and of periods by process time and their names.",
        STORAGE,
    )
    tag_create_time = Option("tag.create-time", text, None, "Time of day of periodic tags.", STORAGE)
    tag_create_interval_ms = Option("tag.create-interval", duration_ms, None, "Days between periodic tags.", STORAGE)
    tag_automatic_creation = Option(
        "tag.automatic-creation",
        choice("none", "process-time", "watermark", "batch"),
        "none",
        "Who creates tags.",
        STORAGE,
    )
    tag_creation_period = Option(
        "tag.creation-period", choice("daily", "hourly", "two-hours"), "daily", "Period of automatic tags.", STORAGE
    )
    tag_creation_period_duration_ms = Option(
        "tag.creation-period-duration", duration_ms, None, "Period of automatic tags, free.", STORAGE
    )
    tag_creation_delay_ms = Option("tag.creation-delay", duration_ms, 0, "Wait after the period's end.", STORAGE)
    tag_period_formatter = Option(
        "tag.period-formatter",
        choice("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
        "Form of the names of automatic tags.",
        NOTHING,
    )
    tag_automatic_completion = Option(
        "tag.automatic-completion", boolean, False, "Fill gaps of automatic tags.", STORAGE
    )
    tag_num_retained_max = Option("tag.num-retained-max", COUNT, None, "Automatic tags kept.", STORAGE)
    tag_default_time_retained_ms = Option(
        "tag.default-time-retained", duration_ms, None, "Life of a tag that names none.", STORAGE
    )
    tag_time_expire_enabled = Option("tag.time-expire-enabled", boolean, True, "Tags expire by time.", STORAGE)
    tag_batch_customized_name = Option("tag.batch.customized-name", file_name, None, "Name of batch tags.", NOTHING)
    tag_create_success_file = Option(
        "tag.create-success-file", boolean, False, "Leave a success file for every tag.", NOTHING
    )
    savepoint_create_interval_ms = Option(
        "savepoint.create-interval", duration_ms, None, "Time between periodic savepoints.", STORAGE
    )
    savepoint_create_time_ms = Option(
        "savepoint.create-time",
        time_of_day_ms,
        None,
        "Time of day of periodic savepoints, hh:mm, daily or at the interval.",
        STORAGE,
    )
    sink_savepoint_auto_tag = Option(
        "sink.savepoint.auto-tag", boolean, False, "Tag every savepoint of the engine.", STORAGE
    )
    scan_fallback_branch = Option(
        "scan.fallback-branch",
        file_name,
        None,
        "Branch of which batch reads take partitions that the table's own lacks.",
        ROWS,
        at=At.BATCH_READ,
    )
    scan_primary_branch = Option(
        "scan.primary-branch",
        file_name,
        None,
        "Branch of which batch reads take the partitions that it has, before the table's own.",
        ROWS,
        at=At.BATCH_READ,
    )
    branch_merge_enabled = Option(
        "branch-merge.enabled",
        boolean,
        False,
        "Taken, and not needed: a branch that does not fit is not merged.",
        NOTHING,
    )


class PartitionOptions(OptionValues):
    """Life of partitions."""

    partition_expiration_time_ms = Option(
        "partition.expiration-time", duration_ms, None, "Age at which partitions are dropped.", ROWS
    )
    partition_expiration_check_interval_ms = Option(
        "partition.expiration-check-interval", duration_ms, 3_600_000, "Time between looks.", ROWS
    )
    partition_expiration_strategy = Option(
        "partition.expiration-strategy", _STRATEGY, "values-time", "What the age is.", ROWS
    )
    partition_expiration_max_num = Option(
        "partition.expiration-max-num", COUNT, 100, "Partitions dropped at once.", ROWS
    )
    partition_timestamp_formatter = Option(
        "partition.timestamp-formatter", text, None, "How partition times are written.", ROWS
    )
    partition_timestamp_pattern = Option(
        "partition.timestamp-pattern", text, None, "Which columns make the time.", ROWS
    )
    partition_mark_done_action = Option(
        "partition.mark-done-action", text, "success-file", "What marks a partition as done.", NOTHING
    )
    partition_idle_time_to_done_ms = Option(
        "partition.idle-time-to-done", duration_ms, None, "Quiet time after which a partition is done.", NOTHING
    )
