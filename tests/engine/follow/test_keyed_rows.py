"""Rows by key over chunks of Arrow: equal to a dictionary, through compactions, in all types."""

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.follow import live
from engine.follow.live import KeyedRows, RowChunk

SCHEMA = pa.schema([("k", pa.int64()), ("d", pa.string()), ("v", pa.int64())])


@pytest.mark.sweep
@pytest.mark.parametrize("key", [["k"], ["d", "k"]])
def test_equal_to_a_dictionary(key: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand batches, compacted often; rows taken before do not change."""
    monkeypatch.setattr(live, "_MOST_CHUNKS", 7)
    monkeypatch.setattr(live, "_DEAD_ROWS", 20)
    monkeypatch.setattr(live, "_SMALL", 8)
    chance = random.Random(1)
    rows, oracle = KeyedRows(SCHEMA, key), {}
    most = 0
    for number in range(1000):
        batch = [
            {"k": chance.randint(0, 40), "d": chance.choice("ab"), "v": chance.randint(0, 9)}
            for _ in range(chance.randint(1, 9))
        ]
        adds = [number % 5 == 0 or chance.random() < 0.7 for _ in batch]
        before = rows.taken()
        shown = [chunk.row(int(index)) for chunk, indices in before for index in indices]
        rows.apply(pa.RecordBatch.from_pylist(batch, SCHEMA), np.array(adds))
        assert shown == [chunk.row(int(index)) for chunk, indices in before for index in indices]
        for row, add in zip(batch, adds, strict=True):
            name = row[key[0]] if len(key) == 1 else tuple(row[part] for part in key)
            if add:
                oracle[name] = row
            else:
                oracle.pop(name, None)
        for name in [*oracle, 99]:
            assert rows.get(name) == oracle.get(name)
        taken = [chunk.row(int(index)) for chunk, indices in rows.taken() for index in indices]
        assert sorted(map(repr, taken)) == sorted(map(repr, oracle.values()))
        assert len(rows) == len(oracle)
        most = max(most, len(rows._chunks))
    assert most <= 2 * 8 + 2


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-1, 5, None, 7]),
    (pa.int16(), [-1, 5, None, 7]),
    (pa.int32(), [-1, 5, None, 7]),
    (pa.int64(), [-(2**62), 5, None, 7]),
    (pa.float32(), [0.5, -1.5, None, 2.0]),
    (pa.float64(), [0.1, float("inf"), None, -0.0]),
    (pa.bool_(), [True, False, None, True]),
    (pa.string(), ["", "ä€", None, "x" * 99]),
    (pa.binary(), [b"", b"\0\xff", None, b"x"]),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 2), None, date(9999, 12, 31)]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(1970, 1, 1, 0, 0, 1, 5), None, datetime(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [None, None, None, None]),
    (pa.decimal128(38, 10), [Decimal("12345678901234567890.0123456789"), None, Decimal("-0.5"), None]),
    (pa.list_(pa.int32()), [[1, 2], [], None, [None]]),
    (pa.null(), [None] * 4),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=lambda each: str(each))
@pytest.mark.parametrize("has_nulls", [True, False])
def test_single_values_are_those_of_arrow(kind: pa.DataType, values: list[Any], has_nulls: bool) -> None:
    """At the start of an array and within one."""
    given = values if has_nulls else [value for value in values if value is not None]
    column = pa.array(given * 5, kind)
    for first, count in ((0, len(column)), (3, len(column) - 3), (len(column), 0)):
        part = column.slice(first, max(0, count))
        chunk = RowChunk(pa.RecordBatch.from_arrays([part], ["x"]))
        assert [chunk.row(index)["x"] for index in range(len(part))] == part.to_pylist()
