"""A plan is what a dumb reader of all entries finds, and costs what is touched: files here are only entries."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.format.simple_stats import SimpleStats
from filestore.io.file_io import FileIO
from filestore.manifest import live_rows
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, ManifestEntry, live_entries
from filestore.manifest.record_files import decoded_records
from filestore.predicate.given_filter import predicate_of
from filestore.scan.bucket_numbers import BucketNumbers
from filestore.scan.live_files import LiveFiles
from filestore.scan.pruning import Pruner
from filestore.scan.snapshot_files import manifests_of
from filestore.scan.table_scan import TableScan
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.types.binary_row import EMPTY_ROW, encode_row
from lsm.errors import ConflictError, InvalidInputError
from tests.support.entries import file
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import key_table, reopened

SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("name", pa.string()), ("v", pa.int64())])
BUCKETS = 3
FILTERS = (
    "id = 17",
    "id IN (3, 44, 1000)",
    "id > 40 AND id <= 60",
    "id < 10 OR id > 90",
    "id IN (3, 44) AND name = 'k44'",
    "name >= 'k5' AND name < 'k7'",
    "name IN ('k1', 'k9', 'zz')",
    "dt = 'b'",
    "dt IS NULL AND id = 17",
    "dt IN ('a', 'b') AND id BETWEEN 20 AND 30",
    "v = 3",
    None,
)


def bucketed_table(partition_by: Sequence[str], io: FileIO | None = None, **options: str) -> FileTable:
    options = {"bucket": str(BUCKETS), "manifest.merge-min-count": "1000", **options}
    key = [*partition_by, "id", "name"]
    return key_table(io, schema=SCHEMA, primary_key=key, partition_by=partition_by, **options)


def data_file(
    store: TableStore, number: int, keys: tuple[int, int], *, level: int, has_stats: bool = True
) -> DataFileMeta:
    low, high = (encode_row((each, f"k{each}"), store.key_types) for each in keys)
    # of each column alone: texts are not in the order of numbers
    texts = sorted(f"k{each}" for each in keys)
    bounds = [encode_row((each, text), store.key_types) for each, text in zip(keys, texts, strict=True)]
    stats = SimpleStats(min_values=bounds[0], max_values=bounds[1], null_counts=(0, 0))
    made = file(f"data-{number}.parquet", level=level, sequence=(number, number))
    made = replace(made, min_key=low, max_key=high, creation_time_ms=store.clock.local_ms())
    return replace(made, key_stats=stats) if has_stats else made


def partition_of(store: TableStore, value: str | None) -> bytes:
    return encode_row((value,), store.partition_types) if store.partition_types else EMPTY_ROW


def commit(table: FileTable, messages: list[CommitMessage]) -> None:
    table.new_commit(table.store.new_commit_user()).replace_files(
        Committable(identifier=BATCH_IDENTIFIER, messages=messages), only_after=table.store.snapshots.latest_ref().id
    )


def message(
    partition: bytes, bucket: int, *, before: Sequence[DataFileMeta] = (), after: Sequence[DataFileMeta] = ()
) -> CommitMessage:
    return CommitMessage(
        partition=partition,
        bucket=bucket,
        total_buckets=BUCKETS,
        compact_before=tuple(before),
        compact_after=tuple(after),
    )


def stored_entries(store: TableStore) -> list[ManifestEntry]:
    """Of all manifests of the newest snapshot, entry by entry."""
    latest = store.snapshots.latest()
    if latest is None:
        return []
    return [
        entry
        for manifest in manifests_of(store, latest)
        for path in [store.paths.manifest(manifest.file_name)]
        for entry in decoded_records(store.io.read_bytes(path), source=path, decode=ManifestEntry.from_avro)
    ]


def expected_files(store: TableStore, text: str | None, buckets: set[int] | None) -> set[tuple[bytes, int, str]]:
    """What is live and may hold a match, asked one by one."""
    pruner = Pruner(store, predicate_of(text, store.schema))
    return {
        (entry.partition, entry.bucket, entry.file.file_name)
        for entry in live_entries(stored_entries(store))
        if pruner.keep_partition(entry.partition)
        and (buckets is None or entry.bucket in buckets)
        and pruner.keep_bucket(entry.bucket, entry.total_buckets)
        and pruner.keep_by_key(entry.file)
    }


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),  # partition
        st.integers(0, BUCKETS - 1),
        st.integers(0, 5),  # level
        st.tuples(st.integers(0, 99), st.integers(0, 30)),  # first key and how many
        st.sampled_from(["add", "add", "add", "delete", "move"]),
        st.booleans(),  # with statistics
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(STEPS, st.booleans(), st.sampled_from(FILTERS), st.none() | st.sets(st.integers(0, BUCKETS - 1), min_size=1))
def test_a_plan_has_the_files_that_a_reader_of_all_entries_keeps(
    steps: list[Any], is_partitioned: bool, text: str | None, buckets: set[int] | None
) -> None:
    """FL-79, FL-139, FL-179, FL-181: adds, deletes and moves to other levels of any bucket."""
    table = bucketed_table(["dt"] if is_partitioned else [])
    store = table.store
    live: list[tuple[bytes, int, DataFileMeta]] = []
    for number, (value, bucket, level, (first, count), kind, has_stats) in enumerate(steps):
        if kind == "add" or not live:
            place = (partition_of(store, value), bucket)
            made = data_file(store, number, (first, first + count), level=level, has_stats=has_stats)
            messages = [message(*place, after=[made])]
            live.append((*place, made))
        else:
            *place, taken = live.pop(number % len(live))  # type: ignore[assignment]
            moved = [] if kind == "delete" else [replace(taken, level=taken.level + 1)]
            messages = [message(*place, before=[taken], after=moved)]
            live += [(*place, each) for each in moved]  # type: ignore[misc]
        commit(table, messages)
    plan = TableScan(store).plan(filter=text, buckets=buckets)
    found = {(split.partition, split.bucket, each.file_name) for split in plan.splits for each in split.files}
    if text != "v = 3":  # values prune by themselves, see test_scan.py
        assert found == expected_files(store, text, buckets)
    assert found <= expected_files(store, text, buckets)
    by_name = {entry.file.file_name: entry.file for entry in live_entries(stored_entries(store))}
    assert all(by_name[each.file_name] == each for split in plan.splits for each in split.files)

    numbers, whole = BucketNumbers(store, store.snapshots.latest()), LiveFiles.latest(store)
    for value in ("a", "b", None):
        for bucket in range(BUCKETS):
            place = (partition_of(store, value), bucket)
            assert numbers(*place) == whole.max_sequence_number(place)  # type: ignore[arg-type]


# ---- cost


class Counted:
    """Manifests that are opened, and entries that become objects."""

    def __init__(self, table: FileTable, monkeypatch: pytest.MonkeyPatch) -> None:
        self._io = FaultyFileIO(table.store.io)  # type: ignore[arg-type]
        self.table = reopened(table, self._io)  # type: ignore[arg-type]
        self.entries = 0
        inner = live_rows.entries_at

        def counting(columns: Any, rows: Any = None) -> list[ManifestEntry]:
            found = inner(columns, rows)
            self.entries += len(found)
            return found

        monkeypatch.setattr(live_rows, "entries_at", counting)

    @property
    def manifests(self) -> int:
        return sum("/manifest/manifest-" in line and "manifest-list" not in line for line in self._io.log)


def filled(partitions: int, files: int = 100) -> FileTable:
    """One commit, and so one manifest, for each partition; its files in one bucket, in the order of keys."""
    table = bucketed_table(["dt"], MemoryFileIO())
    for number in range(partitions):
        made = [data_file(table.store, number * files + n, (10 * n, 10 * n + 9), level=5) for n in range(files)]
        commit(table, [message(partition_of(table.store, f"p{number:04d}"), 1, after=made)])
    return table


def one_row(partition: str) -> pa.Table:
    return pa.table({"dt": [partition], "id": [5], "name": ["x"], "v": [1]}, schema=SCHEMA)


@pytest.mark.sweep
@pytest.mark.parametrize("action", ["write", "plan", "key"])
def test_what_a_bucket_costs_does_not_grow_with_the_others(action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write or a plan of one partition opens its manifest, and makes objects of the entries that it wants."""
    costs = []
    for partitions in (3, 30):
        counted = Counted(filled(partitions), monkeypatch)
        actions: dict[str, Callable[[FileTable], object]] = {
            "write": lambda table: table.write(one_row("p0001")),
            "plan": lambda table: table.read().plan("dt = 'p0001'"),
            "key": lambda table: table.read().plan("dt = 'p0001' AND id = 77"),
        }
        actions[action](counted.table)
        costs.append((counted.manifests, counted.entries))
    opened, objects = costs[0]
    assert costs[1] == costs[0]
    assert opened == (2 if action == "write" else 1)  # one is written
    assert objects == {"write": 0, "plan": 100, "key": 1}[action]


