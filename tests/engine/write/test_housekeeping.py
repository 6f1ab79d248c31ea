"""What is over goes after commits of a stream, and never stops it."""

import logging
import threading
import time
import unittest.mock
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.compaction.dedicated import is_write_only
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.write.housekeeping import Housekeeping, PeriodicSavepoints
from filestore.io.file_io import SystemClock
from filestore.refs.savepoint_files import Savepoint, list_savepoints
from filestore.snapshot.consumers import ConsumerStore
from filestore.table_store import TableStore
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.support.option_keys import dashed

DAY_MS = 86_400_000
SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64())])


def daily_table(tmp_path: Path, **options: str) -> Table:
    texts = dashed(options)
    return Catalog(str(tmp_path)).create_table(
        "db.t", SCHEMA, primary_key=["day", "id"], partition_by=["day"],
        options={"bucket": "1", "log.system": "none", **texts},
    )  # fmt: skip


def write_days(table: Table, count: int, day: str = "2999-01-01") -> None:
    for turn in range(count):
        table.write(pa.table([[day], [turn]], schema=SCHEMA))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_old_snapshots_go_after_a_commit(tmp_path: Path, mode: str) -> None:
    """FL-101..FL-104; snapshot.num-retained.*, snapshot.expire.limit, snapshot.expire.execution-mode."""
    table = daily_table(
        tmp_path, snapshot__num_retained__min="1", snapshot__num_retained__max="2", snapshot__expire__limit="3",
        snapshot__expire__execution_mode=mode,
    )  # fmt: skip
    write_days(table, 6)
    keeping = Housekeeping(table.store, every_ms=10**12)
    keeping.after_commit()
    keeping.close()
    assert table.store.snapshots.ids() == [4, 5, 6]
    if mode == "sync":
        keeping.after_commit()  # the limit was met, so there may be more
        assert table.store.snapshots.ids() == [5, 6]
        write_days(table, 1)
        keeping.after_commit()  # it is not time to look again
        assert table.store.snapshots.ids() == [5, 6, 7]


@pytest.mark.sweep
def test_a_day_and_ten_snapshots_are_kept_when_nothing_is_said(tmp_path: Path) -> None:
    table = daily_table(tmp_path, num_sorted_run__stop_trigger="99")
    write_days(table, 12)
    Housekeeping(table.store).after_commit()
    assert len(table.store.snapshots.ids()) == 12


def test_partitions_and_tags_go_too(tmp_path: Path) -> None:
    """partition.expiration-time, tag.time-expire-enabled. FL-101: rows never expire unless that is asked for."""
    table = daily_table(tmp_path, partition__expiration_time="30 d")
    write_days(table, 1, day="2020-01-01")
    write_days(table, 1)
    create_tag(table.store, "short", retained_ms=1)
    create_tag(table.store, "long", retained_ms=10**12)
    table.store.clock.sleep(0.005)
    Housekeeping(table.store).after_commit()
    assert table.store.snapshots.tag_names() == ["long"]
    assert table.read().to_arrow().column("day").to_pylist() == ["2999-01-01"]


@pytest.mark.parametrize(("interval", "left"), [("1 h", ["2020-01-01"]), ("1 ms", [])])
def test_partitions_expire_as_often_as_their_interval_says(tmp_path: Path, interval: str, left: list[str]) -> None:
    """partition.expiration-check-interval."""
    table = daily_table(
        tmp_path, partition__expiration_time="30 d", **{"partition.expiration-check-interval": interval}
    )
    keeping = Housekeeping(table.store, every_ms=0)
    write_days(table, 1)
    keeping.after_commit()
    write_days(table, 1, day="2020-01-01")
    table.store.clock.sleep(0.005)
    keeping.after_commit()
    assert sorted(table.read().to_arrow().column("day").to_pylist()) == [*left, "2999-01-01"]


def test_an_expiry_that_fails_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = daily_table(tmp_path)
    write_days(table, 1)

    def refuse(self: ConsumerStore) -> int:
        raise RuntimeError("out of order")

    monkeypatch.setattr(ConsumerStore, "least_next_snapshot", refuse)
    with caplog.at_level(logging.WARNING, logger="fluvial"):
        Housekeeping(table.store).after_commit()
    assert "expiry failed, it will be tried again: table=db.t" in caplog.text
    assert "out of order" in caplog.text


def test_a_write_only_stream_leaves_it_to_others(tmp_path: Path) -> None:
    """FL-167: write-only writers neither compact nor expire."""
    table = daily_table(tmp_path)
    assert not is_write_only(table.store, NO_OPTIONS)
    assert is_write_only(table.store, WriterOptions({"write-only": "true"}))
    assert is_write_only(daily_table(tmp_path / "2", write_only="true").store, NO_OPTIONS)


