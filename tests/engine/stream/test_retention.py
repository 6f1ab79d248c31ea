"""A log from which retention has removed what every reader already has: caught up is not lost.

And a real loss is one, for every kind of reader.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from engine import Table
from engine.broker.broker import Broker
from engine.log.log_rows import log_rows
from engine.log.tail_ranges import tail_ranges
from engine.monitor.doctor import Severity, diagnose, examine
from engine.monitor.lag_report import log_lags
from engine.procedures.maintenance.repair import verify
from engine.read.read_state import StateSource
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import _Reading
from logstore.offsets import LogOffsets, LogRange
from lsm.errors import CorruptDataError
from tests.engine.stream.conftest import NewTable
from tests.support.logs import ends_with_markers, wait_for_log
from tests.support.retention import ForgetfulBroker, abort_in_log
from tests.support.streams import Query, as_foreign, expire, forget_log, ids, query, rows
from tests.support.tails import write_log_only
from tests.support.waiting import wait_until
from tests.support.warehouses import new_table as new_log_table

pytestmark = pytest.mark.broker
UNION = {"scan.log.union": "true"}
STARTS = {"full": {}, "latest": {"log.scan": "latest"}, "normalized": {"log.scan.normalize": "true"}}


def kinds(found: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["id"], row["_row_kind"]) for row in found)


def started(table: Table, **more: str) -> dict[str, Query]:
    """Streams of every start that have all there is, so that their position is the end of the log."""
    now = str(int(time.time() * 1000))
    starts = {**STARTS, "time": {"log.scan": "from-timestamp", "log.scan.timestamp-mills": now}}
    streams = {name: query(table, **start, **more) for name, start in starts.items()}
    for stream in streams.values():
        stream.available()
    return streams


def earliest(table: Table) -> int:
    log = table.log
    assert log is not None
    return LogTopics(log.properties).earliest_offsets(log.topic, [0])[0]


def end_of_snapshot(table: Table) -> int:
    newest = table.latest_snapshot()
    assert newest is not None
    return newest.log_offsets[0]


def check_nothing_is_lost(table: Table, streams: dict[str, Query], wanted: list[int]) -> None:
    """All readers of a table of these ids whose log is empty."""
    assert earliest(table) > end_of_snapshot(table)
    assert {name: stream.batch() for name, stream in streams.items()} == dict.fromkeys(streams)
    read = table.read(options=UNION)
    assert ids(read.to_arrow().to_pylist()) == wanted
    assert table.log is not None
    start, topics = LogOffsets({0: end_of_snapshot(table)}), table.log.checked_topics()
    assert tail_ranges(table.store, table.log, topics, start=start, ends=table.log_end_offsets()) == ()
    now = table.read(timestamp=int(time.time() * 1000), options=UNION)
    assert (now.served.source, ids(now.to_arrow().to_pylist())) == (StateSource.SNAPSHOT_AND_LOG, wanted)
    assert [each["lag"] for each in log_lags(table)] == [0]
    assert verify(table).num_rows == 0
    assert [each for each in diagnose(examine(table)) if each.severity >= Severity.WARNING] == []


def check_streams_go_on(table: Table, streams: dict[str, Query], ids_of: int, v: str) -> None:
    """An update and an insert come, once, and normalized with what they replace."""
    table.write(rows([2, ids_of], v))
    for name, stream in streams.items():
        old = [(2, "-U"), (2, "+U")] if name == "normalized" else [(2, "+I")]
        assert kinds(stream.available()) == sorted([*old, (ids_of, "+I")]), name
        assert stream.available() == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("aborted", [False, True], ids=["committed", "aborted"])
def test_readers_of_an_emptied_log_go_on_when_rows_come(new_table: NewTable, aborted: bool) -> None:
    """FL-98 to FL-100: twice, and with readers that begin while the log is empty."""
    table = new_table()
    table.write(rows([1]))
    table.write(rows([2]))
    streams = started(table)
    if aborted:
        abort_in_log(table)
    ends_with_markers(table)
    forget_log(table)
    late = started(table)
    check_nothing_is_lost(table, {**streams, **late}, [1, 2])
    check_streams_go_on(
        table, {**streams, **{f"late {name}": each for name, each in late.items() if name != "normalized"}}, 3, "new"
    )
    assert kinds(late["normalized"].available()) == [(2, "+U"), (2, "-U"), (3, "+I")]
    if aborted:
        abort_in_log(table, count=1)
        abort_in_log(table)
    ends_with_markers(table)
    forget_log(table)
    check_nothing_is_lost(table, streams, [1, 2, 3])
    check_streams_go_on(table, streams, 4, "newer")


def test_a_planned_batch_goes_on_too(new_table: NewTable) -> None:
    """FL-26: the log is emptied up to its first row between plan and task; also for one that runs again."""
    table = new_table()
    table.write(rows([1]))
    streams = started(table)
    table.write(rows([1, 2], "new"))
    for stream in streams.values():
        assert stream.plan()
    forget_log(table, before=2)  # the commit marker of the first batch
    for name, stream in streams.items():
        stream.start()
        assert stream.plan()
        assert ids(stream.read()) == ([1, 1, 2] if name == "normalized" else [1, 2])


def test_a_task_goes_on_when_retention_comes_while_it_reads(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FL-99: no row twice, none left out."""
    table = new_table()
    stream = query(table, **{"log.scan": "latest"})
    assert stream.available() == []
    table.write(rows([1]))
    table.write(rows([2]))
    assert stream.plan()
    read = _Reading.records

    def cut(reading: _Reading) -> Iterator[list[Any]]:
        monkeypatch.setattr(_Reading, "records", read)
        messages = next(read(reading))
        reading._next_offset = messages[0].offset() + 1
        yield messages[:1]
        forget_log(table, before=2)
        raise KafkaException(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))

    monkeypatch.setattr(_Reading, "records", cut)
    assert [row["id"] for row in stream.read()] == [1, 2]


