"""Whether files of an older version of the schema hold the same rows under the newest one.

Columns are matched by field id: added ones are null, other names, positions and wider types change no value. What a
file cannot make up for is named: a dropped column, a type that does not hold every value, another key or layout.
Options that fold the rows of one key matter only where files overlap, so they are compared separately.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from filestore.options.option import Option
from filestore.options.parsing import names
from filestore.options.table.columns import FieldOptions
from filestore.options.table.groups import split_field_key
from filestore.options.table_options import TableOptions
from filestore.schema.column_options import renamed_in_options
from filestore.schema.column_paths import ColumnPath, path_text
from filestore.schema.file_fields import map_parts
from filestore.schema.merge_engine import has_whole_rows
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import widens
from filestore.types.data_types import NESTED_ROOTS, DataField, DataType

# Compared by their columns, or of readers and logs; bucket counts are those of files.
_COMPARED_OTHERWISE: Final = frozenset({"primary-key", "partition", "bucket", "bucket-key", "rowkind.field"})
_LAYOUT: Final[tuple[Option[Any], ...]] = (TableOptions.partition_default_name, TableOptions.partition_legacy_name)
_FOLDING: Final[tuple[Option[Any], ...]] = (
    TableOptions.sequence_fields,
    TableOptions.sequence_field_sort_order,
    TableOptions.ignore_delete,
    TableOptions.fields_default_aggregate_function,
)
_LOOKING_UP: Final[tuple[Option[Any], ...]] = (
    TableOptions.changelog_producer,
    TableOptions.force_lookup,
    TableOptions.deletion_vectors_enabled,
)
_NOT_FOLDING: Final = frozenset({FieldOptions.stats_mode.key})


def obstacles(then: TableSchema, now: TableSchema) -> tuple[str, ...]:
    """Why files of ``then`` do not hold the same rows under ``now``, one text for each reason; (): they do."""
    return (*_columns(then.fields, now.fields, ()), *_shape(then, now))


def folding_changes(then: TableSchema, now: TableSchema) -> tuple[str, ...]:
    """Options that fold the rows of one key otherwise, with both values; renamed and added columns are no change."""
    if not then.primary_keys:
        return ()
    before = _by_new_names(then, now)
    found = list(_option_changes(before, now, _FOLDING))
    if has_whole_rows(then.table_options) != has_whole_rows(now.table_options):
        found += _option_changes(before, now, _LOOKING_UP)
    added = {field.name for field in now.fields} - {field.name for field in before.fields}
    old, new = _field_options(before, added), _field_options(now, added)
    found += [_change(key, old.get(key), new.get(key)) for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return tuple(found)


def _columns(then: Sequence[DataField], now: Sequence[DataField], parent: ColumnPath) -> Iterator[str]:
    by_id = {field.id: field for field in now}
    for field in then:
        path, found = (*parent, field.name), by_id.get(field.id)
        if found is None:
            yield f"column {path_text(path)} was dropped"
        else:
            yield from _types(field.type, found.type, path)


def _types(then: DataType, now: DataType, path: ColumnPath) -> Iterator[str]:
    if then.nullable and not now.nullable:
        yield f"column {path_text(path)} is NOT NULL now"
    if then.root != now.root and {then.root, now.root} & NESTED_ROOTS:
        yield _retyped(then, now, path)
    elif then.root == "ROW":
        yield from _columns(then.fields, now.fields, path)
    elif then.root == "ARRAY" and then.element is not None and now.element is not None:
        yield from _types(then.element, now.element, (*path, "element"))
    elif then.root in NESTED_ROOTS:
        for name, one, two in zip(("key", "value"), map_parts(then), map_parts(now), strict=True):
            yield from _types(one, two, (*path, name))
    elif str(replace(then, nullable=True)) != str(replace(now, nullable=True)) and not widens(then, now):
        yield _retyped(then, now, path)


def _retyped(then: DataType, now: DataType, path: ColumnPath) -> str:
    return f"column {path_text(path)} is {now} now, it was {then}"


def _shape(then: TableSchema, now: TableSchema) -> Iterator[str]:
    for what, before, after in (
        ("primary key", then.primary_keys, now.primary_keys),
        ("partition", then.partition_keys, now.partition_keys),
        ("bucket key", then.bucket_keys, now.bucket_keys),
    ):
        if _ids(then, before) != _ids(now, after):
            yield f"the {what} is {','.join(after) or 'none'} now, it was {','.join(before) or 'none'}"
    fixed = [
        option
        for key, option in TableOptions.declared.items()
        if option.is_immutable and key not in _COMPARED_OTHERWISE and not key.startswith("log.")
    ]
    yield from _option_changes(_by_new_names(then, now), now, [*fixed, *(_LAYOUT if then.partition_keys else ())])


def _ids(schema: TableSchema, columns: Sequence[str]) -> list[int]:
    return [field.id for field in schema.fields_of(columns)]


def _option_changes(then: TableSchema, now: TableSchema, options: Sequence[Option[Any]]) -> Iterator[str]:
    for option in options:
        before, after = then.table_options[option], now.table_options[option]
        if before != after:
            yield _change(option.key, before, after)


def _change(key: str, before: object, after: object) -> str:
    return f"{key} is {_text(after)} now, it was {_text(before)}"


def _text(value: object) -> str:
    return "not set" if value in (None, ()) else ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _by_new_names(then: TableSchema, now: TableSchema) -> TableSchema:
    """The older schema with the newest names of its columns; dropped ones keep the old names."""
    newest = {field.id: field.name for field in now.fields}
    names = {field.name: newest[field.id] for field in then.fields if newest.get(field.id, field.name) != field.name}
    options = renamed_in_options(then.options, names)
    fields = tuple(replace(field, name=newest.get(field.id, field.name)) for field in then.fields)
    keys = tuple(newest.get(field.id, field.name) for field in then.fields_of(then.primary_keys))
    return replace(then, fields=fields, options=options, primary_keys=keys)


def _field_options(schema: TableSchema, added: set[str]) -> dict[str, tuple[str, ...] | str]:
    """Options of columns by key, without columns that were added since."""
    found: dict[str, tuple[str, ...] | str] = {}
    for key, text in schema.options.items():
        split = split_field_key(key)
        if split is None or split[1] in _NOT_FOLDING or set(split[0]) <= added:
            continue
        value = tuple(sorted(set(names(text)) - added)) if split[1] == FieldOptions.sequence_group.key else text
        if value:
            found[key] = value
    return found
