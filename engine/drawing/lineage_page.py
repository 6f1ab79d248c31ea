"""Lineage as a picture, and as a web page on which every node leads to its snapshots, barriers and commands."""

import html
from collections.abc import Iterator
from shlex import quote
from typing import Final

from engine.drawing.graphs import GraphPicture, graph_svg
from engine.drawing.script import ZOOM, ZOOM_STYLE
from engine.drawing.theme import PAGE_STYLE
from engine.lineage.graph.graph import GraphNode, LineageGraph
from engine.lineage.graph.view import BY_HAND, LineageView, label_of
from engine.runtime.units import many_text

_STYLE: Final = (
    "section{display:none;border-top:1px solid GrayText;margin:16px 0;padding:8px 0} section:target{display:block}"
    "section p,section pre{margin:8px 32px;font-size:13px} pre{white-space:pre-wrap;overflow-wrap:anywhere}"
)


def lineage_picture(view: LineageView, *, without: int = 0) -> GraphPicture:
    """The picture of a view.

    Args:
        view: the graph with its facts.
        without: tables of the catalog that no job is known of; they are not drawn.
    """
    tables = sum(node.kind == "table" for node in view.graph.nodes)
    nouns = ("table", "job") if view.root is None or view.root.number is None else ("snapshot", "barrier")
    headline = [f"{many_text(tables, nouns[0])}, {many_text(len(view.graph.nodes) - tables, nouns[1])}"]
    if view.late:
        headline.append(f"red: rows wait for {many_text(len({job for _, job in view.late}), 'job')}")
    if view.beside:
        headline.append("dashed: further inputs of these jobs")
    jobs = {node for edge in view.stated & {*view.graph.edges} for node in edge if node.kind == "job"}
    if jobs:
        headline.append(f"{BY_HAND}: {many_text(len(jobs), 'job')}")
    if without:
        headline.append(f"{many_text(without, 'table')} without jobs")
    return GraphPicture(
        title="lineage of the catalog" if view.root is None else f"lineage of {label_of(view.root)}",
        headline=" · ".join([*headline, "arrows show the flow of rows"]),
        graph=view.graph,
        roots=frozenset([view.root] if view.root is not None else []),
        beside=view.beside,
        facts={node: fact.split(", ") for node, fact in view.facts().items()},
        late={edge: each.words for edge, each in view.late.items()},
    )


def lineage_page(view: LineageView, *, without: int = 0) -> str:
    """The same as a web page; a click on a node shows the section that its link names."""
    whole = lineage_picture(view, without=without)
    nodes = LineageGraph.of([*view.graph.edges, *view.beside], view.graph.nodes).nodes
    names = {node: f"n{at}" for at, node in enumerate(nodes)}
    whole = GraphPicture(
        title=whole.title, headline=whole.headline, graph=whole.graph, roots=whole.roots, beside=whole.beside,
        facts=whole.facts, late=whole.late, links={node: f"#{name}" for node, name in names.items()},
    )  # fmt: skip
    sections = "".join(_section(view, node, name) for node, name in names.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{html.escape(whole.title)}</title>\n'
        f"<style>{PAGE_STYLE}{_STYLE}{ZOOM_STYLE}</style></head>\n<body>\n"
        f'<nav>Click on a table or a job for its snapshots or barriers.<div id="zoom"></div></nav>\n'
        f'<div class="scroll" id="graph">\n'
        f"{graph_svg(whole)}</div>\n{sections}{ZOOM}</body></html>\n"
    )


def _section(view: LineageView, node: GraphNode, name: str) -> str:
    closer = view.closer(node)
    shown = closer if closer.nodes else LineageGraph.of([], [node])
    times = view.times()
    picture = GraphPicture(
        title=f"{node.kind} {label_of(node)}",
        headline=_explanation(node) if closer.nodes else "no snapshot or barrier of it is recorded",
        graph=shown,
        roots=frozenset(each for each in shown.nodes if (each.kind, each.name) == (node.kind, node.name)),
        facts={each: [times[each]] for each in shown.nodes if each in times},
    )
    late = [f"{start.name}: {each.words}" for (start, end), each in sorted(view.late.items()) if end == node]
    texts = "".join(f"<p>{html.escape(line)}</p>\n" for line in late)
    commands = "\n".join(_commands(node))
    return (
        f'<section id="{name}">\n<div class="scroll">\n{graph_svg(picture)}</div>\n{texts}'
        f'{f"<pre>{html.escape(commands)}</pre>" if commands else ""}\n<p><a href="#graph">back to the graph</a></p>\n'
        "</section>\n"
    )


def _explanation(node: GraphNode) -> str:
    if node.number is not None:
        return "what it was made of, and what was made of it"
    return "its newest snapshots" if node.kind == "table" else "its newest barriers, with all inputs and outputs"


def _commands(node: GraphNode) -> Iterator[str]:
    """What to run next."""
    if node.kind == "job":
        yield f"fluvial read paimon.source_snapshot_lineage --filter {_job_filter(node.name)}"
        return
    table = quote(node.name)
    if node.number is None:
        yield from (f"fluvial {command} {table}" for command in ("doctor", "lag", "inspect"))
        return
    yield f"fluvial read {table} --at {node.number}"
    yield f"fluvial diff {table} {node.number - 1} {node.number}"
    yield f"fluvial impact {table} --snapshot {node.number}"


def _job_filter(job: str) -> str:
    condition = "job = '" + job.replace("'", "''") + "'"
    return quote(condition) if set(job) & set('"$`\\!') else f'"{condition}"'
