"""Which state a batch read gets: time travel finer than a snapshot, read your writes, staleness, modes."""

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table, procedures
from engine.broker.broker import Broker
from engine.read.batch_read import BatchRead
from engine.read.read_state import StateSource
from engine.request.commit_handle import CommitHandle
from engine.request.read_keys import BATCH_KEYS
from engine.request.scan_time import scan_time_ms
from engine.runtime.times import iso_time_text
from engine.spark.read_options import ReadOptions
from filestore.commit.table_commit import CommitResult
from filestore.evolution.schema_change import AddColumn
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import FluvialError, InvalidInputError, UnavailableError
from tests.support.logs import ends_with_markers
from tests.support.option_keys import dotted
from tests.support.tails import adopt, by_key, changes, lose_log_before, write_log_only
from tests.support.warehouses import ID_SCHEMA, new_table

UNION = {"scan.log.union": "true"}


def plain_table(tmp_path: Path, **options: str) -> Table:
    return Catalog(str(tmp_path)).create_table(
        "db.plain", ID_SCHEMA, primary_key=["id"], options={"bucket": "1", **options}
    )


def one_row(key: int, v: str = "x") -> pa.Table:
    return changes([("+I", key, v)])


def now_ms() -> int:
    """A time that lies between what was written and what will be."""
    time.sleep(0.01)
    now = time.time_ns() // 1_000_000
    time.sleep(0.01)
    return now


@pytest.mark.broker
def test_a_time_between_two_snapshots_is_the_earlier_one_and_the_log_up_to_it(broker: Broker, tmp_path: Path) -> None:
    """Idea 5: what the later snapshot holds of the log is replayed as far as it is older than the time."""
    table = new_table(tmp_path, broker=broker)
    before = now_ms()
    table.write(one_row(1))
    first = now_ms()
    write_log_only(table, one_row(2))
    second = now_ms()
    adopt(table, one_row(3))
    third = now_ms()
    write_log_only(table, one_row(4))
    fourth = now_ms()

    def at(moment: int, **more: str) -> BatchRead:
        return table.read(timestamp=moment, options={**UNION, **more})

    assert [sorted(by_key(at(moment).to_arrow())) for moment in (first, second, third, fourth)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 3, 4],
    ]
    assert sorted(by_key(table.read(timestamp=second).to_arrow())) == [1]
    served = at(second).served
    assert (served.source, served.snapshot_id, served.as_of_ms) == (StateSource.SNAPSHOT_AND_LOG, 1, second)
    assert served.log_offsets[0] < at(fourth).served.log_offsets[0]
    assert f"as_of={iso_time_text(second)}" in at(second).describe()
    alone = table.read(timestamp=second).served
    assert (alone.source, alone.as_of_ms) == (StateSource.SNAPSHOT, table.store.snapshots.read(1).time_ms)
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        at(before)


@pytest.mark.broker
def test_after_retention_time_travel_falls_back_to_the_snapshot_and_says_so(broker: Broker, tmp_path: Path) -> None:
    """Idea 5."""
    table = new_table(tmp_path, broker=broker)
    table.write(one_row(1))
    write_log_only(table, one_row(2))
    moment = now_ms()
    adopt(table, one_row(3))
    lose_log_before(table, {0: ends_with_markers(table)[0] - 1})
    read = table.read(timestamp=moment, options=UNION)
    assert by_key(read.to_arrow()) == {1: "x"}
    assert read.served.source is StateSource.SNAPSHOT
    assert read.served.as_of_ms == table.store.snapshots.read(1).time_ms
    assert "retention" in read.describe()


@pytest.mark.broker
def test_a_commit_that_is_not_in_the_log_bounds_the_replay_from_below(broker: Broker, tmp_path: Path) -> None:
    """FL-29, FL-33: an overwrite before the time is in the base, so replayed rows do not bring back what it took."""
    table = new_table(tmp_path, broker=broker)
    table.write(one_row(1))
    table.overwrite(one_row(7).drop_columns(["_row_kind"]))
    write_log_only(table, one_row(2))
    moment = now_ms()
    adopt(table, one_row(3))
    read = table.read(timestamp=moment, options=UNION)
    assert (sorted(by_key(read.to_arrow())), read.served.snapshot_id) == ([2, 7], 2)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01 00:00:01", 1000),
        ("1970-01-01T01:00:00.5+01:00", 500),
        ("1970-01-02", 86_400_000),
        ("1709209800123", 1_709_209_800_123),
        ("2024-02-29T12:30:00.123Z", 1_709_209_800_123),
    ],
)
def test_a_time_is_iso_text_in_utc_or_epoch_milliseconds(text: str, wanted: int) -> None:
    assert scan_time_ms(text) == wanted
    assert scan_time_ms(iso_time_text(wanted)) == wanted


