"""The queries of ``impact`` on a lineage store. Nothing else is read."""

from collections.abc import Iterable, Iterator

from engine.lineage.graph.impact import ImpactedTable, Link
from engine.lineage.store.entities import DataLineage
from engine.lineage.store.store import LineageMeta, of_columns
from filestore.predicate.predicate import And, Compare, CompareOp, Predicate


class StoredLinks:
    """See ``Links``."""

    def __init__(self, meta: LineageMeta) -> None:
        self._meta = meta

    def readers(self, table: ImpactedTable, *, from_id: int) -> Iterator[Link]:
        """The reads of a table up to a snapshot with this id or a higher one."""
        chosen = of_columns(database=table[0], table=table[1])
        return _links(self._meta.source_data_lineages(_and(chosen, "snapshot_id", CompareOp.GE, from_id)))

    def writes(self, job: str, *, from_barrier: int) -> Iterator[Link]:
        """What a job wrote at a barrier and later."""
        chosen = _and(of_columns(job=job), "barrier_id", CompareOp.GE, from_barrier)
        return _links(self._meta.sink_data_lineages(chosen))

    def reads(self, job: str) -> Iterator[Link]:
        """What a job had read at each of its barriers."""
        return _links(self._meta.source_data_lineages(of_columns(job=job)))

    def reading_jobs(self, table: ImpactedTable) -> Iterator[str]:
        """The jobs that read a table."""
        for each in self._meta.source_table_lineages(of_columns(database=table[0], table=table[1])):
            yield each.job


def _and(predicate: Predicate, column: str, op: CompareOp, value: int) -> Predicate:
    return And(parts=(predicate, Compare(column=column, op=op, value=value)))


def _links(rows: Iterable[DataLineage]) -> Iterator[Link]:
    for each in rows:
        yield Link(
            job=each.job,
            barrier_id=each.barrier_id,
            table=(each.database, each.table),
            snapshot_id=each.snapshot_id,
            run=each.run,
            moment_ms=each.moment_ms,
        )
