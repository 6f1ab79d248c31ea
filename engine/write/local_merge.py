"""Merges rows of one key before the shuffle, for streams that change few keys often.

Only for tables without a log and without a changelog of the input, which would need the older rows.
Source: Paimon ``local-merge-buffer-size``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from filestore.table_store import TableStore
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order, order_by_sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMerge:
    """Leaves the newest row of each key, of as many rows at a time as fit into memory."""

    key_names: Sequence[str]
    sequence_names: Sequence[str]
    sequence_descending: bool
    buffer_bytes: int

    @classmethod
    def of(cls, store: TableStore, *, has_log: bool) -> "LocalMerge | None":
        """The merge that a table's options ask for; None: none, or the table needs every row."""
        options = store.options
        buffer_bytes: int | None = options.local_merge_buffer_size_bytes
        every_row_counts = (
            has_log
            or options.merge_engine != "deduplicate"
            or options.changelog_producer == "input"
            or options.ignore_delete
            or options.ignore_update_before
            or options.rowkind_field is not None
        )
        if not buffer_bytes or not store.has_key or every_row_counts:
            return None
        return cls(
            key_names=store.schema.primary_keys,
            sequence_names=options.sequence_fields,
            sequence_descending=options.sequence_descending,
            buffer_bytes=buffer_bytes,
        )

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame with less rows, in their order."""
        return frame.mapInArrow(self, frame.schema)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Merge the rows of one partition of the frame; runs in a Spark task."""
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            if sum(each.nbytes for each in held) >= self.buffer_bytes:
                yield from self.newest(held).to_batches()
                held = []
        if held:
            yield from self.newest(held).to_batches()

    def newest(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """The newest row of every key, where it stood; all rows when a key is null, for the writer to refuse."""
        rows = pa.Table.from_batches(batches).combine_chunks()
        keys = [one_chunk(rows.column(name)) for name in self.key_names]
        if rows.num_rows < 2 or any(key.null_count for key in keys):
            return rows
        order, starts = key_order(keys, presorted=False)
        if self.sequence_names:
            arrival = pa.array(np.arange(rows.num_rows))
            columns = [*(one_chunk(rows.column(name)) for name in self.sequence_names), arrival]
            descending = [self.sequence_descending] * len(self.sequence_names) + [False]
            order = order_by_sequence(order, starts, columns, descending=descending)
        lasts = np.append(starts[1:], True)
        kept = np.sort(order[lasts])
        return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))
