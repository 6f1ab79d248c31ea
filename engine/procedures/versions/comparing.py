"""Procedures that compare states of a table."""

from typing import Any, Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.table import Table
from filestore.types.data_types import parse_columns

_DIFFERENCE: Final = parse_columns(
    "what string, "  # rows, or column
    "name string, inserted int64?, deleted int64?, updated int64?, changed_values int64?, change string?"
)


@procedure(_DIFFERENCE)
def table_diff(table: Table, before: str | int, after: str | int = "latest") -> pa.Table:
    """Count what differs between two states of a table, by rows and by columns; fluvial diff shows the rows.

    Args:
        table: the table.
        before: a snapshot, tag, savepoint or time, perhaps of a branch, as one word: 5, eod, dev.eod; 0 is the empty
            table.
        after: likewise.

    Returns:
        One row of counts when any rows differ, and one for each column with other values, or that was added, dropped or
        changed.

    Raises:
        InvalidInputError: there is no such state, or the keys of both differ.
    """
    summary = table.diff(before, after).summary()
    rows: list[dict[str, Any]] = []
    if summary.inserted or summary.deleted or summary.updated:
        counts = {"inserted": summary.inserted, "deleted": summary.deleted, "updated": summary.updated}
        rows.append({"what": "rows", "name": table.name, **counts})
    changed = {each.field.name: str(each) for each in summary.columns}
    for name in dict.fromkeys([*changed, *summary.changed_values]):
        count = summary.changed_values.get(name, 0)
        rows.append({"what": "column", "name": name, "changed_values": count, "change": changed.get(name)})
    return rows_table(_DIFFERENCE, rows)
