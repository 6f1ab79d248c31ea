"""Statistics of columns for a planner, gathered batch by batch.

The rules are those of Spark's ANALYZE TABLE: texts and bytes have no bounds. Distinct values are counted by a
HyperLogLog sketch of 16 kB, with a standard error of 0.8 %.

Source: Paimon ColStats; Flajolet and others, HyperLogLog (2007); Ertl (2017), an estimate without bias at any size.
"""

import math
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.hashing.xxhash import Hashes, column_hashes
from filestore.types.data_types import BYTES_ROOTS, NESTED_ROOTS, TEXT_ROOTS, DataField, parse_data_type

_INDEX_BITS: Final = 14
_COUNT: Final = 1 << _INDEX_BITS
_MOST: Final = 64 - _INDEX_BITS + 1  # that a register can hold


class DistinctCount:
    """Counts the different hashes that are added."""

    def __init__(self) -> None:
        self._most = np.zeros(_COUNT, np.uint8)  # by a hash's leading bits: 1 + zeros behind them

    def add(self, hashes: Hashes) -> None:
        """Add (n,) hashes of 64 bits."""
        index = (hashes >> np.uint64(64 - _INDEX_BITS)).astype(np.intp)
        rest = (hashes << np.uint64(_INDEX_BITS)) | np.uint64(1 << (_INDEX_BITS - 1))  # ends the zeros
        high = (rest >> np.uint64(11)).astype(np.float64)  # 53 bits, which a float has exactly
        zeros = (53 - np.frexp(high)[1]).astype(np.uint8)
        np.maximum.at(self._most, index, zeros + np.uint8(1))

    @property
    def value(self) -> int:
        """About how many different ones there were."""
        counts = np.bincount(self._most, minlength=_MOST + 1) / _COUNT
        found = _tau(1 - counts[_MOST])
        for share in reversed(counts[1:_MOST]):
            found = (found + share) / 2
        found += _sigma(counts[0])
        return round(_COUNT / (2 * math.log(2) * found))


def _sigma(share: float) -> float:
    """What registers add that no value has reached."""
    if share == 1:
        return math.inf
    found, weight, before = share, 1.0, -1.0
    while found != before:
        share, before = share * share, found
        found += share * weight
        weight *= 2
    return found


def _tau(share: float) -> float:
    """Contribution of the registers that have reached their maximum."""
    if share in (0, 1):
        return 0.0
    found, weight, before = 1 - share, 1.0, -1.0
    while found != before:
        share, before = math.sqrt(share), found
        weight /= 2
        found -= (1 - share) ** 2 * weight
    return found / 3


_SIZES: Final = {"BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INT": 4, "DATE": 4, "FLOAT": 4, "TIME": 4}
_WIDE: Final = 8
_LONG_DECIMAL: Final = 16
_BYTES: Final = parse_data_type("BYTES")


class ColumnStatistics:
    """The statistics of one column. Nested ones have a null count only."""

    def __init__(self, field: DataField) -> None:
        self._field = field
        self._root = field.type.root
        self._is_text = self._root in TEXT_ROOTS or self._root in BYTES_ROOTS
        self._rows = self._nulls = self._total_length = self._longest = 0
        self._distinct = DistinctCount()
        self._ends: list[pa.Scalar] = []

    def add(self, column: pa.Array) -> None:
        """Add the values of a batch."""
        self._rows += len(column)
        self._nulls += column.null_count
        if self._root in NESTED_ROOTS or column.null_count == len(column):
            return
        values = pc.unique(column).drop_null()
        if self._root in {"DECIMAL", "BOOLEAN"}:
            self._distinct.add(column_hashes(values.cast(pa.string()).cast(pa.binary()), _BYTES))
        else:
            self._distinct.add(column_hashes(values, self._field.type))
        if self._is_text:
            lengths = pc.utf8_length(column) if self._root in TEXT_ROOTS else pc.binary_length(column)
            self._total_length += pc.sum(lengths).as_py()
            self._longest = max(self._longest, pc.max(lengths).as_py())
            return
        known = values.filter(pc.is_finite(values)) if pa.types.is_floating(values.type) else values
        if len(known):
            ends = pc.min_max(known)
            self._ends = self._wider(ends["min"], ends["max"])

    def to_json(self) -> dict[str, Any]:
        """As in the file; absent is unknown."""
        found: dict[str, Any] = {"colId": self._field.id}
        if self._root in NESTED_ROOTS:
            return found | {"nullCount": self._nulls}
        found["distinctCount"] = min(self._distinct.value, self._rows - self._nulls)
        if self._ends:
            found |= {"min": _text(self._ends[0]), "max": _text(self._ends[1])}
        size = _LONG_DECIMAL if self._is_long_decimal() else _SIZES.get(self._root, _WIDE)
        count = self._rows - self._nulls
        average = math.ceil(self._total_length / count) if self._is_text and count else 0 if self._is_text else size
        return found | {
            "nullCount": self._nulls,
            "avgLen": average,
            "maxLen": self._longest if self._is_text else size,
        }

    def _wider(self, low: pa.Scalar, high: pa.Scalar) -> list[pa.Scalar]:
        if not self._ends:
            return [low, high]
        return [
            low if pc.less(low, self._ends[0]).as_py() else self._ends[0],
            high if pc.greater(high, self._ends[1]).as_py() else self._ends[1],
        ]

    def _is_long_decimal(self) -> bool:
        return self._root == "DECIMAL" and (self._field.type.precision or 0) > 18


def _text(value: pa.Scalar) -> str:
    """A value as Paimon's serializers spell it: dates and times of day as numbers."""
    kind = value.type
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return str(value.value)
    if pa.types.is_timestamp(kind):
        return str(pa.scalar(value.value, pa.timestamp(kind.unit)).cast(pa.string()).as_py())
    if pa.types.is_boolean(kind):
        return "true" if value.as_py() else "false"
    return str(value.as_py())
