"""Which tables may be created, written and read, and what to change when the answer is no.

A table that we cannot keep right is refused, not written half right. Source: Paimon SchemaValidation.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from filestore.layout.version_names import check_tag_name
from filestore.options.log_login import openers_of
from filestore.options.not_built import ALL, check_built, check_closed
from filestore.options.option import At, check_text
from filestore.options.secrets import secrets_of_log
from filestore.options.table_options import TableOptions
from filestore.options.tag_schedule import TagSchedule, check_periods
from filestore.schema.index_options import check_index_options
from filestore.schema.log_names import check_avro_types
from filestore.schema.row_counts import check_stored
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import (
    INTEGER_ROOTS,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    UNORDERED_ROOTS,
    UNSUPPORTED_ROOTS,
    DataField,
    DataType,
    walk,
)
from lsm.errors import InvalidInputError, MissingColumnError
from lsm.row_kind import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND

RESERVED_NAMES: Final = frozenset({SEQUENCE_NUMBER, VALUE_KIND, "_LEVEL", "rowkind", "_ROW_ID"})
STREAM_NAMES: Final = frozenset({"_row_kind", "_unavailable", "_log_offset", "_log_timestamp", "_snapshot_id"})
"""Columns of changes beside the table's: the kind of a row, what its source left out, and where it came from."""
PARTITION_ROOTS: Final = INTEGER_ROOTS | TEXT_ROOTS | {"DATE", "BOOLEAN"}
MOST_NESTED: Final = 40
"""Levels of rows, lists and maps in a column. Parquet's readers take 100 groups inside each other, and a list is two;
the JSON of schemas and the schemas of Avro files have limits of their own."""
MOST_PARTS: Final = 400_000
"""Columns with all their parts. Parquet's readers take a million elements in a footer, and a list is two."""
_FILLED: Final = "materialized-table"
# Parquet would need INT96 in every timestamp column and Avro cannot at all.
MICROSECONDS: Final = 6


def check_readable(schema: TableSchema) -> None:
    """Refuse tables that we would read wrongly. Raises: InvalidInputError naming the option or column."""
    options = schema.table_options
    if options.type not in ("table", _FILLED):
        raise InvalidInputError(
            f"table of this kind cannot be read: option=type value={options.type} "
            "fix='use the table with the engine that made it, and type=table for a table that is made here'"
        )
    check_closed(options, ALL)
    if options.data_evolution_enabled and (
        schema.primary_keys or options.deletion_vectors_enabled or not options.row_tracking_enabled
    ):
        raise InvalidInputError(
            f"table cannot be read, its files hold parts of rows that have a key, are deleted or have no ids: "
            f"primary_key={list(schema.primary_keys)} "
            f"deletion-vectors.enabled={str(options.deletion_vectors_enabled).lower()} "
            f"row-tracking.enabled={str(options.row_tracking_enabled).lower()} "
            "option=data-evolution.enabled value=true fix='use the table with the engine that made it'"
        )
    _check_columns_exist(schema, _read_columns(schema))
    _check_types(schema.fields)


def check_writable(schema: TableSchema) -> None:
    """Refuse tables that our writes would break. Raises: InvalidInputError naming the option or column."""
    check_readable(schema)
    options = schema.table_options
    if options.type == _FILLED:
        raise InvalidInputError(
            f"table cannot be written, a query of another engine fills it: option=type value={options.type} "
            "fix='write into the tables that the query reads'"
        )
    check_closed(options, At.WRITE)
    _check_columns_exist(schema, _written_columns(schema))
    _check_values(options)
    if schema.primary_keys and not set(schema.partition_keys) <= set(schema.primary_keys):
        raise InvalidInputError(
            f"a key may move between the partitions of this table, which we cannot follow: "
            f"primary_key={list(schema.primary_keys)} partition={list(schema.partition_keys)} fix='write it with Java'"
        )
    if options.bucket == 0:
        raise InvalidInputError("bucket must be 1 or more, or -1 for an append table: bucket=0")
    if options.bucket > 0 and not schema.bucket_keys:
        raise InvalidInputError(
            f"append table with buckets has no bucket key: bucket={options.bucket} fix='set bucket-key or bucket=-1'"
        )
    if options.row_tracking_enabled and (schema.primary_keys or options.bucket != -1):
        raise InvalidInputError(
            f"only rows of a table without a key and buckets have ids: row-tracking.enabled=true "
            f"primary_key={list(schema.primary_keys)} bucket={options.bucket} "
            "fix='leave out the key, and set bucket=-1'"
        )
    _check_vectors(schema, options)
    _check_timestamps(schema.fields, options)
    for field in schema.partition_fields:
        if field.type.root == "TIMESTAMP_LTZ" and not options.partition_legacy_name:
            raise InvalidInputError(
                f"directory of this partition depends on Java's time zone: column={field.name} "
                "partition.legacy-name=false fix='partition by another column'"
            )


