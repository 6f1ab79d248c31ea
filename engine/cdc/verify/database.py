"""The database that tables follow: its tables, and the queries of a comparison, all of one moment."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from engine.cdc.rules.names import SourceTable
from engine.cdc.verify.digests import RangeSum, RowDigests, from_hex, joined, range_sum
from engine.cdc.verify.expressions import POSTGRES, md5_of, quoted_name, range_of, row_text, words_sum
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
from lsm.errors import InvalidInputError

_FETCHED_ROWS: Final = 10_000
_STREAMED: Final = {"stream_results": True, "no_parameters": True}
_PG_COLUMNS: Final = """
SELECT n.nspname, c.relname, a.attname, coalesce(b.typname, t.typname), coalesce(k.place, 0), a.attgenerated <> ''
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN LATERAL
(SELECT o AS place FROM unnest(i.indkey) WITH ORDINALITY u(number, o) WHERE number = a.attnum) k ON true
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname NOT LIKE 'pg_toast%' ORDER BY 1, 2, a.attnum
"""
_PG_PARTITIONS: Final = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relispartition
"""
# what rows from before ADD COLUMN have: its default, which SET DEFAULT and DROP DEFAULT do not change
_PG_PAST: Final = """
SELECT n.nspname, c.relname, a.attname, coalesce(b.typname, t.typname), (a.attmissingval::text::text[])[1]
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.atthasmissing AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type b ON b.oid = nullif(t.typbasetype, 0)
WHERE c.relkind = 'r' AND (coalesce(b.typtype, t.typtype) = 'e' OR coalesce(b.typname, t.typname) IN ('bool', 'int2',
'int4', 'int8', 'float4', 'float8', 'numeric', 'text', 'varchar', 'bpchar', 'uuid', 'date', 'timestamp', 'timestamptz'))
"""
# its changes have computed columns, too
_MY_COLUMNS: Final = """
SELECT c.table_schema, c.table_name, c.column_name, c.column_type, coalesce(k.ordinal_position, 0), 0
FROM information_schema.columns c
JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
LEFT JOIN information_schema.key_column_usage k ON k.table_schema = c.table_schema AND k.table_name = c.table_name
AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY'
WHERE t.table_type = 'BASE TABLE' AND c.table_schema = database() ORDER BY 1, 2, c.ordinal_position
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTable:
    """A table of the database."""

    schema: str  # PostgreSQL's schema, MySQL's database
    name: str
    columns: tuple[tuple[str, str], ...]  # name and type, in order
    key: tuple[str, ...]  # of its primary key; () = none
    generated: frozenset[str] = frozenset()  # columns that it computes, and that changes do not have

    def __str__(self) -> str:
        """``schema.name``."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The SQL of the columns of a table that are compared, and of their texts."""

    table: str  # in SQL
    columns: tuple[tuple[str, str], ...]
    key: tuple[tuple[str, str], ...]  # those of the key; without one, all columns


