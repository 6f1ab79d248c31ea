"""All tables that follow a database: which belong together, what was found, and each table by itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.cdc.records.metadata import DELETED_WHEN
from engine.cdc.rules.names import SourceTable, check_nameable, is_excluded, name_in_table
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.cdc.tables import with_deleted
from engine.cdc.verify.comparison import ComparedRows, Comparison, compared, paired
from engine.cdc.verify.database import LiveTable, SourceDatabase
from engine.cdc.verify.expressions import POSTGRES
from engine.read.batch_read import BatchRead
from lsm.errors import FluvialError

Sources = tuple[SourceTable, ...]
_GONE: Final = (
    "the source table is not there: it was renamed or dropped, and this table keeps its rows: "
    "fix='drop this table; if it was renamed, take in its rows: fluvial cdc resnapshot SCHEMA.NEW-NAME'"
)


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
    """The function that names the table of a source table; its answer None: no table has its rows.

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
        live = state.table(target.table).sequence_of(name).live
        return Followed(
            name=f"{settings.database}.{target.table}",
            constants=target.constants,
            named=lambda column: live.get(column, name_in_table(column, settings.renamed)),
            excluded=lambda column: is_excluded(name, column, settings.excluded),
            deleted=deleted,
            key=tuple(each for each in target.key if each not in target.constants),
        )

    return followed


def known_sources(state: StateFiles) -> list[Sources]:
    """The source tables whose changes a job has met, by table."""
    return [state.table(name).known_sources for name in state.tables()]


def verified(
    url: str,
    catalog: Catalog,
    table_of: Callable[[LiveTable], Followed | None],
    *,
    known: Iterable[Sources] = (),
    tag: str | None = None,
    limit: int = 1000,
) -> Iterator[Verified]:
    """Compare each source table that has a table; all at one moment of the database.

    An error in the comparison of one table becomes its result; other tables are compared.

    Args:
        url: of the database, see ``SourceDatabase.reading``.
        catalog: has the tables.
        table_of: the table of a source table's rows; None: the source table is skipped.
        known: source tables of each table; a table none of whose source tables exists is reported.
        tag: state of the tables to compare; None: the newest.
        limit: of differences of a table.

    Yields:
        one result for each table, as soon as it is compared.

    Raises:
        InvalidInputError: not such a database, or no such tag.
        UnavailableError: the database does not answer, or refuses a query.
    """
    with SourceDatabase.reading(url) as database:
        sources = database.tables()
        for source in sources:
            followed = table_of(source)
            if followed is not None:
                yield _result(database, catalog, source, followed, tag, limit)
        for source in _gone(database.dialect, sources, database.partitions(), known):
            followed = table_of(source)
            if followed is not None and catalog.table_exists(followed.name):
                yield Verified(source=source, table=followed.name, comparison=None, problem=_GONE)


def _gone(
    dialect: str, there: Sequence[LiveTable], partitions: frozenset[str], known: Iterable[Sources]
) -> list[LiveTable]:
    """A source of each table none of whose is in the database; MySQL's address is that of one database of a server."""
    names, schemas = {*map(str, there), *partitions}, {each.schema for each in there}
    return [
        LiveTable(schema=each.schema, name=each.name, columns=(), key=())
        for each, *others in known
        if not names & {str(each), *map(str, others)} and (dialect == POSTGRES or each.schema in schemas)
    ]


def _result(
    database: SourceDatabase, catalog: Catalog, source: LiveTable, followed: Followed, tag: str | None, limit: int
) -> Verified:
    """One table, or why it was not compared."""
    try:
        with database.part():
            return _verified(database, catalog, source, followed, tag, limit)
    except FluvialError as error:
        return Verified(source=source, table=followed.name, comparison=None, problem=str(error))


def _verified(
    database: SourceDatabase, catalog: Catalog, source: LiveTable, followed: Followed, tag: str | None, limit: int
) -> Verified:
    sql_name = database.name_of(source)
    check_nameable(followed.name.partition(".")[2])
    if not catalog.table_exists(followed.name):
        # a connector publishes no topic of a table without rows
        rows = database.count(sql_name)
        problem = (
            f"there is no such table, and {rows} rows in the database: fix='fluvial cdc resnapshot "
            f"{source.schema}.{source.name}, if the connector captures it'"
            if rows
            else ""
        )
        return Verified(source=source, table=followed.name, comparison=None, problem=problem)
    if followed.key:
        source = replace(source, key=followed.key)
    state = _State(catalog.table(followed.name).read(tag=tag), _filter(followed))
    pair = paired(database.dialect, source, sql_name, state.schema, named=followed.named, excluded=followed.excluded)
    found = compared(database, pair, state, limit=limit)
    return Verified(source=source, table=followed.name, comparison=found)


@dataclass(frozen=True, slots=True)
class _State(ComparedRows):
    """The rows of a table that belong to one source table."""

    read: BatchRead
    filter: str | None

    @property
    def schema(self) -> pa.Schema:
        """Implements ``ComparedRows.schema``."""
        return self.read.schema

    def to_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Implements ``ComparedRows.to_batches``."""
        return self.read.to_batches(columns=columns, filter=self.filter)


def _filter(followed: Followed) -> str | None:
    quote = "'"
    terms = [f"{name} = '{value.replace(quote, quote * 2)}'" for name, value in followed.constants.items()]
    terms += [f"({followed.deleted} = false OR {followed.deleted} IS NULL)"] if followed.deleted is not None else []
    return " AND ".join(terms) or None