def test_a_log_that_is_shorter_than_it_was_is_not_taken_for_an_emptied_one(new_table: NewTable) -> None:
    """FL-72: what lies behind its end was never removed by retention."""
    table = new_table()
    table.write(rows([1]))
    log = table.log
    assert log is not None
    beyond = LogRange(bucket=0, start_offset=50, end_offset=60)
    with pytest.raises(CorruptDataError, match=r"log is shorter than it was: .*wanted_offset=50"):
        list(log_rows(table.files, log, beyond, columns=["id"]))


def test_a_union_read_and_a_replay_begin_at_what_is_left(new_table: NewTable) -> None:
    """FL-74: rows of no snapshot, behind an emptied log."""
    table = new_table()
    table.write(rows([1]))
    abort_in_log(table)
    ends_with_markers(table)
    forget_log(table)
    write_log_only(table, rows([2]))
    moment = int(time.time() * 1000)
    assert ids(table.read(options=UNION).to_arrow().to_pylist()) == [1, 2]
    replay = table.read(timestamp=moment, options=UNION)
    assert (replay.served.source, ids(replay.to_arrow().to_pylist())) == (StateSource.SNAPSHOT_AND_LOG, [1, 2])
    assert [each["lag"] for each in log_lags(table)] == [1]
    last = {**UNION, "scan.log.offsets": f'{{"0": {table.log_end_offsets()[0]}}}'}
    assert ids(table.read(options=last).to_arrow().to_pylist()) == [1, 2]


def behind_three(table: Table, **options: str) -> tuple[Query, int]:
    """A stream that has id 1, and the offset of the first of three rows in one batch behind it, after aborted ones."""
    table.write(rows([1]))
    stream = query(table, **options)
    stream.available()
    abort_in_log(table)
    start = table.log_end_offsets()[0]
    return stream, start


def test_two_batches_behind_an_emptied_log_are_told_apart(new_table: NewTable) -> None:
    """FL-99: the first one is judged by its own marker, however many follow."""
    for removed, is_lost in ((0, False), (1, True)):
        table = new_table()
        stream, first = behind_three(table)
        table.write(rows([2, 3]))
        table.write(rows([4]))
        wait_for_log(table, {0: first + 5})
        forget_log(table, before=first + removed)
        if is_lost:
            with pytest.raises(CorruptDataError, match="cause=retention removed them before they were read table="):
                stream.available()
        else:
            assert ids(stream.available()) == [2, 3, 4]


