"""A range of keys that one task reads of files that overlap: all versions of a key are in the same range."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filestore.format.statistics import ColumnRange
from filestore.table_store import TableStore
from filestore.types.binary_row import ARITY_BYTES, decode_row, encode_row
from lsm.keys.keys import KeyTuple, comparable, rows_before


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpan:
    """Keys from one on up to another one, which is not included.

    Both are BinaryRows of the first columns of the trimmed key, at least one, and come before all keys that begin so.
    """

    low: bytes | None  # None: from the first key on
    high: bytes | None  # None: to the last key
    share: float  # about this part of the bytes of the files is inside

    def to_json(self) -> dict[str, Any]:
        """The span as JSON values."""
        ends = {name: None if key is None else key.hex() for name, key in (("low", self.low), ("high", self.high))}
        return {**ends, "share": self.share}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "KeySpan":
        """The result of ``to_json``."""
        low, high = (None if body[name] is None else bytes.fromhex(body[name]) for name in ("low", "high"))
        return cls(low=low, high=high, share=body["share"])


def key_bytes(store: TableStore, values: KeyTuple) -> bytes:
    """The first values of a key as an end of a span."""
    return encode_row(values, store.key_types[: len(values)])


class KeyBounds:
    """A span as readers of files in key order use it."""

    def __init__(self, store: TableStore, span: KeySpan) -> None:
        """The span of a split of this table."""
        self._names = store.schema.trimmed_primary_keys
        self._low = _key(store, span.low)
        self._high = _key(store, span.high)

    def may_hold(self, ranges: Mapping[str, ColumnRange]) -> bool:
        """Whether rows with these ranges of columns may be inside: by the first key column."""
        known = ranges.get(self._names[0])
        if known is None or known.min is None or known.max is None:
            return True
        # a range does not say of which sign its zeros are
        low, high = known.min, known.max
        if isinstance(low, float):
            low, high = low or -0.0, high or 0.0
        if self._low is not None and not known.may_hold_nan and comparable(high) < self._low[0]:
            return False
        return self._high is None or bool(comparable(low) <= self._high[0])

    def inside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch in key order that are inside, without a copy."""
        start = 0 if self._low is None else self._count_before(batch, self._low)
        stop = batch.num_rows if self._high is None else self._count_before(batch, self._high)
        return batch if stop - start == batch.num_rows else batch.slice(start, max(stop - start, 0))

    def ends_in(self, batch: pa.RecordBatch) -> bool:
        """Whether rows that follow the batch in key order are outside."""
        return self._high is not None and self._count_before(batch, self._high) < batch.num_rows

    def _count_before(self, batch: pa.RecordBatch, key: KeyTuple) -> int:
        return rows_before([batch.column(name) for name in self._names[: len(key)]], key, inclusive=False)


def _key(store: TableStore, key: bytes | None) -> KeyTuple | None:
    if key is None:
        return None
    arity = int.from_bytes(key[:ARITY_BYTES], "big")
    return tuple(map(comparable, decode_row(key, store.key_types[:arity])))
