from dataclasses import replace

import pyarrow as pa
import pytest

from filestore.commit.committable import Committable
from filestore.commit.table_commit import TableCommit
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey, LiveFiles
from filestore.table import FileTable
from filestore.types.binary_row import EMPTY_ROW
from lsm.errors import InvalidInputError
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import content, key_table, memory_catalog, messages_of, rows

KEY = BucketKey(EMPTY_ROW, 0)


def same(one: LiveFiles, other: LiveFiles) -> bool:
    return (one.snapshot_id, {key: {*one.files(key)} for key in one.buckets()}) == (
        other.snapshot_id,
        {key: {*other.files(key)} for key in other.buckets()},
    )


def test_an_empty_table_has_no_buckets() -> None:
    live = LiveFiles.latest(key_table().store)
    assert (live.snapshot_id, list(live.buckets()), live.files(KEY)) == (0, [], ())
    assert live.max_sequence_number(KEY) == NO_SEQUENCE_NUMBER
    assert live.total_buckets(KEY) is None


def test_advancing_gives_what_reading_anew_gives_and_names_what_changed() -> None:
    table = key_table(bucket="2")
    live = LiveFiles.latest(table.store)
    table.write(rows(*((n, n) for n in range(10))))
    assert live.advance() == {BucketKey(EMPTY_ROW, 0), BucketKey(EMPTY_ROW, 1)}
    assert same(live, LiveFiles.latest(table.store))
    assert live.advance() == frozenset()
    [message] = messages_of(table, rows((0, 1)))
    table.write(rows((0, 1)))
    assert live.advance() == {BucketKey(EMPTY_ROW, message.bucket)}
    table.compact(full=True)
    assert live.advance() == {BucketKey(EMPTY_ROW, 0), BucketKey(EMPTY_ROW, 1)}
    assert same(live, LiveFiles.latest(table.store))
    assert all(len(live.levels(key).runs) == 1 for key in live.buckets())


def test_the_highest_number_is_where_a_writer_goes_on() -> None:
    table = key_table()
    live = LiveFiles.latest(table.store)
    for count in (3, 2):
        table.write(rows(*((n, n) for n in range(count))))
    live.advance()
    assert live.max_sequence_numbers() == {KEY: 4}
    assert live.max_sequence_numbers()[(EMPTY_ROW, 0)] == 4


def test_advancing_reads_only_what_changed() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    for number in range(20):
        table.write(rows((number, number)))
    io = FaultyFileIO(disk)
    live = LiveFiles.latest(replace(table.store, io=io))
    table.write(rows((1, 1)))
    before = io.calls
    live.advance()
    assert io.calls - before <= 8


def test_a_rollback_is_noticed_even_when_the_ids_are_used_again() -> None:
    table = key_table()
    for number in range(3):
        table.write(rows((number, number)))
    live = LiveFiles.latest(table.store)
    table.store.io.replace(table.store.paths.latest_hint, b"1")
    for snapshot_id in (3, 2):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    live.advance()
    assert same(live, LiveFiles.latest(table.store))
    assert live.snapshot_id == 1
    for number in range(7, 10):
        table.write(rows((number, number)))
    assert content(table) == {0: 0, 7: 7, 8: 8, 9: 9}
    stale = LiveFiles.latest(table.store)
    table.store.io.replace(table.store.paths.latest_hint, b"2")
    for snapshot_id in (4, 3):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    table.write(rows((5, 5)))
    table.write(rows((6, 6)))
    stale.advance()
    assert same(stale, LiveFiles.latest(table.store))


def test_expired_snapshots_make_it_read_everything_again() -> None:
    table = key_table()
    table.write(rows((0, 0)))
    live = LiveFiles.latest(table.store)
    for number in range(1, 4):
        table.write(rows((number, number)))
    for snapshot_id in (1, 2, 3):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    table.store.io.replace(table.store.paths.earliest_hint, b"4")
    live.advance()
    assert same(live, LiveFiles.latest(table.store))


def test_a_partition_of_another_number_of_buckets_is_refused() -> None:
    """FL-84: only an overwrite rescales, and partitions are rescaled one by one."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
    table = memory_catalog().create_table(
        "db.t", schema, primary_key=["p", "id"], partition_by=["p"], options={"bucket": "2"}
    )
    table.write(pa.table({"id": [1, 2, 3], "v": [1, 2, 3], "p": ["a", "a", "b"]}))
    rescaled: FileTable = table.with_options({"bucket": "3"})
    with pytest.raises(InvalidInputError, match="live=2 now=3"):
        rescaled.write(pa.table({"id": [4], "v": [4], "p": ["a"]}))
    rescaled.overwrite(pa.table({"id": list(range(9)), "v": list(range(9)), "p": ["a"] * 9}))
    rescaled.write(pa.table({"id": [4], "v": [44], "p": ["a"]}))
    counts = LiveFiles.latest(table.store).partition_total_buckets()
    assert sorted(counts.values()) == [2, 3]
    assert rescaled.read().to_arrow(filter="p = 'a' and id = 4").to_pylist() == [{"id": 4, "v": 44, "p": "a"}]
    assert rescaled.read().to_arrow(filter="p = 'b' and id = 3").to_pylist() == [{"id": 3, "v": 3, "p": "b"}]


def test_an_empty_snapshot_moves_the_view() -> None:
    table = key_table()
    live = LiveFiles.latest(table.store)
    TableCommit(table.store, "query").commit(Committable(identifier=0, log_offsets={0: 3}))
    assert live.advance() == frozenset()
    assert live.snapshot_id == 1
