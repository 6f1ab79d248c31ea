"""The lineage graph: tables, and the jobs that read and write them.

A more detailed graph has snapshots instead of tables and barriers instead of jobs.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from engine.lineage.store.entities import DataLineage, TableLineage

_SWEEPS: Final = 4

Kind = Literal["table", "job", "way"]


@dataclass(frozen=True, slots=True, order=True)
class GraphNode:
    """A table or a job; with a number, one snapshot or one barrier."""

    kind: Kind
    name: str  # database.table, or the job's name
    number: int | None = None
    run: str = ""  # of a barrier: another run of the job counts its barriers from 0 again

    @property
    def title(self) -> str:
        """``shop.orders``, ``shop.orders@12``, ``job#7``."""
        if self.number is None:
            return self.name
        return f"{self.name}{'@' if self.kind == 'table' else '#'}{self.number}"


Edge = tuple[GraphNode, GraphNode]
"""From a read table to its reader, or from a writer to its table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """Nodes and edges, sorted and distinct."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, edges: Iterable[Edge], nodes: Iterable[GraphNode] = ()) -> "LineageGraph":
        """The graph of these edges, and of additional nodes."""
        edges = sorted({*edges})
        return cls(nodes=tuple(sorted({*nodes, *(node for edge in edges for node in edge)})), edges=tuple(edges))

    def followers(self) -> Mapping[GraphNode, list[GraphNode]]:
        """The targets of each node's edges."""
        found: defaultdict[GraphNode, list[GraphNode]] = defaultdict(list)
        for start, end in self.edges:
            found[start].append(end)
        return found

    def reversed(self) -> "LineageGraph":
        """The graph with all edges reversed."""
        return LineageGraph.of(((end, start) for start, end in self.edges), self.nodes)


def graph_of(sources: Iterable[TableLineage], sinks: Iterable[TableLineage]) -> LineageGraph:
    """The graph of tables and jobs.

    Args:
        sources: which jobs read which tables.
        sinks: which jobs write which tables.
    """
    reads = ((table_node(each), GraphNode("job", each.job)) for each in sources)
    writes = ((GraphNode("job", each.job), table_node(each)) for each in sinks)
    return LineageGraph.of([*reads, *writes])


def barrier_graph(sources: Iterable[DataLineage], sinks: Iterable[DataLineage]) -> LineageGraph:
    """The graph of snapshots and barriers."""
    reads = ((_snapshot_node(each), _barrier_node(each)) for each in sources)
    writes = ((_barrier_node(each), _snapshot_node(each)) for each in sinks)
    return LineageGraph.of([*reads, *writes])


def around(
    graph: LineageGraph, node: GraphNode, *, upstream: bool = True, downstream: bool = True, depth: int | None = None
) -> LineageGraph:
    """The upstream and downstream part of a graph around a node.

    Args:
        graph: the whole graph.
        node: is in the result even when the graph does not have it.
        upstream: include the node's upstream.
        downstream: include the node's downstream.
        depth: maximum number of jobs on a path; None: all.
    """
    kept: set[Edge] = set()
    if downstream:
        kept |= _reached(graph, node, depth)
    if upstream:
        kept |= {(end, start) for start, end in _reached(graph.reversed(), node, depth)}
    return LineageGraph.of(kept, [node])


