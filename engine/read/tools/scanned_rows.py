"""Rows of which columns and rows can be left out before they are read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lsm.errors import InvalidInputError


class ScannedRows(ABC):
    """What a tool that scans rows needs."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""

    @abstractmethod
    def to_batches(self, columns: Sequence[str] | None = None, filter: Any = None) -> Iterator[pa.RecordBatch]:
        """The rows that match, one batch after the other."""

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Arrow schema of some columns. Raises: InvalidInputError: there is no such column."""
        return self.schema if columns is None else pa.schema([self._field(name) for name in names_of(columns)])

    def to_reader(self, columns: Sequence[str] | None = None, filter: Any = None) -> pa.RecordBatchReader:
        """The rows that match, batch by batch, to be read once; nothing is read before the first batch.

        Args:
            columns: to return, in this order; None is all.
            filter: SQL text, an expression of PyArrow, or a predicate.

        Raises:
            InvalidInputError: an unknown column; a filter that cannot be read is refused at the first batch.
        """
        return pa.RecordBatchReader.from_batches(self.schema_of(columns), self.to_batches(columns, filter))

    def _field(self, name: str) -> pa.Field:
        names = self.schema.names
        if name not in names:
            raise InvalidInputError(f"no such column: column={name} columns={names}")
        return self.schema.field(name)


def names_of(columns: Sequence[str]) -> list[str]:
    """Names of columns as a list. Raises: InvalidInputError: a single text, of which each letter would be a name."""
    if isinstance(columns, str):
        raise InvalidInputError(f"columns are a list of names: given={columns!r} fix='columns=[{columns!r}]'")
    return list(columns)
