"""What the files of a batch change in their bucket: every change exact, before the files are visible.

The files of the batch are merged with what the bucket has of their keys, which is looked up; so a change is what the
table's merge function makes of the batch, for every merge engine. In memory are a section of the batch and the rows of
its keys. What was told is true as long as nobody else changes the bucket before the batch is committed: ``overtaken``.
Source: FL-132, FL-135; Paimon LookupChangelogMergeFunctionWrapper.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from filestore.index.deletion_vectors import Positions
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.read.row_lookup import change_recorder
from filestore.read.split_read import BucketFiles, Recording
from filestore.table_store import TableStore
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND

_NEW_LEVEL: Final = 0  # of the files of a batch: what is below of them is looked up, and never in the merge


def batch_changes(
    store: TableStore,
    message: CommitMessage,
    live: Sequence[DataFileMeta],
    *,
    deleted: Mapping[str, Positions] | None = None,
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The changes that new files make.

    Args:
        store: has a key.
        message: the new files of one bucket; their rows are numbered above those of the live files.
        live: all files of the bucket, of every level.
        deleted: rows of these that are deleted by marks, by name of the file.

    Yields:
        Rows of the table at the newest schema of these files, in key order, never none, and their (n,) int8 row kinds:
        +I, -U and then +U, or -D of the row as it was. An update that changes nothing is left out only with
        ``changelog-producer.row-deduplicate``.
    """
    newest = store.with_columns_of((*message.new_files, *live))
    files_of = partial(BucketFiles, table=newest, partition=message.partition, bucket=message.bucket)
    new = [newest.sorted_file(file) for file in message.new_files]
    below = [
        file
        for file in live
        if any(each.overlaps(keyed.min_key, keyed.max_key) for keyed in [newest.sorted_file(file)] for each in new)
    ]
    told: list[pa.Table] = []
    recorder = change_recorder(newest, emit=told.append, below=files_of(files=below, deleted=deleted or {}))
    recording = Recording(recorder=recorder, known_level=_NEW_LEVEL + 1)
    files = files_of(files=message.new_files)
    for runs in files.sections():
        for _ in files.merged(runs, newest.schema.column_names, drop_deletes=False, recording=recording):
            yield from _rows_and_kinds(told)
            told.clear()
    yield from _rows_and_kinds(told)


def _rows_and_kinds(told: Sequence[pa.Table]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    for changes in told:
        for batch in changes.combine_chunks().to_batches():
            rows = batch.drop_columns([SEQUENCE_NUMBER, VALUE_KIND])
            yield rows, batch.column(VALUE_KIND)