def graph_around(
    node: GraphNode,
    *,
    before: Callable[[GraphNode], Iterable[GraphNode]],
    after: Callable[[GraphNode], Iterable[GraphNode]],
    upstream: bool = True,
    downstream: bool = True,
    depth: int | None = None,
) -> LineageGraph:
    """The graph around snapshots, queried step by step, because there may be many.

    Args:
        node: a snapshot.
        before: for a snapshot, the barriers that wrote it; for a barrier, the snapshots that it read.
        after: for a snapshot, the barriers that read it; for a barrier, the snapshots that it wrote.
        upstream: as in ``around``.
        downstream: likewise.
        depth: likewise.
    """
    kept: set[Edge] = set()
    if downstream:
        kept |= _walk(node, after, depth)
    if upstream:
        kept |= {(end, start) for start, end in _walk(node, before, depth)}
    return LineageGraph.of(kept, [node])


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns of nodes, from left to right, and the paths of edges between them."""

    columns: tuple[tuple[GraphNode, ...], ...]  # nodes, and "way" nodes where long edges pass
    ways: Mapping[Edge, tuple[GraphNode, ...]]  # path of each edge, from its start to its end


def layout(graph: LineageGraph) -> Layout:
    """Columns in which edges lead to the right, except those that close a cycle; neighbours are close to each other."""
    back = _closing_edges(graph)
    rank = _ranks(graph, back)
    ways = {edge: _way(edge, rank) if edge not in back else edge for edge in graph.edges}
    columns: list[list[GraphNode]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[rank[node]].append(node)
    for (start, _), way in ways.items():
        for at, node in enumerate(way[1:-1], start=rank[start] + 1):
            columns[at].append(node)
    steps = [step for edge, way in ways.items() if edge not in back for step in pairwise(way)]
    return Layout(columns=tuple(tuple(column) for column in _untangled(columns, steps)), ways=ways)


def table_node(entity: TableLineage | DataLineage) -> GraphNode:
    """The table of an entity."""
    return GraphNode("table", f"{entity.database}.{entity.table}")


def _snapshot_node(entity: DataLineage) -> GraphNode:
    return GraphNode("table", f"{entity.database}.{entity.table}", entity.snapshot_id)


def _barrier_node(entity: DataLineage) -> GraphNode:
    return GraphNode("job", entity.job, entity.barrier_id, entity.run)


def _reached(graph: LineageGraph, start: GraphNode, depth: int | None) -> set[Edge]:
    followers = graph.followers()
    return _walk(start, lambda node: followers.get(node, ()), depth)


def _walk(start: GraphNode, after: Callable[[GraphNode], Iterable[GraphNode]], depth: int | None) -> set[Edge]:
    """The edges on paths with at most ``depth`` jobs."""
    edges: set[Edge] = set()
    steps = {start: 0}
    ready = deque([start])
    while ready:
        node = ready.popleft()
        if depth is not None and steps[node] >= 2 * depth:
            continue
        for end in after(node):
            edges.add((node, end))
            if end not in steps:
                steps[end] = steps[node] + 1
                ready.append(end)
    return edges


def _ranks(graph: LineageGraph, back: set[Edge]) -> dict[GraphNode, int]:
    """The column of each node: the length of the longest path to it."""
    forward = LineageGraph.of((edge for edge in graph.edges if edge not in back), graph.nodes)
    rank = dict.fromkeys(graph.nodes, 0)
    waiting = dict.fromkeys(graph.nodes, 0)
    for _, end in forward.edges:
        waiting[end] += 1
    followers = forward.followers()
    ready = deque(node for node in graph.nodes if not waiting[node])
    while ready:
        node = ready.popleft()
        for end in followers.get(node, ()):
            rank[end] = max(rank[end], rank[node] + 1)
            waiting[end] -= 1
            if not waiting[end]:
                ready.append(end)
    return rank


def _way(edge: Edge, rank: Mapping[GraphNode, int]) -> tuple[GraphNode, ...]:
    start, end = edge
    between = range(rank[start] + 1, rank[end])
    return (start, *(GraphNode("way", f"{start.kind} {start.title} {end.title}", at) for at in between), end)


def _closing_edges(graph: LineageGraph) -> set[Edge]:
    """Edges that close cycles: those that lead back to a node of the current path."""
    followers = graph.followers()
    closing: set[Edge] = set()
    done: set[GraphNode] = set()
    for root in graph.nodes:
        if root in done:
            continue
        on_way, path = {root}, [(root, iter(followers.get(root, ())))]
        while path:
            node, rest = path[-1]
            end = next(rest, None)
            if end is None:
                path.pop()
                on_way.discard(node)
                done.add(node)
            elif end in on_way:
                closing.add((node, end))
            elif end not in done:
                on_way.add(end)
                path.append((end, iter(followers.get(end, ()))))
    return closing


def _untangled(columns: list[list[GraphNode]], edges: Iterable[Edge]) -> list[list[GraphNode]]:
    """The columns with each node near the mean position of its neighbours, alternating left and right."""
    lefts: defaultdict[GraphNode, list[GraphNode]] = defaultdict(list)
    rights: defaultdict[GraphNode, list[GraphNode]] = defaultdict(list)
    for start, end in edges:
        rights[start].append(end)
        lefts[end].append(start)
    for sweep in range(_SWEEPS):
        neighbours = lefts if sweep % 2 == 0 else rights
        place = {node: at / len(column) for column in columns for at, node in enumerate(column)}
        order = columns if sweep % 2 == 0 else reversed(columns)
        for column in order:
            mean = {
                node: sum(place[each] for each in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else place[node]
                for node in column
            }
            column.sort(key=lambda node: (mean[node], node))
            place.update({node: at / len(column) for at, node in enumerate(column)})
    return columns