def check_creatable(schema: TableSchema, options: TableOptions) -> None:
    """Refuse new tables with mistakes, before anything is stored. Raises: InvalidInputError naming what to change."""
    _check_names(schema.column_names)
    _check_rows_have_fields(schema.fields)
    _check_columns_exist(schema, {**_written_columns(schema), **options.columns_with_options()})
    _check_key(schema)
    for field in schema.partition_fields:
        if field.type.root not in PARTITION_ROOTS:
            raise InvalidInputError(
                f"tables cannot be partitioned by this type: column={field.name} type={field.type} "
                "fix='use STRING, an integer, DATE or BOOLEAN'"
            )
    _check_bucket_keys(schema)
    _check_option_columns(schema, options)
    if options.log_is_avro and options.log_system != "none":
        check_avro_types(schema.fields)
    TagSchedule.of(options)  # refuses rules that contradict each other
    _check_variants(schema, options)
    check_writable(schema)


def check_new_names(names: Iterable[str]) -> None:
    """Refuse new columns named as those that streams add to the table's; older tables may have them.

    Raises: InvalidInputError naming the column.
    """
    for name in names:
        if name.lower() in STREAM_NAMES:
            raise InvalidInputError(
                f"column name is reserved for the kinds and metadata of changes: column={name} fix='rename it'"
            )


def check_size(fields: Sequence[DataField], known: Sequence[DataField] = ()) -> None:
    """Refuse columns that would be written and never read again, because they are too deep or too many.

    Args:
        fields: all columns of a table.
        known: those that it has had, which are let through.

    Raises: InvalidInputError naming the limit.
    """
    had = {field.id: field.type for field in known}
    for field in fields:
        levels = _levels(field.type)
        if levels > MOST_NESTED and had.get(field.id) != field.type:
            raise InvalidInputError(
                f"a column is nested too deeply: column={field.name} levels={levels} most={MOST_NESTED} "
                "fix='leave out levels, or store it as JSON in a STRING'"
            )
    parts = sum(1 for field in fields for _ in walk(field.type))
    if parts > max(MOST_PARTS, sum(1 for field in known for _ in walk(field.type))):
        raise InvalidInputError(
            f"a table has too many columns: with_parts={parts} most={MOST_PARTS} fix='use a MAP, or several tables'"
        )


def check_options_set(schema: TableSchema, keys: Collection[str]) -> None:
    """Refuse options that are set now and would have no effect; those that the table already had are accepted.

    Raises: InvalidInputError naming what to change.
    """
    options = schema.table_options
    check_no_login({key: schema.options[key] for key in keys if key in schema.options})
    check_built(options, keys)
    check_periods(options, keys)
    if TableOptions.tag_batch_customized_name.key in keys and options.tag_batch_customized_name is not None:
        check_tag_name(options.tag_batch_customized_name)
    if any(key.startswith("file-index.") for key in keys):
        check_index_options(schema, options)


