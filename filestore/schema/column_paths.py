"""Columns and the fields inside them, by the path of their names."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType
from lsm.errors import ColumnExistsError, InvalidInputError, MissingColumnError
from lsm.nearest_names import did_you_mean

ColumnPath = tuple[str, ...]
"""A column's name, then names inside it: of a ROW's field, ``element`` of an array, ``value`` of a map."""


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """The position of a column: after another one of the same level, or with None at the front."""

    after: str | None = None


def path_text(path: ColumnPath) -> str:
    """A path of names as text, for messages."""
    return ".".join(path)


def field_at(schema: TableSchema, path: ColumnPath) -> DataField:
    """The column or inner field at a path. Raises: InvalidInputError with the names there are."""
    found: list[DataField] = []

    def look(field: DataField) -> DataField:
        found.append(field)
        return field

    edited(schema, path, look)
    return found[0]


def edited(schema: TableSchema, path: ColumnPath, edit: Callable[[DataField], DataField]) -> TableSchema:
    """The schema with the field at a path replaced; ``element`` and ``value`` are fields here."""

    def replaced(fields: tuple[DataField, ...], rest: ColumnPath) -> tuple[DataField, ...]:
        index = index_of(fields, rest[0], path)
        field = fields[index]
        changed = edit(field) if len(rest) == 1 else replace(field, type=inside(field.type, rest[1:]))
        return (*fields[:index], changed, *fields[index + 1 :])

    def inside(data_type: DataType, rest: ColumnPath) -> DataType:
        if data_type.root == "ROW":
            return replace(data_type, fields=replaced(data_type.fields, rest))
        part = _part(data_type, rest[0], path)
        inner: DataType = getattr(data_type, part)
        changed = edit(DataField(id=-1, name=part, type=inner)).type if len(rest) == 1 else inside(inner, rest[1:])
        return replace(data_type, element=changed) if part == "element" else replace(data_type, value=changed)

    return replace(schema, fields=replaced(schema.fields, path))


def in_level(
    schema: TableSchema, path: ColumnPath, edit: Callable[[tuple[DataField, ...]], tuple[DataField, ...]]
) -> TableSchema:
    """The schema with the columns, or the fields of a ROW, among which the end of the path is, replaced."""
    if len(path) == 1:
        return replace(schema, fields=edit(schema.fields))

    def in_row(field: DataField) -> DataField:
        if field.type.root != "ROW":
            raise InvalidInputError(f"column has no fields: column={path_text(path[:-1])} type={field.type}")
        return replace(field, type=replace(field.type, fields=edit(field.type.fields)))

    return edited(schema, path[:-1], in_row)


def _part(data_type: DataType, name: str, path: ColumnPath) -> str:
    parts = [part for part in ("element", "value") if getattr(data_type, part) is not None]
    if name not in parts:
        raise InvalidInputError(f"no such part of a column: column={path_text(path)} type={data_type} parts={parts}")
    return name


def index_of(level: Sequence[DataField], name: str, path: ColumnPath) -> int:
    """Place of a name. Raises: InvalidInputError with the names there are."""
    names = [field.name for field in level]
    if name not in names:
        hint = did_you_mean(name, names)
        raise MissingColumnError(f"no such column: column={path_text(path)} columns={names}{hint}")
    return names.index(name)


def moved(level: tuple[DataField, ...], name: str, position: ColumnPosition) -> tuple[DataField, ...]:
    """A level with one of its fields at another place. Raises: InvalidInputError when there is no such place."""
    field = level[index_of(level, name, (name,))]
    others = tuple(each for each in level if each is not field)
    if position.after is None:
        return (field, *others)
    if position.after == name:
        raise InvalidInputError(f"a column cannot be moved behind itself: column={name}")
    place = index_of(others, position.after, (position.after,)) + 1
    return (*others[:place], field, *others[place:])


def check_free(taken: Container[str], name: str, path: ColumnPath) -> None:
    """Refuse a name that is taken. Raises: InvalidInputError."""
    if name in taken:
        raise ColumnExistsError(f"column exists already: column={path_text(path)} fix='choose another name'")
