"""A table with a bloom filter on a column of every type that can have one, and its rows."""

import datetime
from typing import Any

import pyarrow as pa

from tests.peers import TableDefinition
from tests.peers.tables import rows_of

_START = datetime.datetime.fromisoformat("2024-02-29T12:34:56.789")
_COLUMNS = [
    ("id", "INT NOT NULL"),
    ("tiny", "TINYINT"),
    ("small", "SMALLINT"),
    ("big", "BIGINT"),
    ("real", "FLOAT"),
    ("double", "DOUBLE"),
    ("text", "STRING"),
    ("bytes", "BYTES"),
    ("day", "DATE"),
    ("clock", "TIME(3)"),
    ("millis", "TIMESTAMP(3)"),
    ("micros", "TIMESTAMP(6)"),
    ("instant", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    ("short", "CHAR(3)"),
    ("fixed", "BINARY(2)"),
]
INDEXED_COLUMNS = [name for name, _ in _COLUMNS]
INDEXED = TableDefinition(
    columns=_COLUMNS,
    options={
        "bucket": "-1",
        "file-index.bloom-filter.columns": ",".join(INDEXED_COLUMNS),
        # a known number, so that Java's filters are as large as ours
        **{f"file-index.bloom-filter.{name}.items": "200" for name in INDEXED_COLUMNS},
        "file-index.bloom-filter.text.fpp": "0.01",
    },
)


def _row(number: int) -> dict[str, Any]:
    at = _START + datetime.timedelta(seconds=number * 7919)
    finer = at + datetime.timedelta(microseconds=number)
    return {
        "id": number,
        "tiny": number % 100 - 50,
        "small": number - 30000,
        "big": -(number << 40),
        "real": number / 3,
        "double": -number / 7 if number else -0.0,
        "text": "héllo 😀 " * (number % 9) + str(number),
        "bytes": bytes(range(number % 60)),
        "day": datetime.date(1969, 12, 1) + datetime.timedelta(days=number),
        "clock": datetime.time(1, 2, number % 60, 5000),
        "millis": at,
        "micros": finer,
        "instant": finer.replace(tzinfo=datetime.UTC),
        "short": f"{number:03d}",
        "fixed": bytes([number % 256, 1]),
    }


def indexed_rows() -> pa.Table:
    """Rows with nulls, NaN, infinity, empty texts, and texts longer than a stripe of their hash."""
    odd = {"id": 1001, "double": float("nan"), "real": float("inf"), "text": "", "bytes": b""}
    return rows_of(INDEXED, [*map(_row, range(120)), {"id": 1000}, odd])
