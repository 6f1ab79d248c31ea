"""Matches the columns of two states of a table, possibly of different branches.

A column is identified by its field id. Branches assign ids independently after they diverge, so later ids are matched
by name and type instead.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from filestore.changelog.compared_states import DiffSide
from filestore.manifest.entries import DataFileMeta
from filestore.table import FileTable
from filestore.types.casts import widens
from filestore.types.data_types import NESTED_ROOTS, DataField, DataType
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStates:
    """How two states are shown in the same columns: those of the later one, of types that hold the values of both.

    A column that the earlier state does not have shows as its initial default there, else as null. Picklable.
    """

    table: FileTable  # with the schema of the difference
    before: DiffSide
    after: DiffSide
    changed: tuple[tuple[DataField | None, DataField], ...]  # columns that need not show the same on both sides

    def shows_same(self, file: DataFileMeta) -> bool:
        """Whether a file that both states have gives equal rows in both."""
        if not self.changed:
            return True
        known = {field.id: field for field in self.after.store.schema_of(file.schema_id).fields}
        return all(_shows_same(before, after, known) for before, after in self.changed)


def shown_together(before: FileTable, after: FileTable) -> ShownStates:
    """Match the columns of two states.

    Raises: InvalidInputError: the keys differ, so rows cannot be compared.
    """
    if before.store.schema.primary_keys != after.store.schema.primary_keys or (
        before.schema.partition_keys != after.schema.partition_keys
    ):
        raise InvalidInputError(
            f"states with different keys cannot be compared: table={after.name} "
            f"before={list(before.schema.primary_keys)} after={list(after.schema.primary_keys)}"
        )
    shared = _shared_ids(before, after)
    own = {field.id: known for known, field in _pairs(before, after)}
    shown, there, changed = [], dict[str, DataField](), list[tuple[DataField | None, DataField]]()
    unused = count(-1, -1)  # ids that no file has
    for field in after.store.schema.fields:
        known = own.get(field.id)
        if known is None:
            shown.append(replace(field, type=replace(field.type, nullable=True)))
            there[field.name] = replace(shown[-1], id=next(unused))
            changed.append((None, field))
            continue
        data_type = _of_both(known.type, field.type, shared)
        shown.append(replace(field, type=data_type))
        there[field.name] = replace(shown[-1], id=known.id, type=_on_side(data_type, known.type, shared, unused))
        if known.id != field.id or known.type != field.type or known.initial_default != field.initial_default:
            changed.append((known, field))
    if not changed and {field.name for field in before.store.schema.fields} == {*there}:
        there = {}
    schema = after.store.schema
    if (fields := tuple(shown)) != schema.fields:  # no existing version: files have their own
        schema = replace(schema, id=-1, fields=fields)
    return ShownStates(
        table=FileTable(after.store.with_schema(schema)),
        before=DiffSide(store=before.store, fields=there),
        after=DiffSide(store=after.store, fields={} if schema.id >= 0 else {field.name: field for field in fields}),
        changed=tuple(changed),
    )


def _shows_same(before: DataField | None, after: DataField, known: Mapping[int, DataField]) -> bool:
    """Whether a column shows the same of a file with these columns, by id."""
    new = known.get(after.id)
    if before is None:
        return new is None
    old = known.get(before.id)
    if old is None or new is None:
        return old is new and before.initial_default == after.initial_default
    is_plain = {old.type.root, before.type.root, after.type.root}.isdisjoint(NESTED_ROOTS)
    return old is new and is_plain and _holds(before.type, old.type) and _holds(after.type, old.type)


def _holds(wide: DataType, narrow: DataType) -> bool:
    """Whether an atomic type shows each value of another unchanged."""
    return replace(wide, nullable=True) == replace(narrow, nullable=True) or widens(narrow, wide)


def _of_both(before: DataType, after: DataType, shared: int | None) -> DataType:
    """A type for the values of both: the wider one, else the later one."""
    nullable = before.nullable or after.nullable
    if before.root != after.root or after.root not in NESTED_ROOTS:
        is_plain = {before.root, after.root}.isdisjoint(NESTED_ROOTS)
        is_wider = is_plain and widens(after, before) and not _holds(after, before)
        return replace(before if is_wider else after, nullable=nullable)

    def part(one: DataType | None, two: DataType | None) -> DataType | None:
        return two if one is None or two is None else _of_both(one, two, shared)

    inner = []
    for field in after.fields:
        known = _match(before.fields, field, shared)
        data_type = _nullable(field.type) if known is None else _of_both(known.type, field.type, shared)
        inner.append(replace(field, type=data_type))
    element, value = part(before.element, after.element), part(before.value, after.value)
    return replace(after, nullable=nullable, fields=tuple(inner), element=element, value=value)


def _on_side(shown: DataType, own: DataType, shared: int | None, unused: Iterator[int]) -> DataType:
    """A type of the difference with the ids that the fields inside it have on a side."""
    if shown.root != own.root or shown.root not in NESTED_ROOTS:
        return shown

    def part(one: DataType | None, two: DataType | None) -> DataType | None:
        return one if one is None or two is None else _on_side(one, two, shared, unused)

    inner = []
    for field in shown.fields:
        known = _match(own.fields, field, shared)
        if known is None:
            inner.append(replace(field, id=next(unused)))
        else:
            inner.append(replace(field, id=known.id, type=_on_side(field.type, known.type, shared, unused)))
    element, key, value = (
        part(one, two) for one, two in ((shown.element, own.element), (shown.key, own.key), (shown.value, own.value))
    )
    return replace(shown, fields=tuple(inner), element=element, key=key, value=value)


def _match(fields: Sequence[DataField], field: DataField, shared: int | None) -> DataField | None:
    """The field of the earlier state that a field of the later one is, both on one level."""
    if shared is None or field.id <= shared:
        return next((each for each in fields if each.id == field.id), None)
    found = next((each for each in fields if each.name == field.name), None)
    return found if found is not None and found.type == field.type and found.id > shared else None


def _nullable(data_type: DataType) -> DataType:
    return replace(data_type, nullable=True)


def _pairs(before: FileTable, after: FileTable) -> list[tuple[DataField, DataField]]:
    shared = _shared_ids(before, after)
    found = ((_match(before.store.schema.fields, field, shared), field) for field in after.store.schema.fields)
    return [(own, field) for own, field in found if own is not None]


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
