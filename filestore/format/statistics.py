"""Value ranges of columns: collected on writes, stored in manifests, used for pruning.

A range bounds its values but need not be tight: a truncated maximum exceeds all values. Python's order of internal
values is the order of the files, except for floats, which follow Spark: NaN is greater than everything and -0.0
equals 0.0.
Source: Paimon SimpleStats, SimpleStatsConverter, TruncateSimpleColStatsCollector.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.format.simple_stats import EMPTY_STATS, SimpleStats
from filestore.types.binary_row import encode_row
from filestore.types.data_types import BYTES_ROOTS, TEXT_ROOTS, UNORDERED_ROOTS, DataField, DataType
from lsm.errors import InvalidInputError
from lsm.keys.keys import internal_value

FLOAT_ROOTS: Final = frozenset({"FLOAT", "DOUBLE"})
KEY_STATS_LENGTH: Final = 128
"""Key statistics are truncated to this length whatever ``metadata.stats-mode`` is."""

_TRUNCATE: Final = re.compile(r"truncate\((\d+)\)")
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CODE_POINT: Final = 0x10FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """Range of one column of a file or row group. None = unknown; both bounds are None also if all values are null."""

    min: Any = None
    max: Any = None
    null_count: int | None = None
    may_hold_nan: bool = False  # NaN may occur beyond ``max``, which then bounds only the numbers


UNKNOWN: Final = ColumnRange()


def has_order(data_type: DataType) -> bool:
    """Whether the type is orderable, so that values have a minimum and a maximum."""
    return data_type.root not in UNORDERED_ROOTS


def merge_ranges(ranges: Iterable[ColumnRange]) -> ColumnRange:
    """The combined range of the parts. A part without bounds must be all null (``null_count`` known) or empty."""
    merged: ColumnRange | None = None
    for part in ranges:
        merged = part if merged is None else _merge(merged, part)
    return UNKNOWN if merged is None else merged


def _merge(one: ColumnRange, two: ColumnRange) -> ColumnRange:
    counts = (one.null_count, two.null_count)
    return ColumnRange(
        min=two.min if one.min is None else one.min if two.min is None else min(one.min, two.min),
        max=two.max if one.max is None else one.max if two.max is None else max(one.max, two.max),
        null_count=None if None in counts else sum(count for count in counts if count is not None),
        may_hold_nan=one.may_hold_nan or two.may_hold_nan,
    )


class RangeCollector:
    """Exact ranges of columns, collected batch by batch; for formats without reliable footer statistics."""

    def __init__(self, fields: Sequence[DataField]) -> None:
        self._fields = fields
        self._ranges: dict[str, ColumnRange] = {}
        self._with_nan: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        """Add rows to the ranges."""
        for field in self._fields:
            part = column_range(rows.column(field.name), field.type)
            if part.may_hold_nan:
                self._with_nan.add(field.name)
            before = self._ranges.get(field.name)
            self._ranges[field.name] = part if before is None else _merge(before, part)

    def ranges(self) -> dict[str, ColumnRange]:
        """One range per field; a column with NaN has no bounds, as in Paimon."""
        return {name: _without_bounds(part) if name in self._with_nan else part for name, part in self._ranges.items()}


def column_range(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> ColumnRange:
    """The exact range of one column, computed from its values."""
    null_count = int(column.null_count)
    if not has_order(data_type) or null_count == len(column):
        return ColumnRange(null_count=null_count)
    bounds = pc.min_max(column)
    low, high = internal_value(bounds["min"]), internal_value(bounds["max"])
    if data_type.root not in FLOAT_ROOTS:
        return ColumnRange(min=low, max=high, null_count=null_count)
    return ColumnRange(
        min=-0.0 if low == 0 else low,  # some readers order -0.0 before 0.0, some take them for equal
        max=0.0 if high == 0 else high,
        null_count=null_count,
        may_hold_nan=holds_nan(column),
    )


def holds_nan(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a float column contains NaN."""
    if column.null_count:
        return bool(pc.any(pc.is_nan(column)).as_py())
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    return any(bool(np.isnan(chunk.to_numpy()).any()) for chunk in chunks)  # a fifth of the time for few rows


def _without_bounds(part: ColumnRange) -> ColumnRange:
    return ColumnRange(null_count=part.null_count)


def truncate_range(part: ColumnRange, data_type: DataType, length: int) -> ColumnRange:
    """Bounds of strings and bytes truncated to ``length`` code points or bytes: the lower one down, the upper one up.

    Without an upper bound of that length there are no bounds. Other types are unchanged.
    """
    if part.min is None or part.max is None:
        return part
    if data_type.root in TEXT_ROOTS:
        upper: str | bytes | None = part.max if len(part.max) <= length else _next_text(part.max[:length])
    elif data_type.root in BYTES_ROOTS:
        upper = part.max if len(part.max) <= length else _next_bytes(part.max[:length])
    else:
        return part
    if upper is part.max and len(part.min) <= length:
        return part
    return _without_bounds(part) if upper is None else replace(part, min=part.min[:length], max=upper)


def _next_text(prefix: str) -> str | None:
    """The smallest string of at most this length that is greater than all strings with the prefix."""
    for end in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[end]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CODE_POINT:
            return prefix[:end] + chr(code)
    return None


def _next_bytes(prefix: bytes) -> bytes | None:
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def keep_range(part: ColumnRange, data_type: DataType, mode: str) -> ColumnRange | None:
    """The range reduced by a ``metadata.stats-mode``; None for ``none``. Raises: InvalidInputError."""
    mode = mode.strip().lower()
    if mode == "full":
        return part
    if mode == "counts":
        return _without_bounds(part)
    if mode == "none":
        return None
    match = _TRUNCATE.fullmatch(mode)
    if match is None:
        raise InvalidInputError(f"unknown statistics mode: mode={mode} expected=truncate(n),full,counts,none")
    return truncate_range(part, data_type, int(match[1]))


def stats_of_columns(ranges: Sequence[ColumnRange | None], types: Sequence[DataType]) -> SimpleStats:
    """Ranges, one per column, in the form of manifests; None = unknown range."""
    known = [UNKNOWN if part is None else part for part in ranges]
    return SimpleStats(
        min_values=encode_row([part.min for part in known], types),
        max_values=encode_row([part.max for part in known], types),
        null_counts=tuple(part.null_count for part in known),
    )


def value_stats(
    ranges: Mapping[str, ColumnRange], fields: Sequence[DataField], modes: Mapping[str, str]
) -> tuple[SimpleStats, tuple[str, ...] | None]:
    """Statistics of a file's value columns, reduced by the mode of each column, and the names of these columns.

    None for the names means all columns: the only form supported by Java up to 0.9, so it is used whenever possible.
    """
    kept: dict[str, ColumnRange] = {}
    for field in fields:
        part = keep_range(ranges.get(field.name, UNKNOWN), field.type, modes[field.name])
        if part is not None:
            kept[field.name] = part
    if not kept:
        return EMPTY_STATS, ()
    types = [field.type for field in fields if field.name in kept]
    return stats_of_columns(list(kept.values()), types), None if len(kept) == len(fields) else tuple(kept)


def key_stats(ranges: Mapping[str, ColumnRange], keys: Sequence[DataField]) -> SimpleStats:
    """Statistics of a file's key columns; Java requires all of them."""
    if not keys:
        return EMPTY_STATS
    cut = [truncate_range(ranges.get(field.name, UNKNOWN), field.type, KEY_STATS_LENGTH) for field in keys]
    return stats_of_columns(cut, [field.type for field in keys])