def test_a_commit_is_passed_on_as_text(tmp_path: Path) -> None:
    handle = CommitHandle(snapshot_id=7, log_offsets={1: 30, 0: 12})
    assert str(handle) == "7:0=12,1=30"
    assert CommitHandle.parse(str(handle)) == handle
    assert CommitHandle.parse("7") == CommitHandle(snapshot_id=7)
    table = plain_table(tmp_path)
    assert table.handle_of(table.write(one_row(1))) == CommitHandle(snapshot_id=1)
    assert table.handle_of(CommitResult(snapshot=None)).snapshot_id == 0
    whole = table.handle_of(table.write(one_row(2)))
    again = CommitHandle.parse(str(whole))
    assert (again.table_id, again.identity) == (table.store.table_id(), table.latest_snapshot().identity)  # type: ignore[union-attr]
    assert str(again) == str(whole)
    for text in ("", "x", "7:", "7:0", "7:0=a", "-1", "7:0=1,", "7@", "7@abc", "7@abc~"):
        with pytest.raises(InvalidInputError, match="not the handle of a commit"):
            CommitHandle.parse(text)


@pytest.mark.broker
def test_a_handle_has_the_offsets_after_the_commit(broker: Broker, tmp_path: Path) -> None:
    table = new_table(tmp_path, broker=broker)
    assert str(table.handle_of(table.write(one_row(1)))).startswith("1:0=1@")


@pytest.mark.sweep
def test_a_handle_is_of_one_table_branch_and_history(tmp_path: Path) -> None:
    """Numbers are used again: after a rollback, by branches, by tables of the same name."""
    catalog = Catalog(str(tmp_path))
    table = plain_table(tmp_path)
    for number in (1, 2, 3):
        newest = table.handle_of(table.write(one_row(number)))
    other = catalog.create_table("d.other", table.schema.arrow_schema, primary_key=["id"])
    for number in (1, 2, 3):
        other.write(one_row(number))
    with pytest.raises(InvalidInputError, match=r"another table or branch: table=d\.other .*snapshot=3 .* fix="):
        other.read(at_least=newest)
    procedures.create_branch(table, "dev", snapshot=2)
    dev = catalog.table(f"{table.name}$branch_dev")
    on_dev = dev.handle_of(dev.write(one_row(9)))
    with pytest.raises(InvalidInputError, match="another table or branch"):
        table.wait_for(str(on_dev), timeout_s=0)
    dev.wait_for(on_dev, timeout_s=0)
    table.wait_for(newest, timeout_s=0)
    procedures.rollback(table, 2, force=True)
    for _ in range(2):  # waiting, and once the number is used again
        with pytest.raises(InvalidInputError, match=r"not in the table any more: .* cause='a rollback"):
            table.wait_for(newest, timeout_s=5)
        table.write(one_row(4))
    catalog.drop_table(table.name)
    made = plain_table(tmp_path)
    for number in (1, 2, 3):
        made.write(one_row(number))
    with pytest.raises(InvalidInputError, match="another table or branch"):
        made.read(at_least=newest)


def test_a_place_that_is_older_than_the_handle_is_refused(tmp_path: Path) -> None:
    table = plain_table(tmp_path)
    for number in (1, 2, 3):
        newest = table.handle_of(table.write(one_row(number)))
    procedures.create_tag(table, "old", snapshot=1)
    for travel in ({"snapshot_id": 1}, {"tag": "old"}, {"version": "old"}):
        with pytest.raises(InvalidInputError, match=r"older than the commit .* snapshot=1 scan\.at-least=3@.* fix="):
            table.read(at_least=newest, **travel)
    assert table.read(at_least=newest, snapshot_id=3).to_arrow().num_rows == 3


