"""Spark's own Thrift server, for tools that speak JDBC or ODBC. No other module names its classes.

It runs in the JVM of a session. Each connection gets a new session of the application, so it has the catalogs that
are installed there. Spark answers a client's questions for schemas, tables, columns and keys from its own catalog only;
so the server's map of sessions gives it sessions that answer them from the current catalog.
"""

import base64
import errno
import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from engine.catalog import Catalog
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import AsSpark
from engine.spark_internals.catalog import SparkInside
from engine.spark_internals.frame_plans import FramePlan
from engine.spark_internals.session import JvmError, jvm_session, start_thrift_server
from engine.system_tables.catalog_tables import shown_databases
from engine.system_tables.names import is_system_table
from engine.types.quoting import quoted
from engine.types.spark_types import described_schema, sql_type
from engine.types.text_length import limit_of
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField
from lsm.errors import FluvialError, InvalidInputError

_HIVE: Final = "spark.hadoop.hive.server2."
_TASKS: Final = "spark.sql.shuffle.partitions"

Row = Sequence[str | int | None]

_NO_CATALOG: Final = ""  # what Spark says for all of its tables
_SCHEMA_COLUMNS: Final = "TABLE_SCHEM STRING, TABLE_CATALOG STRING"
_TABLE_COLUMNS: Final = (
    "TABLE_CAT STRING, TABLE_SCHEM STRING, TABLE_NAME STRING, TABLE_TYPE STRING, REMARKS STRING, TYPE_CAT STRING, "
    "TYPE_SCHEM STRING, TYPE_NAME STRING, SELF_REFERENCING_COL_NAME STRING, REF_GENERATION STRING"
)
_COLUMN_COLUMNS: Final = (
    "TABLE_CAT STRING, TABLE_SCHEM STRING, TABLE_NAME STRING, COLUMN_NAME STRING, DATA_TYPE INT, TYPE_NAME STRING, "
    "COLUMN_SIZE INT, BUFFER_LENGTH TINYINT, DECIMAL_DIGITS INT, NUM_PREC_RADIX INT, NULLABLE INT, REMARKS STRING, "
    "COLUMN_DEF STRING, SQL_DATA_TYPE INT, SQL_DATETIME_SUB INT, CHAR_OCTET_LENGTH INT, ORDINAL_POSITION INT, "
    "IS_NULLABLE STRING, SCOPE_CATALOG STRING, SCOPE_SCHEMA STRING, SCOPE_TABLE STRING, SOURCE_DATA_TYPE SMALLINT, "
    "IS_AUTO_INCREMENT STRING"
)
_KEY_COLUMNS: Final = (
    "TABLE_CAT STRING, TABLE_SCHEM STRING, TABLE_NAME STRING, COLUMN_NAME STRING, KEQ_SEQ INT, PK_NAME STRING"
)
_TYPES: Final[Mapping[type[T.DataType], tuple[int, int | None, int | None]]] = {
    T.BooleanType: (16, 1, 0),
    T.ByteType: (-6, 1, None),
    T.ShortType: (5, 2, None),
    T.IntegerType: (4, 4, 0),
    T.LongType: (-5, 8, None),
    T.FloatType: (6, 4, 7),
    T.DoubleType: (8, 8, 15),
    T.StringType: (12, None, None),
    T.CharType: (1, None, None),
    T.VarcharType: (12, None, None),
    T.DateType: (91, 4, None),
    T.TimestampType: (93, 8, 6),
    T.TimestampNTZType: (93, 8, 6),
    T.BinaryType: (-2, None, None),
    T.ArrayType: (2003, None, None),
    T.MapType: (2000, None, None),
    T.StructType: (2002, None, None),
    T.NullType: (0, 1, None),
}
"""By type: its number in ``java.sql.Types``, bytes, digits behind the point; as Spark says them of its own tables."""
_OTHER: Final = (1111, None, None)
_DECIMAL: Final = 3
_LONG_DIGITS: Final = 18  # decimals with more have 16 bytes


