"""Schema changes: their kinds, their effect on a schema, and which are refused.

A column keeps its id through every change, and ids are never reused: so old files remain readable. Source: Paimon
SchemaManager, SchemaChange.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Final

from filestore.options.log_place import GENERATION_KEY, MARKER_KEY_KEY, SYSTEM_KEY, in_other_place
from filestore.options.secrets import shown_value
from filestore.options.table.groups import SCHEMA_VERSION
from filestore.options.table_options import TableOptions, canonical_options, check_property, check_storable
from filestore.predicate.row_rules import refuse_unkept
from filestore.schema.column_options import renamed_in_options, uses_of
from filestore.schema.column_paths import (
    ColumnPath,
    ColumnPosition,
    check_free,
    edited,
    field_at,
    in_level,
    index_of,
    moved,
    path_text,
)
from filestore.schema.log_names import check_log_names
from filestore.schema.row_counts import check_change
from filestore.schema.schema_store import with_new_field_ids
from filestore.schema.table_schema import TableSchema
from filestore.schema.validation import check_altered, check_new_names, check_options_set, check_size
from filestore.types.casts import can_cast, keeps_order, literal_value, reads_same_json, unquoted_default, widens
from filestore.types.data_types import NESTED_ROOTS, DataField, DataType
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class SetOption:
    """Set an option."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class RemoveOption:
    """Reset an option to its default; no error if it was not set."""

    key: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """Set the comment of the table; None removes it."""

    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddColumn:
    """Add a column. Without a position it becomes the last one.

    Existing rows have its initial default, which only columns of a change source have, else null: their source gave
    its old rows that value without an event.
    """

    path: ColumnPath
    type: DataType
    comment: str | None = None
    default: str | None = None
    position: ColumnPosition | None = None
    initial_default: str | None = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drop a column."""

    path: ColumnPath


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column; options that refer to it are updated."""

    path: ColumnPath
    name: str


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Change the type of a column, keeping its nullability."""

    path: ColumnPath
    type: DataType


@dataclass(frozen=True, slots=True)
class ChangeNullability:
    """Change the nullability of a column."""

    path: ColumnPath
    nullable: bool


@dataclass(frozen=True, slots=True)
class ChangeComment:
    """Set the comment of a column; None removes it."""

    path: ColumnPath
    comment: str | None


@dataclass(frozen=True, slots=True)
class ChangeDefault:
    """Set the default value of a column, as text; None removes it."""

    path: ColumnPath
    default: str | None


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column within its level."""

    path: ColumnPath
    position: ColumnPosition


@dataclass(frozen=True, slots=True)
class ReplaceLog:
    """Give the table a log, another one, or none; what has been written to the former one stays readable by files."""

    place: Mapping[str, str]  # from ``log_place``, without its generation


@dataclass(frozen=True, slots=True)
class SignLog:
    """Give the table's log a key, see ``filestore.layout.log_key``; nothing changes if it has one."""

    key: str


SchemaChange = (
    ReplaceLog
    | SignLog
    | SetOption
    | RemoveOption
    | SetComment
    | AddColumn
    | DropColumn
    | RenameColumn
    | ChangeType
    | ChangeNullability
    | ChangeComment
    | ChangeDefault
    | MoveColumn
)


def apply_changes(
    schema: TableSchema,
    changes: Sequence[SchemaChange],
    *,
    has_rows: bool = True,
    history: Sequence[TableSchema] = (),
    time_ms: int | None = None,
) -> TableSchema:
    """The next version of a schema.

    Args:
        schema: the current version.
        changes: applied in order; each sees the result of the previous ones.
        has_rows: whether there are snapshots; without any, options that determine file contents may change.
        history: the older versions, required for tables with a log: names in old records must not change meaning.
        time_ms: epoch milliseconds of the change; None keeps the old time.

    Returns:
        the version with the next id; ``schema`` itself if nothing changes.

    Raises:
        InvalidInputError: names the column or option, the reason and a fix.
    """
    after = _upgraded_version(schema)
    first = after
    for _, group in groupby(changes, key=_level_of_new):
        together = list(group)
        change = together[0]
        if not isinstance(change, ReplaceLog | SignLog | SetOption | RemoveOption | SetComment):
            check_change(after, change.path, keeps_values=not isinstance(change, DropColumn | ChangeType))
        new = [each for each in together if isinstance(each, AddColumn)]
        after = _added(after, new) if new else _applied(after, change, has_rows=has_rows)
    if after == first:
        return schema
    if after.table_options.log_system != "none" or schema.table_options.log_system != "none":
        check_log_names(schema, after, history)
    check_new_names(name for name in after.column_names if name not in schema.column_names)
    check_size(after.fields, schema.fields)
    check_altered(after)
    refuse_unkept(after)
    check_options_set(after, [change.key for change in changes if isinstance(change, SetOption)])
    return replace(after, id=schema.id + 1, time_ms=schema.time_ms if time_ms is None else time_ms)


