"""Data files: writing sorted rows, and reading them back with the current schema.

Rows written and read have the table's columns plus, in tables with a primary key, ``_SEQUENCE_NUMBER`` and
``_VALUE_KIND``; the ``_KEY_`` columns of the files are added here and never read, since they repeat value columns (thin
files have none).
Source: Paimon KeyValueDataFileWriter, RollingFileWriter, KeyValueFileReaderFactory.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.datafile.schema_mapping import SchemaMapping, map_schema, newer_than
from filestore.format.file_format import format_of_file
from filestore.format.interface import USUAL_BATCH, BatchLimit, FileRows, KeepRows, WriteSettings
from filestore.format.parquet import missing_ranges
from filestore.format.statistics import ColumnRange, has_order
from filestore.io.file_io import FileIO
from filestore.io.held_files import NewFiles
from filestore.manifest.entries import DataFileMeta
from filestore.options.table_options import TableOptions
from filestore.predicate.evaluation import filter_mask, may_match
from filestore.predicate.predicate import Predicate, columns_of
from filestore.schema.file_fields import (
    SEQUENCE_NUMBER_COLUMN,
    TRACKING_COLUMNS,
    VALUE_KIND_COLUMN,
    file_fields,
    file_schema,
)
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.lost_files import FileRole, missing_file
from filestore.types.data_types import DataField
from filestore.types.nested_arrays import with_slots
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from lsm.row_kind import KEY_PREFIX, ROW_ID, SEQUENCE_NUMBER

_LAST_ID: Final = 2**63 - 1
_SYSTEM_NAMES: Final = (SEQUENCE_NUMBER_COLUMN.name, VALUE_KIND_COLUMN.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """Metadata of a file after it was closed and synced."""

    size_bytes: int  # exact
    row_count: int
    value_ranges: dict[str, ColumnRange]  # exact, for orderable columns including system columns


class DataFileWriter:
    """Writes one data file. After an error only ``abort`` may be called."""

    def __init__(
        self,
        *,
        io: NewFiles,
        path: str,
        schema: TableSchema,
        options: TableOptions,
        level: int,
        key_values: bool | None = None,
        changelog: bool = False,
        tracked: bool = False,
    ) -> None:
        """The path's suffix gives the format; ``key_values`` None means true for tables with a primary key.

        ``tracked``: rows of a table without a key come with the ids that they had before.
        """
        with_key = bool(schema.primary_keys) if key_values is None else key_values
        self._io = io
        self._path = path
        self._format = format_of_file(path)
        thin = options.data_file_thin_mode
        self._fields = file_fields(schema, key_values=with_key, thin=thin, tracked=tracked)
        self._schema = file_schema(self._fields)
        keys = schema.trimmed_primary_keys if with_key and not thin else ()
        self._shared = {KEY_PREFIX + name: name for name in keys}
        self._row_count = 0
        self._null_counts = {field.name: 0 for field in schema.fields if not has_order(field.type)}
        settings = _settings(options, level, changelog=changelog)
        self._sink = io.open_output(path)
        try:
            self._writer = self._format.writer(self._sink, self._fields, settings, shared=self._shared)
        except FluvialError:
            self.abort()
            raise

    def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Append rows with at least the table's columns and, with a key, the two system columns, matched by name.

        Raises:
            InvalidInputError: a column is missing, of a different type, or null although NOT NULL.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        arranged = self._arranged(table)
        for name in self._null_counts:
            self._null_counts[name] += arranged.column(name).null_count
        with _writing(self._path):
            self._writer.write(arranged)
        self._row_count += table.num_rows

    def bytes_written(self) -> int:
        """Bytes written so far, without buffered ones."""
        return self._writer.bytes_written()

    def close(self) -> WrittenFile:
        """Finish the file and sync it to disk."""
        with _writing(self._path):
            ranges = self._writer.close()
            size_bytes = self._sink.tell()
            self._sink.close()
        self._io.sync(self._path)
        ranges |= {name: ColumnRange(null_count=count) for name, count in self._null_counts.items()}
        self._read_missing(ranges)
        return WrittenFile(size_bytes=size_bytes, row_count=self._row_count, value_ranges=ranges)

    def abort(self) -> None:
        """Delete the file."""
        with suppress(OSError, pa.ArrowException):
            self._sink.close()
        with suppress(FluvialError, OSError):
            self._io.delete(self._path)

    def _arranged(self, table: pa.Table) -> pa.Table:
        columns = []
        for field, arrow in zip(self._fields, self._schema, strict=True):
            index = table.schema.get_field_index(self._shared.get(field.name, field.name))
            if index < 0:
                raise InvalidInputError(f"rows lack a column: column={field.name} columns={table.column_names}")
            column = table.column(index)
            if not arrow.nullable and column.null_count:
                raise InvalidInputError(
                    f"column must not be null: column={field.name} null_count={column.null_count} path={self._path}"
                )
            typed = column if column.type == arrow.type else self._cast(column, arrow)
            columns.append(_with_slots(typed, field))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _cast(self, column: pa.ChunkedArray, arrow: pa.Field) -> pa.ChunkedArray:
        try:
            return column.cast(arrow.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"column has the wrong type: column={arrow.name} type={column.type} expected={arrow.type} error={error}"
            ) from error

    def _read_missing(self, ranges: dict[str, ColumnRange]) -> None:
        """Rare: Parquet omits the bounds of a column with a value of more than 4 KB."""
        missing = [f for f in self._fields if f.name not in ranges and f.name not in self._shared]
        if missing and self._row_count:
            with self._io.open_input(self._path) as source:
                ranges |= missing_ranges(source, missing)


def _with_slots(column: pa.ChunkedArray, field: DataField) -> pa.ChunkedArray:
    """What comes from a merge, another format or an older schema may have nulls below nulls anywhere."""
    if not pa.types.is_nested(column.type):
        return column
    chunks = [with_slots(chunk, field.type, field.name) for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"rows cannot be written: path={path} error={error}") from error
    except OSError as error:
        raise UnavailableError(f"file cannot be written: path={path} error={error}") from error


def _settings(options: TableOptions, level: int, *, changelog: bool) -> WriteSettings:
    return WriteSettings(
        compression=compression_of(options, level, changelog=changelog),
        zstd_level=options.zstd_level,
        row_group_rows=options.row_group_rows_at(level),
        block_bytes=options.file_block_size_bytes,
    )


def compression_of(options: TableOptions, level: int, *, changelog: bool) -> str:
    """The codec of new files on a level."""
    usual = options.compression_per_level.get(level, options.compression)
    return (options.changelog_file_compression if changelog else None) or usual


def read_data_file(
    io: FileIO,
    path: str,
    meta: DataFileMeta,
    *,
    file_schema: TableSchema,
    read_schema: TableSchema,
    columns: Sequence[str],
    with_system: bool,
    filter: Predicate | None = None,
    limit: BatchLimit = USUAL_BATCH,
    verify: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Read a data file as rows of the read schema.

    Args:
        io: storage of the file.
        path: path of the file; its suffix gives the format.
        meta: metadata of the file.
        file_schema: the schema that the file was written with.
        read_schema: the schema of the returned rows.
        columns: columns of the read schema, in output order.
        with_system: append ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``; only for files of tables with a key.
        filter: predicate on the read schema; rows for which it is not true are dropped, data ruled out by statistics
            is not read. Only valid if no row of the file supersedes an older one: it may hide a delete.
        limit: of a batch.
        verify: compare pages with their checksums.

    Yields:
        Non-empty batches in file order. Columns added after the file was written are null.

    Raises:
        MissingFileError: the file is lost, or its snapshot expired.
        CorruptDataError: the file does not match its schema.
    """
    extra = sorted(columns_of(filter) - set(columns)) if filter is not None else []
    tested = columns_of(filter) if filter is not None else frozenset()
    keep = None if filter is None else lambda ranges, places: may_match(filter, ranges, len(places))
    names = [*columns, *extra]
    wanted = [*columns, *(_SYSTEM_NAMES if with_system else ())]
    for read in open_data_file(
        io,
        path,
        meta,
        file_schema=file_schema,
        read_schema=read_schema,
        columns=names,
        with_system=with_system,
        keep=keep,
        verify=verify,
        tested=tested,
        limit=limit,
    ):
        rows = read.rows
        matching = rows if filter is None else rows.filter(filter_mask(filter, rows))
        if matching.num_rows:
            yield matching.select(wanted) if extra else matching


