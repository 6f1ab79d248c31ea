"""Lineage for people: the graph around a table or a snapshot, with facts about each node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.lineage.graph.graph import GraphNode, LineageGraph, around, barrier_graph, graph_of, table_node, trace
from engine.lineage.store.entities import DataLineage, create_time_text, split_name
from engine.lineage.store.store import LineageMeta, of_columns
from filestore.predicate.predicate import And, Compare, CompareOp, Predicate

_FIRST_REACH: Final = 64  # snapshots
_FURTHER: Final = 64
_FURTHEST_REACH: Final = 1_000_000

Find = Callable[[Predicate], Iterator[DataLineage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A graph, and the newest activity of its tables and jobs."""

    root: GraphNode
    graph: LineageGraph
    sources: tuple[DataLineage, ...] = ()
    sinks: tuple[DataLineage, ...] = ()

    def facts(self) -> dict[GraphNode, str]:
        """A line about each node: the newest snapshot or barrier, with its time."""
        newest: dict[GraphNode, DataLineage] = {}
        for each in (*self.sources, *self.sinks):
            for node in (table_node(each), GraphNode("job", each.job)):
                known = newest.get(node)
                if known is None or _order(node, known) < _order(node, each):
                    newest[node] = each
        return {
            node: f"{'snapshot' if node.kind == 'table' else 'barrier'} {_number(node, each)}, "
            f"{create_time_text(each.create_time)}"
            for node, each in newest.items()
        }

    def closer(self, node: GraphNode) -> LineageGraph:
        """The snapshots of a table with their barriers, or the barriers of a job with their snapshots."""
        return barrier_graph(
            (each for each in self.sources if node in (table_node(each), GraphNode("job", each.job))),
            (each for each in self.sinks if node in (table_node(each), GraphNode("job", each.job))),
        )

    def as_json(self) -> dict[str, Any]:
        """For scripts: nodes, and edges as pairs of titles."""
        facts = self.facts()
        return {
            "root": self.root.title,
            "nodes": [
                {"kind": node.kind, "name": node.name, "number": node.number, "newest": facts.get(node)}
                for node in self.graph.nodes
            ],
            "edges": [{"from": start.title, "to": end.title} for start, end in self.graph.edges],
        }


def view_of_table(
    meta: LineageMeta,
    table: str,
    *,
    newest: Callable[[str], int | None],
    last: int,
    upstream: bool = True,
    downstream: bool = True,
    depth: int | None = None,
) -> LineageView:
    """The graph around a table.

    Args:
        meta: the store.
        table: ``database.table``.
        newest: the newest snapshot of a table; without one, no snapshots are shown.
        last: number of snapshots per table.
        upstream: include the upstream.
        downstream: include the downstream.
        depth: maximum number of jobs on a path; None: all.

    Raises: UnavailableError.
    """
    root = GraphNode("table", table)
    whole = graph_of(meta.source_table_lineages(), meta.sink_table_lineages())
    graph = around(whole, root, upstream=upstream, downstream=downstream, depth=depth)
    shown = {node for node in graph.nodes if node.kind == "job"}
    sources: list[DataLineage] = []
    sinks: list[DataLineage] = []
    for node in graph.nodes:
        latest_id = newest(node.name) if node.kind == "table" else None
        if latest_id is not None:
            recent = _of_table(node.name, Compare(column="snapshot_id", op=CompareOp.GT, value=latest_id - last))
            sources += (each for each in meta.source_data_lineages(recent) if GraphNode("job", each.job) in shown)
            sinks += (each for each in meta.sink_data_lineages(recent) if GraphNode("job", each.job) in shown)
    return LineageView(root=root, graph=graph, sources=tuple(sources), sinks=tuple(sinks))


def view_of_snapshot(
    meta: LineageMeta,
    table: str,
    snapshot_id: int,
    *,
    upstream: bool = True,
    downstream: bool = True,
    depth: int | None = None,
) -> LineageView:
    """The snapshots and barriers around one snapshot; arguments as in ``view_of_table``.

    Raises: UnavailableError.
    """
    found = _Steps(meta)
    root = GraphNode("table", table, snapshot_id)
    graph = trace(root, before=found.before, after=found.after, upstream=upstream, downstream=downstream, depth=depth)
    return LineageView(root=root, graph=graph, sources=tuple(found.sources), sinks=tuple(found.sinks))