_HARMLESS_COMMANDS: Final = re.compile(
    r"(Show|Describe)\w+|(|Streaming)ExplainCommand|(Set|Reset|CreateView|AlterViewAs|DropTempView)Command|"
    r"(CreateSQL|Drop|Refresh)FunctionCommand|ClearCacheCommand|Set(Catalog|Namespace)Command"
)
_REACHING: Final[Mapping[str, str]] = {
    "ScriptTransformation": "TRANSFORM runs a program",
    "CallMethodViaReflection": "reflect and java_method call any method of Java",
    "CreateTempViewUsing": "a view of a format reads files and addresses",
    "CreateTable": "a table of another format has its files anywhere",
    "InsertIntoDir": "INSERT OVERWRITE DIRECTORY writes anywhere",
    "CreateNamespace": "a database of another catalog has its files anywhere",
}
"""Nodes of plans by which a statement reaches more than the tables of the catalog."""
_FENCED_SETTINGS: Final = {"spark.sql.runSQLOnFiles": "false", "spark.sql.variable.substitute": "false"}
_OWN_SETTINGS: Final = ("spark.sql.", "table-storage.", "pipeline.", "execution.")
_OPERATORS_SETTINGS: Final = re.compile(
    r"spark\.sql\.(runSQLOnFiles$|variable\.|catalog\.|redaction\.|hive\.|warehouse\.|streaming\.checkpoint)|"
    r".*(class|classes|jars?|dir|path|location)$",
    re.I,
)


class ServerStartError(FluvialError):
    """The server does not start."""


