"""Tables and runs of jobs as OpenLineage identifies them."""

import os
from dataclasses import dataclass
from urllib.parse import quote, urlparse

from engine.lineage.graph.columns import ColumnFlow
from engine.lineage.origins import default_path
from filestore.layout.branch_names import SEPARATOR
from filestore.schema.table_schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table as a barrier read or wrote it."""

    warehouse: str
    table: str  # database.table
    path: str = ""  # see ``origins.own_path``
    snapshot_id: int | None = None  # None: no snapshot yet
    row_count: int | None = None  # written rows
    schema: TableSchema | None = None
    flow: ColumnFlow | None = None  # where its columns come from


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
        path: see ``origins.own_path``.
    """
    base, mark, branch = table.partition(SEPARATOR)
    address = urlparse(path or warehouse)
    where = address.path.rstrip("/") if path else default_path(address.path, base)
    if address.scheme in ("", "file"):
        return "file", f"{where}{mark}{branch}"
    return f"{address.scheme}://{address.netloc}", f"{where}{mark}{branch}".lstrip("/")


def catalog_uri(warehouse: str) -> str:
    """The warehouse as a URI, the namespace of the names that its catalog gives to tables."""
    return warehouse.rstrip("/") if urlparse(warehouse).scheme else f"file://{quote(os.path.abspath(warehouse))}"
