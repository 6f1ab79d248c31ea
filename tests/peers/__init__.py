"""Other implementations of the table format, behind one interface, so that tests can ask them what they see.

`java` is Apache Paimon itself, the reference; `pypaimon` is its Python sister. Both come pinned (conf/paimon-jars.lock,
conf/peers-constraints.txt). A peer that is missing fails the test that needs it: nothing is skipped.

Rows cross this border normalised (`normalise`), so that equal content compares equal with `==` by any peer.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Row = dict[str, Any]
Condition = tuple[str, str, Any]  # column, one of OPERATORS, value; "in" takes a list, "is_null" and "is_not_null" None

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "is_null", "is_not_null", "starts_with")

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)  # row kinds as the files have them


class PeerError(Exception):
    """What a peer said when it failed."""


class PeerRefusedError(PeerError):
    """The peer says that it does not know how to do this: nothing is wrong with the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """A table to create. `columns` are (name, type), the type as in a schema file: text, or an object when nested."""

    columns: Sequence[tuple[str, Any]]
    primary_key: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)


class Peer(Protocol):
    """One implementation of the format. `table` is "database.name", `warehouse` a directory."""

    name: str

    def create(self, warehouse: Path, table: str, definition: TableDefinition) -> None:
        """Create the table, and its database when missing."""

    def read(
        self,
        warehouse: Path,
        table: str,
        *,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        options: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows of the latest or the named snapshot, normalised, sorted by `row_text`; `where` conditions all hold.

        `options` are dynamic table options, for example `{"scan.tag-name": "eod"}`.
        """

    def write(self, warehouse: Path, table: str, rows: pa.Table, *, kinds: Sequence[int] | None = None) -> None:
        """Write and commit rows, in this order; `kinds` has a row kind for each (default: all INSERT)."""


def normalise(rows: pa.Table) -> list[Row]:
    """Rows as plain values, sorted by `row_text`.

    Timestamps are ISO text without the trailing zeros of the fraction ("Z" at the end for local-zone ones), dates ISO
    text, times milliseconds, decimals `Decimal` with their scale, NaN "NaN", negative zero "-0.0", maps sorted pairs.
    """
    columns = {name: _values(rows.column(name).combine_chunks()) for name in rows.column_names}
    listed = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(listed, key=row_text)


def row_text(row: Mapping[str, Any]) -> str:
    """One line that orders rows: the same text for equal normalised rows."""
    return "|".join(f"{name}={_text(row[name])}" for name in sorted(row))


def without(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """The rows less some columns, sorted again."""
    return sorted(({name: row[name] for name in row if name not in columns} for row in rows), key=row_text)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_text(value[name])}" for name in value) + "}"
    return repr(value)


def _values(column: Any) -> list[Any]:
    """Normalised values of one array. Whole columns at a time only where Python has no type of its own for them."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _values(chunk)]
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _datetimes(column.cast(pa.int64()), kind.unit, "Z" if kind.tz else "")
    if pa.types.is_date(kind):
        return _datetimes(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), "D", "")
    if pa.types.is_time(kind):
        return column.cast(pa.time32("ms")).cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        return [_float(value) for value in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if value is None else Decimal(value) for value in column.to_pylist()]
    if pa.types.is_map(kind):
        return _slices(column, sorted_pairs=True)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _slices(column, sorted_pairs=False)
    if pa.types.is_struct(kind):
        parts = {kind.field(index).name: _values(part) for index, part in enumerate(column.flatten())}
        listed = [dict(zip(parts, values, strict=True)) for values in zip(*parts.values(), strict=True)]
        return [value if valid else None for value, valid in zip(listed, column.is_valid().to_pylist(), strict=True)]
    return column.to_pylist()  # type: ignore[no-any-return]


def _slices(column: Any, *, sorted_pairs: bool) -> list[Any]:
    """Lists or maps, by their offsets: a map is a list of (key, value)."""
    if sorted_pairs:
        items = list(zip(_values(column.keys), _values(column.items), strict=True))
    else:
        items = _values(column.values)
    offsets = column.offsets.to_pylist()
    listed = [items[start:end] for start, end in itertools.pairwise(offsets)]
    if sorted_pairs:
        listed = [sorted(pairs, key=_text) for pairs in listed]
    return [value if valid else None for value, valid in zip(listed, column.is_valid().to_pylist(), strict=True)]


def _datetimes(ticks: Any, unit: str, suffix: str) -> list[str | None]:
    texts = np.datetime_as_string(ticks.fill_null(0).to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]"))
    trimmed = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts.tolist()]
    return [f"{text}{suffix}" if ok else None for text, ok in zip(trimmed, ticks.is_valid().to_pylist(), strict=True)]


def _float(value: float | None) -> float | str | None:
    if value is None:
        return None
    if math.isnan(value):
        return "NaN"
    return "-0.0" if value == 0.0 and math.copysign(1.0, value) < 0 else value
