"""How a table is read."""

from typing import Final

from filestore.options.option import CHANGES, NOTHING, ROWS, STORAGE, At, Option, OptionValues, Stored
from filestore.options.parsing import boolean, choice, duration_ms, file_name, integer, names, size_bytes, text
from filestore.options.table.common import COUNT, MIB, NUMBER

_NET: Final = "the difference is always the net one; what each commit changed is read by a stream"


class ReadingOptions(OptionValues):
    """Batch reads and streams."""

    read_verify_checksums = Option(
        "read.verify-checksums",
        boolean,
        True,
        "Compare pages of Parquet files with their checksums; costs 2 to 6 % of the CPU time of a read.",
        NOTHING,
    )
    scan_mode = Option("scan.mode", text, "default", "Where a read starts.", ROWS | CHANGES, at=At.READ)
    scan_snapshot_id = Option("scan.snapshot-id", COUNT, None, "Snapshot to read.", ROWS | CHANGES, at=At.READ)
    scan_tag_name = Option("scan.tag-name", file_name, None, "Tag to read.", ROWS | CHANGES, at=At.READ)
    scan_savepoint_id = Option("scan.savepoint-id", COUNT, None, "Savepoint to read.", ROWS, at=At.BATCH_READ)
    scan_version = Option(
        "scan.version",
        text,
        None,
        "Snapshot, tag, savepoint, time or watermark, perhaps of a branch, as one word.",
        ROWS,
        at=At.BATCH_READ,
    )
    scan_timestamp = Option("scan.timestamp", text, None, "Time to read, as text.", ROWS | CHANGES, at=At.READ)
    scan_watermark = Option(
        "scan.watermark",
        integer(),
        None,
        "Read the first snapshot with this watermark (epoch milliseconds).",
        ROWS,
        at=At.BATCH_READ,
    )
    scan_bounded_watermark = Option(
        "scan.bounded.watermark", integer(), None, "Watermark at which a stream ends.", CHANGES
    )
    incremental_between = Option(
        "incremental-between",
        text,
        None,
        "Net difference of two snapshots or tags.",
        ROWS,
        at=At.BATCH_READ,
        stored=Stored.NEVER,
    )
    incremental_between_timestamp = Option(
        "incremental-between-timestamp",
        text,
        None,
        "Net difference of two times.",
        ROWS,
        at=At.BATCH_READ,
        stored=Stored.NEVER,
    )
    incremental_between_scan_mode = Option(
        "incremental-between-scan-mode",
        choice("auto", "diff", refused=dict.fromkeys(("delta", "changelog"), _NET)),
        "auto",
        "How changes are found: both words mean the net difference.",
        ROWS,
        at=At.BATCH_READ,
    )
    incremental_to_auto_tag = Option(
        "incremental-to-auto-tag",
        text,
        None,
        "Changes up to an automatic tag.",
        ROWS,
        at=At.BATCH_READ,
        stored=Stored.NEVER,
    )
    scan_log_union = Option(
        "scan.log.union", boolean, False, "Batch queries add the tail of the log.", ROWS, at=At.BATCH_READ
    )
    scan_log_offsets = Option(
        "scan.log.offsets",
        text,
        None,
        'Where the tail of the log ends: {"0": 12}, next offsets by bucket.',
        ROWS,
        at=At.BATCH_READ,
    )
    scan_at_least = Option(
        "scan.at-least", text, None, "Handle of a commit that must be visible, as text.", ROWS | CHANGES, at=At.READ
    )
    scan_at_least_timeout_ms = Option(
        "scan.at-least.timeout", duration_ms, 60_000, "Longest wait for it.", NOTHING, at=At.READ
    )
    scan_max_staleness_ms = Option(
        "scan.max-staleness", duration_ms, None, "Oldest acceptable data.", ROWS, at=At.BATCH_READ
    )
    read_metadata_columns = Option(
        "read.metadata-columns",
        names,
        (),
        "Of _log_offset, _log_timestamp, _snapshot_id: added to the rows.",
        ROWS | CHANGES,
        at=At.READ,
    )
    read_changelog = Option("read.changelog", boolean, False, "Rows with their kinds.", ROWS | CHANGES, at=At.READ)
    read_stream_max_files_per_trigger = Option(
        "read.stream.maxFilesPerTrigger", COUNT, None, "Files of a micro-batch.", CHANGES, at=At.STREAM_READ
    )
    read_stream_max_bytes_per_trigger = Option(
        "read.stream.maxBytesPerTrigger", size_bytes, None, "Bytes of a micro-batch.", CHANGES, at=At.STREAM_READ
    )
    read_stream_max_rows_per_trigger = Option(
        "read.stream.maxRowsPerTrigger",
        COUNT,
        None,
        "Rows of a micro-batch, exact for the log; splits of files are not divided.",
        CHANGES,
        at=At.STREAM_READ,
    )
    read_stream_min_rows_per_trigger = Option(
        "read.stream.minRowsPerTrigger", COUNT, None, "Rows that start a micro-batch.", NOTHING
    )
    read_stream_max_trigger_delay_ms = Option(
        "read.stream.maxTriggerDelayMs", NUMBER, None, "Longest wait for them.", NOTHING
    )
    read_stream_on_dropped_column = Option(
        "read.stream.on-dropped-column",
        choice("fail", "null"),
        "fail",
        "What a running stream does when a column that it reads is dropped: stop, or null from then on.",
        CHANGES,
        at=At.STREAM_READ,
    )
    streaming_read_overwrite = Option(
        "streaming-read-overwrite",
        boolean,
        True,
        "Streams see overwrites (Paimon's default: false).",
        CHANGES,
        at=At.STREAM_READ,
    )
    streaming_read_append_overwrite = Option(
        "streaming-read-append-overwrite",
        boolean,
        True,
        "The same of append tables (Paimon's default: false).",
        CHANGES,
        at=At.STREAM_READ,
    )
    streaming_read_snapshot_delay_ms = Option(
        "streaming.read.snapshot.delay", duration_ms, None, "Streams stay behind.", NOTHING
    )
    continuous_discovery_interval_ms = Option(
        "continuous.discovery-interval",
        duration_ms,
        10_000,
        "How often Flink looks for snapshots; streams here look at each trigger.",
        NOTHING,
    )
    source_split_target_size_bytes = Option(
        "source.split.target-size", size_bytes, 128 * MIB, "Size of a read task.", NOTHING
    )
    source_split_open_file_cost_bytes = Option(
        "source.split.open-file-cost", size_bytes, 4 * MIB, "What opening a file counts.", NOTHING
    )
    source_checkpoint_align_enabled = Option(
        "source.checkpoint-align.enabled",
        boolean,
        False,
        "Every micro-batch of a stream ends at a snapshot's end.",
        CHANGES,
        at=At.STREAM_READ,
    )
    source_checkpoint_align_snapshots = Option(
        "source.checkpoint-align.snapshots",
        COUNT,
        1,
        "Only at snapshots whose number is a multiple of this.",
        CHANGES,
        at=At.STREAM_READ,
    )
    source_checkpoint_align_timeout_ms = Option(
        "source.checkpoint-align.timeout",
        duration_ms,
        0,
        "Longest wait of a trigger for that snapshot.",
        NOTHING,
        at=At.STREAM_READ,
    )
    scan_start_from_job = Option(
        "scan.start-from-job",
        text,
        None,
        "Begin at the snapshot that another job has read, by the catalog's lineage.",
        CHANGES,
        at=At.STREAM_READ,
    )
    consumer_id = Option(
        "consumer-id", file_name, None, "Name of a reader whose place is kept.", CHANGES, at=At.STREAM_READ
    )
    consumer_mode = Option(
        "consumer.mode",
        choice("exactly-once", "at-least-once"),
        "exactly-once",
        "Both: kept once a batch is done.",
        NOTHING,
        at=At.STREAM_READ,
    )
    consumer_expiration_time_ms = Option(
        "consumer.expiration-time", duration_ms, None, "Age at which a place is forgotten.", STORAGE
    )
    consumer_ignore_progress = Option(
        "consumer.ignore-progress", boolean, False, "Start again from the start.", CHANGES, at=At.STREAM_READ
    )
    consumer_changelog_only = Option(
        "consumer.changelog-only", boolean, False, "The place holds back changelogs only.", STORAGE
    )
    scan_ignore_corrupt_files = Option(
        "scan.ignore-corrupt-files", boolean, False, "Leave out files that cannot be read.", ROWS
    )
    scan_ignore_lost_files = Option("scan.ignore-lost-files", boolean, False, "Leave out files that are gone.", ROWS)
    scan_plan_auto_tag_for_read_time_retained_ms = Option(
        "scan.plan-auto-tag-for-read.time-retained",
        duration_ms,
        None,
        "Life of the tag that guards a long read.",
        STORAGE,
    )
