"""The tables of a job file compared with the existing ones: missing tables, and differences."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.catalog import Catalog
from engine.deploy.config.table_config import TableConfig, data_fields_of
from engine.dialect.ddl.table_parts import quoted_where_needed
from engine.table import Table
from filestore.options.option import CHANGES, NOTHING, ROWS
from filestore.options.secrets import shown_value
from filestore.options.table_options import TableOptions, canonical_options
from filestore.schema.row_counts import not_null_columns
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import cast_loss, widens
from filestore.types.data_types import DataField, DataType
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDifference:
    """One difference between a table and the job file."""

    fact: str  # the difference, with both values
    statement: str | None  # SQL that makes the table match the file; None: not possible
    is_refused: bool  # True: no pipeline may run; False: the difference is tolerated


def job_fields(wanted: TableConfig) -> list[DataField]:
    """The columns of a job file's table; those of the primary key, or of a stored one, are NOT NULL."""
    not_null = wanted.primary_key or not_null_columns(
        wanted.partition_by, TableOptions.parse(wanted.options, strict=False)
    )
    return data_fields_of(wanted.columns, not_null=not_null)


def table_differences(name: str, schema: TableSchema, wanted: TableConfig) -> list[TableDifference]:
    """The differences; additional columns of the table are none.

    Args:
        name: name of the table.
        schema: the table's schema.
        wanted: the table in the job file.
    """
    return [
        *_key_differences(schema, wanted),
        *_column_differences(name, schema, job_fields(wanted)),
        *_comment_differences(name, schema, wanted),
        *_option_differences(name, schema, wanted),
    ]


def _key_differences(schema: TableSchema, wanted: TableConfig) -> list[TableDifference]:
    keys = (tuple(schema.primary_keys), tuple(schema.partition_keys))
    if keys == (wanted.primary_key, wanted.partition_by):
        return []
    fact = (
        f"other keys: primary_key={list(keys[0])} partition_by={list(keys[1])} "
        f"job_has_primary_key={list(wanted.primary_key)} job_has_partition_by={list(wanted.partition_by)}, rows that "
        "are there keep their keys: a table of another name, filled from this one, has the job's"
    )
    return [TableDifference(fact=fact, statement=None, is_refused=True)]


def _column_differences(name: str, schema: TableSchema, fields: Sequence[DataField]) -> list[TableDifference]:
    found = {field.name: str(field.type) for field in schema.fields}
    types = {field.name: field.type for field in schema.fields}
    differences = []
    for field in fields:
        has, wants = found.get(field.name), str(field.type)
        if has == wants:
            continue
        if has is not None and _takes(types[field.name], field.type):
            place = f"column={field.name} table_has={has} job_has={wants}"
            fact = f"a wider column: {place}, nothing to do: the table may have grown"
            differences.append(TableDifference(fact=fact, statement=None, is_refused=False))
            continue
        if has is None:
            comment = f" COMMENT {_text(field.description)}" if field.description else ""
            statement = f"ALTER TABLE {name} ADD COLUMN {quoted_where_needed(field.name)} {wants}{comment}"
        elif has.removesuffix(" NOT NULL") == wants:
            statement = f"ALTER TABLE {name} ALTER COLUMN {quoted_where_needed(field.name)} DROP NOT NULL"
        else:
            statement = f"ALTER TABLE {name} ALTER COLUMN {quoted_where_needed(field.name)} TYPE {wants}"
        old_rows = _old_values(types.get(field.name), field.type)
        fact = f"another column: column={field.name} table_has={has or 'no such column'} job_has={wants}, {old_rows}"
        differences.append(TableDifference(fact=fact, statement=statement, is_refused=True))
    return differences


def _takes(has: DataType, wants: DataType) -> bool:
    """Whether a column of the table can hold each value of the job file's: it may have grown."""
    is_same = replace(has, nullable=wants.nullable) == wants
    return (has.nullable or not wants.nullable) and (is_same or widens(wants, has))


def _old_values(has: DataType | None, wants: DataType) -> str:
    """The effect of another type on the values that are there, in words."""
    if has is None:
        return "null in rows that are there"
    lost = cast_loss(has, wants)
    return "values that are there stay" if lost is None else f"values that are there are read as {wants}: {lost}"


def _comment_differences(name: str, schema: TableSchema, wanted: TableConfig) -> list[TableDifference]:
    differences = []
    if wanted.comment is not None and wanted.comment != schema.comment:
        differences.append(
            TableDifference(
                fact=f"another comment: table_has={schema.comment!r} job_has={wanted.comment!r}",
                statement=f"COMMENT ON TABLE {name} IS {_text(wanted.comment)}",
                is_refused=False,
            )
        )
    found = {field.name: field.description for field in schema.fields}
    for column, spec in wanted.columns.items():
        if spec.comment is not None and column in found and found[column] != spec.comment:
            differences.append(
                TableDifference(
                    fact=f"another comment: column={column} table_has={found[column]!r} job_has={spec.comment!r}",
                    statement=f"ALTER TABLE {name} ALTER COLUMN {quoted_where_needed(column)} "
                    f"COMMENT {_text(spec.comment)}",
                    is_refused=False,
                )
            )
    return differences


def _option_differences(name: str, schema: TableSchema, wanted: TableConfig) -> list[TableDifference]:
    differences = []
    for key, value in canonical_options(wanted.options).items():
        has = schema.options.get(key)
        if has != value and not schema.is_in_force(key, value):
            before, after = "its default" if has is None else shown_value(key, has), shown_value(key, value)
            differences.append(
                TableDifference(
                    fact=f"another option: option={key} table_has={before} job_has={after}, {_old_rows(key)}",
                    statement=f"ALTER TABLE {name} SET TBLPROPERTIES ({_text(key)} = {_text(value)})",
                    is_refused=False,
                )
            )
    return differences


def _old_rows(key: str) -> str:
    """The effect of another value of an option on rows that are there, in words."""
    if key == TableOptions.bucket.key:
        return "partitions that are there keep their buckets until CALL sys.rescale"
    option = TableOptions.declared.get(key)
    decides = NOTHING if option is None else option.decides
    if ROWS in decides:
        return "rows that are there are read by it too"
    if CHANGES in decides:
        return "rows that are there stay, their later changes are delivered by it"
    return "rows that are there stay"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


logger = logging.getLogger("fluvial.job")


def ensure_table(catalog: Catalog, name: str, wanted: TableConfig) -> Table:
    """The table of a job file, created if missing.

    Raises:
        InvalidInputError: it exists with other columns or another key; the message has the statement to change it.
    """
    if not catalog.table_exists(name):
        catalog.create_table(
            name,
            job_fields(wanted),
            primary_key=wanted.primary_key,
            partition_by=wanted.partition_by,
            options=wanted.options,
            comment=wanted.comment,
            if_not_exists=True,
        )
    table = catalog.table(name)
    for difference in table_differences(name, table.schema, wanted):
        fix = shown_pairs(difference.statement or "") or "change the job file, or write to another table"
        if difference.is_refused:
            raise InvalidInputError(f"the table exists with {difference.fact} table={name} fix={fix}")
        logger.warning("the table exists with %s, which is kept: table=%s fix=%s", difference.fact, name, fix)
    return table
