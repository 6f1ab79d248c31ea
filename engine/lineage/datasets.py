"""Tables and runs of jobs as OpenLineage identifies them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlparse

from engine.lineage.graph.columns import ColumnFlow
from filestore.layout.branch_names import SEPARATOR
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table as a barrier read or wrote it."""

    warehouse: str
    table: str  # database.table
    path: str = ""  # see ``own_path``
    snapshot_id: int | None = None  # None: no snapshot yet
    row_count: int | None = None  # written rows
    schema: TableSchema | None = None
    flow: ColumnFlow | None = None  # where its columns come from
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what its rows were held to, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a job."""

    job: str
    run_id: str  # a UUID
    is_stream: bool


def dataset_name(warehouse: str, table: str, path: str = "") -> tuple[str, str]:
    """Namespace and name of a table's directory. Source: OpenLineage, dataset naming.

    Args:
        warehouse: of its catalog.
        table: ``database.table``, or ``database.table$branch_b``.
        path: see ``own_path``.
    """
    base, mark, branch = table.partition(SEPARATOR)
    address = urlparse(path or warehouse)
    where = address.path.rstrip("/") if path else _path(address.path, base)
    if address.scheme in ("", "file"):
        return "file", f"{where}{mark}{branch}"
    return f"{address.scheme}://{address.netloc}", f"{where}{mark}{branch}".lstrip("/")


def own_path(store: TableStore) -> str:
    """The directory of a table that lies elsewhere than its catalog puts tables; "": it lies there."""
    root, base = store.paths.root, store.name.partition(SEPARATOR)[0]
    return "" if store.catalog is None or root == _path(store.catalog.warehouse, base) else root


def _path(warehouse: str, table: str) -> str:
    database, _, name = table.partition(".")
    return f"{warehouse.rstrip('/')}/{database}.db/{name}"


def catalog_uri(warehouse: str) -> str:
    """The warehouse as a URI, the namespace of the names that its catalog gives to tables."""
    return warehouse.rstrip("/") if urlparse(warehouse).scheme else f"file://{quote(os.path.abspath(warehouse))}"
