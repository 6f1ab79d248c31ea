"""CREATE TABLE, with LIKE, AS SELECT and OR REPLACE."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T

from engine.dialect.ddl.table_parts import (
    COMMENT_PREFIX,
    WATERMARK_COLUMN,
    WATERMARK_EXPRESSION,
    TableParts,
    computed_options,
)
from engine.dialect.dml.dml import STATEMENT_ATTEMPTS
from engine.dialect.dml.insert import run_ctas
from engine.dialect.grammar.create_grammar import PROVIDERS
from engine.dialect.grammar.statements import ComputedColumn, CreateLike, CreateTable, Watermark
from engine.dialect.query.query import run_query
from engine.dialect.query.reads import StatementReads
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import opened
from engine.dialect.scope.results import DONE
from engine.replacement import Replacement
from engine.system_tables.names import has_namespace
from engine.types.spark_types import fields_of_spark
from engine.write.repeating import StaleReadError
from filestore.catalog.table_place import without_place
from filestore.evolution.schema_change import parse_default
from filestore.evolution.schema_merge import as_nullable
from filestore.options.log_place import OWN_LOG_KEYS
from filestore.options.option import Stored
from filestore.options.rules import CHECK_PREFIX, COMPUTED_PREFIX
from filestore.options.table_options import TableOptions, canonical_options
from filestore.schema.schema_store import ROOT_KEYS, warn_of_other_shape
from filestore.types.data_types import DataField
from lsm.errors import (
    InvalidInputError,
    MissingColumnError,
    MissingDatabaseError,
    MissingTableError,
    TableExistsError,
)
from lsm.nearest_names import did_you_mean
from lsm.retry import retrying
from lsm.undo import undoing

_BUCKETS: Final = TableOptions.bucket_key.key


def create_table(context: SqlContext, create: CreateTable) -> pa.Table:
    """Create the table of a statement, and fill it when the statement has a query.

    Raises:
        InvalidInputError: it exists, or a clause, column or option is wrong; nothing was created.
    """
    name = context.full_name(*create.name)
    exists = context.catalog.table_exists(name)
    if exists and create.if_not_exists:
        if create.fields and create.query is None and create.like is None:
            _warn_of_other_shape(context, name, create)
        return DONE
    if exists and not create.or_replace:
        raise TableExistsError(f"table exists already: table={name} fix=IF NOT EXISTS, or OR REPLACE")
    database = name.partition(".")[0]
    if context.is_sparks_own and not (exists or has_namespace(context.catalog, database)):  # elsewhere it is made
        near = did_you_mean(database, context.catalog.list_databases())
        raise MissingDatabaseError(f"no such database: database={database}{near} fix='CREATE DATABASE {database}'")
    if create.must_exist and not exists:
        raise MissingTableError(f"no such table: table={name} fix=CREATE OR REPLACE TABLE")
    whole = _named(context, _with_query_columns(context, _with_source(context, create)))
    if not exists:
        return _made(context, name, whole)
    return retrying(lambda: _replaced(context, name, whole), attempts=STATEMENT_ATTEMPTS, on=StaleReadError)


def _warn_of_other_shape(context: SqlContext, name: str, create: CreateTable) -> None:
    found = context.catalog.described(name).schema
    fields = [replace(field, name=context.names.meant(field.name, found.column_names)) for field in create.fields]
    keys, parts = (
        [context.names.meant(each, found.column_names) for each in given]
        for given in (create.primary_key, create.partition_by)
    )
    warn_of_other_shape(name, found, fields, keys, parts, create.options)


def _named(context: SqlContext, create: CreateTable) -> CreateTable:
    """The clauses with the columns' own names. Raises: InvalidInputError: two columns have one name."""
    names, columns = context.names, [field.name for field in create.fields]
    names.check_fields(create.fields, [each.name for each in create.computed])
    watermark = create.watermark
    options = dict(create.options)
    if _BUCKETS in options:
        options[_BUCKETS] = ",".join(names.meant(each.strip(), columns) for each in options[_BUCKETS].split(","))
    return replace(
        create,
        options=options,
        primary_key=tuple(names.meant(each, columns) for each in create.primary_key),
        partition_by=tuple(names.meant(each, columns) for each in create.partition_by),
        watermark=watermark and replace(watermark, column=names.meant(watermark.column, columns)),
    )


def _made(
    context: SqlContext,
    name: str,
    create: CreateTable,
    options: Mapping[str, str] | None = None,
    reads: StatementReads | None = None,
    replaced: str | None = None,
) -> pa.Table:
    context.catalog.create_table(
        name,
        create.fields,
        primary_key=create.primary_key,
        partition_by=create.partition_by,
        options={**_options(context, name, create), **(options or {})},
        comment=create.comment,
        if_not_exists=create.if_not_exists,
        case_sensitive=True,  # whether it counts in the session was looked at
    )
    if create.query is None:
        return DONE
    with undoing(lambda: context.catalog.drop_table(name, if_exists=True)):
        return run_ctas(context, create.query, name, reads, replaced)


def _replaced(context: SqlContext, name: str, create: CreateTable) -> pa.Table:
    """Create and fill the new table next to the old one, then rename it; if that fails, the old one stays.

    Where the query reads the old one, and others commit to it meanwhile, all of it is done again.
    """
    replacement, reads = Replacement.of(context.catalog, name), StatementReads(context)
    options = replacement.own_options(_options(context, name, create))
    result = _made(context, replacement.beside, replace(create, if_not_exists=False), options, reads, name)
    replacement.finish(reads.own_state(name))
    return result


