"""Changes of columns with the names that the table has, when a statement writes them in another case."""

from collections.abc import Sequence
from dataclasses import replace

from engine.types.column_names import CaseRule
from filestore.evolution.schema_change import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    ReplaceLog,
    SchemaChange,
    SetComment,
    SetOption,
    SignLog,
)
from filestore.schema.column_paths import ColumnPath, ColumnPosition, edited, in_level
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType
from lsm.errors import InvalidInputError

_OF_THE_TABLE = (ReplaceLog, SignLog, SetOption, RemoveOption, SetComment)


def resolved(schema: TableSchema, changes: Sequence[SchemaChange], names: CaseRule) -> list[SchemaChange]:
    """The changes with the columns' own names.

    A column that is added, or a new name, becomes the name of the column that has it already in another case, so that
    the change is refused, or is done (IF NOT EXISTS). A name that the table does not have stays as it is.

    Args:
        schema: of the table before the first change.
        changes: each sees the result of the ones before it.
        names: the session's.
    """
    found: list[SchemaChange] = []
    for change in changes:
        if isinstance(change, _OF_THE_TABLE):
            found.append(change)
            continue
        found.append(_resolved(schema, change, names))
        schema = _named_after(schema, found[-1])
    return found


def resolved_path(schema: TableSchema, path: ColumnPath, names: CaseRule) -> ColumnPath:
    """A path with the columns' own names."""
    made: list[str] = []
    level: Sequence[DataField] = schema.fields
    inside: DataType | None = None
    for part in path:
        if inside is not None and inside.root != "ROW":
            made.append(part)  # ``element`` or ``value``
            inside = inside.element if part == "element" else inside.value
        else:
            made.append(names.meant(part, [field.name for field in level]))
            inside = next((field.type for field in level if field.name == made[-1]), None)
        level = () if inside is None else inside.fields
    return tuple(made)


def _resolved(schema: TableSchema, change: SchemaChange, names: CaseRule) -> SchemaChange:
    assert not isinstance(change, _OF_THE_TABLE)
    path = resolved_path(schema, change.path, names)
    if isinstance(change, RenameColumn):
        taken = resolved_path(schema, (*path[:-1], change.name), names)[-1]
        return RenameColumn(path, change.name if taken == path[-1] else taken)
    if isinstance(change, AddColumn | MoveColumn) and change.position is not None and change.position.after:
        after = resolved_path(schema, (*path[:-1], change.position.after), names)[-1]
        return replace(change, path=path, position=ColumnPosition(after))
    return replace(change, path=path)


def _named_after(schema: TableSchema, change: SchemaChange) -> TableSchema:
    """The schema with the names that it has after a change; a change that fails later changes nothing here."""
    try:
        if isinstance(change, RenameColumn):
            return edited(schema, change.path, lambda field: replace(field, name=change.name))
        if isinstance(change, AddColumn):
            new = DataField(id=-1, name=change.path[-1], type=change.type)
            return in_level(schema, change.path, lambda level: (*level, new))
        if isinstance(change, DropColumn):
            name = change.path[-1]
            return in_level(schema, change.path, lambda level: tuple(each for each in level if each.name != name))
    except InvalidInputError:  # the change itself says it
        pass
    return schema
