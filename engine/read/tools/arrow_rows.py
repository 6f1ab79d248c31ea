"""What everything that can be read into Arrow offers to other Python tools."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.read.tools.scanned_rows import ScannedRows
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

# the tools are imported where they are asked for: none of them is a dependency


class ArrowStream(ABC):
    """Rows that can be read several times, by Arrow's protocol, as in ``polars.DataFrame(rows)``.

    The protocol has no place for columns and filters: the methods have.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, batch by batch, to be read once; nothing is read before the first batch."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the rows; see Arrow's PyCapsule interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Name and columns, for notebooks; reads no rows."""
        return columns_html(repr(self), self.schema)


class ArrowRows(ScannedRows, ArrowStream):
    """Rows of which a reader can leave out columns and rows before they are read."""

    def to_pandas(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> "pandas.DataFrame":
        """The rows that match as a pandas frame.

        Args:
            columns: see ``to_reader``.
            filter: see ``to_reader``.
            options: of ``pyarrow.Table.to_pandas``, such as ``types_mapper``.
        """
        _check_installed("pandas")
        return self.to_reader(columns, filter).read_all().to_pandas(**options)

    def to_dataset(self) -> Any:
        """A ``pyarrow.dataset.Dataset`` for whatever reads one; columns and filters of a scan reach the files."""
        from engine.read.tools.rows_dataset import RowsDataset

        return RowsDataset(self)

    def to_polars(self) -> "polars.LazyFrame":
        """A lazy Polars frame: columns, filters and ``head`` of the query reach the files when it is collected."""
        _check_installed("polars")
        from engine.read.tools.polars_scan import polars_scan

        return polars_scan(self)

    def to_duckdb(self, connection: "duckdb.DuckDBPyConnection | None" = None) -> "duckdb.DuckDBPyRelation":
        """A DuckDB relation: columns and filters of the query reach the files when it runs.

        Args:
            connection: that the relation belongs to; None: DuckDB's default one, as in ``duckdb.sql``.
        """
        _check_installed("duckdb")
        import duckdb

        return (connection or duckdb.default_connection()).from_arrow(self.to_dataset())


def columns_html(title: str, schema: pa.Schema) -> str:
    """A title and a table of columns as HTML."""
    cells = [(each.name, str(each.type), "" if each.nullable else "NOT NULL") for each in schema]
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
    return f"<div><code>{escape(title)}</code><table><tr><th>column</th><th>type</th><th></th></tr>{rows}</table></div>"


def _check_installed(module: str) -> None:
    """Raises: InvalidInputError: the tool is not there."""
    try:
        __import__(module)
    except ImportError as error:
        raise InvalidInputError(f"a package is not installed: package={module} fix='pip install {module}'") from error
