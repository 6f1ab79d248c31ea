"""Compacting tables without a key: which files come together, and that nobody sees a difference."""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.commit.table_commit import TableCommit
from filestore.compact.append import keeps_append_order, small_groups
from filestore.compact.compactor import pick_tasks, run_task
from filestore.options.table_options import TableOptions
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from lsm.row_kind import RowKind
from tests.support.entries import file
from tests.support.tables import check_metadata, memory_catalog

SCHEMA = pa.schema([("k", pa.int32()), ("n", pa.int64())])
EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "8"))
TARGET = TableOptions.parse({"target-file-size": "1000 b"})


def groups(sizes: list[int], *, least: int = 3, is_ordered: bool = True, full: bool = False) -> list[list[int]]:
    files = [file(f"f{number}", sequence=(number, number), size_bytes=size) for number, size in enumerate(sizes)]
    found = small_groups(files, TARGET, least=least, is_ordered=is_ordered, full=full)
    return [[each.size_bytes for each in group] for group in found]


@pytest.mark.parametrize(
    ("sizes", "how", "expected"),
    [
        ([10, 10], {}, []),
        ([10, 10, 10], {}, [[10, 10, 10]]),
        ([10, 10, 900, 10, 10, 10], {}, [[10, 10, 10]]),  # 900 is large enough, and parts the neighbours
        ([10, 10, 900, 10, 10, 10], {"is_ordered": False}, [[10, 10, 10, 10, 10]]),
        ([10, 10], {"full": True, "least": 2}, [[10, 10]]),
        ([10, 900, 10], {"full": True, "least": 2}, []),
        ([600, 500], {}, [[600, 500]]),  # a whole file, however few
        ([400, 400, 400, 400, 400, 400, 20], {}, [[400, 400, 400], [400, 400, 400]]),
        ([100, 10, 10, 10], {}, [[10, 10, 10]]),  # 100 was put together before: not again for 30
        ([100, 10, 10, 10], {"full": True, "least": 2}, [[100, 10, 10, 10]]),
        ([10, 10, 100, 10, 10], {}, []),
        ([10, 10, 100, 10, 10], {"is_ordered": False}, [[10, 10, 10, 10]]),
        ([40, 30, 30], {}, [[40, 30, 30]]),
        ([], {}, []),
    ],
)
def test_small_files_come_together(sizes: list[int], how: dict[str, Any], expected: list[list[int]]) -> None:
    """FL-06, FL-162: neighbours where rows have an order; whole files at once, others when none outweighs the rest."""
    assert groups(sizes, **how) == expected


@given(st.lists(st.integers(1, 1500), max_size=30), st.integers(2, 6), st.booleans(), st.booleans())
def test_groups_are_small_files_each_once(sizes: list[int], least: int, is_ordered: bool, full: bool) -> None:
    """FL-06: nothing is taken twice, nothing that is large enough at all, and in order only neighbours."""
    files = [file(f"f{number}", sequence=(number, number), size_bytes=size) for number, size in enumerate(sizes)]
    taken = small_groups(files, TARGET, least=least, is_ordered=is_ordered, full=full)
    names = [each.file_name for group in taken for each in group]
    assert len(names) == len(set(names))
    for group in taken:
        total = sum(each.size_bytes for each in group)
        assert all(each.size_bytes < 700 for each in group)
        assert len(group) >= (2 if total >= 1000 else least)
        if is_ordered:
            first = files.index(group[0])
            assert list(group) == files[first : first + len(group)]


@pytest.mark.parametrize("is_ordered", [True, False])
def test_a_row_is_rewritten_few_times_until_its_file_is_large(is_ordered: bool) -> None:
    """FL-162: 2,000 commits of one byte: each byte is rewritten a few times, and few files are left."""
    sizes: list[int] = []
    written = most = 0
    for _ in range(2000):
        sizes.append(1)
        files = [file(f"f{number}", sequence=(number, number), size_bytes=size) for number, size in enumerate(sizes)]
        for group in small_groups(files, TARGET, least=5, is_ordered=is_ordered):
            first = files.index(group[0])
            gone = {files.index(each) for each in group}
            total = sum(each.size_bytes for each in group)
            written += total
            sizes = [
                total if number == first else size
                for number, size in enumerate(sizes)
                if number == first or number not in gone
            ]
        most = max(most, len(sizes))
    assert sum(sizes) == 2000
    assert written < 8 * 2000
    assert most < 40


