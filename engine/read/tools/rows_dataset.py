"""Rows as a dataset of PyArrow, for DuckDB, DataFusion and others that scan one."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from engine.read.tools.scanned_rows import ScannedRows
from lsm.errors import InvalidInputError


class RowsDataset(dataset.Dataset):
    """A dataset in Python: tools know it by its class, and get each scan from ``scanner``.

    There is no dataset of Arrow's C++ behind it, so methods that need one are refused.
    """

    def __init__(self, rows: ScannedRows) -> None:
        """Wrap rows that can be read several times."""
        self._rows = rows

    def __reduce__(self) -> Any:
        return RowsDataset, (self._rows,)

    def __repr__(self) -> str:
        return f"RowsDataset({self._rows!r})"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self._rows.schema

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> dataset.Scanner:
        """One scan of the rows.

        Args:
            columns: names, in the wanted order; or, as in PyArrow, expressions by name.
            filter: an expression of PyArrow.
            options: of PyArrow's scans of files; those that this has no use for are ignored.
        """
        names = None if columns is None or isinstance(columns, dict) else list(columns)
        found = self._rows.to_reader(names, filter)
        projected = columns if isinstance(columns, dict) or found.schema.names != names else None
        return dataset.Scanner.from_batches(found, columns=projected)

    def get_fragments(self, filter: Any = None) -> Iterator[dataset.Fragment]:
        """The rows as one fragment."""
        yield _RowsFragment(self)

    def filter(self, expression: Any) -> Any:
        """Refused."""
        raise self._refused("filter")

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Refused."""
        raise self._refused("replace_schema")

    def join(self, *given: Any, **options: Any) -> Any:
        """Refused."""
        raise self._refused("join")

    def join_asof(self, *given: Any, **options: Any) -> Any:
        """Refused."""
        raise self._refused("join_asof")

    def sort_by(self, *given: Any, **options: Any) -> Any:
        """Refused."""
        raise self._refused("sort_by")

    @property
    def partition_expression(self) -> Any:
        """Refused."""
        raise self._refused("partition_expression")

    def _refused(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"a dataset of this table cannot do that: method={what} fix='use to_table(columns=..., filter=...) first'"
        )


class _RowsFragment(dataset.Fragment):
    """All rows."""

    def __init__(self, rows: RowsDataset) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"Fragment({self._rows!r})"

    def scanner(self, schema: Any = None, columns: Any = None, filter: Any = None, **options: Any) -> dataset.Scanner:
        """See ``RowsDataset.scanner``."""
        return self._rows.scanner(columns, filter)
