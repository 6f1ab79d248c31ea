"""The source of a pipeline for Spark's reader: format, options, columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from engine.checkpoint.admission import CHECKPOINT
from engine.deploy.config.job_config import LOG_PREFIX, JobConfig
from engine.deploy.config.pipeline_config import FILE_FORMATS, FLUVIAL, KAFKA, LIMIT_OPTIONS, PipelineConfig
from engine.deploy.config.table_config import data_fields_of
from engine.kafka.options import (
    KafkaSourceOptions,
    NewTypes,
    PartialDeletesRule,
    Truncates,
    UnavailableValues,
    ValueFormat,
)
from engine.kafka.source import KafkaSource
from engine.request.read_keys import STREAM_KEYS
from engine.spark.data_source import FORMAT_NAME as FLUVIAL_FORMAT
from engine.spark.read_options import ReadOptions, given_to_reader, spelled_options, stream_options
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.types.spark_types import spark_schema
from filestore.evolution.schema_merge import MergeRules
from filestore.options.catalog_options import CatalogOptions
from filestore.options.log_login import login_of
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.schema.merge_engine import needs_deleted_values
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, walk
from logstore.format.debezium import GUESS
from lsm.errors import InvalidInputError

_BROKERS: Final = "kafka.bootstrap.servers"
WAREHOUSE: Final = "warehouse"
_TABLE: Final = "table"
_CHANGELOG: Final = "read.changelog"
_VALUE_FORMAT: Final = "value.format"
_KEY_COLUMNS: Final = "key.columns"
_UNAVAILABLE: Final = "unavailable-values"
_TRUNCATES: Final = "truncates"
_UPDATE_BEFORE: Final = "update-before"
_PARTIAL_DELETES: Final = "partial-deletes"
_DEBEZIUM: Final = frozenset({ValueFormat.DEBEZIUM_JSON.value, ValueFormat.DEBEZIUM_AVRO.value})
_EPOCH_UNITS: Final = "epoch-units"
_TIME_SWITCH: Final = "spark.sql.timeType.enabled"
_SUMMING: Final = frozenset({"sum", "count", "product", "collect", "listagg"})
_TIMESTAMPS: Final = ("TIMESTAMP", "TIMESTAMP_LTZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec:
    """Arguments of Spark's reader."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    schema: T.StructType | None  # None: the source has its own schema


def source_options(config: JobConfig, pipeline: PipelineConfig) -> dict[str, str]:
    """Source options, completed from the rest of the job: limits, brokers, warehouse."""
    source = pipeline.source
    options = dict(source.options)
    names = LIMIT_OPTIONS.get(source.format, {})
    options |= {names[limit]: str(value) for limit, value in pipeline.limits.given().items()}
    if source.format == KAFKA:
        options = {**_of_log(config, options), **options}
    elif source.format == FLUVIAL:
        catalog = CatalogOptions.parse(config.catalog_options)
        is_here = options.get(WAREHOUSE, config.warehouse) == config.warehouse
        options = {**catalog.given, **(login_of(catalog.table_defaults) if is_here else {}), **options}
        options.setdefault(WAREHOUSE, config.warehouse)
        options.setdefault(_CHANGELOG, "true")
    return options


def _of_log(config: JobConfig, own: Mapping[str, str]) -> dict[str, str]:
    """Options of a source from the job's ``log:``: the address, and its login unless the source has its own."""
    log = CatalogOptions.parse(config.catalog_options).table_defaults
    brokers = log.get(f"{LOG_PREFIX}{_BROKERS}")
    if brokers is None or own.get(_BROKERS, brokers) != brokers:
        return {}
    if login_of({f"{LOG_PREFIX}{key}": value for key, value in own.items()}):
        return {_BROKERS: brokers}  # parts of two logins are none
    login = {key.removeprefix(LOG_PREFIX): value for key, value in login_of(log).items()}
    return {_BROKERS: brokers, **{key: value for key, value in login.items() if key.startswith("kafka.")}}


