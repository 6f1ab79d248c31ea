"""Whether a reader can continue with its columns across a change of the table's schema.

Columns are matched by field id. New columns are hidden; a different name, position, comment, default or option makes no
difference; a wider type is read with a check of every value (``schema_mapping``). Changes that would require inventing
values are refused: a dropped NOT NULL column would be null, and values of an incompatible type mean something else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from filestore.schema.column_paths import ColumnPath, path_text
from filestore.schema.file_fields import map_parts
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import widens
from filestore.types.data_types import NESTED_ROOTS, DataField, DataType


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The effects of a schema change on a reader, as column paths by the reader's names (new names for added ones)."""

    added: tuple[str, ...] = ()  # hidden
    renamed: tuple[str, ...] = ()  # old -> new
    widened: tuple[str, ...] = ()  # column old -> new; values are checked
    dropped: tuple[str, ...] = ()  # nullable columns
    refused: tuple[str, ...] = ()  # column=... reason=...


def crossing(known: TableSchema, newest: TableSchema, columns: Sequence[str]) -> Crossing:
    """The effects on a reader of ``columns`` of the schema ``known`` when rows have the schema ``newest``.

    Args:
        known: the schema version of the reader.
        newest: another version, usually a later one.
        columns: names in ``known``; changes of other columns are ignored.
    """
    by_id = {field.id: field for field in newest.fields}
    wanted = known.fields_of(columns)
    found = [*_of_fields(wanted, by_id, ())]
    known_ids = {field.id for field in known.fields}
    found += [("added", field.name) for field in newest.fields if field.id not in known_ids]
    parts = {
        kind: tuple(text for each, text in found if each == kind)
        for kind in ("added", "renamed", "widened", "dropped", "refused")
    }
    return Crossing(**parts)


_Found = Iterator[tuple[str, str]]


def _of_fields(fields: Sequence[DataField], by_id: dict[int, DataField], parent: ColumnPath) -> _Found:
    for field in fields:
        path = (*parent, field.name)
        now = by_id.get(field.id)
        if now is None:
            if field.type.nullable:
                yield "dropped", path_text(path)
            else:
                yield "refused", f"column={path_text(path)} reason='it was dropped, and is NOT NULL'"
            continue
        if now.name != field.name:
            yield "renamed", f"{path_text(path)} -> {path_text((*parent, now.name))}"
        yield from _of_types(field.type, now.type, path)


def _of_types(known: DataType, now: DataType, path: ColumnPath) -> _Found:
    if now.nullable and not known.nullable and len(path) > 1:  # top-level columns are checked value by value
        yield "refused", f"column={path_text(path)} reason='it is nullable now'"
    if known.root != now.root and {known.root, now.root} & NESTED_ROOTS:
        yield "refused", _other_type(known, now, path)
    elif known.root == "ROW":
        yield from _of_fields(known.fields, {field.id: field for field in now.fields}, path)
        ids = {field.id for field in known.fields}
        yield from (("added", path_text((*path, field.name))) for field in now.fields if field.id not in ids)
    elif known.root == "ARRAY" and known.element is not None and now.element is not None:
        yield from _of_types(known.element, now.element, (*path, "element"))
    elif known.root in NESTED_ROOTS:
        for name, one, two in zip(("key", "value"), map_parts(known), map_parts(now), strict=True):
            yield from _of_types(one, two, (*path, name))
    elif (known.root, known.length, known.precision, known.scale) != (now.root, now.length, now.precision, now.scale):
        if widens(known, now):
            yield "widened", f"{path_text(path)} {known} -> {now}"
        else:
            yield "refused", _other_type(known, now, path)


def _other_type(known: DataType, now: DataType, path: ColumnPath) -> str:
    return (
        f"column={path_text(path)} type={known} new_type={now} reason='values of the new type may not fit the old one'"
    )
