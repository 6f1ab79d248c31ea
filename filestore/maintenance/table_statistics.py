"""ANALYZE: reading a table once, and publishing what was found with a snapshot of its own.

Source: Paimon Statistics, StatsFileHandler.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from filestore.commit.committable import StatisticsFile
from filestore.commit.table_commit import TableCommit
from filestore.hashing.xxhash import Hashes, column_hashes
from filestore.read.split_read import read_split
from filestore.scan.snapshot_files import live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.types.data_types import BYTES_ROOTS, NESTED_ROOTS, TEXT_ROOTS, DataField, parse_data_type
from lsm.errors import CorruptDataError, MissingColumnError
from lsm.undo import undoing_unless_visible

# ---- Statistics of columns for a planner, gathered batch by batch
# The rules are those of Spark's ANALYZE TABLE: texts and bytes have no bounds. Distinct values are counted by a
# HyperLogLog sketch of 16 kB, with a standard error of 0.8 %.
#
# Source: Paimon ColStats; Flajolet and others, HyperLogLog (2007); Ertl (2017), an estimate without bias at any size.


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
        return found | {"nullCount": self._nulls, "avgLen": average, "maxLen": self._longest if self._is_text else size}

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


# ---- ANALYZE: reading a table once, and publishing what was found with a snapshot of its own


OnColumn = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """The statistics of ANALYZE."""

    snapshot_id: int  # that was read
    schema_id: int  # of then; with another one the statistics do not count
    row_count: int
    size_bytes: int
    columns: Mapping[str, Mapping[str, Any]]  # by name, as in the file

    def to_json(self) -> bytes:
        """The bytes of its file."""
        body = {
            "snapshotId": self.snapshot_id,
            "schemaId": self.schema_id,
            "mergedRecordCount": self.row_count,
            "mergedRecordSize": self.size_bytes,
            "colStats": self.columns,
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def analyze(
    table: FileTable, columns: Sequence[str], *, progress: OnColumn = lambda done, of: None
) -> TableStatistics | None:
    """Count a table's rows and describe some of its columns, for planners; None: the table has no snapshot.

    Args:
        table: to read at its newest snapshot.
        columns: names; () reads no column.
        progress: called with splits done, and of all.

    Raises:
        ConflictError: the schema changed, or the commit lost too many races: call again. Nothing is visible.
        InvalidInputError: there is no such column.
        OutcomeUnknownError: it may be visible.
    """
    known = table.schema.column_names
    for name in columns:
        if name not in known:
            raise MissingColumnError(f"no such column: table={table.name} column={name} columns={list(known)}")
    store, read = table.store, table.read()
    snapshot = read.snapshot
    if snapshot is None:
        return None
    view = read.table
    found = {name: ColumnStatistics(view.schema.field(name)) for name in dict.fromkeys(columns)}
    rows, splits = 0, read.plan().splits
    for done, split in enumerate(splits):
        progress(done, len(splits))
        for batch in read_split(view, split, columns=list(found)):
            rows += batch.num_rows
            for name, column in found.items():
                column.add(batch.column(name))
    progress(len(splits), len(splits))
    files = [entry.file for entry in live_files(store, snapshot) if entry.bucket >= 0]
    stored = sum(file.row_count for file in files)
    statistics = TableStatistics(
        snapshot_id=snapshot.id,
        schema_id=store.schema.id,
        row_count=rows,
        size_bytes=round(sum(file.size_bytes for file in files) * min(rows / stored, 1)) if stored else 0,
        columns={name: column.to_json() for name, column in found.items()},
    )
    name = f"stat-{store.names.uuid()}-0"
    with undoing_unless_visible(lambda: store.io.delete(store.paths.statistics(name))):
        store.io.write_new(store.paths.statistics(name), statistics.to_json())
        commit = TableCommit(store, store.new_commit_user(), history_start=snapshot.id)
        commit.commit_statistics(StatisticsFile(name=name, schema_id=store.schema.id))
    return statistics


def statistics_of(store: TableStore, snapshot: Snapshot | None) -> TableStatistics | None:
    """The statistics of ANALYZE that apply to a snapshot; None: none.

    Raises: CorruptDataError, FileNotFoundError.
    """
    if snapshot is None or snapshot.statistics is None:
        return None
    path = store.paths.statistics(snapshot.statistics)
    try:
        body = orjson.loads(store.io.read_bytes(path))
        if body["schemaId"] != snapshot.schema_id:
            return None
        return TableStatistics(
            snapshot_id=body["snapshotId"],
            schema_id=body["schemaId"],
            row_count=body.get("mergedRecordCount") or 0,
            size_bytes=body.get("mergedRecordSize") or 0,
            columns=body.get("colStats") or {},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"statistics cannot be decoded: file={path} error={error!r}") from error