def kafka_options(config: JobConfig, pipeline: PipelineConfig) -> KafkaSourceOptions | None:
    """The parsed options of a source of topics; None for other sources. Raises: InvalidInputError."""
    if pipeline.source.format != KAFKA:
        return None
    return KafkaSourceOptions.parse(source_options(config, pipeline))


def source_table(config: JobConfig, pipeline: PipelineConfig) -> str | None:
    """The table that a source reads; None for other sources."""
    return source_options(config, pipeline).get(_TABLE) if pipeline.source.format == FLUVIAL else None


def check_source(config: JobConfig, pipeline: PipelineConfig) -> None:
    """Check a source without accessing it.

    Raises:
        InvalidInputError: a source option is unknown, missing, or has an invalid value.
    """
    source, options = pipeline.source, source_options(config, pipeline)
    kafka_options(config, pipeline)
    if source.format == FLUVIAL and not options.get(_TABLE):
        raise InvalidInputError(f"no table to read: option={_TABLE} fix=set it to database.table")
    if source.format == FLUVIAL and source.columns:
        raise InvalidInputError(
            "the table has its own columns: format=fluvial fix=remove columns, or select in transform"
        )
    if source.format == FLUVIAL:
        given_to_reader(spelled_options(options), STREAM_KEYS)
    if source.format == KAFKA and options.get(_VALUE_FORMAT, ValueFormat.RAW.value) != ValueFormat.RAW.value:
        _check_times(config, pipeline)
    if source.format in FILE_FORMATS and not options.get("path"):
        raise InvalidInputError(f"no files to read: format={source.format} option=path fix=name a directory")


def _check_times(config: JobConfig, pipeline: PipelineConfig) -> None:
    """Spark has TIME only behind a switch, and says so after minutes. Raises: InvalidInputError."""
    first = config.tables.get(pipeline.outputs[0].table)
    columns = pipeline.source.columns or (first.columns if first is not None else {})
    times = [field.name for field in data_fields_of(columns) if any(each.root == "TIME" for each in walk(field.type))]
    if times and config.spark.conf.get(_TIME_SWITCH, "false").lower() != "true":
        raise InvalidInputError(
            f"Spark has no columns of this type: columns={times} type=TIME pipeline={pipeline.name} "
            f"fix='declare them STRING, which holds 12:34:56.123456 with all digits; or set {_TIME_SWITCH}=true in "
            "spark.conf, for times of milliseconds'"
        )


def source_spec(
    config: JobConfig,
    pipeline: PipelineConfig,
    targets: Sequence[TableSchema],
    *,
    grown: Sequence[DataField] | None = None,
    rules: MergeRules | None = None,
) -> SourceSpec:
    """The arguments of Spark's reader.

    Args:
        config: the job.
        pipeline: a pipeline of the job.
        targets: schemas of the tables; a source without columns of its own has those of the first.
        grown: the table's columns, with the source's new ones added, see ``pipeline``.
        rules: by which they grow.
    """
    source, options, target = pipeline.source, source_options(config, pipeline), targets[0]
    fields = data_fields_of(source.columns) if source.columns else target.fields if grown is None else grown
    if grown is not None:
        options.setdefault("new-fields", "fail")
        if rules is not None and rules.widens:
            options.setdefault("new-types", (NewTypes.OTHER if rules.casts else NewTypes.WIDER).value)
    if source.format == FLUVIAL:
        return SourceSpec(format=FLUVIAL_FORMAT, options=options, schema=None)
    if source.format != KAFKA:
        needs_columns = source.columns or source.format in FILE_FORMATS
        return SourceSpec(format=source.format, options=options, schema=_nullable(fields) if needs_columns else None)
    value_format = options.get(_VALUE_FORMAT, ValueFormat.RAW.value)
    if value_format == ValueFormat.RAW.value:
        return SourceSpec(format=KafkaSource.name(), options=options, schema=None)
    names = {field.name for field in fields}
    if value_format == ValueFormat.JSON.value and target.primary_keys and names.issuperset(target.primary_keys):
        options.setdefault(_KEY_COLUMNS, ",".join(target.primary_keys))
    if value_format in _DEBEZIUM and any(each.table_options.row_counts or [*_sums_of(each)] for each in targets):
        options.setdefault(_UPDATE_BEFORE, "true")  # the old row is deleted by its values, or taken out of the sum
    if any(map(needs_deleted_values, targets)):
        options.setdefault(_PARTIAL_DELETES, PartialDeletesRule.FAIL.value)
    guessed = {name: f"{unit}{GUESS}" for name, unit in _epoch_units(fields).items()}
    units = {**guessed, **_pairs(options.get(_EPOCH_UNITS, ""))}
    if units and value_format != ValueFormat.JSON.value:
        options[_EPOCH_UNITS] = ",".join(f"{name}={unit}" for name, unit in units.items())
    if value_format in _DEBEZIUM and _is_truncated(config, pipeline, target):
        options.setdefault(_TRUNCATES, Truncates.EMIT.value)
    schema = T.StructType([*_nullable(fields).fields, T.StructField(ROW_KIND_COLUMN, T.StringType())])
    if value_format in _DEBEZIUM and _is_filled(pipeline, target, options.get(_UNAVAILABLE)):
        schema = schema.add(UNAVAILABLE_COLUMN, T.ArrayType(T.StringType()))
    return SourceSpec(format=KafkaSource.name(), options=options, schema=schema)


