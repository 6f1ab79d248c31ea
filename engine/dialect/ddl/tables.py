"""Databases and tables changed and dropped."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from engine.dialect.ddl.column_changes import resolved
from engine.dialect.ddl.partition_spec import (
    check_complete,
    named_partitions,
    nearest_partitions,
    partition_test,
    spec_values,
)
from engine.dialect.ddl.table_parts import WATERMARK_EXPRESSION, TableParts, quoted_where_needed
from engine.dialect.grammar.cursor import Cursor
from engine.dialect.grammar.dialect import parse_expression, tokens_of
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.statements import (
    AlterTable,
    AnalyzeTable,
    AnalyzeTables,
    CompactTable,
    CreateDatabase,
    DropDatabase,
    DropPartitions,
    DropTable,
    Name,
    RenameTable,
    ReplaceColumns,
    SetPartitionOptions,
    TruncateTable,
)
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import opened, tables_of
from engine.dialect.scope.results import DONE, texts_table
from engine.write.log_sync import follow_overwrite
from filestore.changelog.untracked import UNTRACKED_KEY, with_tracking
from filestore.compact.compactor import compact_buckets
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeType,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
)
from filestore.maintenance.partitions import drop_partitions as drop_rows_of
from filestore.maintenance.partitions import list_partitions
from filestore.maintenance.table_statistics import analyze
from filestore.options.parsing import boolean_of
from filestore.options.rules import CHECK_PREFIX, COMPUTED_PREFIX
from filestore.options.table_options import TableOptions
from filestore.schema.column_paths import field_at
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text

# ---- Expressions in a table's options, when the columns they refer to change


def followed(schema: TableSchema, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
    """Changes, completed with those of computed columns and the watermark: renamed columns are renamed in them.

    Raises:
        InvalidInputError: an expression needs a dropped column.
    """
    expressions = dict(_expressions(schema))
    found: list[SchemaChange] = []
    for change in changes:
        found.append(change)
        if not isinstance(change, (DropColumn, RenameColumn, ChangeType)) or len(change.path) > 1:
            continue
        column = change.path[0]
        for key, (title, prefix, expression) in list(expressions.items()):
            places = _places(expression, column)
            if places and isinstance(change, DropColumn):
                raise InvalidInputError(f"column is in use and cannot be dropped: column={column} used_by={title!r}")
            if places and isinstance(change, RenameColumn):
                renamed = _spliced(expression, places, quoted_where_needed(change.name))
                expressions[key] = (title, prefix, renamed)
                found.append(SetOption(key, prefix + renamed))
    return found


def _expressions(schema: TableSchema) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """For each option its kind, the text before the expression, and the expression."""
    parts = TableParts.of(schema.options)
    for column in parts.computed:
        prefix = f"{quoted_where_needed(column.name)} AS "
        for key, text in schema.options.items():
            if key.startswith(COMPUTED_PREFIX) and text == prefix + column.expression:
                yield key, (f"computed column {column.name}", prefix, column.expression)
    for key, condition in schema.options.items():
        if key.startswith(CHECK_PREFIX):
            yield key, (f"constraint {key.removeprefix(CHECK_PREFIX)}", "", condition)
    if parts.watermark is not None:
        yield WATERMARK_EXPRESSION, ("watermark", "", parts.watermark.expression)


def _places(expression: str, column: str) -> list[tuple[int, int]]:
    """Positions where a column of the table is named, from last to first."""
    source = SourceText.of(expression)
    tree = parse_expression(Cursor(source, tokens_of(source)))
    heads = [each.parts[0] for each in tree.find_all(exp.Column)]
    found = {(head.meta["start"], head.meta["end"] + 1) for head in heads if head.name.lower() == column.lower()}
    return sorted(found, reverse=True)


def _spliced(expression: str, places: Sequence[tuple[int, int]], name: str) -> str:
    for start, stop in places:
        expression = expression[:start] + name + expression[stop:]
    return expression


# ---- Databases and tables changed and dropped


CHANGE_TRACKING: Final = TableOptions.change_tracking.key


def create_database(context: SqlContext, statement: CreateDatabase) -> pa.Table:
    """Create a database."""
    context.catalog.create_database(context.database_name(statement.name), if_not_exists=statement.if_not_exists)
    return DONE


def drop_database(context: SqlContext, statement: DropDatabase) -> pa.Table:
    """Drop a database, with CASCADE also its tables."""
    name = context.database_name(statement.name)
    context.catalog.drop_database(name, cascade=statement.cascade, if_exists=statement.if_exists)
    return DONE


def drop_table(context: SqlContext, statement: DropTable) -> pa.Table:
    """Drop a table, its files and its topic; with FORCE, report topics that may be left."""
    name = context.full_name(*statement.name)
    left = context.catalog.drop_table(name, if_exists=statement.if_exists, force=statement.force)
    return texts_table(("topic_that_may_be_left",), [(each,) for each in left]) if statement.force else DONE


def truncate_table(context: SqlContext, statement: TruncateTable) -> pa.Table:
    """Delete all rows, or those of a partition; older snapshots and tags keep them."""
    table = opened(context, statement.name)
    spec = statement.partition or {}
    values = spec_values(table.store, spec)
    if statement.partition is not None and not values:
        check_complete(table.store, spec)
    table.overwrite(table.schema.arrow_schema.empty_table(), partition=values)
    return DONE


def analyze_table(context: SqlContext, statement: AnalyzeTable) -> pa.Table:
    """Count the rows and describe columns, for planners."""
    table = opened(context, statement.name)
    analyze(table.files, table.schema.column_names if statement.columns is None else statement.columns)
    return DONE


def analyze_tables(context: SqlContext, statement: AnalyzeTables) -> pa.Table:
    """Count the rows of each table of a database."""
    if not statement.counts_rows:
        raise InvalidInputError(
            "without a scan nothing is to be found that is not known: word=NOSCAN fix='leave it out'"
        )
    database, names = tables_of(context, statement.database)
    for name in names:
        analyze(context.catalog.table(f"{database}.{name}").files, ())
    return DONE


def alter_table(context: SqlContext, statement: AlterTable) -> pa.Table:
    """Change the schema."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    schema = context.catalog.table(name).schema
    wanted = resolved(schema, statement.changes, context.names)
    changes = [change for change in wanted if not _is_done(schema, statement, change)]
    if changes:
        context.catalog.alter_table(name, followed(schema, changes))
    return DONE


