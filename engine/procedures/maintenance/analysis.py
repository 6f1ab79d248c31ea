"""The procedure that describes a table for planners."""

from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.table import Table
from filestore.maintenance.table_statistics import analyze as analyze_files
from filestore.types.data_types import parse_columns

_COLUMNS: Final = parse_columns(
    "column string?, "  # null: the table
    "row_count int64, null_count int64?, distinct_count int64?, min string?, max string?, average_length int64?, "
    "max_length int64?"
)
ALL_COLUMNS: Final = "*"


@procedure(_COLUMNS)
def analyze(table: Table, columns: str | None = None, progress: Progress = silent) -> pa.Table:
    """Count rows and describe columns, for planners.

    A commit without rows publishes it; it counts until the schema changes, and is not brought up to date by itself.

    Args:
        table: the table.
        columns: to describe, as "a,b", or "*" for all; each is read once.
        progress: called with the progress.

    Returns:
        One row for the table, one for each column; none if the table has no snapshot.

    Raises:
        InvalidInputError: there is no such column.
        ConflictError: the schema changed meanwhile: run it again. Nothing is visible.
    """
    names = [] if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    found = analyze_files(
        table.files, table.schema.column_names if names == [ALL_COLUMNS] else names, progress=progress
    )
    if found is None:
        return rows_table(_COLUMNS, [])
    rows: list[dict[str, Any]] = [{"column": None, "row_count": found.row_count}]
    rows += [
        {
            "column": name,
            "row_count": found.row_count,
            "null_count": column.get("nullCount"),
            "distinct_count": column.get("distinctCount"),
            "min": column.get("min"),
            "max": column.get("max"),
            "average_length": column.get("avgLen"),
            "max_length": column.get("maxLen"),
        }
        for name, column in found.columns.items()
    ]
    return rows_table(_COLUMNS, rows)