def _is_filled(pipeline: PipelineConfig, target: TableSchema, wanted: str | None) -> bool:
    """Whether values that updates left out are taken from the table: by the option, else where the writer can do it.

    A query between source and table could lose the names of what is missing, or fill another table.
    """
    if wanted is not None:
        return wanted == UnavailableValues.KEEP.value
    return _holds_rows_of_keys(target) and _is_direct(pipeline)


def _is_truncated(config: JobConfig, pipeline: PipelineConfig, target: TableSchema) -> bool:
    """Whether a truncate of the source empties the table: if the table is the source's, and has no other.

    A query between source and table could lose the truncate, or fill the table from elsewhere.
    """
    table = pipeline.outputs[0].table
    writers = sum(output.table == table for each in config.pipelines for output in each.outputs)
    return writers == 1 and _is_direct(pipeline) and (_holds_rows_of_keys(target) or target.table_options.row_counts)


def _holds_rows_of_keys(target: TableSchema) -> bool:
    """Whether a table has the newest row of each key, and its writer can look rows up."""
    options = target.table_options
    engines = ("deduplicate", "partial-update")
    return bool(target.primary_keys) and options.merge_engine in engines and options.bucket != POSTPONE_BUCKET


def _is_direct(pipeline: PipelineConfig) -> bool:
    """Whether one table gets the rows of the source as they are."""
    has_steps = pipeline.transform or any(output.transform for output in pipeline.outputs)
    return not has_steps and len(pipeline.outputs) == 1