@pytest.mark.sweep
def test_a_reader_waits_for_a_commit(tmp_path: Path) -> None:
    """Idea 6, read your writes: a reader with the handle never sees an older state."""
    table = plain_table(tmp_path)
    table.write(one_row(1))
    later = threading.Timer(0.3, lambda: table.write(one_row(2)))
    later.start()
    assert sorted(by_key(table.read(at_least="2").to_arrow())) == [1, 2]
    later.join()
    table.wait_for("1", timeout_s=0)
    with pytest.raises(UnavailableError, match=r"wanted_snapshot=3 visible_snapshot=2 timeout_s=0.05"):
        table.wait_for(CommitHandle(snapshot_id=3), timeout_s=0.05)
    with pytest.raises(UnavailableError, match=r"scan\.at-least\.timeout"):
        table.read(options={"scan.at-least": "3:0=1", "scan.at-least.timeout": "20 ms"})


@pytest.mark.broker
def test_a_reader_of_the_log_waits_for_the_commit_in_the_log_too(broker: Broker, tmp_path: Path) -> None:
    """Idea 6: positions of a handle that no snapshot has yet."""
    table = new_table(tmp_path, broker=broker)
    first = table.handle_of(table.write(one_row(1)))
    ahead = CommitHandle(snapshot_id=1, log_offsets={0: ends_with_markers(table)[0] + 1})
    later = threading.Timer(0.3, lambda: write_log_only(table, one_row(2)))
    later.start()
    assert sorted(by_key(table.read(at_least=ahead, options=UNION).to_arrow())) == [1, 2]
    later.join()
    assert sorted(by_key(table.read(at_least=ahead).to_arrow())) == [1]  # files only: nothing to wait for
    assert sorted(by_key(table.read(at_least=first, options=UNION).to_arrow())) == [1, 2]
    short = {**UNION, "scan.at-least.timeout": "20 ms"}
    with pytest.raises(
        UnavailableError, match=r"in the log yet: .*bucket=0 wanted_offset=99 .*scan\.at-least\.timeout"
    ):
        table.read(at_least="1:0=99", options=short)
    with pytest.raises(InvalidInputError, match=r"no such bucket: scan\.at-least bucket=7 .*buckets=1"):
        table.read(at_least="1:7=1", options=short)


@pytest.mark.broker
def test_a_reader_waits_for_brokers_that_are_away_as_long_as_it_was_told(broker: Broker, tmp_path: Path) -> None:
    """Eight seconds are given to brokers by default."""
    table = new_table(tmp_path, broker=broker)
    table.write(one_row(1))
    away = Table(table.files.with_options({"log.kafka.bootstrap.servers": "127.0.0.1:1"}))
    began_s = time.monotonic()
    with pytest.raises(UnavailableError, match=r"brokers cannot be reached: bootstrap\.servers=127\.0\.0\.1:1 "):
        away.read(at_least="1:0=99", options={**UNION, "scan.at-least.timeout": "20 ms"})
    assert time.monotonic() - began_s < 4


@pytest.mark.broker
def test_staleness_decides_between_files_and_log(broker: Broker, tmp_path: Path) -> None:
    """Idea 7: and the answer says how fresh it is."""
    table = new_table(tmp_path, broker=broker)
    table.write(one_row(1))
    time.sleep(0.05)
    table.compact(full=True)  # makes a newer snapshot, and no row fresher

    def within(limit: str) -> BatchRead:
        return table.read(options={"scan.max-staleness": limit})

    idle = within("1 ms").served
    assert (idle.source, idle.staleness_ms) == (StateSource.SNAPSHOT, 0)
    write_log_only(table, one_row(2))
    old = within("1 h")
    assert (sorted(by_key(old.to_arrow())), old.served.source) == ([1], StateSource.SNAPSHOT)
    assert old.served.staleness_ms is not None
    assert 50 <= old.served.staleness_ms < 3_600_000
    fresh = within("1 ms")
    assert (sorted(by_key(fresh.to_arrow())), fresh.served.source) == ([1, 2], StateSource.SNAPSHOT_AND_LOG)
    assert fresh.served.staleness_ms == 0


def test_without_a_log_stale_files_are_read_and_their_staleness_told(tmp_path: Path) -> None:
    table = plain_table(tmp_path)
    empty = table.read(options={"scan.max-staleness": "1 ms"})
    assert (empty.to_arrow().num_rows, empty.served.staleness_ms) == (0, None)
    table.write(one_row(1))
    time.sleep(0.02)
    read = table.read(options={"scan.max-staleness": "1 ms"})
    assert by_key(read.to_arrow()) == {1: "x"}
    assert read.served.staleness_ms is not None
    assert read.served.staleness_ms >= 20
    assert "staler than asked for" in read.describe()


