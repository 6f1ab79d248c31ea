"""Pruning of partitions, buckets and files by a filter, before rows are read.

Files are first pruned by their key ranges, many files at once: by comparisons and value lists of numbers, dates, times
and texts. The files that remain are tested one by one. A file that is kept needlessly costs time, never a wrong row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filestore.format.statistics import ColumnRange
from filestore.hashing.buckets import bucket_ids
from filestore.index.file_index import embedded_may_match, uses_indexes
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.file_ranges import key_ranges_of, ranges_of
from filestore.manifest.live_rows import ChosenEntries
from filestore.predicate.evaluation import may_match
from filestore.predicate.predicate import (
    Compare,
    CompareOp,
    In,
    Predicate,
    columns_of,
    conjuncts,
    equal_values,
    on_columns_only,
)
from filestore.scan.snapshot_files import Ranges
from filestore.schema.file_fields import TRACKING_COLUMNS
from filestore.table_store import TableStore
from filestore.types.binary_columns import decode_columns
from filestore.types.binary_row import ARITY_BYTES
from filestore.types.data_types import TEXT_ROOTS, TIMESTAMP_ROOTS, arrow_type
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


_MAX_BUCKET_KEYS: Final = 10_000  # combinations of equal values to hash for bucket pruning
_ALL_ROWS: Final = 2**62


class Pruner:
    """Tests partitions, buckets and files with one filter. True = may hold a matching row."""

    def __init__(self, store: TableStore, predicate: Predicate | None) -> None:
        if store.options.data_evolution_enabled:  # a newer file may hold the values of a column
            predicate = on_columns_only(predicate, store.schema.partition_keys)
        self._table = store
        self._predicate = predicate
        self._by_partition = on_columns_only(predicate, store.schema.partition_keys)
        self._by_key = on_columns_only(predicate, store.schema.trimmed_primary_keys)
        self._keys = KeyPruner(store, self._by_key)
        self._uses_key_indexes = uses_indexes(self._by_key, store.options)
        self._uses_indexes = uses_indexes(predicate, store.options)
        self._folds = store.options.merge_engine in ("aggregation", "partial-update")
        self._wanted_buckets: dict[int, frozenset[int] | None] = {}

    @property
    def keeps_whole_partitions(self) -> bool:
        """Whether the filter is of partition columns alone, or there is none: then no file of a partition is pruned."""
        return self._predicate is None or columns_of(self._predicate) <= {*self._table.schema.partition_keys}

    def keep_ranges(self, ranges: Ranges) -> bool:
        """Whether a manifest with these partition ranges may hold matching files."""
        return self._by_partition is None or may_match(self._by_partition, ranges, _ALL_ROWS)

    def keep_partition(self, partition: bytes) -> bool:
        """Whether rows of a partition may match."""
        if self._by_partition is None:
            return True
        values = zip(self._table.schema.partition_keys, self._table.partition_values(partition), strict=True)
        ranges = {name: ColumnRange(min=value, max=value, null_count=int(value is None)) for name, value in values}
        return may_match(self._by_partition, ranges, 1)

    def keep_bucket(self, bucket: int, total_buckets: int) -> bool:
        """Whether rows of a bucket may match; partitions may have different bucket counts."""
        if total_buckets not in self._wanted_buckets:
            self._wanted_buckets[total_buckets] = self._buckets(total_buckets)
        wanted = self._wanted_buckets[total_buckets]
        return wanted is None or bucket in wanted

    def keep_rows(self, part: ChosenEntries) -> BoolArray:
        """(n,) whether files may hold a matching key, as far as columns show; ``keep_by_key`` decides the rest."""
        return self._keys.keep(part)

    def keep_by_key(self, file: DataFileMeta) -> bool:
        """Whether a file may hold a matching key; tests only conditions on keys, the same for all versions of a row."""
        if self._by_key is None:
            return True
        then = self._table.schema_of(file.schema_id)
        if not may_match(self._by_key, self._in_current_columns(file, key_ranges_of(file, then)), file.row_count):
            return False
        return not self._uses_key_indexes or embedded_may_match(
            file, self._by_key, file_schema=then, read_schema=self._table.schema
        )

    def keep_by_value(self, file: DataFileMeta) -> bool:
        """Whether a file, considered alone, may hold a matching row."""
        if self._predicate is None or (self._folds and file.delete_row_count != 0):
            return True  # a retract is a row with other values than it has
        then = self._table.schema_of(file.schema_id)
        if not may_match(self._predicate, self._in_current_columns(file, ranges_of(file, then)), file.row_count):
            return False
        return not self._uses_indexes or embedded_may_match(
            file, self._predicate, file_schema=then, read_schema=self._table.schema
        )

    def _in_current_columns(self, file: DataFileMeta, ranges: Ranges) -> Ranges:
        """Ranges by current column names; columns with a changed type are unknown."""
        schema = self._table.schema
        if file.schema_id == schema.id:
            return ranges
        then = {field.id: field for field in self._table.schema_of(file.schema_id).fields}
        known: dict[str, ColumnRange] = {}
        for field in schema.fields:
            old = then.get(field.id)
            if field in TRACKING_COLUMNS:
                continue
            if old is None:  # added later: every row of the file has null, or the initial default
                if field.initial_default is None:
                    known[field.name] = ColumnRange(min=None, max=None, null_count=file.row_count)
            elif old.name in ranges and arrow_type(old.type) == arrow_type(field.type):
                known[field.name] = ranges[old.name]
        return known

    def _buckets(self, total_buckets: int) -> frozenset[int] | None:
        """The buckets that can hold matching rows; None = any."""
        schema = self._table.schema
        if self._predicate is None or total_buckets < 1 or not schema.bucket_keys:
            return None
        wanted = [equal_values(self._predicate, name) for name in schema.bucket_keys]
        if any(values is None for values in wanted):
            return None
        function = self._table.options.bucket_function
        choices = [list(values) for values in wanted if values is not None]
        if function == "mod":  # which has no bucket for null, so no row has it
            choices = [[value for value in values if value is not None] for values in choices]
        if prod(len(each) for each in choices) > _MAX_BUCKET_KEYS:
            return None
        types = [schema.field(name).type for name in schema.bucket_keys]
        rows = list(product(*choices))
        columns = [pa.array([row[index] for row in rows], type=arrow_type(each)) for index, each in enumerate(types)]
        return frozenset(bucket_ids(columns, types, total_buckets, function=function).tolist())