def seconds(action: Callable[[], object]) -> float:
    """The least of processor time."""
    times = []
    for _ in range(7):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.sweep
def test_ten_times_the_files_cost_a_plan_of_one_bucket_at_most_three_times_as_much() -> None:
    """2,000 and 20,000 live files of one manifest, decoded before: what stays is looking at columns."""
    times = {}
    for files in (2_000, 20_000):
        table = bucketed_table([], MemoryFileIO(), bucket=str(BUCKETS))
        made = [data_file(table.store, n, (n, n), level=5) for n in range(files)]
        few, rest = made[:50], made[50:]
        commit(table, [message(EMPTY_ROW, 0, after=few), message(EMPTY_ROW, 1, after=rest)])
        scan = TableScan(table.store)
        assert sum(len(split.files) for split in scan.plan(buckets=[0]).splits) == 50
        times[files] = seconds(lambda scan=scan: scan.plan(buckets=[0]))  # type: ignore[misc]
    assert times[20_000] <= 3 * times[2_000], times


# ---- numbers of buckets


def test_many_buckets_are_looked_up_together() -> None:
    """One by one at first, then the whole snapshot once."""
    table = filled(30, files=3)
    counted = FaultyFileIO(table.store.io)  # type: ignore[arg-type]
    store = reopened(table, counted).store  # type: ignore[arg-type]
    numbers = BucketNumbers(store, store.snapshots.latest())
    found = [numbers(partition_of(store, f"p{n:04d}"), bucket) for n in range(40) for bucket in range(BUCKETS)]
    assert found == [3 * n + 2 if bucket == 1 and n < 30 else -1 for n in range(40) for bucket in range(BUCKETS)]
    assert counted.calls < 50


