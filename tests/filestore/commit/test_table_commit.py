from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import pick_tasks, run_task
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind, SnapshotRef
from filestore.table import FileTable
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, When, paused_before
from tests.support.races import race_of_processes
from tests.support.tables import (
    KEY_SCHEMA,
    check_metadata,
    committable_of,
    content,
    key_table,
    memory_catalog,
    messages_of,
    reopened,
    rows,
)

# ---- what a commit publishes


def test_a_commit_makes_its_rows_visible_as_the_next_snapshot() -> None:
    """FL-157, FL-163, FL-165."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    first = commit.commit(committable_of(table, 0, rows((1, 10), (2, 20)))).snapshot
    second = commit.commit(committable_of(table, 1, rows((2, 21)))).snapshot
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (1, 2)
    assert (second.total_record_count, second.delta_record_count) == (3, 1)
    assert second.commit_kind is CommitKind.APPEND
    assert content(table) == {1: 10, 2: 21}
    assert content(table, snapshot_id=1) == {1: 10, 2: 20}
    check_metadata(table)


def test_the_hints_are_written_with_the_first_snapshot() -> None:
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(committable_of(table, 0, rows((1, 1))))
    commit.commit(committable_of(table, 1, rows((1, 2))))
    assert table.store.io.read_bytes(table.store.paths.earliest_hint) == b"1"
    assert table.store.io.read_bytes(table.store.paths.latest_hint) == b"2"


def test_log_offsets_are_carried_and_never_go_back() -> None:
    """FL-72: a snapshot holds the next offset of every bucket, also of those that its commit did not touch."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(Committable(identifier=0, log_offsets={0: 5, 1: 7}))
    commit.commit(Committable(identifier=1, log_offsets={1: 9, 2: 1}))
    late = commit.commit(Committable(identifier=2, log_offsets={0: 4})).snapshot
    assert late is not None
    assert late.log_offsets == {0: 5, 1: 9, 2: 1}


def test_log_offsets_survive_a_snapshot_of_an_engine_that_drops_them() -> None:
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(Committable(identifier=0, log_offsets={0: 5, 1: 7}))
    latest = table.store.snapshots.latest()
    assert latest is not None
    foreign = latest.to_json().replace('"logOffsets"', '"unknown"').replace('"id": 1', '"id": 2')
    table.store.io.write_new(table.store.paths.snapshot(2), foreign.encode())
    assert table.store.snapshots.read(2).log_offsets == {}
    mine = commit.commit(Committable(identifier=1, log_offsets={0: 6})).snapshot
    assert mine is not None
    assert mine.log_offsets == {0: 6, 1: 7}


def test_the_watermark_rises_and_time_does_not_go_back() -> None:
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(Committable(identifier=0, watermark=50))
    table.store.clock.ms -= 10_000  # type: ignore[attr-defined]
    second = commit.commit(Committable(identifier=1, watermark=40)).snapshot
    third = commit.commit(Committable(identifier=2)).snapshot
    assert second is not None
    assert third is not None
    assert (second.watermark, third.watermark) == (50, 50)
    assert table.store.snapshots.read(1).time_ms <= second.time_ms <= third.time_ms


def test_properties_belong_to_one_snapshot() -> None:
    table = key_table()
    commit = TableCommit(table.store, "query")
    first = commit.commit(Committable(identifier=0, properties={"a": "1"})).snapshot
    second = commit.commit(Committable(identifier=1)).snapshot
    assert first is not None
    assert second is not None
    assert first.properties["a"] == "1"
    assert "a" not in second.properties


def test_an_empty_streaming_commit_is_remembered_and_an_empty_batch_commit_is_not() -> None:
    table = key_table()
    assert TableCommit(table.store, "batch").commit(Committable(identifier=BATCH_IDENTIFIER)).snapshot is None
    empty = TableCommit(table.store, "query").commit(Committable(identifier=3)).snapshot
    assert empty is not None
    assert (empty.id, empty.delta_record_count) == (1, 0)


