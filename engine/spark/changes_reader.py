"""``CHANGES`` of a table: its changes by version, as a batch between two bounds and as a stream from one on.

One plan with differences and streams: a batch reads ``filestore.changelog.version_changes``, a stream the stream of
the table, made exact. The catalog (``engine.spark.catalog.catalog``) says what is wanted in an option of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from engine.checkpoint.admission import ReadLimit
from engine.request.read_keys import CHANGES_OPTION, STREAM_KEYS
from engine.spark.named_table import named_table
from engine.spark.read_options import ReadOptions, spelled_options, stream_options
from engine.spark.snapshot_reader import as_declared
from engine.stream.position.position import UNSTARTED
from engine.stream.position.start import Start, StartKind
from engine.stream.reader import HybridStreamReader
from engine.stream.rows import ChangePiece, StreamPiece, StreamRows
from engine.types.row_changes import MetadataColumn, RowChanges
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_arrow import to_spark_batch
from engine.types.spark_types import spark_schema
from filestore.changelog.version_changes import VersionSplit, plan_versions, read_versions
from filestore.diff.version_range import Bound, VersionRange, find_range, state_before
from filestore.table import FileTable
from filestore.table_store import TableStore
from logstore.log.kept_consumers import RangeConsumers
from lsm.errors import InvalidInputError
from lsm.row_kind import ROW_KIND_SYMBOLS

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
CHANGE_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

_TYPES: Final = {  # by the number of a kind
    False: pa.array(["insert", "delete", "insert", "delete"]),
    True: pa.array(["insert", "update_preimage", "update_postimage", "delete"]),
}
_PART_BYTES: Final = 32 << 20  # of files that one task reads
_TIME: Final = pa.timestamp("us", tz="UTC")
_MODE: Final = "streaming-read-mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRequest:
    """What ``CHANGES`` asks for."""

    start: Bound | None = None  # None: the oldest kept state and what follows; of a stream the newest
    end: Bound | None = None  # None: the newest version
    shows_updates: bool = False  # as pre- and postimages; else as a delete and an insert
    keeps_carryovers: bool = False  # deduplicationMode=none
    folds_expired: bool = False  # deduplicationMode=netChanges

    def to_option(self) -> str:
        """The text of the option."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def of_option(cls, text: str) -> "ChangesRequest":
        """From the text of the option."""
        found = orjson.loads(text)
        bounds = {name: None if found[name] is None else Bound(**found[name]) for name in ("start", "end")}
        return cls(**found | bounds)

    def range(self, table: FileTable) -> VersionRange:
        """The versions, now. Raises: see ``find_range``."""
        return find_range(table, self.start, self.end, folds_expired=self.folds_expired)


def changes_schema(columns: StructType) -> StructType:
    """The columns of a table's changes, of the table's own. Raises: InvalidInputError: one has the name of another."""
    taken = [name for name in columns.fieldNames() if name.lower() in CHANGE_COLUMNS]
    if taken:
        raise InvalidInputError(
            f"a column of the table has the name of one of its changes: column={taken[0]} fix=rename the column"
        )
    return StructType(
        [
            *columns.fields,
            StructField(CHANGE_TYPE, StringType(), nullable=False),
            StructField(COMMIT_VERSION, LongType(), nullable=True),  # null: read from the log, ahead of its commit
            StructField(COMMIT_TIMESTAMP, TimestampType(), nullable=True),
        ]
    )


def columns_of_changes(table: FileTable, request: ChangesRequest) -> StructType:
    """The columns of changes: the table's, or those of the version at the end. Raises: InvalidInputError: no such one.

    Without an end they are the table's own, as its stream and its batch reader have them: an altered table has no
    snapshot of its new columns before the next commit. Whether a start is there, readers say: a restarted stream may
    have begun at a version that has expired.
    """
    columns = table if request.end is None else request.range(table).table
    return changes_schema(spark_schema(columns.schema.fields))


class _Part(InputPartition):
    def __init__(self, splits: Sequence[VersionSplit]) -> None:
        super().__init__(None)
        self.splits = splits


