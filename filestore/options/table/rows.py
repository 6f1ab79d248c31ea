"""Options of a table's rows: keys, partitions, buckets, and the merging of rows of one key."""

from typing import Any, Final

from filestore.options.option import CHANGES, NOTHING, ROWS, STORAGE, At, Option, OptionValues, Stored, derived
from filestore.options.parsing import (
    Parser,
    boolean,
    check_prefix,
    choice,
    duration_ms,
    file_name,
    integer,
    names,
    text,
    verbatim,
)
from filestore.options.stored_expressions import check_expression
from filestore.options.table.common import COUNT, INT_MAX

_KIND: Final = Parser(lambda value: text(value).lower(), "text")


def _buckets(options: Any) -> int:
    """One, where a schema file is so old that it need not say."""
    return 1 if options.schema_version <= 1 else -1


class ShapeOptions(OptionValues):
    """Keys, partitions, buckets."""

    primary_key = Option("primary-key", names, (), "Key columns, as an option.", ROWS, immutable=True)
    primary_key_nullable = Option("primary-key.nullable", boolean, False, "Allow nulls in the key.", ROWS)
    partition = Option("partition", names, (), "Partition columns, as an option.", STORAGE, immutable=True)
    partition_default_name = Option(
        "partition.default-name",
        verbatim,
        "__DEFAULT_PARTITION__",
        "Directory of null and blank partition values.",
        STORAGE,
        essential=True,
        check=check_prefix,
    )
    partition_legacy_name = Option(
        "partition.legacy-name",
        boolean,
        True,
        "Old text of dates and timestamps in partition directories.",
        STORAGE,
        essential=True,
    )
    bucket = derived(
        "bucket",
        integer(-2, INT_MAX),
        -1,
        "Buckets, log partitions; new tables: 1 (no key, no log: -1). -1: unbucketed or dynamic; -2: postponed.",
        ROWS,
        by=_buckets,
        immutable=True,
    )
    bucket_key = Option(
        "bucket-key",
        text,
        None,
        "Columns that choose the bucket; default: the key, else the whole row.",
        STORAGE,
        immutable=True,
    )
    bucket_function = Option(
        "bucket-function.type",
        choice("default", "mod", "hive"),
        "default",
        "How the bucket is computed.",
        STORAGE,
        essential=True,
        immutable=True,
    )
    bucket_append_ordered = Option(
        "bucket-append-ordered", boolean, True, "Keep the order of rows in a bucket of an append table.", STORAGE
    )
    dynamic_bucket_target_row_num = Option(
        "dynamic-bucket.target-row-num", COUNT, 2_000_000, "Rows per bucket when dynamic.", STORAGE
    )
    dynamic_bucket_initial_buckets = Option(
        "dynamic-bucket.initial-buckets", COUNT, None, "First buckets when dynamic.", STORAGE
    )
    dynamic_bucket_max_buckets = Option(
        "dynamic-bucket.max-buckets", integer(-1), -1, "Most buckets when dynamic.", STORAGE
    )
    postpone_default_bucket_num = Option(
        "postpone.default-bucket-num", COUNT, 1, "Buckets that postponed rows of a new partition get.", STORAGE
    )
    path = Option("path", text, None, "Directory of a new table that is not to be in its name's.", NOTHING)
    file_path = Option("file.path", text, None, "Root of new tables, as a warehouse is one.", NOTHING)
    watermark_column = Option("watermark.column", text, None, "TIMESTAMP column of the watermark.", ROWS)
    watermark_expression = Option(
        "watermark.expression",
        text,
        None,
        "SQL of the watermark: rows older than it are late.",
        ROWS,
        check=check_expression,
    )
    type = Option("type", _KIND, "table", "Kind of table: 'table'; 'materialized-table' is read.", ROWS, immutable=True)
    auto_create = Option(
        "auto-create", boolean, False, "Taken, and not needed: a table has its storage at once.", NOTHING
    )
    change_tracking = Option(
        "change-tracking",
        boolean,
        True,
        "Emit changes to the log and to changelog files.",
        CHANGES,
        at=At.WRITE,
        essential=True,
    )
    change_tracking_untracked_partitions = Option(
        "change-tracking.untracked-partitions", text, None, "Partitions without change tracking, a JSON list.", CHANGES
    )
    branch = Option(
        "branch",
        file_name,
        "main",
        "Branch to read and write, of this reader or writer.",
        ROWS,
        at=At.READ | At.WRITE,
        stored=Stored.NEVER,
    )
    scan_branch = Option(
        "scan.branch", file_name, None, "Branch to read, of this reader.", ROWS, at=At.READ, stored=Stored.NEVER
    )