def test_aborted_rows_are_no_lag(new_table: NewTable) -> None:
    """What monitors show as rows of no snapshot: neither aborted ones nor markers."""
    table = new_table()
    table.write(rows([1]))
    abort_in_log(table)
    assert [each["lag"] for each in log_lags(table)] == [0]
    write_log_only(table, rows([2, 3]))
    assert [each["lag"] for each in log_lags(table)] == [2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", STARTS)
def test_the_first_row_of_a_batch_is_the_border(new_table: NewTable, start: str) -> None:
    """FL-99, FL-100: all before it is nobody's; it itself is lost, and said to be, up to the batch's end."""
    for removed, is_lost in ((0, False), (1, True), (2, True), (3, True)):
        table = new_table()
        stream, first = behind_three(table, **STARTS[start])
        table.write(rows([2, 3, 4]))
        wait_for_log(table, {0: first + 4})
        forget_log(table, before=first + removed)
        if is_lost:
            message = rf"are lost: .*bucket=0 wanted_offset=1 earliest_offset={first + removed} cause=retention removed"
            with pytest.raises(CorruptDataError, match=message + ".*fix=set log.on-offset-lost=resnapshot"):
                stream.available()
        else:
            assert ids(stream.available()) == [2, 3, 4]


def test_a_row_is_missed_in_the_middle_of_a_batch(new_table: NewTable) -> None:
    """FL-99: a rate limited stream."""
    for removed, is_lost in ((0, False), (1, True), (2, True)):
        table = new_table()
        stream, first = behind_three(table, **{"read.stream.maxRowsPerTrigger": "1"})
        table.write(rows([2, 3, 4]))
        found: list[int] = []
        while found != [2]:
            found += ids(stream.batch())
        wait_for_log(table, {0: first + 4})
        forget_log(table, before=first + 1 + removed)
        if is_lost:
            with pytest.raises(CorruptDataError, match=rf"wanted_offset={first + 1} earliest"):
                stream.available()
        else:
            assert ids(stream.available()) == [3, 4]


def test_a_normalizer_needs_no_more_of_a_bucket_that_it_has(new_table: NewTable) -> None:
    """FL-131: of another bucket it needs the log from the snapshot on, to know what changed before."""
    table = new_table(bucket="2")
    found: dict[int, list[int]] = {0: [], 1: []}
    offsets: dict[int, int] = {}
    for number in range(1, 20):
        table.write(rows([number]))
        newest = table.latest_snapshot()
        assert newest is not None
        found[next(bucket for bucket, offset in newest.log_offsets.items() if offset != offsets.get(bucket))] += [
            number
        ]
        offsets = dict(newest.log_offsets)
        if found[0] and len(found[1]) > 2:
            break
    stream = query(table, **{"log.scan": "latest", "log.scan.normalize": "true", "read.stream.maxRowsPerTrigger": "2"})
    assert stream.available() == []
    changed = [*found[0][:1], *found[1][:3]]
    table.write(rows(changed, "new"))
    ends_with_markers(table)
    assert stream.batch() == []  # the commit markers of the batches before
    first = ids(stream.batch())
    forget_log(table, bucket=0)
    assert sorted(first + ids(stream.available())) == sorted(changed * 2)
    assert first == sorted([found[0][0], found[1][0]] * 2)


def test_rows_of_no_snapshot_are_missed_by_reads_of_the_log(new_table: NewTable) -> None:
    """FL-100: union, replay, given offsets, and a read that was planned before."""
    table = new_table()
    _, first = behind_three(table)
    write_log_only(table, rows([2, 3, 4]))
    planned = table.read(options=UNION)
    moment, end = int(time.time() * 1000), ends_with_markers(table)[0]
    forget_log(table, before=first + 1)
    with pytest.raises(CorruptDataError, match=r"wanted_offset=1 .*fix=read the files \(scan.log.union=false"):
        table.read(options=UNION)
    with pytest.raises(
        CorruptDataError, match=r"fix=raise log.retention above the age of such reads, or ask for later"
    ):
        table.read(options={**UNION, "scan.log.offsets": f'{{"0": {first + 3}}}'})
    with pytest.raises(
        CorruptDataError, match=r"are lost: .*fix=start again: a read, or a stream with a new checkpoint"
    ):
        planned.to_arrow()
    replay = table.read(timestamp=moment, options=UNION)
    assert replay.served.source is StateSource.SNAPSHOT
    assert f"earliest_offset={first + 1}" in replay.describe()
    assert ["have a gap" in each["problem"] for each in verify(table).to_pylist()] == [True]
    assert end > first
    for fixed in ({"scan.log.union": "false"}, {**UNION, "log.on-offset-lost": "resnapshot"}):
        assert ids(table.read(options=fixed).to_arrow().to_pylist()) == [1]


def test_a_start_by_time_finds_the_rows_that_are_left(new_table: NewTable) -> None:
    """FL-70, FL-74: a time when the log was empty, times around the first row kept, and one of removed rows."""
    table = new_table()

    def now() -> str:
        time.sleep(0.02)
        moment = str(int(time.time() * 1000))
        time.sleep(0.02)
        return moment

    before_all = now()
    table.write(rows([1]))
    while_empty = now()
    ends_with_markers(table)
    forget_log(table)
    table.write(rows([2]))
    behind_first = now()
    table.write(rows([3]))

    def found(moment: str) -> list[int]:
        return ids(query(table, **{"log.scan": "from-timestamp", "log.scan.timestamp-mills": moment}).available())

    assert found(while_empty) == [2, 3]
    assert found(behind_first) == [3]
    assert found(now()) == []
    with pytest.raises(CorruptDataError, match=r"are lost: .*wanted_offset=0 earliest_offset=2"):
        found(before_all)


def test_snapshots_that_have_expired_cannot_show_that_nothing_is_lost(new_table: NewTable) -> None:
    """FL-99: it is said so, and the fixes work."""
    table = new_table()
    table.write(rows([1]))
    streams = {policy: query(table, **{"log.on-offset-lost": policy}) for policy in ("fail", "resnapshot", "earliest")}
    for stream in streams.values():
        stream.available()
    ends_with_markers(table)
    forget_log(table)
    table.write(rows([2]))
    table.write(rows([3]))
    expire(table, 1)
    for stream in streams.values():
        stream.start()
    with pytest.raises(CorruptDataError, match="the snapshots that would show that no row was in it have expired"):
        streams["fail"].available()
    assert ids(streams["resnapshot"].available()) == [1, 2, 3]
    assert ids(streams["earliest"].available()) == [2, 3]


def test_an_eventual_stream_goes_on_behind_a_snapshot_and_says_what_it_cannot_know(new_table: NewTable) -> None:
    """FL-58, FL-98: rows may have been visible in no snapshot, so behind aborted ones nothing is certain."""
    table = new_table(log_consistency="eventual")
    table.write(rows([1]))
    streams = {name: query(table, **start) for name, start in STARTS.items()}
    for stream in streams.values():
        stream.available()
    ends_with_markers(table)
    forget_log(table)
    late = query(table)
    assert ids(late.available()) == [1]
    assert ids(table.read(options=UNION).to_arrow().to_pylist()) == [1]
    table.write(rows([2]))
    wait_for_log(table, {0: end_of_snapshot(table)})
    for stream in (*streams.values(), late):
        assert ids(stream.available()) == [2]
    wait_for_log(table, {0: end_of_snapshot(table) + 1})
    assert late.available() == []
    abort_in_log(table)
    forget_log(table)
    with pytest.raises(CorruptDataError, match=r"log\.consistency=eventual it may have held rows that no snapshot has"):
        late.available()


def test_commits_of_other_engines_do_not_hide_what_is_kept(new_table: NewTable) -> None:
    """FL-29: their snapshots have no offsets: the log goes on where the last one with offsets has it."""
    table = new_table()
    table.write(rows([1]))
    streams = started(table)
    table.write(rows([2]), options={"change-tracking": "false"})
    as_foreign(table)
    wait_for_log(table, {0: 2})
    assert [each["lag"] for each in log_lags(table)] == [0]
    forget_log(table)
    assert [each["lag"] for each in log_lags(table)] == [0]
    table.write(rows([3]))
    for stream in streams.values():
        stream.start()
        assert ids(stream.available()) == [2, 3]


def test_commits_of_other_engines_do_not_hide_what_is_lost(new_table: NewTable) -> None:
    """FL-29, FL-99: a batch before theirs, of which the log has nothing any more."""
    table = new_table()
    table.write(rows([1]))
    stream = query(table)
    stream.available()
    table.write(rows([2]))
    table.write(rows([3]), options={"change-tracking": "false"})
    as_foreign(table)
    wait_for_log(table, {0: 4})
    forget_log(table)
    table.write(rows([4]))
    stream.start()
    with pytest.raises(CorruptDataError, match="wanted_offset=1 earliest_offset=4 cause=retention removed them"):
        stream.available()


# ---- a broker that removes what is old


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Broker]:
    with ForgetfulBroker(tmp_path / "forgetful") as running:
        yield running