def test_data_and_compactions_do_not_share_a_commit() -> None:
    table = key_table()
    message = messages_of(table, rows((1, 1)))[0]
    moved = CommitMessage(partition=message.partition, bucket=0, total_buckets=1, compact_after=message.new_files)
    with pytest.raises(InvalidInputError, match="commit_compaction"):
        TableCommit(table.store, "query").commit(Committable(identifier=0, messages=[moved]))
    with pytest.raises(InvalidInputError, match="use commit"):
        TableCommit(table.store, "query").commit_compaction([message], base=SnapshotRef(0, ""))


# ---- exactly once


def test_an_identifier_is_committed_once() -> None:
    """FL-164."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    once = committable_of(table, 7, rows((1, 1)))
    first = commit.commit(once)
    again = commit.commit(once)
    elsewhere = TableCommit(table.store, "query").commit(once)
    assert (first.already_committed, again.already_committed, elsewhere.already_committed) == (False, True, True)
    assert first.snapshot == again.snapshot == elsewhere.snapshot
    assert table.store.snapshots.latest_id() == 1


def test_older_identifiers_of_a_user_are_done_too() -> None:
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(Committable(identifier=4))
    commit.commit(Committable(identifier=9))
    assert commit.filter_committed([3, 4, 9, 10]) == [10]
    older = commit.commit(Committable(identifier=4))
    assert older.already_committed
    assert older.snapshot is not None
    assert older.snapshot.id == 1


def test_another_users_identifier_does_not_count() -> None:
    table = key_table()
    TableCommit(table.store, "one").commit(Committable(identifier=5))
    assert not TableCommit(table.store, "two").commit(Committable(identifier=5)).already_committed


def test_a_compaction_does_not_make_a_data_commit_look_done() -> None:
    """A compaction carries the highest identifier there is; a stream of the same user must go on."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    commit.commit(committable_of(table, 0, rows((1, 1))))
    commit.commit(committable_of(table, 1, rows((1, 2))))
    live = LiveFiles.latest(table.store)
    done = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    commit.commit_compaction(done, base=live.ref)
    assert not commit.commit(committable_of(table, 2, rows((1, 3)))).already_committed
    assert content(table) == {1: 3}


def rolled_back_to_1() -> tuple[FileTable, TableCommit]:
    """A query committed 0, 1 and 2; the snapshots of 1 and 2 are gone, and its commit is still open."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    for identifier in range(3):
        commit.commit(Committable(identifier=identifier))
    table.store.io.replace(table.store.paths.latest_hint, b"1")
    for snapshot_id in (3, 2):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    return table, commit


def test_after_a_rollback_the_removed_identifiers_are_open_again() -> None:
    _, commit = rolled_back_to_1()
    assert commit.filter_committed([0, 1, 2]) == [1, 2]
    assert not commit.commit(Committable(identifier=1)).already_committed


def test_a_rollback_is_noticed_even_when_others_used_the_ids_again() -> None:
    table, commit = rolled_back_to_1()
    for identifier in range(2):
        TableCommit(table.store, "other").commit(Committable(identifier=identifier))
    assert table.store.snapshots.latest_id() == 3
    assert commit.filter_committed([0, 1, 2]) == [1, 2]


def test_abort_deletes_files_only_when_they_are_not_committed() -> None:
    """FL-92 and the rule of Spark's abort: it may come after a successful commit, from another process."""
    table = key_table()
    commit = TableCommit(table.store, "query")
    committed = committable_of(table, 0, rows((1, 1)))
    commit.commit(committed)
    assert not TableCommit(table.store, "query").abort(committed)
    assert content(table) == {1: 1}
    lost = committable_of(table, 1, rows((2, 2)))
    assert commit.abort(lost)
    files = [file for message in lost.messages for file in message.new_files]
    assert not any(table.store.io.exists(table.store.file_path(lost.messages[0].partition, 0, file)) for file in files)


# ---- every single fault


