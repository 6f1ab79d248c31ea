from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import pick_tasks, run_task
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.change_tracking import (
    UNLOGGED_KEY,
    ChangeSource,
    change_properties,
    changes_of,
    default_changes,
    unlogged_snapshot,
)
from filestore.snapshot.snapshot import (
    CHANGES_KEY,
    LOG_GENERATION_KEY,
    CommitKind,
    Snapshot,
    carried_offsets,
)
from filestore.table import FileTable
from lsm.errors import CorruptDataError
from tests.support.tables import committable_of, content, key_table, newest_snapshot, rows

LOG = {"log.kafka.bootstrap.servers": "nowhere:1", "bucket": "1"}


def a_snapshot(snapshot_id: int, kind: CommitKind, **properties: str) -> Snapshot:
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list="b",
        delta_manifest_list="d",
        commit_user="u",
        commit_identifier=1,
        commit_kind=kind,
        time_ms=0,
        properties=properties,
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (CommitKind.APPEND, ChangeSource.FILES),
        (CommitKind.OVERWRITE, ChangeSource.FILES),
        (CommitKind.COMPACT, ChangeSource.NONE),
        (CommitKind.ANALYZE, ChangeSource.NONE),
    ],
)
@pytest.mark.parametrize("has_log", [True, False])
def test_what_another_engine_committed_is_read_from_files(
    kind: CommitKind, expected: ChangeSource, has_log: bool
) -> None:
    """FL-33: changes of batch jobs are tracked by default."""
    snapshot = a_snapshot(1, kind)
    assert snapshot.is_external
    assert changes_of(snapshot, has_log=has_log) is expected


@pytest.mark.parametrize(
    ("offsets", "before", "expected"),
    [
        ({0: 7, 1: 4}, {0: 5, 1: 4}, ChangeSource.LOG),  # Flink's sink of the log
        ({0: 5, 1: 4}, {0: 5, 1: 4}, ChangeSource.FILES),  # carried on
        ({}, {0: 5, 1: 4}, ChangeSource.FILES),
        ({0: 2}, {}, ChangeSource.LOG),  # behind an engine that carries nothing on
    ],
)
def test_another_engine_has_written_the_log_if_its_offsets_have_moved_on(
    offsets: dict[int, int], before: dict[int, int], expected: ChangeSource
) -> None:
    first = replace(a_snapshot(1, CommitKind.APPEND, **{CHANGES_KEY: "log", UNLOGGED_KEY: "0"}), log_offsets=before)
    second = replace(a_snapshot(2, CommitKind.APPEND), log_offsets=offsets)
    assert changes_of(second, has_log=True, before=first) is expected
    assert changes_of(second, has_log=True) is ChangeSource.FILES  # what was before has expired
    assert changes_of(second, has_log=False, before=first) is ChangeSource.FILES
    assert unlogged_snapshot([second, first]) == (0 if expected is ChangeSource.LOG else 2)
    assert carried_offsets([second, first]) == (offsets or before)


def test_another_engine_has_written_the_log_that_its_schema_names() -> None:
    """A job that has not heard of a new log writes the former one: what it commits is read from files."""
    first = replace(
        a_snapshot(1, CommitKind.APPEND, **{CHANGES_KEY: "log", UNLOGGED_KEY: "0", LOG_GENERATION_KEY: "3"}),
        schema_id=3,
        log_offsets={0: 5},
    )
    late, there, carried = (
        replace(a_snapshot(2, CommitKind.APPEND), schema_id=schema_id, log_offsets={0: offset})
        for schema_id, offset in ((2, 900), (3, 7), (3, 5))
    )
    assert [unlogged_snapshot([each, first], 3) for each in (late, there, carried)] == [2, 0, 2]
    assert [carried_offsets([each, first], 3) for each in (late, there, carried)] == [{0: 5}, {0: 7}, {0: 5}]


@pytest.mark.parametrize("changes", ChangeSource)
def test_a_snapshot_of_ours_says_where_its_changes_are(changes: ChangeSource) -> None:
    snapshot = a_snapshot(1, CommitKind.APPEND, **{CHANGES_KEY: changes.value})
    assert not snapshot.is_external
    assert changes_of(snapshot, has_log=True) is changes
    without_log = changes_of(snapshot, has_log=False)
    assert without_log is (ChangeSource.FILES if changes is ChangeSource.LOG else changes), "a log that is gone"


def test_a_value_that_nobody_writes_is_corrupt() -> None:
    with pytest.raises(CorruptDataError, match=r"snapshot=7 fluvial.changes=maybe"):
        changes_of(a_snapshot(7, CommitKind.APPEND, **{CHANGES_KEY: "maybe"}), has_log=True)


@given(
    kinds=st.lists(st.tuples(st.sampled_from(CommitKind), st.none() | st.sampled_from(ChangeSource)), max_size=12),
    data=st.data(),
)
def test_the_newest_unlogged_snapshot_is_known_from_one_snapshot_or_a_walk(
    kinds: Sequence[tuple[CommitKind, ChangeSource | None]], data: st.DataObject
) -> None:
    """Whoever commits after whom, and from whichever snapshot one looks."""
    history: list[Snapshot] = []
    unlogged = 0
    for snapshot_id, (kind, changes) in enumerate(kinds, start=1):
        snapshot = a_snapshot(snapshot_id, kind)
        if changes is not None:
            ours = change_properties(changes, snapshot_id=snapshot_id, history=reversed(history))
            snapshot = replace(snapshot, properties=ours)
        history.append(snapshot)
        if changes_of(snapshot, has_log=True) is ChangeSource.FILES:
            unlogged = snapshot_id
        assert unlogged_snapshot(reversed(history)) == unlogged
        if changes is not None:
            assert snapshot.properties[UNLOGGED_KEY] == str(unlogged)
    if history:
        kept = history[data.draw(st.integers(0, len(history) - 1)) :]
        answer = unlogged_snapshot(reversed(kept))
        assert answer == unlogged or (unlogged < kept[0].id and answer == kept[0].id - 1), (
            "what expired may be unlogged"
        )