def parse_default(text: str, data_type: DataType) -> None:
    """Raises: InvalidInputError for a default that is not a value of the type."""
    literal_value(unquoted_default(text), data_type)


def _check_initial_default(schema: TableSchema, change: AddColumn, text: str) -> None:
    parse_default(text, change.type)
    if len(change.path) > 1 or schema.table_options.row_counts:
        raise InvalidInputError(
            f"old rows of this column are null: column={path_text(change.path)} initial_default={text!r} "
            "reason='a field of a row has none, and rows that are counted are known by all their values' "
            "fix='add it without an initial default'"
        )


def _upgraded_version(schema: TableSchema) -> TableSchema:
    """A schema of an older format version with its defaults made explicit, since the current ones differ."""
    if schema.version == SCHEMA_VERSION:
        return schema
    options = schema.table_options
    defaults = {"bucket": str(options.bucket), "file.format": options.file_format}
    return replace(schema, version=SCHEMA_VERSION, options={**defaults, **schema.options})


def _level_of_new(change: SchemaChange) -> object:
    """What is equal for changes that are made together: many new columns cost as their number does, not its square."""
    return change.path[:-1] if isinstance(change, AddColumn) and change.position is None else object()


def _applied(schema: TableSchema, change: SchemaChange, *, has_rows: bool) -> TableSchema:
    match change:
        case AddColumn():
            return _added(schema, [change])
        case ReplaceLog() | SignLog():
            return _with_log(schema, change)
        case SetOption() | RemoveOption():
            text = change.text if isinstance(change, SetOption) else None
            return with_option(schema, change.key, text, has_rows=has_rows)
        case SetComment():
            return replace(schema, comment=change.comment)
        case DropColumn():
            return _dropped(schema, change.path)
        case RenameColumn():
            return _renamed(schema, change)
        case ChangeType():
            return _retyped(schema, change)
        case ChangeNullability():
            return _with_nullability(schema, change)
        case ChangeComment():
            return edited(schema, change.path, lambda field: replace(field, description=change.comment))
        case ChangeDefault():
            return edited(schema, change.path, lambda field: _with_default(field, change.default))
        case MoveColumn():
            return in_level(schema, change.path, lambda level: moved(level, change.path[-1], change.position))


def _with_log(schema: TableSchema, change: ReplaceLog | SignLog) -> TableSchema:
    if isinstance(change, SignLog):
        return replace(schema, options={MARKER_KEY_KEY: change.key, **schema.options})
    generation = {} if change.place.get(SYSTEM_KEY) == "none" else {GENERATION_KEY: str(schema.id + 1)}
    return replace(schema, options=in_other_place(schema.options, {**change.place, **generation}))


def _added(schema: TableSchema, changes: Sequence[AddColumn]) -> TableSchema:
    """With new columns of one level at its end; or with one, wherever it goes."""
    ids = count(schema.highest_field_id + 1)
    fields = [_new_field(schema, change, ids) for change in changes]
    highest = next(ids) - 1
    position = changes[0].position

    def insert(level: tuple[DataField, ...]) -> tuple[DataField, ...]:
        taken = {field.name for field in level}
        for change in changes:
            check_free(taken, change.path[-1], change.path)
            taken.add(change.path[-1])
        appended = (*level, *fields)
        return appended if position is None else moved(appended, fields[0].name, position)

    return replace(in_level(schema, changes[0].path, insert), highest_field_id=highest)