class _Steps:
    """Queries the store for the neighbours of a snapshot or a barrier.

    Not every snapshot was written by a job: compactions write some, too. So a snapshot comes from the newest barrier of
    each writing job that is not newer, and goes into the oldest barrier of each reading job that is not older.
    """

    def __init__(self, meta: LineageMeta) -> None:
        self._meta = meta
        self.sources: list[DataLineage] = []
        self.sinks: list[DataLineage] = []

    def before(self, node: GraphNode) -> Iterator[GraphNode]:
        """The barriers that wrote a snapshot, or the snapshots that a barrier read."""
        if node.kind == "job":
            yield from self._collect(self._meta.source_data_lineages(_of_barrier(node)), self.sources, of_job=False)
            return
        for job in sorted({each.job for each in self._meta.sink_table_lineages(_of_table(node.name))}):
            nearest = _nearest(self._meta.sink_data_lineages, node, job, step=-1)
            yield from self._collect(nearest, self.sinks, of_job=True)

    def after(self, node: GraphNode) -> Iterator[GraphNode]:
        """The barriers that read a snapshot, or the snapshots that a barrier wrote."""
        if node.kind == "job":
            yield from self._collect(self._meta.sink_data_lineages(_of_barrier(node)), self.sinks, of_job=False)
            return
        for job in sorted({each.job for each in self._meta.source_table_lineages(_of_table(node.name))}):
            nearest = _nearest(self._meta.source_data_lineages, node, job, step=1)
            yield from self._collect(nearest, self.sources, of_job=True)

    def _collect(self, found: Iterable[DataLineage], rows: list[DataLineage], *, of_job: bool) -> Iterator[GraphNode]:
        for each in found:
            rows.append(each)
            snapshot = GraphNode("table", f"{each.database}.{each.table}", each.snapshot_id)
            yield GraphNode("job", each.job, each.barrier_id, each.run) if of_job else snapshot


def _nearest(find: Find, node: GraphNode, job: str, *, step: int) -> list[DataLineage]:
    """A job's row for a table at the snapshot, or nearest to it in one direction; searched in growing ranges."""
    assert node.number is not None
    of_job = of_columns(job=job)
    reach = _FIRST_REACH
    while True:
        bound = node.number + step * reach if reach < _FURTHEST_REACH else None
        low, high = (bound, node.number) if step < 0 else (node.number, bound)
        rows = list(find(_of_table(node.name, of_job, *_between(low, high))))
        if rows or bound is None:
            return sorted(rows, key=lambda each: (step * each.snapshot_id, each.barrier_id))[:1]
        reach *= _FURTHER


def _between(low: int | None, high: int | None) -> list[Predicate]:
    parts: list[Predicate] = []
    if low is not None:
        parts.append(Compare(column="snapshot_id", op=CompareOp.GE, value=low))
    if high is not None:
        parts.append(Compare(column="snapshot_id", op=CompareOp.LE, value=high))
    return parts


def _of_barrier(node: GraphNode) -> Predicate:
    assert node.number is not None
    return of_columns(job=node.name, barrier_id=node.number, run=node.run)


def _of_table(name: str, *further: Predicate) -> Predicate:
    database, table = split_name(name)
    return And(parts=(of_columns(database=database, table=table), *further))


def _order(node: GraphNode, entity: DataLineage) -> tuple[int, int]:
    """What is newer: of a table by snapshot, of a job by time, because its runs count alike."""
    return (0, entity.snapshot_id) if node.kind == "table" else (entity.moment_ms, entity.barrier_id)


def _number(node: GraphNode, entity: DataLineage) -> int:
    return entity.snapshot_id if node.kind == "table" else entity.barrier_id


def lines(
    graph: LineageGraph, root: GraphNode, facts: Mapping[GraphNode, str], *, upstream: bool
) -> Iterable[tuple[int, str]]:
    """The graph in one direction as an indented list: (depth, text); repeated nodes are not expanded again."""
    followers = (graph.reversed() if upstream else graph).followers()
    unfolded: set[GraphNode] = set()
    waiting = [(1, node) for node in reversed(followers.get(root, ()))]
    while waiting:
        depth, node = waiting.pop()
        fact = f"  {facts[node]}" if node in facts else ""
        again = node in unfolded or node == root
        yield depth, f"{node.kind} {node.title}{fact}{'  (see above)' if again else ''}"
        if not again:
            unfolded.add(node)
            waiting += [(depth + 1, each) for each in reversed(followers.get(node, ()))]
