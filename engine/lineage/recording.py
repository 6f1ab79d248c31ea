"""How sources and sinks record lineage in their catalog. Source: PIP "Table and data lineage", CommitListener.

Everything is recorded after the fact and may be recorded again: rows of lineage are keyed by job, barrier and table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from engine.lineage.datasets import Dataset
from engine.lineage.graph.columns import ColumnFlow
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.openlineage import LineageEvents, events_of
from engine.lineage.origins import FIRST_BATCH_BARRIER, CommitOrigin, SourceRead, own_path
from engine.lineage.store.entities import JobStartup, LineageRecords, TableLineage, split_name, time_of
from engine.lineage.store.store import DIRECTORY, SQLITE_FILE, of_columns
from engine.lineage.truth.commit_records import CommitPlace, barrier_reads, commit_records
from engine.runtime.expected_rows import outcomes_of
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.io.file_io import FileIO
from filestore.options.catalog_options import CatalogPlace
from filestore.schema.row_counts import seen_schema
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore

_kept: Final[dict[tuple[str, tuple[tuple[str, str], ...]], tuple[Lineage, LineageEvents | None]]] = {}
"""One per catalog, to keep connections; a catalog that was created again at the same place is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenPlace:
    """The part of a catalog that identifies its lineage."""

    place: CatalogPlace
    file_io: FileIO

    @property
    def warehouse(self) -> str:
        return self.place.warehouse

    @property
    def options(self) -> Mapping[str, str]:
        return self.place.options

    def list_databases(self) -> list[str]:
        return []


