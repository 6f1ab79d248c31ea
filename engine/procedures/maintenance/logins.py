"""The procedure that takes logins out of the files of tables."""

from functools import partial
from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.procedures.maintenance.compaction import matching_tables
from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from filestore.evolution.stored_login import find_logins, remove_logins
from filestore.refs.live_references import branch_names
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns

_CLEANED: Final = parse_columns("table string, file string, options string")


def _of_all(catalog: Catalog, dry_run: bool = False) -> pa.Table:
    names = matching_tables(catalog, including_databases=".*", including_tables=".*", excluding_tables=None)
    return _cleaned([catalog.table(name).store for name in names], dry_run=dry_run)


@procedure(_CLEANED, for_all=_of_all)
def remove_stored_login(table: Table, dry_run: bool = False) -> pa.Table:
    """Take secrets of logins out of a table's files, where earlier versions or other writers stored them.

    In every version of the schema, on every branch. Passwords, keys and tokens of log.kafka.*, log.schema-registry.*
    and Flink's kafka.* go, other options stay. Give them to the catalog from then on, and change them: copies of the
    files may exist. Processes that have the table open keep what they read.

    Args:
        table: the table.
        dry_run: change nothing, only show where logins are.

    Returns:
        One row for each file that was changed: the options that went, never their values.

    Raises:
        CorruptDataError: a file cannot be decoded.
    """
    return _cleaned([table.store], dry_run=dry_run)


def _cleaned(stores: list[TableStore], *, dry_run: bool = False) -> pa.Table:
    rows = []
    for store in stores:
        branches = partial(branch_names, store)
        found = find_logins(store, branches()) if dry_run else remove_logins(store, branches)
        for each in found:
            file = each.path.removeprefix(f"{store.paths.root}/")
            rows.append({"table": store.name, "file": file, "options": ", ".join(each.options)})
    return rows_table(_CLEANED, rows)