def free_port(host: str, port: int) -> int:
    """The port, if a server of this process can take it; 0: any that is free.

    Raises:
        InvalidInputError: another server has it, or the host is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of a server that has just ended
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InvalidInputError(
                f"the port is in use: port={port} host={host} fix='--port 0 for one that is free'"
            ) from error
        raise InvalidInputError(
            f"no server can listen there: host={host} port={port} error={error} fix='an address of this machine'"
        ) from error


def server_settings(host: str, port: int, catalog: str, *, is_fenced: bool) -> Mapping[str, str]:
    """Settings of a session whose JVM serves.

    Args:
        host: where it listens.
        port: where it listens.
        catalog: names of connections without a catalog are relative to it.
        is_fenced: names are not those of files, and texts have no variables of the process.
    """
    return {
        **(_FENCED_SETTINGS if is_fenced else {}),
        f"{_HIVE}thrift.bind.host": host,
        f"{_HIVE}thrift.port": str(port),
        f"{_HIVE}logging.operation.enabled": "false",  # files in /tmp
        "spark.sql.defaultCatalog": catalog,
        "spark.sql.adaptive.enabled": "true",  # statements of any size
    }


@contextmanager
def thrift_server(spark: SparkSession, name: str, catalog: Catalog, *, is_fenced: bool) -> Iterator[None]:
    """While the block runs, the server takes connections.

    Args:
        spark: a session with ``server_settings``; its application is served.
        name: of the catalog in statements.
        catalog: whose schemas, tables, columns and keys clients list where it is the current one.
        is_fenced: refuse statements of clients that reach more than tables, see ``reaches_further``.

    Raises:
        ServerStartError: it does not start, for example without Hive's jars.
    """
    if is_fenced:
        inside = SparkInside(spark)
        given = {key: str(value) for key, value in spark.conf.getAll.items()}
        inside.inject_check(jvm_session(spark), _FenceBuilder(inside, given))
    try:  # without the setting a local master has 200 tasks for each shuffle
        server = start_thrift_server(spark, {_TASKS: str(spark.conf.get(_TASKS))})
    except (JvmError, TypeError) as error:  # TypeError: there is no such class
        raise ServerStartError(
            f"Spark's Thrift server does not start: error={str(error).splitlines()[0]} "
            f"fix='a Spark with Hive, as PySpark has it from PyPI'"
        ) from error
    try:
        inside = SparkInside(spark)
        listing = CatalogListing(catalog, lambda table: spark.table(f"{quoted(name)}.{table}").schema)
        inside.serve_sessions(server, lambda own, contexts: _ServedSessions(inside, own, contexts, name, listing))
        yield
    finally:
        server.stop()


def reaches_further(nodes: Sequence[str]) -> str | None:
    """How a statement of a client would reach files, programs or classes of the server's machine; None: it does not.

    Args:
        nodes: of the analysed plan, by ``FramePlan.node_names``: whatever its text was, and also of a view or of a
            text that is executed.
    """
    for found in nodes:
        package, _, node = found.rpartition(".")
        is_command = package.startswith(("execution", "hive")) and node.endswith("Command")
        if node in _REACHING and (node != "CreateTable" or package.startswith("execution")):
            return _REACHING[node]
        if is_command and _HARMLESS_COMMANDS.fullmatch(node) is None:
            return f"{node.removesuffix('Command')} is a command on files, classes or tables of other formats"
    return None


def is_clients_setting(key: str) -> bool:
    """Whether a client may set it: it names no file, class or catalog, and goes to no client of a store."""
    return key.startswith(_OWN_SETTINGS) and _OPERATORS_SETTINGS.match(key) is None


def _refused(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"clients of this server reach tables alone: reason='{reason}' "
        "fix='the operator may allow all statements: fluvial serve --trust-clients'"
    )


class _FenceBuilder(Proxy):
    """What Spark asks for the check of plans of each new session."""

    def __init__(self, inside: SparkInside, given: Mapping[str, str]) -> None:
        """``given``: the settings of the server, which every session begins with."""
        super().__init__(inside)
        self._given = given

    @called
    def apply(self, session: Any) -> "_Fence":
        """The check of a session."""
        return _Fence(self.inside, session, self._given)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("scala.Function1",)


class _Fence(Proxy):
    """Refuses analysed plans by which a client reaches more than tables; a connection's address may have settings."""

    def __init__(self, inside: SparkInside, session: Any, given: Mapping[str, str]) -> None:
        """Of a session; ``given``: the settings that are not its client's."""
        super().__init__(inside)
        self._session = inside.weak(session)
        self._given = given
        self._is_looked_at = False

    @called
    def apply(self, plan: Any) -> None:
        """The check of one plan."""
        if not self._is_looked_at:
            self._look_at_settings()
        looked_at = FramePlan(plan)
        if (reason := reaches_further(looked_at.node_names())) is not None:
            raise _refused(reason)
        key = looked_at.key_that_is_set()
        if key is not None and not is_clients_setting(key):
            raise _refused(f"{key} is the operator's setting")

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("scala.Function1",)

    def _look_at_settings(self) -> None:
        session = self._session.get()
        found = {} if session is None else self.inside.settings_of(session)
        for key, value in found.items():
            if self._given.get(key) != value and not is_clients_setting(key) and key.startswith(("spark.", "fs.")):
                raise _refused(f"{key} is the operator's setting")
        self._is_looked_at = True


class _ServedSessions(Proxy):
    """The map of sessions by their handle: gives each as one that answers questions for the current catalog."""

    def __init__(self, inside: SparkInside, own: Any, contexts: Any, name: str, listing: "CatalogListing") -> None:
        """Over the server's own map; ``contexts``: Spark's sessions by the same handles."""
        super().__init__(inside)
        self._own = own
        self._contexts = contexts
        self._name = name
        self._listing = listing

    @called
    def get(self, handle: Any) -> "_ServedSession | None":
        """Implements ``Map.get``: the session of a handle; None: there is none."""
        own = self._own.get(handle)
        if own is None:
            return None
        return _ServedSession(self.inside, own, lambda: self._contexts.get(handle), self._name, self._listing)

    @called
    def values(self) -> Any:
        """Implements ``Map.values``, because py4j's own method of this name hides Java's."""
        return self.inside.called(self._own, "values", "map of sessions")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("java.util.Map",)


