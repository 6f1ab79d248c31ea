"""Data files: writing sorted rows to them, describing them for manifests, and reading them back in today's schema.

Rows on their way in and out are the table's columns plus, in tables with a key, ``_SEQUENCE_NUMBER`` and
``_VALUE_KIND``; the ``_KEY_`` columns of the files are made here and never read, since they repeat value columns (thin
files have none).
Source: Paimon KeyValueDataFileWriter, RollingFileWriter, KeyValueFileReaderFactory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.binary_row import EMPTY_ROW, encode_row
from filestore.datatypes import DataField
from filestore.effects import Clock, FileIO, NameSource
from filestore.file_formats import FileFormat, WriteSettings, file_format, format_of_file
from filestore.file_layout import SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN, file_fields, file_schema
from filestore.manifests import DataFileMeta
from filestore.options import TableOptions
from filestore.parquet_format import KeepRows, missing_ranges
from filestore.predicates import Predicate, columns_of, filter_mask, may_match
from filestore.schema_mapping import SchemaMapping, map_schema
from filestore.statistics import ColumnRange, has_order, key_stats, value_stats
from filestore.table_schema import TableSchema
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from lsm.keys import internal_value
from lsm.row_kind import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND

BATCH_ROWS: Final = 65_536
APPEND_SOURCE: Final = 0
COMPACT_SOURCE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """What is known of a file once it is closed and synced."""

    size_bytes: int  # exact
    row_count: int
    value_ranges: dict[str, ColumnRange]  # exact, of the columns that have one; system columns included


class DataFileWriter:
    """Writes one file. After an error only ``abort`` may be called."""

    def __init__(
        self,
        *,
        io: FileIO,
        path: str,
        schema: TableSchema,
        options: TableOptions,
        level: int,
        key_values: bool | None = None,
        changelog: bool = False,
    ) -> None:
        """The format is that of the path's suffix; ``key_values`` None means: when the table has a primary key."""
        with_key = bool(schema.primary_keys) if key_values is None else key_values
        self._io = io
        self._path = path
        self._format = format_of_file(path)
        self._fields = file_fields(schema, key_values=with_key)
        self._schema = file_schema(self._fields)
        keys = schema.trimmed_primary_keys if with_key else ()
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
        """Append rows: at least the table's columns and, with a key, the two system columns; found by name.

        Raises:
            InvalidInputError: a column is missing, of another type, or null where it must not be.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        arranged = self._arranged(table)
        for name in self._null_counts:
            self._null_counts[name] += arranged.column(name).null_count
        with _writing(self._path):
            self._writer.write(arranged)
        self._row_count += table.num_rows

    def bytes_written(self) -> int:
        """Bytes that have left memory."""
        return self._writer.bytes_written()

    def close(self) -> WrittenFile:
        """Finish the file and force it to the disk."""
        with _writing(self._path):
            ranges = self._writer.close()
            self._sink.close()
        self._io.sync(self._path)
        ranges |= {name: ColumnRange(null_count=count) for name, count in self._null_counts.items()}
        self._read_missing(ranges)
        return WrittenFile(size_bytes=self._io.size_bytes(self._path), row_count=self._row_count, value_ranges=ranges)

    def abort(self) -> None:
        """Give up and delete the file."""
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
            columns.append(column if column.type == arrow.type else self._cast(column, arrow))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _cast(self, column: pa.ChunkedArray, arrow: pa.Field) -> pa.ChunkedArray:
        try:
            return column.cast(arrow.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"column is of another type: column={arrow.name} type={column.type} expected={arrow.type} error={error}"
            ) from error

    def _read_missing(self, ranges: dict[str, ColumnRange]) -> None:
        """Rare: a text or bytes over 4 KB made Parquet leave out the bounds of its column."""
        missing = [f for f in self._fields if f.name not in ranges and f.name not in self._shared]
        if missing and self._row_count:
            with self._io.open_input(self._path) as source:
                ranges |= missing_ranges(source, missing)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"rows cannot be written: path={path} error={error}") from error
    except OSError as error:
        raise UnavailableError(f"file cannot be written: path={path} error={error}") from error


def _settings(options: TableOptions, level: int, *, changelog: bool) -> WriteSettings:
    usual = options.compression_per_level.get(level, options.compression)
    compression = (options.value("changelog-file.compression") if changelog else None) or usual
    rows = options.row_group_rows_at(level)
    return WriteSettings(compression=compression, zstd_level=options.zstd_level, row_group_rows=rows)


class RollingWriter:
    """Writes sorted rows to files of about the target size and describes them. After an error only abort it."""

    def __init__(
        self,
        *,
        io: FileIO,
        names: NameSource,
        clock: Clock,
        bucket_dir: str,
        schema: TableSchema,
        options: TableOptions,
        level: int,
        file_source: int,
        key_values: bool = True,
        changelog: bool = False,
    ) -> None:
        """``changelog``: files with every change instead of the newest row of each key, under a prefix of their own."""
        self._io = io
        self._clock = clock
        self._bucket_dir = bucket_dir
        self._schema = schema
        self._options = options
        self._level = level
        self._file_source = file_source
        self._key_values = key_values
        self._changelog = changelog
        self._format = _chosen_format(options, level, changelog=changelog)
        prefix = options.changelog_file_prefix if changelog else options.data_file_prefix
        self._name_start = f"{prefix}{names.uuid()}"
        self._stats_modes = _stats_modes(schema, options, changelog=changelog)
        self._file_row_limit: int | None = options.value("target-file-row-num")
        self._open: _OpenFile | None = None
        self._finished: list[DataFileMeta] = []
        self._file_count = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows that come behind all earlier ones in key order.

        Args:
            rows: value columns and, unless the table is an append table, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.

        Raises:
            InvalidInputError: the rows do not fit the schema.
            UnavailableError: the disk does not take them.
        """
        step = self._options.row_group_rows
        for start in range(0, rows.num_rows, step):
            piece = rows.slice(start, step)
            if self._open is None:
                self._open = self._next_file()
            self._open.write(piece)
            if self._open.writer.bytes_written() >= self._options.target_file_size_bytes or (
                self._file_row_limit is not None and self._open.row_count >= self._file_row_limit
            ):
                self._finish()

    def close(self) -> list[DataFileMeta]:
        """Finish the last file. All files, in the order of their rows; none when there were no rows."""
        if self._open is not None:
            self._finish()
        return list(self._finished)

    def abort(self) -> None:
        """Delete every file, finished ones too."""
        if self._open is not None:
            self._open.writer.abort()
            self._open = None
        for file in self._finished:
            with suppress(FluvialError, OSError):  # an orphan costs space only
                self._io.delete(f"{self._bucket_dir}/{file.file_name}")
        self._finished.clear()

    def _next_file(self) -> "_OpenFile":
        compression = self._options.compression if self._options.value("file.suffix.include.compression") else None
        middle = f".{compression}" if compression else ""
        name = f"{self._name_start}-{self._file_count}{middle}.{self._format.name}"
        self._file_count += 1
        writer = DataFileWriter(
            io=self._io,
            path=f"{self._bucket_dir}/{name}",
            schema=self._schema,
            options=self._options,
            level=self._level,
            key_values=self._key_values,
            changelog=self._changelog,
        )
        keys = self._schema.key_fields if self._key_values else ()
        return _OpenFile(name=name, writer=writer, key_fields=keys)

    def _finish(self) -> None:
        assert self._open is not None
        file = self._open
        written = file.writer.close()
        self._open = None
        keys = file.key_fields
        key_types = [field.type for field in keys]
        ranges = written.value_ranges
        sequence = ranges[SEQUENCE_NUMBER] if self._key_values else ColumnRange(min=0, max=written.row_count - 1)
        of_values, value_columns = value_stats(ranges, self._schema.fields, self._stats_modes)
        self._finished.append(
            DataFileMeta(
                file_name=file.name,
                size_bytes=written.size_bytes,
                row_count=written.row_count,
                min_key=encode_row(file.first_key, key_types) if keys else EMPTY_ROW,
                max_key=encode_row(file.last_key, key_types) if keys else EMPTY_ROW,
                key_stats=key_stats(ranges, keys),
                value_stats=of_values,
                min_sequence_number=sequence.min,
                max_sequence_number=sequence.max,
                schema_id=self._schema.id,
                level=self._level,
                creation_time_ms=self._clock.local_ms(),
                delete_row_count=file.delete_count,
                file_source=self._file_source,
                value_stats_cols=value_columns,
            )
        )


