"""The impact of a snapshot: which tables and jobs contain it, and since when. Pure, over rows of lineage.

A job that has read a snapshot, or a later one, has it in everything that it wrote at that barrier; a stream, with its
growing state, also in everything that it wrote later. Tables grow as well, so the first affected snapshot of each is
enough, and readers of that snapshot follow in turn.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.lineage.origins import FIRST_BATCH_BARRIER

ImpactedTable = tuple[str, str]
"""Database and table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """At a barrier, a job has read a table up to a snapshot, or has written this snapshot."""

    job: str
    barrier_id: int
    table: ImpactedTable
    snapshot_id: int
    run: str = ""  # of the job: what one run has read, another one with a new checkpoint has not
    moment_ms: int = 0


class Links(Protocol):
    """The lineage queries of the walks. Every call raises UnavailableError when the store does not answer."""

    def readers(self, table: ImpactedTable, *, from_id: int) -> Iterable[Link]:
        """The reads of a table up to a snapshot with this id or a higher one."""

    def writes(self, job: str, *, from_barrier: int) -> Iterable[Link]:
        """What a job wrote at a barrier and later."""

    def reads(self, job: str) -> Iterable[Link]:
        """What a job had read at each of its barriers."""

    def reading_jobs(self, table: ImpactedTable) -> Iterable[str]:
        """The jobs that read a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """What a job wrote from an affected table."""

    job: str
    barrier_id: int  # the first one that read it
    source: ImpactedTable
    source_id: int  # the first affected snapshot of the source
    table: ImpactedTable | None  # None: the job has written no table of this catalog since
    snapshot_id: int | None  # the job's first one; other jobs may have written earlier ones
    depth: int  # jobs between the start and this


def affected_by(links: Links, table: ImpactedTable, snapshot_id: int) -> list[Affected]:
    """Everything that contains a snapshot, nearest first.

    Args:
        links: the lineage.
        table: the table of the snapshot.
        snapshot_id: reads of the table at this snapshot or later count.
    """
    first: dict[ImpactedTable, int] = {table: snapshot_id}
    depth: dict[ImpactedTable, int] = {table: 0}
    found: dict[tuple[str, ImpactedTable, ImpactedTable | None], Affected] = {}
    waiting = [table]
    while waiting:
        source = waiting.pop(0)
        for (job, run), barriers in _barriers(links.readers(source, from_id=first[source])).items():
            barrier_id = min(barriers)
            written = (
                each
                for each in links.writes(job, from_barrier=barrier_id)
                if each.run == run and (each.barrier_id in barriers or each.barrier_id < FIRST_BATCH_BARRIER)
            )
            targets = _first_writes(written, source)
            for target, written_id in targets.items() or [(None, None)]:
                known = found.get((job, source, target))
                if known is not None and _is_before(known.snapshot_id, written_id):
                    continue
                found[job, source, target] = Affected(
                    job=job,
                    barrier_id=barrier_id,
                    source=source,
                    source_id=first[source],
                    table=target,
                    snapshot_id=written_id,
                    depth=depth[source] + 1,
                )
                if target is not None and written_id is not None and written_id < first.get(target, written_id + 1):
                    first[target] = written_id
                    depth.setdefault(target, depth[source] + 1)
                    waiting.append(target)
    return sorted(found.values(), key=lambda each: (each.depth, each.source, each.job, each.table or ("", "")))


def _is_before(known_id: int | None, written_id: int | None) -> bool:
    """Whether an earlier snapshot is known, of this run or of another one."""
    return known_id is None or (written_id is not None and known_id < written_id)


def _barriers(links: Iterable[Link]) -> Mapping[tuple[str, str], set[int]]:
    found: dict[tuple[str, str], set[int]] = {}
    for each in links:
        found.setdefault((each.job, each.run), set()).add(each.barrier_id)
    return found


def _first_writes(links: Iterable[Link], source: ImpactedTable) -> Mapping[ImpactedTable, int]:
    """The first snapshot of each table that a job wrote; without the table it read, which does not affect itself."""
    found: dict[ImpactedTable, int] = {}
    for each in links:
        if each.table != source:
            found[each.table] = min(each.snapshot_id, found.get(each.table, each.snapshot_id))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """The state of a job when it had read a table exactly up to a snapshot."""

    job: str
    barrier_id: int | None  # the last barrier without later data; None: there is none
    sources: Mapping[ImpactedTable, int]  # snapshot of every source at that barrier; 0: nothing was read
    targets: Mapping[ImpactedTable, int]  # newest snapshot of every table that it wrote by then; 0: none


def place_at(links: Links, job: str, bounds: Mapping[ImpactedTable, int]) -> JobPlace:
    """The last barrier of a job's newest run that has read no table beyond its bound.

    Args:
        links: the lineage.
        job: name of the job.
        bounds: the newest allowed snapshot, by table.
    """
    reads = sorted(links.reads(job), key=lambda each: each.barrier_id)
    run = max(reads, key=lambda each: each.moment_ms).run if reads else ""
    reads = [each for each in reads if each.run == run]
    late = [each.barrier_id for each in reads if each.snapshot_id > bounds.get(each.table, each.snapshot_id)]
    good = [each for each in reads if not late or each.barrier_id < min(late)]
    sources = {each.table: 0 for each in reads}
    for each in good:
        sources[each.table] = each.snapshot_id
    barrier_id = good[-1].barrier_id if good else None
    targets: dict[ImpactedTable, int] = {}
    for each in links.writes(job, from_barrier=0):
        if each.run != run:
            targets.setdefault(each.table, 0)
            continue
        is_within = barrier_id is not None and each.barrier_id <= barrier_id
        targets[each.table] = max(targets.get(each.table, 0), each.snapshot_id if is_within else 0)
    return JobPlace(job=job, barrier_id=barrier_id, sources=sources, targets=targets)


def places_behind(links: Links, table: ImpactedTable, snapshot_id: int) -> list[JobPlace]:
    """The states of all direct and indirect reading jobs when a snapshot was the newest of the table.

    Each table on the way is bounded by what the upstream jobs had written then, so all states are consistent.

    Returns:
        Jobs after the jobs that write their sources; in a cycle, each once.
    """
    bounds: dict[ImpactedTable, int] = {table: snapshot_id}
    places: dict[str, JobPlace] = {}
    waiting: list[ImpactedTable] = [table]
    while waiting:
        source = waiting.pop(0)
        for job in sorted(set(links.reading_jobs(source))):
            place = place_at(links, job, bounds)
            if places.get(job) == place:
                continue
            places.pop(job, None)
            places[job] = place
            for target, written_id in place.targets.items():
                if target != source and written_id < bounds.get(target, written_id + 1):
                    bounds[target] = written_id
                    waiting.append(target)
    return list(places.values())
