"""The command ``fluvial lineage``: the upstream and downstream of a table."""

from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from engine.catalog import Catalog
from engine.cli.commands.inspect import write_picture
from engine.cli.output import console, json_option, print_json
from engine.cli.place import WarehousePlace, with_place
from engine.drawing.graphs import GraphPicture, graph_page, graph_svg
from engine.lineage.graph.graph import GraphNode, LineageGraph
from engine.lineage.graph.view import LineageView, lines, view_of_snapshot, view_of_table
from engine.lineage.lineage import lineage_of
from engine.lineage.truth.checked import checked_meta
from lsm.errors import InvalidInputError

_LAST: Final = 20


@click.command()
@click.argument("table")
@click.option("--snapshot", type=click.IntRange(1), help="Snapshots and barriers around this one, instead of tables.")
@click.option("--upstream", "is_up", is_flag=True, help="Only upstream.")
@click.option("--downstream", "is_down", is_flag=True, help="Only downstream.")
@click.option("--depth", type=click.IntRange(1), help="Maximum number of jobs on a path. [default: all]")
@click.option("--last", type=click.IntRange(1), default=_LAST, help=f"Newest snapshots per table. [default: {_LAST}]")
@click.option("--svg", metavar="FILE", help="Draw the graph as an SVG picture.")
@click.option("--html", metavar="FILE", help="Draw the graph as a web page with snapshots of each table.")
@json_option
@with_place
def lineage(
    place: WarehousePlace,
    table: str,
    snapshot: int | None,
    is_up: bool,
    is_down: bool,
    depth: int | None,
    last: int,
    svg: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Show the tables and jobs upstream and downstream of a table."""
    catalog = place.catalog
    found = lineage_of(catalog)
    if found is None:
        raise InvalidInputError(
            f"the catalog records no lineage: warehouse={place.warehouse} fix=open it once with the options "
            "table-lineage=true and data-lineage=true"
        )
    upstream, downstream = is_up or not is_down, is_down or not is_up
    with checked_meta(found, catalog) as meta:
        if snapshot is None:
            view = view_of_table(
                meta,
                table,
                newest=partial(_newest, catalog),
                last=last,
                upstream=upstream,
                downstream=downstream,
                depth=depth,
            )
        else:
            view = view_of_snapshot(meta, table, snapshot, upstream=upstream, downstream=downstream, depth=depth)
    _check_known(catalog, table, view)
    if svg is not None:
        write_picture(Path(svg), graph_svg(_picture(view)).encode())
    if html is not None:
        write_picture(Path(html), _page(view).encode())
    if as_json:
        print_json(view.as_json())
    elif svg is html is None:
        _print(view, upstream=upstream, downstream=downstream)


def _newest(catalog: Catalog, table: str) -> int | None:
    """The newest snapshot of a table; None when the table has none or was dropped."""
    snapshot = catalog.table(table).latest_snapshot() if catalog.table_exists(table) else None
    return None if snapshot is None else snapshot.id


def _check_known(catalog: Catalog, table: str, view: LineageView) -> None:
    """A dropped table may still have lineage; an unknown one is an error. Raises: InvalidInputError."""
    if not view.graph.edges:
        catalog.table(table)


def _print(view: LineageView, *, upstream: bool, downstream: bool) -> None:
    facts = view.facts()
    fact = f"  {facts[view.root]}" if view.root in facts else ""
    console().print(Text(view.root.title, style="bold").append(fact, style="dim"), soft_wrap=True)
    for is_wanted, is_up, name in ((upstream, True, "made of"), (downstream, False, "makes")):
        if is_wanted:
            found = list(lines(view.graph, view.root, facts, upstream=is_up))
            console().print(Text(name if found else f"{name}: nothing", style="bold"))
            for depth, text in found:
                console().print(Text(f"{'  ' * depth}{text}"), soft_wrap=True)


def _picture(view: LineageView, links: dict[GraphNode, str] | None = None) -> GraphPicture:
    tables = sum(node.kind == "table" for node in view.graph.nodes)
    return GraphPicture(
        title=f"lineage of {view.root.title}",
        headline=f"{tables} tables, {len(view.graph.nodes) - tables} jobs; arrows show the flow of rows",
        graph=view.graph,
        roots=frozenset([view.root]),
        facts=view.facts(),
        links=links,
    )


def _page(view: LineageView) -> str:
    closer: dict[GraphNode, LineageGraph] = {
        node: view.closer(node) for node in view.graph.nodes if node.number is None
    }
    names = {node: f"n{at}" for at, (node, graph) in enumerate(closer.items()) if graph.nodes}
    details = [
        (
            name,
            GraphPicture(
                title=f"{node.kind} {node.title}",
                headline="its newest snapshots" if node.kind == "table" else "its newest barriers",
                graph=closer[node],
                roots=frozenset(
                    each for each in closer[node].nodes if (each.kind, each.name) == (node.kind, node.name)
                ),
            ),
        )
        for node, name in names.items()
    ]
    return graph_page(_picture(view, {node: f"#{name}" for node, name in names.items()}), details)