def committed_thrice(io: FaultyFileIO) -> FileTable:
    """Three commits of a stream with rows, offsets and a compaction in between, each tried until it succeeds."""
    table = key_table(io.inner)
    inputs = [
        committable_of(table, 0, rows((1, 1), (2, 2)), log_offsets={0: 10}),
        None,
        Committable(identifier=1, log_offsets={0: 20}, watermark=5),
        Committable(identifier=2, log_offsets={0: 30}),
    ]
    table = FileTable(replace(table.store, io=io))
    for each in inputs:
        if each is None:
            compact(table, io)
        else:
            retried(lambda each=each: TableCommit(table.store, "query").commit(each))  # type: ignore[misc]
    return reopened(table, io.inner)


def compact(table: FileTable, io: FaultyFileIO) -> None:
    clean = reopened(table, io.inner)
    TableCommit(clean.store, "filler").commit(committable_of(clean, 0, rows((2, 3))))
    live = LiveFiles.latest(clean.store)
    messages = [run_task(clean.store, task) for task in pick_tasks(clean.store, live, full=True)]
    try:
        retried(lambda: TableCommit(table.store, "compaction").commit_compaction(messages, base=live.ref))
    except ConflictError:
        discard(clean.store, messages)
        raise


def retried(action: Callable[[], object]) -> None:
    """What an engine does: once more with the same identifier."""
    try:
        action()
    except (UnavailableError, OutcomeUnknownError):
        action()


def faultless_calls() -> int:
    io = FaultyFileIO(MemoryFileIO())
    committed_thrice(io)
    return io.calls


CALLS = faultless_calls()


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fail_at", range(1, CALLS + 1))
def test_every_single_fault_is_survived(fail_at: int, when: When) -> None:
    """FL-142, FL-164, FL-165: nothing lost, nothing twice, whichever file operation fails and however."""
    io = FaultyFileIO(MemoryFileIO(), fail_at=fail_at, when=when)
    table = committed_thrice(io)
    assert io.calls >= fail_at
    snapshots = [table.store.snapshots.read(each) for each in table.store.snapshots.ids()]
    stories = [(each.commit_user, each.commit_identifier, each.commit_kind.value) for each in snapshots]
    assert stories == [
        ("query", 0, "APPEND"),
        ("filler", 0, "APPEND"),
        ("compaction", BATCH_IDENTIFIER, "COMPACT"),
        ("query", 1, "APPEND"),
        ("query", 2, "APPEND"),
    ]
    assert snapshots[-1].log_offsets == {0: 30}
    assert content(table) == {1: 1, 2: 3}
    check_metadata(table)


def test_a_proven_loss_leaves_no_metadata_behind() -> None:
    table = key_table(MemoryFileIO())
    mine = committable_of(table, 0, rows((1, 1)))
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    losses = 0
    for fail_at in range(1, CALLS):
        disk = MemoryFileIO()
        disk.files = dict(before)
        try:
            TableCommit(replace(table.store, io=FaultyFileIO(disk, fail_at=fail_at)), "query").commit(mine)
        except UnavailableError:
            losses += 1
            assert disk.files == before, fail_at
        except OutcomeUnknownError:  # it is published, and nobody answered whether its branch is still there
            assert TableCommit(replace(table.store, io=disk), "query").commit(mine).already_committed
    assert losses >= 5


def test_an_outcome_that_stays_unknown_keeps_every_file_and_can_be_retried() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    mine = committable_of(table, 0, rows((1, 1)))

    class LosesEveryAnswer(MemoryFileIO):
        def create_exclusive(self, path: str, body: bytes) -> bool:
            raise OutcomeUnknownError(f"answer lost: path={path}")

    deaf = LosesEveryAnswer()
    deaf.files = disk.files
    with pytest.raises(OutcomeUnknownError, match="keep every file"):
        TableCommit(reopened(table, deaf).store, "query").commit(mine)
    assert TableCommit(table.store, "query").commit(mine).snapshot is not None
    assert content(table) == {1: 1}


