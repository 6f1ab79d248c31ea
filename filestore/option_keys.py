"""Every option that a table may hold: key, meaning of its text, default, one line of documentation.

A default of None means "not set"; where it depends on other options, ``TableOptions`` says how.
Source: Paimon CoreOptions; ``log.*``, ``compaction.style`` and its three options: FLIP-188; the rest is ours.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from filestore.option_values import (
    Option,
    boolean,
    choice,
    duration_ms,
    fraction,
    integer,
    names,
    per_level,
    size_bytes,
    some_bytes,
    stats_mode,
    text,
    time_of_day_ms,
)

MIB: Final = 1024 * 1024
DAY_MS: Final = 86_400_000
INT_MAX: Final = 2**31 - 1

COUNT: Final = integer(1)
NUMBER: Final = integer(0)
FORMAT: Final = choice("parquet", "orc", "avro")


def _declare(*rows: tuple[str, Callable[[str], Any], Any, str]) -> dict[str, Option[Any]]:
    return {key: Option(key=key, parse=parse, default=default, doc=doc) for key, parse, default, doc in rows}


_SHAPE: Final = _declare(
    ("primary-key", names, (), "Key columns, as an option."),
    ("primary-key.nullable", boolean, False, "Allow nulls in the key (not supported)."),
    ("partition", names, (), "Partition columns, as an option."),
    ("partition.default-name", text, "__DEFAULT_PARTITION__", "Directory of null and blank partition values."),
    ("partition.legacy-name", boolean, True, "Old text of dates and timestamps in partition directories."),
    (
        "bucket",
        integer(-2, INT_MAX),
        -1,
        "Buckets and log partitions; -1: unbucketed (key tables: dynamic); -2: postponed.",
    ),
    ("bucket-key", text, None, "Columns that choose the bucket; default: the key, else the whole row."),
    ("bucket-function.type", choice("default", "mod", "hive"), "default", "How the bucket is computed."),
    ("bucket-append-ordered", boolean, True, "Keep the order of rows in a bucket of an append table."),
    ("dynamic-bucket.target-row-num", COUNT, 2_000_000, "Rows per bucket when dynamic."),
    ("dynamic-bucket.initial-buckets", COUNT, None, "First buckets when dynamic."),
    ("dynamic-bucket.max-buckets", integer(-1), -1, "Most buckets when dynamic."),
    ("path", text, None, "Root path of the table."),
    ("file.path", text, None, "Root path of all tables."),
    ("watermark.column", text, None, "TIMESTAMP column of the watermark."),
    ("watermark.expression", text, None, "SQL of the watermark: rows older than it are late."),
    ("type", text, "table", "Kind of table; only 'table' is supported."),
    ("auto-create", boolean, False, "Make the storage on first use."),
    ("change-tracking", boolean, True, "Emit changes to the log and to changelog files."),
    ("change-tracking.untracked-partitions", text, None, "Partitions without change tracking, a JSON list."),
    ("branch", text, "main", "Branch to read and write, of this reader or writer."),
    ("scan.branch", text, None, "Branch to read, of this reader."),
)
_MERGE: Final = _declare(
    (
        "merge-engine",
        choice("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        "How rows of one key become one row.",
    ),
    ("sequence.field", names, (), "Columns that order the rows of a key."),
    ("sequence.field.sort-order", choice("ascending", "descending"), "ascending", "Direction of sequence.field."),
    ("sequence.snapshot-ordering", boolean, False, "Later snapshots win (not supported)."),
    ("rowkind.field", text, None, "STRING column that holds +I -U +U -D."),
    ("ignore-delete", boolean, False, "Drop deletes and update-befores."),
    ("ignore-update-before", boolean, False, "Drop update-befores."),
    ("fields.default-aggregate-function", text, None, "Aggregate function of columns that name none."),
    ("partial-update.remove-record-on-delete", boolean, False, "A delete removes the row."),
    ("partial-update.remove-record-on-sequence-group", text, None, "A delete of these groups removes the row."),
    ("aggregation.remove-record-on-delete", boolean, False, "A delete removes the row."),
    ("record-level.expire-time", duration_ms, None, "Age at which compaction drops a row."),
    ("record-level.time-field", text, None, "Column that holds the age of a row."),
)
_CHANGELOG: Final = _declare(
    (
        "changelog-producer",
        choice("none", "input", "lookup", "full-compaction"),
        "none",
        "Where changelog files come from.",
    ),
    ("changelog-producer.row-deduplicate", boolean, False, "Leave out updates that change nothing."),
    ("changelog-file.format", FORMAT, None, "Format of changelog files."),
    ("changelog-file.compression", text, None, "Compression of changelog files."),
    ("changelog-file.prefix", text, "changelog-", "Start of the names of changelog files."),
    ("changelog-file.stats-mode", stats_mode, None, "Statistics of changelog files."),
    ("changelog.num-retained.min", COUNT, None, "Changelogs kept at least."),
    ("changelog.num-retained.max", COUNT, None, "Changelogs kept at most."),
    ("changelog.time-retained", duration_ms, None, "Age up to which changelogs are kept."),
    ("full-compaction.delta-commits", COUNT, None, "Full compaction after so many commits of a stream."),
    ("lookup-wait", boolean, True, "A stream's batch waits for its lookup changelog."),
    ("force-lookup", boolean, False, "Compact as if changelogs were looked up."),
    ("delete.force-produce-changelog", boolean, False, "DELETE statements emit a changelog."),
)
_LOG: Final = _declare(
    ("log.system", choice("none", "kafka"), None, "Where changes go within seconds; kafka once servers are set."),
    ("log.kafka.bootstrap.servers", text, None, "Brokers."),
    ("log.kafka.topic", text, None, "Topic; default: from database, table and branch."),
    ("log.retention", duration_ms, None, "Life of the log; default: the cluster's."),
    ("log.consistency", choice("transactional", "eventual"), "transactional", "Visible at the commit, or at once."),
    ("log.changelog-mode", choice("auto", "upsert", "all"), "auto", "auto: upsert with a key, all without."),
    ("log.key.format", choice("json"), "json", "Format of log keys."),
    ("log.format", choice("debezium-json", "json"), "debezium-json", "Format of log values."),
    ("log.scan", choice("full", "latest", "from-timestamp"), "full", "Where a stream starts."),
    ("log.scan.timestamp-mills", NUMBER, None, "Start of a stream, epoch milliseconds."),
    ("log.scan.normalize", boolean, False, "Complete changes by looking up what they replace: -U beside +U."),
    ("log.scan.remove-normalize", boolean, False, "Do not complete changes by state (unsafe for aggregates)."),
    ("streaming-read-mode", choice("log", "file"), None, "Where a stream reads; log once there is one."),
    ("log.system.auto-register", boolean, True, "Make and drop the topic with the table."),
    ("log.system.partitions", COUNT, None, "Partitions of the topic; must equal bucket."),
    ("log.system.replication", integer(1, 32767), 1, "Replicas of the topic."),
    ("log.ignore-delete", boolean, False, "No deletes in the log."),
    ("log.transactional-id.prefix", text, None, "Start of the transactional ids; default: the table's id."),
    ("log.commit-token.topic", text, None, "Topic of commit tokens."),
    ("log.header.schema-id", boolean, True, "Schema id in a header of every record."),
    ("log.on-offset-lost", choice("fail", "resnapshot", "earliest"), "fail", "What a reader does after lost offsets."),
)
_FILES: Final = _declare(
    ("write-buffer-size", size_bytes, 64 * MIB, "Memory of a write task."),
    ("write-buffer-spillable", boolean, True, "Spill the write buffer to disk."),
    ("write-buffer-spill.max-disk-size", size_bytes, None, "Disk for spilled buffers."),
    ("sort-spill-buffer-size", size_bytes, 64 * MIB, "Memory of a sort before it spills."),
    ("sort-spill-threshold", integer(2), None, "Readers merged at once."),
    ("local-merge-buffer-size", size_bytes, None, "Memory to merge rows before the shuffle."),
    ("write-only", boolean, False, "Neither compact nor expire."),
    ("target-file-size", size_bytes, None, "Size at which a new file begins; 128 mb, append tables 256 mb."),
    ("target-file-row-num", COUNT, None, "Rows at which a new file begins."),
    ("file.format", FORMAT, "parquet", "Format of data files."),
    ("file.format.per.level", per_level, {}, "Format by level."),
    ("file.compression", text, "zstd", "Compression of data files."),
    ("file.compression.zstd-level", integer(-7, 22), 1, "Effort of zstd."),
    ("file.compression.per.level", per_level, {}, "Compression by level."),
    ("file.block-size", size_bytes, None, "Row group or stripe size."),
    ("data-file.prefix", text, "data-", "Start of the names of data files."),
    ("data-file.thin-mode", boolean, False, "Leave the key columns out of data files."),
    ("data-file.path-directory", text, None, "Directory in front of the partitions."),
    ("data-file.external-paths", text, None, "Other places for data files (not supported)."),
    ("file.suffix.include.compression", boolean, False, "Compression in file names."),
    ("metadata.stats-mode", stats_mode, "truncate(16)", "Statistics of columns in manifests."),
    ("metadata.stats-mode.per.level", text, None, "Statistics by level."),
    ("file-index.in-manifest-threshold", size_bytes, 500, "Largest index inside a manifest."),
    ("file-index.read.enabled", boolean, True, "Use file indexes."),
    ("deletion-vectors.enabled", boolean, False, "Delete marks."),
    ("deletion-vectors.bitmap64", boolean, False, "64-bit delete marks."),
    ("deletion-vectors.merge-on-read", boolean, False, "Read level 0 of tables with delete marks."),
    ("index-file-in-data-file-dir", boolean, False, "Index files beside the data."),
)
_COMPACTION: Final = _declare(
    ("num-sorted-run.compaction-trigger", COUNT, 5, "Runs that start a compaction."),
    ("num-sorted-run.stop-trigger", COUNT, None, "Runs that stop writing; default trigger + 3."),
    ("num-levels", integer(2), None, "Levels of the tree; default trigger + 1."),
    ("compaction.max-size-amplification-percent", NUMBER, 200, "Waste that starts a full compaction."),
    ("compaction.size-ratio", integer(0, 100), 1, "Slack between the sizes of merged runs, percent."),
    ("compaction.optimization-interval", duration_ms, None, "Full compaction at intervals."),
    ("compaction.total-size-threshold", size_bytes, None, "Full compaction of anything smaller."),
    ("compaction.incremental-size-threshold", size_bytes, None, "Full compaction after so much new data."),
    ("compaction.min.file-num", integer(2), 5, "Files of an append table that start a compaction."),
    ("compaction.small-file-ratio", fraction, 0.7, "A file below this part of the target is small."),
    ("compaction.delete-ratio-threshold", fraction, 0.2, "Deleted part at which a file is rewritten."),
    ("compaction.force-up-level-0", boolean, False, "Always take level 0."),
    ("compaction.force-rewrite-all-files", boolean, False, "Full compactions rewrite every file."),
    ("compaction.offpeak.start.hour", integer(-1, 23), -1, "First hour off the peak."),
    ("compaction.offpeak.end.hour", integer(-1, 23), -1, "End of the hours off the peak."),
    ("compaction.offpeak-ratio", integer(0, 100), 0, "Slack off the peak, percent."),
    ("compaction.style", choice("universal", "leveled"), "universal", "Strategy."),
    ("level0_file_num_compaction_trigger", COUNT, 4, "Level-0 files that start a leveled compaction."),
    ("max_bytes_for_level_base", some_bytes, 1024 * MIB, "Size of level 1."),
    ("max_bytes_for_level_multiplier", integer(2), 5, "Growth of the levels."),
    ("compaction.lease-timeout", duration_ms, 300_000, "Life of a compactor's claim."),
    (
        "write.backpressure",
        choice("off", "soft", "hard", "soft+hard"),
        "soft+hard",
        "How writing waits for compaction.",
    ),
)
_COMMIT: Final = _declare(
    ("commit.user-prefix", text, None, "Readable start of commit users."),
    ("write.stream.commit-user", text, None, "Commit user of a streaming query; default: its id."),
    ("commit.force-compact", boolean, False, "Compact before every commit."),
    ("commit.force-create-snapshot", boolean, False, "Publish empty commits."),
    ("snapshot.ignore-empty-commit", boolean, None, "Leave out empty commits."),
    ("commit.timeout", duration_ms, None, "Longest commit."),
    ("commit.max-retries", NUMBER, 10, "Attempts after a lost race."),
    ("commit.min-retry-wait", duration_ms, 10, "First wait between attempts."),
    ("commit.max-retry-wait", duration_ms, 10_000, "Longest wait between attempts."),
    ("commit.strict-mode.last-safe-snapshot", integer(-1), None, "Fail on foreign commits after this snapshot."),
    ("commit.callbacks", text, None, "Python entry points called after a commit."),
    ("tag.callbacks", text, None, "Python entry points called after a tag."),
    (
        "commit.lock",
        choice("auto", "rename", "conditional-put", "jdbc", "file"),
        "auto",
        "How a snapshot is claimed: a file that only one can create, or under a lock (file, jdbc: the catalog's).",
    ),
    ("dynamic-partition-overwrite", boolean, True, "Overwrite only partitions that get rows."),
    ("overwrite-upgrade", boolean, True, "Put overwritten files on the top level."),
    ("write.sequence-number-init-mode", text, None, "Start of sequence numbers; only the default is supported."),
    ("manifest.target-file-size", size_bytes, 8 * MIB, "Size at which a new manifest begins."),
    ("manifest.merge-min-count", COUNT, 30, "Small manifests that are merged."),
    ("manifest.full-compaction-threshold-size", size_bytes, 16 * MIB, "Size that starts a full merge of manifests."),
    (
        "manifest.compression",
        choice("zstd", "zstandard", "deflate", "none", "null", "snappy"),
        "zstd",
        "Compression of manifests.",
    ),
)
_VERSIONS: Final = _declare(
    ("snapshot.num-retained.min", COUNT, 10, "Snapshots kept at least."),
    ("snapshot.num-retained.max", COUNT, INT_MAX, "Snapshots kept at most."),
    ("snapshot.time-retained", duration_ms, DAY_MS, "Age up to which snapshots are kept."),
    ("snapshot.expire.limit", COUNT, 50, "Snapshots expired at once."),
    ("snapshot.expire.execution-mode", choice("sync", "async"), "sync", "Who expires."),
    ("snapshot.clean-empty-directories", boolean, False, "Remove empty directories."),
    ("tag.create-time", text, None, "Time of day of periodic tags."),
    ("tag.create-interval", duration_ms, None, "Days between periodic tags."),
    ("tag.automatic-creation", choice("none", "process-time", "watermark", "batch"), "none", "Who creates tags."),
    ("tag.creation-period", choice("daily", "hourly", "two-hours"), "daily", "Period of automatic tags."),
    ("tag.creation-period-duration", duration_ms, None, "Period of automatic tags, free."),
    ("tag.creation-delay", duration_ms, 0, "Wait after the period's end."),
    (
        "tag.period-formatter",
        choice("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
        "Form of the names of automatic tags.",
    ),
    ("tag.automatic-completion", boolean, False, "Fill gaps of automatic tags."),
    ("tag.num-retained-max", COUNT, None, "Automatic tags kept."),
    ("tag.default-time-retained", duration_ms, None, "Life of a tag that names none."),
    ("tag.time-expire-enabled", boolean, True, "Tags expire by time."),
    ("tag.batch.customized-name", text, None, "Name of batch tags."),
    ("tag.create-success-file", boolean, False, "Leave a success file for every tag."),
    ("savepoint.create-interval", duration_ms, None, "Time between periodic savepoints."),
    ("savepoint.create-time", time_of_day_ms, None, "Time of day (UTC) of periodic savepoints, hh:mm."),
    ("sink.savepoint.auto-tag", boolean, False, "Tag every savepoint of the engine."),
    ("scan.fallback-branch", text, None, "Branch of which batch reads take partitions that the table's own lacks."),
    ("scan.primary-branch", text, None, "Branch whose partitions come first."),
    ("branch-merge.enabled", boolean, False, "Guard of append-only merges."),
)
_PARTITIONS: Final = _declare(
    ("partition.expiration-time", duration_ms, None, "Age at which partitions are dropped."),
    ("partition.expiration-check-interval", duration_ms, 3_600_000, "Time between looks."),
    ("partition.expiration-strategy", choice("values-time", "update-time"), "values-time", "What the age is."),
    ("partition.expiration-max-num", COUNT, 100, "Partitions dropped at once."),
    ("partition.timestamp-formatter", text, None, "How partition times are written."),
    ("partition.timestamp-pattern", text, None, "Which columns make the time."),
    ("partition.mark-done-action", text, "success-file", "What marks a partition as done."),
    ("partition.idle-time-to-done", duration_ms, None, "Quiet time after which a partition is done."),
)
_READS: Final = _declare(
    ("scan.mode", text, "default", "Where a read starts."),
    ("scan.snapshot-id", COUNT, None, "Snapshot to read."),
    ("scan.tag-name", text, None, "Tag to read."),
    ("scan.savepoint-id", COUNT, None, "Savepoint to read."),
    ("scan.version", text, None, "Snapshot, tag, savepoint, time or watermark, perhaps of a branch, as one word."),
    ("scan.timestamp", text, None, "Time to read, as text."),
    ("scan.watermark", integer(), None, "Read the first snapshot with this watermark (epoch milliseconds)."),
    ("scan.bounded.watermark", integer(), None, "Watermark at which a stream ends."),
    ("incremental-between", text, None, "Changes between two snapshots or tags."),
    ("incremental-between-timestamp", text, None, "Changes between two times."),
    ("incremental-between-scan-mode", choice("auto", "delta", "changelog", "diff"), "auto", "How changes are found."),
    ("incremental-to-auto-tag", text, None, "Changes up to an automatic tag."),
    ("scan.log.union", boolean, False, "Batch queries add the tail of the log."),
    ("scan.log.offsets", text, None, 'Where the tail of the log ends: {"0": 12}, next offsets by bucket.'),
    ("scan.at-least", text, None, "Handle of a commit that must be visible: <snapshot>[:<bucket>=<offset>,...]."),
    ("scan.at-least.timeout", duration_ms, 60_000, "Longest wait for it."),
    ("scan.max-staleness", duration_ms, None, "Oldest acceptable data."),
    ("read.metadata-columns", names, (), "Of _log_offset, _log_timestamp, _snapshot_id: added to the rows."),
    ("read.changelog", boolean, False, "Rows with their kinds."),
    ("read.stream.maxFilesPerTrigger", COUNT, None, "Files of a micro-batch."),
    ("read.stream.maxBytesPerTrigger", size_bytes, None, "Bytes of a micro-batch."),
    ("read.stream.maxRowsPerTrigger", COUNT, None, "Rows of a micro-batch."),
    ("read.stream.minRowsPerTrigger", COUNT, None, "Rows that start a micro-batch."),
    ("read.stream.maxTriggerDelayMs", NUMBER, None, "Longest wait for them."),
    ("streaming-read-overwrite", boolean, True, "Streams see overwrites (Paimon's default: false)."),
    ("streaming-read-append-overwrite", boolean, True, "The same of append tables (Paimon's default: false)."),
    ("streaming.read.snapshot.delay", duration_ms, None, "Streams stay behind."),
    ("continuous.discovery-interval", duration_ms, 10_000, "Time between looks for snapshots."),
    ("source.split.target-size", size_bytes, 128 * MIB, "Size of a read task."),
    ("source.split.open-file-cost", size_bytes, 4 * MIB, "What opening a file counts."),
    ("source.checkpoint-align.enabled", boolean, False, "One snapshot per micro-batch."),
    ("source.checkpoint-align.timeout", duration_ms, 30_000, "Longest wait for alignment."),
    ("consumer-id", text, None, "Name of a reader whose place is kept."),
    ("consumer.mode", choice("exactly-once", "at-least-once"), "exactly-once", "Both: kept once a batch is done."),
    ("consumer.expiration-time", duration_ms, None, "Age at which a place is forgotten."),
    ("consumer.ignore-progress", boolean, False, "Start anew."),
    ("consumer.changelog-only", boolean, False, "The place holds back changelogs only."),
    ("scan.ignore-corrupt-files", boolean, False, "Leave out files that cannot be read."),
    ("scan.ignore-lost-files", boolean, False, "Leave out files that are gone."),
    ("scan.plan-auto-tag-for-read.time-retained", duration_ms, None, "Life of the tag that guards a long read."),
)
_SCHEMA: Final = _declare(
    ("write.merge-schema", boolean, False, "New columns of the input become columns of the table."),
    ("write.merge-schema.type-widening", boolean, False, "Wider types of the input widen the column."),
    ("write.merge-schema.explicit-cast", boolean, False, "Cast input that does not widen."),
    ("alter-column-null-to-not-null.disabled", boolean, True, "Columns cannot become NOT NULL."),
    ("disable-explicit-type-casting", boolean, False, "Only widening changes of types."),
)
# Switches of formats that we refuse; known so that the message says so.
_REFUSED: Final = _declare(
    ("row-tracking.enabled", boolean, False, "Row ids (not supported)."),
    ("data-evolution.enabled", boolean, False, "Files with part of the columns (not supported)."),
    ("pk-clustering-override", boolean, False, "Files not sorted by the key (not supported)."),
    ("chain-table.enabled", boolean, False, "Chain tables (not supported)."),
)

OPTIONS: Final[Mapping[str, Option[Any]]] = {
    **_SHAPE, **_MERGE, **_CHANGELOG, **_LOG, **_FILES, **_COMPACTION, **_COMMIT,
    **_VERSIONS, **_PARTITIONS, **_READS, **_SCHEMA, **_REFUSED,
}  # fmt: skip

ALIASES: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "log.kafka.bootstrap.servers",
    "log.properties.bootstrap.servers": "log.kafka.bootstrap.servers",
    "kafka.topic": "log.kafka.topic",
    "scan.timestamp-millis": "log.scan.timestamp-mills",
    "log.scan.timestamp-millis": "log.scan.timestamp-mills",
    "scan.remove-normalize": "log.scan.remove-normalize",
    "on-data-loss": "log.on-offset-lost",
    "file.root-path": "file.path",
    "universal_sort_run_num_compaction_trigger": "num-sorted-run.compaction-trigger",
    "universal_max_size_amplification_percent": "compaction.max-size-amplification-percent",
    "universal_size_ratio": "compaction.size-ratio",
    "write.type-widening": "write.merge-schema.type-widening",
    "write.explicit-cast": "write.merge-schema.explicit-cast",
}

# fields.<column>.<suffix>: the rest of the key, and how its value is understood.
FIELD_SUFFIXES: Final[Mapping[str, Callable[[str], Any]]] = {
    "aggregate-function": text,
    "ignore-retract": boolean,
    "sequence-group": names,
    "distinct": boolean,
    "list-agg-delimiter": str,
    "nested-key": names,
    "count-limit": COUNT,
    "stats-mode": stats_mode,
}
# Keys of which everything behind the prefix is handed on.
FREE_PREFIXES: Final = ("log.kafka.", "file-index.", "computed-column.", "computed-column-comment.")

# Of options.md, but not of a table: said so instead of "unknown".
ELSEWHERE: Final[Mapping[str, str]] = {
    key: owner
    for owner, keys in {
        "the catalog": (
            "warehouse metastore uri catalog-key jdbc.user s3.endpoint s3.region s3.access-key s3.secret-key"
            " s3.session-token s3.path.style.access lock.enabled lock.type lock-acquire-timeout lock-check-max-sleep"
            " catalog-options-table.enabled cache-enabled cache.expire-after-write"
            " table-lineage data-lineage lineage-meta jdbc.driver jdbc.url jdbc.username jdbc.password jdbc.database"
        ),
        "the query": "txnAppId txnVersion pipeline.name",
        "the ingest job": (
            "value.format including_tables excluding_tables including_dbs excluding_dbs table_prefix table_suffix"
            " table_mapping type_mapping computed_column metadata_column metadata_column_prefix primary_keys"
            " partition_keys sync_primary_keys_from_source_schema ignore_incompatible eager_init"
            " ingest.dead-letter.table ingest.keep-deletes ingest.nested-as-variant"
        ),
    }.items()
    for key in keys.split()
}

# What cannot change once rows were written, because files already on disk depend on it.
IMMUTABLE_KEYS: Final = frozenset(
    {
        "aggregation.remove-record-on-delete",
        "bucket",
        "bucket-function.type",
        "bucket-key",
        "data-evolution.enabled",
        "data-file.path-directory",
        "force-lookup",
        "index-file-in-data-file-dir",
        "log.changelog-mode",
        "merge-engine",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
        "partition",
        "pk-clustering-override",
        "primary-key",
        "row-tracking.enabled",
        "rowkind.field",
        "sequence.snapshot-ordering",
        "type",
    }
)