SHAPES: Mapping[str, dict[str, str]] = {
    "no buckets": {"bucket": "-1"},
    "ordered": {"bucket": "2", "bucket-key": "k"},
    "not ordered": {"bucket": "2", "bucket-key": "k", "bucket-append-ordered": "false"},
}


def rows_in(table: FileTable) -> list[tuple[int, int]]:
    return [(row["k"], row["n"]) for row in table.read().to_arrow().to_pylist()]


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES)
@given(
    steps=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=40) | st.sampled_from(["compact", "full", "late"]),
        min_size=1,
        max_size=14,
    )
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_rows_before_are_rows_after(shape: str, steps: list[Any]) -> None:
    """FL-06: at any point of a history; a bucket keeps its order; streams see each row once; nothing is torn."""
    given_options = {**SHAPES[shape], "compaction.min.file-num": "2", "target-file-size": "4 kb"}
    table = memory_catalog().create_table("db.t", SCHEMA, options=given_options)
    expected: list[tuple[int, int]] = []
    reported: list[tuple[int, int]] = []
    previous = None
    for step in steps:
        if step == "late":  # a compaction that was planned before another writer came
            live = LiveFiles.latest(table.store)
            messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
            table.write(pa.table({"k": [0], "n": [len(expected)]}, schema=SCHEMA))
            expected.append((0, len(expected)))
            if messages:
                TableCommit(table.store, "c").commit_compaction(messages, base=live.ref)
        elif isinstance(step, str):
            table.compact(full=step == "full")
        else:
            numbers = range(len(expected), len(expected) + len(step))
            table.write(pa.table({"k": step, "n": numbers}, schema=SCHEMA))
            expected += zip(step, numbers, strict=True)
        assert Counter(rows_in(table)) == Counter(expected)
        while previous is None or previous.id < (table.store.snapshots.latest_id() or 0):
            if table.store.snapshots.latest_id() is None:
                break
            following = table.store.snapshots.read(1 if previous is None else previous.id + 1)
            for split in plan_changes(table.store, previous, following):
                for batch, kinds in read_changes(table, split):
                    assert set(kinds.to_pylist()) == {RowKind.INSERT}
                    reported += zip(batch.column("k").to_pylist(), batch.column("n").to_pylist(), strict=True)
            previous = following
        assert sorted(reported) == sorted(expected)
        if keeps_append_order(table.options):
            by_key: defaultdict[int, list[int]] = defaultdict(list)
            for k, n in rows_in(table):
                by_key[k].append(n)
            assert all(numbers == sorted(numbers) for numbers in by_key.values())
    check_metadata(table)


def test_one_compaction_may_have_several_tasks_in_a_bucket() -> None:
    """FL-06: a backlog of small files becomes files of the target size, by tasks that run side by side."""
    options = {"bucket": "-1", "target-file-size": "4 kb", "file.compression": "none"}
    table = memory_catalog().create_table("db.t", SCHEMA, options=options)
    for turn in range(12):
        table.write(pa.table({"k": [turn] * 50, "n": range(50)}, schema=SCHEMA))
    tasks = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert len(tasks) > 1
    assert len({task.key for task in tasks}) == 1
    table.compact()
    assert len(rows_in(table)) == 600
    assert LiveFiles.latest(table.store).file_count(tasks[0].key) <= 12 - sum(len(task.files) - 1 for task in tasks)


def test_numbers_of_a_bucket_never_fall() -> None:
    """FL-06: who was planned before a compaction that keeps no order, and who comes after it, number rows apart."""
    options = {"bucket": "1", "bucket-key": "k", "bucket-append-ordered": "false", "target-file-size": "3 kb"}
    table = memory_catalog().create_table("db.t", SCHEMA, options=options)
    for count in (1, 2000, 1):  # the one in the middle is large
        table.write(pa.table({"k": [1] * count, "n": range(count)}, schema=SCHEMA))
    (key,) = LiveFiles.latest(table.store).buckets()
    highest = LiveFiles.latest(table.store).max_sequence_number(key)
    table.compact(full=True)
    live = LiveFiles.latest(table.store)
    assert (live.file_count(key), live.max_sequence_number(key)) == (2, highest)
