"""Rows without a key that come and go: how a table keeps each of them once, with how often it is there.

What users see is a table without a key. What is stored is a table with one: the users' columns, 128 bits of hash that
are (with the partition and index columns) the key, and a count that merging sums up. This module maps the one to the
other, and nothing else knows of hash and count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.hashing.row_hash import row_hashes
from filestore.options.table.common import MIB
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType
from lsm.byte_sizes import rows_within
from lsm.errors import InvalidInputError, MissingColumnError
from lsm.merge.row_count import ROW_COUNT
from lsm.row_kind import RowKind

ROW_COUNTS_KEY: Final = "row-counts"
INDEX_KEY: Final = "row-counts.index-key"
HASH_NAMES: Final = ("_row_hash_1", "_row_hash_2")
HIDDEN_NAMES: Final = (*HASH_NAMES, ROW_COUNT)

CountedChanges = Iterator[tuple[pa.RecordBatch, pa.Array]]

# What other engines need to merge such a table right.
_STORED_OPTIONS: Final[Mapping[str, str]] = {
    "merge-engine": "aggregation",
    f"fields.{ROW_COUNT}.aggregate-function": "sum",
    "fields.default-aggregate-function": "last_value",
}
_VECTORS_KEY: Final = "deletion-vectors.enabled"
_BIGINT: Final = DataType(root="BIGINT", nullable=False)
_BATCH_ROWS: Final = 65_536  # of what is repeated, however often one row is there
_BATCH_BYTES: Final = 32 * MIB  # by the average row

CountInts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """The stored form of a new table that counts its rows."""

    columns: tuple[DataField, ...]
    primary_keys: tuple[str, ...]
    options: dict[str, str] = field(repr=False)


def stored_form(
    columns: Sequence[DataField], *, primary_keys: Sequence[str], partitions: Sequence[str], options: TableOptions
) -> StoredForm:
    """The stored form of a new table.

    Args:
        columns: the users'.
        primary_keys: must be none.
        partitions: they become NOT NULL, as in every key.
        options: the users'; checked without a key already.

    Raises:
        InvalidInputError: the table cannot count its rows; names the option or column.
    """
    if primary_keys:
        raise InvalidInputError(
            f"rows with a key are there once: {ROW_COUNTS_KEY}=true primary_key={list(primary_keys)} "
            f"fix='remove {ROW_COUNTS_KEY} or the primary key'"
        )
    _check_options(options)
    if options.rowkind_field is not None:
        raise InvalidInputError(
            f"a row and its delete would not be equal: {ROW_COUNTS_KEY}=true "
            f"rowkind.field={options.rowkind_field} fix='give kinds in a column _row_kind'"
        )
    if options.gives(TableOptions.bucket) and options.bucket < 1:
        raise InvalidInputError(
            f"equal rows must meet in one bucket: {ROW_COUNTS_KEY}=true bucket={options.bucket} "
            "fix='set bucket to 1 or more'"
        )
    taken = [field.name for field in columns if field.name in HIDDEN_NAMES]
    if taken:
        raise InvalidInputError(f"column name is reserved: {ROW_COUNTS_KEY}=true column={taken[0]} fix='rename it'")
    index = options.row_counts_index_key
    both = [name for name in index if name in partitions]
    if both:
        raise InvalidInputError(f"index key contains partition columns: {INDEX_KEY}={','.join(index)} fix='{both}'")
    hidden = tuple(DataField(id=-1, name=name, type=_BIGINT) for name in HIDDEN_NAMES)
    return StoredForm(
        columns=(*columns, *hidden),
        primary_keys=(*partitions, *index, *HASH_NAMES),
        options={"bucket": "1", "data-file.thin-mode": "true", **options.texts_by_key(), **_STORED_OPTIONS},
    )


def not_null_columns(partitions: Sequence[str], options: TableOptions) -> tuple[str, ...]:
    """The users' columns that are part of the stored key; () of a table that does not count its rows."""
    return (*partitions, *options.row_counts_index_key) if options.row_counts else ()


def seen_schema(stored: TableSchema) -> TableSchema:
    """The schema that users see; the stored one itself for a table that does not count its rows."""
    if ROW_COUNTS_KEY not in stored.options or not _counts(stored):
        return stored
    return replace(
        stored,
        fields=tuple(field for field in stored.fields if field.name not in HIDDEN_NAMES),
        primary_keys=(),
        options={key: text for key, text in stored.options.items() if key not in _STORED_OPTIONS},
    )


def _counts(stored: TableSchema) -> bool:
    """Whatever its other options are: a table that cannot be read is described as well."""
    return TableOptions.described(stored.options, primary_key=stored.primary_keys).row_counts


def check_stored(schema: TableSchema) -> None:
    """Refuse what an altered schema of such a table cannot be. Raises: InvalidInputError."""
    if not schema.table_options.row_counts:
        return
    if any(name not in schema.column_names for name in HIDDEN_NAMES):
        raise InvalidInputError(
            f"a table counts its rows from the first on: {ROW_COUNTS_KEY}=true fix='create a new table and copy'"
        )
    for key, text in _STORED_OPTIONS.items():
        if schema.options.get(key) != text:
            raise InvalidInputError(f"option cannot change of a table that counts its rows: option={key} value={text}")
    seen = seen_schema(schema)
    _check_options(seen.table_options)
    seen.table_options.check_together()


