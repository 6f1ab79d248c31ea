"""One bucket read by several tasks: each split is a range of keys that no other task has to know of."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.table import FileTable
from tests.support.tables import copied, key_table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
RANGES = 8
WIDTH = 100
SMALL = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
NEVER = {"num-sorted-run.compaction-trigger": "1000", "num-sorted-run.stop-trigger": "2000"}
ENGINES = {
    "deduplicate": NEVER,
    "partial-update": {**NEVER, "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {**NEVER, "merge-engine": "aggregation", "fields.default-aggregate-function": "sum"},
    "deletion vectors": {**NEVER, "deletion-vectors.enabled": "true", "target-file-size": "1 b"},
}


def some(choice: random.Random, ids: list[int]) -> pa.Table:
    values = [[choice.choice([None, choice.randrange(1_000)]) for _ in ids] for _ in range(2)]
    return pa.table([pa.array(column, pa.int64()) for column in (ids, *values)], schema=SCHEMA)


def bucket_of_ranges(engine: str, seed: int) -> FileTable:
    """One bucket of eight ranges of keys, half of them with changes of rows and deletes."""
    choice = random.Random(seed)
    table = key_table(schema=SCHEMA, bucket="1", **SMALL, **ENGINES[engine])
    for start in range(0, RANGES * WIDTH, WIDTH):
        table.write(some(choice, list(range(start, start + WIDTH))))
    for _ in range(6):
        start = choice.randrange(RANGES) * WIDTH
        ids = choice.sample(range(start, start + WIDTH), 20)
        deletes = 0 if engine == "aggregation" else 5
        table.write(some(choice, ids), pa.array([3] * deletes + [0] * (20 - deletes), pa.int8()))
    return table


def rows_in(table: FileTable, split: DataSplit) -> pa.Table:
    return pa.Table.from_batches(read_split(table, split), table.schema.arrow_schema)


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_the_ranges_of_a_bucket_are_the_whole_and_share_no_row(engine: str) -> None:
    """FL-80, issue 20 point 8: rows of all splits are those that a full compaction leaves; ranges of keys are apart."""
    for seed in range(3):
        table = bucket_of_ranges(engine, seed)
        plan = table.read().plan()
        assert len(plan.splits) >= RANGES // 2
        assert {split.bucket for split in plan.splits} == {0}
        with ThreadPoolExecutor(8) as threads:
            parts = list(threads.map(partial(rows_in, table), plan.splits))
        whole = copied(table)
        whole.compact(full=True)
        expected = whole.read().to_arrow().sort_by("id")
        assert pa.concat_tables(parts).sort_by("id").equals(expected)
        ids = [set(part["id"].to_pylist()) for part in parts]
        assert sum(map(len, ids)) == len(set().union(*ids)) == expected.num_rows
        for low, high in ((0, 50), (250, 260), (799, 800)):
            chosen = table.read().plan(f"id >= {low} and id < {high}")
            assert len(chosen.splits) < len(plan.splits)
            rows = [b for split in chosen.splits for b in read_split(table, split, filter=chosen.filter)]
            keys = sorted(key for batch in rows for key in batch.column("id").to_pylist())
            assert keys == [key for key in expected["id"].to_pylist() if low <= key < high]
