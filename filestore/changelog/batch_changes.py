"""The exact changes that the files of a batch make in their bucket, before the files are visible.

The files of the batch are merged with the bucket's rows of the same keys, which are looked up; so changes follow the
table's merge function, for every merge engine. Memory holds a section of the batch and the rows of its keys. The
changes are stale if another writer changes the bucket before the batch is committed.
Source: Paimon LookupChangelogMergeFunctionWrapper.
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

_NEW_LEVEL: Final = 0  # level of a batch's files: lower levels are looked up, never merged


def batch_changes(
    store: TableStore,
    message: CommitMessage,
    live: Sequence[DataFileMeta],
    *,
    deleted: Mapping[str, Positions] | None = None,
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The changes made by new files.

    Args:
        store: a table with a primary key.
        message: the new files of one bucket; their rows are numbered above those of the live files.
        live: all files of the bucket, of every level.
        deleted: deleted positions of these files, by file name.

    Yields:
        Non-empty batches at the newest schema of these files, in key order, and their (n,) int8 row kinds:
        +I, -U and then +U, or -D of the old row. An update that changes nothing is dropped only with
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
    emitted: list[pa.Table] = []
    recorder = change_recorder(newest, emit=emitted.append, below=files_of(files=below, deleted=deleted or {}))
    recording = Recording(merge=recorder, known_level=_NEW_LEVEL + 1)
    files = files_of(files=message.new_files)
    for runs in files.sections():
        for _ in files.merged(runs, newest.schema.column_names, drop_deletes=False, instead=recording):
            yield from _rows_and_kinds(emitted)
            emitted.clear()
    yield from _rows_and_kinds(emitted)


def _rows_and_kinds(emitted: Sequence[pa.Table]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    for changes in emitted:
        for batch in changes.combine_chunks().to_batches():
            rows = batch.drop_columns([SEQUENCE_NUMBER, VALUE_KIND])
            yield rows, batch.column(VALUE_KIND)