def open_data_file(
    io: FileIO,
    path: str,
    meta: DataFileMeta,
    *,
    file_schema: TableSchema,
    read_schema: TableSchema,
    columns: Sequence[str],
    with_system: bool,
    keep: KeepRows | None,
    tested: Collection[str] | None = None,
    limit: BatchLimit = USUAL_BATCH,
    verify: bool = True,
) -> Iterator[FileRows]:
    """All rows of the row groups of a data file that ``keep`` selects, with the read schema.

    Args:
        io: storage of the file.
        path: path of the file.
        meta: metadata of the file.
        file_schema: the schema that the file was written with.
        read_schema: the schema of the returned rows.
        columns: columns of the read schema, in output order.
        with_system: append ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
        keep: called with ranges of columns of the read schema, see ``interface.ReadFile``; None: keep all.
        tested: the columns with ranges passed to ``keep``; None: all that are read.
        limit: of a batch.
        verify: compare pages with their checksums.

    Raises: see ``read_data_file``.
    """
    system = [SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN] if with_system else []
    read_fields = [*read_schema.fields_of(columns), *system]
    tracking = () if with_system else tuple(field for field in read_fields if field in TRACKING_COLUMNS)
    mapping = map_schema(
        [*file_schema.fields, *system, *tracking], read_fields, newer=newer_than(read_schema, file_schema)
    )
    named = frozenset(columns if tested is None else tested) - {field.name for field in tracking}
    keep_fields = [c.source for c in mapping.columns if c.source is not None and c.target.name in named]
    with _reading(path), io.open_input(path) as source:
        for batch in format_of_file(meta.file_name).reader(
            source,
            mapping.file_fields,
            limit=limit,
            keep=None if keep is None else _mapped(keep, mapping),
            keep_fields=keep_fields,
            verify=verify,
        ):
            rows = mapping.apply(batch.rows)
            yield batch.as_read(_with_ids(rows, batch.first, meta, path) if tracking else rows)


