"""Where a new stream begins, and that it stays there until its first batch is done."""

import datetime as dt
import threading
import time

import pytest

from engine import Table
from engine.stream.position.plan import SnapshotFacts
from engine.stream.position.start import offsets_of_time
from logstore.offsets import LogOffsets
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from tests.engine.stream.conftest import NewTable
from tests.support.streams import as_foreign, content, expire, fold, forget_log, ids, query, rows, tag

pytestmark = pytest.mark.broker


@pytest.fixture(params=[True, False], ids=["log", "files"])
def table(request: pytest.FixtureRequest, new_table: NewTable) -> Table:
    """Snapshots 1 to 3 of ids 1 to 3, one each."""
    found = new_table(log=request.param, bucket="2")
    for number in (1, 2, 3):
        found.write(rows([number]))
    return found


def boundary() -> int:
    """A millisecond that nothing was written in, with time on both sides."""
    time.sleep(0.02)
    now = time.time_ns() // 1_000_000
    time.sleep(0.02)
    return now


def test_a_stream_begins_with_the_newest_snapshot_unless_told_otherwise(table: Table) -> None:
    """FL-70, FL-71."""
    reader = query(table)
    assert ids(reader.available()) == [1, 2, 3]
    table.write(rows([4]))
    assert ids(reader.available()) == [4]
    assert ids(query(table, log_scan="full").available()) == [1, 2, 3, 4]
    assert ids(query(table, scan_mode="latest-full").available()) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "spelling",
    [{"log.scan": "latest"}, {"scan.mode": "latest"}, {"log.scan.startup.mode": "latest-offset"}],
    ids=lambda spelling: next(iter(spelling)),
)
def test_latest_gives_only_what_comes_from_now_on(table: Table, spelling: dict[str, str]) -> None:
    """FL-69, FL-70, FL-73."""
    reader = query(table, **spelling)
    assert reader.available() == []
    table.write(rows([4]))
    table.write(rows([1], kind="-D"))
    assert [(row["id"], row["_row_kind"]) for row in reader.available()] == [(4, "+I"), (1, "-D")]


def test_a_query_that_died_before_it_had_data_keeps_its_start(table: Table) -> None:
    """FL-73: rows written between its start and its restart are not left out."""
    reader = query(table, log_scan="latest")
    assert reader.plan()  # an empty batch, which fixes the place
    table.write(rows([4]))
    reader.start()
    assert reader.plan()
    assert reader.read() == []
    reader.commit()
    assert ids(reader.available()) == [4]


def test_a_query_begins_before_the_first_commit(new_table: NewTable) -> None:
    """FL-71, FL-73: nothing is there, so both get everything that comes."""
    empty = new_table()
    full, latest = query(empty), query(empty, log_scan="latest")
    assert full.available() == latest.available() == []
    empty.write(rows([1]))
    assert ids(full.available()) == ids(latest.available()) == [1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "key", ["log.scan.timestamp-mills", "scan.timestamp-millis", "log.scan.timestamp-millis", "scan.timestamp"]
)
@pytest.mark.parametrize("how", ["alone", "log.scan", "scan.mode"])
def test_a_time_in_every_spelling(new_table: NewTable, key: str, how: str) -> None:
    """FL-70, FL-74: what was written at the time or later."""
    table = new_table(bucket="2")
    table.write(rows([1, 2]))
    moment = boundary()
    table.write(rows([2, 3]))
    value = dt.datetime.fromtimestamp(moment / 1000, dt.UTC).isoformat() if key == "scan.timestamp" else str(moment)
    reader = query(table, **{key: value, **({} if how == "alone" else {how: "from-timestamp"})})
    assert ids(reader.available()) == [2, 3]
    table.write(rows([4]))
    assert ids(reader.available()) == [4]