def check_no_login(options: Mapping[str, str]) -> None:
    """Refuse options that a table would store for those who open it: its files would decide whom they trust.

    Raises: InvalidInputError naming the options and where they belong.
    """
    if secrets := secrets_of_log(options):
        raise InvalidInputError(
            f"a table stores no login: options={','.join(secrets)}"
            " fix='give it to the catalog that opens the table (options of Catalog, log: of a job file,"
            " --catalog-option), or to a reader or writer; a password inside an address as"
            " log.schema-registry.basic-auth.user-info'"
        )
    if kept := openers_of(options):
        raise InvalidInputError(
            f"a table does not store what is its openers' to give, logins, files and trust: options={','.join(kept)}"
            " fix='give it to the catalog that opens the table (options of Catalog, log: of a job file,"
            " --catalog-option), or to a reader or writer, beside the address that it is for'"
        )


def check_altered(schema: TableSchema) -> None:
    """Refuse what a change would make of a table. Raises: InvalidInputError naming what to change."""
    options = schema.table_options
    options.check_together()
    check_creatable(schema, options)
    check_stored(schema)


def hashable(field: DataField) -> bool:
    """Whether a column can be part of a key, a bucket key or an order."""
    return field.type.root not in UNORDERED_ROOTS


def _check_vectors(schema: TableSchema, options: TableOptions) -> None:
    """Source: Paimon SchemaValidation.validateForDeletionVectors."""
    if not options.deletion_vectors_enabled or not schema.primary_keys:
        return
    if options.merge_engine == "first-row":
        raise InvalidInputError(
            "no row of a first-row table is ever replaced, so deletion vectors have no use: merge-engine=first-row "
            "deletion-vectors.enabled=true fix='leave deletion-vectors.enabled out'"
        )
    if options.changelog_producer == "full-compaction":
        raise InvalidInputError(
            "a table with deletion vectors emits changes when they become visible: "
            "changelog-producer=full-compaction fix='use changelog-producer=lookup'"
        )


def _check_values(options: TableOptions) -> None:
    if options.bucket_function == "hive":
        raise InvalidInputError("bucket function is not supported: bucket-function.type=hive fix='use default or mod'")
    for key, text in options.texts_by_key().items():
        if key in TableOptions.declared and TableOptions.declared[key].check is not None:
            check_text(TableOptions.declared[key], text)


def _levels(data_type: DataType) -> int:
    """Rows, lists and maps inside each other; 0: it is atomic."""
    levels, inside = -1, [data_type]
    while inside:
        levels += 1
        parts = [(each.element, each.key, each.value, *(field.type for field in each.fields)) for each in inside]
        inside = [part for of_one in parts for part in of_one if part is not None]
    return levels


def _check_rows_have_fields(fields: Sequence[DataField]) -> None:
    for field in fields:
        if any(part.root == "ROW" and not part.fields for part in walk(field.type)):
            raise InvalidInputError(f"a ROW has no fields: column={field.name} fix='give it one, or leave it out'")


def _check_types(fields: Sequence[DataField]) -> None:
    for field in fields:
        for part in walk(field.type):
            if part.root in UNSUPPORTED_ROOTS:
                raise InvalidInputError(f"columns of this type are not supported: column={field.name} type={part}")


def _check_variants(schema: TableSchema, options: TableOptions) -> None:
    """VARIANT is in Parquet files only, of which Paimon says how; the records of a log are texts without it."""
    found = next((each for each in schema.fields if any(part.root == "VARIANT" for part in walk(each.type))), None)
    if found is None:
        return
    formats = {options.file_format, *options.file_format_per_level.values(), options.changelog_file_format}
    others = sorted(each for each in formats if each not in (None, "parquet"))
    if others:
        raise InvalidInputError(
            f"only parquet files hold this type: column={found.name} type={found.type} file.format={','.join(others)} "
            "fix='file.format=parquet, or STRING with JSON'"
        )
    if options.log_system != "none":
        raise InvalidInputError(
            f"the records of a log cannot hold this type: column={found.name} type={found.type} "
            f"log.system={options.log_system} fix='a table without a log, or STRING with JSON'"
        )


