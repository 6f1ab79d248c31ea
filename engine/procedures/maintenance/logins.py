"""The procedure that takes logins out of the files of tables."""

from functools import partial
from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.evolution.stored_login import find_logins, remove_logins
from filestore.refs.live_references import branch_names
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns
from lsm.errors import FluvialError

_CLEANED: Final = parse_columns("table string, file string, options string, error string?")


def _of_all(catalog: Catalog, dry_run: bool = False) -> pa.Table:
    problems: dict[str, str] = {}
    rows: list[dict[str, str | None]] = []
    for name in (f"{database}.{table}" for database, table in all_tables(catalog, problems)):
        try:
            rows += _cleaned(catalog.table(name).store, dry_run=dry_run)
        except (FluvialError, OSError) as error:
            problems[name] = str(error)
    rows += [{"table": name, "file": "", "options": "", "error": problem} for name, problem in problems.items()]
    return rows_table(_CLEANED, rows)


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
        One row for each file that was changed: the options that went, never their values. With --all also one for
        each table that cannot be read, and for each database that cannot be listed, with the ``error``.

    Raises:
        CorruptDataError: a file cannot be decoded.
    """
    return rows_table(_CLEANED, _cleaned(table.store, dry_run=dry_run))


def _cleaned(store: TableStore, *, dry_run: bool) -> list[dict[str, str | None]]:
    """Rows of what was removed from the files of a table, or would be."""
    branches = partial(branch_names, store)
    found = find_logins(store, branches()) if dry_run else remove_logins(store, branches)
    return [
        {
            "table": store.name,
            "file": each.path.removeprefix(f"{store.paths.root}/"),
            "options": ", ".join(each.options),
            "error": None,
        }
        for each in found
    ]
