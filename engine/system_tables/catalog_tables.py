"""The tables of database ``sys``: the content of a catalog, as rows."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from engine.lineage.lineage import lineage_of
from engine.lineage.settings import OpenCatalog
from engine.lineage.tables import DATABASE as LINEAGE_DATABASE
from engine.system_tables.names import CATALOG_DATABASES
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.options.secrets import without_secrets
from filestore.system_tables import SYSTEM_TABLES
from filestore.system_tables.system_table import LOCAL_TIME
from filestore.types.data_types import parse_columns
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.catalog")


def shown_databases(catalog: OpenCatalog) -> list[str]:
    """The databases that users see, sorted: their own, ``sys``, and ``paimon`` where lineage is recorded."""
    is_recorded = lineage_of(catalog) is not None
    own = [name for name in CATALOG_DATABASES if name != LINEAGE_DATABASE or is_recorded]
    return sorted({*catalog.list_databases(), *own})


class Tables(OpenCatalog, Protocol):
    """The part of a catalog that these tables need."""

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables."""

    def table(self, name: str) -> Table:
        """Open ``database.table``."""

    def described(self, name: str) -> Table:
        """Open ``database.table``, also if it cannot be read."""


_PLACE: Final = (
    pa.field("database_name", pa.string(), nullable=False),
    pa.field("table_name", pa.string(), nullable=False),
)
_SUMS: Final = (
    pa.field("record_count", pa.int64()),
    pa.field("file_size_in_bytes", pa.int64()),
    pa.field("file_count", pa.int64()),
    pa.field("last_file_creation_time", LOCAL_TIME),
)
_TABLES: Final = pa.schema(
    [
        *_PLACE,
        *parse_columns(
            "table_type string, partitioned bool, primary_key bool, created_at instant?, updated_at instant?"
        ),
        *_SUMS,
        pa.field("problem", pa.string()),
    ]
)
_PARTITIONS: Final = pa.schema([*_PLACE, pa.field("partition_name", pa.string(), nullable=False), *_SUMS])
_ALL_TABLE_OPTIONS: Final = pa.schema([*_PLACE, *parse_columns("key string, value string")])
_CATALOG_OPTIONS: Final = parse_columns("key string, value string")


def _tables(catalog: Tables) -> list[dict[str, Any]]:
    rows = []
    for place, table, problem in _opened(catalog):
        row: dict[str, Any] = {**place, "table_type": "table", "partitioned": False, "primary_key": False}
        try:
            row |= {} if table is None else _facts(table)
        except (FluvialError, OSError) as error:
            problem = str(error)
        rows.append(row | {"problem": problem})
    return rows


def _facts(table: Table) -> dict[str, Any]:
    """Columns of ``sys.tables``; without sums where a table cannot be read."""
    latest = table.latest_snapshot()
    row: dict[str, Any] = {
        "partitioned": bool(table.schema.partition_keys),
        "primary_key": bool(table.schema.primary_keys),
        "created_at": table.store.schema_of(min(table.store.schemas.ids())).time_ms,
        "updated_at": table.schema.time_ms if latest is None else max(latest.time_ms, table.schema.time_ms),
    }
    if table.closed is None:
        partitions = SYSTEM_TABLES["partitions"].read(table.store)
        row |= {
            "record_count": _sum(partitions, "record_count"),
            "file_size_in_bytes": _sum(partitions, "file_size_in_bytes"),
            "file_count": _sum(partitions, "file_count"),
            "last_file_creation_time": pc.max(partitions.column("last_update_time")).as_py(),
        }
    return row


def _sum(rows: pa.Table, name: str) -> int:
    return pc.sum(rows.column(name)).as_py() or 0


def _partitions(catalog: Tables) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for place, table, _ in _opened(catalog):
        if table is not None and table.closed is None and table.schema.partition_keys:
            names = ("record_count", "file_size_in_bytes", "file_count")
            try:
                partitions = SYSTEM_TABLES["partitions"].read(table.store).to_pylist()
            except (FluvialError, OSError) as error:
                logger.warning("partitions of a table cannot be read: table=%s error=%s", table.name, error)
                continue
            for each in partitions:
                found = {name: each[name] for name in names}
                made = {"partition_name": each["partition"], "last_file_creation_time": each["last_update_time"]}
                rows.append({**place, **found, **made})
    return rows


def _all_table_options(catalog: Tables) -> list[dict[str, Any]]:
    return [
        {**place, "key": key, "value": value}
        for place, table, _ in _opened(catalog)
        if table is not None
        for key, value in without_secrets(table.schema.options).items()
    ]


def _catalog_options(catalog: Tables) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in without_secrets(catalog.options).items()]


def _opened(catalog: Tables) -> Iterator[tuple[dict[str, str], Table | None, str | None]]:
    """Every table, opened to be described, and why it cannot be read; None where not even its schema can."""
    problems: dict[str, str] = {}
    for database, name in all_tables(catalog, problems):
        place = {"database_name": database, "table_name": name}
        try:
            table = catalog.described(f"{database}.{name}")
        except (FluvialError, OSError) as error:
            yield place, None, str(error)
        else:
            yield place, table, table.closed
    for database, problem in problems.items():
        yield {"database_name": database, "table_name": ""}, None, problem


_READERS: Final[Mapping[str, tuple[pa.Schema, Callable[[Tables], Sequence[dict[str, Any]]]]]] = {
    "tables": (_TABLES, _tables),
    "partitions": (_PARTITIONS, _partitions),
    "all_table_options": (_ALL_TABLE_OPTIONS, _all_table_options),
    "catalog_options": (_CATALOG_OPTIONS, _catalog_options),
}


def catalog_schema(name: str) -> pa.Schema:
    """Columns of ``sys.<name>``."""
    return _READERS[name][0]


def catalog_rows(catalog: Tables, name: str) -> pa.Table:
    """Rows of ``sys.<name>``."""
    schema, rows = _READERS[name]
    return pa.Table.from_pylist(list(rows(catalog)), schema=schema)
