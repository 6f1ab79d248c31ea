"""Rows that are held together anyway are read by threads, in the order of their parts."""

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from filestore.read import side_by_side
from filestore.read.side_by_side import batches_of_all, sharing_memory
from lsm.errors import CorruptDataError
from tests.support.tables import key_table

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def numbered_batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number]})


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)


def test_raw_parts_are_read_at_the_same_time_and_come_in_their_order() -> None:
    """Issue 17 item 8: two that wait for each other end only if both are read at once."""
    meeting = threading.Barrier(2)

    def read(part: int) -> Iterator[pa.RecordBatch]:
        meeting.wait(timeout=60)
        yield numbered_batch(part)
        yield numbered_batch(part + 100)

    found = batches_of_all([1, 2], read, is_raw=lambda _: True)
    assert [each["n"][0].as_py() for each in found] == [1, 101, 2, 102]


def test_where_one_part_merges_all_are_read_one_by_one() -> None:
    here = threading.get_ident()

    def read(part: int) -> Iterator[pa.RecordBatch]:
        assert threading.get_ident() == here
        yield numbered_batch(part)

    found = batches_of_all(range(5), read, is_raw=lambda part: part != 3)
    assert [each["n"][0].as_py() for each in found] == [0, 1, 2, 3, 4]
    assert list(batches_of_all([], read, is_raw=lambda _: True)) == []


def test_parts_that_share_the_memory_of_a_merge_are_read_at_the_same_time() -> None:
    """Issue 20 point 8: spans of one section."""
    meeting = threading.Barrier(2)

    def sharing(threads: int) -> Callable[[int], Iterator[pa.RecordBatch]]:
        def read(part: int) -> Iterator[pa.RecordBatch]:
            meeting.wait(timeout=60)
            yield numbered_batch(10 * part + threads)

        return read

    found = batches_of_all([1, 2], lambda _: iter(()), is_raw=lambda part: part == 1, sharing=sharing)
    assert [each["n"][0].as_py() for each in found] == [12, 22]
    table = key_table(**{"sort-spill-buffer-size": "64 mb"})
    assert sharing_memory(table, 4).options.sort_spill_buffer_size_bytes == 16 << 20


def test_the_error_of_a_part_is_raised() -> None:
    def read(part: int) -> Iterator[pa.RecordBatch]:
        if part == 3:
            raise CorruptDataError("a page is corrupt")
        yield numbered_batch(part)

    with pytest.raises(CorruptDataError, match="a page is corrupt"):
        list(batches_of_all(range(100), read, is_raw=lambda _: True))


def test_a_table_of_several_splits_reads_as_batch_by_batch() -> None:
    options = {"source.split.target-size": "1kb", "source.split.open-file-cost": "1kb"}
    table = key_table(schema=SCHEMA, bucket="3", **options)
    table.write(pa.table({"id": range(600), "v": range(600)}, schema=SCHEMA))
    table.compact(full=True)
    read = table.read()
    assert len(read.plan().splits) == 3
    for text in (None, "id IN (5, 77, 300, 599)", "v < 0"):
        schema = pa.schema([table.schema.arrow_field(name) for name in SCHEMA.names])
        expected = pa.Table.from_batches(read.to_batches(filter=text), schema=schema)
        assert read.to_arrow(filter=text) == expected
        assert expected.num_rows == {None: 600, "v < 0": 0}.get(text, 4)
