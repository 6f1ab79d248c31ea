"""The writer of one bucket: rows in, data files and a commit message out.

``BucketWriter`` has two forms. Of a table with a key, rows gather in a memtable and each flush leaves sorted level-0
files with every key once. Of an append table, rows are written in the order in which they were given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from filestore.datafile.rolling_writer import APPEND_SOURCE, RollingWriter, delete_written_files
from filestore.io.held_files import HeldFiles, NewFiles
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.options.table_options import TableOptions
from filestore.schema.merge_engine import merge_function, resets_on_delete
from filestore.table_store import TableStore
from lsm.keys.keys import key_order
from lsm.memtable import FLUSHED_BYTES, MemTable
from lsm.row_kind import SEQUENCE_NUMBER_FIELD
from lsm.undo import undoing


class BucketWriter(Protocol):
    """Takes the rows of one bucket. After an error only ``abort`` may be called."""

    partition: bytes
    bucket: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows that are in memory."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows: the table's columns, and ``_VALUE_KIND`` when the table has a key."""

    def flush(self) -> None:
        """Write what is in memory to files."""

    def encode(self) -> bool:
        """Make the file of a few rows in memory, so that ``finish`` only writes it; False: ``finish`` does it all."""

    def finish(self) -> None:
        """Write what is in memory, and finish the files that are open."""

    def prepare_commit(self) -> CommitMessage:
        """Finish, and hand over the files written since the last call."""

    def abort(self) -> None:
        """Delete the files that were not handed over."""


def bucket_writer(
    store: TableStore, partition: bytes, bucket: int, *, max_sequence_number: int, budget_bytes: int
) -> BucketWriter:
    """A writer of one bucket.

    Args:
        store: to write to.
        partition: BinaryRow bytes.
        bucket: number; 0 for a table without buckets.
        max_sequence_number: highest number in the bucket; the first row gets the next one.
        budget_bytes: size from which on the memtable calls itself full.
    """
    if store.has_key:
        return _KeyWriter(store, partition, bucket, max_sequence_number + 1, budget_bytes)
    return _AppendWriter(store, partition, bucket, max_sequence_number + 1)


_SMALL_BYTES: Final = 1 << 20  # of a writer; sorting larger ones alone costs as little
_HELD_BYTES: Final = 64 << 10  # of the rows of a file made in memory; larger ones are encoded side by side

POSTPONE_WRITER: Final = "-u-fluvial-s-0-w-"
"""Part of the names of postponed files, by which Java knows their writer; it reads those of one writer in order."""


def _options(options: TableOptions, bucket: int) -> TableOptions:
    if bucket != POSTPONE_BUCKET:
        return options
    return options.with_texts({"data-file.prefix": f"{options.data_file_prefix}{POSTPONE_WRITER}"})


class _Files:
    """Files that a writer finished and has not handed over."""

    def __init__(self, store: TableStore, partition: bytes, bucket: int) -> None:
        self.table = store
        self.partition = partition
        self.bucket = bucket
        self.finished: list[DataFileMeta] = []
        self.changelog: list[DataFileMeta] = []
        self._held: HeldFiles | None = None
        self._place = store.new_files(partition, bucket)

    def hold(self, rows: Iterable[pa.Table | pa.RecordBatch]) -> None:
        """Make files that are finished when ``write_held`` has written them."""
        held = HeldFiles()
        self.finished += write_files(self.rolling_writer(io=held), rows)
        self._held = held

    def write_held(self) -> None:
        """Write the files of ``hold``."""
        held, self._held = self._held, None
        if held is not None:
            held.write_to(self.table.io)

    def rolling_writer(self, *, changelog: bool = False, io: NewFiles | None = None) -> RollingWriter:
        """A writer of level-0 files with new rows, into the table or elsewhere."""
        table = self.table
        return RollingWriter(
            io=io or table.io,
            names=table.names,
            clock=table.clock,
            place=self._place,
            schema=table.schema,
            options=_options(table.options, self.bucket),
            level=0,
            file_source=APPEND_SOURCE,
            key_values=table.has_key,
            changelog=changelog,
        )

    def message(self) -> CommitMessage:
        """The commit message of the finished files; from now on the committer deletes them."""
        files, self.finished = self.finished, []
        changelog, self.changelog = self.changelog, []
        return CommitMessage(
            partition=self.partition,
            bucket=self.bucket,
            total_buckets=self.table.options.bucket,
            new_files=tuple(files),
            changelog_files=tuple(changelog),
        )

    def delete(self) -> None:
        """Remove the finished files."""
        delete_written_files(self.table.io, self._place.bucket_dir, (*self.finished, *self.changelog))
        self.finished.clear()
        self.changelog.clear()


