"""``DESCRIBE``: the columns, options and size of a table.

``spark.sql`` says types and facts in Spark's words, which tools read, and what is Fluvial's behind them.
"""

import datetime
import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.dialect.ddl.column_changes import resolved_path
from engine.dialect.ddl.ddl_text import shown_options, type_text
from engine.dialect.ddl.partition_spec import check_complete, named_partitions, nearest_partitions
from engine.dialect.ddl.table_parts import WATERMARK_EXPRESSION, TableParts
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.grammar.statements import DescribeDatabase, DescribeHistory, DescribeTable, Watermark
from engine.dialect.query.query import run_query
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import described, opened
from engine.dialect.scope.results import texts_table
from engine.log.table_log import TableLog
from engine.request.writer_options import EVEN_UNTRACKED
from engine.system_tables.names import has_database, is_system_table
from engine.table import Table
from engine.types.quoting import quoted
from engine.types.spark_types import described_schema
from engine.types.text_length import limit_of
from engine.write.event_time import fixed_delay, local_moment
from filestore.changelog.untracked import is_untracked
from filestore.compact.compactor import pick_tasks
from filestore.datafile.schema_mapping import map_ranges
from filestore.format.statistics import ColumnRange
from filestore.iceberg.places import iceberg_state
from filestore.layout.branch_names import SEPARATOR
from filestore.layout.paths import MAIN_BRANCH, partition_path
from filestore.maintenance.partitions import path_of
from filestore.maintenance.table_statistics import statistics_of
from filestore.manifest.file_ranges import ranges_of
from filestore.options.parsing import not_valid
from filestore.options.rules import CHECK_PREFIX
from filestore.options.secrets import without_secrets
from filestore.options.stored_expressions import check_expression
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.snapshot_files import live_files
from filestore.schema.column_paths import field_at
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, arrow_scalar
from lsm.errors import InvalidInputError, MissingDatabaseError
from lsm.nearest_names import did_you_mean

# ---- The watermark of a table's rows: how far it is complete in event time


def latest_watermark(context: SqlContext, table: Table, watermark: Watermark) -> str | None:
    """The value of the watermark expression for the newest event time; None before the first row.

    Watermarks never decrease, so the newest event time gives the highest. Forms like ``ts - INTERVAL '5' SECOND`` are
    computed here, others by Spark.
    """
    newest = _newest(table, watermark.column)
    if newest is None:
        return None
    delay = fixed_delay(watermark.expression, watermark.column)
    shifted = None if delay is None else newest - delay
    if shifted is None:
        shifted = _by_spark(context, table.schema.field(watermark.column), watermark, newest)
    return None if shifted is None else shifted.isoformat(sep=" ", timespec="milliseconds")


def _newest(table: Table, column: str) -> datetime.datetime | None:
    """From the statistics of files; rows are read only where statistics are missing."""
    store, field = table.store, table.schema.field(column)
    newest = []
    for entry in live_files(store, table.latest_snapshot()):
        file, written = entry.file, store.schema_of(entry.file.schema_id)
        known = map_ranges(ranges_of(file, written), written, table.schema, file.row_count).get(column, ColumnRange())
        if known.max is not None:
            newest.append(known.max)
        elif known.null_count != file.row_count:
            return _newest_of_rows(table, column)
    return local_moment(arrow_scalar(max(newest), field.type)) if newest else None


def _newest_of_rows(table: Table, column: str) -> datetime.datetime | None:
    found = [local_moment(pc.max(rows.column(0))) for rows in table.read().to_batches(columns=[column])]
    return max((each for each in found if each is not None), default=None)


def _by_spark(
    context: SqlContext, field: DataField, watermark: Watermark, newest: datetime.datetime
) -> datetime.datetime | None:
    try:
        check_expression(watermark.expression)
    except ValueError as error:
        raise not_valid(WATERMARK_EXPRESSION, watermark.expression, error) from error
    word = "TIMESTAMP_NTZ"
    row = context.spark.range(1).select(F.lit(newest.isoformat(sep=" ")).cast(word).alias(field.name))
    found: datetime.datetime | None = row.select(F.expr(watermark.expression).cast(word)).collect()[0][0]
    return found


# ---- ``DESCRIBE``: the columns, options and size of a table


_COLUMNS = ("col_name", "data_type", "comment")
_PARTITIONS: Final = "# Partition Information"
_MANAGED: Final = "MANAGED"
DescribeRow = tuple[str, str | None, str | None]


