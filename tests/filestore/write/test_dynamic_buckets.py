"""Dynamic buckets: a key keeps its bucket, and a bucket gets as many keys as the option says."""

from collections import defaultdict
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.commit.committable import Committable
from filestore.compact.compactor import compact_buckets
from filestore.index.index_manifest import bucket_index, index_files
from filestore.maintenance.rewriting import restore
from filestore.read.split_read import read_split
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from filestore.types.binary_row import EMPTY_ROW
from filestore.write.table_write import spread
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError
from tests.support.faults import Disks, Nth, When
from tests.support.roots import check_orphans_go
from tests.support.tables import check_metadata, content, failing_at, key_table, messages_of, reopened, rows

TARGET, MOST, INITIAL = "dynamic-bucket.target-row-num", "dynamic-bucket.max-buckets", "dynamic-bucket.initial-buckets"


def dynamic_table(**options: str) -> FileTable:
    return key_table(bucket="-1", **{TARGET: "5", **options})


def keys_by_bucket(table: FileTable) -> dict[tuple[bytes, int], set[int]]:
    found = defaultdict(set)
    for split in table.new_scan().plan().splits:
        for batch in read_split(table, split):
            found[split.partition, split.bucket] |= set(batch.column("id").to_pylist())
    return dict(found)


def test_buckets_are_filled_one_after_the_other() -> None:
    table = dynamic_table()
    table.write(rows(*((key, 0) for key in range(12))))
    assert sorted(map(len, keys_by_bucket(table).values())) == [2, 5, 5]
    table.write(rows(*((key, 1) for key in range(8, 16))))
    assert sorted(map(len, keys_by_bucket(table).values())) == [1, 5, 5, 5]
    assert content(table) == {key: int(key >= 8) for key in range(16)}
    live = LiveFiles.latest(table.store)
    assert {live.total_buckets(key) for key in live.buckets()} == {-1}
    entries = index_files(table.store, table.store.snapshots.latest())
    assert {entry.bucket: entry.row_count for entry in entries} == {0: 5, 1: 5, 2: 5, 3: 1}
    body = table.store.io.read_bytes(table.store.paths.index(entries[0].file_name))
    assert len(body) == entries[0].size_bytes == 20
    check_metadata(table)


def test_rows_of_known_keys_bring_no_index() -> None:
    table = dynamic_table()
    table.write(rows((1, 1), (2, 2)))
    before = bucket_index(table.store, table.store.snapshots.latest())
    table.write(rows((2, 3)), pa.array(["+U"]))
    table.write(rows((1, 3)), pa.array(["-D"]))
    table.compact(full=True)
    assert bucket_index(table.store, table.store.snapshots.latest()) == before
    assert content(table) == {2: 3}


@given(
    st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=5),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from([-1, 1, 3, 50]),
)
def test_new_keys_go_where_there_is_room(
    counts: dict[int, int], new: int, target: int, initial: int, most: int
) -> None:
    chosen = spread(counts, new, target=target, initial=initial, most=most)
    assert len(chosen) == new
    after = np.bincount(chosen, minlength=60) + np.array([counts.get(each, 0) for each in range(60)])
    got_more = set(chosen.tolist())
    assert most < 0 or got_more <= set(range(max(most, 1)))
    if most < 0 or all(after[each] <= target for each in range(most)):
        assert all(after[each] <= max(target, counts.get(each, 0)) for each in range(60))
    if new and not counts:
        wanted = min(initial if most < 0 else min(initial, most), new)
        assert {each for each in range(60) if after[each]} >= set(range(wanted))


@pytest.mark.long
@pytest.mark.sweep
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 99) | st.none()), min_size=1, max_size=20)
        | st.sampled_from(["compact", "full", "overwrite"]),
        max_size=8,
    ),
    st.sampled_from([{}, {MOST: "2"}, {INITIAL: "3"}]),
)
@settings(max_examples=40, deadline=None)
def test_a_key_is_in_one_bucket_whatever_happens(steps: list[object], options: dict[str, str]) -> None:
    table = dynamic_table(**options)
    expected: dict[int, int | None] = {}
    homes: dict[int, int] = {}
    for step in steps:
        if isinstance(step, list):
            kinds = pa.array(["-D" if value is None else "+I" for _, value in step])
            table.write(rows(*((key, value or 0) for key, value in step)), kinds)
            for key, value in step:
                expected.pop(key, None)
                if value is not None:
                    expected[key] = value
        elif step == "overwrite":
            table.overwrite(rows((7, 7), (9, 9)))
            expected, homes = {7: 7, 9: 9}, {}
        else:
            compact_buckets(table.store, full=step == "full")
        assert content(table) == expected  # fails when a key is there twice
        for (_, bucket), keys in keys_by_bucket(table).items():
            for key in keys:
                assert homes.setdefault(key, bucket) == bucket
    check_metadata(table)


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_fault_anywhere_leaves_keys_and_index_together(when: When) -> None:
    before = dynamic_table()
    before.write(rows(*((key, 0) for key in range(7))))
    old = dict.fromkeys(range(7), 0)
    new, disks = old | dict.fromkeys(range(4, 12), 1), Disks()
    for fail_at in range(1, 200):
        table, again, faulty = failing_at(before, fail_at, when)
        try:
            again.write(rows(*((key, 1) for key in range(4, 12))))
        except (FluvialError, OSError):
            assert faulty.calls >= fail_at
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        assert content(table) in (old, new)
        table.write(rows(*((key, 1) for key in range(4, 12))))
        assert content(table) == new
        check_orphans_go(table)
        if faulty.calls < fail_at:
            return
    pytest.fail("the sweep did not end")