class _KeyWriter:
    """Rows of a table with a key."""

    def __init__(
        self, store: TableStore, partition: bytes, bucket: int, next_sequence_number: int, budget_bytes: int
    ) -> None:
        self.partition = partition
        self.bucket = bucket
        self._files = _Files(store, partition, bucket)
        self._memtable = MemTable(
            key_names=store.schema.trimmed_primary_keys,
            merge=merge_function(store.schema, store.options),
            sequence_names=store.options.sequence_fields,
            sequence_descending=store.options.sequence_descending,
            resets_on_delete=resets_on_delete(store.options),
            budget_bytes=budget_bytes,
            next_sequence_number=next_sequence_number,
        )
        self._key_names = store.schema.trimmed_primary_keys
        self._keeps_changes = store.options.changelog_producer == "input"
        self._ready: pa.Table | None = None  # rows of ``sort_together``, to be written
        self._ready_bytes = 0  # about
        self._changes: list[pa.RecordBatch] = []  # every row with its number, for the changelog file

    @property
    def size_bytes(self) -> int:
        return self._memtable.size_bytes * (2 if self._keeps_changes else 1)

    def write(self, rows: pa.RecordBatch) -> None:
        if self._keeps_changes:
            self._changes.append(_numbered(rows, self._memtable.next_sequence_number))
        self._memtable.add(rows)

    @staticmethod
    def sort_together(writers: Sequence["_KeyWriter"]) -> None:
        """See ``sort_small``."""
        sizes = [each._memtable.size_bytes for each in writers]
        ready = MemTable.flush_together([each._memtable for each in writers])
        for writer, rows, size in zip(writers, ready or (), sizes, strict=ready is not None):
            writer._ready, writer._ready_bytes = rows, size

    def encode(self) -> bool:
        ready = self._ready
        if ready is None or self._ready_bytes > _HELD_BYTES:
            return False
        self._ready = None
        self._files.hold([ready])
        return True

    def flush(self) -> None:
        self._files.write_held()
        ready, self._ready = self._ready, None
        if ready is None and self._memtable.row_count == 0:
            return
        if ready is not None:
            self._files.finished += write_files(self._files.rolling_writer(), [ready])
        while self._memtable.row_count:
            self._files.finished += write_files(self._files.rolling_writer(), self._memtable.flush())
        if self._changes:
            changes, self._changes = self._changes, []
            self._files.changelog += write_files(
                self._files.rolling_writer(changelog=True), [_sorted_by_key(changes, self._key_names)]
            )

    def finish(self) -> None:
        self.flush()

    def prepare_commit(self) -> CommitMessage:
        self.finish()
        return self._files.message()

    def abort(self) -> None:
        self._files.delete()


class _AppendWriter:
    """Rows of a table without a key. A file stays open across flushes, so that many small writes make one file."""

    def __init__(self, store: TableStore, partition: bytes, bucket: int, next_sequence_number: int) -> None:
        self.partition = partition
        self.bucket = bucket
        self._table = store
        self._files = _Files(store, partition, bucket)
        self._open: RollingWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._size_bytes = 0
        self._next_sequence_number = next_sequence_number

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def write(self, rows: pa.RecordBatch) -> None:
        self._batches.append(rows)
        self._size_bytes += rows.nbytes

    def flush(self) -> None:
        if not self._batches:
            return
        if self._open is None:
            self._open = self._files.rolling_writer()
        self._open.write(self._taken())

    def _taken(self) -> pa.Table:
        rows = pa.Table.from_batches(self._batches)
        self._batches, self._size_bytes = [], 0
        return rows

    def encode(self) -> bool:
        if self._open is not None or not 0 < self._size_bytes <= _HELD_BYTES:
            return False
        self._files.hold([self._taken()])
        self._files.finished = self._numbered(self._files.finished)
        return True

    def finish(self) -> None:
        self._files.write_held()
        self.flush()
        if self._open is not None:
            self._files.finished += self._numbered(self._open.close())
            self._open = None

    def prepare_commit(self) -> CommitMessage:
        self.finish()
        return self._files.message()

    def abort(self) -> None:
        if self._open is not None:
            self._open.abort()
            self._open = None
        self._files.delete()

    def _numbered(self, files: Sequence[DataFileMeta]) -> list[DataFileMeta]:
        """Readers order the files of a bucket by these numbers; without buckets every file counts from 0."""
        numbered = []
        for file in files:
            first = self._next_sequence_number if self._table.options.bucket > 0 else 0
            last = first + file.row_count - 1
            numbered.append(replace(file, min_sequence_number=first, max_sequence_number=last))
            self._next_sequence_number = last + 1
        return numbered


def _numbered(rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return rows.append_column(SEQUENCE_NUMBER_FIELD, numbers)


def _sorted_by_key(batches: Sequence[pa.RecordBatch], key_names: Sequence[str]) -> pa.Table:
    """Rows of one key stay in the order they came."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    order, _ = key_order([rows.column(name).combine_chunks() for name in key_names], presorted=False)
    return rows.take(pa.array(order))


def sort_small(writers: Iterable[BucketWriter]) -> None:
    """Sort the rows of small writers of one table in one go, before all of them are finished."""
    together: list[_KeyWriter] = []
    size_bytes = 0
    for writer in writers:
        if isinstance(writer, _KeyWriter) and 0 < writer.size_bytes <= _SMALL_BYTES:
            together.append(writer)
            size_bytes += writer.size_bytes
            if size_bytes > FLUSHED_BYTES:
                _KeyWriter.sort_together(together)
                together, size_bytes = [], 0
    if len(together) > 1:
        _KeyWriter.sort_together(together)


def write_files(writer: RollingWriter, rows: Iterable[pa.Table | pa.RecordBatch]) -> list[DataFileMeta]:
    """Write all rows and close the writer; when that fails nothing is left behind."""
    with undoing(writer.abort):
        for each in rows:
            writer.write(each)
        return list(writer.close())
