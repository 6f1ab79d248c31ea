"""Lineage for people: the graph around a table or a snapshot, with facts about each node."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, Final

from engine.lineage.graph.graph import (
    Edge,
    GraphNode,
    LineageGraph,
    around,
    barrier_graph,
    graph_around,
    graph_of,
    table_node,
)
from engine.lineage.graph.lateness import CatalogTables, Lateness, lateness, newest_reads_by_job
from engine.lineage.origins import FIRST_BATCH_BARRIER, batch_time_ms
from engine.lineage.store.entities import DataLineage, TableLineage, create_time_text, split_name, time_of
from engine.lineage.store.store import LineageMeta, of_columns
from filestore.predicate.predicate import And, Compare, CompareOp, Predicate

_FIRST_REACH: Final = 64  # snapshots
_FURTHER: Final = 64
_FURTHEST_REACH: Final = 1_000_000

BY_HAND: Final = "stated by hand"

Find = Callable[[Predicate], Iterator[DataLineage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageView:
    """A graph, and the newest activity of its tables and jobs."""

    root: GraphNode | None  # None: the whole catalog
    graph: LineageGraph
    beside: tuple[Edge, ...] = ()  # further inputs of the graph's jobs, of tables that are not in the graph
    sources: tuple[DataLineage, ...] = ()
    sinks: tuple[DataLineage, ...] = ()
    late: Mapping[Edge, Lateness] = field(default_factory=dict)  # from a table to the job that is behind it
    stated: frozenset[Edge] = frozenset()  # known only because it was stated by hand

    def facts(self) -> dict[GraphNode, str]:
        """A line about each node: the newest snapshot or barrier, with its time."""
        newest: dict[GraphNode, DataLineage] = {}
        for each in (*self.sources, *self.sinks):
            for node in (table_node(each), GraphNode("job", each.job)):
                known = newest.get(node)
                if known is None or _order(node, known) < _order(node, each):
                    newest[node] = each
        found = {node: self._fact(node, each) for node, each in newest.items()}
        by_hand = {node for edge in self.stated for node in edge if node.kind == "job"}
        recorded = {node for edge in {*self.graph.edges, *self.beside} - self.stated for node in edge}
        for job in by_hand - recorded:
            found[job] = f"{BY_HAND}, {found[job]}" if job in found else BY_HAND
        return found | self.times()

    def times(self) -> dict[GraphNode, str]:
        """The time of each snapshot and of each barrier."""
        return {
            node: f"{create_time_text(each.create_time)}{f', {BY_HAND}' * (each.is_stated and node.kind == 'job')}"
            for each in (*self.sources, *self.sinks)
            for node in barrier_graph([each], ()).nodes
        }

    def further_inputs(self) -> dict[GraphNode, list[str]]:
        """For each job, names of the tables outside the graph that it reads."""
        found: dict[GraphNode, list[str]] = {}
        for table, job in self.beside:
            found.setdefault(job, []).append(table.name)
        return found

    def closer(self, node: GraphNode) -> LineageGraph:
        """The neighbourhood of a node, step by step.

        Of a table its snapshots with their barriers, of a job its barriers with all snapshots that it read and wrote,
        of one snapshot or barrier its neighbours.
        """
        return barrier_graph(
            (each for each in self.sources if _is_of(each, node)), (each for each in self.sinks if _is_of(each, node))
        )

    def as_json(self) -> dict[str, Any]:
        """The graph as JSON values, for scripts: nodes, and edges as pairs of titles."""
        facts, further = self.facts(), self.further_inputs()
        return {
            "root": None if self.root is None else self.root.title,
            "nodes": [
                {"kind": node.kind, "name": node.name, "number": node.number, "newest": facts.get(node)}
                | ({"further_inputs": further[node]} if node in further else {})
                for node in self.graph.nodes
            ],
            "edges": [
                {"from": start.title, "to": end.title}
                | _late_json(self.late.get((start, end)))
                | ({"stated_by_hand": True} if (start, end) in self.stated else {})
                for start, end in self.graph.edges
            ],
        }

    @staticmethod
    def _fact(node: GraphNode, each: DataLineage) -> str:
        number, time = _number(node, each), create_time_text(each.create_time)
        if node.kind == "table":
            return f"snapshot {number}, {time}"
        return f"batch, {time}" if number >= FIRST_BATCH_BARRIER else f"barrier {number}, {time}"


def label_of(node: GraphNode) -> str:
    """The title of a node for people: a batch write by its time of day (``load batch 09:18:51``)."""
    if node.kind == "job" and node.number is not None and node.number >= FIRST_BATCH_BARRIER:
        return f"{node.name} batch {time_of(batch_time_ms(node.number)):%H:%M:%S}"
    return node.title


def view_of_table(
    meta: LineageMeta,
    table: str | None,
    *,
    tables: CatalogTables,
    last: int,
    upstream: bool = True,
    downstream: bool = True,
    depth: int | None = None,
) -> LineageView:
    """The graph around a table, or of the whole catalog.

    Args:
        meta: the store.
        table: ``database.table``; None: everything that the store knows.
        tables: of the catalog.
        last: number of snapshots per table.
        upstream: include the upstream.
        downstream: include the downstream.
        depth: maximum number of jobs on a path; None: all.

    Raises: UnavailableError.
    """
    root = None if table is None else GraphNode("table", table)
    sources_of, sinks_of = [*meta.source_table_lineages()], [*meta.sink_table_lineages()]
    whole = graph_of(sources_of, sinks_of)
    stated = {
        *graph_of(
            (each for each in sources_of if each.stated and not _is_recorded(meta.source_data_lineages, each)),
            (each for each in sinks_of if each.stated and not _is_recorded(meta.sink_data_lineages, each)),
        ).edges
    }
    graph = whole if root is None else around(whole, root, upstream=upstream, downstream=downstream, depth=depth)
    jobs = {node for node in graph.nodes if node.kind == "job"}
    kept = set(graph.nodes)
    beside = tuple(edge for edge in whole.edges if edge[1] in jobs and edge[0] not in kept)
    sources: list[DataLineage] = []
    sinks: list[DataLineage] = []
    late: dict[Edge, Lateness] = {}
    for node in sorted({node for edge in whole.edges if not jobs.isdisjoint(edge) for node in edge} - jobs):
        newest_id = tables.newest_id(node.name)
        read, written = (
            [each for each in _recent(find, node.name, newest_id, last) if GraphNode("job", each.job) in jobs]
            for find in (meta.source_data_lineages, meta.sink_data_lineages)
        )
        sources += read
        sinks += written
        if newest_id is not None:
            readers = {job for start, job in whole.edges if start == node} & jobs
            reads = _reads_of(meta, node, readers, read)
            late |= {(node, job): each for job, each in _late(tables, node.name, newest_id, reads).items()}
    return LineageView(
        root=root,
        graph=graph,
        beside=beside,
        sources=tuple(sources),
        sinks=tuple(sinks),
        late=late,
        stated=frozenset(stated),
    )


def _is_recorded(find: "Find", each: TableLineage) -> bool:
    """Whether a job has also recorded itself what is stated of it."""
    of_table = of_columns(job=each.job, database=each.database, table=each.table)
    return not all(row.is_stated for row in find(of_table))


def _recent(find: "Find", table: str, newest_id: int | None, last: int) -> list[DataLineage]:
    """The rows of a table's newest snapshots; of a table that is not there, of the newest that are recorded."""
    if newest_id is not None:
        return list(find(_of_table(table, Compare(column="snapshot_id", op=CompareOp.GT, value=newest_id - last))))
    ids = nlargest(last, {each.snapshot_id for each in find(_of_table(table))})
    return (
        [] if not ids else list(find(_of_table(table, Compare(column="snapshot_id", op=CompareOp.GE, value=ids[-1]))))
    )


