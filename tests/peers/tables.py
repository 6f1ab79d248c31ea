"""Rows, schemas and places of the tables that interop tests make."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from filestore.types.data_types import arrow_type, parse_data_type
from tests.peers import TableDefinition


def arrow_schema(definition: TableDefinition) -> pa.Schema:
    """Arrow schema of the rows of a table."""
    types = [(name, parse_data_type(kind)) for name, kind in definition.columns]
    return pa.schema([pa.field(name, arrow_type(kind), nullable=kind.nullable) for name, kind in types])


def rows_of(definition: TableDefinition, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of a table; missing columns are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(definition))


def root_of(warehouse: Path, name: str = "t") -> Path:
    """Directory of a table of database `db`."""
    return warehouse / "db.db" / name