def _options(context: SqlContext, name: str, create: CreateTable) -> dict[str, str]:
    """The options of the new schema, without the catalog's defaults; the table's own override the session's."""
    given = canonical_options(create.options)
    provider = given.pop("connector", None) or create.provider
    if provider is not None and provider.lower() not in PROVIDERS:
        raise InvalidInputError(
            f"a table of another connector is not one of Fluvial: connector={provider} fix='leave out the option'"
        )
    reserved = [key for key in given if key.startswith((COMPUTED_PREFIX, COMMENT_PREFIX))]
    if reserved:
        raise InvalidInputError(
            f"computed columns stand among the columns: option={reserved[0]} fix=name AS expression"
        )
    settings = {
        key: text
        for key, text in canonical_options(context.settings).items()
        if key not in TableOptions.declared or TableOptions.declared[key].stored in {Stored.BY_USERS, Stored.BY_OPENER}
    }
    options = {**(without_place(settings) if {*ROOT_KEYS} & {*given} else settings), **given}
    options |= create.checks
    options |= computed_options(create.computed, [field.name for field in create.fields])
    if create.watermark is not None:
        options |= _watermark_options(create.fields, create.watermark)
    for field in create.fields:
        if field.default_value is not None:
            parse_default(field.default_value, field.type)
    return options


def _watermark_options(fields: Sequence[DataField], watermark: Watermark) -> dict[str, str]:
    types = {field.name: field.type for field in fields}
    found = types.get(watermark.column)
    if found is None or found.root not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        raise InvalidInputError(
            f"a watermark is that of a TIMESTAMP column: column={watermark.column} type={found} "
            f"columns={[name for name, each in types.items() if each.root.startswith('TIMESTAMP')]}"
        )
    return {WATERMARK_COLUMN: watermark.column, WATERMARK_EXPRESSION: watermark.expression}


def _with_source(context: SqlContext, create: CreateTable) -> CreateTable:
    """The statement with the clauses that LIKE copies; its own clauses come last and take precedence."""
    like = create.like
    if like is None:
        return create
    source = opened(context, like.source)
    schema, parts = source.schema, TableParts.of(source.schema.options)
    copied: dict[str, Any] = {"fields": (*schema.fields, *create.fields), "like": None}
    names = [field.name for field in copied["fields"]]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"column is in both tables: column={repeated[0]} like={source.name}")
    if like.constraints == "INCLUDING":
        copied["primary_key"] = create.primary_key or schema.primary_keys
        checks = {key: text for key, text in schema.options.items() if key.startswith(CHECK_PREFIX)}
        copied["checks"] = {**checks, **create.checks}
    if like.partitions == "INCLUDING":
        copied["partition_by"] = create.partition_by or schema.partition_keys
    if like.generated != "EXCLUDING":
        copied["computed"] = _overlaid(parts.computed, create.computed, like)
    if like.watermarks != "EXCLUDING":
        copied["watermark"] = create.watermark or parts.watermark
    if like.options != "EXCLUDING":
        copied["options"] = {**_copied_options(schema.options), **canonical_options(create.options)}
    return replace(create, comment=create.comment or schema.comment, **copied)


def _overlaid(
    source: Sequence[ComputedColumn], own: Sequence[ComputedColumn], like: CreateLike
) -> tuple[ComputedColumn, ...]:
    names = {each.name for each in own}
    again = sorted(names & {each.name for each in source})
    if again and like.generated != "OVERWRITING":
        raise InvalidInputError(
            f"computed column is in both tables: column={again[0]} fix=OVERWRITING GENERATED, or another name"
        )
    return (*(each for each in source if each.name not in names), *own)


def _copied_options(options: Mapping[str, str]) -> dict[str, str]:
    own_prefixes = (COMPUTED_PREFIX, COMMENT_PREFIX, CHECK_PREFIX)
    left_out = OWN_LOG_KEYS | {WATERMARK_COLUMN, WATERMARK_EXPRESSION, *ROOT_KEYS}
    return {key: text for key, text in options.items() if key not in left_out and not key.startswith(own_prefixes)}


def _with_query_columns(context: SqlContext, create: CreateTable) -> CreateTable:
    """The statement with the columns of its query. Listed names without types get the query's types."""
    if create.query is None:
        if not create.fields:
            raise InvalidInputError(f"table has no columns: table={'.'.join(create.name)} fix=list them, or AS SELECT")
        return create
    schema: T.StructType = run_query(context, create.query).schema
    # as for Spark's own tables: that no row of the query has a null says nothing about rows that come later
    fields = [replace(field, type=as_nullable(field.type)) for field in fields_of_spark(schema)]
    if not create.fields:
        return replace(create, fields=tuple(fields))
    context.names.check_fields(create.fields)
    own = [field.name for field in fields]
    listed = {context.names.meant(field.name, own): field for field in create.fields}
    if set(listed) <= {field.name for field in fields}:
        return replace(create, fields=tuple(listed.get(field.name, field) for field in fields))
    unknown = sorted(set(listed) - {field.name for field in fields})
    raise MissingColumnError(
        f"the query has no such column: column={unknown[0]} columns={[field.name for field in fields]}"
    )
