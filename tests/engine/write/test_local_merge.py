"""Merging before the shuffle: less rows travel, and the table is the same."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.write.local_merge import LocalMerge
from tests.support.tables import key_table

SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("n", pa.int64()), ("v", pa.int64())])


def merge(*, buffer_bytes: int = 1 << 20, **sequence: Any) -> LocalMerge:
    given = {"sequence_names": (), "sequence_descending": False, **sequence}
    return LocalMerge(key_names=("dt", "id"), buffer_bytes=buffer_bytes, **given)


def batches(rows: list[tuple[str | None, int, int | None, int]]) -> list[pa.RecordBatch]:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    return table.to_batches(max_chunksize=3)


@pytest.mark.parametrize("buffer_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("sequence", [(), ("n",)])
@pytest.mark.parametrize("descending", [False, True])
def test_the_newest_row_of_each_key_is_left_where_it_stood(
    buffer_bytes: int, sequence: tuple[str, ...], descending: bool
) -> None:
    """Against a dict: the last row, or by the sequence field, of which null is oldest and equal ones go by arrival."""
    some = random.Random(3)
    rows = [(some.choice("ab"), some.randint(0, 5), some.choice([None, 1, 2, 3]), at) for at in range(200)]
    found = [
        tuple(row.values())
        for batch in merge(buffer_bytes=buffer_bytes, sequence_names=sequence, sequence_descending=descending)(
            iter(batches(rows))
        )
        for row in batch.to_pylist()
    ]
    assert set(found) <= set(rows)
    assert [row[3] for row in found] == sorted(row[3] for row in found), "in the order of their arrival"

    def newest(of: list[tuple[Any, ...]]) -> dict[Any, Any]:
        best: dict[Any, Any] = {}
        for row in of:
            known = best.get(row[:2])
            sign = -1 if descending else 1
            rank = (row[2] is not None, sign * (row[2] or 0)) if sequence else (True, 0)
            if known is None or rank >= known[0]:
                best[row[:2]] = (rank, row)
        return {key: row for key, (_, row) in best.items()}

    assert newest(found) == newest(rows)
    if buffer_bytes == 1 << 20:
        assert len(found) == 12


def test_a_null_key_is_left_for_the_writer_to_refuse() -> None:
    given = batches([("a", 1, 1, 1), (None, 1, 1, 2), ("a", 1, 1, 3)])
    assert merge().newest(given).num_rows == 3


@pytest.mark.parametrize(
    ("options", "has_log", "applies"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"changelog-producer": "input"}, False, False),
        ({"changelog-producer": "lookup"}, False, True),
        ({"merge-engine": "partial-update"}, False, False),
        ({"merge-engine": "first-row"}, False, False),
        ({"ignore-delete": "true"}, False, False),
        ({"local-merge-buffer-size": "0 b"}, False, False),
    ],
)
def test_rows_are_left_out_only_where_nobody_asks_for_them(
    options: dict[str, str], has_log: bool, applies: bool
) -> None:
    """A log, a changelog of the input, other merge engines and ignored deletes need every row."""
    table = key_table(bucket="1", **{"local-merge-buffer-size": "1 mb", **options})
    assert (LocalMerge.of(table.store, has_log=has_log) is not None) == applies
    assert (
        LocalMerge.of(key_table(bucket="1", **options | {"local-merge-buffer-size": "0 b"}).store, has_log=False)
        is None
    )


@pytest.mark.spark
def test_a_frame_with_deletes_is_written_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Through ``Table.append``: kinds travel with their rows."""
    some = random.Random(5)
    rows = [(some.randint(0, 9), at, some.choice(["+I", "+U", "-D"]) if at % 3 else "+I") for at in range(300)]
    frame = spark.createDataFrame(rows, "id bigint, v bigint, _row_kind string").coalesce(1)
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    found = []
    for name, options in (("a", {}), ("b", {"local-merge-buffer-size": "1 mb"})):
        options = {"bucket": "2", **options}
        table = Catalog(str(tmp_path)).create_table(f"db.{name}", schema, primary_key=["id"], options=options)
        table.append(frame)
        found.append(table.read().to_arrow().sort_by("id"))
    assert found[0].equals(found[1])
    assert 0 < found[0].num_rows < 10
