"""Rows that are numbered again because another writer came first."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.write.renumber import headrooms, rewrite_with_higher_numbers
from filestore.table import FileTable
from lsm.errors import ConflictError, OutcomeUnknownError
from tests.support.faults import MemoryFileIO
from tests.support.roots import files_there, used_files
from tests.support.tables import KEY_SCHEMA, key_table, key_values, memory_catalog, messages_of, rows


def test_files_that_are_gone_are_not_published_again() -> None:
    """A paused job: its batch was taken over from the log, compacted and expired."""
    table = key_table(bucket="1")
    (message,) = messages_of(table, rows((1, 1), (2, 2)))
    moved = rewrite_with_higher_numbers(table.store, message, above=9)
    assert [(file.min_sequence_number, file.max_sequence_number) for file in moved.new_files] == [(10, 11)]
    (file,) = message.new_files
    table.store.io.delete(table.store.file_path(message.partition, message.bucket, file))
    assert rewrite_with_higher_numbers(table.store, message, above=-1) == message
    with pytest.raises(OutcomeUnknownError, match=r"deleted before its commit: .*look whether its rows are there"):
        rewrite_with_higher_numbers(table.store, message, above=9)


@pytest.mark.sweep
def test_writers_of_one_bucket_at_once_all_write_and_are_all_in_lineage(tmp_path: Path) -> None:
    """lineage.md, minor: two of eight ended with a conflict that said "write the rows again"."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    Catalog(str(tmp_path)).create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})

    def writes(writer: int) -> None:
        table = Catalog(str(tmp_path)).table("db.t")
        for turn in range(3):
            data = pa.table({"id": [0, 10 * writer + turn], "v": [writer, turn]}, schema=schema)
            table.write(data, options={"pipeline.name": f"job{writer}"})

    writers = range(1, 9)
    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(writes, writers))
    catalog = Catalog(str(tmp_path))
    found = catalog.table("db.t").read().to_arrow(columns=["id"]).column("id").to_pylist()
    assert sorted(found) == sorted([0, *(10 * writer + turn for writer in writers for turn in range(3))])
    stored = catalog.system_table("paimon.sink_snapshot_lineage").to_arrow().column("job").to_pylist()
    assert sorted(stored) == sorted(f"job{writer}" for writer in writers for _ in range(3))


class Overtaken(MemoryFileIO):
    """A disk on which others commit right before each of the first commits of a writer."""

    others: Callable[[], object] = staticmethod(lambda: None)
    left = 0

    def create_exclusive(self, path: str, body: bytes) -> bool:
        if self.left and "/snapshot/snapshot-" in path:
            left, self.left = self.left - 1, 0
            self.others()
            self.left = left
        return super().create_exclusive(path, body)


OF_BUCKETS: Mapping[str, dict[str, Any]] = {
    "key": {"primary_key": ["id"], "options": {"bucket": "2"}},
    "changelog": {"primary_key": ["id"], "options": {"bucket": "1", "changelog-producer": "input"}},
    "index": {"primary_key": ["id"], "options": {"bucket": "1", "file-index.bloom-filter.columns": "v"}},
    "append": {"options": {"bucket": "2", "bucket-key": "id"}},
}


@pytest.mark.parametrize("lost", [1, 2, 99], ids=["once", "twice", "for good"])
@pytest.mark.parametrize("kind", OF_BUCKETS)
def test_a_batch_that_lost_a_race_leaves_no_file_behind(kind: str, lost: int) -> None:
    """soak: every race that a writer lost left its files of before, until orphans are removed a day later."""
    io = Overtaken()
    options = {**OF_BUCKETS[kind]["options"], "write-only": "true", "commit.max-retries": "4"}
    table = memory_catalog(io).create_table("db.t", KEY_SCHEMA, **{**OF_BUCKETS[kind], "options": options})
    written = count(1000)
    io.others = lambda: table.write(rows((next(written), 0), (next(written), 0)))
    Table(table).write(rows((1, 0)))
    io.left = lost
    is_refused = False
    try:
        Table(table).write(rows((1, 1), (2, 1), (3, 1)))
    except ConflictError:
        is_refused = True
    io.left = 0
    assert is_refused == (lost == 99)
    assert ((2, 1) in key_values(table)) is not is_refused
    assert files_there(table) == used_files(table)


class Rivals:
    """A file system beside which another writer publishes, right before each of the first snapshots is created."""

    def __init__(self, inner: Any, count: int, write: Callable[[int], object]) -> None:
        self.inner, self.left, self.write = inner, count, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def create_exclusive(self, path: str, body: bytes) -> bool:
        if self.left and "/snapshot/snapshot-" in path:
            self.left -= 1
            self.write(self.left)
        found: bool = self.inner.create_exclusive(path, body)
        return found


def beside_rivals(table: Table, count: int) -> Table:
    """The table as one writer has it; the other ones write the same key and one of their own."""

    def write(number: int) -> None:
        table.write({"id": [0, 1000 + number], "v": [number, number]})

    files = table.files
    return Table(FileTable(replace(files.store, io=Rivals(files.store.io, count, write))))


SOON = {"commit.min-retry-wait": "1 ms", "commit.max-retry-wait": "2 ms"}


@pytest.mark.parametrize(
    ("options", "count"),
    [({"bucket": "1"}, 1), ({"bucket": "1"}, 14), ({"bucket": "-1"}, 1), ({"bucket": "-1"}, 8)],
    ids=["one", "many", "dynamic buckets, one", "dynamic buckets, many"],
)
def test_rows_in_memory_are_written_however_often_others_are_first(
    catalog: Catalog, options: dict[str, str], count: int
) -> None:
    """One of 600 writes of two threads ended with "write the rows again"; of dynamic buckets each that was second."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={**options, **SOON})
    beside_rivals(table, count).write({"id": [0, 1], "v": [-1, -1]})
    found = {row["id"]: row["v"] for row in table.read().to_arrow().to_pylist()}
    assert found == {0: -1, 1: -1, **{1000 + number: number for number in range(count)}}


def test_rows_that_can_be_read_once_are_the_callers_to_write_again(catalog: Catalog) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "-1", **SOON})
    rows = pa.table({"id": [0], "v": [-1]}, schema=schema)
    with pytest.raises(ConflictError):
        beside_rivals(table, 1).write(iter(rows.to_batches()))
    assert table.read().to_arrow().num_rows == 2


def test_numbers_that_are_left_free_grow_past_what_others_use() -> None:
    assert [*islice(headrooms(), 5)] == [0, 1000, 4000, 16_000, 64_000]