def test_a_time_of_a_table_that_others_write_too(table: Table) -> None:
    """FL-74: changes of files and of the log, each from the time on; a time to come is that of the newest snapshot."""
    moment = boundary()
    table.write(rows([4]))
    unlogged = Table(table.files.with_options({"log.system": "none"}))
    unlogged.write(rows([5]))
    as_foreign(table)
    table.write(rows([6]))
    assert [row["id"] for row in query(table, scan_timestamp__millis=str(moment)).available()] == [4, 5, 6]
    later = query(table, scan_timestamp__millis=str(moment + 3_600_000))
    assert later.available() == []
    table.write(rows([7]))
    assert ids(later.available()) == [7]
    assert ids(query(table, scan_timestamp__millis="1").available()) == [1, 2, 3, 4, 5, 6, 7]


def test_records_of_a_time_that_retention_removed_are_missed_loudly(new_table: NewTable) -> None:
    """FL-100: the log must be kept as long as a start by time reaches back; any other start needs none of it."""
    table = new_table(bucket="2")
    table.write(rows([1, 2]))
    moment = boundary()
    table.write(rows([2, 3], "new"))
    for bucket in (0, 1):
        forget_log(table, bucket)
    table.write(rows([4]))
    asked = {"scan.timestamp-millis": str(moment)}
    with pytest.raises(CorruptDataError, match=r"records of the log are lost: .*fix=set log.on-offset-lost=resnapshot"):
        query(table, **asked).plan()
    again = query(table, log_on__offset__lost="resnapshot", **asked)
    assert ids([row for row in again.available() if row["_row_kind"] in ("+I", "+U")]) == [2, 3, 4]
    assert ids(query(table).available()) == [1, 2, 3, 4]
    assert query(table, log_scan="latest").available() == []


def test_a_time_from_before_the_oldest_snapshot_is_refused(table: Table) -> None:
    """FL-74."""
    expire(table, 1)
    with pytest.raises(InvalidInputError, match=r"before the oldest snapshot: .* earliest_snapshot=2 fix=use a later"):
        query(table, scan_timestamp__millis="1").plan()


def test_a_stream_waits_for_a_commit_before_it_looks_how_far_it_may_read(table: Table) -> None:
    """Idea 6, read your writes: a new stream where it begins, a bounded one also after a restart."""
    old = query(table)
    assert ids(old.available()) == [1, 2, 3]
    old.options["scan.at-least"] = "4"
    old.start()
    late = threading.Timer(0.2, lambda: table.write(rows([4])))
    late.start()
    old.reader.prepareForTriggerAvailableNow()
    late.join()
    table.write(rows([5]))
    assert ids(old.available()) == [4]
    later = threading.Timer(0.2, lambda: table.write(rows([6])))
    later.start()
    assert ids(query(table, scan_at__least="6").available()) == [1, 2, 3, 4, 5, 6]
    later.join()
    asked = {"scan_at__least": "99:0=7", "scan_at__least_timeout": "20 ms"}
    with pytest.raises(UnavailableError, match=r"not visible yet: .*wanted_snapshot=99 .*scan\.at-least\.timeout"):
        query(table, **asked).plan()
    with pytest.raises(InvalidInputError, match="not the handle of a commit"):
        query(table, scan_at__least="yesterday")


def test_a_snapshot_is_where_it_begins(table: Table) -> None:
    """FL-71: whole, or only the changes from it on."""
    assert ids(query(table, scan_snapshot__id="2").available()) == [1, 2, 3]
    first = query(table, scan_snapshot__id="2").batch()
    assert ids(first) == [1, 2]
    assert ids(query(table, log_scan="full", scan_snapshot__id="2").batch()) == [1, 2]
    assert ids(query(table, scan_mode="from-snapshot-full", scan_snapshot__id="2").batch()) == [1, 2]
    assert ids(query(table, scan_mode="from-snapshot", scan_snapshot__id="2").available()) == [2, 3]
    assert ids(query(table, scan_mode="from-snapshot", scan_snapshot__id="1").available()) == [1, 2, 3]


