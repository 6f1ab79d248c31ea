"""Row-level expiry: rows expire ``record-level.expire-time`` after the time in their ``record-level.time-field``.

Only merged rows expire, never single records before merging: so an old version of a row
does not reappear when a newer one has expired. Rows without a time never expire. Reads hide expired rows, and
compaction drops them where nothing older lies below. Source: Paimon RecordLevelExpire for ages, units and rounding;
see FORMAT.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.schema_mapping import map_ranges
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.file_ranges import ranges_of
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.types.data_types import arrow_type
from lsm.errors import InvalidInputError

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

_AGE: Final = "record-level.expire-time"
_FIELD: Final = "record-level.time-field"
_MIN_MILLIS: Final = 1_000_000_000_000  # BIGINT values from here on are milliseconds, smaller ones seconds
_TIME_ROOTS: Final = frozenset({"INT", "BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExpiry:
    """The row expiry rule of a table."""

    time_field: str
    age_s: int

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions) -> Self | None:
        """The rule of the options; None: rows never expire, also for invalid options of other writers."""
        age_ms, name = options.record_level_expire_time_ms, options.record_level_time_field
        if age_ms is None or name is None or not schema.primary_keys or name not in schema.column_names:
            return None
        return cls(time_field=name, age_s=age_ms // 1000) if schema.field(name).type.root in _TIME_ROOTS else None

    def kept(self, times: pa.Array | pa.ChunkedArray, moment_ms: int) -> pa.Array:
        """(n,) whether rows with these times are not expired at a moment; never null."""
        is_expired = pc.less(_seconds(times), pa.scalar(moment_ms // 1000 - self.age_s, pa.int64()))
        return pc.invert(is_expired.fill_null(False))

    def rows_kept(self, rows: RowsT, moment_ms: int) -> RowsT:
        """The rows that are not expired at a moment."""
        kept = self.kept(rows.column(self.time_field), moment_ms)
        return rows if pc.all(kept, min_count=0).as_py() else rows.filter(kept)

    def may_expire(self, store: TableStore, file: DataFileMeta, moment_ms: int) -> bool:
        """Whether a file may hold expired rows at a moment, by its statistics."""
        then = store.schema_of(file.schema_id)
        ranges = map_ranges(ranges_of(file, then), then, store.schema, file.row_count)
        times = ranges.get(self.time_field)
        if times is None or (times.min is None and times.null_count != file.row_count):
            return True
        bounds = pa.array([times.min, times.max], arrow_type(store.schema.field(self.time_field).type))
        first, last = _seconds(bounds).to_pylist()
        if times.min is not None and (last < first or times.min < _MIN_MILLIS <= times.max):
            return True  # mixed seconds and milliseconds: the minimum is not the earliest time
        return not self.kept(bounds, moment_ms)[0].as_py()


def moment_of(store: TableStore, snapshot: Snapshot) -> int | None:
    """The moment at which expiry of a snapshot's rows is evaluated; None: they never expire.

    It is the current time for the newest snapshot. For an older one it is its commit time: time travel, or reading
    a tag, shows the rows of that time.
    """
    if RowExpiry.of(store.schema, store.options) is None:
        return None
    newest = store.snapshots.latest_id()
    now_ms = store.clock.now_ms()
    return min(snapshot.time_ms, now_ms) if newest is not None and snapshot.id < newest else now_ms


def may_expire(store: TableStore, files: Iterable[DataFileMeta], moment_ms: int | None) -> bool:
    """Whether any file may hold expired rows at a moment; never for None."""
    expiry = RowExpiry.of(store.schema, store.options)
    return expiry is not None and moment_ms is not None and any(expiry.may_expire(store, f, moment_ms) for f in files)


def not_expired(store: TableStore, rows: RowsT, moment_ms: int | None) -> RowsT:
    """The rows that are not expired at a moment; all for None."""
    expiry = RowExpiry.of(store.schema, store.options)
    return rows if expiry is None or moment_ms is None else expiry.rows_kept(rows, moment_ms)


def check_expiry(schema: TableSchema, options: TableOptions) -> None:
    """Raises: InvalidInputError for an invalid expiry rule, naming the option and the fix."""
    age_ms, name = options.record_level_expire_time_ms, options.record_level_time_field
    if age_ms is None:
        return
    if not schema.primary_keys:
        raise InvalidInputError(f"{_AGE} needs a primary key: {_AGE}={age_ms} ms fix='declare a primary key'")
    if name is None:
        raise InvalidInputError(f"rows have no age: {_AGE}={age_ms} ms fix='set {_FIELD} to a column with their time'")
    if name not in schema.column_names:
        raise InvalidInputError(f"no such column: used_by={_FIELD} column={name} columns={list(schema.column_names)}")
    kind = schema.field(name).type
    if kind.root not in _TIME_ROOTS:
        raise InvalidInputError(
            f"not a time column: used_by={_FIELD} column={name} type={kind} "
            "fix='use INT (seconds), BIGINT (seconds or milliseconds) or TIMESTAMP'"
        )


def _seconds(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """(n,) seconds since 1970; fractions are truncated."""
    kind = times.type
    if pa.types.is_timestamp(kind):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[kind.unit]
        return pc.divide(times.cast(pa.int64()), per_second)
    numbers = times.cast(pa.int64())
    if pa.types.is_int64(kind):
        return pc.if_else(pc.greater_equal(numbers, _MIN_MILLIS), pc.divide(numbers, 1000), numbers)
    return numbers
