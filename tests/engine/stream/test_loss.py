"""``log.on-offset-lost``: what a stream does when records or snapshots that it needs are gone."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog, Table
from engine.log.table_log import TableLog
from engine.procedures.versions.rollback import rollback
from engine.stream import log as stream_log
from engine.write.batch_part import write_part
from engine.write.batch_writer import BatchWriter
from logstore.kafka.topics import LogTopics
from lsm.errors import CorruptDataError, InvalidInputError
from tests.engine.stream.conftest import NewTable
from tests.support.logs import ends_with_markers
from tests.support.streams import Query, content, expire, fold, forget_log, ids, query, rows

pytestmark = pytest.mark.broker
POLICIES = ["fail", "resnapshot", "earliest"]


@pytest.fixture
def table(new_table: NewTable) -> Table:
    """Ids 1 to 3 in snapshot 1."""
    found = new_table()
    found.write(rows([1, 2, 3]))
    return found


def behind(table: Table, **options: Any) -> Query:
    """A stream that has snapshot 1; behind it are a delete, an update, and an insert, in snapshots 2 to 4."""
    stream = query(table, **options)
    stream.available()
    table.write(rows([1], kind="-D"))
    table.write(rows([2], "new"))
    table.write(rows([4]))
    return stream


def kinds(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["id"], row["_row_kind"]) for row in found)


def test_a_stream_stops_and_says_what_is_missing_and_what_helps(table: Table) -> None:
    """FL-99, FL-100, idea 8: bucket, offsets, snapshots, and the ways out."""
    stream = behind(table)
    wanted = stream.position["offsets"]["0"]
    forget_log(table)
    with pytest.raises(CorruptDataError) as caught:
        stream.available()
    message = str(caught.value)
    for fact in (
        f"bucket=0 wanted_offset={wanted} earliest_offset={ends_with_markers(table)[0]}",
        f"table={table.name} delivered_snapshot=1 latest_snapshot=4",
        "fix=set log.on-offset-lost=resnapshot",
        "or start with a new checkpoint",
    ):
        assert fact in message
    assert ids(query(table).available()) == [2, 3, 4]  # a new stream has all that expired from the log


def test_the_difference_is_exact_while_the_delivered_snapshot_is_there(table: Table) -> None:
    """FL-99, idea 8: deletes too."""
    stream = behind(table, log_on__offset__lost="resnapshot")
    forget_log(table)
    assert kinds(stream.available()) == [(1, "-D"), (2, "+U"), (2, "-U"), (4, "+I")]
    table.write(rows([5]))
    assert kinds(stream.available()) == [(5, "+I")]


def test_the_whole_snapshot_comes_when_the_delivered_one_is_gone(table: Table) -> None:
    """FL-99."""
    stream = behind(table, log_on__offset__lost="resnapshot")
    forget_log(table)
    expire(table, 1, 2)
    stream.start()
    assert kinds(stream.available()) == [(2, "+I"), (3, "+I"), (4, "+I")]
    table.write(rows([5]))
    assert kinds(stream.available()) == [(5, "+I")]


def test_the_whole_snapshot_comes_when_a_part_of_the_log_was_delivered(table: Table) -> None:
    """FL-99: the delivered snapshot is not what the stream has."""
    stream = query(table, log_on__offset__lost="resnapshot", read_stream_maxRowsPerTrigger="2")
    found = stream.available()
    table.write(rows([4, 5, 6], "new"))
    found += stream.batch() or []
    forget_log(table)
    found += stream.available()
    assert fold(found) == content(table)
    assert 3 + 6 < len(found) < 3 + 3 + 6


def test_what_is_left_comes_with_a_gap(table: Table) -> None:
    """``log.on-offset-lost=earliest``."""
    stream = behind(table, log_on__offset__lost="earliest")
    snapshot = table.store.snapshots.read(3)
    forget_log(table, before=snapshot.log_offsets[0])
    assert kinds(stream.available()) == [(4, "+I")]
    table.write(rows([5]))
    assert kinds(stream.available()) == [(5, "+I")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_planned_range_of_the_log_outlives_its_snapshots(table: Table, policy: str) -> None:
    """Killed in a micro-batch, started after the snapshots between expired: the log has all of it."""
    stream = behind(table, log_on__offset__lost=policy)
    assert stream.plan()
    for number in range(5, 9):
        table.write(rows([number]))
    expire(table, *range(1, 8))
    stream.start()
    found = stream.read()
    stream.commit()
    assert kinds(found) == [(1, "-D"), (2, "+I"), (4, "+I")]
    assert ids(stream.available()) == [5, 6, 7, 8]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_planned_range_that_left_the_log_as_well(table: Table, policy: str) -> None:
    """``log.on-offset-lost`` decides for a batch that was planned before, too."""
    stream = behind(table, log_on__offset__lost=policy)
    assert stream.plan()
    table.write(rows([5]))
    forget_log(table, before=table.store.snapshots.read(3).log_offsets[0])
    expire(table, *((1, 2, 3, 4) if policy == "resnapshot" else (1, 2)))
    stream.start()
    if policy == "fail":
        with pytest.raises(CorruptDataError, match=r"bucket=0 wanted_offset=.* fix=set log.on-offset-lost=resnapshot"):
            stream.read()
        return
    found = stream.read()
    stream.commit()
    assert kinds(found) == ([(each, "+I") for each in (2, 3, 4, 5)] if policy == "resnapshot" else [])
    found = stream.available()
    assert kinds(found) == ([] if policy == "resnapshot" else [(4, "+I"), (5, "+I")])
    table.write(rows([6]))
    assert ids(stream.available()) == [6]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("phase", ["snapshot", "files"])
def test_a_planned_batch_of_files_that_expired(table: Table, policy: str, phase: str) -> None:
    """Its files are gone with the snapshot: the options decide, and the next batch goes on from there."""
    stream = query(table, log_on__offset__lost=policy)
    found = []
    if phase == "files":
        found = stream.available()
        table.overwrite(rows([2, 3], "new").drop_columns(["_row_kind"]))
    assert stream.plan()
    table.write(rows([4]))
    table.write(rows([5]))
    wanted = 1 if phase == "snapshot" else 2
    snapshot = table.store.snapshots.read(wanted)
    Path(table.store.paths.manifest(snapshot.delta_manifest_list)).unlink()
    expire(table, *range(1, wanted + 1))
    stream.start()
    if policy == "fail":
        with pytest.raises(CorruptDataError, match=r"wanted_snapshot=.* fix=set log.on-offset-lost=resnapshot"):
            stream.read()
        return
    after = stream.read()
    stream.commit()
    after += stream.available()
    assert set(ids(after)) >= {5}
    assert len(ids(after)) == len(set(ids(after)))
    if policy == "resnapshot":
        assert content(table).items() <= fold(found + after).items()
    table.write(rows([6]))
    assert ids(stream.available()) == [6]


def test_a_compaction_alone_makes_no_batch(table: Table) -> None:
    """A position moves with rows; and before the snapshot that it names expires, rows or not."""
    stream = query(table)
    stream.available()
    table.write(rows([1, 2]))
    stream.available()
    batches = len(stream.planned)
    for number in range(3):
        table.write(rows([number], "x"))
        stream.available()
        table.compact(full=True)
        assert stream.available() == []
    assert len(stream.planned) == batches + 3
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.id > stream.position["snapshot"]
    lag = stream.reader.reportLatestOffset()
    assert lag is not None
    assert lag["lag_snapshots"] == lag["lag_records"] == lag["lag_seconds"] == 0
    table.write(rows([9]))
    assert ids(stream.available()) == [9]


@pytest.mark.parametrize("policy", ["resnapshot", "earliest"])
@pytest.mark.parametrize("deadly", ["planned", "read", "committed"])
def test_the_way_out_survives_a_restart(table: Table, policy: str, deadly: str) -> None:
    """FL-26: the jump stands in the checkpoint, so nothing comes twice and no step is taken again."""
    stream = behind(table, log_on__offset__lost=policy)
    forget_log(table)
    assert stream.plan()
    assert json.loads(stream.planned[-1])["jump"] is True
    jump = stream.position
    if deadly != "planned":
        assert stream.read() == []
    if deadly == "committed":
        stream.commit()
    stream.start()
    assert stream.position == jump
    left = [(1, "-D"), (2, "+U"), (2, "-U"), (4, "+I")] if policy == "resnapshot" else []
    assert kinds(stream.available()) == left


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_that_expired_half_way(new_table: NewTable, policy: str) -> None:
    """FL-99: a table without a log, whose stream was in the middle of a snapshot."""
    table = new_table(log=False, bucket="3")
    table.write(rows([1, 2, 3, 4, 5, 6]))
    stream = query(table, read_stream_maxRowsPerTrigger="1", log_on__offset__lost=policy)
    found = stream.batch() or []
    table.write(rows([7]))
    table.write(rows([8]))
    expire(table, 1, 2)
    stream.start()
    if policy == "fail":
        with pytest.raises(CorruptDataError, match=r"wanted_snapshot=1 earliest_snapshot=3 .*latest_snapshot=3 fix="):
            stream.available()
        return
    found += stream.available()
    assert ids(found)[-1] == 8
    if policy == "resnapshot":
        assert fold(found) == content(table)
    else:
        assert 7 not in ids(found)  # the gap
    table.write(rows([9]))
    assert ids(stream.available()) == [9]


@pytest.mark.parametrize("policy", POLICIES)
def test_files_that_expired_under_a_running_stream(new_table: NewTable, policy: str) -> None:
    """FL-99: what it knows of a snapshot does not hide that its manifests are gone."""
    table = new_table(log=False)
    table.write(rows([1]))
    stream = query(table, log_on__offset__lost=policy)
    stream.available()
    table.overwrite(rows([2]).drop_columns(["_row_kind"]))
    snapshot = table.store.snapshots.read(1)
    stream.reader._watch.history.facts(2)
    Path(table.store.paths.manifest(snapshot.delta_manifest_list)).unlink()
    expire(table, 1)
    if policy == "fail":
        with pytest.raises(CorruptDataError, match=r"wanted_snapshot=1 earliest_snapshot=2"):
            stream.available()
        return
    assert kinds(stream.available()) == ([(2, "+I")] if policy == "resnapshot" else [])
    table.write(rows([3]))
    assert ids(stream.available()) == [3]


def test_earliest_goes_on_when_the_changes_of_the_oldest_snapshot_cannot_be_told(new_table: NewTable) -> None:
    """FL-98: an overwrite whose snapshot before has expired is part of the gap."""
    table = new_table()
    table.write(rows([1]))
    stream = query(table, log_on__offset__lost="earliest")
    stream.available()
    table.write(rows([2]))
    table.overwrite(rows([3]).drop_columns(["_row_kind"]))
    table.write(rows([4]))
    expire(table, 1, 2)
    stream.start()
    assert ids(stream.available(most=10)) == [4]


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_that_no_snapshot_has_yet_cannot_be_made_up_for(new_table: NewTable, policy: str) -> None:
    """FL-58: eventual rows that left the log before they were committed: no endless resnapshots."""
    table = new_table(log_consistency="eventual")
    table.write(rows([1]))
    stream = query(table, log_on__offset__lost=policy)
    stream.available()

    class Died(Exception):
        """Before the commit."""

    def die(spec: Any) -> Any:
        list(write_part(spec, rows([2]).to_batches()))
        raise Died

    writer = BatchWriter(table.files, TableLog.of(table.files), commit_user="w")
    with pytest.raises(Died):
        writer.write(0, die)
    forget_log(table)
    if policy == "earliest":
        assert stream.available() == []
    else:
        with pytest.raises(CorruptDataError, match="records of the log are lost"):
            stream.available(most=10)
    BatchWriter(table.files, TableLog.of(table.files), commit_user="w").write(
        0, lambda spec: write_part(spec, rows([2]).to_batches())
    )
    if policy == "resnapshot":
        stream.start()
        assert ids(stream.available(most=10))[-1] == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topic_that_was_made_again_stops_every_stream(
    table: Table, policy: str, topics: LogTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FL-72: its offsets mean other records."""
    stream = behind(table, log_on__offset__lost=policy)
    assert table.log is not None
    topics.delete_topic(table.log.topic)
    topics.create_topic(table.log.topic, bucket_count=1)
    monkeypatch.setattr(stream_log, "_TOPIC_CHECK_S", 0)
    with pytest.raises(CorruptDataError, match=f"topic={table.log.topic}"):
        stream.available()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_table_with_another_log_or_another_past_stops_every_stream(new_table: NewTable, policy: str) -> None:
    """FL-72: a rollback, or a table dropped and made again under the same name."""
    table = new_table()
    for number in (1, 2, 3):
        table.write(rows([number]))
    stream = query(table, log_on__offset__lost=policy)
    stream.available()
    Path(table.store.paths.snapshot(3)).unlink()
    table.store.snapshots.write_latest_hint(2)
    with pytest.raises(
        InvalidInputError, match=r"rolled back below the stream's position: .*latest_snapshot=2 delivered_snapshot=3"
    ):
        stream.available()
    catalog = Catalog(stream.options["warehouse"])
    options = {
        key: value for key, value in table.options.texts_by_key().items() if key.startswith("log.kafka.bootstrap")
    }
    catalog.drop_table(table.name)
    again = catalog.create_table(table.name, table.schema.arrow_schema, primary_key=["id"], options=options)
    for number in (7, 8, 9, 10):
        again.write(rows([number]))
    stream.start()
    with pytest.raises(CorruptDataError, match=r"another log than when the stream stopped: .*fix=start with a new"):
        stream.available()


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("is_bounded", [False, True], ids=["following", "available now"])
@pytest.mark.parametrize("commits", [0, 1, 2, 4])
def test_a_stream_notices_a_rollback_however_many_snapshots_there_are_again(
    new_table: NewTable, commits: int, is_bounded: bool, restarts: bool
) -> None:
    """FL-72, FL-30: numbers are used again after a rollback: a stream that was further never skips, it fails."""
    table = new_table(log=False)
    for number in (1, 2, 3):
        table.write(rows([number]))
    stream = query(table)
    stream.available()
    early = query(table, scan_mode="from-snapshot", scan_snapshot__id="1", read_stream_maxFilesPerTrigger="1")
    assert ids(early.batch()) == [1]
    rollback(table, snapshot=1)
    for number in range(commits):
        table.write(rows([10 + number]))
    if restarts:
        stream.start()
        early.start()
    if is_bounded:
        stream.reader.prepareForTriggerAvailableNow()
    with pytest.raises(InvalidInputError, match=r"rolled back below .*delivered_snapshot=3 cause='a rollback"):
        stream.available()
    assert ids(early.available()) == [10 + number for number in range(commits)]


def test_the_option_has_two_names(table: Table) -> None:
    """``on-data-loss`` is the same choice."""
    stream = behind(table, on__data__loss="resnapshot")
    forget_log(table)
    assert kinds(stream.available()) == [(1, "-D"), (2, "+U"), (2, "-U"), (4, "+I")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_normalized_stream_whose_state_is_gone(table: Table, policy: str) -> None:
    """FL-131: the snapshot that its changes are looked up in."""
    stream = behind(table, log_scan_normalize="true", log_on__offset__lost=policy)
    expire(table, 1)
    stream.start()
    if policy == "fail":
        with pytest.raises(CorruptDataError, match="wanted_snapshot=1"):
            stream.available()
        return
    found = stream.available(most=10)
    table.write(rows([3], "newer"))
    found += stream.available()
    assert kinds(found)[-3:] == [(3, "+U"), (3, "-U"), (4, "+I")]
