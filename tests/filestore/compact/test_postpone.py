"""Postponed buckets against a dictionary: rows are seen once they have buckets, in the order they were written."""

from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.compact.compactor import compact_buckets, pick_tasks
from filestore.compact.postpone import distribute
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from tests.support.faults import Disks, Nth, When
from tests.support.roots import check_orphans_go
from tests.support.tables import check_metadata, content, failing_at, key_table, reopened, rows

DEFAULT = "postpone.default-bucket-num"


def postponed_table(**options: str) -> FileTable:
    return key_table(bucket="-2", **{DEFAULT: "3", **options})


def test_rows_are_seen_once_they_have_their_buckets() -> None:
    table = postponed_table()
    table.write(rows((1, 1), (2, 2), (3, 3)))
    table.write(rows((2, 20), (4, 4)))
    table.write(rows((1, 0)), pa.array(["-D"]))
    assert content(table) == {}
    live = LiveFiles.latest(table.store)
    assert [(key.bucket, live.total_buckets(key)) for key in live.postponed()] == [(-2, -2)]
    assert not list(live.buckets())
    assert not pick_tasks(table.store, live, full=True)
    paths = [
        table.store.file_path(key.partition, key.bucket, file) for key in live.postponed() for file in live.files(key)
    ]
    # Java compacts only files whose name says which writer they are of
    assert all("/bucket-postpone/data--u-fluvial-s-0-w-" in path for path in paths)

    done = distribute(table.store)
    assert done is not None
    assert done.row_count == 6
    assert content(table) == {2: 20, 3: 3, 4: 4}
    live = LiveFiles.latest(table.store)
    assert not list(live.postponed())
    assert {live.total_buckets(key) for key in live.buckets()} == {3}
    assert distribute(table.store) is None
    check_metadata(table)


def test_a_partition_keeps_its_number_of_buckets() -> None:
    table = postponed_table()
    table.write(rows(*((key, key) for key in range(50))))
    distribute(table.store)
    more = table.with_options({DEFAULT: "7"})
    more.write(rows(*((key, -key) for key in range(60))))
    compact_buckets(more.store, full=True)
    live = LiveFiles.latest(more.store)
    assert {live.total_buckets(key) for key in live.buckets()} == {3}
    assert content(more) == {key: -key for key in range(60)}


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99) | st.none()), min_size=1, max_size=6),
        st.sampled_from(["distribute", "compact", "full"]),
    ),
    max_size=12,
)


@pytest.mark.sweep
@given(STEPS, st.sampled_from([{}, {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}]))
@settings(max_examples=40, deadline=None)
def test_a_history_gives_what_a_dictionary_gives(steps: list[object], options: dict[str, str]) -> None:
    """Writes, distributions and compactions in any order; None deletes. Streams get what the table shows, each once."""
    sums = bool(options)
    table = postponed_table(**options)
    waiting: list[tuple[int, int | None]] = []
    seen: dict[int, int | None] = {}
    for step in [*steps, "distribute"]:
        if isinstance(step, list):
            pairs = [(key, value) for key, value in step if not sums or value is not None]
            if not pairs:
                continue
            kinds = ["-D" if value is None else "+I" for _, value in pairs]
            table.write(rows(*((key, value or 0) for key, value in pairs)), pa.array(kinds))
            waiting += pairs
            continue
        if step == "distribute":
            distribute(table.store)
        else:
            compact_buckets(table.store, full=step == "full")
        for key, value in waiting:
            if value is None:
                seen.pop(key, None)
            else:
                seen[key] = (seen.get(key) or 0) + value if sums else value
        waiting.clear()
        assert content(table) == seen
    assert streamed(table) == seen
    check_metadata(table)


def streamed(table: FileTable) -> dict[int, int | None]:
    state: dict[int, int | None] = {}
    for number in count(1):
        snapshot = table.store.snapshots.find(number)
        if snapshot is None:
            return state
        for split in plan_changes(
            table.store, table.store.snapshots.find(number - 1) if number > 1 else None, snapshot
        ):
            for batch, kinds in read_changes(table, split):
                for kind, row in zip(kinds.to_pylist(), batch.to_pylist(), strict=True):
                    if kind & 1:
                        state.pop(row["id"], None)
                    else:
                        state[row["id"]] = row["v"]
    raise AssertionError


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_fault_anywhere_loses_and_repeats_nothing(when: When) -> None:
    before = postponed_table()
    before.write(rows((1, 1), (2, 2)))
    distribute(before.store)
    before.write(rows((2, 3), (3, 3)))
    old, new, disks = {1: 1, 2: 2}, {1: 1, 2: 3, 3: 3}, Disks()
    for fail_at in range(1, 200):
        table, again, faulty = failing_at(before, fail_at, when)
        try:
            distribute(again.store)
        except (FluvialError, OSError):
            assert faulty.calls >= fail_at
        if not disks.is_new(table.store.io) and faulty.calls >= fail_at:
            continue
        assert content(table) in (old, new)
        distribute(table.store)
        assert content(table) == new
        assert streamed(table) == new
        check_orphans_go(table)
        if faulty.calls < fail_at:
            return
    pytest.fail("the sweep did not end")


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("other", ["distribute", "write"])
def test_somebody_else_at_any_moment_costs_at_most_a_conflict(other: str) -> None:
    """Another job distributes the same rows, or a writer adds some, right before any file operation."""
    conflicts = 0
    for nth in count(1):
        table = postponed_table()
        table.write(rows((1, 1), (2, 2)))
        distribute(table.store)
        table.write(rows((2, 3), (3, 3)))

        def meanwhile(table: FileTable = table) -> None:
            if other == "distribute":
                distribute(table.store)
            else:
                table.write(rows((3, 4)))

        racing = Nth(table.store.io, nth, meanwhile)
        try:
            distribute(reopened(table, racing).store)  # type: ignore[arg-type]
        except ConflictError:
            conflicts += 1
        assert content(table) == {1: 1, 2: 3, 3: 3} or (other == "write" and content(table) == {1: 1, 2: 3, 3: 4})
        distribute(table.store)
        expected = {1: 1, 2: 3, 3: 4 if other == "write" and racing.left <= 0 else 3}
        assert content(table) == streamed(table) == expected
        if racing.left > 0:
            break
    assert (conflicts > 0) == (other == "distribute")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="bucket=-2 changelog-producer=input"):
        postponed_table(**{"changelog-producer": "input"})
    with pytest.raises(InvalidInputError, match="one partition for every bucket: bucket=-2"):
        postponed_table(**{"log.kafka.bootstrap.servers": "localhost:1"})
