"""Sections that several tasks merge: spans of keys, of every type of key, hold each row of the whole read once."""

import random
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.scan.key_cuts import KeyStretch, chosen_cuts
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from tests.support.tables import key_table

ROWS = 1_000  # in each of several files
GROUP_ROWS = 40
LONG = "x" * 600
TINY = {
    "bucket": "1",
    "write-only": "true",
    "file.block-size": "1 b",
    "source.split.target-size": "2 kb",
    "source.split.open-file-cost": "1 b",
}
FLOATS = [0.0, -0.0, float("nan"), float("inf"), -float("inf")]

Value = Callable[[random.Random], Any]
KEYS: dict[str, list[tuple[str, pa.DataType, Value]]] = {
    "int": [("a", pa.int64(), lambda some: some.randrange(-5_000, 5_000))],
    "one first column": [("a", pa.int32(), lambda _: 7), ("b", pa.int64(), lambda some: some.randrange(9_000))],
    "few first columns": [
        ("a", pa.string(), lambda some: some.choice("äbc")),
        ("b", pa.date32(), lambda some: some.randrange(20_000)),
        ("c", pa.int16(), lambda some: some.randrange(30)),
    ],
    "decimal": [("a", pa.decimal128(20, 3), lambda some: Decimal(some.randrange(-9_000, 9_000)).scaleb(-3))],
    "float": [("a", pa.float64(), lambda some: some.choice([*FLOATS, *[some.uniform(-9, 9)] * 95]))],
    "long text": [("a", pa.string(), lambda some: LONG + str(some.randrange(8_000)))],
    "text without statistics": [("a", pa.string(), lambda some: LONG * 8 + str(some.randrange(500)))],
    "bytes": [("a", pa.binary(), lambda some: some.randbytes(2))],
    "time": [("a", pa.timestamp("us"), lambda some: some.randrange(-(10**9), 10**9))],
}


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filestore.format.parquet._MIN_GROUP_ROWS", GROUP_ROWS)


def table_of_kind(kind: str, seed: int, **options: str) -> FileTable:
    """Files over the same keys, some deleted; values are null or say which file they are of."""
    some = random.Random(seed)
    keys = KEYS[kind]
    schema = pa.schema([(name, each) for name, each, _ in keys] + [("v", pa.int64()), ("w", pa.int64())])
    table = key_table(schema=schema, primary_key=tuple(name for name, _, _ in keys), **TINY, **options)
    for turn in range(3):
        columns = [pa.array([value(some) for _ in range(ROWS)], each) for _, each, value in keys]
        values = [pa.array([some.choice([None, turn]) for _ in range(ROWS)], pa.int64()) for _ in range(2)]
        kinds = pa.array([3 if turn and some.random() < 0.2 else 0 for _ in range(ROWS)], pa.int8())
        table.write(pa.table([*columns, *values], schema=schema), kinds)
    return table


def rows_in(table: FileTable, splits: list[DataSplit], filter: str | None = None) -> pa.Table:
    batches = [batch for split in splits for batch in read_split(table, split, filter=filter)]
    return pa.Table.from_batches(batches, table.schema.arrow_schema)


def whole(table: FileTable, filter: str | None = None) -> list[DataSplit]:
    return list(TableScan(table.store).plan(filter=filter).splits)


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KEYS)
def test_spans_are_the_whole_read_in_key_order(kind: str) -> None:
    """FL-80, issue 20 point 8: the rows of all spans, one after the other, are those of the section, in its order."""
    table = table_of_kind(kind, seed=len(kind))
    splits = list(table.read().plan().splits)
    assert len(whole(table)) == 1
    if kind == "text without statistics":
        assert len(splits) <= 3  # cut where files begin
    else:
        assert len(splits) >= 3
        assert len({split.span for split in splits}) == len(splits)
    expected, found = rows_in(table, whole(table)), rows_in(table, splits)
    assert list(map(repr, found.to_pylist())) == list(map(repr, expected.to_pylist()))  # NaN and -0.0 too
    assert sum(split.row_count for split in splits) == pytest.approx(whole(table)[0].row_count, rel=0.25)
    schema = table.schema.arrow_schema
    assert table.read().to_arrow().cast(schema).equals(expected) or kind == "float"  # by threads; NaN is not equal
    sent = [DataSplit.from_json(split.to_json()) for split in splits]
    assert sent == splits


