from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from filestore.commit.committable import discard
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import compact_table, pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.snapshot import CommitKind, SnapshotRef
from filestore.table import FileTable
from lsm.compaction.compaction import CompactionReason
from lsm.errors import ConflictError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, paused_before
from tests.support.tables import check_metadata, content, key_table, reopened, rows


def only_bucket(table: FileTable) -> tuple[LiveFiles, BucketKey]:
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    return live, key


def levels(table: FileTable) -> list[int]:
    live, key = only_bucket(table)
    return sorted(file.level for file in live.files(key))


def test_a_full_compaction_leaves_one_run_on_the_last_level_without_deletes() -> None:
    """FL-174, paimon-format.md section 12."""
    table = key_table()
    table.write(rows((1, 10), (2, 20)))
    table.write(rows((1, 10)), pa.array(["-D"]))
    result = table.compact(full=True)
    assert result is not None
    assert result.snapshot is not None
    assert (result.snapshot.commit_kind, result.snapshot.delta_record_count) == (CommitKind.COMPACT, -2)
    live, key = only_bucket(table)
    [file] = live.files(key)
    assert (file.level, file.row_count, file.delete_row_count, file.file_source) == (5, 1, 0, 1)
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 1)
    assert content(table) == {2: 20}
    assert table.compact(full=True) is None
    check_metadata(table)


def test_compaction_waits_for_enough_runs() -> None:
    """FL-171, FL-176, FL-177: a table that says nothing of a style is compacted by counting its runs."""
    table = key_table(**{"num-sorted-run.compaction-trigger": "3"})
    for number in range(2):
        table.write(rows((number, number)))
        assert table.compact() is None
    table.write(rows((2, 2)))
    assert table.compact() is not None
    assert content(table) == {0: 0, 1: 1, 2: 2}


def test_leveled_compaction_moves_level_0_down_when_it_has_enough_files() -> None:
    """FL-169, FL-170."""
    table = key_table(**{"compaction.style": "leveled", "level0_file_num_compaction_trigger": "2"})
    for number in range(2):
        table.write(rows((1, number), (number + 2, number)))
    assert table.compact() is not None
    assert levels(table) == [1]
    assert content(table) == {1: 1, 2: 0, 3: 1}


def test_deletes_stay_while_an_older_run_is_left() -> None:
    table = key_table(
        **{"num-sorted-run.compaction-trigger": "2", "compaction.max-size-amplification-percent": "1000000"}
    )
    table.write(rows(*((n, n) for n in range(3000))))
    table.compact(full=True)
    table.write(rows((1, 1)), pa.array(["-D"]))
    table.write(rows((2, 2)), pa.array(["-D"]))
    result = table.compact()
    assert result is not None
    live, key = only_bucket(table)
    assert sorted((f.level, f.delete_row_count) for f in live.files(key)) == [(1, 2), (2, 0)]
    assert len(content(table)) == 2998


def test_a_large_file_that_nothing_overlaps_only_changes_its_level() -> None:
    """Source: paimon-format.md 6.7."""
    table = key_table(**{"target-file-size": "1 b"})
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((3, 3)))
    live, key = only_bucket(table)
    before = {file.file_name for file in live.files(key)}
    table.compact(full=True)
    live, key = only_bucket(table)
    assert {file.file_name for file in live.files(key)} == before
    assert {file.level for file in live.files(key)} == {5}
    assert {file.file_source for file in live.files(key)} == {0}
    assert content(table) == {1: 1, 2: 2, 3: 3}
    assert content(table, snapshot_id=2) == {1: 1, 2: 2, 3: 3}


def test_small_files_that_nothing_overlaps_become_one() -> None:
    table = key_table()
    for number in range(3):
        table.write(rows((number, number)))
    table.compact(full=True)
    live, key = only_bucket(table)
    assert len(live.files(key)) == 1


def test_a_large_file_with_deletes_is_cleaned_on_the_last_level() -> None:
    table = key_table(**{"target-file-size": "1 b"})
    table.write(rows((1, 1), (2, 2)), pa.array(["+I", "-D"]))
    table.compact(full=True)
    live, key = only_bucket(table)
    [file] = live.files(key)
    assert (file.row_count, file.delete_row_count) == (1, 0)


