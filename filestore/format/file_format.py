"""The formats of data files behind one face (FL-145). A file's format is the last suffix of its name, not an option.

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
    """How files of a table are written."""

    compression: str
    zstd_level: int
    row_group_rows: int
    block_bytes: int | None = None  # of a row group or stripe; None: ``row_group_rows``, and the format's own


class FormatWriter(Protocol):
    """Writes the rows of one file to a sink that belongs to the caller."""

    def write(self, rows: pa.Table) -> None:
        """Append rows of the file's columns, in file order and of their Arrow types."""

    def bytes_written(self) -> int:
        """Bytes that have left memory."""

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file. Exact ranges of columns, as far as they are known without reading the file again."""


class FileFormat(Protocol):
    """One format."""

    name: str  # in options and as suffix of file names

    def writer(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """A writer of one file.

        Args:
            sink: to write to; it stays open.
            fields: columns of the file.
            settings: compression and sizes.
            shared: columns that repeat another one; they get no range of their own.
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
        """The columns that the file has of ``fields``, in file order of rows.

        Args:
            source: the file.
            fields: columns wanted, as the file's schema declares them.
            batch_rows: most rows of a batch.
            keep: says of ranges of ``keep_fields`` and a number of rows whether they are wanted; a format may ask it
                and leave such rows out, or give all.
            keep_fields: columns whose ranges ``keep`` looks at.
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
        """Rows of the row groups that are wanted."""
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
        """All rows: Arrow does not show the statistics of stripes."""
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
    """The format of a name in options. Raises: InvalidInputError."""
    found = _FORMATS.get(name.strip().lower())
    if found is None:
        raise InvalidInputError(f"unknown file format: file.format={name} allowed={sorted(_FORMATS)}")
    return found


def format_of_file(file_name: str) -> FileFormat:
    """The format of a data file, by its name. Raises: InvalidInputError."""
    return file_format(file_name.rpartition(".")[2])
