"""Changelogs of compactions: literals as Paimon writes them, random histories against a dictionary, every fault."""

import os
from contextlib import suppress
from itertools import count, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filestore.commit.committable import discard
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import compact_buckets, pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.rewriting import rescale
from filestore.refs.file_references import changelog_files
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from tests.support.changelogs import (
    ENGINES,
    SCHEMA,
    Change,
    State,
    apply,
    changelog_changes,
    changelog_entries,
    drops_equal,
    row_values,
    writes_and_compactions,
)
from tests.support.faults import Disks, FaultyFileIO, MemoryFileIO, Nth, When
from tests.support.roots import files_there, used_files
from tests.support.rows import write_rows
from tests.support.tables import check_metadata, content, copied, failing_at, key_table, memory_catalog, reopened, rows

EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "5"))
PRODUCERS = ["lookup", "full-compaction"]


def newest(table: FileTable) -> list[Change]:
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    return changelog_changes(table, snapshot)


# ---- what is left


@pytest.mark.parametrize("producer", PRODUCERS)
def test_of_two_compactions_that_move_the_same_files_one_changelog_is_left(producer: str) -> None:
    """The files keep their names, so the second commit finds them in place; the changes it wrote are of no one."""
    before, disks, other_came_first = key_table(changelog_producer=producer, bucket="1"), Disks(), 0
    before.write(rows((1, 1), (2, 2)))
    for nth in count(1):
        table = copied(before)
        io = Nth(table.store.io, nth, lambda table=table: table.compact(full=True))
        reopened(table, io).compact(full=True)  # type: ignore[arg-type]
        if io.left > 0:
            break
        if not disks.is_new(table.store.io):
            continue
        assert newest(table) == [("+I", 1, 1), ("+I", 2, 2)]
        assert files_there(table) == used_files(table)
        other_came_first += 1
    assert other_came_first > 1


# ---- what is reported


@pytest.mark.parametrize("producer", PRODUCERS)
def test_the_changelog_says_what_became_of_each_key(producer: str) -> None:
    """FL-135; paimon-format.md 6.6: the same files as in the golden tables of Java 1.4.2."""
    table = key_table(changelog_producer=producer)
    table.write(rows((1, 1), (2, 2)))
    table.compact(full=True)
    assert newest(table) == [("+I", 1, 1), ("+I", 2, 2)]
    table.write(rows((1, 11), (2, 2), (3, 3), (4, 4)), pa.array(["+I", "-D", "+I", "-D"]))
    table.compact(full=True)
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.changelog_record_count) == (CommitKind.COMPACT, 4)
    assert changelog_changes(table, snapshot) == [("-U", 1, 1), ("+U", 1, 11), ("-D", 2, 2), ("+I", 3, 3)]
    [(_, _, file)] = changelog_entries(table, snapshot)
    assert file.file_name.startswith("changelog-")
    assert (file.level, file.file_source, file.row_count, file.delete_row_count) == (5, 0, 4, 2)
    assert (file.min_sequence_number, file.max_sequence_number) == (0, 4), "of the row before, and of the row after"
    assert content(table) == {1: 11, 3: 3}
    assert [each.path.rpartition("/")[2] for each in changelog_files(table.store, snapshot)] == [file.file_name]
    assert find_orphans(table.store, before_ms=2**62) == []
    check_metadata(table)


@pytest.mark.parametrize(("option", "expected"), [("false", [("-U", 1, 1), ("+U", 1, 1)]), ("true", [])])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_updates_that_change_nothing_are_left_out_on_request(
    producer: str, option: str, expected: list[Change]
) -> None:
    """Options changelog-producer and changelog-producer.row-deduplicate, as in Paimon."""
    table = key_table(changelog_producer=producer, **{"changelog-producer.row-deduplicate": option})
    table.write(rows((1, 1), (2, 2)))
    table.compact(full=True)
    table.write(rows((1, 1)))
    table.compact(full=True)
    assert newest(table) == expected
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert (snapshot.changelog_manifest_list is None) == (not expected)