def describe_table(context: SqlContext, statement: DescribeTable) -> pa.Table:
    """Columns; with EXTENDED also options and statistics; with PARTITION those of one partition."""
    name = context.full_name(*statement.name)
    if is_system_table(context.catalog, name):
        return _describe_system(context, name, statement)
    table = described(context, statement.name)
    if statement.as_json:
        return texts_table(("json_metadata",), [(json.dumps(_as_json(context, table), ensure_ascii=False),)])
    if statement.column:
        field = field_at(table.schema, resolved_path(table.schema, statement.column, context.names))
        return texts_table(("info_name", "info_value"), _column_facts(context, field))
    if statement.partition is not None:
        check_complete(table.store, statement.partition)
        live = LiveFiles.latest(table.store)
        partitions = sorted({key.partition for key in live.buckets()})
        found = named_partitions(table.store, statement.partition, partitions)
        if not found:
            raise InvalidInputError(
                f"no such partition: table={table.name} "
                f"{nearest_partitions(table.store, statement.partition, partitions)}"
            )
        where: list[DescribeRow] = [("partition", path_of(table.store, found[0]).replace("/", ","), None)]
        return texts_table(_COLUMNS, [*where, *_partition_rows(table, live, found[0])])
    rows: list[DescribeRow] = list(_column_rows(context, table))
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        named: list[DescribeRow] = [("name", f"{context.catalog_name}.{table.name}", None)]
        facts = [*_sparks_facts(context, table)] if context.is_sparks_own else named
        if table.closed is not None:
            return texts_table(_COLUMNS, [*rows, *facts, *_closed_rows(table)])
        rows += [*facts, *_table_rows(context, table)]
        if not table.schema.partition_keys:
            live = LiveFiles.latest(table.store)
            shown = {row[0] for row in rows[len(table.schema.fields) :]}
            partition = next((key.partition for key in live.buckets()), None)
            rows += [row for row in _partition_rows(table, live, partition) if row[0] not in shown]
    return texts_table(_COLUMNS, rows)


def describe_history(context: SqlContext, statement: DescribeHistory) -> pa.Table:
    """The snapshots of a table, newest first: the rows of its system table ``snapshots``."""
    table = opened(context, statement.name)
    found = context.catalog.system_table(f"{table.name}{SEPARATOR}snapshots").to_arrow()
    newest = found.sort_by([("snapshot_id", "descending")])
    return newest if statement.limit is None else newest.slice(0, statement.limit)


def describe_database(context: SqlContext, statement: DescribeDatabase) -> pa.Table:
    """The location of a database."""
    name = context.database_name(statement.name)
    databases = context.catalog.list_databases()
    if not has_database(context.catalog, name):
        raise MissingDatabaseError(f"no such database: database={name}{did_you_mean(name, databases)}")
    rows = [("Catalog Name", context.catalog_name), ("Namespace Name", name)]
    if name in databases:
        rows.append(("Location", f"{context.catalog.warehouse}/{name}.db"))
    else:
        rows.append(("Comment", "tables that every catalog has; they are only read"))
    if statement.extended:
        rows.append(("Tables", str(len(context.catalog.list_tables(name)))))
    return texts_table(("info_name", "info_value"), rows)


def _describe_system(context: SqlContext, name: str, statement: DescribeTable) -> pa.Table:
    if statement.partition is not None:
        raise InvalidInputError(f"a system table has no partitions: table={name}")
    read = context.catalog.system_table(name)
    if statement.column:
        field = field_at(read.table_schema, statement.column)
        return texts_table(("info_name", "info_value"), _column_facts(context, field))
    rows: list[DescribeRow] = [_column_row(context, field) for field in read.table_schema.fields]
    if statement.extended:
        rows += [("", "", ""), ("# Detailed Table Information", "", "")]
        rows.append(("name", f"{context.catalog_name}.{read.name}", None))
    return texts_table(_COLUMNS, rows)


def _column_rows(context: SqlContext, table: Table) -> Iterable[DescribeRow]:
    schema, parts = table.schema, TableParts.of(table.schema.options)
    for field in schema.fields:
        yield _column_row(context, field)
    if parts.computed and context.is_sparks_own:
        types = _query_types(context, table)
        yield from ((each.name, types[each.name], each.comment or f"AS {each.expression}") for each in parts.computed)
    else:
        yield from ((each.name, f"AS {each.expression}", each.comment) for each in parts.computed)
    if parts.watermark is not None and not context.is_sparks_own:
        yield "# Watermark", "", ""
        yield parts.watermark.column, f"AS {parts.watermark.expression}", None
    is_plain = not context.is_sparks_own  # tools take what is before the partitions for columns
    checks = _checks(schema) if is_plain else []
    if checks:
        yield "# Constraints", "", ""
        yield from ((name, f"CHECK ({text})", None) for name, text in checks)
    keys = schema.primary_keys if is_plain else ()
    for title, names in (("# Primary Key", keys), (_PARTITIONS, schema.partition_keys)):
        if names:
            yield title, "", ""
            if context.is_sparks_own:
                yield "# col_name", "data_type", "comment"
            for field in schema.fields_of(names):
                yield _column_row(context, field)