class ChangesReader(DataSourceReader):
    """The changes between two bounds; planned on the driver's side, read in tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Plan the changes that options ask for; ``schema`` has the columns to return, in this order."""
        named = spelled_options(options)
        self._request = ChangesRequest.of_option(named[CHANGES_OPTION])
        found = self._request.range(named_table(named).files)
        self._table = found.table
        self._names = schema.fieldNames()
        self._nullable = [field.nullable for field in schema]
        self._times = _Times.of({step.after.id: step.after.time_ms for step in found.steps})
        self._parts = [_Part(each) for each in _bundled(plan_versions(found.table.store, found.steps))]

    def __getstate__(self) -> dict[str, object]:
        """Tasks get their own part from Spark."""
        return self.__dict__ | {"_parts": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Each has the files of some buckets and versions."""
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one part; nothing has one partition, which Spark makes without asking."""
        if not isinstance(partition, _Part):
            return
        for split in partition.splits:
            for found in read_versions(self._table, split, drops_carryovers=not self._request.keeps_carryovers):
                more = {
                    CHANGE_TYPE: _TYPES[self._request.shows_updates].take(found.kinds),
                    COMMIT_VERSION: found.versions,
                    COMMIT_TIMESTAMP: self._times.at(found.versions),
                }
                rows = _with_columns(found.rows, more, self._names)
                yield as_declared(to_spark_batch(rows), self._nullable)


class ChangesStreamReader(HybridStreamReader):
    """The changes from a version on: of a stream's file changes the exact ones of each commit; of a log its records."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Open the stream that options ask for; ``schema`` has the columns to return, in this order."""
        named = spelled_options(options)
        self._request = ChangesRequest.of_option(named.pop(CHANGES_OPTION))
        if self._request.end is not None:
            raise InvalidInputError(f"a stream has no end: end={self._request.end} fix='remove it, or use spark.read'")
        inner = _stream_given(named)
        fields = [field for field in schema if field.name not in CHANGE_COLUMNS]
        fields += [
            StructField(ROW_KIND_COLUMN, StringType(), nullable=False),
            StructField(MetadataColumn.SNAPSHOT_ID.value, LongType()),
            StructField(MetadataColumn.LOG_TIMESTAMP.value, TimestampType()),
        ]
        opened = ReadOptions.parse(inner, STREAM_KEYS)
        stream = stream_options(opened, StructType(fields))
        stream = replace(stream, is_exact=stream.is_exact or (stream.log is None and opened.table.store.has_key))
        self._unstarted: InvalidInputError | None = None
        if self._request.start is not None:
            stream = replace(stream, start=self._start(opened.table, self._request.start))
        super().__init__(stream)
        self._rows = _ExactRows(table=stream.table, schema=stream.schema, columns=stream.columns, filter=None)
        self._names = schema.fieldNames()
        self._nullable = [field.nullable for field in schema]

    def _start(self, table: FileTable, start: Bound) -> Start:
        """The offset after the state before the first version; an expired version is an error only for a new query."""
        try:
            return Start(kind=StartKind.BEHIND, snapshot_id=state_before(table, start))
        except InvalidInputError as error:
            self._unstarted = error
            return Start(kind=StartKind.LATEST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See ``HybridStreamReader``. Raises: InvalidInputError: there is no such start."""
        if start == UNSTARTED and self._unstarted is not None:
            raise self._unstarted
        return super().latestOffset(start, limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one part."""
        store = self._options.table.store
        times: dict[int, int] = {}
        for rows in super().read(partition):
            versions = rows.column(MetadataColumn.SNAPSHOT_ID.value)
            for version in versions.unique().to_pylist():
                if version is not None and version not in times:
                    times[version] = _time_ms(store, version)
            numbers = pc.index_in(rows.column(ROW_KIND_COLUMN), ROW_KIND_SYMBOLS)
            more = {
                CHANGE_TYPE: _TYPES[self._request.shows_updates].take(numbers),
                COMMIT_VERSION: versions,
                COMMIT_TIMESTAMP: rows.column(MetadataColumn.LOG_TIMESTAMP.value)
                if versions.null_count
                else _Times.of(times).at(versions),
            }
            yield as_declared(to_spark_batch(_with_columns(rows, more, self._names)), self._nullable)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExactRows(StreamRows):
    """Rows of a stream without pairs of equal removed and added rows."""

    def _changes(self, piece: StreamPiece, kept: RangeConsumers | None) -> Iterator[RowChanges]:
        if not isinstance(piece, ChangePiece) or self.table.store.has_key:
            yield from StreamRows._changes(self, piece, kept)
            return
        split = VersionSplit(last_version=piece.split.snapshot.id, step=piece.split)
        for found in read_versions(self.table, split):
            yield RowChanges(rows=found.rows, kinds=found.kinds, snapshot_id=split.last_version)


@dataclass(frozen=True, slots=True)
class _Times:
    """Commit times by version."""

    versions: np.ndarray  # (n,) ascending
    times: pa.Array  # (n,)

    @classmethod
    def of(cls, found: Mapping[int, int]) -> "_Times":
        """Commit times from epoch milliseconds by version (snapshot id)."""
        known = sorted(found)
        times = pa.array(np.array([found[each] for each in known], np.int64) * 1000, _TIME)
        return cls(np.array(known, np.int64), times)

    def at(self, versions: pa.Array) -> pa.Array:
        """(n,) times of known versions."""
        return self.times.take(pa.array(np.searchsorted(self.versions, versions.to_numpy(zero_copy_only=False))))


def _time_ms(store: TableStore, snapshot_id: int) -> int:
    """When a snapshot that is being read was committed; a tag may keep it."""
    found = store.snapshots.find_kept(snapshot_id)
    return store.snapshots.read(snapshot_id).time_ms if found is None else found.time_ms


def _with_columns(rows: pa.RecordBatch, more: Mapping[str, pa.Array], names: Sequence[str]) -> pa.RecordBatch:
    columns = [more[name] if name in more else rows.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def _bundled(splits: Sequence[VersionSplit]) -> Iterator[Sequence[VersionSplit]]:
    """Splits for one task each, in their order."""
    held: list[VersionSplit] = []
    size_bytes = 0
    for split in splits:
        held.append(split)
        size_bytes += sum(file.size_bytes for file in split.files)
        if size_bytes >= _PART_BYTES:
            yield held
            held, size_bytes = [], 0
    if held:
        yield held


_SPARKS: Final = frozenset(
    {
        "startingversion", "endingversion", "startingtimestamp", "endingtimestamp", "startingboundinclusive",
        "endingboundinclusive", "deduplicationmode", "computeupdates",
    }
)  # fmt: skip


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """A user's options of one read, without those by which Spark knows what it asks the catalog for."""
    return {key: value for key, value in given.items() if key.lower() not in _SPARKS and key.lower() != CHANGES_OPTION}


def _stream_given(named: Mapping[str, str]) -> dict[str, str]:
    """The options of the inner stream: every change, with its kind and origin, from files unless the log is wanted.

    A statement has no options of a reader: what the table itself says counts for it.
    """
    files = named_table(named).files
    mode = named.get(_MODE) or files.schema.options.get(_MODE, "file")
    forced = {
        "read.changelog": "true",
        "read.metadata-columns": f"{MetadataColumn.SNAPSHOT_ID},{MetadataColumn.LOG_TIMESTAMP}",
        _MODE: mode,
        "streaming-read-overwrite": "true",
        "streaming-read-append-overwrite": "true",
    }
    if mode == "log" and files.store.has_key and files.options.log_changelog_mode != "all":
        forced["log.scan.normalize"] = "true"
    wrong = [key for key in forced if key in named and key != _MODE]
    if wrong:
        raise InvalidInputError(f"changes are always read with this: option={wrong[0]} fix=remove it")
    return {**named, **forced}
