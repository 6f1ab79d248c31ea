"""Differences for people and programs: key, column, both values, and SQL that shows the row in the database."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from engine.cdc.verify.comparison import ColumnPair, Comparison, KeyDifference, RowTexts
from engine.cdc.verify.expressions import POSTGRES, quoted_name
from engine.cdc.verify.verification import Verified

MISSING, UNEXPECTED, DIFFERENT = "missing", "unexpected", "different"
"""Only the database has the row; only the table has it; both have it with other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDifference:
    """One key. RowTexts are written as people read them; None is null."""

    kind: str
    key: Mapping[str, str | None]
    columns: Mapping[str, tuple[str | None, str | None]]  # in the database, in the table; () unless both have the row
    counts: tuple[int, int]  # of rows
    sql: str

    def as_json(self) -> dict[str, Any]:
        """The difference as JSON values, as ``fluvial cdc verify --json`` prints it."""
        columns = {name: {"source": one, "table": other} for name, (one, other) in self.columns.items()}
        return {"kind": self.kind, "key": dict(self.key), "columns": columns, "rows": self.counts, "sql": self.sql}


def shown_differences(found: Comparison, dialect: str) -> Iterator[ShownDifference]:
    """The differences of a table."""
    for each in found.differences:
        kind = DIFFERENT if each.source and each.table else MISSING if each.source else UNEXPECTED
        if len(each.source) != len(each.table) and each.source and each.table:
            kind = MISSING if len(each.source) > len(each.table) else UNEXPECTED
        yield ShownDifference(
            kind=kind,
            key={name: shown_text_of(text, _column(found, name).type) for name, text in each.key.items()},
            columns=_columns(found, each.source[0], each.table[0]) if kind == DIFFERENT else {},
            counts=(len(each.source), len(each.table)),
            sql=_sql(found, each, dialect),
        )


def verified_json(result: Verified, dialect: str) -> dict[str, Any]:
    """One table for ``--json``."""
    shown: dict[str, Any] = {"source": str(result.source), "table": result.table, "equal": result.is_equal}
    found = result.comparison
    if found is None:
        return shown | {"problem": result.problem}
    return shown | {
        "source_rows": found.source_rows,
        "table_rows": found.table_rows,
        "ranges": found.range_count,
        "differing_ranges": found.differing_ranges,
        "complete": found.is_complete,
        "not_compared": dict(found.pair.left_out),
        "differences": [each.as_json() for each in shown_differences(found, dialect)],
    }


def shown_text_of(text: str | None, kind: pa.DataType) -> str | None:
    """A text of ``texts`` as people read it."""
    if text is None:
        return None
    if pa.types.is_decimal(kind) and text.lstrip("-").isdigit():
        return f"{Decimal(text).scaleb(-kind.scale):f}"
    if pa.types.is_floating(kind):
        return str(struct.unpack(">d", bytes.fromhex(text))[0])
    return text


def _column(found: Comparison, name: str) -> ColumnPair:
    return next(each for each in found.pair.columns if each.name == name)


def _columns(found: Comparison, source: RowTexts, table: RowTexts) -> dict[str, tuple[str | None, str | None]]:
    both = zip(found.pair.columns, source, table, strict=True)
    return {
        each.name: (shown_text_of(one, each.type), shown_text_of(other, each.type))
        for each, one, other in both
        if one != other
    }


def _sql(found: Comparison, difference: KeyDifference, dialect: str) -> str:
    terms = []
    for at in found.pair.key:
        column = found.pair.columns[at]
        name, text = quoted_name(dialect, column.source), shown_text_of(difference.key[column.name], column.type)
        terms.append(f"{name} IS NULL" if text is None else f"{name} = {_literal(text, column.type, dialect)}")
    return f"SELECT * FROM {found.pair.query.table} WHERE {' AND '.join(terms)}"


def _literal(text: str, kind: pa.DataType, dialect: str) -> str:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return text
    if pa.types.is_boolean(kind):
        return text
    if pa.types.is_binary(kind):
        return f"'\\x{text}'" if dialect == POSTGRES else f"x'{text}'"
    plain = text.replace("'", "''")
    return f"'{plain}'" if dialect == POSTGRES else "'" + plain.replace("\\", "\\\\") + "'"