def _column_row(context: SqlContext, field: DataField) -> DescribeRow:
    return field.name, _type_words(context, field), field.description


def _type_words(context: SqlContext, field: DataField) -> str:
    if not context.is_sparks_own:
        return type_text(field.type)
    if limit_of(field.type) is not None:
        return f"{field.type.root.lower()}({field.type.length})"
    return str(described_schema([field])[0].dataType.simpleString())


def _query_types(context: SqlContext, table: Table) -> dict[str, str]:
    """The types of all columns, computed ones too, as a query has them."""
    name = ".".join(map(quoted, (context.catalog_name, *table.name.split("."))))
    (query,) = parse_statements(f"SELECT * FROM {name}")
    return {field.name: field.dataType.simpleString() for field in run_query(context, query).schema.fields}


def _column_facts(context: SqlContext, field: DataField) -> list[tuple[str, str | None]]:
    given = [
        ("col_name", field.name),
        ("data_type", _type_words(context, field)),
        ("comment", field.description),
        ("default", field.default_value),
    ]
    if not context.is_sparks_own:
        return given
    return [(name, "NULL" if value is None else value) for name, value in given if value or name != "default"]


def _sparks_facts(context: SqlContext, table: Table) -> Iterable[DescribeRow]:
    """What Spark says of each table, by its names."""
    from engine.spark.data_source import FORMAT_NAME

    database, _, name = table.name.partition(".")
    yield "Name", f"{context.catalog_name}.{table.name}", ""
    yield "Catalog", context.catalog_name, ""
    yield "Database", database, ""
    yield "Table", name, ""
    yield "Owner", table.schema.options.get("owner", ""), ""
    yield "Type", _MANAGED, ""
    yield "Provider", FORMAT_NAME, ""
    if table.schema.comment:
        yield "Comment", table.schema.comment, ""
    if table.schema.primary_keys:
        yield "Primary Key", ",".join(table.schema.primary_keys), ""
    for constraint, text in _checks(table.schema):
        yield f"Constraint {constraint}", f"CHECK ({text})", ""
    watermark = TableParts.of(table.schema.options).watermark
    if watermark is not None:
        yield "Watermark", f"{watermark.column} AS {watermark.expression}", ""
    shown = ",".join(f"{key}={value}" for key, value in shown_options(table).items())
    yield "Table Properties", f"[{shown}]", ""
    yield "Location", table.store.paths.root, ""


def _checks(schema: TableSchema) -> list[tuple[str, str]]:
    return [
        (key.removeprefix(CHECK_PREFIX), text)
        for key, text in sorted(schema.options.items())
        if key.startswith(CHECK_PREFIX)
    ]


def _as_json(context: SqlContext, table: Table) -> dict[str, Any]:
    """``DESCRIBE EXTENDED ... AS JSON``: by Spark's keys."""
    from engine.spark.data_source import FORMAT_NAME

    schema, (database, _, name) = table.schema, table.name.partition(".")
    found: dict[str, Any] = {
        "table_name": name,
        "catalog_name": context.catalog_name,
        "namespace": [database],
        "schema_name": database,
        "columns": [_column_json(field) for field in schema.fields],
        "location": table.store.paths.root,
        "type": _MANAGED,
        "provider": FORMAT_NAME,
    }
    if schema.comment:
        found["comment"] = schema.comment
    found["table_properties"] = dict(shown_options(table))
    if schema.partition_keys:
        found["partition_columns"] = list(schema.partition_keys)
    if schema.primary_keys:
        found["primary_key"] = list(schema.primary_keys)
    return found


def _column_json(field: DataField) -> dict[str, Any]:
    limit = limit_of(field.type)
    kind = (
        {"name": field.type.root.lower(), "length": limit}
        if limit
        else _type_json(described_schema([field])[0].dataType)
    )
    found: dict[str, Any] = {"name": field.name, "type": kind, "nullable": field.type.nullable}
    others = {"comment": field.description, "default": field.default_value}
    return {**found, **{key: text for key, text in others.items() if text is not None}}


