"""Data files in memory: written piece by piece in a format, and read back through the format's reader."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from filestore.datafile.schema_mapping import map_schema
from filestore.format.file_format import file_format
from filestore.format.interface import BatchLimit, FileRows, WriteSettings
from filestore.format.statistics import ColumnRange
from filestore.schema.file_fields import file_schema
from filestore.types.data_types import DataField


@dataclass(frozen=True)
class FormatFiles:
    """Files of one format."""

    name: str

    def written(
        self,
        table: pa.Table,
        fields: Sequence[DataField],
        *,
        compression: str = "zstd",
        step: int = 700,
        block_bytes: int | None = None,
        **shared: str,
    ) -> tuple[bytes, dict[str, ColumnRange]]:
        """The file of some rows, given in pieces of ``step``, and the ranges that its writer found."""
        sink = pa.BufferOutputStream()
        settings = WriteSettings(compression=compression, zstd_level=1, row_group_rows=1000, block_bytes=block_bytes)
        writer = file_format(self.name).writer(sink, fields, settings, shared=shared)
        arranged = table.cast(file_schema(fields))
        for start in range(0, table.num_rows, step):
            writer.write(arranged.slice(start, step))
        ranges = writer.close()
        return sink.getvalue().to_pybytes(), ranges

    def batches(self, body: bytes, fields: Sequence[DataField], **how: Any) -> list[pa.RecordBatch]:
        """The rows of ``read`` alone."""
        return [read.rows for read in self.read(body, fields, **how)]

    def read(self, body: bytes, fields: Sequence[DataField], **how: Any) -> list[FileRows]:
        """What the reader gives, as the file stores it; batches of at most 300 rows unless ``how`` says otherwise."""
        reader = file_format(self.name).reader(pa.BufferReader(body), fields, **{"limit": BatchLimit(rows=300), **how})
        return list(reader)

    def read_back(self, body: bytes, fields: Sequence[DataField], **how: Any) -> pa.Table:
        """Rows as read, in the types that the fields declare."""
        mapping = map_schema(fields, fields)
        batches = [mapping.apply(batch) for batch in self.batches(body, fields, **how)]
        return pa.Table.from_batches(batches, mapping.arrow_schema)


def same_rows(one: pa.Table, two: pa.Table) -> bool:
    """Equal in schema and rows, NaN being equal to NaN."""
    return one.schema.equals(two.schema) and repr(one.to_pylist()) == repr(two.to_pylist())
