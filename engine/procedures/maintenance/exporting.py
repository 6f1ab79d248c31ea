"""The procedure that copies states of a table for readers of other formats."""

import os
from collections.abc import Callable
from typing import Final, Literal

import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import Duration, parse_duration_ms
from engine.table import Table
from filestore.catalog.warehouse import open_warehouse
from filestore.export.delta import export_delta
from filestore.export.parquet import export_parquet
from filestore.export.parts import open_state
from filestore.export.result import Exported, ExportPlace
from filestore.io.file_io import SystemClock
from filestore.options.catalog_options import CatalogOptions
from filestore.table import TableRead
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError

Format = Literal["delta", "iceberg", "parquet"]
_EXPORTED: Final = parse_columns(
    "path string, format string, snapshot_id int64?, "  # null: the table is empty
    "written int64, kept int64, removed int64, deleted int64, rows int64?, "  # null: dry run
    "size_bytes int64?"
)


@procedure(_EXPORTED)
def export(
    table: Table,
    path: str,
    format: Format = "delta",
    version: str = "latest",
    retain: Duration = "7 d",
    dry_run: bool = False,
    progress: Progress = silent,
) -> pa.Table:
    """Copy a state of a table as Delta Lake, Iceberg or Parquet.

    The copy is a directory, which the same call makes equal to another state by writing what differs.

    Args:
        table: the table.
        path: of the copy: a directory, or an address in an object store but for parquet, with the catalog's logins.
        format: of the copy. Parquet needs a local directory: readers open PATH/current.
        version: a snapshot, tag, savepoint or time, perhaps of a branch, as one word: 5, eod, dev.eod.
        retain: how long readers of an older state of the copy keep its files.
        dry_run: only show how many files would be written, kept and removed.
        progress: called with the number of files that are there, and of all.

    Returns:
        One row.

    Raises:
        InvalidInputError: no such version; the path has another table's copy; a type that the format does not have.
        ConflictError: another export was faster; the copy is whole.
    """
    store = table.store
    given = {} if store.catalog is None else store.catalog.options
    target = open_warehouse(path, CatalogOptions.parse(given), environment=os.environ)
    place = ExportPlace(
        io=target.io,
        root=target.root,
        clock=SystemClock(),
        retain_ms=parse_duration_ms("retain", retain),
        dry_run=dry_run,
    )
    read = open_state(table.files, version)
    done = _exporter(format)(read, place, progress)
    row = {
        "path": done.path,
        "format": format,
        "snapshot_id": None if read.snapshot is None else read.snapshot.id,
        "written": done.written,
        "kept": done.kept,
        "removed": done.removed,
        "deleted": done.deleted,
        "rows": done.rows,
        "size_bytes": done.size_bytes,
    }
    return rows_table(_EXPORTED, [row])


def _exporter(format: Format) -> Callable[[TableRead, ExportPlace, Progress], Exported]:
    if format != "iceberg":
        return export_delta if format == "delta" else export_parquet
    try:
        from filestore.export.iceberg import export_iceberg
    except ImportError as error:
        raise InvalidInputError(
            f"a copy as Iceberg needs pyiceberg: error={error} fix='pip install fluvial[iceberg]'"
        ) from error
    return export_iceberg
