"""The pages of lineage: which job makes which table, what waits, and what follows from a snapshot."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from engine.drawing.graphs import graph_svg
from engine.drawing.lineage_page import lineage_picture
from engine.drawing.svg import without_style
from engine.lineage.graph.graph import GraphNode
from engine.lineage.graph.view import LineageView, label_of, view_of_snapshot, view_of_table
from engine.lineage.lineage import lineage_of
from engine.lineage.truth.checked import checked_copy
from engine.monitor.lineage_tables import TablesOfCatalog, count_without_jobs
from engine.ui.console import Console
from engine.ui.pages import read_part
from engine.ui.parts import Cell, Input, Page, PageForm, PagePart, heads, table_address, text_cell, what_if_address
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from engine.procedures.checked_lineage import CheckedLineage

_LAST: Final = 20  # snapshots of a table
_BRANCH: Final = "fix"
_FRESH_S: Final = 5
_NO_LINEAGE: Final = [
    PagePart(
        name="none",
        facts=[
            (
                "",
                Cell(
                    text="this catalog records no lineage: open it once with table-lineage=true and data-lineage=true"
                ),
            )
        ],
    )
]


def graph_page(console: Console) -> Page:
    """The lineage of the whole catalog, drawn and as a list. Raises: UnavailableError; CorruptDataError."""
    now = int(time.monotonic()) // _FRESH_S
    parts = console.kept.get("lineage", now, lambda: _parts(console))
    return Page(title="lineage", path=[(console.catalog.warehouse, "/")], sections=parts)


def _parts(console: Console) -> list[PagePart]:
    lineage = lineage_of(console.catalog)
    if lineage is None:
        return _NO_LINEAGE
    with checked_copy(lineage, console.catalog) as meta:
        tables = TablesOfCatalog(console.catalog, lineage.now_ms())
        view = view_of_table(meta, None, tables=tables, last=_LAST)
    picture = lineage_picture(view, without=count_without_jobs(console.catalog, view))
    links = {node: _address(node) for node in view.graph.nodes if node.kind == "table" and "://" not in node.name}
    svg = without_style(graph_svg(replace(picture, links=links)))
    return [PagePart(name="graph", svg=svg), _jobs(view)]


def what_if_page(console: Console, asked: Mapping[str, str]) -> Page:
    """What contains a snapshot, and the steps that correct the table behind the snapshot before it.

    Args:
        console: the warehouse.
        asked: ``table``, ``snapshot``.

    Raises: InvalidInputError: no such table, or no number; UnavailableError; CorruptDataError.
    """
    name, given = asked.get("table", "").strip(), asked.get("snapshot", "").strip()
    parts: list[PagePart] = []
    if name and given:
        if not (given.isascii() and given.isdecimal() and 0 < int(given) < 1 << 63):
            raise InvalidInputError(f"not the number of a snapshot: snapshot={given[:40]} fix='give one from 1 on'")
        console.table(name)
        now = int(time.monotonic()) // _FRESH_S
        parts = console.kept.get(("what-if", name, given), now, lambda: _what_if(console, name, int(given)))
    form = PageForm(
        inputs=[
            Input(name="table", value=name, label="table", hint="database.table"),
            Input(name="snapshot", value=given, label="snapshot", hint="the first wrong one"),
        ]
    )
    path = [(console.catalog.warehouse, "/"), ("lineage", "/lineage")]
    return Page(title="what follows from a snapshot", path=path, sections=parts, forms=[form])


def _what_if(console: Console, name: str, snapshot_id: int) -> list[PagePart]:
    from engine.procedures.checked_lineage import CheckedLineage  # the procedures import PySpark

    lineage = lineage_of(console.catalog)
    if lineage is None:
        return _NO_LINEAGE
    with checked_copy(lineage, console.catalog) as meta:
        checked = CheckedLineage(catalog=console.catalog, lineage=lineage, meta=meta)
        view = view_of_snapshot(meta, name, snapshot_id, upstream=False)
        found = [lambda: _affected(checked, name, snapshot_id), lambda: _recovery(checked, name, snapshot_id)]
        parts = [part for number, each in enumerate(found) for part in read_part(f"part-{number}", each)]
    links = {
        node: what_if_address(node.name, node.number)
        for node in view.graph.nodes
        if node.number and node.kind == "table"
    }
    svg = without_style(graph_svg(replace(lineage_picture(view), links=links)))
    return [PagePart(name="graph", svg=svg), *parts]


def _affected(checked: "CheckedLineage", name: str, snapshot_id: int) -> Iterator[PagePart]:
    """Raises: FluvialError."""
    from engine.procedures.recovery import affected_rows

    rows = [
        [
            text_cell(each["job"]),
            text_cell(f"{each['source_table']}@{each['source_snapshot_id']}"),
            _affected_table(each["table"], each["snapshot_id"]),
            text_cell(each["newest_snapshot_id"]),
            text_cell(each["command"]),
        ]
        for each in affected_rows(checked, name, snapshot_id)
    ]
    note = "" if rows else "no job has read it"
    columns = heads("job", "has read", "and written since", "newest", "compare")
    yield PagePart(name="affected", title="what contains it", note=note, columns=columns[: 5 * bool(rows)], rows=rows)


def _affected_table(table: str | None, snapshot_id: int | None) -> Cell:
    if table is None or snapshot_id is None:
        return Cell(text="nothing yet", kind="soft")
    return Cell(text=f"{table}@{snapshot_id}", href=table_address(table, "/data", at=str(snapshot_id)))


def _recovery(checked: "CheckedLineage", name: str, snapshot_id: int) -> Iterator[PagePart]:
    """Raises: FluvialError."""
    from engine.procedures.recovery import recovery_steps
    from engine.procedures.recovery_steps import Recovery

    title = "how to recover: fluvial recover carries this out on job files"
    if snapshot_id == 1:
        first = Cell(text="it is the first snapshot: no earlier one is correct", kind="soft")
        yield PagePart(name="plan", title=title, facts=[("", first)])
        return
    recovery = Recovery(table=name, snapshot_id=snapshot_id - 1, branch=_BRANCH, is_incremental=False)
    rows = [
        [
            Cell(text=str(number)),
            text_cell(each.what),
            text_cell(each.job),
            text_cell(each.table),
            text_cell(each.command),
        ]
        for number, each in enumerate(recovery_steps(checked, recovery), 1)
    ]
    columns = heads("step", "", "job", "table", "command")
    note = f"snapshot {snapshot_id - 1} is the newest correct one"
    yield PagePart(name="plan", title=title, note=note, columns=columns, rows=rows, numbers=frozenset({0}))


def _address(node: GraphNode) -> str:
    return table_address(node.name)


def _jobs(view: LineageView) -> PagePart:
    facts, after, before = view.facts(), view.graph.followers(), view.graph.reversed().followers()
    rows = []
    for node in view.graph.nodes:
        if node.kind == "job":
            late = [f"{start.name}: {each.words}" for (start, end), each in sorted(view.late.items()) if end == node]
            reads, writes = (", ".join(label_of(each) for each in found.get(node, ())) for found in (before, after))
            rows.append(
                [
                    text_cell(label_of(node)),
                    text_cell(reads),
                    text_cell(writes),
                    text_cell(facts.get(node)),
                    text_cell("; ".join(late), "bad"),
                ]
            )
    columns = heads("job", "reads", "writes", "newest", "waits")
    return PagePart(name="jobs", title="jobs", columns=columns if rows else (), rows=rows)
