"""``TableCatalog``, namespaces and procedures of a session, over a catalog of Fluvial."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.replacement import Replacement, WantedTable
from engine.request.read_keys import BATCH_KEYS, CHANGES_OPTION, STREAM_KEYS
from engine.spark.catalog.planned.table_changes import BYTES_COLLATION, COMMENT, SPARKS_PROPERTIES, table_changes
from engine.spark.catalog.procedure import PROCEDURE, PROCEDURE_SPACE, StatementProcedure
from engine.spark.catalog.proxy import Proxy, called
from engine.spark.catalog.session_state import CatalogSession
from engine.spark.catalog.statements import Statements
from engine.spark.catalog.table import StagedTableProxy, TableProxy
from engine.spark.changes_reader import COMMIT_VERSION, ChangesRequest, columns_of_changes, own_options
from engine.spark.data_source import FORMAT_NAME
from engine.spark.read_options import spelled_options
from engine.spark_internals.catalog import SparkInside
from engine.system_tables.catalog_tables import shown_databases
from engine.system_tables.names import has_namespace, is_system_table
from engine.system_tables.read import no_rows_error
from engine.table import Table
from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import fields_of_spark
from filestore.catalog.catalog import DEFAULT_DATABASE
from filestore.diff.version_range import Bound
from filestore.layout.branch_names import split_branch
from filestore.options.log_place import BUCKET_KEY
from filestore.schema.schema_store import PATH_KEY
from lsm.errors import InvalidInputError

# ---- ``CHANGES`` and ``.changes()``: what Spark asks a catalog for a table's changes by, as options of the source


_NONE: Final = "NONE"
_NET: Final = "NET_CHANGES"


class ChangelogProxy(Proxy):
    """The changes of one table between two bounds. They are exact, so Spark has only net changes to compute."""

    def __init__(
        self,
        session: CatalogSession,
        name: str,
        columns: StructType,
        keys: Sequence[str],
        place: Mapping[str, str],
        request: ChangesRequest,
    ) -> None:
        """The changes of a table, with these columns; ``keys``: the primary key, () for none."""
        super().__init__(session.inside)
        self._name = name
        self._columns = columns
        self._keys = keys
        self._options = {**place, CHANGES_OPTION: request.to_option()}

    # ---- what Spark calls

    def name(self) -> str:
        """Implements ``name`` of Spark's interface."""
        return f"{self._name} changes"

    @called
    def columns(self) -> Any:
        """Implements ``columns`` of Spark's interface."""
        return self.inside.columns(self.inside.struct(self._columns))

    def containsCarryoverRows(self) -> bool:
        """Spark's: rows that are only rewritten are left out already."""
        return False

    def containsIntermediateChanges(self) -> bool:
        """Spark's: a row of a key may change in several versions; without a key rows have no identity."""
        return bool(self._keys)

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        """Spark's: they have the form that was asked for already."""
        return False

    @called
    def rowId(self) -> Any:
        """Spark's: the primary key."""
        return self.references(self._keys)

    @called
    def rowVersion(self) -> Any:
        """Spark's: a row of a key changes at most once in a version."""
        return self.references([COMMIT_VERSION])[0]

    @called
    def newScanBuilder(self, options: Any) -> Any:
        """Spark's: of its own table over the source."""
        given = own_options(self.inside.texts_by_key(options.asCaseSensitiveMap()))
        table = self.inside.python_table(self.inside.struct(self._columns), FORMAT_NAME)
        return table.newScanBuilder(self.inside.options({**given, **self._options}))

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.catalog.Changelog",)


def changes_request(context: Any) -> ChangesRequest:
    """The request in Spark's context: the range, and how several changes of a row become one."""
    found = context.range()
    mode = str(context.deduplicationMode().name())
    start: Bound | None = None
    end: Bound | None = None
    kind = found.getClass().getSimpleName()
    if kind == "VersionRange":
        start = Bound(version=str(found.startingVersion()), is_inclusive=found.startingBoundInclusive())
        if found.endingVersion().isPresent():
            end = Bound(version=str(found.endingVersion().get()), is_inclusive=found.endingBoundInclusive())
    elif kind == "TimestampRange":
        start = Bound(time_us=int(found.startingTimestamp()), is_inclusive=found.startingBoundInclusive())
        if found.endingTimestamp().isPresent():
            end = Bound(time_us=int(found.endingTimestamp().get()), is_inclusive=found.endingBoundInclusive())
    return ChangesRequest(
        start=start,
        end=end,
        shows_updates=bool(context.computeUpdates()),
        keeps_carryovers=mode == _NONE,
        folds_expired=mode == _NET,
    )


