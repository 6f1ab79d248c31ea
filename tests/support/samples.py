"""Columns of every type that a table can have, random values of them, and what a filter means, said in plain Python."""

import math
import random
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from filestore.predicate.predicate import (
    And,
    Compare,
    CompareOp,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
)
from filestore.schema.schema_store import new_schema
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, arrow_schema, arrow_type
from lsm.row_kind import SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD
from tests.support.option_keys import dashed

_EXACT: Final = Context(prec=80)
ATOMIC: Final = {
    "i8": pa.int8(),
    "i16": pa.int16(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "flag": pa.bool_(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "d9": pa.decimal128(9, 2),
    "d18": pa.decimal128(18, 4),
    "d38": pa.decimal128(38, 10),
    "day": pa.date32(),
    "time": pa.time32("ms"),
    "ts3": pa.timestamp("ms"),
    "ts6": pa.timestamp("us"),
    "ltz3": pa.timestamp("ms", tz="UTC"),
    "ltz6": pa.timestamp("us", tz="UTC"),
}
NESTED: Final = {
    "list": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int32()),
    "row": pa.struct([("x", pa.int32()), ("y", pa.list_(pa.decimal128(9, 2)))]),
    "deep": pa.map_(
        pa.int32(), pa.list_(pa.struct([("moment", pa.timestamp("us")), ("z", pa.map_(pa.string(), pa.date32()))]))
    ),
}


def schema_of(columns: Mapping[str, pa.DataType], *, primary_key: Sequence[str] = (), **options: str) -> TableSchema:
    """A table schema of nullable columns; option keys with ``_`` for ``-`` and ``__`` for a dot."""
    texts = dashed(options)
    return new_schema(
        pa.schema(list(columns.items())),
        primary_key=primary_key,
        options={"bucket": "1"} | texts if primary_key else texts,
        time_ms=0,
    )


def table_of(schema: TableSchema, rows: Sequence[Mapping[str, Any]], *, kinds: Sequence[int] | None = None) -> pa.Table:
    """Rows, as internal values by column, with sequence numbers from 100 and kinds when the table has a key."""
    arrays = [pa.array([row.get(field.name) for row in rows], arrow_type(field.type)) for field in schema.fields]
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(schema.fields))
    if not schema.primary_keys:
        return table
    table = table.append_column(SEQUENCE_NUMBER_FIELD, pa.array(range(100, 100 + len(rows)), pa.int64()))
    return table.append_column(VALUE_KIND_FIELD, pa.array(kinds or [0] * len(rows), pa.int8()))


def random_value(rng: random.Random, field: DataField) -> Any:
    """An internal value: often null, often one of a few, sometimes an extreme one."""
    if rng.random() < 0.2:
        return None
    return _VALUES[field.type.root](rng, field.type)


def random_rows(rng: random.Random, schema: TableSchema, count: int) -> list[dict[str, Any]]:
    """Rows of atomic columns."""
    return [{field.name: random_value(rng, field) for field in schema.fields} for _ in range(count)]


def _integer(bits: int) -> Any:
    extremes = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    return lambda rng, _: rng.choice([rng.randint(-4, 4), rng.randint(-4, 4), rng.choice(extremes)])


def _float(rng: random.Random, data_type: Any) -> float:
    return rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf, 0.5, float(rng.randint(-3, 3)), 2.0**-20])


def _text(rng: random.Random, data_type: Any) -> str:
    start = rng.choice(["", "a", "ab", "a%", "a_", "é", "\U0010ffff", "\ud7ff", "a" * 15, "\U0010ffff" * 16])
    return start + "".join(rng.choices("ab%_\\\nz\U0010ffff", k=rng.choice([0, 1, 2, 5])))


def _bytes(rng: random.Random, data_type: Any) -> bytes:
    return rng.choice([b"", b"\xff" * 17, b"a" * 16]) + bytes(rng.choices([0, 97, 255], k=rng.choice([0, 1, 3])))


def _decimal(rng: random.Random, data_type: Any) -> Decimal:
    limit = 10**data_type.precision - 1
    return Decimal(rng.choice([rng.randint(-300, 300), limit, -limit])).scaleb(-data_type.scale, _EXACT)


