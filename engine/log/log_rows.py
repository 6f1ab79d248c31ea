"""Reads a range of a table's log as rows of the table.

Records have the names and types that the columns had when they were written; they are converted to the present ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.log.retention import kept_records
from engine.log.table_log import TableLog
from engine.types.row_changes import RowChanges
from filestore.datafile.schema_mapping import SchemaMapping, map_schema, newer_than
from filestore.schema.log_names import other_names
from filestore.table_view import TableView
from filestore.types.data_types import arrow_field
from logstore.kafka.prefetch import prefetched
from logstore.log.kept_consumers import RangeConsumers
from logstore.log.log_reader import DELETED_KEY
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.keys.keys import key_order
from lsm.row_kind import RowKind


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """Converts records to the rows of an opened table, across schema changes since it was opened."""

    schema: pa.Schema  # to decode: one column per former or current name
    names: Mapping[str, Sequence[str]]  # other names by column
    mapping: SchemaMapping | None  # from the newest version of the schema to the opened one; None: it is the newest
    never_null: Sequence[str]  # NOT NULL in the opened version, nullable in the newest

    @classmethod
    def of(cls, table: TableView, columns: Sequence[str]) -> "LogColumns":
        """The columns for the current schema versions."""
        versions = table.store.schema_versions()
        newest = versions[-1]
        wanted = table.schema.fields_of(columns)
        newer = newer_than(table.schema, newest)
        by_id = {} if newer is None else {field.id: field for field in newest.fields}
        read = [by_id.get(field.id, field) for field in wanted]  # dropped columns are still in old records
        others = other_names(read, versions) if len(versions) > 1 else {}
        fields = [arrow_field(field).with_nullable(True) for field in read]
        fields += [field.with_name(name) for field in fields for name in others.get(field.name, ())]
        loosened = [one.name for one, two in zip(wanted, read, strict=True) if two.type.nullable > one.type.nullable]
        nullable = [replace(field, type=replace(field.type, nullable=True)) for field in wanted]
        return cls(
            schema=pa.schema(fields),
            names=others,
            mapping=None if newer is None else map_schema(read, nullable, newer=newer),
            never_null=loosened,
        )

    def apply(self, rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
        """Decoded rows with the columns of the opened table.

        Args:
            rows: (n,) of ``schema``.
            kinds: (n,) int8; deletes may have their key only.

        Raises:
            InvalidInputError: a value does not fit its column's type when the table was opened. Names the column.
        """
        for name, names in self.names.items():
            index = rows.schema.get_field_index(name)
            merged = pc.coalesce(rows.column(index), *(rows.column(each) for each in names))
            rows = rows.set_column(index, rows.schema.field(index), merged)
        if self.mapping is None:
            return rows
        found = self.mapping.apply(rows)
        for name in self.never_null:
            is_add = pc.is_in(kinds, value_set=pa.array([RowKind.INSERT, RowKind.UPDATE_AFTER], pa.int8()))
            if pc.any(pc.and_(is_add, found.column(name).is_null())).as_py():
                raise InvalidInputError(
                    f"null in a column that could not be null when the table was opened: column={name} "
                    "fix=open the table again, or restart the query"
                )
        return found


_BATCHES_AHEAD: Final = 2  # fetched while one is decoded


def log_rows(
    table: TableView,
    log: TableLog,
    log_range: LogRange,
    *,
    columns: Sequence[str],
    with_origin: bool = False,
    needed_of_deletes: Sequence[str] | None = None,
    kept: RangeConsumers | None = None,
) -> Iterator[RowChanges]:
    """The changes in a range of one bucket's log, in order, in non-empty batches.

    Records have the column names at the time of writing; a column is found under any of its names. Records are decoded
    with the newest schema version and then converted to the one ``store`` was opened with, so a running stream keeps
    its own columns when a column is renamed or widened.

    With ``log.changelog-mode=all``, a retract directly before an add of the same key becomes ``-U`` and ``+U``; the log
    itself only distinguishes adds from retracts.

    Args:
        table: the table; its schema defines the columns.
        log: the table's log.
        log_range: bucket and offsets.
        columns: value columns to return, in this order.
        with_origin: also return offsets and timestamps.
        needed_of_deletes: columns that a delete must have besides its key; None: those that are never null.
        kept: of a reader that follows the log, see ``read_range``.

    Raises:
        OffsetLostError: rows are lost. Names bucket and offsets.
        CorruptDataError: a record cannot be decoded. Names bucket and offsets.
        UnavailableError: no progress in time.
        InvalidInputError: a value does not fit its column of ``store``, because the column was widened meanwhile; or a
            delete by Flink, which has its key only, has no value where there must be one.
    """
    needed = list(columns)
    codec = log.codec
    if log.key_names and (codec.deletes_have_key_only or codec.has_tombstones or log.keeps_update_before):
        needed += [name for name in log.key_names if name not in columns]
    columns_of_log = LogColumns.of(table, needed)
    # keys are only needed for deletes without a value
    key = "key" if codec.deletes_have_key_only else DELETED_KEY.name if codec.has_tombstones else None
    parts = [*([] if key is None else [key]), "value", *(["offset", "timestamp"] if with_origin else [])]
    batches = kept_records(table.store, log, _of_rows(log, log_range), columns=parts, kept=kept)
    for fetched in prefetched(batches, depth=min(_BATCHES_AHEAD, log.properties.environment.max_threads)):
        records = _rows_only(fetched, key)
        if not records.num_rows:
            continue
        if codec.has_tombstones and records["value"].null_count:
            _check_may_be_null(table, log, columns, needed_of_deletes)
        try:
            keys = None if key is None else records[key]
            changes = codec.decode(keys, records["value"], columns_of_log.schema)
        except CorruptDataError as error:
            raise CorruptDataError(
                f"{error} table={table.name} topic={log.topic} bucket={log_range.bucket} "
                f"range={log_range.start_offset}..{log_range.end_offset}"
            ) from error
        if changes.indices is not None:
            records = records.take(pa.array(changes.indices))
        kinds = changes.kinds
        rows = columns_of_log.apply(changes.rows, kinds)
        if log.key_names and log.keeps_update_before:
            kinds = paired_kinds(rows.select(list(log.key_names)).columns, np.asarray(kinds))
        if len(rows):
            yield RowChanges(
                rows=rows.select(list(columns)),
                kinds=kinds,
                offsets=records["offset"] if with_origin else None,
                timestamps=records["timestamp"] if with_origin else None,
            )


def _of_rows(log: TableLog, log_range: LogRange) -> LogRange:
    """The range without the claim that an adopted topic begins with, which retention may have removed."""
    first = min(max(log_range.start_offset, log.first_offset), log_range.end_offset)
    return replace(log_range, start_offset=first)


def _rows_only(records: pa.RecordBatch, key: str | None) -> pa.RecordBatch:
    """Without records that have neither value nor, as far as it was read, a key: claims and control records."""
    is_nothing = pc.equal(pc.fill_null(pc.binary_length(records["value"]), 0), 0)
    if not pc.any(is_nothing).as_py():
        return records
    if key is not None:
        is_nothing = pc.and_(is_nothing, records[key].is_null())
    return records.filter(pc.invert(is_nothing))


def _check_may_be_null(table: TableView, log: TableLog, columns: Sequence[str], needed: Sequence[str] | None) -> None:
    """Refuse a delete with its key only where more of it is needed."""
    if needed is None:
        needed = [field.name for field in table.schema.fields_of(columns) if not field.type.nullable]
    missing = [name for name in needed if name not in log.key_names]
    if missing:
        raise InvalidInputError(
            f"Flink has written a delete with its key only into the log: table={table.name} topic={log.topic} "
            f"missing={','.join(missing)} cause=columns that are NOT NULL, or that order or merge deletes "
            "fix=let Flink write such a table beside its log: ALTER TABLE ... RESET ('log.system')"
        )


def paired_kinds(keys: Sequence[pa.Array], kinds: NDArray[np.int8]) -> pa.Array:
    """Retracts directly followed by an add of the same key as ``-U`` and ``+U``; other kinds are unchanged.

    Args:
        keys: key columns of (n,) rows.
        kinds: (n,) RowKind, adds and retracts.
    """
    if len(kinds) < 2:
        return pa.array(kinds)
    is_retract = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
    candidates = np.flatnonzero(is_retract[:-1] & ~is_retract[1:])
    found = kinds.copy()
    if len(candidates):
        order, starts = key_order(list(keys), presorted=False)
        key_numbers = np.empty(len(kinds), np.int64)
        key_numbers[order] = np.cumsum(starts)
        pairs = candidates[key_numbers[candidates] == key_numbers[candidates + 1]]
        found[pairs], found[pairs + 1] = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
    return pa.array(found)