class _ServedSession(Proxy):
    """A session of the server: questions about the catalog are queries, all else is done by Spark's own session."""

    def __init__(
        self, inside: SparkInside, own: Any, context: Callable[[], Any], name: str, listing: "CatalogListing"
    ) -> None:
        """Before ``own``; ``context`` gives Spark's session of the connection."""
        super().__init__(inside)
        self._own = own
        self._context = context
        self._name = name
        self._listing = listing

    @called
    def getSchemas(self, catalog: str | None, schema: str | None) -> Any:
        """Implements ``HiveSession.getSchemas``."""
        if not self._is_ours(catalog):
            return self._own.getSchemas(catalog, schema)
        return self._rows(_SCHEMA_COLUMNS, self._listing.schemas(schema))

    @called
    def getTables(self, catalog: str | None, schema: str | None, table: str | None, kinds: Any) -> Any:
        """Implements ``HiveSession.getTables``."""
        if not self._is_ours(catalog):
            return self._own.getTables(catalog, schema, table, kinds)
        wanted = None if kinds is None else {str(each).upper() for each in kinds}
        found: list[Row] = []
        if not wanted or "TABLE" in wanted:
            found += self._listing.tables(schema, table)
        if not wanted or "VIEW" in wanted:
            found += [_table_row("", view, "VIEW", "") for view in self._views(schema, table)]
        return self._rows(_TABLE_COLUMNS, found)

    @called
    def getColumns(self, catalog: str | None, schema: str | None, table: str | None, column: str | None) -> Any:
        """Implements ``HiveSession.getColumns``."""
        if not self._is_ours(catalog):
            return self._own.getColumns(catalog, schema, table, column)
        found = [*self._listing.columns(schema, table, column)]
        for view in self._views(schema, table):
            made = T.StructType.fromJson(json.loads(self._context().table(quoted(view)).schema().json()))
            found += column_rows("", view, made, column)
        return self._rows(_COLUMN_COLUMNS, found)

    @called
    def getPrimaryKeys(self, catalog: str | None, schema: str | None, table: str | None) -> Any:
        """Implements ``HiveSession.getPrimaryKeys``."""
        if not self._is_ours(catalog):
            return self._own.getPrimaryKeys(catalog, schema, table)
        return self._rows(_KEY_COLUMNS, self._listing.keys(schema, table))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.hive.service.cli.session.HiveSession",)

    def _is_ours(self, catalog: str | None) -> bool:
        if catalog not in (None, "", "%"):
            return catalog == self._name
        return self.inside.current_catalog(self._context()) == self._name

    def _views(self, schema: str | None, table: str | None) -> Iterator[str]:
        """Temporary views of the connection, which have no schema."""
        if not is_like("", schema):
            return
        yield from (name for name in self.inside.temporary_views(self._context()) if is_like(name, table))

    def _rows(self, columns: str, rows: Sequence[Row]) -> Any:
        """The handle of a query that gives the rows."""
        names = [each.split()[0] for each in columns.split(", ")]
        text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
        coded = base64.b64encode(text.encode()).decode()
        with AsSpark():
            return self._own.executeStatement(
                f"SELECT inline(from_json(decode(unbase64('{coded}'), 'UTF-8'), 'ARRAY<STRUCT<{_fields(columns)}>>'))",
                self.inside.text_map({}),
            )


def _fields(columns: str) -> str:
    return ", ".join(": ".join(each.split()) for each in columns.split(", "))