@pytest.mark.sweep
@pytest.mark.parametrize(
    "options",
    [
        {"merge-engine": "partial-update", "ignore-delete": "true"},
        {"merge-engine": "aggregation", "fields.default-aggregate-function": "sum", "ignore-delete": "true"},
        {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
        {"sequence.field": "w"},
    ],
    ids=lambda options: "-".join(options),
)
def test_spans_hold_all_versions_of_their_keys(options: dict[str, str]) -> None:
    """What merges versions gives in a span what it gives in the whole, with and without a filter."""
    table = table_of_kind("int", seed=1, **options)
    if "deletion-vectors.enabled" in options:
        FileTable.open(table.name, table.store.paths.root, io=table.store.io, options={"write-only": "false"}).compact()
        table.write(pa.table({"a": [1, 2, 3], "v": [9, 9, 9], "w": [9, 9, 9]}))
    for filter in (None, "a >= -100 AND a < 2500", "v = 1", "a = 17 OR w IS NULL"):
        splits = list(table.read().plan(filter).splits)
        assert rows_in(table, splits, filter).equals(rows_in(table, whole(table, filter), filter))


def test_spans_read_only_row_groups_that_they_touch() -> None:
    """Decoded rows of all spans are at most half more than the files have: not one time each file per span."""
    table = table_of_kind("int", seed=3)
    splits = table.read().plan().splits
    assert len(splits) > 5
    inside = sum(rows_in(table, [split]).num_rows for split in splits)
    assert inside == rows_in(table, whole(table)).num_rows
    ends = [(split.span.low, split.span.high) for split in splits if split.span is not None]
    assert [low for low, _ in ends[1:]] == [high for _, high in ends[:-1]]
    assert ends[0][0] is ends[-1][1] is None


def test_cuts_make_equal_ranges() -> None:
    """Against counting: ranges of random stretches are no further from their part than what lies around their ends."""
    cut_often = 0
    for seed in range(200):
        some = random.Random(seed)
        stretches = []
        for _ in range(some.randrange(1, 4)):
            ends = sorted({some.randrange(10_000) for _ in range(some.randrange(2, 90))})
            stretches += [KeyStretch((low,), (high,), some.randrange(50, 100)) for low, high in pairwise(ends)]
        count = some.randrange(2, 9)
        cuts = chosen_cuts(stretches, count)
        cut_often += len(cuts) == count - 1
        total = sum(each.size_bytes for each in stretches)
        assert cuts == sorted(set(cuts))
        assert len(cuts) < count
        assert {each for (each,) in cuts} <= {low for each in stretches for low in each.low}
        before = [
            sum(((each.low < cut) + (each.high < cut)) * each.size_bytes / 2 for each in stretches) for cut in cuts
        ]
        if len(cuts) == count - 1:
            wanted = [number * total / count for number in range(1, count)]
            assert all(abs(a - b) <= total / count / 8 + 300 for a, b in zip(before, wanted, strict=True))
    assert cut_often > 100


def test_ranges_are_larger_than_what_tasks_read_twice() -> None:
    """Ten files of four row groups each over the same keys: a cut is inside of ten of them, so there is one cut."""
    groups = [KeyStretch((100 * at + run,), (100 * at + 99 + run,), 10) for run in range(10) for at in range(4)]
    assert len(chosen_cuts(groups, 40)) <= 1
    assert len(chosen_cuts(groups[:4] + [KeyStretch((run,), (run,), 1) for run in range(400)], 8)) == 7


def test_one_key_is_in_one_range() -> None:
    """Nothing to cut between: one key, one file's worth of stretches that begin at once."""
    assert chosen_cuts([KeyStretch((1,), (1,), 10)] * 5, 4) == []
    assert chosen_cuts([KeyStretch((1,), (9,), 10)] * 5, 4) == []
