"""The graph of tables and jobs against what a reader of the records would say."""

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lineage.graph.graph import (
    Edge,
    GraphNode,
    LineageGraph,
    around,
    barrier_graph,
    graph_around,
    graph_of,
    layout,
)
from engine.lineage.store.entities import DataLineage, TableLineage

NOW = datetime(2026, 11, 21, 12, 0, 0)


def table_lineage(job: str, name: str) -> TableLineage:
    return TableLineage(job, *name.split("."), NOW)


def titles(graph: LineageGraph) -> set[str]:
    return {node.title for node in graph.nodes}


# the pipeline of the seed: table1 and table2 make table3, which makes table4
SOURCES = [
    table_lineage("job1", "db.table1"),
    table_lineage("job1", "db.table2"),
    table_lineage("job2", "db.table3"),
    table_lineage("job3", "db.x"),
]
SINKS = [table_lineage("job1", "db.table3"), table_lineage("job2", "db.table4"), table_lineage("job3", "db.y")]


def test_upstream_and_downstream_of_a_table() -> None:
    """LN-03, LN-04, LN-26, LN-27: tables and the jobs between them, near and far."""
    graph = graph_of(SOURCES, SINKS)
    middle = GraphNode("table", "db.table3")
    assert titles(around(graph, middle, downstream=False)) == {"db.table1", "db.table2", "job1", "db.table3"}
    assert titles(around(graph, middle, upstream=False)) == {"db.table3", "job2", "db.table4"}
    everything = titles(graph) - {"db.x", "db.y", "job3"}
    assert titles(around(graph, middle)) == titles(around(graph, middle, depth=1)) == everything
    end = GraphNode("table", "db.table4")
    assert titles(around(graph, end, depth=1)) == {"db.table3", "job2", "db.table4"}
    assert titles(around(graph, GraphNode("table", "db.nobody"))) == {"db.nobody"}


def test_the_same_of_a_snapshot() -> None:
    """LN-28, LN-29."""
    reads = [DataLineage("job1", 1, "db", "table1", 3, NOW), DataLineage("job1", 2, "db", "table1", 4, NOW)]
    reads += [DataLineage("job2", 9, "db", "table3", 7, NOW)]
    writes = [DataLineage("job1", 1, "db", "table3", 6, NOW), DataLineage("job1", 2, "db", "table3", 7, NOW)]
    writes += [DataLineage("job2", 9, "db", "table4", 1, NOW)]
    graph = barrier_graph(reads, writes)
    node = GraphNode("table", "db.table3", 7)
    assert titles(around(graph, node)) == {"db.table1@4", "job1#2", "db.table3@7", "job2#9", "db.table4@1"}
    assert graph_around(node, before=_before(reads, writes), after=_after(reads, writes)) == around(graph, node)


def _before(reads: list[DataLineage], writes: list[DataLineage]) -> Callable[[GraphNode], list[GraphNode]]:
    edges = barrier_graph(reads, writes).edges
    return lambda node: [start for start, end in edges if end == node]


def _after(reads: list[DataLineage], writes: list[DataLineage]) -> Callable[[GraphNode], list[GraphNode]]:
    edges = barrier_graph(reads, writes).edges
    return lambda node: [end for start, end in edges if start == node]


NAMES = st.integers(0, 5)
EDGES = st.lists(st.tuples(NAMES, NAMES, st.booleans()), max_size=14)


def edges_of(drawn: list[tuple[int, int, bool]]) -> list[Edge]:
    pairs = [(GraphNode("table", f"db.t{one}"), GraphNode("job", f"j{two}"), reads) for one, two, reads in drawn]
    return [(one, two) if reads else (two, one) for one, two, reads in pairs]


@pytest.mark.sweep
@given(EDGES, NAMES, st.none() | st.integers(0, 3))
def test_what_is_kept_is_what_a_way_leads_to(drawn: list[tuple[int, int, bool]], root: int, depth: int | None) -> None:
    edges = edges_of(drawn)
    start = GraphNode("table", f"db.t{root}")
    found = around(LineageGraph.of(edges), start, upstream=False, depth=depth)
    reached, kept = {start}, set()
    for _ in range(2 * depth if depth is not None else 40):
        new = {edge for edge in edges if edge[0] in reached}
        kept |= new
        reached |= {end for _, end in new}
    assert set(found.nodes) == reached
    assert set(found.edges) == kept
    turned = LineageGraph.of([(end, start) for start, end in edges])
    back = around(turned, start, downstream=False, depth=depth)
    assert set(back.nodes) == reached
    assert set(back.edges) == {(end, start) for start, end in kept}


@given(EDGES)
def test_columns_have_every_node_once_and_edges_lead_to_the_right(drawn: list[tuple[int, int, bool]]) -> None:
    graph = LineageGraph.of(edges_of(drawn))
    found = layout(graph)
    columns = found.columns
    assert sorted(node for column in columns for node in column if node.kind != "way") == list(graph.nodes)
    assert all(columns)
    assert set(found.ways) == set(graph.edges)
    rank = {node: at for at, column in enumerate(columns) for node in column}
    for (start, end), way in found.ways.items():
        assert (way[0], way[-1]) == (start, end)
        if rank[end] > rank[start]:
            assert [rank[node] for node in way] == list(range(rank[start], rank[end] + 1))
    wrong = [edge for edge in graph.edges if rank[edge[0]] >= rank[edge[1]]]
    # without those that lead back there is no circle, so each of them closes one
    forward = LineageGraph.of((edge for edge in graph.edges if edge not in wrong), graph.nodes)
    for start, end in wrong:
        assert start in around(forward, end, upstream=False).nodes


@pytest.mark.sweep
@pytest.mark.parametrize("length", [1, 3000])
def test_a_long_chain_is_no_recursion(length: int) -> None:
    nodes = [GraphNode("table" if at % 2 == 0 else "job", f"n{at:05d}") for at in range(2 * length + 1)]
    graph = LineageGraph.of(pairwise(nodes))
    assert layout(graph).columns == tuple((node,) for node in nodes)
    assert around(graph, nodes[-1]) == graph
