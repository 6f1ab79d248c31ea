"""Apache Paimon for Java, the reference implementation, as a peer."""

import datetime
import importlib.util
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError

from engine.broker.jars import fetch_jars
from tests.peers import Condition, Row, TableDefinition, normalise
from tests.peers.java_rows import KIND_COLUMN, dump, feed
from tests.peers.jvm import Jvm

PAIMON_COORDINATES: Final = ("org.apache.paimon:paimon-bundle:1.4.2",)
LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "paimon-jars.lock"
JDBC_COORDINATES: Final = ("org.postgresql:postgresql:42.7.8@jar",)
JDBC_LOCK_FILE: Final = LOCK_FILE.with_name("jdbc-jars.lock")

# Hadoop's configuration classes, which the bundle expects to find; pyspark's other jars would only clash with its own
_SPARK_JARS: Final = ("hadoop-client-api-*", "hadoop-client-runtime-*")
_TABLE: Final = "table.Table"
_CATALOG: Final = "catalog.Catalog"
_CONSUMERS: Final = "consumer.ConsumerManager"
_READ_BUILDER: Final = "table.source.ReadBuilder"
_PREDICATE_BUILDER: Final = "predicate.PredicateBuilder"
_OBJECT: Final = "java.lang.Object"
_PREDICATES: Final = {
    "=": "equal",
    "<>": "notEqual",
    "<": "lessThan",
    "<=": "lessOrEqual",
    ">": "greaterThan",
    ">=": "greaterOrEqual",
    "starts_with": "startsWith",
}


def paimon_jars() -> tuple[Path, ...]:
    """Paimon's bundle, what it needs, and a driver of PostgreSQL; fetched once and checked against their lock files."""
    return (*fetch_jars(PAIMON_COORDINATES, LOCK_FILE), *fetch_jars(JDBC_COORDINATES, JDBC_LOCK_FILE))