def test_a_stream_begins_at_a_tag_only_while_what_came_after_it_is_kept(new_table: NewTable) -> None:
    """TAG-10, TAG-66: a stream does not travel: it reads the tag's rows and follows; a tag alone has no changes."""
    table = new_table(log=False)
    for key in (1, 2, 3):
        table.write(rows([key]))
        if key == 1:
            tag(table, "t", 1)
    assert ids(query(table, scan_tag__name="t").available()) == [1, 2, 3]
    expire(table, 1)
    assert ids(query(table, scan_tag__name="t").available()) == [1, 2, 3]
    expire(table, 2)
    with pytest.raises(CorruptDataError, match=r"a snapshot that the stream needs is gone: .*wanted_snapshot=2"):
        query(table, scan_tag__name="t").available()
    with pytest.raises(InvalidInputError, match=r"an option of batch reads, not a stream option: scan.version=t"):
        query(table, scan_version="t")


def test_the_changes_of_the_oldest_snapshot_that_is_left(table: Table) -> None:
    """FL-99: they are read from its files, for the one before it is gone."""
    expire(table, 1)
    assert ids(query(table, scan_mode="from-snapshot", scan_snapshot__id="2").available()) == [2, 3]


@pytest.mark.parametrize("how", ["not tracked", "compaction"])
def test_a_snapshot_without_changes_has_none_when_the_one_before_is_gone(table: Table, how: str) -> None:
    """FL-34."""
    if how == "compaction":
        table.compact(full=True)
    else:
        table.write(rows([9]), options={"change-tracking": "false"})
    table.write(rows([5]))
    expire(table, 1, 2, 3)
    assert ids(query(table, scan_mode="from-snapshot", scan_snapshot__id="4").available()) == [5]


@pytest.mark.parametrize("expired", [False, True])
def test_a_tag_is_where_it_begins_though_its_snapshot_expired(table: Table, expired: bool) -> None:
    """FL-71, FL-99: also after a restart half-way, when the tag alone still knows the snapshot."""
    tag(table, "month", 2)
    if expired:
        expire(table, 1, 2)
    reader = query(table, scan_tag__name="month", read_stream_maxRowsPerTrigger="1")
    found = reader.batch() or []
    while len(found) < 2:
        reader.start()
        assert reader.plan()
        reader.start()
        found += reader.read()
        reader.commit()
    assert ids(found) == [1, 2]
    assert ids(reader.available()) == [3]
    table.write(rows([4]))
    assert ids(reader.available()) == [4]


def test_a_query_of_what_is_available_ends_there(table: Table) -> None:
    """FL-26: what is written while it runs is left to the next one."""
    reader = query(table, read_stream_maxRowsPerTrigger="1")
    reader.reader.prepareForTriggerAvailableNow()
    table.write(rows([4]))
    found = reader.batch() or []
    table.write(rows([5]))
    found += reader.available()
    assert ids(found) == [1, 2, 3]
    reader.start()
    reader.reader.prepareForTriggerAvailableNow()
    table.write(rows([6]))
    assert ids(reader.available()) == [4, 5]
    reader.start()
    assert ids(reader.available()) == [6]
    assert fold(query(table).available()) == content(table)


