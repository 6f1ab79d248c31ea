"""SQL databases, and the tables that a catalog keeps its names and locks in: those of Paimon's JDBC catalog.

All who open the same database under the same ``catalog-key`` see the same tables. SQLAlchemy speaks the dialects;
SQLite and PostgreSQL are tested.
Source: Paimon JdbcUtils, names of tables and columns.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)

from filestore.options.secrets import shown_value
from lsm.errors import ConflictError, InvalidInputError, UnavailableError
from lsm.secret_names import STARS, is_secret_name, shown_address

DIALECTS: Final = ("sqlite", "postgresql")
ALL_DIALECTS: Final = (*DIALECTS, "mysql", "mariadb")
DRIVERS: Final = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}
_WAIT_S: Final = 60  # of SQLite for another writer
_MESSAGE_CHARS: Final = 300
_PACKAGES: Final = {"mysql": "pymysql", "mariadb": "pymysql"}

_METADATA: Final = sa.MetaData()


def _key(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.String(255), primary_key=True)


TABLES: Final = sa.Table("paimon_tables", _METADATA, _key("catalog_key"), _key("database_name"), _key("table_name"))
DATABASE_PROPERTIES: Final = sa.Table(
    "paimon_database_properties",
    _METADATA,
    *(_key(name) for name in ("catalog_key", "database_name", "property_key")),
    sa.Column("property_value", sa.String(1000)),
)
TABLE_PROPERTIES: Final = sa.Table(
    "paimon_table_properties",
    _METADATA,
    *(_key(name) for name in ("catalog_key", "database_name", "table_name", "property_key")),
    sa.Column("property_value", sa.String(1000)),
)
LOCKS: Final = sa.Table(
    "paimon_distributed_locks",
    _METADATA,
    _key("lock_id"),
    sa.Column("acquired_at", sa.TIMESTAMP, nullable=False, server_default=sa.func.current_timestamp()),
    sa.Column("expire_time_seconds", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDatabase:
    """A database by its address. It can be pickled; connections are made where it is used."""

    url: str = field(repr=False)  # SQLAlchemy's, with the password

    @classmethod
    def of(
        cls, uri: str, *, user: str | None = None, password: str | None = None, dialects: Sequence[str] = DIALECTS
    ) -> "SqlDatabase":
        """The database at an address.

        Args:
            uri: SQLAlchemy's (``sqlite:////data/catalog.db``, ``postgresql+psycopg://host/db``) or JDBC's
                (``jdbc:sqlite:/data/catalog.db``, ``jdbc:postgresql://host/db?user=...``).
            user: in place of the address's.
            password: in place of the address's.
            dialects: of the databases that will do.

        Raises:
            InvalidInputError: an address that cannot be read, a relative path, or a database that is not tested.
        """
        try:
            url = sa.make_url(_from_jdbc(uri) if uri.startswith("jdbc:") else uri)
        except (ArgumentError, ValueError) as error:
            raise InvalidInputError(
                "address of a database cannot be read: uri fix='write sqlite:////path or postgresql://user@host/db'"
            ) from error
        url = url.set(drivername=DRIVERS.get(url.drivername, url.drivername))
        if url.get_backend_name() not in dialects:
            raise InvalidInputError(f"no catalog in this database: uri={_shown(url)} supported={list(dialects)}")
        if url.get_backend_name() == "sqlite" and not (url.database or "").startswith("/"):
            raise InvalidInputError(
                f"a SQLite file is named by an absolute path: uri={_shown(url)} fix='write sqlite:////path/of/file'"
            )
        query = dict(url.query)
        url = url.set(
            username=user or url.username or _text(query.pop("user", None)),
            password=password or url.password or _text(query.pop("password", None)),
            query=query,
        )
        return cls(url=url.render_as_string(hide_password=False))

    @property
    def shown(self) -> str:
        """The address without the password."""
        return _shown(sa.make_url(self.url))

    @property
    def dialect(self) -> str:
        """Of ``DIALECTS``."""
        return str(sa.make_url(self.url).get_backend_name())

    @contextmanager
    def transaction(self, action: str, prepare: "Prepare | None" = None) -> Iterator[sa.Connection]:
        """A transaction, committed at its end.

        Args:
            action: for messages.
            prepare: makes the tables, once in a process; None makes those of a catalog.

        Raises:
            ConflictError: a row of this key is there.
            UnavailableError: the database does not answer, or refuses; nothing was changed.
        """
        if self.dialect == "sqlite" and not os.path.exists(sa.make_url(self.url).database or ""):
            _engine.cache_clear()  # the file is gone, and its tables with it
        with _errors(action, self.shown), _engine(self.url, prepare or _with_catalog_tables).begin() as connection:
            try:
                yield connection
            except (OperationalError, ProgrammingError):
                _engine.cache_clear()  # perhaps the tables are gone: the next one makes them
                raise


Prepare = Callable[[sa.Engine], sa.Engine]


@lru_cache(maxsize=32)
def _engine(url: str, prepare: Prepare) -> sa.Engine:
    parsed = sa.make_url(url)
    arguments: Mapping[str, Any] = {"connect_timeout": 10}
    dialect = parsed.get_backend_name()
    if dialect == "sqlite":
        arguments = {"timeout": _WAIT_S}
    with _errors("connect", _shown(parsed)):
        try:
            # A connection for each transaction: few are needed, and none must survive a fork or outlive us.
            engine = sa.create_engine(parsed, connect_args=dict(arguments), poolclass=sa.NullPool)
        except ImportError as error:
            package = _PACKAGES.get(dialect, "'fluvial[sql]'")
            raise InvalidInputError(
                f"driver of the database is missing: uri={_shown(parsed)} fix=pip install {package}"
            ) from error
        return prepare(engine)


def make_tables(engine: sa.Engine, metadata: sa.MetaData, schema: str | None = None) -> None:
    """Make the tables that are not there; others may do so at the same time."""
    for table in metadata.sorted_tables:
        try:
            table.create(engine, checkfirst=True)
        except DBAPIError:
            if not sa.inspect(engine).has_table(table.name, schema):  # else another process made it at this moment
                raise


def _with_catalog_tables(engine: sa.Engine) -> sa.Engine:
    make_tables(engine, _METADATA)
    return engine


def without_password(uri: str) -> str:
    """An address of any dialect, as it may be written to a file. Raises: InvalidInputError."""
    url = sa.make_url(SqlDatabase.of(uri, dialects=ALL_DIALECTS).url)
    query = {key: value for key, value in url.query.items() if shown_value(key, "") != STARS}
    plain = sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database, query)
    return plain.render_as_string()


def sqlite_path(uri: str) -> str | None:
    """The file of an address of SQLite; None: of another database. Raises: InvalidInputError."""
    url = sa.make_url(SqlDatabase.of(uri, dialects=ALL_DIALECTS).url)
    return (url.database or "") if url.get_backend_name() == "sqlite" else None


def _from_jdbc(uri: str) -> str:
    """``jdbc:sqlite:/path`` and ``jdbc:postgresql://host/db?user=u&password=p`` as SQLAlchemy writes them."""
    plain = uri.removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        return f"sqlite:///{plain.removeprefix('sqlite:').removeprefix('file:')}"
    parts = urlsplit(plain)
    address = sa.URL.create(
        parts.scheme,
        username=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        host=parts.hostname,
        port=parts.port,
        database=parts.path.lstrip("/"),
        query=dict(parse_qsl(parts.query)),
    )
    return address.render_as_string(hide_password=False)


def _shown(url: sa.URL) -> str:
    hidden = {key: "***" if is_secret_name(key) else value for key, value in url.query.items()}
    return shown_address(url.set(query=hidden).render_as_string(hide_password=True)).replace(STARS, "***")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@contextmanager
def _errors(action: str, shown: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise ConflictError(f"row exists already: action={action} database={shown}") from error
    except NoSuchModuleError as error:
        raise InvalidInputError(f"no such driver of a database: uri={shown} error={error}") from error
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        said = shown_address(" ".join(str(cause).split())[:_MESSAGE_CHARS])
        raise UnavailableError(f"database refused: action={action} database={shown} error={said}") from error
