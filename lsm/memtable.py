"""The write buffer of a bucket: rows in arrival order, numbered, and sorted only when flushed."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lsm.byte_sizes import release_after, rows_within
from lsm.keys.key_groups import KeyGroups, one_chunk, take_rows
from lsm.keys.keys import key_order, newest_last
from lsm.keys.words import BoolArray, IndexArray
from lsm.merge.merge_function import MergeFunction
from lsm.row_kind import SEQUENCE_NUMBER_FIELD, VALUE_KIND, RowKind

FLUSHED_BYTES: Final = 16 << 20  # of a batch; by the average row


class MemTable:
    """Buffers the rows of one bucket and flushes them sorted by key, each key once.

    Every row gets the next sequence number, retracts too: of two rows with the same key the later one is newer.
    """

    def __init__(
        self,
        *,
        key_names: Sequence[str],
        merge: MergeFunction,
        sequence_names: Sequence[str] = (),
        sequence_descending: bool = False,
        resets_on_delete: bool = False,
        budget_bytes: int,
        next_sequence_number: int,
    ) -> None:
        """Start with an empty buffer.

        Args:
            key_names: the key columns, most significant first.
            merge: folds rows of one key at flush.
            sequence_names: columns that decide which row is newer, before the sequence number.
            sequence_descending: smaller values of these columns are newer.
            resets_on_delete: a -D resets its key, so it must not be merged with later rows, which would lose it.
            budget_bytes: size from which on `is_full` is true.
            next_sequence_number: sequence number of the next row.
        """
        self._key_names = tuple(key_names)
        self._merge = merge
        self._sequence_names = tuple(sequence_names)
        self._sequence_descending = sequence_descending
        self._resets_on_delete = resets_on_delete
        self._budget_bytes = budget_bytes
        self._next_sequence_number = next_sequence_number
        self._batches: list[pa.RecordBatch] = []
        self._row_count = 0
        self._size_bytes = 0

    @property
    def row_count(self) -> int:
        """Number of buffered rows."""
        return self._row_count

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows in memory; a flush needs about as much in addition."""
        return self._size_bytes

    @property
    def is_full(self) -> bool:
        """Whether the budget is exhausted. Rows are still accepted."""
        return self._size_bytes >= self._budget_bytes

    @property
    def next_sequence_number(self) -> int:
        """Sequence number of the next row."""
        return self._next_sequence_number

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows in arrival order.

        Args:
            rows: value columns and ``_VALUE_KIND`` (int8); the same schema every time.
        """
        if rows.num_rows == 0:
            return
        stop = self._next_sequence_number + rows.num_rows
        numbers = pa.array(np.arange(self._next_sequence_number, stop, dtype=np.int64))
        kind_index = rows.schema.get_field_index(VALUE_KIND)
        columns = [column for index, column in enumerate(rows.columns) if index != kind_index]
        fields = [field for index, field in enumerate(rows.schema) if index != kind_index]
        schema = pa.schema([*fields, SEQUENCE_NUMBER_FIELD, rows.schema.field(kind_index)])
        batch = pa.RecordBatch.from_arrays([*columns, numbers, rows.column(kind_index)], schema=schema)
        self._keep(batch)
        self._next_sequence_number = stop

    def flush(self, *, rows_per_batch: int = 32768, bytes_per_batch: int = FLUSHED_BYTES) -> Iterator[pa.RecordBatch]:
        """Drain the buffer; sequence numbers continue.

        Rows after a delete that resets their key remain buffered: once all batches are consumed, flush to another file.

        Yields:
            Batches sorted by key, each key once: value columns, ``_SEQUENCE_NUMBER``, ``_VALUE_KIND``. Retracts are
            kept, since they retract older rows. Each batch is gathered lazily.
        """
        batches, self._batches = self._batches, []
        row_bytes = self._size_bytes / max(self._row_count, 1)
        self._row_count = 0
        self._size_bytes = 0
        if batches:
            most_rows = rows_within(row_bytes, most_rows=rows_per_batch, most_bytes=bytes_per_batch)
            yield from self._merged(batches, most_rows)
            release_after(row_bytes)

    def _merged(self, batches: list[pa.RecordBatch], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches).combine_chunks()
        batches.clear()
        release_after(rows.nbytes / rows.num_rows)
        order, starts = key_order([one_chunk(rows.column(name)) for name in self._key_names], presorted=False)
        if self._sequence_names:
            order = newest_last(rows, order, starts, self._sequence_names, descending=self._sequence_descending)
        if self._resets_on_delete:
            order, starts = self._until_delete(rows, order, starts)
        firsts = np.flatnonzero(starts)
        for begin in range(0, len(firsts), rows_per_batch):
            stop = begin + rows_per_batch
            piece = slice(firsts[begin], firsts[stop] if stop < len(firsts) else None)
            merged = self._merge.merge(rows, order[piece], starts[piece], drop_deletes=False)
            yield from merged.to_batches()

    @classmethod
    def flush_together(cls, buffers: Sequence["MemTable"]) -> list[pa.Table] | None:
        """Drain small buffers of one table, made alike, with one sort and one merge for all.

        Returns:
            The rows of each buffer as ``flush`` gives them; None, and nothing is drained, where each buffer must be
            flushed by itself.
        """
        first = buffers[0]
        if first._resets_on_delete:
            return None
        rows = pa.Table.from_batches([batch for each in buffers for batch in each._batches]).combine_chunks()
        owners = np.repeat(np.arange(len(buffers), dtype=np.int32), [each.row_count for each in buffers])
        keys = [pa.array(owners), *(one_chunk(rows.column(name)) for name in first._key_names)]
        order, starts = key_order(keys, presorted=False)
        if first._sequence_names:
            order = newest_last(rows, order, starts, first._sequence_names, descending=first._sequence_descending)
        merged = first._merge.merge(rows, order, starts, drop_deletes=False)
        counts = np.bincount(owners[order[starts]], minlength=len(buffers))
        if merged.num_rows != counts.sum():  # keys that merge to nothing
            return None
        for each in buffers:
            each._batches, each._row_count, each._size_bytes = [], 0, 0
        firsts = np.cumsum(counts) - counts
        return [merged.slice(begin, count) for begin, count in zip(firsts.tolist(), counts.tolist(), strict=True)]

    def _until_delete(self, rows: pa.Table, order: IndexArray, starts: BoolArray) -> tuple[IndexArray, BoolArray]:
        """The order without rows after the last -D of their key, which are buffered again, and without rows before it.

        The -D supersedes the rows before it.
        """
        groups = KeyGroups.of(rows, order, starts)
        deleted_at = groups.last_position(groups.kinds == RowKind.DELETE)[groups.keys]
        positions = np.arange(len(order))
        is_later = (deleted_at >= 0) & (positions > deleted_at)
        if not is_later.any():
            return order, starts
        for batch in take_rows(rows, np.sort(order[is_later])).to_batches():
            self._keep(batch)
        kept = ~is_later & (positions >= deleted_at)
        return order[kept], groups.starts_among(kept)

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._row_count += batch.num_rows
        self._size_bytes += batch.nbytes