@pytest.mark.sweep
def test_two_writers_never_give_a_key_two_buckets() -> None:
    """The second one assigns again: another writer right before any file operation of the first."""
    for nth in count(1):
        table = dynamic_table(**{TARGET: "2"})
        table.write(rows((1, 1)))

        def meanwhile(table: FileTable = table) -> None:
            table.write(rows(*((key, 5) for key in (9, 8, 7, 6, 5))))

        racing = Nth(table.store.io, nth, meanwhile)
        reopened(table, racing).write(rows(*((key, 6) for key in (5, 6, 7, 10))))  # type: ignore[arg-type]
        assert {1, 5, 6, 7, 10} <= set(content(table))
        if racing.left > 0:
            break
        assert set(content(table)) == {1, 5, 6, 7, 8, 9, 10}


def test_restored_rows_bring_their_index() -> None:
    table = dynamic_table()
    table.write(rows(*((key, 0) for key in range(7))))
    first = table.store.snapshots.latest()
    assert first is not None
    table.overwrite(rows((6, 1), (5, 1), (9, 1)))
    restore(table.store, first)
    table.write(rows(*((key, 2) for key in range(9))))
    assert content(table) == dict.fromkeys(range(9), 2)
    assert sum(entry.row_count for entry in bucket_index(table.store, table.store.snapshots.latest())) == 9


@pytest.mark.parametrize(
    "readers", [{"deletion-vectors.enabled": "true"}, {"changelog-producer": "lookup"}, {"merge-engine": "first-row"}]
)
@pytest.mark.parametrize("upgrade", ["true", "false"])
def test_an_overwrite_keeps_its_index_where_readers_need_a_compaction(readers: dict[str, str], upgrade: str) -> None:
    table = dynamic_table(**readers, **{"overwrite-upgrade": upgrade, "write-buffer-size": "1 b"})
    table.overwrite(rows((5, 1), (1, 1), (9, 1), (2, 1), (6, 1), (3, 1)))
    table.write(rows((6, 1), (7, 1)))
    table.compact(full=True)
    assert content(table) == dict.fromkeys((1, 2, 3, 5, 6, 7, 9), 1)
    assert sum(entry.row_count for entry in bucket_index(table.store, table.store.snapshots.latest())) == 7


def test_a_key_that_another_writer_put_elsewhere_conflicts() -> None:
    """Even when both write different buckets, so that nothing else would tell."""
    table = dynamic_table()
    table.write(rows((1, 1)))
    full = table.with_options({TARGET: "1"})
    messages = messages_of(full, rows((5, 5)))
    assert [message.bucket for message in messages] == [1]
    table.write(rows((5, 6)))
    assert set(keys_by_bucket(table)) == {(EMPTY_ROW, 0)}
    with pytest.raises(ConflictError, match="another writer assigned keys of this partition"):
        table.new_commit("s").commit(
            Committable(identifier=1, messages=messages, base=table.store.snapshots.read(1).ref)
        )
    assert content(table) == {1: 1, 5: 6}


def test_a_broken_index_stops_the_writer() -> None:
    table = dynamic_table()
    table.write(rows((1, 1)))
    (entry,) = bucket_index(table.store, table.store.snapshots.latest())
    table.store.io.delete(table.store.paths.index(entry.file_name))
    table.store.io.write_new(table.store.paths.index(entry.file_name), b"123")
    with pytest.raises(CorruptDataError, match="index of a dynamic bucket is broken"):
        table.write(rows((2, 1)))


def test_what_cannot_be_is_refused() -> None:
    """FL-84: buckets are partitions of the log, so there they are fixed."""
    with pytest.raises(InvalidInputError, match="one partition for every bucket: bucket=-1"):
        dynamic_table(**{"log.kafka.bootstrap.servers": "localhost:1"})
    with pytest.raises(InvalidInputError, match="bucket=-1 bucket-key=id"):
        dynamic_table(**{"bucket-key": "id"})