@pytest.mark.parametrize("mode", ["default", "full", "latest-full", "latest"])
def test_modes_of_the_newest_state(tmp_path: Path, mode: str) -> None:
    table = plain_table(tmp_path)
    table.write(one_row(1))
    assert table.read(options={"scan.mode": mode}).served.snapshot_id == 1


def test_modes_of_a_place(tmp_path: Path) -> None:
    table = plain_table(tmp_path)
    table.write(one_row(1))
    moment = now_ms()
    table.write(one_row(2))

    def read(mode: str, **more: str) -> int | None:
        given = dotted(more)
        return table.read(options={"scan.mode": mode, **given}).served.snapshot_id

    assert read("from-snapshot", scan_snapshot__id="1") == 1
    assert read("from-snapshot-full", scan_snapshot__id="1") == 1
    assert read("from-timestamp", scan_timestamp__millis=str(moment)) == 1
    assert read("from-timestamp", scan_timestamp=iso_time_text(moment)) == 1


@pytest.mark.sweep
def test_every_way_to_name_a_state_says_what_it_found(tmp_path: Path) -> None:
    """TAG-09, TAG-11, TAG-12: also that the snapshots of a time are gone, and which tag is read instead."""
    table = plain_table(tmp_path)
    times = {}
    for key in (1, 2, 3, 4):
        table.write(one_row(key))
        times[key] = now_ms()
    create_tag(table.store, "eod", snapshot_id=2)

    def found(**options: str) -> tuple[list[int], str]:
        read = table.read(options={key.replace("_", ".", 1).replace("_", "-"): text for key, text in options.items()})
        return sorted(by_key(read.to_arrow())), read.served.reason

    assert found(scan_tag_name="eod") == ([1, 2], "the tag eod was asked for")
    assert found(scan_snapshot_id="3") == ([1, 2, 3], "a snapshot was asked for")
    assert found(scan_version="eod") == ([1, 2], "the tag eod was asked for")
    assert sorted(by_key(table.read(version="snapshot.1").to_arrow())) == [1]
    at = {"scan_timestamp": str(times[3])}
    assert found(**at) == ([1, 2, 3], "the last snapshot of that time")
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=9)))
    reason = "the snapshots of that time have expired, this is the closest tag before it: eod"
    assert found(**at) == ([1, 2], reason)
    assert f"reason='{reason}'" in table.read(timestamp=times[3]).describe()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scan.mode": "incremental"}, r"no such mode: scan.mode=incremental known=default, full, latest-full"),
        ({"scan.mode": "from-timestamp"}, "a place is missing: scan.mode=from-timestamp fix=set scan.timestamp"),
        ({"scan.mode": "from-snapshot", "scan.timestamp": "2024-01-01"}, "no meaning in this mode"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "no meaning in this mode"),
        ({"scan.snapshot-id": "1", "scan.timestamp": "2024-01-01"}, "only one place"),
        ({"scan.timestamp": "yesterday"}, "not a time: scan.timestamp=yesterday"),
        ({"scan.timestamp": "2024-01-01"}, "no such snapshot"),
        ({"scan.snapshot-id": "1", "scan.log.union": "true"}, "read as it is, without the log"),
        ({"scan.log.offsets": '{"0": 1}'}, "fix=set scan.log.union=true"),
        ({"scan.log.offsets": "[1]", "scan.log.union": "true"}, "not offsets by bucket"),
        ({"scan.log.offsets": '{"0": "1"}', "scan.log.union": "true"}, "not offsets by bucket"),
        ({"scan.snapshot-id": "1", "scan.max-staleness": "1s"}, "an older state cannot be fresh"),
        ({"scan.at-least": "soon"}, "not the handle of a commit"),
        ({"scan.max-staleness": "soon"}, "a duration such as"),
        ({"read.metadata-columns": "_log_offset"}, "rows of files have no offset"),
        ({"read.metadata-columns": "_snapshotid"}, "did_you_mean=_snapshot_id"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path: Path, options: dict[str, str], said: str) -> None:
    table = plain_table(tmp_path)
    table.write(one_row(1))
    with pytest.raises(FluvialError, match=said):
        table.read(options=options)