def test_lookup_moves_level_0_at_once_and_asks_deeper_levels_for_the_old_rows() -> None:
    """Files below are read and not rewritten, and only those that may hold one of the keys."""
    table = key_table(
        changelog_producer="lookup",
        **{"target-file-size": "1 b", "compaction.max-size-amplification-percent": "1000000"},
    )
    table.write(rows(*((n, n) for n in range(0, 4000, 2))))
    table.compact(full=True)
    table.write(rows((9000, 9)))
    table.compact(full=True)
    table.write(rows((4, 44), (5, 55), (6, 6)), pa.array(["+I", "+I", "-D"]))
    live = LiveFiles.latest(table.store)
    [task] = pick_tasks(table.store, live)
    assert (task.known_level, task.output_level, [file.level for file in task.files]) == (1, 4, [0])
    assert [(file.level, file.row_count) for file in task.lookup_files] == [(5, 2000)]
    assert CompactionTask.from_json(task.to_json()) == task
    result = table.compact()
    assert result is not None
    assert newest(table) == [("-U", 4, 4), ("+U", 4, 44), ("+I", 5, 55), ("-D", 6, 6)]
    after = LiveFiles.latest(table.store)
    [key] = after.buckets()
    assert sorted(file.level for file in after.files(key)) == [4, 5, 5]
    table.write(rows((4, 45)))
    table.compact()
    assert newest(table) == [("-U", 4, 44), ("+U", 4, 45)]
    assert table.compact() is None, "level 0 is empty"


def test_a_large_file_of_new_rows_keeps_its_place_and_is_told_all_the_same() -> None:
    table = key_table(changelog_producer="lookup", **{"target-file-size": "1 b"})
    table.write(rows((1, 1), (2, 2)))
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    [before] = live.files(key)
    table.compact()
    [after] = LiveFiles.latest(table.store).files(key)
    assert (after.file_name, after.level) == (before.file_name, 5)
    assert newest(table) == [("+I", 1, 1), ("+I", 2, 2)]


def test_full_compaction_tells_nothing_before_the_top_level() -> None:
    """Only there no older row can be hidden."""
    table = key_table(
        changelog_producer="full-compaction",
        **{"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000000"},
    )
    table.write(rows(*((n, n) for n in range(3000))))
    table.compact(full=True)
    assert len(newest(table)) == 3000
    for value in (5, 6):
        table.write(rows((1, value)))
    table.compact()
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert (snapshot.commit_kind, snapshot.changelog_manifest_list) == (CommitKind.COMPACT, None)
    table.compact(full=True)
    assert newest(table) == [("-U", 1, 1), ("+U", 1, 6)], "the value between was never reported"


@pytest.mark.parametrize("producer", PRODUCERS)
def test_rescaled_rows_are_not_told_again(producer: str) -> None:
    """FL-84: and none is forgotten that was not reported yet."""
    disk = MemoryFileIO()
    table = key_table(disk, changelog_producer=producer, **{"target-file-row-num": "3"})
    table.write(rows(*((n, n) for n in range(9))))
    apart = table.with_options({"bucket": "2", "changelog-producer": "none"})
    with pytest.raises(
        InvalidInputError, match=r"rows are not compacted and emitted.* fix='compact the table fully first'"
    ):
        rescale(table.store, apart.store, keep=lambda _: True)
    table.compact(full=True)
    rescale(table.store, apart.store, keep=lambda _: True, budget_bytes=1)
    table = table.with_options({"bucket": "2"})
    assert find_orphans(table.store, before_ms=2**62) == []
    assert content(table) == {n: n for n in range(9)}
    table.write(rows((1, 10)))
    table.compact(full=True)
    assert newest(table) == [("-U", 1, 1), ("+U", 1, 10)]


# ---- random histories

deeds = st.lists(
    st.one_of(
        writes_and_compactions,
        st.tuples(st.just("race"), st.lists(st.tuples(row_values, st.just("+I")), min_size=1, max_size=4)),
    ),
    min_size=2,
    max_size=12,
)


def write_taken(table: FileTable, data: list[tuple[dict[str, Any], str]], *, takes_deletes: bool) -> None:
    if not takes_deletes:
        data = [(row, "+I") for row, _ in data]
    write_rows(table, *(row for row, _ in data), kinds=[kind for _, kind in data])


