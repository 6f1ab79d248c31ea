"""From a table's options to the function that folds the rows of one key, and what a merge engine asks of its users.

Source: Paimon MergeFunction and its kinds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from filestore.options.parsing import names
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import arrow_type
from lsm.errors import InvalidInputError
from lsm.merge.merge_function import Deduplicate, FirstRow, RowMerge
from lsm.row_kind import RowKind, retracts

if TYPE_CHECKING:
    from lsm.aggregate.aggregates import FieldAggregate
    from lsm.merge.partial_update import SequenceGroup


def merge_function(schema: TableSchema, options: TableOptions, columns: Collection[str] | None = None) -> RowMerge:
    """The function that ``merge-engine`` names.

    Args:
        schema: of the table.
        options: of the table.
        columns: that the rows will have, at least those of ``columns_to_merge``; None is all.

    Raises:
        InvalidInputError: an option names a function or column that does not exist.
    """
    if options.row_counts:
        from lsm.merge.row_count import RowCountSum

        return RowCountSum()
    if options.merge_engine == "deduplicate":
        return Deduplicate(ignore_delete=options.ignore_delete)
    if options.merge_engine == "first-row":
        return FirstRow(ignore_delete=options.ignore_delete)
    if options.merge_engine == "aggregation":
        from lsm.aggregate.aggregation import Aggregation

        return Aggregation(
            key_names=schema.primary_keys,
            fields=_aggregates(schema, options),
            sequence_names=options.sequence_fields,
            remove_record_on_delete=options.aggregation_remove_record_on_delete,
        )
    from lsm.merge.partial_update import PartialUpdate

    removing = options.partial_update_remove_record_on_sequence_group
    return PartialUpdate(
        key_names=schema.primary_keys,
        ignore_delete=options.ignore_delete,
        remove_record_on_delete=options.partial_update_remove_record_on_delete,
        sequence_groups=tuple(_only(group, columns) for group in sequence_groups(schema, options)),
        remove_on_sequence_groups=names(removing) if removing else (),
        aggregates={
            name: each for name, each in _aggregates(schema, options).items() if columns is None or name in columns
        },
        counts_retracts=_counts_retracts(_grouped_aggregates(schema, options).values()),
    )


def check_merging(schema: TableSchema, options: TableOptions) -> None:
    """Refuse options of the merge engine with mistakes before any rows wait for them.

    Raises:
        InvalidInputError: names the column, what does not fit it, and what to change.
    """
    merge_function(schema, options)
    if not schema.primary_keys or options.merge_engine not in ("aggregation", "partial-update"):
        return
    for name in options.sequence_fields:
        if (function := options.field_options(name).aggregate_function) is not None:
            raise InvalidInputError(
                f"a column that orders the rows of a key has the newest value: sequence.field={name} "
                f"fields.{name}.aggregate-function={function} fix='remove one'"
            )
    removes = options.merge_engine == "aggregation" and options.aggregation_remove_record_on_delete
    for name, aggregate in _aggregates(schema, options).items():
        aggregate.check_type(name, arrow_type(schema.field(name).type))
        if removes and aggregate.ignore_retract:
            raise InvalidInputError(
                f"a delete cannot both remove the row and be ignored: fields.{name}.ignore-retract=true "
                "aggregation.remove-record-on-delete=true fix='set one of them to false'"
            )


def resets_on_delete(options: TableOptions) -> bool:
    """Whether a -D ends what a key was: later rows start from nothing, and do not say so themselves.

    So a merge must not put a -D and later rows of its key into one row while older ones lie elsewhere.
    """
    if options.merge_engine == "partial-update":
        return options.partial_update_remove_record_on_delete
    return options.merge_engine == "aggregation" and options.aggregation_remove_record_on_delete


def needs_deleted_values(schema: TableSchema) -> bool:
    """Whether a delete needs more of its row than the key: else it removes nothing, or takes nothing back.

    Null is the oldest of a sequence, and the least of a sum.
    """
    options = schema.table_options
    if options.row_counts:
        return True
    if options.ignore_delete or options.merge_engine == "first-row":
        return False
    if {*options.sequence_fields} - {*schema.primary_keys} or options.sequence_groups():
        return True
    return options.merge_engine == "aggregation" and not options.aggregation_remove_record_on_delete


def has_whole_rows(options: TableOptions) -> bool:
    """Whether a row above level 0 is all that its key was below: its rows on higher levels do not count any longer.

    Compactions look up what they do not rewrite, and merge it into what they write. Source: Paimon
    CoreOptions.needLookup, LookupMergeFunction.
    """
    looks_up = options.changelog_producer == "lookup" or options.deletion_vectors_enabled or options.force_lookup
    return looks_up and options.merge_engine != "first-row"


def newest_row_is_whole(options: TableOptions) -> bool:
    """Whether the row that was written last is all that its key is, whatever the older ones are."""
    return options.merge_engine == "deduplicate" and not (options.sequence_fields or options.ignore_delete)


def composes(schema: TableSchema, options: TableOptions) -> bool:
    """Whether a key's oldest rows may be folded first, as a compaction does, and their result is then as good as they.

    An aggregation does not: a product cannot hold what was taken back before it was there. Nor do values that a later
    fold would take from an older row by its sequence.
    """
    if options.merge_engine == "deduplicate":
        return newest_row_is_whole(options)
    if options.merge_engine != "partial-update" or resets_on_delete(options):
        return False
    return not (options.sequence_fields or options.sequence_groups() or _aggregates(schema, options))


def columns_to_merge(schema: TableSchema, options: TableOptions, wanted: Iterable[str]) -> frozenset[str]:
    """The columns that have to be read so that these come out right."""
    from lsm.merge.row_count import ROW_COUNT

    needed = {*wanted, *schema.trimmed_primary_keys, *options.sequence_fields}
    if options.row_counts:
        needed.add(ROW_COUNT)
    if options.merge_engine == "partial-update":
        # All of them: without a group a retract would mean something else.
        needed |= {name for group in sequence_groups(schema, options) for name in group.sequence_names}
    return frozenset(needed)


def sequence_groups(schema: TableSchema, options: TableOptions) -> "Sequence[SequenceGroup]":
    """The groups that ``fields.<sequence columns>.sequence-group`` defines. Raises: InvalidInputError."""
    from lsm.merge.partial_update import SequenceGroup

    groups = []
    for columns, given in options.sequence_groups().values():
        members = tuple(name for name in given if name not in columns)
        for name in (*columns, *members):
            schema.field(name)
        groups.append(SequenceGroup(sequence_names=columns, field_names=members))
    return groups


def check_retracts(schema: TableSchema, options: TableOptions, *, deletes_only: bool) -> None:
    """Refuse retracts that no later merge could take back: the table would become unreadable.

    Raises:
        InvalidInputError: names the option that would allow them.
    """
    engine = options.merge_engine
    if engine == "first-row":
        raise InvalidInputError("first-row cannot take back a row: merge-engine=first-row fix='set ignore-delete=true'")
    if engine == "partial-update":
        if not sequence_groups(schema, options) and not options.partial_update_remove_record_on_delete:
            raise InvalidInputError(
                "partial-update cannot take back a row: merge-engine=partial-update "
                "fix='set ignore-delete=true or partial-update.remove-record-on-delete=true, or define sequence groups'"
            )
        _check_functions(_grouped_aggregates(schema, options))
    if engine == "aggregation" and not (deletes_only and options.aggregation_remove_record_on_delete):
        _check_functions(_aggregates(schema, options))


def without_old_values(
    rows: pa.RecordBatch, kinds: pa.Array, schema: TableSchema, options: TableOptions
) -> pa.RecordBatch:
    """Deletes without the values that a later insert of the key would get back.

    Readers begin such an insert with what the delete carries, so it carries nulls where it may.
    """
    if options.merge_engine == "partial-update" and not sequence_groups(schema, options):
        cleared = retracts(kinds)
    elif options.merge_engine == "aggregation" and options.aggregation_remove_record_on_delete:
        cleared = pc.equal(kinds, int(RowKind.DELETE))
    else:
        return rows
    if not pc.any(cleared).as_py():
        return rows
    kept = {*schema.primary_keys, *options.sequence_fields, options.rowkind_field}
    columns = [
        column
        if field.name in kept or not field.type.nullable
        else pc.if_else(cleared, pa.scalar(None, column.type), column)
        for field, column in zip(schema.fields, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _aggregates(schema: TableSchema, options: TableOptions) -> "Mapping[str, FieldAggregate]":
    """The aggregate of every column that has one, by its own option or the default; keys and sequences have none."""
    from lsm.aggregate.aggregates import FieldAggregate

    default = options.fields_default_aggregate_function
    if options.merge_engine == "aggregation":
        default = default or FieldAggregate().function
    groups = sequence_groups(schema, options)
    plain = {
        *schema.primary_keys,
        *options.sequence_fields,
        *(each for group in groups for each in group.sequence_names),
    }
    found: dict[str, FieldAggregate] = {}
    for field in schema.fields:
        own = options.field_options(field.name)
        function = own.aggregate_function or default
        if field.name in plain or function is None:
            continue
        found[field.name] = FieldAggregate(
            function=function,
            ignore_retract=own.ignore_retract,
            distinct=own.distinct,
            delimiter=FieldAggregate().delimiter if own.list_agg_delimiter is None else own.list_agg_delimiter,
            nested_key=own.nested_key,
            count_limit=own.count_limit,
            time_field=own.ts_field,
        )
    return found


def _grouped_aggregates(schema: TableSchema, options: TableOptions) -> "Mapping[str, FieldAggregate]":
    grouped = {name for group in sequence_groups(schema, options) for name in group.field_names}
    return {name: each for name, each in _aggregates(schema, options).items() if name in grouped}


def _counts_retracts(aggregates: "Collection[FieldAggregate]") -> bool:
    """Whether some function takes values back, and none refuses to: other writers may leave such retracts alone."""
    return any(not each.ignore_retract for each in aggregates) and all(each.supports_retracts for each in aggregates)


def _check_functions(aggregates: "Mapping[str, FieldAggregate]") -> None:
    for name, aggregate in aggregates.items():
        if not aggregate.supports_retracts:
            raise InvalidInputError(
                f"a value cannot be taken back: column={name} aggregate-function={aggregate.function} "
                f"fix='set fields.{name}.ignore-retract=true'"
            )


def _only(group: "SequenceGroup", columns: Collection[str] | None) -> "SequenceGroup":
    """The group without the columns that are not wanted."""
    from lsm.merge.partial_update import SequenceGroup

    if columns is None:
        return group
    return SequenceGroup(
        sequence_names=group.sequence_names, field_names=tuple(name for name in group.field_names if name in columns)
    )