def test_the_reader_wins_over_the_table(new_table: NewTable) -> None:
    """FL-68, FL-70: what the reader says about the start replaces all that the table's options say."""
    table = new_table(log_scan="latest")
    table.write(rows([1]))
    assert query(table).available() == []
    for given in ({"log_scan": "full"}, {"scan_mode": "latest-full"}, {"scan_snapshot__id": "1"}):
        assert ids(query(table, **given).available()) == [1]
    timed = new_table(log_scan="from-timestamp", log_scan_timestamp__mills="1")
    timed.write(rows([1]))
    assert ids(query(timed).available()) == [1]
    assert query(timed, log_scan="latest").available() == []
    assert ids(query(timed, log_scan="from-timestamp").available()) == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log.scan": "latest", "scan.mode": "latest"}, "the start is given twice: scan.mode=latest log.scan=latest"),
        ({"log.scan": "from-timestamp"}, "a time is missing: start=from-timestamp fix=set log.scan.timestamp-mills"),
        ({"log.scan": "full", "scan.timestamp-millis": "5"}, "a time has no meaning here: start=full"),
        ({"log.scan": "latest", "scan.snapshot-id": "1"}, "a snapshot or tag has no meaning here: start=latest"),
        ({"log.scan": "latest", "scan.tag-name": "t"}, "a snapshot or tag has no meaning here: start=latest"),
        ({"scan.timestamp-millis": "5", "scan.snapshot-id": "1"}, "a snapshot or tag has no meaning here: start=from-"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "the start is given twice: scan.snapshot-id=1"),
        (
            {"scan.mode": "from-snapshot", "scan.snapshot-id": "1", "scan.tag-name": "t"},
            "the start is given twice",
        ),
        ({"scan.mode": "from-snapshot"}, "a snapshot id is missing: start=from-snapshot fix=set scan.snapshot-id"),
        ({"scan.mode": "from-snapshot-full"}, "a snapshot id is missing: start=from-snapshot-full"),
        ({"scan.mode": "compacted-full"}, "streams have no such start: scan.mode=compacted-full known=default, latest"),
        ({"scan.timestamp": "noon"}, "not a time: scan.timestamp=noon example="),
        ({"scan.timestamp": "2024-01-01", "scan.timestamp-millis": "5"}, "the time is given twice"),
        ({"log.scan": "newest"}, "log.scan"),
        ({"log.scam": "latest"}, "log.scan"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    new_table: NewTable, options: dict[str, str], message: str
) -> None:
    """FL-70, FL-74: before anything is read, with what to change."""
    with pytest.raises(InvalidInputError) as caught:
        query(new_table(log=False), **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan.snapshot-id": "9"}, "no such snapshot: .* scan.snapshot-id=9 earliest=1 latest=3"),
        ({"scan.mode": "from-snapshot", "scan.snapshot-id": "9"}, "no such snapshot"),
        ({"scan.tag-name": "year"}, "no such tag: tag=year"),
    ],
)
def test_a_place_that_is_not_there_is_refused(table: Table, options: dict[str, str], message: str) -> None:
    """FL-71."""
    with pytest.raises(InvalidInputError, match=message):
        query(table, **options).plan()


def test_a_time_inside_a_commit_is_the_record_of_that_time() -> None:
    """FL-74: never before the snapshot of the time, whose rows count as older, nor behind the newest."""
    facts = SnapshotFacts(id=3, offsets=LogOffsets({0: 10, 1: 10, 2: 10}), schema_id=0, time_ms=0)
    then, newest = {0: 12, 1: 5, 2: 99, 3: 4}, {0: 20, 1: 20, 2: 20, 3: 20}
    assert offsets_of_time(facts, then, newest, {}) == {0: 12, 1: 10, 2: 20, 3: 4}
    assert offsets_of_time(None, then, newest, {}) == {0: 12, 1: 5, 2: 20, 3: 4}


def test_the_first_record_that_is_left_may_not_be_the_first_of_the_time() -> None:
    """FL-100: what may be gone is asked for, so that its loss is reported."""
    facts = SnapshotFacts(id=3, offsets=LogOffsets({0: 10, 1: 10}), schema_id=0, time_ms=0)
    then, newest = {0: 12, 1: 12}, {0: 20, 1: 20}
    assert offsets_of_time(facts, then, newest, {0: 12, 1: 11}) == {0: 10, 1: 12}
    assert offsets_of_time(None, {0: 0}, {0: 5}, {0: 0}) == {0: 0}
