"""Apache Paimon for Java, the reference implementation, as a peer.

Rows cross between the two worlds as a Parquet file that Paimon's own reader and writer handle: one call for a whole table,
and every type as Paimon itself stores it.
"""

import datetime
import importlib.util
import json
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError

from engine.broker_jars import fetch_jars
from tests.peers import Condition, Row, TableDefinition, normalise
from tests.peers.jvm import Jvm

PAIMON_COORDINATES: Final = ("org.apache.paimon:paimon-bundle:1.4.2",)
LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "paimon-jars.lock"
KIND_COLUMN: Final = "_row_kind"

# Hadoop's configuration classes, which the bundle expects to find; pyspark's other jars would only clash with its own
_SPARK_JARS: Final = ("hadoop-client-api-*", "hadoop-client-runtime-*")
_ROW: Final = "data.InternalRow"
_TABLE: Final = "table.Table"
_STORE_TABLE: Final = "table.FileStoreTable"
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
    """Paimon's bundle and what it needs, fetched once and checked against their lock file."""
    return fetch_jars(PAIMON_COORDINATES, LOCK_FILE)


class JavaPeer:
    """Paimon in a Java virtual machine of its own. See `tests.peers.Peer`; beyond that: compact, expire, changes, alter."""

    name = "java"

    def __init__(self) -> None:
        """Start the machine: a second and a half, so keep it for the session."""
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        spark_jars = Path(spark.origin).parent / "jars"
        jars = [next(spark_jars.glob(f"{name}.jar")) for name in _SPARK_JARS]
        self._jvm = Jvm([*paimon_jars(), *jars], gateway_jar=next(spark_jars.glob("py4j-*.jar")))

    def close(self) -> None:
        """End the machine."""
        self._jvm.close()

    def create(self, warehouse: Path, table: str, definition: TableDefinition) -> None:
        """Create the table, and its database when missing."""
        fields = [{"id": number, "name": name, "type": kind} for number, (name, kind) in enumerate(definition.columns)]
        text = json.dumps(fields)
        try:
            paimon = self._jvm.paimon
            # a schema file's text is the one notation for types that both sides share; parsed by Java, ids are given anew
            parsed = paimon.schema.TableSchema.fromJson(
                json.dumps(
                    {"version": 3, "id": 0, "fields": json.loads(text), "highestFieldId": 1 << 20, "timeMillis": 0}
                    | {"partitionKeys": [], "primaryKeys": [], "options": {}}
                )
            )
            builder = paimon.schema.Schema.newBuilder()
            for field in parsed.fields():
                builder.column(field.name(), field.type())
            builder.primaryKey(self._jvm.java_list(definition.primary_key)).partitionKeys(
                self._jvm.java_list(definition.partition_by)
            )
            builder.options(dict(definition.options))
            catalog = self._catalog(warehouse)
            database = table.split(".")[0]
            self._jvm.call(catalog, "catalog.Catalog", "createDatabase", database, True)
            self._jvm.call(catalog, "catalog.Catalog", "createTable", self._identifier(table), builder.build(), False)
        except Py4JError as error:
            raise self._jvm.error(error) from error

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
        return normalise(
            self.read_arrow(warehouse, table, columns=columns, where=where, options=dynamic).drop([KIND_COLUMN])
        )

    def changes(self, warehouse: Path, table: str, *, after: int, until: int) -> list[tuple[int, Row]]:
        """Kinds and rows of the changelog between two snapshots, in the order of Paimon's reader."""
        rows = self.read_arrow(warehouse, table, options={"incremental-between": f"{after},{until}"})
        return [
            (kind, normalise(rows.slice(index, 1).drop([KIND_COLUMN]))[0])
            for index, kind in enumerate(rows.column(KIND_COLUMN).to_pylist())
        ]

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
        try:
            found = self._table(warehouse, table, options or {})
            builder = self._jvm.call(found, _TABLE, "newReadBuilder")
            row_type = self._jvm.call(found, _TABLE, "rowType")
            if columns is not None:
                indices = [row_type.getFieldIndex(name) for name in columns]
                builder = self._jvm.call(
                    builder, "table.source.ReadBuilder", "withProjection", self._jvm.java_array("int", indices)
                )
            if where:
                predicates = self._jvm.java_list([self._predicate(row_type, one) for one in where])
                builder = self._jvm.call(builder, "table.source.ReadBuilder", "withFilter", predicates)
            scan = self._jvm.call(builder, "table.source.ReadBuilder", "newScan")
            plan = self._jvm.call(scan, "table.source.TableScan", "plan")
            splits = self._jvm.call(plan, "table.source.TableScan$Plan", "splits")
            read = self._jvm.call(builder, "table.source.ReadBuilder", "newRead")
            read = self._jvm.call(read, "table.source.TableRead", "executeFilter")
            reader = self._jvm.call(read, "table.source.TableRead", "createReader", splits)
            with tempfile.TemporaryDirectory(prefix="java-peer-") as work:
                path = Path(work) / "rows.parquet"
                self._dump(reader, self._jvm.call(builder, "table.source.ReadBuilder", "readType"), path)
                return pq.read_table(path)
        except Py4JError as error:
            raise self._jvm.error(error) from error

    def write(self, warehouse: Path, table: str, rows: pa.Table, *, kinds: Sequence[int] | None = None) -> None:
        """Write and commit rows, see `Peer.write`. Paimon may compact as it does so, unless the table is write-only."""
        given = [0] * rows.num_rows if kinds is None else list(kinds)
        with tempfile.TemporaryDirectory(prefix="java-peer-") as work:
            path = Path(work) / "rows.parquet"
            _write_parquet(rows.append_column(KIND_COLUMN, pa.array(given, pa.int8())), path)
            try:
                found = self._table(warehouse, table, {})
                names = [field.name() for field in self._jvm.call(found, _TABLE, "rowType").getFields()]
                self._commit(found, Path(work), lambda write: self._feed(found, path, names, rows.column_names, write))
            except Py4JError as error:
                raise self._jvm.error(error) from error

    def compact(self, warehouse: Path, table: str) -> None:
        """Compact every bucket fully and commit."""
        try:
            found = self._table(warehouse, table, {"write-only": "false"})
            builder = self._jvm.call(found, _TABLE, "newReadBuilder")
            plan = self._jvm.call(
                self._jvm.call(builder, "table.source.ReadBuilder", "newScan"), "table.source.TableScan", "plan"
            )
            splits = self._jvm.call(plan, "table.source.TableScan$Plan", "splits")
            buckets = {
                (split.partition().hashCode(), split.bucket()): (split.partition(), split.bucket()) for split in splits
            }

            def compact_all(write: Any) -> None:
                for partition, bucket in buckets.values():
                    self._jvm.call(write, "table.sink.TableWrite", "compact", partition, bucket, True)

            with tempfile.TemporaryDirectory(prefix="java-peer-") as work:
                self._commit(found, Path(work), compact_all)
        except Py4JError as error:
            raise self._jvm.error(error) from error

    def expire(self, warehouse: Path, table: str, *, retain: int) -> int:
        """Expire all but the newest `retain` snapshots; how many went."""
        try:
            found = self._table(warehouse, table, {})
            config = self._jvm.paimon.options.ExpireConfig.builder()
            config = (
                config.snapshotRetainMax(retain)
                .snapshotRetainMin(1)
                .snapshotTimeRetain(self._jvm.root.java.time.Duration.ZERO)
            )
            expire = self._jvm.call(found, _TABLE, "newExpireSnapshots")
            expire = self._jvm.call(expire, "table.ExpireSnapshots", "config", config.build())
            return int(self._jvm.call(expire, "table.ExpireSnapshots", "expire"))
        except Py4JError as error:
            raise self._jvm.error(error) from error

    def create_tag(self, warehouse: Path, table: str, name: str, *, snapshot_id: int) -> None:
        """Tag a snapshot."""
        try:
            self._jvm.call(self._table(warehouse, table, {}), _TABLE, "createTag", name, snapshot_id)
        except Py4JError as error:
            raise self._jvm.error(error) from error

    def alter(self, warehouse: Path, table: str, change: str, *arguments: Any) -> None:
        """Apply one schema change: a factory of Paimon's SchemaChange and its arguments; a type is given as `java_type(…)`."""
        try:
            made = getattr(self._jvm.paimon.schema.SchemaChange, change)(*arguments)
            catalog = self._catalog(warehouse)
            self._jvm.call(
                catalog, "catalog.Catalog", "alterTable", self._identifier(table), self._jvm.java_list([made]), False
            )
        except Py4JError as error:
            raise self._jvm.error(error) from error

    def java_type(self, text: str) -> Any:
        """A Paimon data type from its text, for `alter`."""
        return self._jvm.paimon.types.DataTypeJsonParser.parseAtomicTypeSQLString(text)

    def _catalog(self, warehouse: Path) -> Any:
        options = self._jvm.paimon.options.Options()
        options.set("warehouse", str(warehouse))
        # no cache: other engines change the table between two calls
        options.set("cache-enabled", "false")
        context = self._jvm.paimon.catalog.CatalogContext.create(options)
        return self._jvm.paimon.catalog.CatalogFactory.createCatalog(context)

    def _identifier(self, table: str) -> Any:
        return self._jvm.paimon.catalog.Identifier.fromString(table)

    def _table(self, warehouse: Path, table: str, options: Mapping[str, str]) -> Any:
        found = self._jvm.call(self._catalog(warehouse), "catalog.Catalog", "getTable", self._identifier(table))
        return self._jvm.call(found, _TABLE, "copy", self._map(options)) if options else found

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.root.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def _predicate(self, row_type: Any, condition: Condition) -> Any:
        column, operator, value = condition
        builder = self._jvm.paimon.predicate.PredicateBuilder(row_type)
        index = builder.indexOf(column)
        data_type = row_type.getTypeAt(index)
        convert = self._jvm.paimon.predicate.PredicateBuilder.convertJavaObject
        if operator == "is_null":
            return builder.isNull(index)
        if operator == "is_not_null":
            return builder.isNotNull(index)
        if operator == "in":
            return getattr(builder, "in")(
                index, self._jvm.java_list([convert(data_type, self._java_value(one)) for one in value])
            )
        return getattr(builder, _PREDICATES[operator])(index, convert(data_type, self._java_value(value)))

    def _java_value(self, value: Any) -> Any:
        java = self._jvm.root.java
        if isinstance(value, Decimal):
            return java.math.BigDecimal(str(value))
        if isinstance(value, datetime.datetime):
            return java.time.LocalDateTime.parse(value.replace(tzinfo=None).isoformat())
        if isinstance(value, datetime.date):
            return java.time.LocalDate.parse(value.isoformat())
        if isinstance(value, datetime.time):
            return java.time.LocalTime.parse(value.isoformat())
        return value

    def _dump(self, reader: Any, row_type: Any, path: Path) -> None:
        """Write a reader's rows, each after its kind, to a Parquet file with Paimon's writer."""
        jvm, types = self._jvm, self._jvm.paimon.types
        kind_field = types.DataField(1 << 20, KIND_COLUMN, types.DataTypes.TINYINT())
        dumped = types.RowType(jvm.java_list([kind_field, *row_type.getFields()]))
        out = jvm.call(self._file_io(), "fs.FileIO", "newOutputStream", self._path(path), True)
        factory = self._parquet().createWriterFactory(dumped)
        writer = jvm.call(factory, "format.FormatWriterFactory", "create", out, "zstd")
        # row -> writer.addElement(new JoinedRow(GenericRow.of((Object) row.getRowKind().toByteValue()), row))
        kind = jvm.handles.filterReturnValue(
            jvm.instance_handle(_ROW, "getRowKind", "types.RowKind"),
            jvm.instance_handle("types.RowKind", "toByteValue", "byte"),
        )
        one = jvm.static_handle("data.GenericRow", "of", "data.GenericRow", ["[Ljava.lang.Object;"])
        one = jvm.retyped(one.asCollector(jvm.java_class("[Ljava.lang.Object;"), 1), _ROW, ["java.lang.Object"])
        kind_row = jvm.handles.filterReturnValue(jvm.retyped(kind, "java.lang.Object", [_ROW]), one)
        join = jvm.retyped(jvm.constructor_handle("data.JoinedRow", [_ROW, _ROW]), _ROW, [_ROW, _ROW])
        add = jvm.instance_handle("format.FormatWriter", "addElement", "void", [_ROW]).bindTo(writer)
        each = jvm.handles.filterReturnValue(jvm.handles.foldArguments(join, kind_row), add)
        try:
            jvm.call(reader, "reader.RecordReader", "forEachRemaining", jvm.consumer(each))
        finally:
            jvm.call(reader, "reader.RecordReader", "close")
        jvm.call(writer, "java.io.Closeable", "close")
        jvm.call(out, "java.io.Closeable", "close")

    def _feed(self, found: Any, path: Path, names: Sequence[str], given: Sequence[str], write: Any) -> None:
        """Read a Parquet file, whose last column holds the kinds, with Paimon's reader and write its rows to the table."""
        jvm, types = self._jvm, self._jvm.paimon.types
        fields = {field.name(): field for field in jvm.call(found, _TABLE, "rowType").getFields()}
        kind_field = types.DataField(1 << 20, KIND_COLUMN, types.DataTypes.TINYINT())
        row_type = types.RowType(jvm.java_list([*(fields[name] for name in given), kind_field]))
        factory = self._parquet().createReaderFactory(row_type, row_type, jvm.java_list([]))
        context = jvm.paimon.format.FormatReaderContext(self._file_io(), self._path(path), path.stat().st_size)
        reader = jvm.call(factory, "format.FormatReaderFactory", "createReader", context)
        # row -> { row.setRowKind(RowKind.fromByteValue(row.getByte(last))); write.write(projected.replaceRow(row)) }
        byte = jvm.handles.insertArguments(
            jvm.instance_handle(_ROW, "getByte", "byte", ["int"]), 1, jvm.java_array("java.lang.Object", [len(given)])
        )
        kind = jvm.handles.filterReturnValue(
            byte, jvm.static_handle("types.RowKind", "fromByteValue", "types.RowKind", ["byte"])
        )
        set_kind = jvm.instance_handle(_ROW, "setRowKind", "void", ["types.RowKind"])
        swapped = jvm.handles.permuteArguments(
            set_kind,
            kind.type()
            .changeReturnType(jvm.java_class("void"))
            .insertParameterTypes(0, jvm.java_array("java.lang.Class", [jvm.java_class("types.RowKind")])),
            jvm.java_array("int", [1, 0]),
        )
        marked = jvm.handles.foldArguments(swapped, kind)
        mapping = jvm.java_array("int", [list(given).index(name) if name in given else -1 for name in names])
        projected = jvm.paimon.utils.ProjectedRow.__getattr__("from")(mapping)
        project = jvm.instance_handle("utils.ProjectedRow", "replaceRow", "utils.ProjectedRow", [_ROW]).bindTo(
            projected
        )
        put = jvm.instance_handle("table.sink.TableWrite", "write", "void", [_ROW]).bindTo(write)
        send = jvm.handles.filterReturnValue(jvm.retyped(project, _ROW, [_ROW]), put)
        each = jvm.handles.foldArguments(send, marked)
        try:
            jvm.call(reader, "reader.RecordReader", "forEachRemaining", jvm.consumer(each))
        finally:
            jvm.call(reader, "reader.RecordReader", "close")

    def _commit(self, found: Any, work: Path, fill: Any) -> None:
        jvm = self._jvm
        builder = jvm.call(found, _TABLE, "newBatchWriteBuilder")
        write = jvm.call(builder, "table.sink.BatchWriteBuilder", "newWrite")
        commit = jvm.call(builder, "table.sink.BatchWriteBuilder", "newCommit")
        disk = jvm.paimon.disk.IOManager.create(str(work))
        try:
            write = jvm.call(write, "table.sink.BatchTableWrite", "withIOManager", disk)
            fill(write)
            messages = jvm.call(write, "table.sink.BatchTableWrite", "prepareCommit")
            jvm.call(commit, "table.sink.BatchTableCommit", "commit", messages)
        finally:
            jvm.call(write, "java.lang.AutoCloseable", "close")
            jvm.call(commit, "java.lang.AutoCloseable", "close")
            jvm.call(disk, "java.lang.AutoCloseable", "close")

    def _file_io(self) -> Any:
        return self._jvm.paimon.fs.local.LocalFileIO.create()

    def _path(self, path: Path) -> Any:
        return self._jvm.paimon.fs.Path(str(path))

    def _parquet(self) -> Any:
        return self._jvm.paimon.format.FileFormat.fromIdentifier("parquet", self._jvm.paimon.options.Options())


def _write_parquet(rows: pa.Table, path: Path) -> None:
    """Write rows with the physical types that Paimon's reader expects: see paimon-format, "Rules that cost data"."""
    nanos = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in rows.schema.types)
    pq.write_table(rows, path, store_decimal_as_integer=True, use_deprecated_int96_timestamps=nanos, compression="zstd")
