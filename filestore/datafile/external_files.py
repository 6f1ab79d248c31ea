"""External Parquet files: their contents, and whether a table can adopt them without rewriting.

A directory is read in the layout of Hive and Spark: files at any depth, ``column=value`` in directory names,
names starting with ``_`` or ``.`` ignored. Source: Paimon's ``migrate_table`` (HiveMigrator), which moves files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet as pq

from filestore.datafile.rolling_writer import APPEND_SOURCE
from filestore.datafile.schema_mapping import conform
from filestore.format.interface import USUAL_BATCH
from filestore.format.parquet_batches import bounded_batches
from filestore.format.simple_stats import EMPTY_STATS
from filestore.io.file_io import FileIO, LinksFiles, copy_file
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.table_store import TableStore
from filestore.types.binary_row import EMPTY_ROW
from filestore.types.data_types import DataField, arrow_type, data_type_of, with_stored_times
from lsm.errors import CorruptDataError, InvalidInputError

_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_SUFFIX: Final = ".parquet"
Values = Mapping[str, str | None]
"""Partition values from directory names, by column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalFile:
    """One file, described by its footer."""

    path: str
    size_bytes: int
    row_count: int
    columns: pa.Schema  # without writer-specific type variants
    partition: Values  # from its parent directories
    nonstandard_columns: tuple[str, ...]  # stored in a way that not all readers support


@dataclass(frozen=True)
class ExternalFiles:
    """The external files below one directory."""

    files: Sequence[ExternalFile] = field(default=())

    @cached_property
    def partition_columns(self) -> list[str]:
        """Partition columns in directory names. Raises: InvalidInputError when files have different ones."""
        found = {tuple(file.partition): file for file in self.files}
        if len(found) > 1:
            one, other = list(found.values())[:2]
            raise InvalidInputError(f"files have different partition columns: file={one.path} other={other.path}")
        return list(next(iter(found), ()))

    @cached_property
    def columns(self) -> pa.Schema:
        """The union of all files' columns. Raises: InvalidInputError for a column with two types, naming both files."""
        known: dict[str, tuple[pa.Field, ExternalFile]] = {}
        for file in self.files:
            for column in file.columns:
                has, first = known.setdefault(column.name, (column, file))
                if has.type != column.type:
                    raise InvalidInputError(
                        f"a column has two types: column={column.name} type={has.type} file={first.path} "
                        f"other_type={column.type} other_file={file.path}"
                    )
        return pa.schema([column for column, _ in known.values()])


def find_external_files(io: FileIO, directory: str) -> ExternalFiles:
    """The Parquet files below a directory, by path; reads only footers.

    Raises:
        CorruptDataError: a file is not Parquet.
        InvalidInputError: there are no files.
    """
    files = [_described(io, path, partition) for path, partition in _walk(io, directory.rstrip("/"), {})]
    if not files:
        raise InvalidInputError(f"no Parquet file below this directory: source={directory}")
    return ExternalFiles(tuple(files))


def can_adopt(file: ExternalFile, fields: Sequence[DataField]) -> bool:
    """Whether a table without a key can adopt a file: it is stored just as Fluvial would have stored it."""
    return (
        not file.partition
        and not file.nonstandard_columns
        and {column.name for column in file.columns} == {field.name for field in fields}
        and all(file.columns.field(field.name).type == arrow_type(field.type) for field in fields)
    )


