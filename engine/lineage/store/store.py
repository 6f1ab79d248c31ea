"""The interface of a lineage store: Fluvial's is a SQL database, others come as Python packages.

Source: PIP "Table and data lineage", LineageMeta and LineageMetaFactory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from filestore.predicate.predicate import And, Compare, CompareOp, Predicate

JDBC: Final = "jdbc"


class LineageMeta(Protocol):
    """A store of lineage. Many processes write it concurrently, and a write is visible as soon as it returns.

    Every call raises UnavailableError when the store cannot be reached, or refuses; then nothing was changed.
    """

    def store(self, records: LineageRecords) -> None:
        """Store all records or none. Existing rows with the same primary key are kept; startups: see there."""

    def store_source_table_lineage(self, entity: TableLineage) -> None:
        """Store that a job reads a table. Key: job, database, table."""

    def store_sink_table_lineage(self, entity: TableLineage) -> None:
        """Store that a job writes a table. Key: job, database, table."""

    def store_source_data_lineage(self, entity: DataLineage) -> None:
        """Store what a barrier has read. Key: job, barrier, database, table."""

    def store_sink_data_lineage(self, entity: DataLineage) -> None:
        """Store what a barrier has written. Key: job, barrier, database, table."""

    def store_job_startup(self, entity: JobStartup) -> None:
        """Store where a job starts: replaces the row of the same job, database and table, if it is of another start."""

    def source_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Which jobs read which tables, by key; ``predicate`` on the entity's columns, at most ``limit`` rows."""

    def sink_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Which jobs write which tables."""

    def source_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have read."""

    def sink_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have written."""

    def job_startups(self, predicate: Predicate | None = None, *, limit: int | None = None) -> Iterator[JobStartup]:
        """Where jobs started."""

    def delete_source_table_lineage(self, job: str) -> None:
        """Delete which tables a job reads."""

    def delete_sink_table_lineage(self, job: str) -> None:
        """Delete which tables a job writes."""

    def delete_data_lineage(self, job: str) -> None:
        """Delete all barriers of a job, and its start."""

    def delete_data_lineage_before(self, time: datetime) -> None:
        """Delete the barriers recorded before a time, in UTC without a zone."""

    def close(self) -> None:
        """Release all resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageMetaContext:
    """The arguments for creating a store."""

    options: Mapping[str, str] = field(repr=False)  # options of the catalog, including secrets
    warehouse: str  # path or URL
    catalog_id: str | None = None  # unique


class LineageMetaFactory(Protocol):
    """Creates stores of one kind. A class with this shape, without arguments, is an entry point."""

    @property
    def identifier(self) -> str:
        """The value of the option ``lineage-meta``."""

    def create(self, context: LineageMetaContext) -> LineageMeta:
        """A store, without connecting. Raises: InvalidInputError for its options."""


def of_columns(**values: str | int) -> Predicate:
    """The predicate that columns have these values."""
    parts = (Compare(column=name, op=CompareOp.EQ, value=value) for name, value in values.items())
    return And(parts=tuple(parts))


DIRECTORY: Final = ".fluvial"
SQLITE_FILE: Final = "lineage.sqlite"
