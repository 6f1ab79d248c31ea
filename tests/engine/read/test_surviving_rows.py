"""Tables with deletion vectors that Spark scans itself: what is left is what a merge in Python gives."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engine import Table
from engine.read import frames
from engine.read.frames import ScannedFile, divided_plan, drops_in_spark, without_deleted, words_of
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

GONE = [*range(0, 390, 3), 399, *range(400, 500, 4)]  # of the table without a key


def wide_rows(keys: list[int], value: int, *, width: int = 40) -> pa.Table:
    chance = np.random.default_rng(value)
    texts = ["".join(f"{word:016x}" for word in chance.integers(0, 2**62, width)) for _ in keys]
    columns = [[key % 2 for key in keys], keys, [value] * len(keys), texts]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def table_with_vectors(tmp_path: Path, *, key: bool, width: int = 40) -> Table:
    """Two buckets in each of two partitions, a split for each file; rows were updated or deleted since."""
    options = {"bucket": "2", "deletion-vectors.enabled": "true", "source.split.target-size": "1kb"}
    options |= {} if key else {"bucket-key": "k"}
    table = new_table(
        tmp_path / "warehouse", SCHEMA, key=["p", "k"] if key else [], partition_by=["p"], options=options
    )
    table.write(wide_rows(list(range(400)), 1, width=width))
    if key:
        table.compact(full=True)
        updates = {2: [*range(0, 400, 7), 399], 3: list(range(0, 400, 35))}  # the second ones mark rows of two files
        for value, keys in updates.items():
            table.write(wide_rows(keys, value, width=width))
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


def test_spark_drops_rows_if_bitmaps_fit_into_memory_and_no_column_hides_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row takes a bit, so 64 MiB are enough for 536 million rows."""
    plan = table_with_vectors(tmp_path, key=False, width=1).read().plan()
    splits = [piece.own_split for piece in plan.pieces if piece.own_split is not None]
    count = sum(split.row_count for split in splits)
    assert drops_in_spark(splits, ["k"])
    assert not drops_in_spark(splits, ["k", "_METADATA"])
    monkeypatch.setattr(frames, "_MOST_BYTES", count // 8)
    assert drops_in_spark(splits, ["k"])
    monkeypatch.setattr(frames, "_MOST_BYTES", count // 8 - 1)
    assert not drops_in_spark(splits, ["k"])


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize(("key", "most"), [(True, 16), (False, 16), (True, 0)], ids=["key", "no key", "joined"])
def test_spark_returns_the_rows_that_a_merge_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bool, most: int
) -> None:
    """The oracle is ``to_arrow``, which reads in Python: all columns, some, filters, none.

    Splits of one bucket share an index file, of which each knows only the vectors of its own files.
    """
    monkeypatch.setattr(frames, "_MOST_CASES", most)
    table = table_with_vectors(tmp_path, key=key)
    plan = table.read().plan()
    entries = [entry for piece in plan.pieces if piece.own_split for entry in piece.own_split.deletion_vectors]
    assert len({entry.file_name for entry in entries}) < len(entries)
    divided = divided_plan(spark, plan, SCHEMA.names)
    assert len(divided.vectored) >= 2
    assert not divided.rest
    assert sum(len(file.deleted) > 0 for file in divided.vectored_files()) >= 2
    asked = [(None, None), (["v", "k"], None), (["text"], "k > 100 AND v = 1"), (["k"], "k IN (3, 4, 7)")]
    for columns, filter in (*asked, (["k"], "v = 9"), (["k"], "p = 1")):
        found = table.dataframe(spark, columns=columns, filter=filter).toArrow().to_pylist()
        expected = table.read().to_arrow(columns=columns, filter=filter).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert table.dataframe(spark).count() == table.read().to_arrow().num_rows == (400 if key else 500 - len(GONE))
    shown = table.dataframe(spark)._jdf.queryExecution().toString()
    assert "mapInArrow" not in shown
    assert ("BroadcastHashJoin" in shown) == (most == 0)
    assert shown.count("FileScan parquet") == 1 or most == 0


@pytest.mark.spark
@pytest.mark.parametrize("size_bytes", [1, None], ids=["equal sizes", "sizes"])
def test_files_of_equal_sizes_are_known_by_name(spark: SparkSession, tmp_path: Path, size_bytes: int | None) -> None:
    """A condition compares sizes where they differ: names are long. Both find the same rows."""
    table = table_with_vectors(tmp_path, key=False)
    vectored = divided_plan(spark, table.read().plan(), ["k"])
    files = [replace(file, size_bytes=size_bytes or file.size_bytes) for file in vectored.vectored_files()]
    frame = without_deleted(spark, spark.read.parquet(*vectored.vectored), files, ["k"])
    assert ("file_name = data-" in frame._jdf.queryExecution().analyzed().toString()) == (size_bytes is not None)
    assert frame.count() == 500 - len(GONE)


@pytest.mark.long
@pytest.mark.spark
def test_a_scan_without_its_bitmap_fails(spark: SparkSession, tmp_path: Path) -> None:
    """Neither are rows lost nor do deleted ones come back when a name does not match."""
    table = table_with_vectors(tmp_path, key=False)
    paths = list(divided_plan(spark, table.read().plan(), ["k"]).vectored)
    for others in (1, 16, 17):
        for sizes in (range(others), [3] * others):
            files = [
                ScannedFile(name=f"it's \\ no{number}", size_bytes=size, deleted=np.array([1]))
                for number, size in enumerate(sizes)
            ]
            frame = without_deleted(spark, spark.read.parquet(*paths), files, ["k"])
            with pytest.raises(Exception, match="a file without its deletion vector: file=data-"):
                frame.collect()