def test_another_bucket_count_is_refused_wherever_the_files_are() -> None:
    """FL-115: the bucket of the message may be empty, or one of many."""
    store = filled(2).store
    for numbers in (BucketNumbers(store, store.snapshots.latest()) for _ in range(2)):
        for bucket in (0, 1, 5):
            wrong = replace(message(partition_of(store, "p0001"), bucket), total_buckets=7)
            with pytest.raises(InvalidInputError, match=r"written with another bucket count.*live=3 now=7"):
                numbers.check_bucket_counts([wrong])
            numbers.check_bucket_counts([replace(wrong, bucket=-2), replace(wrong, total_buckets=BUCKETS)])
            numbers.check_bucket_counts([replace(wrong, partition=partition_of(store, "new"))])
        for n in range(20):
            numbers(partition_of(store, f"x{n}"), 0)


def test_a_snapshot_that_expired_meanwhile_is_a_conflict() -> None:
    table = filled(3)
    store = table.store
    numbers = BucketNumbers(store, store.snapshots.latest())
    store.io.delete_tree(store.paths.snapshot_dir)
    store.io.delete_tree(store.paths.manifest_dir)
    with pytest.raises(ConflictError, match="plan again"):
        numbers(partition_of(store, "p0001"), 1)


@pytest.mark.sweep
def test_a_commit_costs_as_much_with_many_snapshots_as_with_few() -> None:
    """Issue 17 item 5: what a write opens, lists and creates, while manifests are merged now and then."""
    options = {"write-only": "true", "snapshot.num-retained.min": "1000", "snapshot.num-retained.max": "1000"}
    io = FaultyFileIO(MemoryFileIO())
    table = reopened(bucketed_table(["dt"], io.inner, **options), io)  # type: ignore[arg-type]
    calls = []
    for number in range(150):
        before = io.calls
        table.write(one_row(f"p{number % 5}"))
        calls.append(io.calls - before)
    assert table.store.snapshots.latest_ref().id == 150
    assert max(calls[120:]) <= max(calls[30:60])
    assert sum(calls[120:]) <= 1.05 * sum(calls[30:60])