def set_retention(table: Table, retention_ms: int) -> None:
    assert table.log is not None
    topic, topics = table.log.topic, LogTopics(table.log.properties)
    topics.set_retention(topic, retention_ms)
    wait_until(lambda: topics.own_config(topic)["retention.ms"] == str(retention_ms), "the setting does not come")
    time.sleep(0.5)  # what shows a setting is a moment ahead of what acts on it


def let_time_remove_all(table: Table) -> None:
    """The broker rolls the last segment of an idle topic, and removes it; what comes later is kept."""
    ends_with_markers(table)
    set_retention(table, 1)
    wait_until(lambda: earliest(table) == table.log_end_offsets()[0], "retention does nothing")
    set_retention(table, 3_600_000)


def test_readers_go_on_behind_what_time_has_removed(forgetful: Broker, tmp_path: Path) -> None:
    """FL-98 to FL-100, FL-74: of every start, with unions, replays and monitors, and what is lost is."""
    table = new_log_table(tmp_path, broker=forgetful, options={"log.retention": "1 h"})
    table.write(rows([1, 2]))
    streams = started(table)
    abort_in_log(table)
    let_time_remove_all(table)
    late = started(table)
    check_nothing_is_lost(table, {**streams, **late}, [1, 2])
    check_streams_go_on(table, {**streams, "late": late["full"], "late time": late["time"]}, 3, "new")
    lagging = query(table)
    lagging.available()
    let_time_remove_all(table)
    check_nothing_is_lost(table, {**streams, "lagging": lagging}, [1, 2, 3])
    table.write(rows([4]))
    let_time_remove_all(table)
    with pytest.raises(CorruptDataError, match="records of the log are lost"):
        lagging.available()
