"""Detects a truncate of the source: a batch with one is refused before its rows are in files or log.

A truncate is a row of kind ``-T``, which ``fluvial-kafka`` emits with ``truncates=emit``.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN, TRUNCATE_KIND
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError
from lsm.keys.words import IndexArray

IS_TRUNCATED: Final = "fluvial: a truncate is among the rows"
"""In the error of a job: it met one."""


class TruncatedBatchError(InvalidInputError):
    """A truncate is among the rows of a batch, of which nothing is written."""

    @classmethod
    def of(cls, table: str) -> "TruncatedBatchError":
        """The check for a batch of a table."""
        return cls(
            f"a truncate of the source is among the rows: table={table} row_kind={TRUNCATE_KIND} "
            "fix='write the stream by foreachBatch(sink(table)), which empties the table'"
        )


def has_kinds(names: Sequence[str], schema: TableSchema) -> bool:
    """Whether rows with these columns have kinds beside the table's columns."""
    return ROW_KIND_COLUMN in names and ROW_KIND_COLUMN not in schema.column_names


def check_not_truncated(batches: Sequence[pa.RecordBatch], table: str, schema: TableSchema) -> None:
    """Refuse rows with a truncate among them. Raises: TruncatedBatchError."""
    for batch in batches:
        if has_kinds(batch.schema.names, schema) and truncate_places(batch).size:
            raise TruncatedBatchError.of(table)


def failing_when_truncated(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """The rows, whose job fails with ``IS_TRUNCATED`` where it reads a truncate, before a shuffle has any of them."""
    if not has_kinds(rows.columns, schema):
        return rows
    is_truncate = f"{quoted(ROW_KIND_COLUMN)} = '{TRUNCATE_KIND}'"
    return rows.where(f"if({is_truncate}, raise_error('{IS_TRUNCATED}'), true)")


def truncate_places(batch: pa.RecordBatch) -> IndexArray:
    """Row numbers of the truncates."""
    kinds = batch.column(ROW_KIND_COLUMN).cast(pa.string())
    return np.flatnonzero(pc.fill_null(pc.equal(kinds, TRUNCATE_KIND), False))