def test_an_unknown_outcome_stays_unknown_when_nobody_can_look() -> None:
    """The disk fails after the link was made: "nothing is visible" would let the caller delete the files."""
    disk = MemoryFileIO()
    table = key_table(disk)
    mine = committable_of(table, 0, rows((1, 1)))

    class DiesWhilePublishing(MemoryFileIO):
        is_dead = False

        def create_exclusive(self, path: str, body: bytes) -> bool:
            super().create_exclusive(path, body)
            self.is_dead = True
            raise OutcomeUnknownError(f"answer lost: path={path}")

        def list_names(self, directory: str) -> list[str]:
            if self.is_dead:
                raise UnavailableError(f"disk is gone: path={directory}")
            return super().list_names(directory)

    dying = DiesWhilePublishing()
    dying.files = disk.files
    with pytest.raises(OutcomeUnknownError, match="keep every file"):
        TableCommit(reopened(table, dying).store, "query").commit(mine)
    assert content(table) == {1: 1}
    assert TableCommit(table.store, "query").commit(mine).already_committed


def test_an_attempt_that_becomes_visible_late_still_has_its_files() -> None:
    """A network file system may carry a link out after the answer was given up."""
    disk = MemoryFileIO()
    table = key_table(disk)
    mine = committable_of(table, 0, rows((1, 1)))

    class LateLink(MemoryFileIO):
        pending: tuple[str, bytes] | None = None

        def create_exclusive(self, path: str, body: bytes) -> bool:
            if self.pending is None:
                self.pending = (path, body)
                raise OutcomeUnknownError(f"answer lost: path={path}")
            self.files.setdefault(*self.pending)
            return super().create_exclusive(path, body)

    late = LateLink()
    late.files = disk.files
    result = TableCommit(reopened(table, late).store, "query").commit(mine)
    assert result.snapshot is not None
    assert table.store.snapshots.ids() == [1]
    assert content(table) == {1: 1}


# ---- races


def test_the_second_of_two_commits_follows_the_first() -> None:
    """FL-88, FL-89."""
    disk = MemoryFileIO()
    table = key_table(disk, partition_by=["id"], primary_key=["id", "v"])
    mine = committable_of(table, 0, rows((1, 1)))
    theirs = committable_of(table, 0, rows((2, 2)))
    with paused_before(disk, "create_exclusive", lambda: _commit(table, "theirs", theirs)) as io:
        result = TableCommit(reopened(table, io).store, "mine").commit(mine)
    assert result.snapshot is not None
    assert result.snapshot.id == 2
    assert content(table) == {1: 1, 2: 2}
    check_metadata(table)


def test_the_second_writer_of_a_bucket_must_number_its_rows_again() -> None:
    """No two records of a key share a sequence number: readers would disagree about the winner."""
    disk = MemoryFileIO()
    table = key_table(disk)
    mine = committable_of(table, 0, rows((1, 1)))
    theirs = committable_of(table, 0, rows((1, 2)))
    with (
        paused_before(disk, "create_exclusive", lambda: _commit(table, "theirs", theirs)) as io,
        pytest.raises(ConflictError, match="numbered rows of this bucket"),
    ):
        TableCommit(reopened(table, io).store, "mine").commit(mine)
    assert content(table) == {1: 2}
    again = committable_of(table, 0, rows((1, 1)))
    TableCommit(table.store, "mine").commit(again)
    assert content(table) == {1: 1}


def test_without_a_base_all_files_of_the_bucket_are_compared() -> None:
    table = key_table()
    mine = Committable(identifier=0, messages=messages_of(table, rows((1, 1))))
    theirs = committable_of(table, 0, rows((1, 2)))
    TableCommit(table.store, "theirs").commit(theirs)
    with pytest.raises(ConflictError, match="numbered rows"):
        TableCommit(table.store, "mine").commit(mine)


def test_the_base_may_have_expired_meanwhile() -> None:
    table = key_table()
    TableCommit(table.store, "a").commit(committable_of(table, 0, rows((1, 1))))
    mine = committable_of(table, 0, rows((1, 2)))
    theirs = committable_of(table, 1, rows((1, 3)))
    TableCommit(table.store, "a").commit(theirs)
    TableCommit(table.store, "a").commit(Committable(identifier=2))
    for snapshot_id in (1, 2):
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    table.store.io.replace(table.store.paths.earliest_hint, b"3")
    with pytest.raises(ConflictError, match="numbered rows"):
        TableCommit(table.store, "mine").commit(mine)