def test_the_walk_reads_no_further_than_needed() -> None:
    def history() -> object:
        yield a_snapshot(9, CommitKind.COMPACT)
        yield a_snapshot(8, CommitKind.COMPACT, **{CHANGES_KEY: "log", UNLOGGED_KEY: "3"})
        raise AssertionError("read on")

    assert unlogged_snapshot(history()) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("tracks", [True, False])
@pytest.mark.parametrize("kind", CommitKind)
def test_a_commit_that_says_nothing_has_bypassed_the_log(kind: CommitKind, tracks: bool) -> None:
    is_data = kind in (CommitKind.APPEND, CommitKind.OVERWRITE)
    assert default_changes(kind, tracks_changes=tracks) is (
        ChangeSource.FILES if is_data and tracks else ChangeSource.NONE
    )


def properties(table: FileTable) -> tuple[str, str | None]:
    found = newest_snapshot(table).properties
    return found[CHANGES_KEY], found.get(UNLOGGED_KEY)


def commit_log(table: FileTable, identifier: int, data: pa.Table, offset: int) -> None:
    committable = committable_of(table, identifier, data, log_offsets={0: offset}, changes=ChangeSource.LOG)
    TableCommit(table.store, "query").commit(committable)


def test_every_commit_to_a_table_with_a_log_says_where_its_changes_are_and_carries_the_offsets() -> None:
    """FL-29, FL-33, FL-34, FL-72: logged, written past the log, compacted, overwritten, untracked."""
    table = key_table(**LOG)
    commit_log(table, 0, rows((1, 1)), 5)
    assert properties(table) == ("log", "0")
    table.write(rows((2, 2)))
    assert (properties(table), newest_snapshot(table).log_offsets) == (("files", "2"), {0: 5})
    assert table.compact(full=True) is not None
    assert (properties(table), newest_snapshot(table).log_offsets) == (("none", "2"), {0: 5})
    commit_log(table, 1, rows((3, 3)), 6)
    assert properties(table) == ("log", "2")
    table.overwrite(rows((4, 4)))
    assert (properties(table), newest_snapshot(table).log_offsets) == (("files", "5"), {0: 6})
    table.with_options({"change-tracking": "false"}).write(rows((5, 5)))
    assert (properties(table), newest_snapshot(table).log_offsets) == (("none", "5"), {0: 6})
    table.with_options({"change-tracking": "false"}).overwrite(rows((6, 6)))
    assert (properties(table), newest_snapshot(table).log_offsets) == (("none", "5"), {0: 6})
    assert content(table) == {6: 6}


def test_a_table_without_a_log_says_what_is_not_tracked() -> None:
    """FL-34."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    assert properties(table) == ("files", None)
    table.with_options({"change-tracking": "false"}).write(rows((2, 2)))
    assert properties(table) == ("none", None)


def publish_foreign(table: FileTable, kind: CommitKind) -> None:
    """A commit of an engine that drops properties and offsets."""
    before = newest_snapshot(table)
    snapshot = replace(
        before, id=before.id + 1, commit_kind=kind, properties={}, log_offsets={}, commit_user="java",
        commit_identifier=BATCH_IDENTIFIER,
    )  # fmt: skip
    assert table.store.snapshots.publish(snapshot)
    table.store.snapshots.write_latest_hint(snapshot.id)


def test_commits_of_other_engines_are_noticed_by_the_next_of_ours() -> None:
    table = key_table(**LOG)
    commit_log(table, 0, rows((1, 1)), 5)
    publish_foreign(table, CommitKind.APPEND)
    publish_foreign(table, CommitKind.COMPACT)
    commit_log(table, 1, rows((2, 2)), 6)
    assert properties(table) == ("log", "2")
    publish_foreign(table, CommitKind.ANALYZE)
    table.compact(full=True)
    assert (properties(table), newest_snapshot(table).log_offsets) == (("none", "2"), {0: 6})


def test_compactions_of_tasks_carry_the_offsets() -> None:
    table = key_table(**LOG)
    commit_log(table, 0, rows((1, 1)), 5)
    commit_log(table, 1, rows((1, 2)), 7)
    live = LiveFiles.latest(table.store)
    messages = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    result = TableCommit(table.store, "compactor").commit_compaction(messages, base=live.ref)
    assert result.snapshot is not None
    assert result.snapshot.log_offsets == {0: 7}
    assert properties(table) == ("none", "0")


def test_saying_where_changes_are_is_no_reason_for_a_snapshot() -> None:
    table = key_table(**LOG)
    empty = Committable(identifier=BATCH_IDENTIFIER, changes=ChangeSource.LOG)
    assert TableCommit(table.store, "batch").commit(empty).snapshot is None
