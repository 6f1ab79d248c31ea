"""Where lineage is kept, as an interface: ours is a SQL database, others come as Python packages.

Source: PIP "Table and data lineage", LineageMeta and LineageMetaFactory; LN-46, LN-53 to LN-61, LN-65.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from filestore.predicate.predicate import And, Compare, CompareOp, Predicate

JDBC: Final = "jdbc"


class LineageMeta(Protocol):
    """A store of lineage. Many processes write to it at once, and a write is visible as soon as it returns.

    Every call raises UnavailableError when the store cannot be reached, or refuses; then nothing was changed.
    """

    def store(self, records: LineageRecords) -> None:
        """Keep all of it or nothing. What is there under a primary key stays; of a startup the last one stays."""

    def store_source_table_lineage(self, entity: TableLineage) -> None:
        """A job reads a table. Key: job, database, table."""

    def store_sink_table_lineage(self, entity: TableLineage) -> None:
        """A job writes a table. Key: job, database, table."""

    def store_source_data_lineage(self, entity: DataLineage) -> None:
        """What a barrier has read. Key: job, barrier, database, table."""

    def store_sink_data_lineage(self, entity: DataLineage) -> None:
        """What a barrier has written. Key: job, barrier, database, table."""

    def store_job_startup(self, entity: JobStartup) -> None:
        """Where a job begins, in place of what was noted under job, database and table."""

    def source_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Who reads which tables, by key; ``predicate`` on the entity's columns, ``limit`` rows at most."""

    def sink_table_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[TableLineage]:
        """Who writes which tables."""

    def source_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have read."""

    def sink_data_lineages(
        self, predicate: Predicate | None = None, *, limit: int | None = None
    ) -> Iterator[DataLineage]:
        """What barriers have written."""

    def job_startups(self, predicate: Predicate | None = None, *, limit: int | None = None) -> Iterator[JobStartup]:
        """Where jobs began."""

    def delete_source_table_lineage(self, job: str) -> None:
        """Forget which tables a job reads."""

    def delete_sink_table_lineage(self, job: str) -> None:
        """Forget which tables a job writes."""

    def delete_data_lineage(self, job: str) -> None:
        """Forget all barriers of a job, and where it began."""

    def delete_data_lineage_before(self, time: datetime) -> None:
        """Forget the barriers noted before a time, in UTC without a zone."""

    def close(self) -> None:
        """Give back what is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageMetaContext:
    """What a store is made from."""

    options: Mapping[str, str] = field(repr=False)  # of the catalog, secrets too
    warehouse: str  # path or address
    catalog_id: str | None = None  # of this catalog and no other


class LineageMetaFactory(Protocol):
    """Makes stores of one kind. A class with this shape, without arguments, is named as entry point."""

    @property
    def identifier(self) -> str:
        """The value of the option ``lineage-meta``."""

    def create(self, context: LineageMetaContext) -> LineageMeta:
        """A store; nothing needs to be asked before it is used. Raises: InvalidInputError for its options."""


def of_columns(**values: str | int) -> Predicate:
    """The rows whose columns have these values."""
    parts = (Compare(column=name, op=CompareOp.EQ, value=value) for name, value in values.items())
    return And(parts=tuple(parts))


DIRECTORY: Final = ".fluvial"
SQLITE_FILE: Final = "lineage.sqlite"
