"""Procedures that give the rows of append tables an order, for readers that filter by several columns."""

from typing import Final, Literal

import pyarrow as pa

from engine.procedures.maintenance.compaction import chosen_buckets, columns_of_text
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.table import Table
from filestore.compact.compactor import compact_buckets, pick_tasks
from filestore.compact.row_order import RowOrder
from filestore.maintenance.partitions import path_of
from filestore.scan.live_files import LiveFiles
from filestore.types.data_types import parse_columns

OrderStrategy = Literal["order", "zorder", "hilbert"]

_CLUSTERED: Final = parse_columns(
    "partition string, bucket int32, row_count int64, files_before int64, size_before_bytes int64, "
    "files_after int64?, "  # null, like the following: dry run
    "size_after_bytes int64?, snapshot_id int64?"
)


@procedure(_CLUSTERED, aliases={"strategy": "order_strategy"})
def cluster(
    table: Table,
    order_by: str,
    order_strategy: OrderStrategy = "zorder",
    partitions: str | None = None,
    where: str | None = None,
    dry_run: bool = False,
    progress: Progress = silent,
) -> pa.Table:
    """Put the rows of an append table in an order for filters.

    Filters by these columns then read few files and row groups. The rows stay the same, and streams see no change.
    Rows that come later are not in that order.

    Args:
        table: without a key; with buckets only with bucket-append-ordered=false.
        order_by: columns, as "a,b".
        order_strategy: "zorder" and "hilbert" serve filters by any of the columns, "order" mostly those by the first.
        partitions: only these, as "dt=2024-01-31,hour=7;dt=2024-02-01".
        where: only partitions that match this condition on partition columns.
        dry_run: only list what would be rewritten.
        progress: called with the progress.

    Returns:
        One row for each rewritten bucket, which is the whole partition in tables without buckets.

    Raises:
        InvalidInputError: rows of this table cannot get this order.
        ConflictError: other writers kept rewriting the same files: run it again. Nothing is visible.
    """
    store = table.store
    order = RowOrder.of(store.schema, columns_of_text(order_by), order_strategy)
    keep = chosen_buckets(store, partitions=partitions, where=where)
    if dry_run:
        live = LiveFiles.latest(store)
        tasks = pick_tasks(store, live, keys=[key for key in live.buckets() if keep(key)], insists=True, order=order)
        return rows_table(
            _CLUSTERED,
            [
                {
                    "partition": path_of(store, task.partition),
                    "bucket": task.bucket,
                    "row_count": sum(file.row_count for file in task.files),
                    "files_before": len(task.files),
                    "size_before_bytes": task.size_bytes,
                }
                for task in tasks
            ],
        )
    outcome = compact_buckets(store, full=True, keep=keep, order=order, progress=progress)
    snapshot = outcome.committed.snapshot if outcome.committed is not None else None
    return rows_table(
        _CLUSTERED,
        [
            {
                "partition": path_of(store, message.partition),
                "bucket": message.bucket,
                "row_count": sum(file.row_count for file in message.files_after),
                "files_before": len(message.compact_before),
                "size_before_bytes": sum(file.size_bytes for file in message.compact_before),
                "files_after": len(message.files_after),
                "size_after_bytes": sum(file.size_bytes for file in message.files_after),
                "snapshot_id": None if snapshot is None else snapshot.id,
            }
            for message in outcome.messages
        ],
    )