class JavaPeer:
    """Paimon in a Java virtual machine of its own. `tests.peers.Peer`, and: compact, expire, tags, changes, alter."""

    name = "java"

    def __init__(self, jvm: Jvm | None = None, options: Mapping[str, str] | None = None) -> None:
        """Start the machine: half a second, and the first read two more, so keep it for the session.

        Args:
            jvm: one that runs, with Paimon in its class path; None starts one.
            options: of the catalog, besides the warehouse.
        """
        self._options = {"cache-enabled": "false", **(options or {})}  # others change the table between two calls
        self._opened: tuple[str, Any] | None = None  # the warehouse that was asked last, and its catalog
        if jvm is not None:
            self._jvm = jvm
            return
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        spark_jars = Path(spark.origin).parent / "jars"
        hadoop = [next(spark_jars.glob(f"{name}.jar")) for name in _SPARK_JARS]
        self._jvm = Jvm([*paimon_jars(), *hadoop], gateway_jar=next(spark_jars.glob("py4j-*.jar")))

    def close(self) -> None:
        """End the machine."""
        self._jvm.close()

    def create(self, warehouse: Path, table: str, definition: TableDefinition) -> None:
        """Create the table, and its database when missing."""
        fields = [{"id": number, "name": name, "type": kind} for number, (name, kind) in enumerate(definition.columns)]
        # a schema file is the one notation for types that all sides share: Java parses it, and gives new ids
        schema_file = {"version": 3, "id": 0, "fields": fields, "highestFieldId": 1 << 20, "timeMillis": 0}
        schema_file |= {"partitionKeys": [], "primaryKeys": [], "options": {}}
        jvm = self._jvm
        with jvm.errors():
            builder = jvm.paimon.schema.Schema.newBuilder()
            for field in jvm.paimon.schema.TableSchema.fromJson(json.dumps(schema_file)).fields():
                builder.column(field.name(), field.type())
            builder.primaryKey(jvm.java_list(definition.primary_key))
            builder.partitionKeys(jvm.java_list(definition.partition_by))
            builder.options(jvm.java_map(definition.options))
            catalog = self._catalog(warehouse)
            jvm.call(catalog, _CATALOG, "createDatabase", table.split(".")[0], True)
            jvm.call(catalog, _CATALOG, "createTable", self._identifier(table), builder.build(), False)

    def read(
        self,
        warehouse: Path,
        table: str,
        *,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        options: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows, see `Peer.read`."""
        dynamic = dict(options or {}) | ({} if snapshot_id is None else {"scan.snapshot-id": str(snapshot_id)})
        if columns is None:
            return normalise(self.read_arrow(warehouse, table, where=where, options=dynamic).drop([KIND_COLUMN]))
        # Paimon loses every row when it filters by a column that it does not read
        needed = list(dict.fromkeys([*columns, *(condition[0] for condition in where)]))
        return normalise(
            self.read_arrow(warehouse, table, columns=needed, where=where, options=dynamic).select(columns)
        )

    def changes(self, warehouse: Path, table: str, *, after: int, until: int) -> list[tuple[int, Row]]:
        """Kinds and rows of the changelog between two snapshots, in the order of Paimon's reader."""
        rows = self.read_arrow(warehouse, table, options={"incremental-between": f"{after},{until}"})
        kinds, values = rows.column(KIND_COLUMN).to_pylist(), rows.drop([KIND_COLUMN])
        return [(kind, normalise(values.slice(index, 1))[0]) for index, kind in enumerate(kinds)]

    def read_arrow(
        self,
        warehouse: Path,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows in the order of Paimon's reader, after a first column `KIND_COLUMN` (int8)."""
        jvm = self._jvm
        with jvm.errors(), tempfile.TemporaryDirectory(prefix="java-peer-") as work:
            found = self._table(warehouse, table, options or {})
            row_type = jvm.call(found, _TABLE, "rowType")
            builder = jvm.call(found, _TABLE, "newReadBuilder")
            if columns is not None:
                indices = [row_type.getFieldIndex(name) for name in columns]
                builder = jvm.call(builder, _READ_BUILDER, "withProjection", jvm.java_array("int", indices))
            if where:
                predicates = jvm.java_list([self._predicate(row_type, condition) for condition in where])
                builder = jvm.call(builder, _READ_BUILDER, "withFilter", predicates)
            splits = self._splits(builder)
            read = jvm.call(jvm.call(builder, _READ_BUILDER, "newRead"), "table.source.TableRead", "executeFilter")
            reader = jvm.call(read, "table.source.TableRead", "createReader", splits)
            return dump(jvm, reader, jvm.call(builder, _READ_BUILDER, "readType"), Path(work) / "rows.parquet")

    def write(self, warehouse: Path, table: str, rows: pa.Table, *, kinds: Sequence[int] | None = None) -> None:
        """Write and commit rows, see `Peer.write`. Paimon may compact as it does so, unless the table is write-only."""
        given = [0] * rows.num_rows if kinds is None else list(kinds)
        with self._jvm.errors(), tempfile.TemporaryDirectory(prefix="java-peer-") as work:
            found = self._table(warehouse, table, {})
            row_type = self._jvm.call(found, _TABLE, "rowType")

            def fill(write: Any) -> None:
                feed(self._jvm, rows, given, row_type, write, Path(work) / "rows.parquet")

            self._commit(found, work, fill)

    def statistics(self, warehouse: Path, table: str) -> tuple[int, int, dict[str, dict[str, Any]]]:
        """What ANALYZE found, as Paimon understands it: rows, bytes, and by column what is known, values as texts."""
        jvm = self._jvm
        with jvm.errors():
            found = jvm.call(self._table(warehouse, table, {}), _TABLE, "statistics").get()
            names = ("distinctCount", "nullCount", "avgLen", "maxLen")
            columns: dict[str, dict[str, Any]] = {}
            for name, column in dict(found.colStats()).items():
                numbers = {each: getattr(column, each)() for each in names}
                columns[name] = {each: value.getAsLong() for each, value in numbers.items() if value.isPresent()}
                ends = {each: getattr(column, each)() for each in ("min", "max")}
                columns[name] |= {each: str(value.get()) for each, value in ends.items() if value.isPresent()}
            return found.mergedRecordCount().getAsLong(), found.mergedRecordSize().getAsLong(), columns

    def compact(self, warehouse: Path, table: str) -> None:
        """Compact every bucket fully and commit; of a table without buckets, the small files of each partition."""
        jvm = self._jvm
        with jvm.errors(), tempfile.TemporaryDirectory(prefix="java-peer-") as work:
            found = self._table(warehouse, table, {"write-only": "false", "compaction.min.file-num": "2"})
            if not jvm.call(found, _TABLE, "primaryKeys") and found.coreOptions().bucket() == -1:
                self._compact_appended(found)
                return
            reader = jvm.call(found, "table.DataTable", "newSnapshotReader")
            # all buckets, also those whose files a reader cannot see before they are compacted (first-row)
            entries = jvm.call(reader, "table.source.snapshot.SnapshotReader", "bucketEntries")

            def fill(write: Any) -> None:
                for entry in entries:
                    jvm.call(write, "table.sink.TableWrite", "compact", entry.partition(), entry.bucket(), True)

            self._commit(found, work, fill)

    def _compact_appended(self, found: Any) -> None:
        """As Paimon's procedure does: rows keep their ids."""
        jvm = self._jvm
        try:
            tasks = jvm.paimon.append.AppendCompactCoordinator(found, False).run()
        except Py4JError as error:
            if "EndOfScanException" in str(error):  # no files
                return
            raise
        write = jvm.call(jvm.call(found, "table.FileStoreTable", "store"), "FileStore", "newWrite", "java-peer")
        if found.coreOptions().rowTrackingEnabled():
            row_type = jvm.paimon.table.SpecialFields.rowTypeWithRowTracking(jvm.call(found, _TABLE, "rowType"))
            jvm.call(write, "operation.FileStoreWrite", "withWriteType", row_type)
        builder = jvm.call(found, _TABLE, "newBatchWriteBuilder")
        commit = jvm.call(builder, "table.sink.BatchWriteBuilder", "newCommit")
        try:
            messages = jvm.java_list([task.doCompact(found, write) for task in tasks])
            jvm.call(commit, "table.sink.BatchTableCommit", "commit", messages)
        finally:
            jvm.call(write, "operation.FileStoreWrite", "close")
            jvm.call(commit, "java.lang.AutoCloseable", "close")

    def write_columns(self, warehouse: Path, table: str, rows: pa.Table, *, first_row_id: int) -> None:
        """Other values of some columns of rows that are there, from an id on; of a table with data evolution."""
        jvm = self._jvm
        with jvm.errors(), tempfile.TemporaryDirectory(prefix="java-peer-") as work:
            found = self._table(warehouse, table, {})
            whole = jvm.call(found, _TABLE, "rowType")
            row_type = whole.project(jvm.java_list(rows.column_names))

            def fill(write: Any) -> None:
                jvm.call(write, "table.sink.BatchTableWrite", "withWriteType", row_type)
                feed(jvm, rows, [0] * rows.num_rows, row_type, write, Path(work) / "rows.parquet")

            self._commit(found, work, fill, first_row_id=first_row_id)

    def expire(self, warehouse: Path, table: str, *, retain: int) -> int:
        """Expire all but the newest `retain` snapshots, and what the table says of changelogs; how many went."""
        jvm = self._jvm
        kept = {"snapshot.num-retained.max": str(retain), "snapshot.num-retained.min": "1"}
        with jvm.errors():
            found = self._table(warehouse, table, {**kept, "snapshot.time-retained": "0 ms"})
            expire = jvm.call(found, _TABLE, "newExpireSnapshots")
            expire = jvm.call(expire, "table.ExpireSnapshots", "config", found.coreOptions().expireConfig())
            return int(jvm.call(expire, "table.ExpireSnapshots", "expire"))

    def consumers(self, warehouse: Path, table: str) -> dict[str, int]:
        """The next snapshot of every named reader."""
        jvm = self._jvm
        with jvm.errors():
            found = dict(jvm.call(self._consumers(warehouse, table), _CONSUMERS, "consumers"))
        return {str(name): int(next_snapshot) for name, next_snapshot in found.items()}

    def reset_consumer(self, warehouse: Path, table: str, name: str, next_snapshot: int) -> None:
        """Note the place of a named reader."""
        jvm = self._jvm
        with jvm.errors():
            place = jvm.paimon.consumer.Consumer(next_snapshot)
            jvm.call(self._consumers(warehouse, table), _CONSUMERS, "resetConsumer", name, place)

    def create_tag(self, warehouse: Path, table: str, name: str, *, snapshot_id: int) -> None:
        """Tag a snapshot."""
        with self._jvm.errors():
            self._jvm.call(self._table(warehouse, table, {}), _TABLE, "createTag", name, snapshot_id)

    def delete_tag(self, warehouse: Path, table: str, name: str) -> None:
        """Delete a tag, and what Java takes for its files."""
        with self._jvm.errors():
            self._jvm.call(self._table(warehouse, table, {}), _TABLE, "deleteTag", name)

    def clean_orphans(self, warehouse: Path, table: str, *, before_ms: int) -> int:
        """Delete files that Java knows no reference to and that were last changed before a time; how many went."""
        jvm = self._jvm
        with jvm.errors():
            clean = jvm.paimon.operation.LocalOrphanFilesClean(self._table(warehouse, table, {}), before_ms, False)
            result = jvm.call(clean, "operation.LocalOrphanFilesClean", "clean")
            return int(jvm.call(result, "operation.CleanOrphanFilesResult", "getDeletedFileCount"))

    def create_branch(self, warehouse: Path, table: str, branch: str, *, tag: str | None = None) -> None:
        """Make a branch of a tag, or an empty one."""
        with self._jvm.errors():
            found = self._table(warehouse, table, {})
            if tag is None:
                self._jvm.call(found, _TABLE, "createBranch", branch)
            else:
                self._jvm.call(found, _TABLE, "createBranch", branch, tag, False)

    def alter(self, warehouse: Path, table: str, change: str, *arguments: Any) -> None:
        """One schema change: the name of a factory of Paimon's SchemaChange and its arguments (types: `data_type`)."""
        jvm = self._jvm
        with jvm.errors():
            changes = jvm.java_list([getattr(jvm.paimon.schema.SchemaChange, change)(*arguments)])
            jvm.call(self._catalog(warehouse), _CATALOG, "alterTable", self._identifier(table), changes, False)

    def option_names(self) -> list[str]:
        """The options of tables that it knows, and their older names."""
        with self._jvm.errors():
            found = self._jvm.paimon.CoreOptions.getOptions()
            return [name for each in found for name in (each.key(), *(old.getKey() for old in each.fallbackKeys()))]

    def data_type(self, text: str) -> Any:
        """A Paimon data type, for `alter`, from its text."""
        with self._jvm.errors():
            return self._jvm.paimon.types.DataTypeJsonParser.parseAtomicTypeSQLString(text)

    def with_options(self, options: Mapping[str, str]) -> "JavaPeer":
        """The same machine with other options of the catalog."""
        return JavaPeer(self._jvm, options)

    def catalog(self, options: Mapping[str, str]) -> "JavaCatalog":
        """A catalog of any kind, by its options."""
        return JavaCatalog(self._jvm, options)

    def _consumers(self, warehouse: Path, table: str) -> Any:
        return self._jvm.call(self._table(warehouse, table, {}), "table.FileStoreTable", "consumerManager")

    def _catalog(self, warehouse: Path) -> Any:
        if self._opened is None or self._opened[0] != str(warehouse):
            options = self._jvm.paimon.options.Options()
            options.set("warehouse", str(warehouse))
            for key, value in self._options.items():
                options.set(key, value)
            context = self._jvm.paimon.catalog.CatalogContext.create(options)
            self._opened = (str(warehouse), self._jvm.paimon.catalog.CatalogFactory.createCatalog(context))
        return self._opened[1]

    def _identifier(self, table: str) -> Any:
        return self._jvm.kept("identifier", lambda: self._jvm.paimon.catalog.Identifier).fromString(table)

    def _table(self, warehouse: Path, table: str, options: Mapping[str, str]) -> Any:
        found = self._jvm.call(self._catalog(warehouse), _CATALOG, "getTable", self._identifier(table))
        return self._jvm.call(found, _TABLE, "copy", self._jvm.java_map(options)) if options else found

    def _splits(self, builder: Any) -> Any:
        scan = self._jvm.call(builder, _READ_BUILDER, "newScan")
        plan = self._jvm.call(scan, "table.source.TableScan", "plan")
        return self._jvm.call(plan, "table.source.TableScan$Plan", "splits")

    def _commit(self, found: Any, work: str, fill: Callable[[Any], None], *, first_row_id: int | None = None) -> None:
        """Let `fill` use a writer whose spill files go to `work`, and commit what it wrote.

        `first_row_id`: rows with these ids are there already, and get other values.
        """
        jvm = self._jvm
        builder = jvm.call(found, _TABLE, "newBatchWriteBuilder")
        write = jvm.call(builder, "table.sink.BatchWriteBuilder", "newWrite")
        commit = jvm.call(builder, "table.sink.BatchWriteBuilder", "newCommit")
        disk = jvm.kept("disk", lambda: jvm.paimon.disk.IOManager).create(work)
        try:
            write = jvm.call(write, "table.sink.BatchTableWrite", "withIOManager", disk)
            fill(write)
            messages = jvm.call(write, "table.sink.BatchTableWrite", "prepareCommit")
            if first_row_id is not None:
                for message in messages:
                    files = message.newFilesIncrement().newFiles()
                    for place, file in enumerate(list(files)):
                        files[place] = file.assignFirstRowId(first_row_id)
            jvm.call(commit, "table.sink.BatchTableCommit", "commit", messages)
        finally:
            for resource in (write, commit, disk):
                jvm.call(resource, "java.lang.AutoCloseable", "close")

    def _predicate(self, row_type: Any, condition: Condition) -> Any:
        column, operator, value = condition
        builder = self._jvm.paimon.predicate.PredicateBuilder(row_type)
        index = builder.indexOf(column)
        if operator == "is_null":
            return builder.isNull(index)
        if operator == "is_not_null":
            return builder.isNotNull(index)
        literals = self._jvm.java_list([self._literal(one) for one in (value if operator == "in" else [value])])
        # converted without leaving Java: on the way through Python a BIGINT would become an Integer
        convert = self._jvm.static_handle(_PREDICATE_BUILDER, "convertJavaObject", _OBJECT, ["types.DataType", _OBJECT])
        literals.replaceAll(self._jvm.unary_operator(convert.bindTo(row_type.getTypeAt(index))))
        if operator == "in":
            return getattr(builder, "in")(index, literals)
        compare = self._jvm.instance_handle(
            _PREDICATE_BUILDER, _PREDICATES[operator], "predicate.Predicate", ["int", _OBJECT]
        )
        return self._jvm.first_bound(compare.bindTo(builder), index).invokeWithArguments(literals)

    def _literal(self, value: Any) -> Any:
        java = self._jvm.root.java
        match value:
            case Decimal():
                return java.math.BigDecimal(str(value))
            case datetime.datetime():
                return java.time.LocalDateTime.parse(value.replace(tzinfo=None).isoformat())
            case datetime.date():
                return java.time.LocalDate.parse(value.isoformat())
            case datetime.time():
                return java.time.LocalTime.parse(value.isoformat())
            case _:
                return value


class JavaCatalog:
    """A catalog of Paimon's: names of databases and tables, and its lock."""

    def __init__(self, jvm: Jvm, options: Mapping[str, str]) -> None:
        """Open it."""
        self._jvm = jvm
        with jvm.errors():
            given = jvm.paimon.options.Options()
            for key, value in {"cache-enabled": "false", **options}.items():
                given.set(key, value)
            context = jvm.paimon.catalog.CatalogContext.create(given)
            self._catalog = jvm.paimon.catalog.CatalogFactory.createCatalog(context)

    def create_database(self, name: str) -> None:
        """Make one that is not there."""
        self._call("createDatabase", name, False)

    def create_table(self, name: str, columns: Mapping[str, str], primary_key: Sequence[str]) -> None:
        """Make one that is not there."""
        jvm = self._jvm
        with jvm.errors():
            builder = jvm.paimon.schema.Schema.newBuilder()
            for column, text in columns.items():
                builder.column(column, jvm.paimon.types.DataTypeJsonParser.parseAtomicTypeSQLString(text))
            builder.primaryKey(jvm.java_list(primary_key))
            builder.option("bucket", "1")
            self._call("createTable", jvm.paimon.catalog.Identifier.fromString(name), builder.build(), False)

    def rename_table(self, name: str, new_name: str) -> None:
        """Give one another name."""
        identifier = self._jvm.paimon.catalog.Identifier
        self._call("renameTable", identifier.fromString(name), identifier.fromString(new_name), False)

    def drop_table(self, name: str) -> None:
        """Remove one."""
        self._call("dropTable", self._jvm.paimon.catalog.Identifier.fromString(name), False)

    def repair_database(self, name: str) -> None:
        """List what has files."""
        self._call("repairDatabase", name)

    def list_databases(self) -> list[str]:
        """Names, sorted."""
        return sorted(self._call("listDatabases"))

    def list_tables(self, database: str) -> list[str]:
        """Names, sorted."""
        return sorted(self._call("listTables", database))

    def column_names(self, table: str) -> list[str]:
        """Of a table."""
        found = self._call("getTable", self._jvm.paimon.catalog.Identifier.fromString(table))
        kind = self._jvm.call(found, _TABLE, "rowType")
        return list(self._jvm.call(kind, "types.RowType", "getFieldNames"))

    def _call(self, method: str, *arguments: Any) -> Any:
        with self._jvm.errors():
            return self._jvm.call(self._catalog, _CATALOG, method, *arguments)