@pytest.mark.broker
def test_a_table_that_is_set_up_for_fresh_reads_can_still_be_travelled(broker: Broker, tmp_path: Path) -> None:
    """Options of the reader come before those of the table; start options for streams are not for batch reads."""
    table = new_table(
        tmp_path,
        broker=broker,
        options={
            "scan.log.union": "true",
            "scan.max-staleness": "1 ms",
            "log.scan": "from-timestamp",
            "log.scan.timestamp-mills": "1",
        },
    )
    table.write(one_row(1))
    write_log_only(table, one_row(2))
    assert sorted(by_key(table.read().to_arrow())) == [1, 2]
    assert sorted(by_key(table.read(snapshot_id=1).to_arrow())) == [1]
    assert sorted(by_key(table.read(options={"scan.log.union": "false", "scan.max-staleness": "1 h"}).to_arrow())) == [
        1
    ]


def test_the_snapshot_can_be_a_column(tmp_path: Path) -> None:
    table = plain_table(tmp_path)
    table.write(one_row(1))
    table.write(one_row(2))
    read = table.read(options={"read.metadata-columns": "_snapshot_id"})
    assert read.to_arrow(columns=["id"]).to_pylist() == [{"id": 1, "_snapshot_id": 2}, {"id": 2, "_snapshot_id": 2}]
    assert read.schema.names == ["id", "v", "_snapshot_id"]


@pytest.mark.parametrize(
    ("expression", "behind_ms"),
    [("at", 0), ("at - INTERVAL '5' SECOND", 5000), ("(at - INTERVAL 1 MINUTE)", 60_000), ("greatest(at, at)", None)],
)
def test_a_snapshot_has_the_watermark_of_its_rows(tmp_path: Path, expression: str, behind_ms: int | None) -> None:
    """FL-45, scan.watermark: from the statistics of the files; it never goes back. Others forms are left out."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms"))])
    options = {"bucket": "1", "watermark.column": "at", "watermark.expression": expression}
    table = Catalog(str(tmp_path)).create_table("db.events", schema, primary_key=["id"], options=options)
    for key, at in enumerate([100_000, 300_000, 200_000]):
        table.write(pa.table([[key, key + 10], [at, 0]], schema=schema))
    found = [table.store.snapshots.read(each).watermark for each in (1, 2, 3)]
    if behind_ms is None:
        assert found == [None, None, None]
        return
    assert found == [100_000 - behind_ms, 300_000 - behind_ms, 300_000 - behind_ms]
    assert table.read(options={"scan.watermark": str(200_000 - behind_ms)}).served.snapshot_id == 2


def test_a_spark_read_of_a_version_has_the_columns_of_its_time(tmp_path: Path) -> None:
    """scan.version, scan.watermark and scan.savepoint-id: states of batch reads only."""
    table = plain_table(tmp_path)
    table.write(one_row(1))
    create_tag(table.store, "old")
    Catalog(str(tmp_path)).alter_table("db.plain", [AddColumn(path=("later",), type=parse_data_type("INT"))])
    place = {"warehouse": str(tmp_path), "table": "db.plain"}
    names = [field.name for field in ID_SCHEMA]
    old = ReadOptions.parse({**place, "scan.version": "old"}, BATCH_KEYS)
    assert old.spark_schema().fieldNames() == names
    assert ReadOptions.parse(place, BATCH_KEYS).spark_schema().fieldNames() == [*names, "later"]


@pytest.mark.broker
@pytest.mark.parametrize("later", ["untracked", "overwrite"])
def test_only_a_commit_of_the_log_proves_that_files_are_fresh(broker: Broker, tmp_path: Path, later: str) -> None:
    """A dead writer's rows wait in the log; another one commits past it, and says nothing of them."""
    table = new_table(tmp_path, broker=broker)
    table.write(one_row(1))
    write_log_only(table, one_row(2))
    time.sleep(0.3)
    if later == "overwrite":
        table.overwrite(
            one_row(3).drop_columns(["_row_kind"]) if "_row_kind" in one_row(3).schema.names else one_row(3)
        )
    else:
        table.write(one_row(3), options={"change-tracking": "false"})
    read = table.read(options={"scan.max-staleness": "250 ms"})
    assert read.served.source is StateSource.SNAPSHOT_AND_LOG
    assert 2 in by_key(read.to_arrow())
