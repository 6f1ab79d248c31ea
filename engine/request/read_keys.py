"""The options that readers of a table take, by the way of reading: batch reads, streams, and both formats' own keys."""

from typing import Final

from engine.request.branch_choice import READ_BRANCH_KEYS

ROW_KEYS: Final = ("columns", "filter")
"""Options of ``format("fluvial")`` that choose rows and columns."""
FREE_PREFIX: Final = "log.kafka."
"""Options behind it go to the Kafka client as they are."""

PLACES: Final = (
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.version",
    "scan.savepoint-id",
    "scan.watermark",
    "scan.timestamp",
    "log.scan.timestamp-mills",
)
"""Options that choose a place in the table's history."""
SNAPSHOT_PLACES: Final = PLACES[:5]
"""Those of them that name a snapshot: nothing of the log behind it is read."""
OFFSETS: Final = "scan.log.offsets"
BETWEEN: Final = "incremental-between"
BETWEEN_TIMES: Final = "incremental-between-timestamp"
TO_TAG: Final = "incremental-to-auto-tag"
DIFF_MODE: Final = "incremental-between-scan-mode"
DIFF_KEYS: Final = (BETWEEN, BETWEEN_TIMES, TO_TAG, DIFF_MODE)
"""Options that ask for the difference of two states."""
FALLBACK: Final = "scan.fallback-branch"

BATCH_KEYS: Final = (
    *READ_BRANCH_KEYS,
    "scan.mode",
    *PLACES,
    *DIFF_KEYS,
    "scan.log.union",
    OFFSETS,
    "scan.max-staleness",
    "scan.at-least",
    "scan.at-least.timeout",
    "log.on-offset-lost",
    "read.changelog",
    "read.metadata-columns",
    FALLBACK,
)
"""Options of a batch read."""
STREAM_KEYS: Final = (
    *READ_BRANCH_KEYS,
    "log.scan",
    "log.scan.timestamp-mills",
    "log.scan.normalize",
    "log.scan.remove-normalize",
    "log.on-offset-lost",
    "scan.mode",
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.timestamp",
    "scan.at-least",
    "scan.at-least.timeout",
    "read.changelog",
    "read.metadata-columns",
    "read.stream.maxFilesPerTrigger",
    "read.stream.maxBytesPerTrigger",
    "read.stream.maxRowsPerTrigger",
    "read.stream.on-dropped-column",
    "source.checkpoint-align.enabled",
    "source.checkpoint-align.snapshots",
    "source.checkpoint-align.timeout",
    "scan.start-from-job",
    "streaming-read-mode",
    "streaming-read-overwrite",
    "streaming-read-append-overwrite",
    "consumer-id",
    "consumer.mode",
    "consumer.ignore-progress",
)
"""Options of a stream."""