def test_a_compaction_to_nothing_leaves_no_file() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    table.write(rows((1, 1)), pa.array(["-D"]))
    table.compact(full=True)
    assert list(LiveFiles.latest(table.store).buckets()) == []
    assert content(table) == {}
    table.write(rows((1, 5)))
    assert content(table) == {1: 5}


def test_tasks_and_their_results_survive_a_process_border() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    live = LiveFiles.latest(table.store)
    [task] = pick_tasks(table.store, live, full=True)
    assert task.reason is CompactionReason.FORCED
    sent = CompactionTask.from_json(task.to_json())
    assert sent == task
    message = CommitMessage.from_json(run_task(table.store, sent).to_json())
    TableCommit(table.store, "c").commit_compaction([message], base=live.ref)
    assert content(table) == {1: 2}


def test_only_the_buckets_asked_for_are_looked_at() -> None:
    table = key_table(bucket="2")
    for number in range(2):
        table.write(rows(*((n, number) for n in range(10))))
    live = LiveFiles.latest(table.store)
    [key, _] = sorted(live.buckets())
    assert [task.key for task in pick_tasks(table.store, live, keys=[key], full=True)] == [key]


# ---- conflicts


def test_writes_during_a_compaction_are_no_conflict() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((1, 3)))
    with paused_before(disk, "create_exclusive", lambda: _write(table, (2, 9), (3, 9))) as io:
        result = reopened(table, io).compact(full=True)
    assert result is not None
    assert content(table) == {1: 3, 2: 9, 3: 9}
    assert levels(table) == [0, 5]
    check_metadata(table)


def test_a_compaction_that_lost_its_inputs_is_abandoned_with_its_files() -> None:
    """FL-90, FL-91."""
    disk = MemoryFileIO()
    table = key_table(disk)
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    live = LiveFiles.latest(table.store)
    messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    table.compact(full=True)
    before = {*disk.files}
    with pytest.raises(ConflictError, match="not live any more"):
        TableCommit(table.store, "late").commit_compaction(messages, base=live.ref)
    assert {*disk.files} == before
    discard(table.store, messages)
    assert {*disk.files} < before
    assert content(table) == {1: 2}
    check_metadata(table)


def test_compacting_goes_on_with_the_new_state_after_a_conflict() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    for number in range(2):
        table.write(rows((1, number)))

    def meanwhile() -> None:
        table.compact(full=True)
        table.write(rows((2, 2)))

    with paused_before(disk, "create_exclusive", meanwhile) as io:
        result = compact_table(reopened(table, io).store, full=True)
    assert result is not None
    assert levels(table) == [5]
    assert content(table) == {1: 1, 2: 2}
    check_metadata(table)


def test_a_compaction_is_committed_once() -> None:
    """An engine that lost the answer commits again: the files must not be taken for abandoned ones."""
    table = key_table()
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    live = LiveFiles.latest(table.store)
    messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    base_id = live.snapshot_id
    first = TableCommit(table.store, "c").commit_compaction(messages, base=SnapshotRef(base_id, ""))
    again = TableCommit(table.store, "c").commit_compaction(messages, base=SnapshotRef(base_id, ""))
    assert (first.already_committed, again.already_committed) == (False, True)
    assert first.snapshot == again.snapshot
    for snapshot_id in (1, 2):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    table.store.io.replace(table.store.paths.earliest_hint, b"3")
    table.write(rows((2, 2)))
    assert TableCommit(table.store, "c").commit_compaction(messages, base=SnapshotRef(1, "")).already_committed


def test_overlapping_results_of_two_compactions_are_a_conflict() -> None:
    table = key_table()
    table.write(rows((1, 1), (5, 5)))
    live = LiveFiles.latest(table.store)
    [task] = pick_tasks(table.store, live, full=True)
    mine = run_task(table.store, task)
    table.write(rows((3, 3)))
    newer = LiveFiles.latest(table.store)
    [key] = newer.buckets()
    [young] = [file for file in newer.files(key) if file.file_name != task.files[0].file_name]
    alone = CommitMessage(
        partition=key.partition,
        bucket=0,
        total_buckets=1,
        compact_before=(young,),
        compact_after=(replace(young, level=5),),
    )
    TableCommit(table.store, "other").commit_compaction([alone], base=newer.ref)
    with pytest.raises(ConflictError, match="overlap: level=5"):
        TableCommit(table.store, "mine").commit_compaction([mine], base=live.ref)


