"""Data files of about the target size with their metadata for manifests, for writers and compactions.

Source: Paimon RollingFileWriter, KeyValueDataFileWriter.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from filestore.datafile.data_file import DataFileWriter, compression_of
from filestore.format.file_format import file_format
from filestore.format.interface import FileFormat
from filestore.format.statistics import ColumnRange, key_stats, value_stats
from filestore.index.file_index import INDEX_SUFFIX, IndexWriter, written_blooms
from filestore.io.file_io import Clock, NameSource
from filestore.io.held_files import NewFiles
from filestore.io.places import local_path
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.new_file_paths import NewFilePaths
from filestore.options.table.common import MIB
from filestore.options.table_options import TableOptions
from filestore.schema.file_fields import with_id_columns
from filestore.schema.table_schema import TableSchema
from filestore.types.binary_row import EMPTY_ROW, encode_row
from filestore.types.data_types import DataField
from filestore.types.identity_cache import cached_by_identity
from lsm.byte_sizes import pieces_within
from lsm.errors import FluvialError
from lsm.keys.keys import internal_value
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND

# In file names, as in Java; other codecs have no suffix.
_CODEC_SUFFIXES: Final = {
    "gzip": "gz", "bzip2": "bz2", "deflate": "deflate", "snappy": "snappy", "lz4": "lz4", "zstd": "zst",
}  # fmt: skip

_PIECE_BYTES: Final = 16 * MIB  # a file is at most so much, uncompressed, larger than one row group above its target

APPEND_SOURCE: Final = 0
COMPACT_SOURCE: Final = 1


class RollingWriter:
    """Writes sorted rows to files of about the target size. After an error only ``abort`` may be called."""

    def __init__(
        self,
        *,
        io: NewFiles,
        names: NameSource,
        clock: Clock,
        place: NewFilePaths,
        schema: TableSchema,
        options: TableOptions,
        level: int,
        file_source: int,
        key_values: bool = True,
        changelog: bool = False,
        tracked: bool = False,
    ) -> None:
        """Set up the first file.

        ``changelog``: write changelog files, with their own prefix and settings. ``tracked``: rows have ``_ROW_ID``
        and ``_SEQUENCE_NUMBER`` of before, and keep them.
        """
        self._io = io
        self._clock = clock
        self._place = place
        self._schema = schema
        self._options = options
        self._level = level
        self._file_source = file_source
        self._key_values = key_values
        self._changelog = changelog
        self._tracked = tracked
        self._format = _chosen_format(options, level, changelog=changelog)
        codec = compression_of(options, level, changelog=changelog).strip().lower()
        self._codec_suffix = _CODEC_SUFFIXES.get(codec) if options.file_suffix_include_compression else None
        prefix = options.changelog_file_prefix if changelog else options.data_file_prefix
        self._name_start = f"{prefix}{names.uuid()}"
        self._stats_modes = _stats_modes(schema, options, level, changelog=changelog)
        self._bloom_columns = () if changelog else written_blooms(schema, options)
        self._max_embedded_bytes: int = options.file_index_in_manifest_threshold_bytes
        self._file_row_limit: int | None = options.target_file_row_num
        self._open: _OpenFile | None = None
        self._finished: list[DataFileMeta] = []
        self._file_count = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows that follow all earlier ones in key order.

        Args:
            rows: value columns and, except for append tables, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.

        Raises:
            InvalidInputError: the rows do not fit the schema.
            UnavailableError: the storage rejects the write.
        """
        step = self._options.row_group_rows
        steps = (rows.slice(start, step) for start in range(0, rows.num_rows, step))
        for piece in (each for few in steps for each in pieces_within(few, _PIECE_BYTES)):
            if self._open is None:
                self._open = self._next_file()
            self._open.write(piece)
            if self._open.writer.bytes_written() >= self._options.target_file_size_bytes or (
                self._file_row_limit is not None and self._open.row_count >= self._file_row_limit
            ):
                self._finish()

    def close(self) -> list[DataFileMeta]:
        """Finish the last file. Returns all files in row order; empty if there were no rows."""
        if self._open is not None:
            self._finish()
        return list(self._finished)

    def abort(self) -> None:
        """Delete all files, including finished ones."""
        if self._open is not None:
            self._open.writer.abort()
            self._open = None
        delete_written_files(self._io, self._place.bucket_dir, self._finished)
        self._finished.clear()

    def _next_file(self) -> "_OpenFile":
        middle = f".{self._codec_suffix}" if self._codec_suffix else ""
        name = f"{self._name_start}-{self._file_count}{middle}.{self._format.name}"
        self._file_count += 1
        external_path = self._place.external_path(name)
        path = f"{self._place.bucket_dir}/{name}" if external_path is None else local_path(external_path)
        writer = DataFileWriter(
            io=self._io,
            path=path,
            schema=self._schema,
            options=self._options,
            level=self._level,
            key_values=self._key_values,
            changelog=self._changelog,
            tracked=self._tracked,
        )
        keys = self._schema.key_fields if self._key_values else ()
        return _OpenFile(
            name=name, path=path, external_path=external_path, writer=writer, key_fields=keys,
            index=IndexWriter(self._bloom_columns),
        )  # fmt: skip

    def _finish(self) -> None:
        assert self._open is not None
        file = self._open
        index = file.index.close()
        written = file.writer.close()
        is_embedded = index is not None and len(index) <= self._max_embedded_bytes
        index_file = None if index is None or is_embedded else file.name + INDEX_SUFFIX
        keys = file.key_fields
        key_types = [field.type for field in keys]
        ranges = written.value_ranges
        numbered = self._key_values or self._tracked
        sequence = ranges[SEQUENCE_NUMBER] if numbered else ColumnRange(min=0, max=written.row_count - 1)
        of_values, value_columns = value_stats(ranges, self._schema.fields, self._stats_modes)
        if self._tracked and value_columns is None:  # else they would be statistics of the ids too
            value_columns = self._schema.column_names
        self._open = None
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
                embedded_index=index if is_embedded else None,
                extra_files=() if index_file is None else (index_file,),
                external_path=file.external_path,
                write_cols=with_id_columns(self._schema).column_names if self._tracked else None,
            )
        )
        if index is not None and index_file is not None:
            self._io.write_new(f"{file.path.rpartition('/')[0]}/{index_file}", index)


