"""Queries of a job file checked before Spark starts: views, columns, types, and what the target makes of them.

sqlglot resolves names and types. What it does not know for certain is left to Spark: tables of other catalogs, columns
of sources that have their own schema, what a Python function returns, types of functions that it does not know.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.pipeline_config import FILE_FORMATS, FLUVIAL, KAFKA, PipelineConfig, TargetConfig
from engine.deploy.config.section import hint
from engine.deploy.config.table_config import data_fields_of
from engine.deploy.pipeline.sources import source_options
from engine.deploy.pipeline.transforms import SOURCE_VIEW
from engine.dialect.grammar.dialect import has_options, parse_query, table_options, tokens_of
from engine.dialect.grammar.places import SourceText
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.types.spark_types import spark_schema
from filestore.layout.branch_names import split_branch
from filestore.options.parsing import boolean_of
from filestore.options.table_options import TableOptions
from filestore.predicate.sql_problems import problem_of
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError
from lsm.nearest_names import did_you_mean

_DIALECT: Final = "spark"
_UNRESOLVED: Final = re.compile(r"(?:Column '|Unknown column: )\W*(\w+)")
_CATALOG_SETTINGS: Final = ("spark.sql.catalog", "spark.sql.defaultCatalog", "spark.sql.extensions")
"""Settings of sessions that know tables by a name alone."""
_OPAQUE: Final = (exp.Lateral, exp.Unnest, exp.Pivot, exp.Transform, exp.Lambda)
"""What brings names that the schema of the source does not have."""
_RAW: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_ADDED: Final = (ROW_KIND_COLUMN, UNAVAILABLE_COLUMN)

QueryColumns = Mapping[str, str]
"""Type by name, as Spark writes it; empty: not known."""
FieldsOf = Callable[[str], Sequence[DataField] | None]
"""The columns of a table; None: they are not known here."""


@dataclass(frozen=True, slots=True)
class ColumnCast:
    """A column that is written in another type than the query gives."""

    column: str
    given: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.column} {self.given} -> {self.wanted}"


def job_tables(config: JobConfig) -> FieldsOf:
    """The columns of tables of a job file."""

    def fields_of(name: str) -> Sequence[DataField] | None:
        table = config.tables.get(split_branch(name)[0])
        return None if table is None else data_fields_of(table.columns, not_null=table.primary_key)

    return fields_of


def check_queries(config: JobConfig, pipeline: PipelineConfig, fields_of: FieldsOf) -> dict[str, list[ColumnCast]]:
    """Check the steps of a pipeline up to its tables.

    Returns: casts by target; without those that nothing is known of.

    Raises:
        InvalidInputError: a view, a column of the source or of a target does not exist; the row kinds or a column of
            the key are missing; a value is of another kind than its column.
    """
    has_tables = any(key.startswith(_CATALOG_SETTINGS) for key in config.spark.conf)
    common = _after([step.sql for step in pipeline.transform], _source(config, pipeline, fields_of), has_tables)
    casts = {}
    for output in pipeline.outputs:
        steps = [step.sql for step in output.transform]
        columns = _after(steps, common, has_tables)
        target = fields_of(output.table)
        has_steps = bool(steps or pipeline.transform)
        if columns is not None and target is not None and has_steps:
            casts[output.table] = [*_written(config, pipeline, output, columns, target)]
    return casts


def _after(steps: Sequence[str | None], columns: QueryColumns | None, has_tables: bool) -> QueryColumns | None:
    is_first = True
    for sql in steps:
        found = None if sql is None else _result(sql, columns, has_tables=has_tables or not is_first)
        if found is not None and columns is not None and ROW_KIND_COLUMN in columns and ROW_KIND_COLUMN not in found:
            raise InvalidInputError(
                "the transform loses the row kinds, so that deletes would become inserts: "
                f"fix='select {ROW_KIND_COLUMN} too, or '+I' AS {ROW_KIND_COLUMN} if all rows are inserts'"
            )
        columns = found
        is_first = is_first and sql is not None  # a function may make views
    return columns


def _source(config: JobConfig, pipeline: PipelineConfig, fields_of: FieldsOf) -> QueryColumns | None:
    """The columns of the view ``source``; None: not known."""
    source, options = pipeline.source, source_options(config, pipeline)
    first = pipeline.outputs[0]
    if _grows(config, pipeline, first):
        return None
    if source.format == FLUVIAL:
        read = fields_of(options.get("table", ""))
        others = {key for key in options if key.startswith(("read.metadata", "scan.branch", "branch"))}
        has_kinds = boolean_of("read.changelog", options["read.changelog"])
        return None if read is None or others else _types(read) | ({ROW_KIND_COLUMN: "string"} if has_kinds else {})
    is_known = source.format in (KAFKA, *FILE_FORMATS)
    if source.format == KAFKA and options.get("value.format", "raw") == "raw":
        return _RAW
    fields = data_fields_of(source.columns) if source.columns else fields_of(first.table)
    if not is_known or fields is None:
        return None
    added = {ROW_KIND_COLUMN: "string", UNAVAILABLE_COLUMN: "array<string>"} if source.format == KAFKA else {}
    return _types(fields) | added


def _types(fields: Sequence[DataField]) -> dict[str, str]:
    return {each.name: each.dataType.simpleString() for each in spark_schema(fields).fields}


def _grows(config: JobConfig, pipeline: PipelineConfig, output: TargetConfig) -> bool:
    """Whether the table takes columns that it does not have yet."""
    key = TableOptions.write_merge_schema.key
    table = config.tables.get(split_branch(output.table)[0])
    given = [output.options, *(() if table is None else (table.options,)), config.catalog_options]
    return any(boolean_of(key, each.get(key, "false")) for each in given)


def _result(sql: str, source: QueryColumns | None, *, has_tables: bool) -> QueryColumns | None:
    """The columns of a query; None: not known."""
    try:
        tree = sqlglot.parse_one(sql, read=_DIALECT)
    except SqlglotError as error:
        reason, place = problem_of(error, sql)
        raise InvalidInputError(f"not a query: reason={reason} sql={place} fix=correct the SQL") from error
    except RecursionError:
        raise InvalidInputError("not a query: reason=it is nested too deeply fix=leave out brackets") from None
    if not isinstance(tree, exp.Query):
        return None
    own = {each.alias_or_name.lower() for each in tree.find_all(exp.CTE)} | {SOURCE_VIEW}
    _check_hints(sql, own)
    found = (each for each in tree.find_all(exp.Table) if isinstance(each.parent, exp.From | exp.Join))
    tables = [each for each in found if isinstance(each.this, exp.Identifier)]
    others = [each.name for each in tables if each.db or each.name.lower() not in own]
    unknown = [each.name for each in tables if not each.db and each.name.lower() not in own]
    if unknown and not has_tables:
        raise InvalidInputError(f"no such view: view={unknown[0]} known={SOURCE_VIEW} fix='FROM {SOURCE_VIEW}'")
    if source is None or others:
        return None
    return _resolved(tree, source)


def _check_hints(sql: str, views: Collection[str]) -> None:
    """Refuse a hint of options that no table takes: Spark would pass over it. Raises: InvalidInputError."""
    source = SourceText.of(sql)
    if not any(map(has_options, tokens_of(source))):
        return
    for table in parse_query(source).find_all(exp.Table):
        if table_options(table) and not table.db and table.name.lower() in views:
            raise InvalidInputError(
                f"a view takes no options: view={table.name} options={dict(table_options(table))} "
                "fix='give them to the source or the target of the pipeline'"
            )


def _resolved(tree: exp.Query, source: QueryColumns) -> QueryColumns | None:
    schema: dict[str, object] = {SOURCE_VIEW: {name.lower(): _sql_type(text) for name, text in source.items()}}
    try:
        full = qualify(tree.copy(), dialect=_DIALECT, schema=schema, quote_identifiers=False)
        typed = annotate_types(full, schema=schema, dialect=_DIALECT)
        is_known = not any(tree.find(kind) is not None for kind in _OPAQUE)
        return {each.alias_or_name.lower(): _type_text(each.type) if is_known else "" for each in typed.selects}
    except SqlglotError as error:
        found = _UNRESOLVED.search(str(error))
        if found is not None and _is_certain(tree, found[1]):
            known = [name for name in source if name not in _ADDED]
            raise InvalidInputError(
                f"no such column: column={found[1]} view={SOURCE_VIEW} {hint(found[1], known)}"
            ) from error
        return None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None  # of sqlglot: Spark decides


def _is_certain(tree: exp.Query, column: str) -> bool:
    """Whether nothing in a query could bring the column."""
    if any(tree.find(kind) is not None for kind in _OPAQUE):
        return False
    return column.lower() not in {each.alias.lower() for each in tree.find_all(exp.Alias)}


def _sql_type(text: str) -> str:
    try:
        return exp.DataType.build(text, dialect=_DIALECT).sql(dialect=_DIALECT)
    except SqlglotError:
        return "UNKNOWN"


def _type_text(found: exp.DataType | None) -> str:
    if found is None or found.is_type(exp.DType.UNKNOWN, exp.DType.NULL):
        return ""
    return _normal(found.sql(dialect=_DIALECT))


def _normal(text: str) -> str:
    try:
        return exp.DataType.build(text, dialect=_DIALECT).sql(dialect=_DIALECT).lower()
    except SqlglotError:
        return ""


def _written(
    config: JobConfig,
    pipeline: PipelineConfig,
    output: TargetConfig,
    columns: QueryColumns,
    target: Sequence[DataField],
) -> Iterator[ColumnCast]:
    wanted = {name.lower(): (name, _normal(text)) for name, text in _types(target).items()}
    grows = _grows(config, pipeline, output)
    for name in columns:
        if name not in wanted and name not in _ADDED and not grows:
            near = did_you_mean(name, wanted) or f" columns={[each for each, _ in wanted.values()]}"
            raise InvalidInputError(f"the table has no such column: table={output.table} column={name}{near}")
    for field in target:
        if not field.type.nullable and field.name.lower() not in columns:
            raise InvalidInputError(
                f"a NOT NULL column is missing: table={output.table} column={field.name} fix='select {field.name}'"
            )
    casts_all = TableOptions.write_merge_schema_explicit_cast.key in output.options
    for name, given in columns.items():
        column, type_text = wanted.get(name, (name, ""))
        if not given or not type_text or given == type_text:
            continue
        if _kind(given) != _kind(type_text) and not casts_all:
            raise InvalidInputError(
                f"a value is of another kind than its column: table={output.table} column={column} given={given} "
                f"wanted={type_text} fix='CAST(... AS {type_text.upper()}) AS {column}'"
            )
        yield ColumnCast(column, given, type_text)


_KINDS: Final = {
    "text": ("string", "char", "varchar"),
    "bytes": ("binary",),
    "boolean": ("boolean",),
    "date": ("date",),
    "moment": ("timestamp",),
    "time": ("time",),
    "list": ("array",),
    "map": ("map",),
    "row": ("struct",),
}


def _kind(text: str) -> str:
    word = re.split(r"[^a-z]", text, maxsplit=1)[0]
    return next((kind for kind, words in _KINDS.items() if word in words), "number")