@dataclass(frozen=True, slots=True)
class CatalogListing:
    """Databases, tables, columns and keys of a catalog, as rows of JDBC's ``DatabaseMetaData``.

    Patterns have ``%`` and ``_``; None: all.
    """

    catalog: Catalog
    system_schema: Callable[[str], T.StructType]  # of a system table, by its quoted name

    def schemas(self, schema: str | None) -> list[Row]:
        """Databases."""
        return [(name, _NO_CATALOG) for name in shown_databases(self.catalog) if is_like(name, schema)]

    def tables(self, database_like: str | None, table_like: str | None) -> list[Row]:
        """Tables with their comments."""
        found: list[Row] = []
        for database, name in self._names(database_like, table_like):
            schema = self._schema(database, name)
            comment = schema.comment if schema else None
            found.append(_table_row(database, name, "TABLE", comment or ""))
        return found

    def columns(self, database_like: str | None, table_like: str | None, column_like: str | None) -> list[Row]:
        """Columns in the order of their tables."""
        found: list[Row] = []
        for database, name in self._names(database_like, table_like):
            schema = self._schema(database, name)
            made = (
                T.StructType(list(map(_field_of, schema.fields)))
                if schema
                else self.system_schema(f"{quoted(database)}.{quoted(name)}")
            )
            found += column_rows(database, name, made, column_like)
        return found

    def keys(self, database_like: str | None, table_like: str | None) -> list[Row]:
        """Columns of primary keys."""
        found: list[Row] = []
        for database, name in self._names(database_like, table_like):
            schema = self._schema(database, name)
            keys = schema.primary_keys if schema else ()
            found += [(_NO_CATALOG, database, name, key, number, None) for number, key in enumerate(keys, 1)]
        return found

    def _schema(self, database: str, name: str) -> TableSchema | None:
        """The stored schema of a table; None: a system table."""
        whole = f"{database}.{name}"
        return None if is_system_table(self.catalog, whole) else self.catalog.described(whole).schema

    def _names(self, schema: str | None, table: str | None) -> Iterator[tuple[str, str]]:
        for database in shown_databases(self.catalog):
            if is_like(database, schema):
                yield from ((database, each) for each in self.catalog.list_tables(database) if is_like(each, table))


def _field_of(field: DataField) -> T.StructField:
    """A column as Spark lists it: texts with their lengths."""
    found, limit = described_schema([field])[0], limit_of(field.type)
    if limit is not None:
        found.dataType = (T.CharType if field.type.root == "CHAR" else T.VarcharType)(limit)
    return found


def is_like(name: str, pattern: str | None) -> bool:
    r"""Whether a name is meant by a pattern of JDBC, in any case: ``%``, ``_``, and ``\`` before one that is itself."""
    if pattern is None or pattern in ("", "%", "*"):
        return True
    parts = re.findall(r"\\.|.", pattern, re.S)
    words = {"%": ".*", "*": ".*", "_": "."}
    text = "".join(words.get(each) or re.escape(each[-1]) for each in parts)
    return re.fullmatch(text, name, re.I | re.S) is not None


def column_rows(database: str, table: str, schema: T.StructType, column: str | None) -> list[Row]:
    """The columns of a table that a pattern means, as ``DatabaseMetaData.getColumns`` gives them."""
    found: list[Row] = []
    for number, field in enumerate(schema.fields, 1):
        if not is_like(field.name, column):
            continue
        kind = field.dataType
        code, size, digits = _facts_of(kind)
        radix = 10 if isinstance(kind, T.NumericType) else None
        comment, unused = field.metadata.get("comment", ""), None
        found.append(
            (
                *(None, database, table, field.name, code, sql_type(kind, _written), size, unused, digits, radix),
                *(int(field.nullable), comment, unused, unused, unused, unused, number),
                *("YES" if field.nullable else "NO", unused, unused, unused, unused, "NO"),
            )
        )
    return found


def _facts_of(kind: T.DataType) -> tuple[int, int | None, int | None]:
    if isinstance(kind, T.DecimalType):
        return _DECIMAL, 8 if kind.precision <= _LONG_DIGITS else 16, kind.scale
    code, size, digits = _TYPES.get(type(kind), _OTHER)
    if isinstance(kind, T.CharType):
        size = kind.length
    if isinstance(kind, T.StructType):
        sizes = [_facts_of(each.dataType)[1] for each in kind.fields]
        size = None if None in sizes else sum(each or 0 for each in sizes)
    return code, size, digits


def _written(name: str) -> str:
    """A name as Spark writes it in types: in backquotes where it needs them."""
    return name if re.fullmatch(r"\w*[A-Za-z_]\w*", name, re.A) else quoted(name)


def _table_row(database: str, name: str, kind: str, comment: str) -> Row:
    return (_NO_CATALOG, database, name, kind, comment, None, None, None, None, None)
