"""Random histories of schema changes and writes, and what every version of the schema must show of them.

The oracle knows nothing of files: a row is a dictionary from field ids to values, at every depth.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, MoveColumn, RenameColumn, SchemaChange
from filestore.schema.column_paths import ColumnPath, ColumnPosition
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType, parse_field

POINT: Final = {
    "type": "ROW",
    "fields": [{"id": 0, "name": "x", "type": "INT"}, {"id": 0, "name": "y", "type": "STRING"}],
}
FIRST: Final = {
    "id": "BIGINT NOT NULL",
    "n": "INT",
    "s": "STRING",
    "f": "FLOAT",
    "d": "DECIMAL(6, 2)",
    "p": POINT,
    "l": {"type": "ARRAY", "element": POINT},
    "m": {"type": "MAP", "key": "STRING", "value": POINT},
}
_WIDER: Final = {
    "TINYINT": ("INT", None, None),
    "INT": ("BIGINT", None, None),
    "FLOAT": ("DOUBLE", None, None),
    "DECIMAL": ("DECIMAL", 12, 2),
}
Row = dict[int, Any]


@dataclass
class SchemaHistory:
    """One table, changed and written at random."""

    catalog: FileCatalog
    name: str
    random: random.Random
    compacts: bool = True
    nested_names: bool = True  # whether fields inside of columns get other names
    rows: list[Row] = field(default_factory=list)
    used_ids: set[int] = field(default_factory=set)
    serial: int = 0

    def begin(self, **options: str) -> None:
        """Make the table."""
        columns = [parse_field({"id": 0, "name": name, "type": kind}) for name, kind in FIRST.items()]
        self.catalog.create_table(self.name, columns, primary_key=["id"], options={"bucket": "1", **options})
        self._check_ids()

    def run(self, steps: int) -> None:
        """Take steps, and end with a write."""
        for _ in range(steps):
            match self.random.choice(["write", "write", "compact", "add", "add", "drop", "rename", "widen", "move"]):
                case "write":
                    self.write()
                case "compact":
                    if self.compacts:
                        self.catalog.table(self.name).compact(full=True)
                case step:
                    change = getattr(self, f"_{step}")()
                    if change is not None:
                        self.catalog.alter_table(self.name, [change])
                        self._check_ids()
        self.write()

    def write(self) -> None:
        """Two rows of every column that there is."""
        table = self.catalog.table(self.name)
        news = [self._row(table.schema, len(self.rows) + each) for each in range(2)]
        self.rows += news
        shown = [self.shown(row, table.schema) for row in news]
        table.write(pa.Table.from_pylist(shown, schema=table.schema.arrow_schema))

    def shown(self, row: Row, schema: TableSchema) -> dict[str, Any]:
        """A row as a version of the schema has it."""
        return _shown_fields(row, schema.fields)

    def expected(self, schema: TableSchema) -> list[dict[str, Any]]:
        """All rows as a version of the schema has them, by key."""
        return [self.shown(row, schema) for row in self.rows]

    @property
    def _schema(self) -> TableSchema:
        return self.catalog.table(self.name).schema

    def _check_ids(self) -> None:
        ids = [each.id for _, each in _paths(self._schema.fields, ())]
        assert len(ids) == len({*ids}), "an id is there twice"
        gone = self.used_ids - {*ids}
        self.used_ids |= {*ids}
        assert not gone & {*ids}, "an id came back"

    def _row(self, schema: TableSchema, number: int) -> Row:
        return {each.id: number if each.name == "id" else self._value(each.type) for each in schema.fields}

    def _value(self, kind: DataType) -> Any:
        if kind.nullable and self.random.random() < 0.15:
            return None
        match kind.root:
            case "ROW":
                return {each.id: self._value(each.type) for each in kind.fields}
            case "ARRAY":
                assert kind.element is not None
                return [self._value(kind.element) for _ in range(self.random.randint(0, 2))]
            case "MAP":
                assert kind.value is not None
                return [(f"k{each}", self._value(kind.value)) for each in range(self.random.randint(0, 2))]
            case "VARCHAR":
                return self.random.choice(["", "a", "ö" * 3])
            case "FLOAT" | "DOUBLE":
                return self.random.randint(-8, 8) / 4  # a value of both
            case "DECIMAL":
                return pa.scalar(self.random.randint(-9999, 9999) / 100, pa.float64()).cast(pa.decimal128(6, 2)).as_py()
            case _:
                return self.random.randint(-100, 100)

    def _add(self) -> SchemaChange:
        rows: list[ColumnPath] = [
            (),
            *(path for path, each in _paths(self._schema.fields, ()) if each.type.root == "ROW"),
        ]
        rows += [(*path, part) for path, part in _row_parts(self._schema.fields)]
        kind = DataType(root=self.random.choice(["INT", "TINYINT", "FLOAT"]))
        return AddColumn(path=(*self.random.choice(rows), self._fresh()), type=kind)

    def _drop(self) -> SchemaChange | None:
        chosen = self._some(lambda path, each: len(path) > 1 or each.type.root not in ("ROW", "ARRAY", "MAP"))
        if chosen is None or len(self._level(chosen[0])) == 1:
            return None
        return DropColumn(chosen[0])

    def _rename(self) -> SchemaChange | None:
        chosen = self._some(lambda path, each: self.nested_names or len(path) == 1)
        return None if chosen is None else RenameColumn(chosen[0], self._fresh())

    def _widen(self) -> SchemaChange | None:
        chosen = self._some(lambda path, each: each.type.root in _WIDER)
        if chosen is None:
            return None
        root, precision, scale = _WIDER[chosen[1].type.root]
        return ChangeType(chosen[0], DataType(root=root, precision=precision, scale=scale))

    def _move(self) -> SchemaChange | None:
        chosen = self._some(lambda path, each: True)
        return None if chosen is None else MoveColumn(chosen[0], ColumnPosition())

    def _some(self, test: Any) -> tuple[ColumnPath, DataField] | None:
        found = [(path, each) for path, each in _paths(self._schema.fields, ()) if path != ("id",) and test(path, each)]
        return self.random.choice(found) if found else None

    def _level(self, path: ColumnPath) -> list[ColumnPath]:
        return [other for other, _ in _paths(self._schema.fields, ()) if other[:-1] == path[:-1]]

    def _fresh(self) -> str:
        self.serial += 1
        return f"c{self.serial}"


def _paths(fields: Sequence[DataField], parent: ColumnPath) -> Iterator[tuple[ColumnPath, DataField]]:
    """Every named field, with its path."""
    for each in fields:
        path = (*parent, each.name)
        yield path, each
        yield from _inside(each.type, path)


def _inside(kind: DataType, path: ColumnPath) -> Iterator[tuple[ColumnPath, DataField]]:
    yield from _paths(kind.fields, path)
    if kind.element is not None:
        yield from _inside(kind.element, (*path, "element"))
    if kind.value is not None:
        yield from _inside(kind.value, (*path, "value"))


def _row_parts(fields: Sequence[DataField]) -> Iterator[tuple[ColumnPath, str]]:
    for path, each in _paths(fields, ()):
        if each.type.element is not None and each.type.element.root == "ROW":
            yield path, "element"
        if each.type.value is not None and each.type.value.root == "ROW":
            yield path, "value"


def _shown_fields(values: Mapping[int, Any], fields: Sequence[DataField]) -> dict[str, Any]:
    return {each.name: _shown(values.get(each.id), each.type) for each in fields}


def _shown(value: Any, kind: DataType) -> Any:
    if value is None:
        return None
    if kind.root == "ROW":
        return _shown_fields(value, kind.fields)
    if kind.element is not None:
        return [_shown(each, kind.element) for each in value]
    if kind.value is not None:
        return [(key, _shown(each, kind.value)) for key, each in value]
    return value