class MergeOptions(OptionValues):
    """How rows of one key become one row."""

    merge_engine = Option(
        "merge-engine",
        choice("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        "How rows of one key become one row.",
        ROWS,
        essential=True,
        immutable=True,
    )
    sequence_fields = Option("sequence.field", names, (), "Columns that order the rows of a key.", ROWS, essential=True)
    sequence_field_sort_order = Option(
        "sequence.field.sort-order",
        choice("ascending", "descending"),
        "ascending",
        "Direction of sequence.field.",
        ROWS,
        essential=True,
    )
    sequence_snapshot_ordering = Option(
        "sequence.snapshot-ordering", boolean, False, "Later snapshots win.", ROWS, immutable=True
    )
    row_counts = Option(
        "row-counts",
        boolean,
        False,
        "Tables without a key: rows come and go, each is kept with how often it occurs.",
        ROWS,
        immutable=True,
    )
    row_counts_index_key = Option(
        "row-counts.index-key",
        names,
        (),
        "NOT NULL columns by which such a table is sorted and its files are pruned.",
        STORAGE,
        immutable=True,
    )
    rowkind_field = Option(
        "rowkind.field", text, None, "STRING column that holds +I -U +U -D.", ROWS, essential=True, immutable=True
    )
    ignore_delete = Option("ignore-delete", boolean, False, "Drop deletes and update-befores.", ROWS, essential=True)
    ignore_update_before = Option("ignore-update-before", boolean, False, "Drop update-befores.", ROWS, essential=True)
    fields_default_aggregate_function = Option(
        "fields.default-aggregate-function", text, None, "Aggregate function of columns that name none.", ROWS
    )
    partial_update_remove_record_on_delete = Option(
        "partial-update.remove-record-on-delete", boolean, False, "A delete removes the row.", ROWS, immutable=True
    )
    partial_update_remove_record_on_sequence_group = Option(
        "partial-update.remove-record-on-sequence-group",
        text,
        None,
        "A delete of these groups removes the row.",
        ROWS,
        immutable=True,
    )
    aggregation_remove_record_on_delete = Option(
        "aggregation.remove-record-on-delete", boolean, False, "A delete removes the row.", ROWS, immutable=True
    )
    record_level_expire_time_ms = Option(
        "record-level.expire-time",
        duration_ms,
        None,
        "Age from which on a row is no row of the table; compactions drop it.",
        ROWS,
    )
    record_level_time_field = Option(
        "record-level.time-field", text, None, "Column with the time of a row: INT, BIGINT or TIMESTAMP.", ROWS
    )


class SchemaOptions(OptionValues):
    """How a schema changes."""

    write_merge_schema = Option(
        "write.merge-schema", boolean, False, "New columns of the input become columns of the table.", ROWS, at=At.WRITE
    )
    write_merge_schema_type_widening = Option(
        "write.merge-schema.type-widening",
        boolean,
        False,
        "Wider types of the input widen the column.",
        ROWS,
        at=At.WRITE,
    )
    write_merge_schema_explicit_cast = Option(
        "write.merge-schema.explicit-cast", boolean, False, "Cast input that does not widen.", ROWS, at=At.WRITE
    )
    write_round_values = Option(
        "write.round-values",
        boolean,
        False,
        "Round times, decimals and DOUBLE to the column's precision; otherwise values that would change are refused.",
        ROWS,
        at=At.WRITE,
    )
    alter_column_null_to_not_null_disabled = Option(
        "alter-column-null-to-not-null.disabled", boolean, True, "Columns cannot become NOT NULL.", NOTHING
    )
    disable_explicit_type_casting = Option(
        "disable-explicit-type-casting", boolean, False, "Only widening changes of types.", NOTHING
    )
    row_tracking_enabled = Option(
        "row-tracking.enabled",
        boolean,
        False,
        "Rows have ids, which `$row_tracking` shows; of tables without a key and with `bucket=-1`.",
        STORAGE,
        immutable=True,
    )


class RefusedOptions(OptionValues):
    """Switches of formats that are refused; declared so that the message says so."""

    data_evolution_enabled = Option(
        "data-evolution.enabled", boolean, False, "Files with part of the columns.", ROWS, immutable=True
    )
    pk_clustering_override = Option(
        "pk-clustering-override", boolean, False, "Files not sorted by the key.", ROWS, immutable=True
    )
    chain_table_enabled = Option("chain-table.enabled", boolean, False, "Chain tables.", ROWS)