def test_a_failed_task_leaves_no_file() -> None:
    disk = MemoryFileIO()
    table = key_table(disk, **{"target-file-size": "1 b"})
    for start in (0, 100):
        for _ in range(2):
            table.write(rows(*((start + n, n) for n in range(8))))
    table.write(rows((50, 50)))
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store), full=True)
    before = {*disk.files}
    failures = 0
    for fail_at in range(1, 100):
        try:
            run_task(replace(table.store, io=FaultyFileIO(disk, fail_at=fail_at)), task)
        except UnavailableError:
            failures += 1
            assert {*disk.files} == before
        else:
            break
    assert failures >= 9


# ---- other tables


def test_first_row_tables_show_a_row_once_it_is_compacted() -> None:
    """Source: paimon-format.md 0.11."""
    table = key_table(merge_engine="first-row")
    table.write(rows((1, 1)))
    assert content(table) == {}
    table.compact()
    assert content(table) == {1: 1}
    table.write(rows((1, 2), (2, 2)))
    assert content(table) == {1: 1}
    table.compact()
    assert content(table) == {1: 1, 2: 2}
    assert levels(table) == [5]


@pytest.mark.parametrize("options", [{}, {"bucket": "1", "bucket-key": "id"}])
def test_small_files_without_key_become_one_in_their_order(options: dict[str, str]) -> None:
    """Source: paimon-format.md 6.8."""
    table = key_table(primary_key=(), **options)
    for number in range(4):
        table.write(rows((number, 0), (number, 1)))
    assert table.compact() is None
    table.write(rows((4, 0), (4, 1)))
    result = table.compact()
    assert result is not None
    assert result.snapshot is not None
    assert (result.snapshot.commit_kind, result.snapshot.delta_record_count) == (CommitKind.COMPACT, 0)
    live, key = only_bucket(table)
    [file] = live.files(key)
    assert (file.row_count, file.level, file.min_sequence_number, file.max_sequence_number) == (10, 0, 0, 9)
    found = table.read().to_arrow().to_pylist()
    assert (found if options else sorted(found, key=lambda row: (row["id"], row["v"]))) == [
        {"id": number, "v": value} for number in range(5) for value in range(2)
    ]
    check_metadata(table)


def test_neighbours_only_are_joined_in_a_bucket_without_key() -> None:
    table = key_table(primary_key=(), **{"bucket": "1", "bucket-key": "id", "target-file-size": "3 kb"})
    for size in (1, 1, 3000, 1):
        table.write(rows(*((n, n) for n in range(size))))
    order = table.read().to_arrow()
    table.compact(full=True)
    live, key = only_bucket(table)
    assert sorted(file.row_count for file in live.files(key)) == [1, 2, 3000]
    assert table.read().to_arrow() == order


def test_old_columns_are_rewritten_in_the_new_schema() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    fields = table.schema.fields
    wider = replace(
        table.schema,
        id=1,
        fields=(fields[0], replace(fields[1], name="w")),
    )
    table.store.schemas.create(wider)
    table = FileTable.open(
        "db.t", table.store.paths.root, io=table.store.io, clock=table.store.clock, names=table.store.names
    )
    table.write(pa.table({"id": [2], "w": [2]}))
    table.compact(full=True)
    live, key = only_bucket(table)
    assert {file.schema_id for file in live.files(key)} == {1}
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "w": 1}, {"id": 2, "w": 2}]


@pytest.mark.parametrize("work", ["compact", "write", "overwrite"])
def test_an_interrupt_behind_the_publication_deletes_no_file(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot may refer to stays; only errors that prove that nothing is visible delete files."""
    table = key_table()
    for number in range(3):
        _write(table, (number, number))
    expected = content(table)
    finish = TableCommit._finish

    def interrupted(self: TableCommit, *given: object) -> object:
        finish(self, *given)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(TableCommit, "_finish", interrupted)
    works: dict[str, Callable[[], object]] = {
        "compact": lambda: table.compact(full=True),
        "write": lambda: _write(table, (0, 0)),
        "overwrite": lambda: table.overwrite(rows(*((number, number) for number in range(3)))),
    }
    with pytest.raises(KeyboardInterrupt):
        works[work]()
    newest = table.store.snapshots.latest()
    assert newest is not None
    assert newest.id == 4
    assert content(table) == expected


def _write(table: FileTable, *pairs: tuple[int, int]) -> None:
    table.write(rows(*pairs))