def lineage_of_table(store: TableStore) -> Lineage | None:
    """The lineage of a table's catalog; None when it records none, or the table was opened by path."""
    found = _opened(store)
    return None if found is None else found[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSize:
    """A store of lineage that is a file in the warehouse."""

    size_bytes: int
    retained_ms: int | None  # lineage.data.time-retained; None: unlimited


def lineage_size(store: TableStore) -> LineageSize | None:
    """How large the store of a table's catalog is; None when it records nothing, or not into a file of its own."""
    lineage = lineage_of_table(store)
    if lineage is None or not lineage.settings.has_snapshots or "jdbc.url" in lineage.settings.options:
        return None
    path = f"{lineage.settings.warehouse}/{DIRECTORY}/{SQLITE_FILE}"
    return LineageSize(
        size_bytes=store.io.size_bytes(path) if store.io.exists(path) else 0,
        retained_ms=lineage.settings.catalog_options.lineage_data_time_retained_ms,
    )


def _opened(store: TableStore) -> tuple[Lineage, LineageEvents | None] | None:
    return None if store.catalog is None else _opened_at(store.catalog, store.io)


def _opened_at(place: CatalogPlace, io: FileIO) -> tuple[Lineage, LineageEvents | None] | None:
    key = (place.warehouse, tuple(sorted(place.options.items())))
    found = lineage_of(_OpenPlace(place=place, file_io=io))
    if found is None:
        _kept.pop(key, None)
        return None
    kept = _kept.get(key)
    if kept is None or kept[0].settings != found.settings:
        kept = _kept[key] = found, events_of(found.settings.options)
    return kept


def check_lineage(place: CatalogPlace, io: FileIO) -> None:
    """Refuse a catalog with the store of lineage of another. Raises: like ``Lineage.check``."""
    found = _opened_at(place, io)
    if found is not None:
        found[0].check()


class Recorder:
    """Records what jobs do with one table, and with other tables of its catalog. Not thread-safe."""

    def __init__(self, store: TableStore, lineage: Lineage, events: LineageEvents | None = None) -> None:
        """``events``: also sends OpenLineage events."""
        assert store.catalog is not None
        self._lineage = lineage
        self._events = events
        self._schema = seen_schema(store.schema)
        self._warehouse = store.catalog.warehouse
        self._name, self._path = lineage_name(store), own_path(store)
        self._place = CommitPlace(warehouse=self._warehouse, table=store.name, table_id=store.table_id())
        self._recorded: set[tuple[str, str, tuple[str, str]]] = set()
        self._flow: ColumnFlow | None = None  # of the newest frame, for events

    @classmethod
    def of(cls, store: TableStore) -> "Recorder | None":
        """The recorder of a table; None when the catalog records no lineage."""
        found = _opened(store)
        return None if found is None else cls(store, *found)

    def check(self) -> None:
        """See ``Lineage.check``."""
        self._lineage.check()

    def read_here(self, snapshot_id: int) -> SourceRead:
        """A read of this table up to a snapshot."""
        name = ".".join(self._name)
        return SourceRead(
            warehouse=self._warehouse,
            table=name,
            snapshot_id=snapshot_id,
            table_id=self._place.table_id,
            path=self._path,
        )

    def opened(
        self, job: str, reads: tuple[SourceRead, ...] = (), starts: tuple[SourceRead, ...] = (), *, run_id: str = ""
    ) -> None:
        """Record what a job reads that will write this table. Raises: UnavailableError; like ``check``.

        That it writes the table is recorded with its first commit: before it, it has made nothing.

        Args:
            job: name of the job.
            reads: the tables that it reads.
            starts: where in them it begins.
            run_id: of this start, see ``JobStartup``.
        """
        self.check()
        startups = self._startups(job, starts, run_id)
        self._lineage.store(replace(self._new_tables(job, reads, is_sink=False), startups=startups))
        if self._events is not None:
            self._events.started(job, reads=_datasets(reads), written=[self._written()])

    @property
    def wants_columns(self) -> bool:
        """Whether events are sent, and do not have the origin of this table's columns yet."""
        return self._events is not None and self._flow is None

    def begins(self, origin: CommitOrigin, flow: ColumnFlow | None, *, is_batch: bool) -> None:
        """Emit that the rows of a barrier will be written. ``flow``: where their columns come from; None: unknown."""
        self._flow = flow or self._flow
        if self._events is not None and is_batch:
            written = [self._written()]
            self._events.began(origin.job, origin.barrier_id, reads=_datasets(origin.reads), written=written)

    def closed(self, job: str) -> None:
        """Emit that a stream has ended."""
        if self._events is not None:
            self._events.ended(job)

    def fails(self, origin: CommitOrigin, error: BaseException) -> None:
        """Emit that the rows of a barrier were not written."""
        if self._events is not None:
            self._events.failed(origin.job, origin.barrier_id, error)

    def ends(self, origin: CommitOrigin, snapshot: Snapshot | None, *, is_batch: bool) -> None:
        """Emit that a barrier is complete. ``snapshot``: with its rows; None: it changed nothing."""
        if self._events is not None and (is_batch or snapshot is not None):
            self._events.completed_barrier(
                origin.job,
                origin.barrier_id,
                is_last=is_batch,
                reads=_datasets(origin.reads),
                written=[self._written(snapshot)],
            )

    def committed(self, snapshot: Snapshot, origin: CommitOrigin) -> None:
        """Record that the rows of a barrier are in this table. Raises: UnavailableError."""
        self.ends(origin, snapshot, is_batch=snapshot.commit_identifier == BATCH_IDENTIFIER)
        self._lineage.store(self.records(snapshot, origin))

    def has_read(self, origin: CommitOrigin, starts: tuple[SourceRead, ...] = (), *, run_id: str = "") -> None:
        """Record that a barrier of a job has read tables of this catalog. Raises: UnavailableError.

        Args:
            origin: the barrier, and what it has read.
            starts: where its run began, if that is not recorded yet, or with ``run_id``.
            run_id: see ``opened``.
        """
        tables = self._new_tables(origin.job, origin.reads, is_sink=False)
        reads = barrier_reads(self._place, origin, moment_ms=self._lineage.now_ms())
        startups = self._startups(origin.job, starts, run_id)
        self._lineage.store(
            LineageRecords(source_tables=tables.source_tables, source_snapshots=reads, startups=startups)
        )
        if self._events is not None:
            self._events.completed_barrier(origin.job, origin.barrier_id, reads=_datasets(origin.reads))

    def read_by(self, job: str) -> int | None:
        """The snapshot of this table that a job had read at its newest barrier; None when it is unknown.

        Raises: UnavailableError.
        """
        database, table = self._name
        self._lineage.replay()
        found = self._lineage.meta.source_data_lineages(of_columns(job=job, database=database, table=table))
        newest = max(found, key=lambda each: (each.moment_ms, each.barrier_id), default=None)
        return None if newest is None else newest.snapshot_id

    def started(self, job: str, starts: tuple[SourceRead, ...], *, run_id: str = "") -> None:
        """Record that a job reads tables, and where in them it starts. Raises: UnavailableError.

        ``run_id``: see ``opened``.
        """
        tables = self._new_tables(job, starts, is_sink=False)
        self._lineage.store(replace(tables, startups=self._startups(job, starts, run_id)))

    def _startups(self, job: str, starts: tuple[SourceRead, ...], run_id: str = "") -> tuple[JobStartup, ...]:
        here = (each for each in starts if each.warehouse == self._warehouse)
        return tuple(JobStartup(job, *split_name(each.table), each.snapshot_id, run_id) for each in here)

    def records(self, snapshot: Snapshot, origin: CommitOrigin) -> LineageRecords:
        """The records of a commit; tables only if they were not recorded before."""
        made = commit_records(self._place, snapshot, origin)
        tables = self._new_tables(origin.job, origin.reads, is_sink=True)
        is_batch = origin.barrier_id >= FIRST_BATCH_BARRIER  # then its only barrier is its start
        startups = self._startups(origin.job, origin.reads) if is_batch else ()
        return replace(made, source_tables=tables.source_tables, sink_tables=tables.sink_tables, startups=startups)

    def _written(self, snapshot: Snapshot | None = None) -> Dataset:
        return Dataset(
            warehouse=self._warehouse,
            table=".".join(self._name),
            path=self._path,
            snapshot_id=None if snapshot is None else snapshot.id,
            row_count=None if snapshot is None else snapshot.delta_record_count,
            schema=self._schema,
            flow=self._flow,
            rules={} if snapshot is None else outcomes_of(snapshot.properties),
        )

    def _new_tables(self, job: str, reads: tuple[SourceRead, ...], *, is_sink: bool) -> LineageRecords:
        time = time_of(self._lineage.now_ms())
        sources = {split_name(each.table) for each in reads if each.warehouse == self._warehouse}
        sources = {each for each in sources if ("source", job, each) not in self._recorded}
        sinks = {self._name} if is_sink and ("sink", job, self._name) not in self._recorded else set()
        self._recorded |= {("source", job, each) for each in sources} | {("sink", job, each) for each in sinks}
        return LineageRecords(
            source_tables=tuple(TableLineage(job, *each, time) for each in sorted(sources)),
            sink_tables=tuple(TableLineage(job, *each, time) for each in sinks),
        )


def _datasets(reads: tuple[SourceRead, ...]) -> list[Dataset]:
    return [
        Dataset(warehouse=each.warehouse, table=each.table, path=each.path, snapshot_id=each.snapshot_id)
        for each in reads
    ]


def lineage_name(store: TableStore) -> tuple[str, str]:
    """Database and table; a branch is part of the table's name."""
    return split_name(store.name)