def _new_field(schema: TableSchema, change: AddColumn, ids: Iterator[int]) -> DataField:
    if not change.type.nullable:
        raise InvalidInputError(
            f"a new column must be nullable, old rows lack it: column={path_text(change.path)} type={change.type} "
            "fix='remove NOT NULL'"
        )
    if change.default is not None:
        parse_default(change.default, change.type)
    if change.initial_default is not None:
        _check_initial_default(schema, change, change.initial_default)
    return DataField(
        id=next(ids),
        name=change.path[-1],
        type=with_new_field_ids(change.type, ids),
        description=change.comment,
        default_value=change.default,
        initial_default=change.initial_default,
    )


def _dropped(schema: TableSchema, path: ColumnPath) -> TableSchema:
    if len(path) == 1:
        _refuse_if_used(schema, path[0], "dropped")

    def drop(level: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = index_of(level, path[-1], path)
        if len(level) == 1:
            raise InvalidInputError(f"the last column cannot be dropped: column={path_text(path)} fix='drop the table'")
        return (*level[:index], *level[index + 1 :])

    return in_level(schema, path, drop)


def _renamed(schema: TableSchema, change: RenameColumn) -> TableSchema:
    path, name = change.path, change.name
    if len(path) == 1 and path[0] in schema.partition_keys:
        raise InvalidInputError(f"partition columns cannot be renamed, directories use their names: column={path[0]}")

    def rename(level: tuple[DataField, ...]) -> tuple[DataField, ...]:
        index = index_of(level, path[-1], path)
        if name != path[-1]:
            check_free({field.name for field in level}, name, (*path[:-1], name))
        return (*level[:index], replace(level[index], name=name), *level[index + 1 :])

    after = in_level(schema, path, rename)
    if len(path) > 1 or name == path[0]:
        return after
    keys = tuple(name if key == path[0] else key for key in schema.primary_keys)
    return replace(after, primary_keys=keys, options=renamed_in_options(schema.options, {path[0]: name}))


def _retyped(schema: TableSchema, change: ChangeType) -> TableSchema:
    field = field_at(schema, change.path)
    wanted = replace(change.type, nullable=field.type.nullable)
    if wanted == field.type or str(wanted) == str(field.type):
        return schema
    facts = f"column={path_text(change.path)} type={field.type} wanted={wanted}"
    name = change.path[0]
    if name in schema.primary_keys or name in schema.partition_keys or name in schema.bucket_keys:
        raise InvalidInputError(f"type of a key, partition or bucket column cannot change: {facts}")
    if {field.type.root, wanted.root} & NESTED_ROOTS:
        raise InvalidInputError(
            f"a nested type is changed by its parts: {facts} fix='name the part: column.field, column.element'"
        )
    if not can_cast(field.type, wanted):
        raise InvalidInputError(f"stored values cannot be read as the new type: {facts}")
    options = schema.table_options
    if options.disable_explicit_type_casting and not widens(field.type, wanted):
        raise InvalidInputError(
            f"only wider types are allowed: {facts} disable-explicit-type-casting=true fix='set it to false'"
        )
    if name in options.sequence_fields and not keeps_order(field.type, wanted):
        raise InvalidInputError(f"the new type would order rows differently: {facts} used_by=sequence.field")
    if schema.table_options.log_system != "none" and not reads_same_json(field.type, wanted):
        raise InvalidInputError(
            f"records in the log would be read differently from files: {facts} "
            "fix='use a wider integer, a longer text, more digits of a DECIMAL or TIMESTAMP; or a new column'"
        )
    for default in (field.default_value, field.initial_default):
        if default is not None:
            parse_default(default, wanted)
    return edited(schema, change.path, lambda each: replace(each, type=wanted))


def _with_nullability(schema: TableSchema, change: ChangeNullability) -> TableSchema:
    field = field_at(schema, change.path)
    if field.type.nullable == change.nullable:
        return schema
    if change.nullable and change.path[0] in schema.primary_keys:
        raise InvalidInputError(f"key columns are never null: column={path_text(change.path)}")
    if not change.nullable and schema.table_options.alter_column_null_to_not_null_disabled:
        raise InvalidInputError(
            f"existing rows may hold nulls: column={path_text(change.path)} "
            "fix=\"check, then set 'alter-column-null-to-not-null.disabled'='false' first\""
        )
    retyped = replace(field.type, nullable=change.nullable)
    return edited(schema, change.path, lambda each: replace(each, type=retyped))


def _with_default(field: DataField, text: str | None) -> DataField:
    if text is not None:
        parse_default(text, field.type)
    return replace(field, default_value=text)


def _refuse_if_used(schema: TableSchema, name: str, verb: str) -> None:
    uses = [
        *(["the primary key"] if name in schema.primary_keys else []),
        *(["the partitions"] if name in schema.partition_keys else []),
        *uses_of(schema.options, name),
    ]
    if uses:
        raise InvalidInputError(f"column is in use and cannot be {verb}: column={name} used_by={uses}")


# ---- Changes of options of an existing table: which are allowed


# The existing records of the topic were written with these.
FIXED_BY_LOG: Final = frozenset(
    {"log.system", "log.kafka.topic", "log.kafka.topic-id", "log.kafka.topic-is-adopted",
     "log.generation", "log.marker-key", "log.transactional-id.prefix", "log.format", "log.key.format",
     "log.consistency", "log.changelog-mode", "log.system.partitions"}
)  # fmt: skip
_NOT_IN_SCHEMA: Final = {
    "path": "a table stays in its directory",
    "file.path": "a table stays in its directory",
}


def with_option(schema: TableSchema, given: str, text: str | None, *, has_rows: bool) -> TableSchema:
    """A schema with an option set or removed.

    Args:
        schema: the schema to change.
        given: key of the option or one of its aliases.
        text: new value; None removes the option.
        has_rows: whether the table has snapshots; some options cannot change then.

    Raises:
        InvalidInputError: no such option, an invalid value, or the option can no longer change; gives the reason.
    """
    ((key, value),) = canonical_options({given: text or ""}).items()
    current = schema.options.get(key)
    if text is None and current is None:
        return schema
    if text is not None:
        check_property(key, value)
        check_storable({key: value})
        if current == value:
            return schema
    refusal = _refusal(schema, key, current, value if text is not None else None, has_rows=has_rows)
    if refusal is not None:
        if text is not None and schema.is_in_force(key, value):
            return schema
        raise InvalidInputError(refusal)
    options = {name: each for name, each in schema.options.items() if name != key}
    return replace(schema, options=options if text is None else {**options, key: value})


def _refusal(schema: TableSchema, key: str, before: str | None, after: str | None, *, has_rows: bool) -> str | None:
    """Why an option cannot change; None: it can."""
    values = f"option={key} value={_shown(key, before)} wanted={_shown(key, after)}"
    if key in _NOT_IN_SCHEMA:
        return f"option of a table cannot change, {_NOT_IN_SCHEMA[key]}: {values}"
    if key in ("primary-key", "partition"):
        return f"keys and partitions cannot change: {values} fix='create a new table and copy'"
    has_log = schema.table_options.log_system != "none"
    emits_otherwise = key == "changelog-producer" and "lookup" in (before, after)
    is_fixed = key in FIXED_BY_LOG or key == "bucket"
    if has_log and (is_fixed or (emits_otherwise and schema.table_options.log_changelog_mode == "all")):
        fix = "CALL sys.rescale" if key == "bucket" else "create a new table and copy, or drop and create it"
        return f"option cannot change while the table has a log, its records depend on it: {values} fix='{fix}'"
    if key == "log.system" or (key == "log.kafka.bootstrap.servers" and not has_log and after is not None):
        return f"a table gets its log at creation: {values} fix='create a table with a log and copy'"
    option = TableOptions.declared.get(key)
    is_immutable = option is not None and option.is_immutable
    needs_vectors = key == "deletion-vectors.enabled" and schema.primary_keys  # older rows have none
    if has_rows and (is_immutable or needs_vectors) and not (key == "bucket" and _only_rescales(before, after)):
        return (
            f"option cannot change once there are rows, the files depend on it: {values} "
            "fix='create a new table and copy, or drop and create it'"
        )
    return None


def _only_rescales(before: str | None, after: str | None) -> bool:
    """Whether both bucket counts are fixed, so that partitions keep their buckets until they are overwritten."""
    return before is not None and after is not None and int(before) > 0 and int(after) > 0


def _shown(key: str, text: str | None) -> str:
    return str(text) if text is None else shown_value(key, text)
