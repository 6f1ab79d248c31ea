"""Row changes on their way to a reader: columns, kinds and origin."""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind


class MetadataColumn(StrEnum):
    """Columns with the origin of a row; option ``read.metadata-columns``."""

    LOG_OFFSET = "_log_offset"  # bigint; null for rows from files
    LOG_TIMESTAMP = "_log_timestamp"  # timestamp; null for rows from files
    # bigint: the snapshot of these rows or changes, in a batch read the one below the log's tail; null for rows that a
    # stream reads from the log
    SNAPSHOT_ID = "_snapshot_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """(n,) rows, their kinds, and their origin as far as it is known."""

    rows: pa.RecordBatch
    kinds: pa.Array  # (n,) int8 RowKind, no nulls
    snapshot_id: int | None = None
    offsets: pa.Array | None = None  # (n,) int64
    timestamps: pa.Array | None = None  # (n,) timestamp[ms, UTC]

    def taken(self, chosen: pa.Array) -> "RowChanges":
        """The rows chosen by a (n,) boolean mask or by indices, in that order."""

        def take(array: pa.Array | None) -> pa.Array | None:
            if array is None:
                return None
            return array.filter(chosen) if pa.types.is_boolean(chosen.type) else array.take(chosen)

        rows = self.rows.filter(chosen) if pa.types.is_boolean(chosen.type) else self.rows.take(chosen)
        return replace(
            self, rows=rows, kinds=take(self.kinds), offsets=take(self.offsets), timestamps=take(self.timestamps)
        )

    def kind_texts(self) -> pa.Array:
        """(n,) ``+I -U +U -D``."""
        numbers = np.asarray(self.kinds)
        if len(numbers) and (numbers == numbers[0]).all():  # rows of a snapshot
            return pa.repeat(ROW_KIND_SYMBOLS[int(numbers[0])], len(numbers))
        return ROW_KIND_SYMBOLS.take(self.kinds)

    def metadata(self, column: MetadataColumn) -> pa.Array:
        """(n,) values of a metadata column; null where it does not apply."""
        count = len(self.kinds)
        match column:
            case MetadataColumn.LOG_OFFSET:
                return pa.nulls(count, pa.int64()) if self.offsets is None else self.offsets
            case MetadataColumn.LOG_TIMESTAMP:
                wanted = pa.timestamp("us", tz="UTC")
                return pa.nulls(count, wanted) if self.timestamps is None else self.timestamps.cast(wanted)
            case MetadataColumn.SNAPSHOT_ID:
                return pa.repeat(pa.scalar(self.snapshot_id, pa.int64()), count)

    @property
    def has_retracts(self) -> bool:
        """True when a row is a delete or an update-before."""
        numbers = np.asarray(self.kinds)
        return bool(np.any((numbers == RowKind.DELETE) | (numbers == RowKind.UPDATE_BEFORE)))
