"""How notebooks show what Fluvial returns: ``%load_ext fluvial`` in IPython and Jupyter.

Rows, which reads, procedures and dry runs return as Arrow tables, become a table of the first ones; snapshots, tags
and other records a table of their fields; the lineage of a catalog its picture.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lsm.errors import printable

if TYPE_CHECKING:
    from engine.lineage.graph.lateness import TableCommits
    from engine.lineage.lineage import Lineage

SHOWN_ROWS: Final = 50
_LONGEST_CELL: Final = 120
RECORDS: Final = (
    ("filestore.snapshot.snapshot", "Snapshot"),
    ("filestore.tag.tags", "Tag"),
    ("filestore.refs.savepoint_files", "Savepoint"),
    ("filestore.branch.merge", "MergeResult"),
    ("filestore.commit.table_commit", "CommitResult"),
    ("filestore.maintenance.rollback", "RollbackPlan"),
    ("engine.deploy.plan", "DeployPlan"),
    ("engine.deploy.recovery.recovery_plan", "RecoveryPlan"),
)
"""Module and name of each class that is shown as a table of its fields; none is imported for it."""


def add_pictures(shell: Any) -> None:
    """Register the pictures below in a shell of IPython.

    Args:
        shell: ``IPython.core.interactiveshell.InteractiveShell``.
    """
    html = shell.display_formatter.formatters["text/html"]
    html.for_type(pa.Table, rows_html)
    for module, name in RECORDS:
        html.for_type_by_name(module, name, fields_html)
    svg = shell.display_formatter.formatters["image/svg+xml"]
    svg.for_type_by_name("engine.lineage.lineage", "Lineage", lineage_svg)


def rows_html(rows: pa.Table) -> str:
    """An Arrow table as HTML: its first 50 rows, and how many there are."""
    shown = rows.slice(0, SHOWN_ROWS)
    more = f"<p>{rows.num_rows:,} rows, of which {SHOWN_ROWS} are shown</p>" if shown.num_rows < rows.num_rows else ""
    return _table(rows.column_names, zip(*(column.to_pylist() for column in shown.columns), strict=True)) + more


def fields_html(record: Any) -> str:
    """A dataclass as HTML: a row for each field that has a value."""
    given = [(each.name, getattr(record, each.name)) for each in fields(record) if each.repr]
    table = _table(["field", "value"], [(name, value) for name, value in given if value is not None])
    return f"<div><code>{escape(type(record).__name__)}</code>{table}</div>"


class _Unopened:
    """See ``CatalogTables``: opens no table, so no job is late."""

    now_ms = 0

    def newest_id(self, table: str) -> int | None:
        """None, as of an empty table."""

    def commits_after(self, table: str, snapshot_id: int) -> "TableCommits":
        """Raises: AssertionError; it is asked for newer snapshots than the newest alone."""
        raise AssertionError(table, snapshot_id)


def lineage_svg(lineage: "Lineage") -> str:
    """The graph of all tables and jobs that a catalog's lineage knows, as a picture.

    Raises:
        UnavailableError: the store does not answer.
    """
    from engine.drawing.graphs import graph_svg
    from engine.drawing.lineage_page import lineage_picture
    from engine.lineage.graph.view import view_of_table

    return graph_svg(lineage_picture(view_of_table(lineage.meta, None, tables=_Unopened(), last=1)))


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(printable(name))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return escape(printable(text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"))
