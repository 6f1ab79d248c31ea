"""Filters mean to us what they mean to Spark: the same texts over the same rows."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from filestore.predicate.evaluation import filter_mask
from filestore.predicate.parser import parse_filter
from tests.support.samples import schema_of

pytestmark = pytest.mark.spark

SCHEMA = schema_of(
    {
        "n": pa.int64(),
        "id": pa.int32(),
        "tiny": pa.int8(),
        "big": pa.int64(),
        "amount": pa.decimal128(10, 2),
        "name": pa.string(),
        "day": pa.date32(),
        "ts": pa.timestamp("us"),
        "price": pa.float64(),
        "ratio": pa.float32(),
        "paid": pa.bool_(),
        "raw": pa.binary(),
        "a": pa.struct([("b", pa.int32()), ("c", pa.struct([("d", pa.string())]))]),
    }
)
NAMES = ["", "a", "ab", "a%b", "a_b", "a\\b", "aéb", "a\nb", "AB", "it's", None, "\U0001f600"]
PRICES = [0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 1.5, None, 0.1, -1.5, 2.0, 1e300]
ROWS = [
    {
        "id": None if number == 5 else number - 4,
        "tiny": None if number == 2 else number - 3,
        "big": (2**62, None, -(2**62), 0, 1)[number % 5],
        "amount": None if number == 7 else Decimal(number - 3) / 4,
        "name": NAMES[number],
        "day": None if number == 1 else 19780 + number,
        "ts": None if number == 3 else 1_709_164_800_000_000 + (number - 5) * 43_200_000_000,
        "price": PRICES[number],
        "ratio": PRICES[number],
        "paid": (True, False, None)[number % 3],
        "raw": (b"", b"\x01\xff", None, b"a")[number % 4],
        "a": (None, {"b": number, "c": None}, {"b": None, "c": {"d": "x"}})[number % 3],
    }
    for number in range(len(NAMES))
]
FILTERS = """
id > 1 | id >= 1.5 | id < 1.5 | id = 1.0 | id = 1.5 | id <> 1.5 | -1 <= id | id = '2' | id in (1, 2.5, null)
id not in (1, 2) | id not in (1, null) | id between -1 and 2.5 | id not between 0 and 1 | id <=> null | id <=> 3
id is distinct from 3 | tiny = 300 | tiny < 128 | tiny <> 300 | not (tiny > 300)
big > 1e18 | big = 4611686018427387904
amount = 0.5 | amount > 0.125 | amount >= 0.125 | amount < 1e0 | amount in (0.25, 0.75) | amount = 0.250
name = 'a%b' | name like 'a%' | name like 'a_b' | name like 'a\\\\_b' | name like '%b' | name like '_'
name like 'a\\\\%b'
name not like 'a%' | name like 'a!_b' escape '!' | name like '' | name >= 'a' | name = 'it''s' | name is null
name like null
name = 'it' 's' | name like 'a__b' | name in ('a', 'AB') | name like 'a%b' | name < 'b' | name like '%%'
day = '2024-02-29' | day > '2024-02-28' | day >= date '2024-03-01' | day < timestamp_ntz '2024-02-29 12:00:00'
day between '2024-02-28' and '2024-03-01' | ts = '2024-02-29 12:00:00' | ts > timestamp_ntz '2024-02-29 00:00:00.000001'
ts >= '2024-02-29' | ts < date '2024-02-29' | ts is null
price > 1 | price >= double('NaN') | price = double('NaN') | price < double('NaN') | price <> double('NaN') | price = 0
price in (0, double('NaN')) | price not in (0, double('NaN')) | price > double('Infinity') | price = 0.1 | price <= 1.5
not (price > 1) | price between 0 and 2 | price <=> double('NaN') | price < '1.5'
ratio = 0.1 | ratio > 0.1 | ratio >= 1.5 | ratio = double('NaN') | ratio > double('Infinity') | ratio in (0.1, 1.5)
paid | not paid | paid = false | paid is true | paid is not true | paid is false | paid is null | paid <=> false
raw = X'01FF' | raw > X'00' | raw is not null | raw = X''
a.b > 4 | a.b is null | a is null | a.c.d = 'x' | a.c is null | A.B = 1
id = 1 and name like 'a%' | id > 1 or paid | not (id > 1 and paid) | not (id > 1 or paid) | id = null or paid
null and paid
1 = 1 and id > 0 | false or id = 1 | (id > 0) and not (name is null)
"""
TEXTS = [text.strip() for line in FILTERS.splitlines() for text in line.split(" | ") if text.strip()]


def test_filters_come_out_as_in_spark(spark: SparkSession) -> None:
    """FL-181: true, false or null, for every text and every row."""
    rows = [{"n": number, **row} for number, row in enumerate(ROWS)]
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow_schema.remove_metadata())
    [batch] = table.to_batches()
    outcomes = [f"({text}) as c{index}" for index, text in enumerate(TEXTS)]
    expected = spark.createDataFrame(table).selectExpr("n", *outcomes).orderBy("n").toArrow()
    for index, text in enumerate(TEXTS):
        found = filter_mask(parse_filter(text, SCHEMA), batch)
        assert found.to_pylist() == expected.column(f"c{index}").to_pylist(), text