def test_a_lost_race_of_the_same_commit_is_found_to_be_done() -> None:
    """A zombie of the same query publishes the same batch first."""
    disk = MemoryFileIO()
    table = key_table(disk)
    mine = committable_of(table, 4, rows((1, 1)))
    with paused_before(disk, "create_exclusive", lambda: _commit(table, "query", mine)) as io:
        result = TableCommit(reopened(table, io).store, "query").commit(mine)
    assert result.already_committed
    assert table.store.snapshots.latest_id() == 1


def test_races_that_are_always_lost_end_with_a_conflict() -> None:
    disk = MemoryFileIO()
    table = key_table(disk, **{"commit.max-retries": "2"})
    other = TableCommit(table.store, "other")

    class AlwaysLate(MemoryFileIO):
        def create_exclusive(self, path: str, body: bytes) -> bool:
            if "/snapshot-" in path:
                other.commit(Committable(identifier=int(path.rsplit("-", 1)[1])))
            return super().create_exclusive(path, body)

    late = AlwaysLate()
    late.files = disk.files
    with pytest.raises(ConflictError, match="lost 3 commit races"):
        TableCommit(reopened(table, late).store, "mine").commit(Committable(identifier=0))
    assert table.store.snapshots.latest_id() == 3


def _commit(table: FileTable, user: str, committable: Committable) -> None:
    TableCommit(table.store, user).commit(committable)


def _race(root: str, number: int, count: int) -> None:
    table = FileTable.open("db.t", root)
    for value in range(count):
        table.write(pa.table({"id": [number, 100], "v": [value, value]}, schema=KEY_SCHEMA))


@pytest.mark.sweep
def test_processes_that_race_lose_nothing(tmp_path: Path) -> None:
    """FL-88, FL-89: every commit of every process is one snapshot, and every write is in the table."""
    table = FileCatalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    count = 6
    race_of_processes(_race, [(table.store.paths.root, number, count) for number in range(2)])
    assert table.store.snapshots.ids() == list(range(1, 2 * count + 1))
    assert content(table) == {0: count - 1, 1: count - 1, 100: count - 1}
    live = LiveFiles.latest(table.store)
    ranges = sorted(
        (file.min_sequence_number, file.max_sequence_number) for key in live.buckets() for file in live.files(key)
    )
    assert ranges == [(2 * n, 2 * n + 1) for n in range(2 * count)]
    check_metadata(table)


# ---- overwrites


def test_an_overwrite_replaces_the_partitions_it_names_even_after_a_lost_race() -> None:
    """FL-29, FL-90."""
    disk = MemoryFileIO()
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
    table = memory_catalog(disk).create_table("db.t", schema, primary_key=["p", "id"], partition_by=["p"])
    table.write(pa.table({"id": [1, 2], "v": [1, 2], "p": ["a", "b"]}))

    def meanwhile() -> None:
        table.write(pa.table({"id": [3], "v": [3], "p": ["a"]}))

    with paused_before(disk, "create_exclusive", meanwhile) as io:
        result = reopened(table, io).overwrite(pa.table({"id": [9], "v": [9], "p": ["a"]}))
    assert result.snapshot is not None
    assert (result.snapshot.id, result.snapshot.commit_kind) == (3, CommitKind.OVERWRITE)
    assert content(table) == {9: 9, 2: 2}
    check_metadata(table)


# ---- cost


@pytest.mark.sweep
def test_the_cost_of_a_commit_does_not_grow_with_the_history() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    io = FaultyFileIO(disk)
    counted = reopened(table, io)
    commit = TableCommit(counted.store, "query")
    live = LiveFiles.latest(counted.store)
    costs = []
    for identifier in range(70):
        writer = counted.new_write(max_sequence_numbers=live.max_sequence_numbers())
        writer.write(rows((identifier, identifier)))
        messages = writer.prepare_commit()
        before = io.calls
        commit.commit(Committable(identifier=identifier, messages=messages, base=live.ref))
        live.advance()
        costs.append(io.calls - before)
    most = max(costs)
    assert most <= 30 + 30, "a merge of manifests reads the newest thirty"
    assert sorted(costs)[len(costs) // 2] <= 29
    assert content(table) == {n: n for n in range(70)}
