"""Which tables let a statement change single rows: DELETE, UPDATE and MERGE."""

from filestore.schema.validation import MICROSECONDS
from filestore.table_view import TableView
from filestore.types.data_types import TIMESTAMP_ROOTS, walk
from lsm.errors import InvalidInputError


def deletes_positions(table: TableView) -> bool:
    """Whether rows, which have no key, are deleted by their places."""
    return not table.store.has_key and table.options.deletion_vectors_enabled


def ignores_deletes(table: TableView, statement: str) -> str:
    """Why a statement cannot delete rows of a table with ``ignore-delete``."""
    return f"the table ignores deletes: statement={statement} table={table.name} ignore-delete=true"


def check_changes_rows(table: TableView, statement: str, *, deletes: bool) -> None:
    """Refuse row changes that a table does not support.

    Args:
        table: to change.
        statement: DELETE, UPDATE or MERGE.
        deletes: whether it deletes rows, as far as it says so.

    Raises:
        InvalidInputError: with the reason.
    """
    options = table.options
    counts_rows = table.store.counts_rows
    if options.row_tracking_enabled and statement == "UPDATE":
        raise InvalidInputError(
            f"a changed row would get another id: statement=UPDATE table={table.name} row-tracking.enabled=true "
            "fix='update it with Paimon, or delete the row and insert it again'"
        )
    if counts_rows and statement == "MERGE":
        raise InvalidInputError(
            f"a row without a key cannot be found by some of its columns alone: statement=MERGE "
            f"table={table.name} row-counts=true fix=DELETE, UPDATE and INSERT"
        )
    if deletes_positions(table) and statement != "MERGE":
        return
    if counts_rows:
        _check_exact(table, statement)
    if not table.schema.primary_keys and not counts_rows:
        raise InvalidInputError(
            f"only tables with a primary key know their rows: statement={statement} table={table.name} "
            "fix=overwrite a partition, set 'deletion-vectors.enabled' = 'true' for DELETE and UPDATE, "
            "or make the table with PRIMARY KEY or 'row-counts' = 'true'"
        )
    if options.merge_engine != "deduplicate":
        raise InvalidInputError(
            f"rows of this table are merged from what was written, and not replaced by it: statement={statement} "
            f"table={table.name} merge-engine={options.merge_engine} fix=INSERT the rows to merge"
        )
    if options.ignore_delete and deletes:
        raise InvalidInputError(ignores_deletes(table, statement))


def _check_exact(table: TableView, statement: str) -> None:
    """Refuse values that Spark cannot represent exactly: rows are identified by all their values."""
    for field in table.schema.fields:
        for part in walk(field.type):
            if part.root in TIMESTAMP_ROOTS and (part.precision or 0) > MICROSECONDS:
                raise InvalidInputError(
                    f"Spark knows microseconds only, so it cannot name these rows: statement={statement} "
                    f"table={table.name} column={field.name} type={part} fix=Table.write with _row_kind -D"
                )