class _OpenFile:
    """The file that is being written, and what its rows have said so far."""

    def __init__(self, *, name: str, writer: DataFileWriter, key_fields: Sequence[DataField]) -> None:
        self.name = name
        self.writer = writer
        self.key_fields = key_fields
        self.row_count = 0
        self.delete_count = 0
        self.first_key: tuple[object, ...] = ()
        self.last_key: tuple[object, ...] = ()

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows, at least one."""
        self.writer.write(rows)
        if self.key_fields:
            self.delete_count += _retract_count(rows)
            if self.row_count == 0:
                self.first_key = self._key(rows, 0)
            self.last_key = self._key(rows, rows.num_rows - 1)
        self.row_count += rows.num_rows

    def _key(self, rows: pa.Table | pa.RecordBatch, row_index: int) -> tuple[object, ...]:
        return tuple(internal_value(rows.column(field.name)[row_index]) for field in self.key_fields)


def _retract_count(rows: pa.Table | pa.RecordBatch) -> int:
    # Retracts have odd kinds: 1 is -U, 3 is -D.
    kinds = rows.column(VALUE_KIND)
    return int(np.count_nonzero(kinds.to_numpy() & 1))


def _chosen_format(options: TableOptions, level: int, *, changelog: bool) -> FileFormat:
    name = options.file_format_per_level.get(level, options.file_format)
    if changelog:
        name = options.value("changelog-file.format") or options.file_format
    return file_format(name)


def _stats_modes(schema: TableSchema, options: TableOptions, *, changelog: bool) -> dict[str, str]:
    """Statistics mode by column: the column's own, else the changelog's, else the table's."""
    common = (options.value("changelog-file.stats-mode") if changelog else None) or options.stats_mode
    return {f.name: options.field_options(f.name).get("stats-mode", common) for f in schema.fields}


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
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Rows of a data file as rows of the read schema.

    Args:
        io: where the file is.
        path: of the file; its suffix says the format.
        meta: of the file.
        file_schema: the schema that the file was written with.
        read_schema: the schema that the rows shall have.
        columns: of the read schema, in the order wanted.
        with_system: append ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``; only for files of tables with a key.
        filter: on the read schema; rows for which it is not true are left out, and what statistics rule out is not even
            read. Only the caller knows whether that is allowed: it may hide a delete.
        batch_rows: most rows of a batch.

    Yields:
        Batches in file order of rows, none empty. Columns that the file is too old for are null.

    Raises:
        FileNotFoundError: the file is gone, as happens to readers of expired snapshots.
        CorruptDataError: the file is not what its schema says.
    """
    extra = sorted(columns_of(filter) - set(columns)) if filter is not None else []
    system = [SEQUENCE_NUMBER_COLUMN, VALUE_KIND_COLUMN] if with_system else []
    read_fields = [*read_schema.fields_of([*columns, *extra]), *system]
    mapping = map_schema([*file_schema.fields, *system], read_fields)
    wanted = [*columns, *(field.name for field in system)]
    tested = columns_of(filter) if filter is not None else frozenset()
    keep_fields = [c.source for c in mapping.columns if c.source is not None and c.target.name in tested]
    data_format = format_of_file(meta.file_name)
    with _reading(path), io.open_input(path) as source:
        for batch in data_format.reader(
            source,
            mapping.file_fields,
            batch_rows=batch_rows,
            keep=None if filter is None else _keeps(filter, mapping),
            keep_fields=keep_fields,
        ):
            rows = mapping.apply(batch)
            if filter is not None:
                rows = rows.filter(filter_mask(filter, rows))
            if rows.num_rows:
                yield rows.select(wanted) if extra else rows


def _keeps(predicate: Predicate, mapping: SchemaMapping) -> KeepRows:
    return lambda ranges, row_count: may_match(predicate, mapping.ranges(ranges, row_count), row_count)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except pa.ArrowException as error:
        raise CorruptDataError(f"data file cannot be read: path={path} error={error}") from error
    except OSError as error:
        # Arrow reports broken pages as OSError too; only the system's own have a number.
        if error.errno is not None:
            raise UnavailableError(f"data file cannot be read now: path={path} error={error}") from error
        raise CorruptDataError(f"data file cannot be read: path={path} error={error}") from error
