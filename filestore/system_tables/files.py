"""System tables of data files and their key ranges. Built column-wise, since tables may have many files."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from filestore.format.simple_stats import SimpleStats
from filestore.layout.paths import partition_path
from filestore.manifest.entries import DataFileMeta
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.snapshot import Snapshot
from filestore.system_tables.json_columns import json_lists, json_objects
from filestore.system_tables.system_table import LOCAL_TIME, SystemTable
from filestore.table_store import TableStore
from filestore.types.binary_columns import decode_columns
from filestore.types.binary_row import ARITY_BYTES
from filestore.types.data_types import DataField

_SOURCES: Final[Mapping[int | None, str]] = {0: "APPEND", 1: "COMPACT"}


@dataclass(frozen=True, kw_only=True)
class FileColumns:
    """The live files of a snapshot: row n of every column describes file n."""

    store: TableStore
    live: LiveFiles
    keys: Sequence[BucketKey]
    files: Sequence[DataFileMeta]

    @classmethod
    def of(cls, store: TableStore, snapshot: Snapshot | None) -> "FileColumns":
        """The files of a snapshot, by partition, bucket and level."""
        live = LiveFiles(store, snapshot)
        pairs = [(key, file) for key in live.all_buckets() for file in live.files(key)]
        pairs.sort(key=lambda pair: (pair[0], pair[1].level, pair[1].file_name))
        return cls(store=store, live=live, keys=[key for key, _ in pairs], files=[file for _, file in pairs])

    def column(self, value: Callable[[DataFileMeta], Any], kind: pa.DataType) -> pa.Array:
        """One attribute of the files as a column."""
        return pa.array([value(file) for file in self.files], kind)

    @cached_property
    def partitions(self) -> pa.Array:
        """``dt=2020-08-08/hour=7`` of every file; null without partitions."""
        texts = partition_texts(self.store, {key.partition for key in self.keys})
        return pa.array([texts[key.partition] for key in self.keys], pa.string())

    @cached_property
    def buckets(self) -> pa.Array:
        """Bucket of every file."""
        return pa.array([key.bucket for key in self.keys], pa.int32())

    @cached_property
    def paths(self) -> pa.Array:
        """Path of every file."""
        directories = {key: self.store.bucket_dir(key.partition, key.bucket) for key in set(self.keys)}
        paths = [
            self.store.file_path(key.partition, key.bucket, file)
            if file.external_path
            else f"{directories[key]}/{file.file_name}"
            for key, file in zip(self.keys, self.files, strict=True)
        ]
        return pa.array(paths, pa.string())

    def key_texts(self, row: Callable[[DataFileMeta], bytes]) -> pa.Array:
        """First or last keys as JSON objects; null for tables without a key."""
        return self._texts(row, lambda _: self.store.schema.key_fields)

    def stats_texts(self, row: Callable[[SimpleStats], bytes]) -> pa.Array:
        """Bounds of value columns as JSON objects; null without statistics."""
        return self._texts(lambda file: row(file.value_stats), self._value_fields)

    def null_count_texts(self) -> pa.Array:
        """Null counts as JSON objects by column; null where unknown."""
        return self._by_shape(self._value_fields, self._null_counts)

    def _null_counts(self, fields: Sequence[DataField], files: Sequence[DataFileMeta]) -> pa.Array:
        counts = [file.value_stats.null_counts for file in files]
        if any(each is None or len(each) != len(fields) for each in counts):
            return json_lists(counts)
        columns = {
            field.name: pa.array([each[at] for each in counts if each is not None], pa.int64())
            for at, field in enumerate(fields)
        }
        return json_objects(columns)

    def _texts(
        self, row: Callable[[DataFileMeta], bytes], fields_of: Callable[[DataFileMeta], Sequence[DataField]]
    ) -> pa.Array:
        def decoded(fields: Sequence[DataField], files: Sequence[DataFileMeta]) -> pa.Array:
            rows = [row(file) for file in files]
            if any(int.from_bytes(each[:ARITY_BYTES], "big") == 0 for each in rows):  # no statistics
                return pa.nulls(len(rows), pa.string())
            arrays = decode_columns(rows, [field.type for field in fields])
            return json_objects({field.name: each for field, each in zip(fields, arrays, strict=True)})

        return self._by_shape(fields_of, decoded)

    def _by_shape(
        self,
        fields_of: Callable[[DataFileMeta], Sequence[DataField]],
        make: Callable[[Sequence[DataField], Sequence[DataFileMeta]], pa.Array],
    ) -> pa.Array:
        """Texts in file order, computed together for files with the same schema and statistics columns."""
        groups: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for at, file in enumerate(self.files):
            is_empty = file.value_stats.null_counts == ()
            groups[file.schema_id, file.value_stats_cols, is_empty].append(at)
        texts, order = [], []
        for members in groups.values():
            fields = fields_of(self.files[members[0]])
            files = [self.files[at] for at in members]
            texts.append(make(fields, files) if fields else pa.nulls(len(files), pa.string()))
            order += members
        if not texts:
            return pa.array([], pa.string())
        return pa.concat_arrays(texts).take(pc.sort_indices(pa.array(order)))

    def _value_fields(self, file: DataFileMeta) -> Sequence[DataField]:
        schema = self.store.schema_of(file.schema_id)
        return schema.fields if file.value_stats_cols is None else schema.fields_of(file.value_stats_cols)


def partition_texts(store: TableStore, partitions: set[bytes]) -> Mapping[bytes, str | None]:
    """``dt=2020-08-08/hour=7`` by BinaryRow; None for a table without partitions."""
    fields = store.schema.partition_fields
    return {
        each: partition_path(store.partition_values(each), fields, store.options) if fields else None
        for each in partitions
    }


_PLACE: Final = (
    pa.field("partition", pa.string()),
    pa.field("bucket", pa.int32(), nullable=False),
    pa.field("file_path", pa.string(), nullable=False),
    pa.field("file_format", pa.string(), nullable=False),
    pa.field("schema_id", pa.int64(), nullable=False),
    pa.field("level", pa.int32(), nullable=False),
    pa.field("record_count", pa.int64(), nullable=False),
    pa.field("file_size_in_bytes", pa.int64(), nullable=False),
    pa.field("min_key", pa.string()),
    pa.field("max_key", pa.string()),
)
_FILES: Final = pa.schema(
    [
        *_PLACE,
        pa.field("null_value_counts", pa.string()),
        pa.field("min_value_stats", pa.string()),
        pa.field("max_value_stats", pa.string()),
        pa.field("min_sequence_number", pa.int64()),
        pa.field("max_sequence_number", pa.int64()),
        pa.field("creation_time", LOCAL_TIME),
        pa.field("deleteRowCount", pa.int64()),
        pa.field("file_source", pa.string()),
        pa.field("first_row_id", pa.int64()),
        pa.field("write_cols", pa.list_(pa.string())),
    ]
)
_FILE_KEY_RANGES: Final = pa.schema([*_PLACE, pa.field("first_row_id", pa.int64())])


def _files(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = FileColumns.of(store, snapshot)
    column = found.column
    return pa.table(
        {
            **_place(found),
            "null_value_counts": found.null_count_texts(),
            "min_value_stats": found.stats_texts(lambda stats: stats.min_values),
            "max_value_stats": found.stats_texts(lambda stats: stats.max_values),
            "min_sequence_number": column(lambda file: file.min_sequence_number, pa.int64()),
            "max_sequence_number": column(lambda file: file.max_sequence_number, pa.int64()),
            "creation_time": column(lambda file: file.creation_time_ms, LOCAL_TIME),
            "deleteRowCount": column(lambda file: file.delete_row_count, pa.int64()),
            "file_source": column(lambda file: _SOURCES.get(file.file_source), pa.string()),
            "first_row_id": column(lambda file: file.first_row_id, pa.int64()),
            "write_cols": column(lambda file: file.write_cols, pa.list_(pa.string())),
        }
    )


def _file_key_ranges(store: TableStore, snapshot: Snapshot | None) -> pa.Table:
    found = FileColumns.of(store, snapshot)
    return pa.table({**_place(found), "first_row_id": found.column(lambda file: file.first_row_id, pa.int64())})


def _place(found: FileColumns) -> dict[str, pa.Array]:
    column = found.column
    return {
        "partition": found.partitions,
        "bucket": found.buckets,
        "file_path": found.paths,
        "file_format": column(lambda file: file.file_name.rpartition(".")[2], pa.string()),
        "schema_id": column(lambda file: file.schema_id, pa.int64()),
        "level": column(lambda file: file.level, pa.int32()),
        "record_count": column(lambda file: file.row_count, pa.int64()),
        "file_size_in_bytes": column(lambda file: file.size_bytes, pa.int64()),
        "min_key": found.key_texts(lambda file: file.min_key),
        "max_key": found.key_texts(lambda file: file.max_key),
    }


FILES: Final = SystemTable(name="files", doc="Every live data file.", schema=_FILES, rows=_files, is_of_snapshot=True)
FILE_KEY_RANGES: Final = SystemTable(
    name="file_key_ranges",
    doc="The key range of every live data file.",
    schema=_FILE_KEY_RANGES,
    rows=_file_key_ranges,
    is_of_snapshot=True,
)
