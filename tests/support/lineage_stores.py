"""A store of lineage in memory, and one that fails on purpose."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from engine.lineage.store.store import LineageMeta, LineageMetaContext
from engine.lineage.tables import LINEAGE_SCHEMAS
from filestore.predicate.predicate import Predicate
from filestore.system_tables.system_table import matching
from lsm.errors import UnavailableError
from tests.support.faults import When

Key = tuple[Any, ...]


@dataclass
class MemoryLineageMeta:
    """Dictionaries by primary key: the oracle of what any store must do."""

    source_tables: dict[Key, TableLineage] = field(default_factory=dict)
    sink_tables: dict[Key, TableLineage] = field(default_factory=dict)
    source_snapshots: dict[Key, DataLineage] = field(default_factory=dict)
    sink_snapshots: dict[Key, DataLineage] = field(default_factory=dict)
    startups: dict[Key, JobStartup] = field(default_factory=dict)

    def store(self, records: LineageRecords) -> None:
        for entity in records.source_tables:
            self.store_source_table_lineage(entity)
        for entity in records.sink_tables:
            self.store_sink_table_lineage(entity)
        for barrier in records.source_snapshots:
            self.store_source_data_lineage(barrier)
        for barrier in records.sink_snapshots:
            self.store_sink_data_lineage(barrier)
        for startup in records.startups:
            self.store_job_startup(startup)

    def store_source_table_lineage(self, entity: TableLineage) -> None:
        self.source_tables.setdefault((entity.job, entity.database, entity.table), entity)

    def store_sink_table_lineage(self, entity: TableLineage) -> None:
        self.sink_tables.setdefault((entity.job, entity.database, entity.table), entity)

    def store_source_data_lineage(self, entity: DataLineage) -> None:
        self.source_snapshots.setdefault((entity.job, entity.barrier_id, entity.database, entity.table), entity)

    def store_sink_data_lineage(self, entity: DataLineage) -> None:
        self.sink_snapshots.setdefault((entity.job, entity.barrier_id, entity.database, entity.table), entity)

    def store_job_startup(self, entity: JobStartup) -> None:
        key = entity.job, entity.database, entity.table
        if not (entity.start and key in self.startups and self.startups[key].start == entity.start):
            self.startups[key] = entity

    def source_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        return _chosen(self.source_tables, "source_job_lineage", predicate, limit)

    def sink_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        return _chosen(self.sink_tables, "sink_job_lineage", predicate, limit)

    def source_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        return _chosen(self.source_snapshots, "source_snapshot_lineage", predicate, limit)

    def sink_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        return _chosen(self.sink_snapshots, "sink_snapshot_lineage", predicate, limit)

    def job_startups(self, predicate: Predicate | None = None, *, limit: int | None = None) -> Iterator[JobStartup]:
        return _chosen(self.startups, "job_startup", predicate, limit)

    def delete_source_table_lineage(self, job: str) -> None:
        self.source_tables = _without(self.source_tables, lambda entity: entity.job == job)

    def delete_sink_table_lineage(self, job: str) -> None:
        self.sink_tables = _without(self.sink_tables, lambda entity: entity.job == job)

    def delete_data_lineage(self, job: str) -> None:
        self.source_snapshots = _without(self.source_snapshots, lambda entity: entity.job == job)
        self.sink_snapshots = _without(self.sink_snapshots, lambda entity: entity.job == job)
        self.startups = _without(self.startups, lambda entity: entity.job == job)

    def delete_data_lineage_before(self, time: datetime) -> None:
        self.source_snapshots = _without(self.source_snapshots, lambda entity: entity.create_time < time)
        self.sink_snapshots = _without(self.sink_snapshots, lambda entity: entity.create_time < time)

    def close(self) -> None:
        pass


def contents(meta: LineageMeta) -> dict[str, list[Any]]:
    """All that a store holds."""
    return {
        "source_tables": list(meta.source_table_lineages()),
        "sink_tables": list(meta.sink_table_lineages()),
        "source_snapshots": list(meta.source_data_lineages()),
        "sink_snapshots": list(meta.sink_data_lineages()),
        "startups": list(meta.job_startups()),
    }


def _chosen(held: dict[Key, Any], table: str, predicate: Predicate | None, limit: int | None) -> Iterator[Any]:
    entities = [held[key] for key in sorted(held)]
    rows = pa.Table.from_pylist([asdict(each) for each in entities], schema=LINEAGE_SCHEMAS[table])
    rows = rows.append_column("place", pa.array(range(len(entities)), pa.int64()))
    kept = rows if predicate is None else matching(rows, predicate)
    return islice((entities[place] for place in kept.column("place").to_pylist()), limit)


def _without(held: dict[Key, Any], goes: Callable[[Any], bool]) -> dict[Key, Any]:
    return {key: entity for key, entity in held.items() if not goes(entity)}


class MemoryFactory:
    """What a package names as its entry point."""

    identifier = "memory"
    made: Iterable[LineageMetaContext] = ()
    meta = MemoryLineageMeta()

    def create(self, context: LineageMetaContext) -> MemoryLineageMeta:
        MemoryFactory.made = [*MemoryFactory.made, context]
        return MemoryFactory.meta


@dataclass
class FaultyMeta(MemoryLineageMeta):
    """Fails the stores that ``fails`` names, counted from 1."""

    fails: Callable[[int], bool] = lambda _: False
    when: When = When.BEFORE
    error: type[Exception] = UnavailableError
    calls: int = 0

    def store(self, records: LineageRecords) -> None:
        self.calls += 1
        if not self.fails(self.calls):
            super().store(records)
            return
        if self.when is When.AFTER:
            super().store(records)
        raise self.error(f"injected fault: call={self.calls}")