def _reads_of(
    meta: LineageMeta, table: GraphNode, jobs: Iterable[GraphNode], recent: Sequence[DataLineage]
) -> dict[GraphNode, int]:
    """What each job has read of a table at its newest barrier; jobs that are far behind are not in the recent rows."""
    found = newest_reads_by_job(recent)
    for job in jobs:
        if job.name not in found:
            found |= newest_reads_by_job(meta.source_data_lineages(_of_table(table.name, of_columns(job=job.name))))
    return {job: found[job.name] for job in jobs if job.name in found}


def _late(
    tables: CatalogTables, table: str, newest_id: int, reads: Mapping[GraphNode, int]
) -> dict[GraphNode, Lateness]:
    """The jobs that have not read all of a table."""
    behind = {job: read_id for job, read_id in reads.items() if read_id < newest_id}
    if not behind:
        return {}
    commits = tables.commits_after(table, min(behind.values()))
    found = {job: lateness(read_id, commits, tables.now_ms) for job, read_id in behind.items()}
    return {job: each for job, each in found.items() if each.snapshots}


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
    graph = graph_around(
        root, before=found.before, after=found.after, upstream=upstream, downstream=downstream, depth=depth
    )
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


def _is_of(row: DataLineage, node: GraphNode) -> bool:
    """Whether a row is about a table or a job, or about one snapshot or one barrier."""
    if node.number is None:
        return node in (table_node(row), GraphNode("job", row.job))
    return node in barrier_graph([row], ()).nodes


def _late_json(late: Lateness | None) -> dict[str, int]:
    return {} if late is None else {"snapshots_behind": late.snapshots, "seconds_behind": late.age_ms // 1000}


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
        yield depth, f"{node.kind} {label_of(node)}{fact}{'  (see above)' if again else ''}"
        if not again:
            unfolded.add(node)
            waiting += [(depth + 1, each) for each in reversed(followers.get(node, ()))]