class SourceDatabase:
    """A database as seen by one transaction."""

    def __init__(self, connection: sa.Connection, dialect: str) -> None:
        """Made by ``reading``."""
        self._connection = connection
        self.dialect = dialect

    @classmethod
    @contextmanager
    def reading(cls, url: str) -> Iterator["SourceDatabase"]:
        """A transaction that changes nothing and sees one moment.

        Args:
            url: SQLAlchemy's or JDBC's, of PostgreSQL, MySQL or MariaDB.

        Raises:
            InvalidInputError: another database, or its driver is missing.
            UnavailableError: it does not answer, or refuses.
        """
        database = SqlDatabase.of(url, dialects=[each for each in ALL_DIALECTS if each != "sqlite"])
        with database.transaction("compare tables", _as_it_is) as connection:
            if database.dialect == POSTGRES:
                begin = ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", "SET LOCAL TIME ZONE 'UTC'"]
                begin += ["SET LOCAL datestyle = ISO", "SET LOCAL extra_float_digits = 1"]
            else:
                begin = ["SET time_zone = '+00:00'", "SET NAMES utf8mb4"]
            for each in begin:
                connection.exec_driver_sql(each)
            yield cls(connection, POSTGRES if database.dialect == POSTGRES else "mysql")

    @contextmanager
    def part(self) -> Iterator[None]:
        """Run queries of the block in a savepoint of the database, so that a refused one does not end the transaction.

        Raises: InvalidInputError: the database has refused a query.
        """
        try:
            with self._connection.begin_nested():
                yield
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            reason = " ".join(str(error.orig).split())
            raise InvalidInputError(f"the database refuses a query: reason='{reason}'") from error

    def tables(self) -> list[LiveTable]:
        """The tables, by name; of partitioned tables the roots. In MySQL only those of the address's database."""
        found: dict[tuple[str, str], list[tuple[str, str, int, bool]]] = {}
        for schema, name, *column in self._rows(_PG_COLUMNS if self.dialect == POSTGRES else _MY_COLUMNS):
            found.setdefault((schema, name), []).append((column[0], _text(column[1]), int(column[2]), bool(column[3])))
        return [
            LiveTable(
                schema=schema,
                name=name,
                columns=tuple((column, kind) for column, kind, *_ in columns),
                key=tuple(column for place, column in sorted((at, column) for column, _, at, _ in columns) if place),
                generated=frozenset(column for column, *_, is_generated in columns if is_generated),
            )
            for (schema, name), columns in found.items()
        ]

    def partitions(self) -> frozenset[str]:
        """``schema.table`` of each partition, whose rows are also its root's. MySQL's have no names of tables."""
        rows = self._rows(_PG_PARTITIONS) if self.dialect == POSTGRES else ()
        return frozenset(f"{schema}.{name}" for schema, name in rows)

    def lacks(self, sources: Iterable[SourceTable]) -> frozenset[SourceTable]:
        """Those of some source tables that are not there; of other databases than the address's MySQL says nothing."""
        if self.dialect == POSTGRES:
            there = {*self.partitions(), *map(str, self.tables())}
            return frozenset(each for each in sources if str(each) not in there)
        ((database,),) = self._rows("SELECT database()")
        names = {each.name.casefold() for each in self.tables()}
        own = (each for each in sources if each.schema.casefold() == _text(database).casefold())
        return frozenset(each for each in own if each.name.casefold() not in names)

    def empties(self, sources: Iterable[SourceTable]) -> frozenset[SourceTable]:
        """Those of some source tables without rows; one that may not be read counts as if it had some."""
        return frozenset(each for each in sources if not self._may_have_rows(each))

    def _may_have_rows(self, source: SourceTable) -> bool:
        name = ".".join(quoted_name(self.dialect, each) for each in (source.schema, source.name))
        try:
            with self.part():
                return bool(list(self._rows(f"SELECT 1 FROM {name} LIMIT 1")))
        except InvalidInputError:
            return True

    def generated(self) -> frozenset[str]:
        """``schema.table.column`` of each column that changes do not have, because the database computes it."""
        return frozenset(f"{table}.{column}" for table in self.tables() for column in table.generated)

    def past(self, schema: str, name: str) -> dict[str, str]:
        """What the rows of a table have in columns that were added after them, by column: text of a literal.

        Only columns of plain types that got a default when they were added, and whose table was not written again.
        """
        rows = self._rows(_PG_PAST) if self.dialect == POSTGRES else ()
        return {
            column: _literal(kind, value)
            for at, table, column, kind, value in rows
            if (at, table) == (schema, name) and value is not None
        }

    def name_of(self, table: LiveTable) -> str:
        """The table in SQL."""
        return f"{quoted_name(self.dialect, table.schema)}.{quoted_name(self.dialect, table.name)}"

    def count(self, table: str) -> int:
        """The number of rows."""
        return int(next(self._rows(f"SELECT count(*) FROM {table}"))[0])

    def sums(self, query: Query, count: int) -> dict[int, RangeSum]:
        """The sum of each range, of so many."""
        high, low = words_sum(self.dialect, "h")
        place = range_of(self.dialect, "k", count)
        rows = self._rows(f"SELECT {place}, count(*), {high}, {low} FROM ({self._hashed(query)}) t GROUP BY 1")
        return {int(at): range_sum(rows, high, low) for at, rows, high, low in rows}

    def digests(self, query: Query, ranges: Sequence[int], count: int) -> RowDigests:
        """The hashes of the rows in some ranges."""
        chosen = f"{range_of(self.dialect, 'k', count)} IN ({', '.join(map(str, ranges))})"
        rows = self._rows(f"SELECT k, h FROM ({self._hashed(query)}) t WHERE {chosen}")
        return joined(from_hex((_text(key), _text(row)) for key, row in part) for part in _parts(rows))

    def values(self, query: Query, keys: Sequence[str]) -> Iterator[tuple[str, tuple[str | None, ...]]]:
        """The hash of the key and the texts of the values, of rows with some hashes of keys."""
        names = [f"c{number}" for number in range(len(query.columns))]
        texts = [
            f"CASE WHEN {column} IS NOT NULL THEN {text} END AS {name}"
            for name, (column, text) in zip(names, query.columns, strict=True)
        ]
        chosen = ", ".join(f"'{each}'" for each in keys)
        inner = f"SELECT {self._key(query)} AS k, {', '.join(texts)} FROM {query.table}"
        for key, *values in self._rows(f"SELECT k, {', '.join(names)} FROM ({inner}) t WHERE k IN ({chosen})"):
            yield _text(key), tuple(None if each is None else _text(each) for each in values)

    def _key(self, query: Query) -> str:
        return md5_of(self.dialect, row_text(self.dialect, query.key))

    def _hashed(self, query: Query) -> str:
        row = md5_of(self.dialect, row_text(self.dialect, query.columns))
        return f"SELECT {self._key(query)} AS k, {row} AS h FROM {query.table}"

    def _rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        # as the driver takes it: a colon or a percent sign is no parameter
        result = self._connection.exec_driver_sql(statement, execution_options=_STREAMED)
        for part in result.partitions(_FETCHED_ROWS):
            for row in part:
                yield tuple(row)


def _parts(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    part: list[tuple[Any, ...]] = []
    for row in rows:
        part.append(row)
        if len(part) == _FETCHED_ROWS:
            yield part
            part = []
    yield part


def _literal(kind: str, value: str) -> str:
    """A value as PostgreSQL writes it, in UTC, as a literal of a table's column."""
    if kind == "bool":
        return {"t": "true", "f": "false"}[value]
    return f"{value.removesuffix('+00')}Z" if kind == "timestamptz" else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _as_it_is(engine: sa.Engine) -> sa.Engine:
    return engine
