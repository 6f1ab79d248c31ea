"""Matches the columns of two states of a table, possibly of different branches.

A column is identified by its field id. Branches assign ids independently after they diverge, so later ids are matched
by name and type instead.
"""

from dataclasses import dataclass, replace

from filestore.table import FileTable
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """A difference of one column; None: the column does not exist on that side."""

    before: DataField | None
    after: DataField | None

    @property
    def field(self) -> DataField:
        """The later column, or the dropped one."""
        found = self.after or self.before
        assert found is not None
        return found

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{'added' if self.before is None else 'dropped'} {self.field.name} {self.field.type}"
        words = [f"renamed {self.before.name} to {self.after.name}"] if self.before.name != self.after.name else []
        if self.before.type != self.after.type:
            words.append(f"{self.after.name} changed from {self.before.type} to {self.after.type}")
        return ", ".join(words)


def column_changes(before: FileTable, after: FileTable) -> tuple[ColumnChange, ...]:
    """The columns that differ between two states: in the order of the later one, then dropped ones."""
    pairs = _pairs(before, after)
    own = {field.id: known for known, field in pairs}
    kept = {known.id for known, _ in pairs}
    changes = [ColumnChange(before=own.get(field.id), after=field) for field in after.schema.fields]
    changes += [ColumnChange(before=field, after=None) for field in before.schema.fields if field.id not in kept]
    return tuple(each for each in changes if str(each))


def read_as(before: FileTable, after: FileTable) -> FileTable:
    """The earlier state's table, reading rows with the columns of the later one; new columns are null.

    Raises: InvalidInputError: the keys differ, so rows cannot be compared.
    """
    if before.store.schema.primary_keys != after.store.schema.primary_keys or (
        before.schema.partition_keys != after.schema.partition_keys
    ):
        raise InvalidInputError(
            f"states with different keys cannot be compared: table={after.name} "
            f"before={list(before.schema.primary_keys)} after={list(after.schema.primary_keys)}"
        )
    ids = {field.id: own.id for own, field in _pairs(before, after)}
    unused = -1
    fields: list[DataField] = []
    for field in after.store.schema.fields:
        known = ids.get(field.id)
        if known is None:
            known, unused = unused, unused - 1  # an id that no file of that side has
        fields.append(replace(field, id=known))
    # not an existing schema id, so that files resolve their schemas in their own branch
    return FileTable(before.store.with_schema(replace(after.store.schema, id=-1, fields=tuple(fields))))


def _pairs(before: FileTable, after: FileTable) -> list[tuple[DataField, DataField]]:
    shared = _shared_ids(before, after)
    by_id = {field.id: field for field in before.store.schema.fields}
    by_name = {field.name: field for field in before.store.schema.fields}
    pairs = []
    for field in after.store.schema.fields:
        if shared is None or field.id <= shared:
            own = by_id.get(field.id)
        else:
            own = by_name.get(field.name)
            if own is not None and (own.type != field.type or own.id <= shared):
                own = None
        if own is not None:
            pairs.append((own, field))
    return pairs


def _shared_ids(before: FileTable, after: FileTable) -> int | None:
    """The highest field id assigned before two branches diverged; None: it is one branch."""
    if before.store.paths.branch == after.store.paths.branch:
        return None
    highest = -1
    earlier_ids = set(before.store.schemas.ids())
    for schema_id in after.store.schemas.ids():
        if schema_id not in earlier_ids:
            break
        one, two = before.store.schemas.read(schema_id), after.store.schemas.read(schema_id)
        if (one.fields, one.highest_field_id, one.time_ms) != (two.fields, two.highest_field_id, two.time_ms):
            break
        highest = one.highest_field_id
    return highest