# ---- What Spark wants of a table when it asks a catalog for it, as options of a read


STATE_KEYS: Final = tuple(sorted({*BATCH_KEYS, *STREAM_KEYS}))
"""Options that say which state is read, and in which columns."""

_VERSION: Final = "scan.version"
_TIME: Final = "scan.timestamp"
_MICROS: Final = 1000  # in a millisecond
_CONTEXT: Final = "TableContext"
_OPTIONS: Final = "CaseInsensitiveStringMap"
_KINDS: Final = (_CONTEXT, _OPTIONS)  # of the two that Spark gives since 4.3


def travel_options(inside: SparkInside, wanted: Sequence[Any]) -> Mapping[str, str]:
    """What Spark wants besides the newest state.

    Args:
        inside: of the JVM.
        wanted: behind the identifier: nothing, privileges of a write, a version, a time in microseconds; or the
            context that has one of these, and options (4.3).
    """
    found: dict[str, str] = {}
    kinds = _KINDS if len(wanted) == len(_KINDS) else ()
    for place, each in enumerate(wanted):
        if isinstance(each, str):
            return {_VERSION: each}
        if isinstance(each, int):
            return {_TIME: str(each // _MICROS)}
        kind = kinds[place] if kinds else each.getClass().getSimpleName()
        if kind == _CONTEXT:
            if not each.writePrivileges().isEmpty():
                return {}
            travel = each.timeTravel()
            found |= _of(travel.get()) if travel.isPresent() else {}
        elif kind == _OPTIONS:
            found |= spelled_options(inside.texts_by_key(each.asCaseSensitiveMap()))
    return found


def _of(travel: Any) -> Mapping[str, str]:
    if travel.getClass().getSimpleName() == "AsOfVersion":
        return {_VERSION: travel.version()}
    return {_TIME: str(travel.micros() // _MICROS)}


# ---- ``TableCatalog``, namespaces and procedures of a session, over a catalog of Fluvial


_FORMATS: Final = (FORMAT_NAME, "paimon", "parquet")
_DEFAULT_SOURCE: Final = "spark.sql.sources.default"  # which df.write.saveAsTable names where no format is given
_PRIMARY_KEY: Final = "primary-key"
_OF_CHANGES: Final = frozenset({ROW_KIND_COLUMN, *(each.value for each in MetadataColumn)})


class CatalogProxy(Proxy):
    """A catalog of one session."""

    def __init__(self, session: CatalogSession, name: str, catalog: Catalog, statements: Statements) -> None:
        """Under a name in a session."""
        super().__init__(session.inside)
        self._session = session
        self._name = name
        self._catalog = catalog
        self._statements = statements

    # ---- the catalog

    def initialize(self, name: str, options: Any) -> None:
        """Called by Spark once it has the catalog; the constructor has initialized all."""

    def name(self) -> str:
        """Implements ``name`` of Spark's interface."""
        return self._name

    @called
    def defaultNamespace(self) -> Any:
        """Implements ``defaultNamespace`` of Spark's interface."""
        return self.inside.texts([DEFAULT_DATABASE])

    @called
    def capabilities(self) -> Any:
        """Spark's: none of what it would check."""
        return self.inside.set_of([])

    @called
    def tableStateOptionKeys(self) -> Any:
        """Spark's: options of a read on which the columns depend (4.3)."""
        return self._state_keys

    @cached_property
    def _state_keys(self) -> Any:
        return self.inside.set_of(STATE_KEYS)

    @called
    def changelogStateOptionKeys(self) -> Any:
        """Implements ``changelogStateOptionKeys`` of Spark's interface."""
        return self.inside.set_of([])

    def useNullableQuerySchema(self) -> bool:
        """Spark's: columns of a query may be null in the table that is made for it."""
        return True

    # ---- tables

    @called
    def tableExists(self, identifier: Any) -> bool:
        """Implements ``tableExists`` of Spark's interface."""
        return self._exists(self._full_name(identifier))

    def invalidateTable(self, identifier: Any) -> None:
        """Invalidate cached metadata of a table; there is no cache."""

    @called
    def listTables(self, namespace: Any) -> Any:
        """Implements ``listTables`` of Spark's interface."""
        database = self._database(namespace)
        return self.inside.identifiers(database, self._catalog.list_tables(database))

    @called
    def listTableSummaries(self, namespace: Any) -> Any:
        """Implements ``listTableSummaries`` of Spark's interface."""
        database = self._database(namespace)
        kind, of = self.inside.of_catalog("TableSummary"), self.inside.of_catalog("Identifier").of
        space = self.inside.texts([database])
        names = self._catalog.list_tables(database)
        return self.inside.array(kind, [kind.of(of(space, name), "MANAGED") for name in names])

    @called
    def loadTable(self, identifier: Any, *wanted: Any) -> TableProxy:
        """Spark's: maybe of a version, of a time, or to write."""
        name = self._full_name(identifier)
        return self._opened(identifier, name, travel_options(self.inside, wanted))

    @called
    def loadChangelog(self, identifier: Any, context: Any, *_: Any) -> ChangelogProxy:
        """Spark's: a table's changes between two versions or times (4.2; with options since 4.3)."""
        name = self._full_name(identifier)
        proxy = self._opened(identifier, name, {})
        table = proxy.open_table
        if table is None:
            raise InvalidInputError(f"a system table has no changes: table={name} fix='name the table itself'")
        request = changes_request(context)
        return ChangelogProxy(
            self._session,
            name,
            columns_of_changes(table.files, request),
            table.schema.primary_keys,
            proxy.place,
            request,
        )

    @called
    def createTable(self, identifier: Any, info: Any, *_: Any) -> TableProxy:
        """Spark's: for a flow of a declarative pipeline."""
        name = self._free_name(identifier)
        return TableProxy(self._session, self._catalog, name, {}, self._made(name, info))

    @called
    def createTableLike(self, identifier: Any, info: Any, *_: Any) -> TableProxy:
        """Spark's: where the parser left the statement to Spark, because another format makes the table."""
        raise InvalidInputError(
            f"tables of this catalog are Fluvial's: catalog={self._name} table={identifier.name()} "
            "fix='CREATE TABLE ... LIKE ... without USING and STORED AS'"
        )

    @called
    def stageCreate(self, identifier: Any, info: Any, *_: Any) -> StagedTableProxy:
        """Spark's: for a frame that is written to a table that does not exist."""
        return self._staged(self._free_name(identifier), info, None)

    @called
    def stageReplace(self, identifier: Any, info: Any, *_: Any) -> StagedTableProxy:
        """Spark's: for a frame that takes the place of a table."""
        name = self._full_name(identifier)
        if not self._exists(name):
            raise self.inside.about("NoSuchTable", identifier)
        return self._replacing(name, info)

    @called
    def stageCreateOrReplace(self, identifier: Any, info: Any, *_: Any) -> StagedTableProxy:
        """Implements ``stageCreateOrReplace`` of Spark's interface."""
        name = self._full_name(identifier)
        if self._exists(name):
            return self._replacing(name, info)
        return self._staged(self._free_name(identifier), info, None)

    @called
    def supportedCustomMetrics(self) -> Any:
        """Spark's: none."""
        return self.inside.array(self.inside.named("org.apache.spark.sql.connector.metric.CustomMetric"), [])

    def _staged(self, name: str, info: Any, replacement: Replacement | None) -> StagedTableProxy:
        """A table that is filled: in the place of a table that is not there, or beside one."""
        place = name if replacement is None else replacement.beside
        made = self._made(place, info, replacement)
        return StagedTableProxy(self._session, self._catalog, place, made, replacement)

    def _replacing(self, name: str, info: Any) -> StagedTableProxy:
        """A table beside the old one; where names do not change in one step, the old one with other rows."""
        if not self._catalog.can_rename_tables:
            old, wanted = self._catalog.table(name), self._wanted(info)
            if wanted.is_shape_of(old.schema):
                return StagedTableProxy(self._session, self._catalog, name, old, None, is_old=True)
        return self._staged(name, info, Replacement.of(self._catalog, name))

    def _free_name(self, identifier: Any) -> str:
        """The name of a new table. Raises: Spark's error: there is one, or there is no database for it."""
        name = self._full_name(identifier)
        if self._exists(name):
            raise self.inside.about("TableAlreadyExists", identifier)
        if not has_namespace(self._catalog, name.partition(".")[0]):
            raise self.inside.about("NoSuchNamespace", identifier.namespace())
        return name

    def _made(self, name: str, info: Any, replacement: Replacement | None = None) -> Table:
        """A new table with the columns of a frame."""
        wanted = self._wanted(info)
        own = {} if replacement is None else replacement.own_options(wanted.options)
        return self._catalog.create_table(
            name,
            wanted.fields,
            primary_key=wanted.primary_key,
            partition_by=wanted.partition_by,
            options={**wanted.options, **own},
            comment=wanted.comment,
            case_sensitive=True,  # whether it counts in the session was looked at
        )

    def _wanted(self, info: Any) -> WantedTable:
        schema = StructType.fromJson(json.loads(info.schema().json()))
        properties = self.inside.texts_by_key(info.properties())
        self._check_own(properties)
        names, own = self._session.names, schema.fieldNames()
        names.check_distinct(own, "the columns of the table")
        given = properties.pop(_PRIMARY_KEY, "").split(",")
        place = {PATH_KEY: properties["location"]} if "location" in properties else {}
        keys = [names.meant(each.strip(), own) for each in given if each.strip()]
        return WantedTable(
            fields=_with_keys(schema, keys),
            primary_key=keys,
            partition_by=[names.meant(_partition_column(each), own) for each in info.partitions()],
            comment=properties.pop(COMMENT, None),
            options={key: value for key, value in properties.items() if _is_option(key)} | place,
        )

    def _check_own(self, properties: Mapping[str, str]) -> None:
        """Raises: InvalidInputError: the new table is to be another format's, or elsewhere."""
        given = properties.get("provider", FORMAT_NAME).lower()
        if given not in (*_FORMATS, self._session.open_spark().conf.get(_DEFAULT_SOURCE, "")):
            raise InvalidInputError(
                f"tables of this catalog are Fluvial's: catalog={self._name} format={given} "
                "fix='leave USING or format(...) out; the option file.format says how files are written'"
            )
        collation = properties.get("collation", BYTES_COLLATION)
        if collation.upper() != BYTES_COLLATION:
            raise InvalidInputError(
                f"a table compares texts by their bytes: collation={collation} "
                "fix='leave DEFAULT COLLATION out, and write COLLATE in the query'"
            )

    @called
    def alterTable(self, identifier: Any, *changes: Any) -> TableProxy:
        """Spark's: by declarative pipelines, which keep properties and add columns; SQL is Fluvial's."""
        name = self._full_name(identifier)
        before = self._opened(identifier, name, {}).table
        if before is None:
            raise no_rows_error(name)
        wanted = table_changes(before.schema, [each for part in changes for each in part])
        made = self._catalog.alter_table(name, wanted) if wanted else before
        return TableProxy(self._session, self._catalog, name, {}, made)

    @called
    def dropTable(self, identifier: Any) -> bool:
        """Implements ``dropTable`` of Spark's interface."""
        name = given = self._given_name(identifier)
        if not self._exists(given):
            name = self._session.names.table(given, self._catalog)
            if name == given or not self._exists(name):
                return False
        self._catalog.drop_table(name, if_exists=True)
        return True

    @called
    def purgeTable(self, identifier: Any) -> bool:
        """Implements ``purgeTable`` of Spark's interface."""
        return self.dropTable(identifier)

    @called
    def renameTable(self, identifier: Any, new: Any) -> None:
        """Implements ``renameTable`` of Spark's interface."""
        self._catalog.rename_table(self._full_name(identifier), self._full_name(new))

    # ---- namespaces

    @called
    def listNamespaces(self, *parent: Any) -> Any:
        """Spark's: databases have no parts."""
        if parent and len(parent[0]):
            self._database(parent[0])
            return self.inside.namespaces([])
        return self.inside.namespaces(shown_databases(self._catalog))

    @called
    def namespaceExists(self, namespace: Any) -> bool:
        """Spark's; the one that a session begins in is always there."""
        name = self._session.names.database(self.inside.dotted(namespace), self._catalog)
        return has_namespace(self._catalog, name)

    @called
    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        """Implements ``loadNamespaceMetadata`` of Spark's interface."""
        self._database(namespace)
        return self.inside.jvm.java.util.HashMap()

    @called
    def createNamespace(self, namespace: Any, metadata: Any) -> None:
        """Implements ``createNamespace`` of Spark's interface."""
        self._catalog.create_database(".".join(namespace))

    @called
    def alterNamespace(self, namespace: Any, *changes: Any) -> None:
        """Implements ``alterNamespace`` of Spark's interface."""
        raise InvalidInputError(f"a database of Fluvial has no properties: database={'.'.join(namespace)}")

    @called
    def dropNamespace(self, namespace: Any, cascade: bool) -> bool:
        """Implements ``dropNamespace`` of Spark's interface."""
        self._catalog.drop_database(self._database(namespace), cascade=cascade)
        return True

    # ---- procedures

    @called
    def loadProcedure(self, identifier: Any) -> StatementProcedure:
        """Spark's: all others never get here, the parser takes them."""
        if self._given_name(identifier) != f"{PROCEDURE_SPACE}.{PROCEDURE}":
            raise InvalidInputError(f"no such procedure: procedure={identifier.toString()}")
        return StatementProcedure(self._session, self._name, self._statements)

    @called
    def listProcedures(self, namespace: Any) -> Any:
        """Implements ``listProcedures`` of Spark's interface."""
        return self.inside.identifiers(PROCEDURE_SPACE, [])

    # ---- functions: with none of its own, those of Spark are listed where the catalog is the current one

    @called
    def listFunctions(self, namespace: Any) -> Any:
        """Implements ``listFunctions`` of Spark's interface."""
        return self.inside.identifiers(DEFAULT_DATABASE, [])

    @called
    def loadFunction(self, identifier: Any) -> Any:
        """Implements ``loadFunction`` of Spark's interface."""
        raise self.inside.about("NoSuchFunction", identifier)

    def functionExists(self, identifier: Any) -> bool:
        """Implements ``functionExists`` of Spark's interface."""
        return False

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.catalog.StagingTableCatalog",
            "org.apache.spark.sql.connector.catalog.SupportsNamespaces",
            "org.apache.spark.sql.connector.catalog.ProcedureCatalog",
            "org.apache.spark.sql.connector.catalog.FunctionCatalog",
        )

    def _full_name(self, identifier: Any) -> str:
        name = self._given_name(identifier)
        return name if self._exists(name) else self._session.names.table(name, self._catalog)

    def _given_name(self, identifier: Any) -> str:
        return ".".join(self.inside.parts_of(identifier))

    def _opened(self, identifier: Any, name: str, state: Mapping[str, str]) -> TableProxy:
        """The table of a name, opened once for the statement.

        Raises: Spark's error: there is none. InvalidInputError: the table is there, and its branch is not.
        """
        if is_system_table(self._catalog, name):
            return TableProxy(self._session, self._catalog, name, state, None)
        try:
            table = self._catalog.described(name)
        except InvalidInputError:
            base, branch = split_branch(name)
            if self._exists(name) or (branch is not None and self._exists(base)):
                raise
            raise self.inside.about("NoSuchTable", identifier) from None
        return TableProxy(self._session, self._catalog, name, state, table)

    def _exists(self, name: str) -> bool:
        try:
            return is_system_table(self._catalog, name) or self._catalog.table_exists(name)
        except InvalidInputError:  # not a name that a table can have
            return False

    def _database(self, namespace: Any) -> str:
        name = self._session.names.database(self.inside.dotted(namespace), self._catalog)
        if not has_namespace(self._catalog, name):
            raise self.inside.about("NoSuchNamespace", namespace)
        return name


def _is_option(key: str) -> bool:
    """Whether a property of a new table is an option of Fluvial's; Spark gives its own too, and options twice."""
    return key not in SPARKS_PROPERTIES and key != "option" and not key.startswith("option.")


def _with_keys(schema: StructType, keys: Sequence[str]) -> Any:
    """The columns, without those of changes; those of the key are never null."""
    own = [field for field in schema.fields if field.name.lower() not in _OF_CHANGES]
    for field in own:
        if field.name in keys:
            field.nullable = False
    return fields_of_spark(StructType(own))


def _partition_column(transform: Any) -> str:
    """The column of ``partitionedBy(column)``. Raises: InvalidInputError: another transform."""
    if transform.name() != "identity":
        raise InvalidInputError(
            f"a table is partitioned by columns: transform={transform.toString()} "
            f'fix=\'.tableProperty("{BUCKET_KEY}", "4") for buckets, a column for a part of a time\''
        )
    return ".".join(transform.references()[0].fieldNames())
