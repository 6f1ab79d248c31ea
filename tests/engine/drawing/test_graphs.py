"""Graphs of lineage: whole names, nothing over anything else, however many tables."""

from itertools import pairwise
from random import Random
from xml.etree import ElementTree as ET

import pytest

from engine.drawing.graphs import GraphPicture, graph_svg
from engine.lineage.graph.graph import GraphNode, LineageGraph
from tests.support.pictures import SVG, boxes_of, check_words, labels_of

LONG = "dw.src_events_stream_raw_v2_of_the_warehouse_in_the_north_and_all_of_its_partners_WWWWWWWWWWWWWWWWWW"


def warehouse(tables: int, seed: int) -> LineageGraph:
    """Layers of tables with jobs between them, and some edges over several layers."""
    random = Random(seed)
    nodes = [GraphNode("table", f"dw.{'x' * random.randrange(40)}{at}") for at in range(tables)]
    edges = []
    for at, node in enumerate(nodes[8:], start=8):
        job = GraphNode("job", f"job_{at}_{'_y' * random.randrange(20)}")
        edges += [(job, node), *((each, job) for each in random.sample(nodes[:at], 2))]
    return LineageGraph.of(edges, nodes)


@pytest.mark.sweep
@pytest.mark.parametrize(("tables", "seed"), [(9, 1), (40, 2), (40, 3), (90, 4)])
def test_a_catalog_is_legible(tables: int, seed: int) -> None:
    graph = warehouse(tables, seed)
    svg = graph_svg(
        GraphPicture(
            title="lineage of the catalog",
            headline="all of it",
            graph=graph,
            facts={node: ["snapshot 1,234,567", "2026-11-22 09:20:49"] for node in graph.nodes[::2]},
            late={edge: "12 snapshots, 40 min behind" for edge in graph.edges[::3] if edge[0].kind == "table"},
        )
    )
    check_words(svg, "table", "job")
    root = ET.fromstring(svg)
    assert len(boxes_of(root, "table", "job")) == len(graph.nodes)
    assert min(float(each.get("font-size", "")) for each in root.iter(f"{SVG}text")) >= 10
    assert not any("…" in each.what for each in labels_of(root)), "names and facts are whole"


def test_long_names_are_wrapped() -> None:
    svg = graph_svg(GraphPicture(title=LONG, headline="", graph=LineageGraph.of([], [GraphNode("table", LONG)])))
    check_words(svg, "table", "job")
    [box] = boxes_of(ET.fromstring(svg), "table")
    lines = [each.what for each in labels_of(ET.fromstring(svg)) if box.holds(each)]
    assert "".join(lines) == LONG
    assert box.right - box.left < 320


def test_a_late_table_is_named_on_lines_of_its_own_where_it_is_long() -> None:
    table, job = GraphNode("table", LONG), GraphNode("job", "etl")
    late = {(table, job): "12 snapshots, 40 min behind"}
    svg = graph_svg(GraphPicture(title="t", headline="", graph=LineageGraph.of([(table, job)]), late=late))
    check_words(svg, "table", "job")
    [box] = boxes_of(ET.fromstring(svg), "job")
    name, *of_table, lateness = [each.what for each in labels_of(ET.fromstring(svg)) if box.holds(each)]
    assert (name, "".join(of_table), lateness) == ("etl", f"{LONG}:", late[table, job])


def test_edges_pass_boxes_at_a_distance() -> None:
    """Also those that close a cycle: no edge is drawn through a box that it does not belong to."""
    table, job = (lambda name: GraphNode("table", name)), (lambda name: GraphNode("job", name))
    edges = [(table("x"), job("a")), (job("a"), table("y")), (table("y"), job("b")), (job("b"), table("z"))]
    cycles = [(table("z"), job("a")), (table("y"), job("a")), (job("b"), table("x"))]
    long = [(table("x"), job("c")), (table("z"), job("c"))]
    svg = graph_svg(GraphPicture(title="t", headline="", graph=LineageGraph.of([*edges, *cycles, *long])))
    check_words(svg, "table", "job")
    root = ET.fromstring(svg)
    boxes, [page] = boxes_of(root, "table", "job"), boxes_of(root, "page")
    lines = [each.get("points", "").split() for each in root.iter(f"{SVG}polyline")]
    assert len(lines) == 9
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line]
        for (x1, y1), (x2, y2) in pairwise(points):
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                x, y = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
                assert page.left < x < page.right
                assert page.top < y < page.bottom
                assert not any(box.left + 1 < x < box.right - 1 and box.top + 1 < y < box.bottom - 1 for box in boxes)
