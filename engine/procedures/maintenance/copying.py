"""Procedures that create tables from tables."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.types.rows import ROW_KIND_COLUMN
from engine.write.batch_target import write_locally
from filestore.options.log_place import OWN_LOG_KEYS
from filestore.schema.schema_store import ROOT_KEYS
from filestore.table import FileTable
from filestore.types.data_types import parse_columns
from lsm.undo import undoing

_OWN_KEYS: Final = OWN_LOG_KEYS | {*ROOT_KEYS}

_COPIED: Final = parse_columns(
    "source_table string, target_table string, rows int64, snapshot_id int64?"  # null: there were no rows
)


@procedure(_COPIED)
def copy(
    catalog: Catalog, source_table: str, target_table: str, where: str | None = None, progress: Progress = silent
) -> pa.Table:
    """Create a table with the columns, keys, options and newest rows of another; its log, if any, is new.

    Args:
        catalog: the catalog of both tables.
        source_table: "database.table".
        target_table: "database.table"; must not exist.
        where: only rows that match this condition.
        progress: called with the number of copied rows.

    Returns:
        One row.

    Raises:
        InvalidInputError: the source is missing, the target exists, or the condition is invalid; nothing is created.
    """
    source = catalog.table(source_table)
    read = source.read()
    rows = read.to_batches(filter=where)
    first = next(rows, None)  # an invalid condition must not leave an empty table
    schema = source.schema
    target = catalog.create_table(
        target_table,
        list(schema.fields),
        primary_key=schema.primary_keys,
        partition_by=schema.partition_keys,
        options={key: value for key, value in schema.options.items() if key not in _OWN_KEYS},
        comment=schema.comment or None,
        case_sensitive=True,
    )
    count, has_kinds = 0, bool(schema.primary_keys) and target.options.log_takes_old_rows

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in chain([] if first is None else [first], rows):
            count += batch.num_rows
            progress(count, None)
            kinds = pa.array(["+I"] * batch.num_rows) if has_kinds else None  # there are no other rows
            yield batch if kinds is None else batch.append_column(ROW_KIND_COLUMN, kinds)

    snapshot_id = None
    with undoing(lambda: catalog.drop_table(target_table)):
        if first is not None:
            snapshot = write_locally(_with_nulls(target.files), counted()).snapshot
            snapshot_id = None if snapshot is None else snapshot.id
    row = {"source_table": source.name, "target_table": target.name, "rows": count, "snapshot_id": snapshot_id}
    return rows_table(_COPIED, [row])


def _with_nulls(files: FileTable) -> FileTable:
    """The table as rows of another one are written to it: their nulls stay, whatever defaults its columns have."""
    schema = files.store.schema
    fields = tuple(replace(field, default_value=None) for field in schema.fields)
    return replace(files, store=replace(files.store, schema=replace(schema, fields=fields)))
