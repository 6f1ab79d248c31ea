"""The formats of data files behind one interface. The last suffix of a file's name is its format, not an option.

Source: Paimon FileFormat, DataFileMeta.fileFormat.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from filestore.format.avro import AvroFileWriter, read_avro
from filestore.format.orc import OrcFileWriter, read_orc
from filestore.format.parquet import KeepRows, ParquetFileWriter, read_parquet
from filestore.format.statistics import ColumnRange
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """Settings for writing files of a table."""

    compression: str
    zstd_level: int
    row_group_rows: int
    block_bytes: int | None = None  # size of a row group or stripe; None: ``row_group_rows``, or the format's default


class FormatWriter(Protocol):
    """Writes the rows of one file to a sink owned by the caller."""

    def write(self, rows: pa.Table) -> None:
        """Append rows with the file's columns, in file order and of their Arrow types."""

    def bytes_written(self) -> int:
        """Bytes written to the sink so far, without buffered ones."""

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file. Returns exact ranges of the columns where these are known without reading the file again."""


class FileFormat(Protocol):
    """A format of data files."""

    name: str  # name in options, and suffix of file names

    def writer(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """A writer of one file.

        Args:
            sink: the output, which is not closed.
            fields: columns of the file.
            settings: compression and sizes.
            shared: columns that repeat another one; they get no ranges.
        """

    def reader(
        self,
        source: pa.NativeFile,
        fields: Sequence[DataField],
        *,
        batch_rows: int,
        keep: KeepRows | None = None,
        keep_fields: Sequence[DataField] = (),
    ) -> Iterator[pa.RecordBatch]:
        """The columns of ``fields`` that the file has, in file order of rows.

        Args:
            source: the file.
            fields: wanted columns, as declared by the file's schema.
            batch_rows: maximum rows of a batch.
            keep: whether rows with these ranges of ``keep_fields`` and this row count are wanted; a format may use it
                to skip unwanted rows, or return all.
            keep_fields: columns with ranges needed by ``keep``.
        """


class ParquetFormat:
    """Apache Parquet: the default."""

    name = "parquet"

    def writer(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """A writer of one file."""
        return ParquetFileWriter(
            sink,
            fields,
            compression=settings.compression,
            zstd_level=settings.zstd_level,
            row_group_rows=settings.row_group_rows,
            row_group_bytes=settings.block_bytes,
            shared=shared,
        )

    def reader(
        self,
        source: pa.NativeFile,
        fields: Sequence[DataField],
        *,
        batch_rows: int,
        keep: KeepRows | None = None,
        keep_fields: Sequence[DataField] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the wanted row groups."""
        return read_parquet(source, fields, batch_rows=batch_rows, keep=keep, keep_fields=keep_fields)


class OrcFormat:
    """Apache ORC."""

    name = "orc"

    def writer(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """A writer of one file."""
        return OrcFileWriter(
            sink, fields, compression=settings.compression, shared=shared, stripe_bytes=settings.block_bytes
        )

    def reader(
        self,
        source: pa.NativeFile,
        fields: Sequence[DataField],
        *,
        batch_rows: int,
        keep: KeepRows | None = None,
        keep_fields: Sequence[DataField] = (),
    ) -> Iterator[pa.RecordBatch]:
        """All rows: Arrow does not expose stripe statistics."""
        return read_orc(source, fields, batch_rows=batch_rows)


class AvroFormat:
    """Apache Avro containers."""

    name = "avro"

    def writer(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """A writer of one file."""
        return AvroFileWriter(
            sink, fields, compression=settings.compression, zstd_level=settings.zstd_level, shared=shared
        )

    def reader(
        self,
        source: pa.NativeFile,
        fields: Sequence[DataField],
        *,
        batch_rows: int,
        keep: KeepRows | None = None,
        keep_fields: Sequence[DataField] = (),
    ) -> Iterator[pa.RecordBatch]:
        """All rows: the format has no statistics."""
        return read_avro(source, fields, batch_rows=batch_rows)


_FORMATS: Final[Mapping[str, FileFormat]] = {each.name: each for each in (ParquetFormat(), OrcFormat(), AvroFormat())}


def file_format(name: str) -> FileFormat:
    """The format with this option name. Raises: InvalidInputError."""
    found = _FORMATS.get(name.strip().lower())
    if found is None:
        raise InvalidInputError(f"unknown file format: file.format={name} allowed={sorted(_FORMATS)}")
    return found


def format_of_file(file_name: str) -> FileFormat:
    """The format of a data file, by its name. Raises: InvalidInputError."""
    return file_format(file_name.rpartition(".")[2])
