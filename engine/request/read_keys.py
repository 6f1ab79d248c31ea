"""The options that readers of a table take, by the way of reading: batch reads, streams, and both formats' own keys."""

from collections.abc import Mapping
from typing import Final

from filestore.options.option import At
from filestore.options.table_options import TableOptions, keys_at

TIMESTAMP: Final = "log.scan.timestamp-mills"
PLACES: Final = (
    "scan.snapshot-id",
    "scan.tag-name",
    "scan.version",
    "scan.savepoint-id",
    "scan.watermark",
    "scan.timestamp",
    TIMESTAMP,
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

BATCH_KEYS: Final = keys_at(At.BATCH_READ)
"""Options of a batch read."""
STREAM_KEYS: Final = keys_at(At.STREAM_READ)
"""Options of a stream."""
_WITH_WAITING_ROWS: Final = {TableOptions.deletion_vectors_merge_on_read.key: "true"}


def rows_to_change(given: Mapping[str, str]) -> dict[str, str]:
    """The options of a read whose rows are written back: rows that wait for a compaction are among them.

    They are of the present, where the reader names no state; one that the table has for reads does not count.
    """
    chosen = given.keys() & {"scan.mode", OFFSETS, *PLACES, *DIFF_KEYS}
    return {**given, **_WITH_WAITING_ROWS, **({} if chosen else {"scan.mode": "latest"})}


CHANGES_OPTION: Final = "fluvial.changes"
"""Option that only the catalog in Spark's SQL gives: which changes it asks for, as JSON."""
