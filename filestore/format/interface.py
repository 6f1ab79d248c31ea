"""The interface of a format of data files: a writer of one file, and a reader. Source: Paimon FileFormat."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from filestore.format.statistics import ColumnRange
from filestore.options.table.common import MIB
from filestore.types.data_types import DataField
from lsm.keys.words import IndexArray

KeepRows = Callable[[Mapping[str, ColumnRange], range], bool]
"""Whether a group of rows with these ranges, at these positions, may hold a row that is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """The most that a batch of a reader holds."""

    rows: int = 65_536
    size_bytes: int = 16 * MIB  # in memory, as far as the format lets readers know it before; one row may be larger
    spills: bool = False  # other files are open too: what cannot be read in such batches goes through a local file


USUAL_BATCH: Final = BatchLimit()


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How files of a table are written."""

    compression: str
    zstd_level: int
    row_group_rows: int
    block_bytes: int | None = None  # of a row group or stripe; None: ``row_group_rows``, and the format's own


@dataclass(frozen=True, slots=True)
class FileRows:
    """Consecutive rows of a file, and where they are in it.

    Only the readers of formats make them: nothing else knows which rows of the file were left out before these. A
    position counts all rows of the file from 0, also those that are deleted or not read.
    """

    first: int  # position of the first row
    rows: pa.RecordBatch

    def found(self, positions: IndexArray) -> IndexArray:
        """(k,) indices of the rows that are at some of these ascending positions of the file."""
        low, high = np.searchsorted(positions, [self.first, self.first + self.rows.num_rows])
        return positions[low:high] - self.first

    def as_read(self, rows: pa.RecordBatch) -> "FileRows":
        """The same rows with other columns."""
        assert rows.num_rows == self.rows.num_rows, "rows were dropped or added"
        return replace(self, rows=rows)


class FormatWriter(Protocol):
    """Writes the rows of one file to a sink that belongs to the caller."""

    def write(self, rows: pa.Table) -> None:
        """Append rows of the file's columns, in file order and of their Arrow types."""

    def bytes_written(self) -> int:
        """Bytes that have left memory."""

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file. Exact ranges of columns, as far as they are known without reading the file again."""


class NewWriter(Protocol):
    """Makes the writer of one file."""

    def __call__(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> FormatWriter:
        """Make it.

        Args:
            sink: to write to; it stays open.
            fields: columns of the file.
            settings: compression and sizes.
            shared: columns that repeat another one, by name; they get no range of their own.
        """


class ReadFile(Protocol):
    """Reads one file."""

    def __call__(
        self,
        source: pa.NativeFile,
        fields: Sequence[DataField],
        *,
        limit: BatchLimit,
        keep: KeepRows | None = None,
        keep_fields: Sequence[DataField] = (),
        verify: bool = True,
    ) -> Iterator[FileRows]:
        """The columns that the file has of ``fields``, in file order of rows.

        Args:
            source: the file.
            fields: columns wanted, as the file's schema declares them.
            limit: of a batch.
            keep: says of ranges of ``keep_fields`` and of positions whether such rows are wanted; a format may ask it
                and leave the others out, or give all.
            keep_fields: columns whose ranges ``keep`` looks at.
            verify: compare pages with their checksums, in a format that has a choice.

        Raises:
            CorruptDataError: the file cannot be decoded.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """One format."""

    name: str  # in options and as suffix of file names
    writer: NewWriter
    reader: ReadFile