def _type_json(kind: T.DataType) -> dict[str, Any]:
    match kind:
        case T.StructType():
            fields = [_field_json(each) for each in kind.fields]
            return {"name": "struct", "fields": fields}
        case T.ArrayType():
            inside = _type_json(kind.elementType)
            return {"name": "array", "element_type": inside, "element_nullable": kind.containsNull}
        case T.MapType():
            key, value = _type_json(kind.keyType), _type_json(kind.valueType)
            return {"name": "map", "key_type": key, "value_type": value, "value_nullable": kind.valueContainsNull}
        case T.DecimalType():
            return {"name": "decimal", "precision": kind.precision, "scale": kind.scale}
        case T.StringType():
            return {"name": "string", "collation": kind.collation}
        case T.TimestampType():
            return {"name": "timestamp_ltz"}
        case _:
            return {"name": kind.simpleString()}


def _field_json(field: T.StructField) -> dict[str, Any]:
    found = {"name": field.name, "type": _type_json(field.dataType), "nullable": field.nullable}
    comment = field.metadata.get("comment")
    return {**found, "comment": comment} if comment else found


def _closed_rows(table: Table) -> Iterable[DescribeRow]:
    """Facts about a table whose rows cannot be reached: what is stored, as it is."""
    yield "problem", table.closed, None
    yield "file.path", table.store.paths.root, None
    for key, text in without_secrets(table.schema.options).items():
        yield key, text, None


def _table_rows(context: SqlContext, table: Table) -> Iterable[DescribeRow]:
    """Facts about a table, named like its options."""
    options = table.options
    log = TableLog.of(table.files, EVEN_UNTRACKED)
    if (main := table.main_branch) != MAIN_BRANCH:
        yield "main-branch", main, None
    yield "log.system", options.log_system, None
    if log:
        yield "log.consistency", options.log_consistency, None
        yield "log.changelog-mode", options.log_changelog_mode, None
        yield "log.format", options.log_format, None
    yield "log.kafka.bootstrap.servers", options.log_kafka.get("bootstrap.servers") if log else None, None
    yield "log.retention", options.shown().get("log.retention") if log else None, None
    yield "log.kafka.topic", log.topic if log else None, None
    yield "file.path", table.store.paths.root, None
    yield "file.format", options.file_format, None
    yield "bucket", str(options.bucket), None
    yield "change-tracking", _flag(options.change_tracking), None
    iceberg = iceberg_state(table.store)
    if iceberg is not None:
        yield "metadata.iceberg", str(iceberg), None
    statistics = statistics_of(table.store, table.latest_snapshot())
    if statistics is not None:
        yield "Statistics", f"{statistics.size_bytes} bytes, {statistics.row_count} rows", None
        yield "statistics.snapshot", str(statistics.snapshot_id), None
    watermark = TableParts.of(table.schema.options).watermark
    if watermark is not None:
        yield "watermark", latest_watermark(context, table, watermark), None


def _partition_rows(table: Table, live: LiveFiles, partition: bytes | None) -> Iterable[DescribeRow]:
    """Facts about one partition; an unpartitioned table has one, which is None before the first row."""
    keys = [key for key in live.buckets() if key.partition == partition]
    yield "file.path", _directory(table, partition), None
    yield "last-modified", _last_modified(live, keys), None
    yield "compacted", _flag(not pick_tasks(table.store, live, keys=keys, full=True)), None
    is_tracked = partition is None or not is_untracked(table.store, table.schema.table_options, partition)
    yield "change-tracking", _flag(table.options.change_tracking and is_tracked), None
    yield "num-files", str(sum(live.file_count(key) for key in keys)), None


def _directory(table: Table, partition: bytes | None) -> str:
    store = table.store
    if partition is None or not store.schema.partition_keys:
        return store.paths.root
    path = partition_path(store.partition_values(partition), store.schema.partition_fields, store.options)
    return f"{store.paths.root}/{path}"


def _last_modified(live: LiveFiles, keys: list[BucketKey]) -> str | None:
    """Creation time of the newest file, by its writer's clock."""
    times = [file.creation_time_ms or 0 for key in keys for file in live.files(key)]
    if not times:
        return None
    moment = pa.scalar(max(times), pa.timestamp("ms")).as_py()
    return str(moment.isoformat(sep=" ", timespec="milliseconds"))


def _flag(is_on: bool) -> str:
    return "true" if is_on else "false"
