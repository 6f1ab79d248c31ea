"""``write.merge-schema`` at work: the table's schema grows before the first row of a batch is written.

The change is one small file, published by a compare and swap. So several writers that bring the same column find it
made, a batch that is replayed has nothing left to do, and what remains of a crash is a column that is null. Rows that
fit the schema that a writer knows cost no file operation at all. Which changes: ``filestore.evolution.schema_merge``.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from engine.log.table_codec import register_next
from engine.log.table_log import TableLog
from engine.request.writer_options import EVEN_UNTRACKED, WriterOptions
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from filestore.datafile.schema_mapping import map_schema
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import SchemaChange
from filestore.evolution.schema_merge import MERGE_KEY, MergeRules, merge_changes, needs_cast, with_known_ids
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.data_types import DataField, data_type_of, with_stored_times
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.schema")

_View = TypeVar("_View", bound=TableView)


def merge_rules(store: TableStore, writer: WriterOptions) -> MergeRules | None:
    """Schema changes that a writer may make; None: none. Raises: InvalidInputError: a part is on without the whole."""
    return MergeRules.of(
        store.options, merges=writer.merge_schema, widens=writer.type_widening, casts=writer.explicit_cast
    )


def evolve_schema(table: _View, given: Sequence[DataField], rules: MergeRules | None) -> _View:
    """The table at a version of its schema that holds rows of these columns, which is published if there is none.

    Args:
        table: the opened table.
        given: columns of the rows.
        rules: of the writer; None: nothing changes.

    Raises:
        InvalidInputError: the columns cannot be merged, or another writer renamed or dropped one of them.
        ConflictError: others altered the table again and again: try again.
        OutcomeUnknownError: the version may be there: write the batch again.
    """
    if rules is None or not merge_changes(table.schema, given, rules):
        return table

    def decide(newest: TableSchema) -> Sequence[SchemaChange]:
        _check_same_columns(table, newest, given)
        changes = merge_changes(newest, given, rules)
        if changes:
            log = TableLog.of(table, EVEN_UNTRACKED)
            register_next(None if log is None else log.codec, table.store, changes)
        return changes

    try:
        merged = publish_changes(table.store, decide)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} asked_by={MERGE_KEY}=true") from error
    logger.info(
        "the table's schema was merged with the rows': table=%s schema=%d known_schema=%d columns=%s",
        table.name, merged.id, table.schema.id, list(merged.column_names),
    )  # fmt: skip
    return table.at_version(merged.id)


def fields_of_rows(schema: pa.Schema, known: TableSchema) -> list[DataField]:
    """The columns of rows from outside, without the row kind, the mask, and those of nulls only.

    Raises:
        InvalidInputError: a new column has no type, or one that no table can hold.
    """
    fields = []
    for index, column in enumerate(schema):
        if column.name not in known.column_names and column.name in (ROW_KIND_COLUMN, UNAVAILABLE_COLUMN):
            continue
        if pa.types.is_null(column.type):
            if column.name in known.column_names:
                continue
            raise InvalidInputError(f"a new column has no type: column={column.name} fix=cast it, or leave it out")
        given = with_stored_times(column.type) if column.name in known.column_names else column.type
        fields.append(DataField(id=index, name=column.name, type=data_type_of(given, nullable=column.nullable)))
    return fields


def cast_rows(
    batches: Iterable[pa.RecordBatch], schema: TableSchema, rules: MergeRules | None
) -> Iterator[pa.RecordBatch]:
    """Rows with the columns cast that the table holds in another type, where ``explicit-cast`` allows that.

    Raises:
        InvalidInputError: a value cannot be cast.
    """
    for batch in batches:
        yield batch if rules is None or not rules.casts else _cast(batch, schema)


def _cast(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    given = {field.name: field for field in fields_of_rows(batch.schema, schema)}
    wanted = [
        field for field in schema.fields if field.name in given and needs_cast(field.type, given[field.name].type)
    ]
    if not wanted:
        return batch
    own = with_known_ids(schema.fields, [given[field.name] for field in wanted])
    cast = map_schema(own, wanted).apply(batch.select([field.name for field in wanted]))
    changed = {field.name: (field, column) for field, column in zip(cast.schema, cast.columns, strict=True)}
    kept = zip(batch.schema, batch.columns, strict=True)
    pairs = [changed.get(field.name, (field, column)) for field, column in kept]
    return pa.RecordBatch.from_arrays(
        [column for _, column in pairs], schema=pa.schema([field for field, _ in pairs], batch.schema.metadata)
    )


def _check_same_columns(table: TableView, newest: TableSchema, given: Sequence[DataField]) -> None:
    """Refuse to add a column again that was renamed or dropped while the writer was running."""
    ids = {field.name: field.id for field in table.schema.fields}
    names = {field.id: field.name for field in newest.fields}
    for field in given:
        if field.name not in ids or names.get(ids[field.name]) == field.name:
            continue
        now = names.get(ids[field.name])
        raise InvalidInputError(
            f"the table's schema changed: table={table.name} column={field.name} "
            f"reason='{'it was dropped' if now is None else f'its name is {now} now'}' schema={newest.id} "
            f"known_schema={table.schema.id} fix=restart the query with the columns of today"
        )