def _moment(rng: random.Random, data_type: Any) -> int:
    return rng.choice([rng.randint(-3, 3), rng.randint(-(10**9), 10**9), 86_400_000_000 * rng.randint(-2, 2)])


_VALUES: Final = {
    "TINYINT": _integer(8),
    "SMALLINT": _integer(16),
    "INT": _integer(32),
    "BIGINT": _integer(64),
    "BOOLEAN": lambda rng, _: rng.random() < 0.5,
    "FLOAT": _float,
    "DOUBLE": _float,
    "VARCHAR": _text,
    "VARBINARY": _bytes,
    "DECIMAL": _decimal,
    "DATE": _integer(16),
    "TIME": lambda rng, _: rng.choice([0, 86_399_999, rng.randint(0, 5)]),
    "TIMESTAMP": _moment,
    "TIMESTAMP_LTZ": _moment,
}


# ---- what a filter means, row by row


def outcome(predicate: Predicate, row: Mapping[str, Any]) -> bool | None:
    """True, False or None for one row of internal values."""
    if isinstance(predicate, Constant):
        return predicate.outcome
    if isinstance(predicate, Not):
        inner = outcome(predicate.part, row)
        return None if inner is None else not inner
    if isinstance(predicate, And | Or):
        decisive = isinstance(predicate, Or)
        outcomes = [outcome(part, row) for part in predicate.parts]
        if decisive in outcomes:
            return decisive
        return None if None in outcomes else not decisive
    value = row[predicate.column]
    for name in predicate.path:
        value = None if value is None else value[name]
    if isinstance(predicate, IsNull):
        return value is None
    if value is None:
        return None
    if isinstance(predicate, In):
        found = any(_compare(CompareOp.EQ, value, each) for each in predicate.values)
        return True if found else None if predicate.has_null else False
    if isinstance(predicate, StartsWith):
        return bool(value[: len(predicate.prefix)] == predicate.prefix)
    if isinstance(predicate, Like):
        return _like(value, predicate.pattern)
    return _compare(predicate.op, value, predicate.value)


def _compare(op: CompareOp, one: Any, two: Any) -> bool:
    """As Spark orders: NaN equals itself and is greater than all numbers."""
    if isinstance(one, float):
        one, two = (
            (math.isnan(one), 0.0 if math.isnan(one) else one),
            (math.isnan(two), 0.0 if math.isnan(two) else two),
        )
    outcomes = {"=": one == two, "<>": one != two, "<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}
    return bool(outcomes[op.value])


def _like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(_like(text[start:], rest) for start in range(len(text) + 1))
    if first == "\\":
        first, rest = pattern[1], pattern[2:]
    elif first == "_":
        return bool(text) and _like(text[1:], rest)
    return text[:1] == first and _like(text[1:], rest)


def random_predicate(rng: random.Random, schema: TableSchema, depth: int = 3) -> Predicate:
    """A filter over atomic columns, with values that rows are likely to have."""
    choice = rng.random()
    if depth and choice < 0.5:
        if choice < 0.15:
            return Not(part=random_predicate(rng, schema, depth - 1))
        make = And if choice < 0.35 else Or
        return make(parts=tuple(random_predicate(rng, schema, depth - 1) for _ in range(rng.choice([1, 2, 2, 3]))))
    if choice > 0.98:
        return Constant(outcome=rng.choice([True, False, None]))
    field = rng.choice(schema.fields)
    value = random_value(rng, field)
    if value is None:
        return IsNull(column=field.name)
    if field.type.root == "VARCHAR" and rng.random() < 0.4:
        if rng.random() < 0.5:
            return StartsWith(column=field.name, prefix=value[: rng.randint(0, 17)])
        return Like(column=field.name, pattern=value.replace("\\", "\\\\") + rng.choice(["", "%", "_", "%a"]))
    if rng.random() < 0.25:
        values = [random_value(rng, field) for _ in range(rng.choice([0, 1, 3]))]
        return In(
            column=field.name, values=tuple(each for each in values if each is not None), has_null=rng.random() < 0.2
        )
    return Compare(column=field.name, op=rng.choice(list(CompareOp)), value=value)