def adopt_file(store: TableStore, file: ExternalFile, *, link: bool) -> CommitMessage:
    """Add a file to the table by a hard link, or by a copy where links are not supported.

    Args:
        store: an append table without buckets and partitions.
        file: a file that fits, see ``can_adopt``.
        link: False: always copy.

    Returns:
        The message to commit.
    """
    name = f"{store.options.data_file_prefix}{store.names.uuid()}-0{_SUFFIX}"
    target = f"{store.bucket_dir(EMPTY_ROW, 0)}/{name}"
    if not (link and isinstance(store.io, LinksFiles) and store.io.link_file(file.path, target)):
        copy_file(store.io, file.path, target)
    meta = DataFileMeta(
        file_name=name,
        size_bytes=file.size_bytes,
        row_count=file.row_count,
        min_key=EMPTY_ROW,
        max_key=EMPTY_ROW,
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=0,
        max_sequence_number=file.row_count - 1,
        schema_id=store.schema.id,
        level=0,
        creation_time_ms=store.clock.local_ms(),
        delete_row_count=0,
        file_source=APPEND_SOURCE,
        value_stats_cols=(),
    )
    return CommitMessage(partition=EMPTY_ROW, bucket=0, total_buckets=store.options.bucket, new_files=(meta,))


def external_rows(io: FileIO, file: ExternalFile, fields: Sequence[DataField]) -> Iterator[pa.RecordBatch]:
    """The rows of a file with a table's columns; columns missing in the file are null.

    Raises: CorruptDataError for a value that its column cannot hold.
    """
    with io.open_input(file.path) as source:
        stored = pq.ParquetFile(source)
        for read in bounded_batches(
            stored,
            source,
            stored.schema_arrow.names,
            USUAL_BATCH,
            row_groups=range(stored.num_row_groups),
            reopen=lambda dictionaries: pq.ParquetFile(source, read_dictionary=list(dictionaries)),
        ):
            arrays = [_column(read.rows, file, field) for field in fields]
            yield pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _column(batch: pa.RecordBatch, file: ExternalFile, field: DataField) -> pa.Array:
    target = arrow_type(field.type)
    if field.name in file.partition:
        text = pa.scalar(file.partition[field.name], pa.string())
        try:
            return pa.repeat(text.cast(target), batch.num_rows)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"not a value of the column: column={field.name} type={field.type} value={text} file={file.path}"
            ) from error
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, target)
    return conform(batch.column(field.name), field.type, field.name)


def _walk(
    io: FileIO, directory: str, partition: Mapping[str, str | None]
) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    for name in io.list_names(directory):
        path = f"{directory}/{name}"
        if name.startswith(("_", ".")):
            continue
        if not io.is_directory(path):
            yield path, partition
            continue
        column, equals, text = name.partition("=")
        value = None if text == _HIVE_NULL else unquote(text)
        yield from _walk(io, path, {**partition, unquote(column): value} if equals else partition)


def _described(io: FileIO, path: str, partition: Values) -> ExternalFile:
    try:
        with io.open_input(path) as source:
            footer = pq.ParquetFile(source)
            columns = [field for field in footer.schema_arrow if field.name not in partition]
            nonstandard = [each.path for each in _leaves(footer.schema) if _is_nonstandard(each)]
            return ExternalFile(
                path=path,
                size_bytes=io.size_bytes(path),
                row_count=footer.metadata.num_rows,
                columns=pa.schema([pa.field(field.name, _stored_type(field.type)) for field in columns]),
                partition=partition,
                nonstandard_columns=tuple(nonstandard),
            )
    except pa.ArrowInvalid as error:
        raise CorruptDataError(f"not a Parquet file: file={path} error={error}") from error


def _stored_type(arrow: pa.DataType) -> pa.DataType:
    return arrow_type(data_type_of(with_stored_times(arrow)))


def _leaves(schema: pq.ParquetSchema) -> Iterator[pq.ColumnSchema]:
    return (schema.column(index) for index in range(len(schema)))


def _is_nonstandard(column: pq.ColumnSchema) -> bool:
    """Nested columns have several encodings; of nanosecond timestamps all readers support only INT96.

    Times finer than milliseconds are looked through: a table holds those that are whole milliseconds.
    """
    meaning = str(column.logical_type)
    is_fine_time = meaning.startswith("Time(") and "milliseconds" not in meaning
    return "." in column.path or "nanoseconds" in meaning or is_fine_time
