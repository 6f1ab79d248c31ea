"""Which files may hold keys that a filter wants, for many files at once.

Only what columns decide fast: comparisons and value lists of numbers, dates, times and texts. What stays is tested file
by file, see ``pruning``, so a file that stays for nothing costs time and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filestore.manifest.live_rows import ChosenEntries
from filestore.predicate.predicate import Compare, CompareOp, In, Predicate, conjuncts
from filestore.table_store import TableStore
from filestore.types.binary_columns import decode_columns
from filestore.types.binary_row import ARITY_BYTES
from filestore.types.data_types import TEXT_ROOTS, TIMESTAMP_ROOTS
from lsm.keys.words import BoolArray

_Bounds = NDArray[Any]
_NUMBER_ROOTS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIME", *TIMESTAMP_ROOTS})


@dataclass(frozen=True, slots=True)
class _Condition:
    """On one key column: whether values between bounds may satisfy it."""

    column: int
    may_hold: Callable[[_Bounds, _Bounds], BoolArray]


class KeyPruner:
    """Tests files with the conditions of a filter on key columns, all of which must hold."""

    def __init__(self, store: TableStore, by_key: Predicate | None) -> None:
        """``by_key`` has only key columns."""
        self._table = store
        names = list(store.schema.trimmed_primary_keys)
        self._conditions = [
            _Condition(names.index(each.column), test)
            for each in (conjuncts(by_key) if by_key is not None else [])
            if isinstance(each, Compare | In) and not each.path and self._is_fast(names.index(each.column))
            for test in [_test_of(each)]
            if test is not None
        ]

    def keep(self, part: ChosenEntries) -> BoolArray:
        """(n,) False only where no key of a file is wanted, by its key statistics."""
        kept = np.ones(len(part), np.bool_)
        if not self._conditions or not len(part):
            return kept
        columns, rows = part.columns, part.rows
        is_known = columns.schema_ids[rows] == self._table.schema.id
        for spans in (columns.key_lows, columns.key_highs):
            is_known &= self._has_all(part, spans.starts[rows].astype(np.int64))
        known = np.flatnonzero(is_known)
        if not len(known):
            return kept
        lows = decode_columns(columns.texts(columns.key_lows, rows[known]), self._table.key_types)
        highs = decode_columns(columns.texts(columns.key_highs, rows[known]), self._table.key_types)
        for condition in self._conditions:
            low, high = lows[condition.column], highs[condition.column]
            has_bounds = np.asarray(pa.compute.and_(low.is_valid(), high.is_valid()))
            places = np.flatnonzero(has_bounds)
            kept[known[places]] &= condition.may_hold(_values(low.take(places)), _values(high.take(places)))
        return kept

    def _is_fast(self, column: int) -> bool:
        root = self._table.key_types[column].root
        return root in _NUMBER_ROOTS or root in TEXT_ROOTS

    def _has_all(self, part: ChosenEntries, starts: NDArray[np.int64]) -> BoolArray:
        """Whether statistics are of all key columns: some writers leave them out."""
        arities = part.columns.body[starts[:, None] + np.arange(ARITY_BYTES)]
        found: BoolArray = (arities == list(len(self._table.key_types).to_bytes(ARITY_BYTES, "big"))).all(axis=1)
        return found


def _values(column: pa.Array) -> _Bounds:
    """Internal values: numbers, or texts as objects."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    if pa.types.is_integer(column.type):
        numbers: _Bounds = column.to_numpy(zero_copy_only=False)
        return numbers
    return np.array(column.to_pylist(), object)


def _test_of(condition: Compare | In) -> Callable[[_Bounds, _Bounds], BoolArray] | None:
    if isinstance(condition, In):
        return _one_of(condition.prepared("distinct", lambda values: sorted(set(values))))
    value = condition.value
    tests: dict[CompareOp, Callable[[_Bounds, _Bounds], BoolArray]] = {
        CompareOp.EQ: lambda low, high: (low <= value) & (high >= value),
        CompareOp.LT: lambda low, _: low < value,
        CompareOp.LE: lambda low, _: low <= value,
        CompareOp.GT: lambda _, high: high > value,
        CompareOp.GE: lambda _, high: high >= value,
    }
    return tests.get(condition.op)


def _one_of(values: Sequence[Any]) -> Callable[[_Bounds, _Bounds], BoolArray]:
    def test(low: _Bounds, high: _Bounds) -> BoolArray:
        if not values:
            return np.zeros(len(low), np.bool_)
        ordered = np.array(values, object if isinstance(values[0], str) else np.int64)
        first = np.searchsorted(ordered, low)
        found: BoolArray = (first < len(ordered)) & (ordered[np.minimum(first, len(ordered) - 1)] <= high)
        return found

    return test
