"""Rows of any schema: made of tuples or dicts, written to a table, read back as Python values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lsm.row_kind import RowKind

if TYPE_CHECKING:
    from engine import Table as EngineTable
    from filestore.table import FileTable

    AnyTable = EngineTable | FileTable

Row = Mapping[str, Any] | Sequence[Any]


def arrow_rows(schema: pa.Schema, *rows: Row) -> pa.Table:
    """Rows of a schema: tuples of its first columns, or dicts; columns left out are null."""
    assert all(len(row) <= len(schema.names) for row in rows), "more values than columns"
    dicts = [row if isinstance(row, Mapping) else dict(zip(schema.names, row, strict=False)) for row in rows]
    return pa.Table.from_pylist(dicts, schema=schema)


def id_rows(ids: Sequence[int], v: str | None = "x") -> pa.Table:
    """Rows of an ``id`` and a text ``v``."""
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.string())})


def write_rows(table: "AnyTable", *rows: Row, kinds: Sequence[str] | None = None) -> None:
    """Commit rows of the table's schema, by default as inserts."""
    table.write(arrow_rows(table.schema.arrow_schema, *rows), kinds=None if kinds is None else pa.array(kinds))


def write_changes(table: "AnyTable", *changes: tuple[Any, ...]) -> None:
    """Commit changes: each a kind, then the row as a dict or as its values."""
    rows = [change[1] if isinstance(change[1], Mapping) else change[1:] for change in changes]
    write_rows(table, *rows, kinds=[change[0] for change in changes])


def sorted_rows(table: "AnyTable", *columns: str, **travel: Any) -> list[tuple[Any, ...]]:
    """Rows as sorted tuples: of the columns named, by default of all."""
    found = table.read(**travel).to_arrow(columns or None)
    return sorted(tuple(row.values()) for row in found.to_pylist())


def row_set(table: "AnyTable", **travel: Any) -> frozenset[tuple[Any, ...]]:
    """Rows as tuples; fails when one is there twice."""
    found = [tuple(row.values()) for row in table.read(**travel).to_arrow().to_pylist()]
    assert len(found) == len(set(found))
    return frozenset(found)


def row_dicts(table: "AnyTable", *by: str, **travel: Any) -> list[dict[str, Any]]:
    """Rows as dicts, sorted by some columns."""
    found: list[dict[str, Any]] = table.read(**travel).to_arrow().to_pylist()
    return sorted(found, key=lambda row: tuple(row[name] for name in by))


def rows_by(keys: Sequence[str], table: "AnyTable", **travel: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by their key; fails when a key is there twice."""
    found = table.read(**travel).to_arrow().to_pylist()
    by_key = {tuple(row[name] for name in keys): row for row in found}
    assert len(by_key) == len(found), "a key is there twice"
    return by_key


def change_tuples(found: Iterable[tuple[pa.RecordBatch, pa.Array]]) -> list[tuple[Any, ...]]:
    """Changes with their kinds, as ``(kind, *values)`` in the order given; fails when a batch is empty or too short."""
    changes: list[tuple[Any, ...]] = []
    for batch, kinds in found:
        assert batch.num_rows == len(kinds) > 0
        symbols = [RowKind(kind).symbol for kind in kinds.tolist()]
        changes += [(kind, *row.values()) for kind, row in zip(symbols, batch.to_pylist(), strict=True)]
    return changes
