"""With log.consistency=eventual, rows that a dead writer left in the log are followed by what the table has instead.

Rows of a batch are visible to readers of the log before a snapshot has them. Where the batch never ends, its last chunk
is the end of a bucket, behind the table's position. For each key of such rows the next writer appends the row of the
newest snapshot, or a delete, as a chunk of its own batch: a reader that folds by key then shows what the table has. A
writer that dies on the way leaves more of such rows, with the same keys.
"""

import logging
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from engine.log.bucket_log import BucketLog
from engine.log.log_rows import log_rows
from engine.log.table_log import TableLog
from engine.types.row_changes import RowChanges
from engine.write.unavailable.newest_rows import SnapshotRows, places_among
from filestore.table_view import TableView
from logstore.log.marker import LogTail
from logstore.offsets import LogRange
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order
from lsm.row_kind import RowKind
from lsm.undo import undoing

logger = logging.getLogger("fluvial.log")


def correct_dead_rows(
    table: TableView,
    log: TableLog,
    tails: Mapping[int, LogTail],
    known: Mapping[int, int],
    *,
    query: str,
    batch: int,
    check: Callable[[], object],
) -> dict[int, int]:
    """Append what the table has of the keys that dead batches left in the log.

    Args:
        table: the table, at the newest snapshot.
        log: its log; every other writer of it is fenced.
        tails: the ends of its buckets.
        known: next offset of each bucket by the newest snapshot.
        query: of the chunks that are written.
        batch: of that query; another attempt at it does the same again.
        check: raises ConflictError once another writer has the turn; called before a bucket is written.

    Returns:
        The next offset of each bucket that was corrected, for the next snapshot.

    Raises:
        ConflictError: another writer took over.
        CorruptDataError: a record cannot be decoded.
        OutcomeUnknownError: the rows may be there: the next attempt finds out.
        UnavailableError: the brokers do not answer.
    """
    if not log.is_eventual:
        return {}
    ends = {}
    for bucket, tail in tails.items():
        first = known.get(bucket, log.first_offset)
        if tail.has_unended_batch(first):
            check()
            ends[bucket] = _corrected(
                table, log, LogRange(bucket=bucket, start_offset=first, end_offset=tail.end_offset), query, batch
            )
            logger.warning(
                "rows that a dead writer left in the log are followed by those of the table: table=%s topic=%s "
                "bucket=%d first_offset=%d end_offset=%d",
                table.name, log.topic, bucket, first, tail.end_offset,
            )  # fmt: skip
    return ends


def _corrected(table: TableView, log: TableLog, dead: LogRange, query: str, batch: int) -> int:
    store = table.store
    newest, names = SnapshotRows(store), list(table.schema.primary_keys)
    bucket_log = BucketLog(log, store, dead.bucket, query=query, batch=batch)
    with undoing(bucket_log.abort):
        bucket_log.open(known_end=dead.start_offset)
        bucket_log.begin(table.schema.id)
        for changes in log_rows(table, log, dead, columns=table.schema.column_names, needed_of_deletes=()):
            for rows, kind in _instead(changes, newest, names):
                bucket_log.append(rows, pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows))
        end = bucket_log.end_chunk()
    bucket_log.close()
    return dead.end_offset if end is None else end


def _instead(changes: RowChanges, newest: SnapshotRows, names: list[str]) -> list[tuple[pa.RecordBatch, RowKind]]:
    """The table's rows of the changed keys, and deletes of the keys that the table does not have."""
    rows = pa.Table.from_batches([changes.rows])
    order, starts = key_order([one_chunk(rows.column(name)) for name in names], presorted=False)
    last = rows.take(pa.array(order[np.append(starts[1:], True)]))
    found = newest.find(last.select(names))
    is_gone = pa.array(places_among(last.select(names), found.select(names)) < 0)
    parts = ((found.select(rows.column_names), RowKind.UPDATE_AFTER), (last.filter(is_gone), RowKind.DELETE))
    return [(part.combine_chunks().to_batches()[0], kind) for part, kind in parts if part.num_rows]