def rows_by_key(table: FileTable) -> State:
    return {(row["p"], row["id"]): tuple(row.values()) for row in table.read().to_arrow().to_pylist()}


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("engine", "producer"),  # first-row has no full-compaction: see test_options
    [each for each in product(ENGINES, PRODUCERS) if each != ("first-row", "full-compaction")],
)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=deeds, buckets=st.integers(1, 2), partitioned=st.booleans())
def test_the_changelog_folded_from_the_beginning_is_the_table(
    engine: str, producer: str, history: list[tuple[str, Any]], buckets: int, partitioned: bool
) -> None:
    """FL-135: at every compaction; each -U and -D is the row reported before, and nothing is reported twice.

    A "race" writes while a compaction runs: what it wrote is reported by the next one.
    """
    options, takes_deletes = ENGINES[engine]
    table = memory_catalog().create_table(
        "db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"] if partitioned else [],
        options={"bucket": str(buckets), "num-sorted-run.compaction-trigger": "3", "target-file-row-num": "3",
                 "compaction.max-size-amplification-percent": "900", "changelog-producer": producer} | dict(options),
    )  # fmt: skip
    state: State = {}
    for what, data in [*history, ("compact", True)]:
        if what == "write":
            write_taken(table, data, takes_deletes=takes_deletes)
            continue
        is_full = what == "compact" and (data or producer == "full-compaction")
        live = LiveFiles.latest(table.store)
        tasks = pick_tasks(table.store, live, full=is_full)
        messages = [run_task(table.store, task) for task in tasks]
        messages = [message for message in messages if not message.is_empty]
        if engine != "first-row":  # which shows nothing of level 0
            expected = rows_by_key(table)
        if what == "race":
            write_taken(table, data, takes_deletes=takes_deletes)
        if messages:
            done = TableCommit(table.store, "c").commit_compaction(messages, base=live.ref)
            assert done.snapshot is not None
            apply(state, changelog_changes(table, done.snapshot), drops_equal=drops_equal(engine))
        if engine == "first-row":
            expected = rows_by_key(table)
        if is_full or producer == "lookup":
            assert state == expected
    assert rows_by_key(table) == state
    check_metadata(table)  # of every snapshot
    for snapshot_id in table.store.snapshots.ids():
        snapshot = table.store.snapshots.read(snapshot_id)
        assert snapshot.commit_kind is CommitKind.COMPACT or snapshot.changelog_manifest_list is None


# ---- faults and conflicts


def prepared(disk: MemoryFileIO, producer: str) -> FileTable:
    table = key_table(disk, changelog_producer=producer, **{"target-file-row-num": "3"})
    table.write(rows(*((n, n) for n in range(8))))
    table.compact(full=True)
    table.write(rows((1, 10), (2, 20), (20, 1)))
    table.write(rows((2, 21), (3, 3)), pa.array(["+I", "-D"]))
    return table


EXPECTED: list[Change] = [("-U", 1, 1), ("+U", 1, 10), ("-U", 2, 2), ("+U", 2, 21), ("-D", 3, 3), ("+I", 20, 1)]


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_whatever_fails_the_changes_are_told_once(producer: str, when: When) -> None:
    """FL-91, FL-163: a compaction and its changelog become visible together or not at all, and leave nothing behind."""
    clean = MemoryFileIO()
    table = prepared(clean, producer)
    counted = FaultyFileIO(clean)
    compact_buckets(reopened(table, counted).store, full=True)
    assert counted.calls > 20
    table, disks = prepared(MemoryFileIO(), producer), Disks()
    for fail_at in range(1, counted.calls + 1):
        after, failing, _ = failing_at(table, fail_at, when)
        with suppress(FluvialError, OSError):
            compact_buckets(failing.store, full=True)
        if not disks.is_new(after.store.io):
            continue
        compact_buckets(after.store, full=True)
        changes = [
            changelog_changes(after, after.store.snapshots.read(each)) for each in after.store.snapshots.ids()[4:]
        ]
        assert [each for each in changes if each] == [EXPECTED], f"fail_at={fail_at}"
        assert content(after) == {0: 0, 1: 10, 2: 21, 4: 4, 5: 5, 6: 6, 7: 7, 20: 1}


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_task_that_fails_leaves_neither_rows_nor_changelog(producer: str) -> None:
    disk = MemoryFileIO()
    table = prepared(disk, producer)
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), full=True)
    before = {*disk.files}
    failures = 0
    for fail_at in range(1, 200):
        try:
            run_task(reopened(table, FaultyFileIO(disk, fail_at=fail_at)).store, task)
        except FluvialError:
            failures += 1
            assert {*disk.files} == before
        else:
            break
    assert failures > 10


@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_compaction_that_lost_its_inputs_takes_its_changelog_with_it(producer: str) -> None:
    """FL-90, FL-91."""
    disk = MemoryFileIO()
    table = prepared(disk, producer)
    live = LiveFiles.latest(table.store)
    messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    assert any(message.changelog_files for message in messages)
    table.compact(full=True)
    before = {*disk.files}
    with pytest.raises(ConflictError, match="not live any more"):
        TableCommit(table.store, "late").commit_compaction(messages, base=live.ref)
    discard(table.store, messages)
    assert not any(disk.files.keys() - before)
    names = {file.file_name for message in messages for file in (*message.compact_after, *message.changelog_files)}
    assert not {path.rpartition("/")[2] for path in disk.files} & names
    assert newest(table) == EXPECTED