def check_whole_changes(spec: SourceSpec, queries: Sequence[str], targets: Sequence[TableSchema]) -> None:
    """Refuse sums, counts and sequences of changes that lack what they replace.

    Args:
        spec: of the pipeline's source.
        queries: in SQL, between source and tables.
        targets: schemas of the tables.

    Raises:
        InvalidInputError: a query or a table sums the rows up, or needs the values of deleted rows; the source is a
            topic of Debezium's, or a table with a key whose log has upserts, or whose changelog is what its writers
            gave; and the source's options do not say that this is meant.
    """
    by = next((f"query='{each}'" for each in queries if _sums_up(each)), None)
    if by is not None and spec.options.get(_VALUE_FORMAT) in _DEBEZIUM and _UPDATE_BEFORE not in spec.options:
        raise InvalidInputError(
            f"an update comes without the row that it replaces, so sums count it twice: {by} fix='set "
            f"{_UPDATE_BEFORE}=true among the options of the source, and subtract the rows of kind -U and -D; or "
            f"{_UPDATE_BEFORE}=false where the rows are summed up by key, each once'"
        )
    by = by or next((f"function={each}" for target in targets for each in _sums_of(target)), None)
    if spec.format != FLUVIAL_FORMAT or (by is None and not any(map(needs_deleted_values, targets))):
        return
    read = ReadOptions.parse(spec.options, STREAM_KEYS)
    stream, options = stream_options(read, read.spark_schema()), read.table.options
    if options.log_scan_remove_normalize:
        return
    if stream.log is None and read.table.schema.primary_keys and options.changelog_producer == "input":
        raise InvalidInputError(
            f"changes of this table are those that its writers gave, perhaps without the row that an update replaces: "
            f"source={read.table.name} changelog-producer=input {by or ''} fix='set changelog-producer=lookup of the "
            "source, or log.scan.remove-normalize=true where its writers give each old row as -U or -D'"
        )
    if not stream.lacks_replaced_rows:
        return
    if by is not None:
        raise InvalidInputError(
            f"an update comes without the row that it replaces, so sums count it twice: source={read.table.name} {by} "
            "fix='set log.scan.normalize=true among the options of the source, or log.scan.remove-normalize=true where "
            "the rows are summed up by key, each once'"
        )
    if options.log_deletes_have_key_only:
        raise InvalidInputError(
            f"a delete comes with its key only, and would remove nothing: source={read.table.name} "
            f"log.format={options.log_format} fix='set log.scan.normalize=true among the options of the source, or "
            "log.scan.remove-normalize=true where no row is deleted'"
        )


def _sums_up(sql: str) -> bool:
    """Whether a query in Spark's SQL has a sum, count or list of rows; what cannot be read is Spark's to refuse."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(sql, read="spark")
    except (SqlglotError, RecursionError):
        return False
    summing = (exp.Sum, exp.Count, exp.CountIf, exp.Avg, exp.ArrayAgg, exp.GroupConcat)
    return any(not isinstance(each.parent, exp.Window) for each in tree.find_all(*summing))


def _sums_of(target: TableSchema) -> Iterator[str]:
    """The functions by which a table sums the rows of a key up."""
    options = target.table_options
    if options.merge_engine == "aggregation" and not (options.ignore_delete or options.ignore_update_before):
        default = options.fields_default_aggregate_function
        named = (target.options.get(f"fields.{name}.aggregate-function", default) for name in target.column_names)
        yield from sorted({each for each in named if each in _SUMMING})


def source_frame(spark: SparkSession, spec: SourceSpec, checkpoint: str) -> DataFrame:
    """The stream of a query with this checkpoint. Raises: PySparkException: Spark rejects the source or its options."""
    place = {CHECKPOINT: checkpoint} if spec.format in (FLUVIAL_FORMAT, KafkaSource.name()) else {}
    reader = spark.readStream.format(spec.format).options(**spec.options, **place)
    return (reader if spec.schema is None else reader.schema(spec.schema)).load()


def _epoch_units(fields: Sequence[DataField]) -> dict[str, str]:
    """The epoch unit of columns of time: the unit of their precision, which Spark's types do not keep."""
    units = {0: "s", **dict.fromkeys((1, 2, 3), "ms"), **dict.fromkeys((7, 8, 9), "ns")}
    return {
        each.name: units[each.type.precision]
        for each in fields
        if each.type.root in _TIMESTAMPS and each.type.precision in units
    }


def _pairs(text: str) -> dict[str, str]:
    """``a=us,b=D`` by name; the source validates it."""
    pairs = (word.partition("=") for word in text.split(",") if word.strip())
    return {name.strip(): unit.strip() for name, _, unit in pairs}


def _nullable(fields: Sequence[DataField]) -> T.StructType:
    """All columns nullable: a delete may have its key only, even where the table's columns are not nullable."""
    return T.StructType(
        [T.StructField(each.name, each.dataType, metadata=each.metadata) for each in spark_schema(fields).fields]
    )
