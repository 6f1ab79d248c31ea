"""All tables that follow a database: which belong together, what was found, and each table by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from engine.catalog import Catalog
from engine.cdc.records.metadata import DELETED_WHEN
from engine.cdc.rules.names import SourceTable, check_nameable, is_excluded, name_in_table
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.cdc.tables import with_deleted
from engine.cdc.verify.comparison import ComparedRows, Comparison, compared, paired
from engine.cdc.verify.database import LiveTable, SourceDatabase
from engine.read.batch_read import BatchRead
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The table of a source table."""

    name: str  # database.table
    constants: Mapping[str, str] = field(default_factory=dict)  # of its rows among those of other source tables
    named: Callable[[str], str] = str  # a source column's name in the table
    excluded: Callable[[str], bool] = lambda column: False  # source columns that are left out on purpose
    deleted: str | None = None  # the column that is true in rows that the source has deleted
    key: tuple[str, ...] = ()  # instead of the source's primary key: its columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One source table."""

    source: LiveTable
    table: str
    comparison: Comparison | None  # None: it was not compared, see the problem
    problem: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether it was compared and nothing differs, or both sides have no rows."""
        return not self.problem if self.comparison is None else self.comparison.is_equal


def followed_by(settings: CdcSettings, state: StateFiles) -> Callable[[LiveTable], Followed | None]:
    """Where a job writes the rows of a source table; None: nowhere.

    Args:
        settings: of the job.
        state: of the job: which column of the table has the values of a source column whose type has changed.
    """
    added = with_deleted(settings)
    deleted = next((name for name, when in added.items() if when == DELETED_WHEN), None)

    def followed(source: LiveTable) -> Followed | None:
        name = SourceTable(source.schema, source.name)
        target = settings.naming.target_of(name)
        if target is None:
            return None
        live = state.table(target.table).sequence.live
        return Followed(
            name=f"{settings.database}.{target.table}",
            constants=target.constants,
            named=lambda column: live.get(column, name_in_table(column, settings.renamed)),
            excluded=lambda column: is_excluded(name, column, settings.excluded),
            deleted=deleted,
            key=tuple(each for each in target.key if each not in target.constants),
        )

    return followed


def verified(
    url: str,
    catalog: Catalog,
    table_of: Callable[[LiveTable], Followed | None],
    *,
    tag: str | None = None,
    limit: int = 1000,
) -> Iterator[Verified]:
    """Compare each source table that has a table; all at one moment of the database.

    Args:
        url: of the database, see ``SourceDatabase.reading``.
        catalog: has the tables.
        table_of: where the rows of a source table go; None: it is left out.
        tag: state of the tables to compare; None: the newest.
        limit: of differences of a table.

    Yields:
        one result for each, as soon as it is there.

    Raises:
        InvalidInputError: not such a database, or no such tag.
        UnavailableError: the database does not answer, or refuses a query.
    """
    with SourceDatabase.reading(url) as database:
        for source in database.tables():
            followed = table_of(source)
            if followed is not None:
                yield _verified(database, catalog, source, followed, tag, limit)


def _verified(
    database: SourceDatabase, catalog: Catalog, source: LiveTable, followed: Followed, tag: str | None, limit: int
) -> Verified:
    sql_name = database.name_of(source)
    try:
        check_nameable(followed.name.partition(".")[2])
    except InvalidInputError as error:
        return Verified(source=source, table=followed.name, comparison=None, problem=str(error))
    if not catalog.table_exists(followed.name):
        # a connector publishes no topic of a table without rows
        rows = database.count(sql_name)
        problem = f"there is no such table, and {rows} rows in the database" if rows else ""
        return Verified(source=source, table=followed.name, comparison=None, problem=problem)
    if followed.key:
        source = replace(source, key=followed.key)
    state = _State(catalog.table(followed.name).read(tag=tag), _filter(followed))
    try:
        pair = paired(
            database.dialect, source, sql_name, state.schema, named=followed.named, excluded=followed.excluded
        )
    except InvalidInputError as error:
        return Verified(source=source, table=followed.name, comparison=None, problem=str(error))
    found = compared(database, pair, state, limit=limit)
    return Verified(source=source, table=followed.name, comparison=found)


@dataclass(frozen=True, slots=True)
class _State(ComparedRows):
    """The rows of a table that belong to one source table."""

    read: BatchRead
    filter: str | None

    @property
    def schema(self) -> pa.Schema:
        """See ``ComparedRows``."""
        return self.read.schema

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See ``ComparedRows``."""
        return self.read.to_batches(columns=columns, filter=self.filter)


def _filter(followed: Followed) -> str | None:
    quote = "'"
    terms = [f"{name} = '{value.replace(quote, quote * 2)}'" for name, value in followed.constants.items()]
    terms += [f"({followed.deleted} = false OR {followed.deleted} IS NULL)"] if followed.deleted is not None else []
    return " AND ".join(terms) or None