def replace_columns(context: SqlContext, statement: ReplaceColumns) -> pa.Table:
    """Drop unlisted columns and add new ones; a column with the same name is kept."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    schema = context.catalog.table(name).schema
    names = context.names
    names.check_fields(statement.fields)
    wanted = {names.meant(field.name, schema.column_names): field for field in statement.fields}
    for field in schema.fields:
        if field.name in wanted and str(wanted[field.name].type) != str(field.type):
            raise InvalidInputError(
                f"a column that stays keeps its type: column={field.name} type={field.type} "
                f"wanted={wanted[field.name].type} fix=use ALTER COLUMN ... TYPE"
            )
    added: list[SchemaChange] = [
        AddColumn(path=(field.name,), type=field.type, comment=field.description, default=field.default_value)
        for name, field in wanted.items()
        if name not in schema.column_names
    ]
    dropped = [DropColumn((each,)) for each in schema.column_names if each not in wanted]
    context.catalog.alter_table(name, followed(schema, [*added, *dropped]))
    return DONE


def set_partition_options(context: SqlContext, statement: SetPartitionOptions) -> pa.Table:
    """``change-tracking`` of one partition: a table option lists the partitions that streams ignore."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    if list(statement.options) != [CHANGE_TRACKING]:
        raise InvalidInputError(
            f"a partition has one option: options={sorted(statement.options)} fix=set change-tracking to true or false"
        )
    table = context.catalog.table(name)
    check_complete(table.store, statement.partition)
    is_tracked = boolean_of(CHANGE_TRACKING, statement.options[CHANGE_TRACKING])
    text = with_tracking(table.schema.table_options, statement.partition, is_tracked=is_tracked)
    context.catalog.alter_table(name, [RemoveOption(UNTRACKED_KEY) if text is None else SetOption(UNTRACKED_KEY, text)])
    return DONE