def delete_written_files(io: NewFiles, bucket_dir: str, files: Iterable[DataFileMeta]) -> None:
    """Delete uncommitted data files and their extra files, best effort."""
    for file in files:
        for path in file.paths(bucket_dir):
            with suppress(FluvialError, OSError):  # an orphan only costs space
                io.delete(path)


class _OpenFile:
    """The file being written, with the metadata of its rows so far."""

    def __init__(
        self,
        *,
        name: str,
        path: str,
        external_path: str | None,
        writer: DataFileWriter,
        key_fields: Sequence[DataField],
        index: IndexWriter,
    ) -> None:
        self.name = name
        self.path = path
        self.external_path = external_path
        self.index = index
        self.writer = writer
        self.key_fields = key_fields
        self.row_count = 0
        self.delete_count = 0
        self.first_key: tuple[object, ...] = ()
        self.last_key: tuple[object, ...] = ()

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows, at least one."""
        self.writer.write(rows)
        self.index.add(rows)
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
    chunks = [kinds] if isinstance(kinds, pa.Array) else kinds.chunks  # to_numpy of all of them takes ten times as long
    return sum(int(np.count_nonzero(chunk.to_numpy(zero_copy_only=False) & 1)) for chunk in chunks)


def _chosen_format(options: TableOptions, level: int, *, changelog: bool) -> FileFormat:
    name = options.file_format_per_level.get(level, options.file_format)
    if changelog:
        name = options.changelog_file_format or options.file_format
    return file_format(name)


@cached_by_identity(64)
def _stats_modes(schema: TableSchema, options: TableOptions, level: int, *, changelog: bool) -> dict[str, str]:
    """Statistics mode by column: the column's own, else the changelog's, else the level's, else the table's."""
    usual = options.metadata_stats_mode_per_level.get(level, options.stats_mode)
    common = (options.changelog_file_stats_mode if changelog else None) or usual
    return {f.name: options.field_options(f.name).stats_mode or common for f in schema.fields}
