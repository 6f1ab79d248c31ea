"""Parquet files that somebody else wrote: what they hold, and whether a table can have them as they are.

A directory is read as Hive and Spark write it: files anywhere below, ``column=value`` in the names of directories,
names that begin with ``_`` or ``.`` left out. Source: Paimon's ``migrate_table`` (HiveMigrator), which moves files.
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
from filestore.format.simple_stats import EMPTY_STATS
from filestore.io.file_io import FileIO, LinksFiles, copy_file
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.table_store import TableStore
from filestore.types.binary_row import EMPTY_ROW
from filestore.types.data_types import DataField, arrow_type, data_type_of
from lsm.errors import CorruptDataError, InvalidInputError

_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_SUFFIX: Final = ".parquet"
_BATCH_ROWS: Final = 65_536
Values = Mapping[str, str | None]
"""Of partition columns, as directories are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalFile:
    """One file, by its footer."""

    path: str
    size_bytes: int
    row_count: int
    columns: pa.Schema  # without what is a detail of its writer
    partition: Values  # of the directories above it
    odd_columns: tuple[str, ...]  # stored in a way that only some readers know


@dataclass(frozen=True)
class ExternalFiles:
    """Those of one directory."""

    files: Sequence[ExternalFile] = field(default=())

    @cached_property
    def partition_columns(self) -> list[str]:
        """Names in directories. Raises: InvalidInputError when files lie at different depths."""
        found = {tuple(file.partition): file for file in self.files}
        if len(found) > 1:
            one, other = list(found.values())[:2]
            raise InvalidInputError(f"files lie in different kinds of directories: file={one.path} other={other.path}")
        return list(next(iter(found), ()))

    @cached_property
    def columns(self) -> pa.Schema:
        """Every column of every file. Raises: InvalidInputError for one that has two types, naming both files."""
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
    """The Parquet files below a directory, by path; only footers are read.

    Raises:
        CorruptDataError: a file is not Parquet.
        InvalidInputError: there is no file.
    """
    files = [_described(io, path, partition) for path, partition in _walk(io, directory.rstrip("/"), {})]
    if not files:
        raise InvalidInputError(f"no Parquet file below this directory: source={directory}")
    return ExternalFiles(tuple(files))


def fits_as_it_is(file: ExternalFile, fields: Sequence[DataField]) -> bool:
    """Whether a table without a key can have a file among its own: what is stored is what we would have stored."""
    return (
        not file.partition
        and not file.odd_columns
        and {column.name for column in file.columns} == {field.name for field in fields}
        and all(file.columns.field(field.name).type == arrow_type(field.type) for field in fields)
    )


def take_over(store: TableStore, file: ExternalFile, *, link: bool) -> CommitMessage:
    """Make a file one of the table's: by a second name for its bytes, or a copy where that cannot be.

    Args:
        store: append-only, without buckets and partitions.
        file: that fits, see ``fits_as_it_is``.
        link: False: copy it always.

    Returns:
        What is to be committed.
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
    """The rows of a file as rows of a table's columns; a column that the file does not have is null.

    Raises: CorruptDataError for a value that its column cannot hold.
    """
    with io.open_input(file.path) as source:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=_BATCH_ROWS):
            arrays = [_column(batch, file, field) for field in fields]
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
            odd = [each.path for each in _leaves(footer.schema) if _is_odd(each)]
            return ExternalFile(
                path=path,
                size_bytes=io.size_bytes(path),
                row_count=footer.metadata.num_rows,
                columns=pa.schema([pa.field(field.name, arrow_type(data_type_of(field.type))) for field in columns]),
                partition=partition,
                odd_columns=tuple(odd),
            )
    except pa.ArrowInvalid as error:
        raise CorruptDataError(f"not a Parquet file: file={path} error={error}") from error


def _leaves(schema: pq.ParquetSchema) -> Iterator[pq.ColumnSchema]:
    return (schema.column(index) for index in range(len(schema)))


def _is_odd(column: pq.ColumnSchema) -> bool:
    """Nested columns have several spellings; of nanoseconds only INT96 is read by everybody."""
    return "." in column.path or "nanoseconds" in str(column.logical_type)
