"""The command ``fluvial lineage``: the upstream and downstream of a table, or all of a catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from engine.catalog import Catalog
from engine.cli.commands.inspect import write_picture
from engine.cli.output import console, json_option, print_json, waiting
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.drawing.graphs import graph_svg
from engine.drawing.lineage_page import lineage_page, lineage_picture
from engine.drawing.png import png_picture
from engine.lineage.graph.graph import GraphNode
from engine.lineage.graph.view import BY_HAND, LineageView, label_of, lines, view_of_snapshot, view_of_table
from engine.lineage.lineage import lineage_of
from engine.lineage.truth.checked import checked_meta
from engine.monitor.lineage_tables import TablesOfCatalog, count_without_jobs
from engine.runtime.units import many_text
from lsm.errors import InvalidInputError

_LAST: Final = 20


@click.command()
@click.argument("table", type=TABLE_NAME, required=False)
@click.option("--snapshot", type=click.IntRange(1), help="Snapshots and barriers around this one, instead of tables.")
@click.option("--upstream", "is_up", is_flag=True, help="Only upstream.")
@click.option("--downstream", "is_down", is_flag=True, help="Only downstream.")
@click.option("--depth", type=click.IntRange(1), help="Maximum number of jobs on a path. [default: all]")
@click.option("--last", type=click.IntRange(1), default=_LAST, help=f"Newest snapshots per table. [default: {_LAST}]")
@click.option("--svg", metavar="FILE", help="Draw the graph as an SVG picture.")
@click.option("--html", metavar="FILE", help="Draw the graph as a web page with snapshots of each table.")
@click.option("--png", metavar="FILE", help="Draw the graph as PNG; needs Pillow, the extra fluvial[png].")
@json_option
@with_place
def lineage(
    place: WarehousePlace,
    table: str | None,
    snapshot: int | None,
    is_up: bool,
    is_down: bool,
    depth: int | None,
    last: int,
    svg: str | None,
    html: str | None,
    png: str | None,
    as_json: bool,
) -> None:
    """Show the tables and jobs upstream and downstream of a table; without one, all of the catalog.

    A job is behind a table as long as commits of rows wait that it had not read at its newest barrier.
    """
    if table is None and (snapshot is not None or is_up or is_down or depth is not None):
        raise InvalidInputError("no table: --snapshot, --upstream, --downstream and --depth are about one; fix=name it")
    catalog = place.catalog
    found = lineage_of(catalog)
    if found is None:
        raise InvalidInputError(
            f"the catalog records no lineage: warehouse={place.warehouse} fix=open it once with the options "
            "table-lineage=true and data-lineage=true"
        )
    upstream, downstream = is_up or not is_down, is_down or not is_up
    with waiting("comparing the lineage with the snapshots"), checked_meta(found, catalog) as meta:
        if table is None or snapshot is None:
            view = view_of_table(
                meta,
                table,
                tables=TablesOfCatalog(catalog, found.now_ms()),
                last=last,
                upstream=upstream,
                downstream=downstream,
                depth=depth,
            )
        else:
            view = view_of_snapshot(meta, table, snapshot, upstream=upstream, downstream=downstream, depth=depth)
    if table is not None:
        _check_known(catalog, table, view)
    without = count_without_jobs(catalog, view) if table is None else 0
    pictures: list[tuple[str | None, Callable[[], bytes]]] = [
        (svg, lambda: graph_svg(lineage_picture(view, without=without)).encode()),
        (html, lambda: lineage_page(view, without=without).encode()),
        (png, lambda: png_picture(graph_svg(lineage_picture(view, without=without)))),
    ]
    for path, draw in pictures:
        if path is not None:
            write_picture(Path(path), draw())
    if as_json:
        print_json(view.as_json())
    elif svg is html is png is None:
        if view.root is None:
            _print_catalog(view, without)
        else:
            _print(view, view.root, upstream=upstream, downstream=downstream)


def _check_known(catalog: Catalog, table: str, view: LineageView) -> None:
    """A dropped table may still have lineage; an unknown one is an error. Raises: InvalidInputError."""
    if not view.graph.edges:
        catalog.table(table)


def _print(view: LineageView, root: GraphNode, *, upstream: bool, downstream: bool) -> None:
    facts = _facts(view)
    fact = f"  {facts[root]}" if root in facts else ""
    console().print(Text(label_of(root), style="bold").append(fact, style="dim"), soft_wrap=True)
    for is_wanted, is_up, name in ((upstream, True, "made of"), (downstream, False, "makes")):
        if is_wanted:
            found = list(lines(view.graph, root, facts, upstream=is_up))
            console().print(Text(name if found else f"{name}: nothing", style="bold"))
            for depth, text in found:
                console().print(Text(f"{'  ' * depth}{text}"), soft_wrap=True)


def _print_catalog(view: LineageView, without: int) -> None:
    """Every job with what it reads and writes."""
    facts, followers, leaders = _facts(view), view.graph.followers(), view.graph.reversed().followers()
    for node in view.graph.nodes:
        if node.kind == "job":
            fact = f"  {facts[node]}" if node in facts else ""
            console().print(Text(node.name, style="bold").append(fact, style="dim"), soft_wrap=True)
            for verb, tables in (("reads ", leaders.get(node, ())), ("writes", followers.get(node, ()))):
                for table in tables:
                    late = view.late.get((table, node))
                    line = Text(f"  {verb} {table.name}")
                    edge = (table, node) if verb == "reads " else (node, table)
                    if edge in view.stated and BY_HAND not in fact:
                        line.append(f"  {BY_HAND}", style="dim")
                    if verb == "reads " and late is not None:
                        line.append(f"  {late.words}", style="red")
                    console().print(line, soft_wrap=True)
    if without:
        console().print(Text(f"{many_text(without, 'table')} without jobs", style="dim"))


def _facts(view: LineageView) -> dict[GraphNode, str]:
    """The facts of a view, with what a job is behind of, and what else it reads."""
    facts = view.facts()
    for (table, job), late in sorted(view.late.items()):
        if view.root is not None:
            facts[job] = f"{facts.get(job, '')}  {table.name}: {late.words}".strip()
    for job, tables in view.further_inputs().items():
        facts[job] = f"{facts.get(job, '')}  also reads {', '.join(tables)}".strip()
    return facts