def _check_timestamps(fields: Sequence[DataField], options: TableOptions) -> None:
    formats = {options.file_format, *options.file_format_per_level.values()}
    changelog_format = options.changelog_file_format
    if changelog_format is not None:
        formats.add(changelog_format)
    others = sorted(formats - {"orc"})
    for field in fields if others else ():
        for part in walk(field.type):
            if part.root in TIMESTAMP_ROOTS and (part.precision or 0) > MICROSECONDS:
                raise InvalidInputError(
                    f"only orc files can hold timestamps finer than microseconds: column={field.name} type={part} "
                    f"file.format={','.join(others)} fix='use TIMESTAMP(6) or file.format=orc'"
                )


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise InvalidInputError("table has no columns: fix='give it at least one'")
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidInputError(f"column is there twice: column={name} fix='rename one of them'")
        if not name.strip():
            raise InvalidInputError(f"column has no name: column={name!r}")
        if name in RESERVED_NAMES or name.startswith(KEY_PREFIX):
            raise InvalidInputError(f"column name is reserved: column={name} fix='rename it'")


def _read_columns(schema: TableSchema) -> dict[str, Sequence[str]]:
    """The columns that every read needs, by what for."""
    return {
        "primary key": schema.primary_keys,
        "partition": schema.partition_keys,
        "sequence.field": schema.table_options.sequence_fields,
    }


def _written_columns(schema: TableSchema) -> dict[str, Sequence[str]]:
    """The columns that every write needs, by what for."""
    kind = schema.table_options.rowkind_field
    return {**_read_columns(schema), "bucket-key": schema.bucket_keys, "rowkind.field": [] if kind is None else [kind]}


def _check_columns_exist(schema: TableSchema, uses: Mapping[str, Sequence[str]]) -> None:
    for use, names in uses.items():
        for name in names:
            if name not in schema.column_names:
                raise MissingColumnError(
                    f"no such column: used_by={use!r} column={name} columns={list(schema.column_names)}"
                )
        if len(set(names)) < len(names):
            raise InvalidInputError(f"column is named twice: used_by={use!r} columns={list(names)}")


def _check_key(schema: TableSchema) -> None:
    if not schema.primary_keys:
        return
    outside = [name for name in schema.partition_keys if name not in schema.primary_keys]
    if outside:
        raise InvalidInputError(
            f"primary key must contain the partition columns: primary_key={list(schema.primary_keys)} "
            f"missing={outside} fix='add them to the key'"
        )
    if not schema.trimmed_primary_keys:
        raise InvalidInputError(
            f"primary key consists of partition columns only: primary_key={list(schema.primary_keys)} "
            "fix='add a column that is not a partition column'"
        )
    _check_hashable(schema.fields_of(schema.primary_keys), "primary key")


def _check_bucket_keys(schema: TableSchema) -> None:
    option = schema.table_options.bucket_key
    if option is None:
        return
    _check_hashable(schema.fields_of(schema.bucket_keys), "bucket-key")
    partitions = [name for name in schema.bucket_keys if name in schema.partition_keys]
    if partitions:
        raise InvalidInputError(f"bucket key contains partition columns: bucket-key={option} fix='remove {partitions}'")
    outside = [name for name in schema.bucket_keys if name not in schema.primary_keys]
    if schema.primary_keys and outside:
        raise InvalidInputError(
            f"bucket key must be part of the primary key: bucket-key={option} fix='remove {outside}'"
        )


def _check_hashable(fields: Sequence[DataField], use: str) -> None:
    for field in fields:
        if not hashable(field):
            raise InvalidInputError(f"type cannot be used here: used_by={use!r} column={field.name} type={field.type}")


def _check_option_columns(schema: TableSchema, options: TableOptions) -> None:
    _check_hashable(schema.fields_of(options.sequence_fields), "sequence.field")
    kind = options.rowkind_field
    if kind is not None and schema.field(kind).type.root not in TEXT_ROOTS:
        raise InvalidInputError(f"rowkind.field must be a STRING column: column={kind} type={schema.field(kind).type}")
    grouped: dict[str, str] = {}
    for key, (columns, members) in options.sequence_groups().items():
        for name in members:
            schema.field(name)
            if name in schema.primary_keys:
                raise InvalidInputError(f"key column cannot be in a sequence group: option={key} column={name}")
            if grouped.setdefault(name, key) != key:
                raise InvalidInputError(
                    f"column is in two sequence groups: column={name} options={[grouped[name], key]}"
                )
        _check_hashable(schema.fields_of(columns), key)
