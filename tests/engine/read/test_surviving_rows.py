"""Tables with deletion vectors that Spark scans itself: what is left is what a merge in Python gives."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engine import Table
from engine.read import surviving_rows
from engine.read.frames import divided_plan
from engine.read.surviving_rows import drops_in_spark, fit_in_plan, without_deleted, words_of
from filestore.write.row_deletion import delete_rows
from tests.support.vectors import PROPERTY
from tests.support.warehouses import new_table

SCHEMA = pa.schema(
    [
        pa.field("p", pa.int32(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        ("v", pa.int64()),
        ("text", pa.string()),
    ]
)

GONE = [*range(0, 390, 3), 399]  # of the table without a key


def wide_rows(keys: list[int], value: int, *, width: int = 40) -> pa.Table:
    chance = np.random.default_rng(value)
    texts = ["".join(f"{word:016x}" for word in chance.integers(0, 2**62, width)) for _ in keys]
    columns = [[key % 2 for key in keys], keys, [value] * len(keys), texts]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def table_with_vectors(tmp_path: Path, *, key: bool, width: int = 40) -> Table:
    """Three buckets' files at most in each of two partitions, rows of which were updated or deleted since."""
    options = {"bucket": "2", "deletion-vectors.enabled": "true"} | ({} if key else {"bucket-key": "k"})
    table = new_table(
        tmp_path / "warehouse", SCHEMA, key=["p", "k"] if key else [], partition_by=["p"], options=options
    )
    table.write(wide_rows(list(range(400)), 1, width=width))
    if key:
        table.compact(full=True)
        table.write(wide_rows([*range(0, 400, 7), 399], 2, width=width))
        table.compact()
    else:
        table.write(wide_rows(list(range(400, 500)), 2, width=width))
        delete_rows(table.store, f"k IN ({', '.join(map(str, GONE))})")
    return table


@given(st.lists(st.integers(0, 500), unique=True))
@PROPERTY
def test_a_bitmap_has_the_deleted_rows_and_no_others(deleted: list[int]) -> None:
    words = words_of(np.array(sorted(deleted), np.int64)).tolist()
    found = [row for row in range(64 * len(words) + 64) if row // 64 < len(words) and words[row // 64] >> row % 64 & 1]
    assert found == sorted(deleted)


def test_few_bitmaps_and_wide_rows_are_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Literals of the choice: 16 files and 4 million rows, or rows of 100 bytes, and columns that hide nothing."""
    assert fit_in_plan(16, 4_000_000)
    assert not fit_in_plan(17, 1)
    assert not fit_in_plan(1, 4_000_001)
    for width, is_wide in ((40, True), (1, False)):
        monkeypatch.undo()
        plan = table_with_vectors(tmp_path, key=False, width=width).read().plan()
        splits = [piece.own_split for piece in plan.pieces if piece.own_split is not None]
        assert drops_in_spark(splits, ["k"])
        monkeypatch.setattr(surviving_rows, "_ROWS_IN_PLAN", 0)
        assert drops_in_spark(splits, ["k"]) == is_wide
        assert not drops_in_spark(splits, ["k", "_METADATA"])


@pytest.mark.spark
@pytest.mark.parametrize(("key", "most"), [(True, 16), (False, 16), (True, 0)], ids=["key", "no key", "broadcast"])
def test_spark_returns_the_rows_that_a_merge_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bool, most: int
) -> None:
    """The oracle is ``to_arrow``, which reads in Python: all columns, some, filters, none."""
    monkeypatch.setattr(surviving_rows, "_MOST_IN_PLAN", most)
    table = table_with_vectors(tmp_path, key=key)
    divided = divided_plan(spark, table.read().plan(), SCHEMA.names)
    assert len(divided.vectored) >= 2
    assert not divided.rest
    assert sum(len(positions) > 0 for positions in divided.deleted().values()) >= 2
    asked = [(None, None), (["v", "k"], None), (["text"], "k > 100 AND v = 1"), (["k"], "k IN (3, 4, 7)")]
    for columns, filter in (*asked, (["k"], "v = 9"), (["k"], "p = 1")):
        found = table.dataframe(spark, columns=columns, filter=filter).toArrow().to_pylist()
        expected = table.read().to_arrow(columns=columns, filter=filter).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert table.dataframe(spark).count() == table.read().to_arrow().num_rows == (400 if key else 500 - len(GONE))
    plan = table.dataframe(spark)._jdf.queryExecution().toString()
    assert "mapInArrow" not in plan
    assert ("BroadcastHashJoin" in plan) == (most == 0)
    assert plan.count("FileScan parquet") == 1 or most == 0


@pytest.mark.spark
def test_a_scan_without_its_bitmap_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Neither are rows lost nor do deleted ones come back when a name does not match."""
    table = table_with_vectors(tmp_path, key=False)
    paths = list(divided_plan(spark, table.read().plan(), ["k"]).vectored)
    for others in (1, 17):
        deleted = {f"it's \\ no{number}": np.array([1]) for number in range(others)}
        frame = without_deleted(spark, spark.read.parquet(*paths), deleted, ["k"])
        with pytest.raises(Exception, match="a file without its deletion vector: file=data-"):
            frame.collect()