def _with_ids(rows: pa.RecordBatch, first: int, meta: DataFileMeta, path: str) -> pa.RecordBatch:
    """Rows of a file, with ids and numbers where the file has none of its own. Source: Paimon's DataFileRecordReader.

    Args:
        rows: with one or both of the tracking columns.
        first: position of the first row in the file.
        meta: metadata of the file.
        path: of the file, for messages.

    Raises: CorruptDataError: a row has no id.
    """
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name == ROW_ID and column.null_count:
            if meta.first_row_id is None:
                raise CorruptDataError(
                    f"rows of a data file have no ids: path={path} _FIRST_ROW_ID=null "
                    "cause=a program that does not know row-tracking.enabled wrote the file"
                )
            start = meta.first_row_id + first
            if not 0 <= start <= _LAST_ID - rows.num_rows:
                raise CorruptDataError(f"ids of rows are out of range: path={path} _FIRST_ROW_ID={meta.first_row_id}")
            column = pc.coalesce(column, pa.array(np.arange(start, start + rows.num_rows, dtype=np.int64)))
        elif name == SEQUENCE_NUMBER and column.null_count:
            column = pc.fill_null(column, meta.max_sequence_number)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _mapped(keep: KeepRows, mapping: SchemaMapping) -> KeepRows:
    """What ``keep`` says, of ranges by names of the read schema; those of ids are not known of a part of a file."""
    tracking = {field.name for field in TRACKING_COLUMNS}

    def kept(ranges: Mapping[str, ColumnRange], places: range) -> bool:
        found = mapping.ranges(ranges, len(places))
        return keep({name: each for name, each in found.items() if name not in tracking}, places)

    return kept


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except FileNotFoundError as error:
        raise missing_file(path, FileRole.DATA) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:  # names of columns are texts
        raise CorruptDataError(f"data file cannot be read: path={path} error={error}") from error
    except OSError as error:
        # Arrow also reports corrupt pages as OSError; only errors of the operating system have an errno.
        if error.errno is not None:
            raise UnavailableError(f"data file cannot be read now: path={path} error={error}") from error
        raise CorruptDataError(f"data file cannot be read: path={path} error={error}") from error