def rename_table(context: SqlContext, statement: RenameTable) -> pa.Table:
    """Rename a table; a name without a database keeps the current one."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    new = statement.new_name
    wanted = f"{name.split('.')[0]}.{new[0]}" if len(new) == 1 else context.full_name(*new)
    context.catalog.rename_table(name, wanted)
    return DONE


def run_compact(context: SqlContext, statement: CompactTable) -> pa.Table:
    """Compact each bucket into one run, in this process, and return when it is done."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    store = context.catalog.table(name).store
    matches = partition_test(store, statement.partition or {})
    outcome = compact_buckets(store, full=True, keep=lambda key: matches(key.partition))
    before = sum(len(message.compact_before) for message in outcome.messages)
    after = sum(len(message.compact_after) for message in outcome.messages)
    snapshot = None if outcome.committed is None else outcome.committed.snapshot
    return texts_table(
        ("snapshot_id", "buckets", "files_before", "files_after"),
        [(None if snapshot is None else str(snapshot.id), str(len(outcome.messages)), str(before), str(after))],
    )


def run_drop_partitions(context: SqlContext, statement: DropPartitions) -> pa.Table:
    """Delete all rows of partitions, in one commit."""
    name = _existing(context, statement.name, if_exists=statement.if_exists)
    if name is None:
        return DONE
    table = context.catalog.table(name)
    live = [state.partition for state in list_partitions(table.store, table.latest_snapshot())]
    doomed: set[bytes] = set()
    for spec in statement.partitions:
        found = named_partitions(table.store, spec, live)
        if not found and not statement.if_partition_exists:
            raise InvalidInputError(
                f"no such partition: table={name} {nearest_partitions(table.store, spec, live)} fix=IF EXISTS"
            )
        doomed.update(found)
    if doomed:
        drop_rows_of(table.store, doomed)
        follow_overwrite(table.files)
    return DONE


def _existing(context: SqlContext, parts: Name, *, if_exists: bool) -> str | None:
    name = context.full_name(*parts)
    return None if if_exists and not context.catalog.table_exists(name) else name


def _is_done(schema: TableSchema, statement: AlterTable, change: SchemaChange) -> bool:
    """Whether IF [NOT] EXISTS makes a column change unnecessary."""
    if isinstance(change, AddColumn) and statement.if_column_not_exists:
        return _has(schema, change.path)
    if isinstance(change, DropColumn) and statement.if_column_exists:
        return not _has(schema, change.path)
    if isinstance(change, RemoveOption) and change.key.startswith(CHECK_PREFIX) and change.key not in schema.options:
        return statement.if_check_exists or _no_constraint(schema, change.key)
    if isinstance(change, SetOption) and statement.adds_check and change.key in schema.options:
        raise InvalidInputError(
            f"constraint exists: constraint={change.key.removeprefix(CHECK_PREFIX)} "
            f"check='{schema.options[change.key]}' fix='drop it first, or choose another name'"
        )
    return False


def _no_constraint(schema: TableSchema, key: str) -> bool:
    known = [each.removeprefix(CHECK_PREFIX) for each in schema.options if each.startswith(CHECK_PREFIX)]
    raise InvalidInputError(
        f"no such constraint: constraint={key.removeprefix(CHECK_PREFIX)} {names_text('constraints', key, known)}"
    )


def _has(schema: TableSchema, path: tuple[str, ...]) -> bool:
    try:
        field_at(schema, path)
    except InvalidInputError:
        return False
    return True