@dataclass(frozen=True)
class ShiftedClock(SystemClock):
    """The machine's, but it is another day."""

    by_ms: int = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.by_ms

    def local_ms(self) -> int:
        return self.now_ms()


@pytest.mark.sweep
def test_tags_are_made_at_their_time_when_nothing_is_written(tmp_path: Path) -> None:
    """TAG-60, paimon#7227: a stream without data; the second look comes from a timer."""
    table = daily_table(tmp_path, tag__automatic_creation="process-time", tag__num_retained_max="1")
    write_days(table, 1)
    midnight = (SystemClock().now_ms() // 86_400_000 + 2) * 86_400_000
    store = replace(table.store, clock=ShiftedClock(midnight - 1500 - SystemClock().now_ms()))
    keeping = Housekeeping(store)
    keeping.after_commit()
    before = store.snapshots.tag_names()
    deadline = time.monotonic() + 20
    while store.snapshots.tag_names() == before and time.monotonic() < deadline:
        time.sleep(0.02)
    keeping.close()
    [name], [old] = store.snapshots.tag_names(), before
    assert name > old
    assert store.snapshots.tag(name).id == 1


def waited_savepoints(store: TableStore, count: int) -> list[Savepoint]:
    deadline = time.monotonic() + 20
    while len(list_savepoints(store)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return list_savepoints(store)


@pytest.mark.parametrize("options", [{"savepoint__create_time": "00:00"}, {"savepoint__create_interval": "1 ms"}])
def test_savepoints_are_made_at_their_time_when_nothing_is_written(tmp_path: Path, options: dict[str, str]) -> None:
    """SP-18: a time of day alone is daily, as for tags; a stream without data saves its last state, and once."""
    table = daily_table(tmp_path, **options)
    write_days(table, 1)
    midnight = (SystemClock().now_ms() // DAY_MS + 1) * DAY_MS
    store = replace(table.store, clock=ShiftedClock(midnight - 1500 - SystemClock().now_ms()))
    keeping = Housekeeping(store, every_ms=0)
    keeping.before_batch()
    early = [each.saved_snapshot_id for each in list_savepoints(store)]
    write_days(table, 1)
    keeping.after_commit()
    saved = waited_savepoints(store, len(early) + 1)
    assert [each.saved_snapshot_id for each in saved[len(early) :]] == [store.snapshots.latest_id()]
    keeping.before_batch()  # nothing has changed since
    keeping.close()
    assert list_savepoints(store) == saved


def test_a_savepoint_is_not_made_in_a_batch(tmp_path: Path) -> None:
    """Its checkpoint would not be complete; the next batch makes it first."""
    table = daily_table(tmp_path, savepoint__create_interval="1 ms")
    looks = threading.Semaphore(0)

    def look_soon(_: PeriodicSavepoints) -> int:
        looks.release()
        return 10

    with unittest.mock.patch.object(PeriodicSavepoints, "_wait_ms", look_soon):
        keeping = Housekeeping(table.store, every_ms=0)
        keeping.before_batch()
        write_days(table, 1)
        assert all(looks.acquire(timeout=20) for _ in range(5))
        assert list_savepoints(table.store) == []
        keeping.after_commit()
        assert len(waited_savepoints(table.store, 1)) == 1
    keeping.close()


def test_what_is_wrong_with_a_schedule_is_logged_and_stops_no_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused when a table is made; other engines may set it all the same. Expiry goes on."""
    with pytest.raises(InvalidInputError, match=r"not a time of day: tag.create-time=25:00"):
        daily_table(tmp_path, tag__create_time="25:00")
    table = daily_table(tmp_path, snapshot__num_retained__min="1", snapshot__num_retained__max="1")
    write_days(table, 2)
    with caplog.at_level(logging.WARNING, "fluvial.housekeeping"):
        Housekeeping(table.store.with_options({"tag.create-time": "25:00"})).after_commit()
    assert "not a time of day: tag.create-time=25:00" in caplog.text
    assert table.store.snapshots.ids() == [2]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_batch_write_tags_itself(tmp_path: Path, mode: str) -> None:
    """tag.automatic-creation=batch: by whatever way rows are written as a batch."""
    table = daily_table(tmp_path, tag__automatic_creation="batch", tag__batch__customized_name="load")
    rows = pa.table([["2026-01-01"], [1]], schema=SCHEMA)
    for snapshot_id in (1, 2):
        _ = table.write(rows) if mode == "append" else table.overwrite(rows)
        assert table.store.snapshots.tag("load").id == snapshot_id
