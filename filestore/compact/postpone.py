"""Postponed buckets (``bucket=-2``): rows are written without a bucket and not visible until a job distributes them.

So the number of buckets of a partition is chosen when its size is known. Each partition has its own number; the first
rows get ``postpone.default-bucket-num``. Postponed rows are in ``bucket-postpone`` as sorted files; distributed they
are level-0 files, in one commit that is the rows' arrival for streams. Source: Paimon PostponeBucketFileStoreWrite.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.bucket_writer import POSTPONE_WRITER
from filestore.write.table_write import TableWrite
from lsm.row_kind import VALUE_KIND
from lsm.undo import undoing, undoing_unless_visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The result of a distribution of postponed rows."""

    committed: CommitResult
    messages: tuple[CommitMessage, ...]  # of the postponed files that are removed, and of the files that are added
    row_count: int  # that had waited


def distribute(store: TableStore, *, keep: Callable[[BucketKey], bool] = lambda _: True) -> Distribution | None:
    """Move postponed rows to their buckets; None when there are none.

    Args:
        store: with postponed buckets.
        keep: whether a partition's rows, addressed by its bucket -2, are to be looked at.

    Raises:
        ConflictError: another writer did it meanwhile, or wrote into these buckets: run it again.
        OutcomeUnknownError: it may be visible; its files stay.
    """
    live = LiveFiles.latest(store)
    waiting = [key for key in live.postponed() if keep(key)]
    if not waiting:
        return None
    written: list[CommitMessage] = []
    with undoing(lambda: discard(store, written)), live.reading():
        counts = live.partition_total_buckets()
        for key in waiting:
            count = counts.get(key.partition) or store.options.postpone_default_bucket_num
            written += _distributed(_with_buckets(store, count), live, key)
    gone = [_gone(key, live.files(key)) for key in waiting]
    commit = TableCommit(store, store.new_commit_user(), history_start=live.snapshot_id)
    with undoing_unless_visible(lambda: discard(store, written)):
        done = commit.commit_distribution([*gone, *written], base=live.ref)
    rows = sum(file.row_count for each in gone for file in each.compact_before)
    return Distribution(committed=done, messages=(*gone, *written), row_count=rows)


def _distributed(store: TableStore, live: LiveFiles, key: BucketKey) -> list[CommitMessage]:
    """Level-0 files of one partition, in the buckets that the table has there."""
    writer = TableWrite(
        TableView(store),
        max_sequence_numbers=lambda partition, bucket: live.max_sequence_number(BucketKey(partition, bucket)),
        takes_stored_rows=True,
        takes_old_rows=True,
    )
    with undoing(writer.abort):
        for rows in _in_order(store, key, live.files(key)):
            writer.write(rows.drop_columns([VALUE_KIND]), rows.column(VALUE_KIND))
        return writer.prepare_commit()


def _with_buckets(store: TableStore, count: int) -> TableStore:
    schema = replace(store.schema, options={**store.schema.options, "bucket": str(count)})
    return replace(store, schema=schema, options=schema.table_options)


def _in_order(store: TableStore, key: BucketKey, files: Iterable[DataFileMeta]) -> Iterator[pa.RecordBatch]:
    """The rows in the order in which they were written: by Fluvial's numbers, else by the times of the files."""
    files = tuple(files)
    are_numbered = all(POSTPONE_WRITER in file.file_name for file in files)
    ordered = sorted(
        files, key=lambda file: (0 if are_numbered else file.creation_time_ms or 0, file.min_sequence_number)
    )
    reader = BucketFiles(table=store, partition=key.partition, bucket=key.bucket, files=files)
    for file in ordered:
        for rows in reader.read(file, store.schema.column_names, with_system=True):
            yield rows.select([*store.schema.column_names, VALUE_KIND])


def _gone(key: BucketKey, files: tuple[DataFileMeta, ...]) -> CommitMessage:
    return CommitMessage(
        partition=key.partition, bucket=key.bucket, total_buckets=POSTPONE_BUCKET, compact_before=files
    )