def _check_options(options: TableOptions) -> None:
    """Refuse what sums of counts, or deletes of whole rows, cannot go with."""
    if options.deletion_vectors_enabled:
        raise InvalidInputError(
            f"counts are summed by readers, who would not see new ones: {ROW_COUNTS_KEY}=true {_VECTORS_KEY}=true "
            f"fix='remove {_VECTORS_KEY}'"
        )
    if options.log_deletes_have_key_only:
        raise InvalidInputError(
            f"a delete in such a log has a key only: {ROW_COUNTS_KEY}=true log.format={options.log_format} "
            f"fix='use debezium-{options.log_format}'"
        )
    for option in (TableOptions.ignore_delete, TableOptions.ignore_update_before):
        if options[option]:
            raise InvalidInputError(
                f"rows that are never deleted would be counted permanently: {ROW_COUNTS_KEY}=true {option.key}=true "
                f"fix='remove {option.key}'"
            )
    folded = [f"fields.{key}" for key in options.behind("fields.") if not key.endswith(".stats-mode")]
    if folded:
        raise InvalidInputError(
            f"values of such a table are not folded: {ROW_COUNTS_KEY}=true option={folded[0]} fix='remove the option'"
        )


def check_change(schema: TableSchema, path: Sequence[str], *, keeps_values: bool) -> None:
    """Refuse a change of a column after which equal rows would not be the same as before.

    Args:
        schema: stored, before the change.
        path: of the column.
        keeps_values: False: the column goes, or gets another type.

    Raises:
        InvalidInputError: says what to do instead.
    """
    if not schema.table_options.row_counts:
        return
    if path[0] in HIDDEN_NAMES:
        raise MissingColumnError(f"no such column: column={path[0]} columns={list(seen_schema(schema).column_names)}")
    if not keeps_values:
        raise InvalidInputError(
            f"rows are known by all their values, so deletes would not find them any more: {ROW_COUNTS_KEY}=true "
            f"column={'.'.join(path)} fix='create a new table and copy'"
        )


@dataclass(frozen=True)
class RowCounts:
    """Rows as users see them to rows as they are stored, and back."""

    stored: TableSchema
    seen: TableSchema

    @cached_property
    def _stored_arrow(self) -> pa.Schema:
        return self.stored.arrow_schema

    def hashed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their hashes behind them.

        Args:
            rows: the users' columns in the table's types, and perhaps others.
        """
        hashes = row_hashes([rows.column(name) for name in self.seen.column_names], self.seen.fields)
        for name, half in zip(HASH_NAMES, hashes, strict=True):
            rows = rows.append_column(self._stored_arrow.field(name), half)
        return rows

    def to_stored(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        """Rows as they are stored, all of them inserts: a row that comes counts 1, one that goes counts -1.

        Args:
            rows: the users' columns in the table's types.
            kinds: (n,) int8 row kinds.
        """
        rows = self.hashed(rows)
        counts = 1 - 2 * (np.asarray(kinds) & 1).astype(np.int64)
        rows = rows.append_column(self._stored_arrow.field(ROW_COUNT), pa.array(counts))
        return pa.RecordBatch.from_arrays(
            [rows.column(name) for name in self._stored_arrow.names], schema=self._stored_arrow
        )


def with_count(columns: Iterable[str]) -> list[str]:
    """The stored columns to read so that these can be shown."""
    return [*columns, ROW_COUNT]


def repeated(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows as often as they are there; those that went more often than they came are not.

    Args:
        found: stored rows, merged, with their count.

    Yields:
        Batches without the count, none empty.
    """
    for rows in found:
        counts = _counts_of(rows)
        for batch, _ in _pieces(rows, np.maximum(counts, 0), None):
            yield batch


def signed(found: CountedChanges, *, is_difference: bool = False) -> CountedChanges:
    """Changes of counts as changes of rows: +k is k times +I, -k is k times -D.

    Args:
        found: stored rows with their count, and the kind of each.
        is_difference: of each row its count before (-U) and after (+U); else counts to be added.

    Yields:
        Rows without the count, never none, and their (n,) int8 kinds.
    """
    held: pa.RecordBatch | None = None  # a row before, whose row after is in the next batch
    for rows, row_kinds in found:
        counts, kinds = _counts_of(rows), np.asarray(row_kinds)
        changes = np.where(kinds & 1, -counts, counts)
        if is_difference:
            olds, news = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE), np.flatnonzero(kinds == RowKind.UPDATE_AFTER)
            changes[olds] = 0
            before = counts[olds]
            if held is not None:
                before = np.concatenate((_counts_of(held), before))
            changes[news] -= before[: len(news)]
            held = rows.slice(int(olds[-1]), 1) if len(before) > len(news) else None
        yield from _pieces(rows, np.abs(changes), changes < 0)


def _counts_of(rows: pa.RecordBatch) -> CountInts:
    counts: CountInts = rows.column(ROW_COUNT).to_numpy()
    return counts


def _pieces(rows: pa.RecordBatch, times: CountInts, is_gone: npt.NDArray[np.bool_] | None) -> CountedChanges:
    plain = rows.drop_columns([ROW_COUNT])
    gone = np.zeros(len(times), np.bool_) if is_gone is None else is_gone
    ends = np.cumsum(times)
    total = int(ends[-1]) if len(ends) else 0
    if total == len(times) and bool((times == 1).all()):
        if total:
            yield plain, _kinds(gone)
        return
    step = rows_within(plain.nbytes / max(plain.num_rows, 1), most_rows=_BATCH_ROWS, most_bytes=_BATCH_BYTES)
    for start in range(0, total, step):
        stop = min(start + step, total)
        chosen = np.searchsorted(ends, np.arange(start, stop), side="right")
        yield rows.take(pa.array(chosen)).drop_columns([ROW_COUNT]), _kinds(gone[chosen])


def _kinds(is_gone: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(np.where(is_gone, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT)))
