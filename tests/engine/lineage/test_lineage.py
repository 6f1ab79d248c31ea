"""What is done with records of lineage, whether the store answers or not."""

import pickle
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import orjson
import pytest

from engine.catalog import Catalog
from engine.lineage.lineage import Lineage, find_factory, lineage_of
from engine.lineage.settings import LineageSettings
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage, time_of
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.store import LineageMeta
from lsm.errors import FluvialError, InvalidInputError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, When
from tests.support.lineage_stores import FaultyMeta, MemoryFactory, MemoryLineageMeta, contents
from tests.support.option_keys import dashed

TIME = datetime(2123, 6, 5, 13, 29, 1)
QUEUE = "/w/.fluvial/lineage-queue"


class Clock:
    """Sleeping passes the time."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def local_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class Names:
    def __init__(self) -> None:
        self._numbers = count(1)

    def uuid(self) -> str:
        return f"{next(self._numbers):036d}"


def settings(**options: str) -> LineageSettings:
    given = dashed(options)
    return LineageSettings(warehouse="/w", catalog_id=None, has_tables=True, has_snapshots=True, options=given)


def batch(barrier: int) -> LineageRecords:
    return LineageRecords(
        source_tables=(TableLineage("job", "db", "s", TIME + timedelta(seconds=barrier)),),
        source_snapshots=(DataLineage("job", barrier, "db", "s", barrier + 2, TIME),),
        sink_snapshots=(DataLineage("job", barrier, "db", "k", barrier + 4, TIME),),
        startups=(JobStartup("job", "db", "s", barrier),),
    )


def after(*barriers: int) -> dict[str, list[object]]:
    oracle = MemoryLineageMeta()
    for barrier in barriers:
        oracle.store(batch(barrier))
    return contents(oracle)


def queue(io: MemoryFileIO | FaultyFileIO) -> list[str]:
    return io.list_names(QUEUE)


def test_what_one_process_stores_another_reads(tmp_path: Path) -> None:
    """LN-44, LN-54 to LN-61: every write is visible at once, through whichever connection; settings can be pickled."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(batch(1))
    assert contents(pickle.loads(pickle.dumps(lineage)).meta) == after(1)
    opened = lineage_of(Catalog(str(tmp_path)))
    assert opened is not None
    assert contents(opened.meta) == after(1)


def test_records_wait_in_the_warehouse_and_come_in_their_order() -> None:
    """``queue``: while the store is down nothing is asked of it twice in a row; later the oldest comes first."""
    clock, io = Clock(), MemoryFileIO()
    meta = FaultyMeta(fails=lambda call: call <= 2)
    lineage = Lineage(settings(), io=io, clock=clock, names=Names(), meta=meta)
    for barrier in (1, 2, 3):
        lineage.store(batch(barrier))
    assert (meta.calls, len(queue(io))) == (1, 3), "for half a minute nobody is asked again"
    clock.sleep(31)
    lineage.store(batch(4))
    assert (meta.calls, len(queue(io))) == (2, 4)
    clock.sleep(31)
    lineage.store(batch(5))
    assert queue(io) == []
    assert contents(meta) == after(1, 2, 3, 4, 5)
    (first,) = meta.source_table_lineages()
    assert first.create_time == TIME + timedelta(seconds=1), "the first one stays"
    (startup,) = meta.job_startups()
    assert startup.snapshot_id == 5, "the last one stays"


def test_what_another_process_left_is_brought_in(tmp_path: Path) -> None:
    """By a process that stores for the first time, or after a minute; and by a reader."""
    clock, io, meta = Clock(), MemoryFileIO(), MemoryLineageMeta()
    ours = Lineage(settings(), io=io, clock=clock, names=Names(), meta=meta)
    ours.store(batch(9))
    dead = Lineage(settings(), io=io, clock=clock, names=Names(), meta=FaultyMeta(fails=lambda _: True))
    dead.store(batch(1))
    ours.store(batch(10))
    assert len(queue(io)) == 1
    clock.sleep(61)
    ours.store(batch(11))
    assert len(queue(io)) == 0
    assert {each.barrier_id for each in meta.source_data_lineages()} == {1, 9, 10, 11}
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    left = lineage_of(catalog)
    assert left is not None
    Lineage(left.settings, meta=FaultyMeta(fails=lambda _: True)).store(batch(1))
    assert catalog.system_table("paimon.source_job_lineage").to_arrow().num_rows == 1


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_replay_that_dies_anywhere_is_done_once(when: When) -> None:
    """Every operation on files and every store fails once; who comes next finishes; no record is there twice."""
    first = Lineage(settings(), io=(disk := MemoryFileIO()), clock=Clock(), names=Names(), meta=FaultyMeta(fails=bool))
    for barrier in (1, 2, 3):
        first.store(batch(barrier))
    clean = FaultyFileIO(MemoryFileIO(disk.files))
    Lineage(settings(), io=clean, clock=Clock(), meta=MemoryLineageMeta()).replay()
    assert clean.calls == 1 + 3 + 3
    for fail_at in range(1, clean.calls + 1):
        io, meta = MemoryFileIO(disk.files), MemoryLineageMeta()
        with pytest.raises(UnavailableError):
            Lineage(settings(), io=FaultyFileIO(io, fail_at, when), clock=Clock(), meta=meta).replay()
        Lineage(settings(), io=io, clock=Clock(), meta=meta).replay()
        assert (contents(meta), queue(io)) == (after(1, 2, 3), [])
    io, faulty = MemoryFileIO(disk.files), FaultyMeta(fails=lambda call: call == 1, when=when)
    with pytest.raises(UnavailableError):
        Lineage(settings(), io=io, clock=Clock(), meta=faulty).replay()
    assert len(queue(io)) == 3
    assert Lineage(settings(), io=io, clock=Clock(), meta=faulty).replay() == 3
    assert (contents(faulty), queue(io)) == (after(1, 2, 3), [])


def test_a_broken_file_of_the_queue_stays_and_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    io, meta = MemoryFileIO(), MemoryLineageMeta()
    Lineage(settings(), io=io, clock=Clock(), names=Names(), meta=FaultyMeta(fails=bool)).store(batch(1))
    io.files[f"{QUEUE}/000-broken.json"] = b'{"source_tables": [{"job'
    io.files[f"{QUEUE}/001-strange.json"] = orjson.dumps({"startups": [{"job": ""}]})
    assert Lineage(settings(), io=io, clock=Clock(), meta=meta).replay() == 1
    assert queue(io) == ["000-broken.json", "001-strange.json"]
    assert contents(meta) == after(1)
    assert "it stays there" in caplog.text


def test_waiting_lasts_until_the_store_answers() -> None:
    """``wait``: with pauses that grow, and nothing in the queue."""
    clock, io = Clock(), MemoryFileIO()
    meta = FaultyMeta(fails=lambda call: call <= 12)
    Lineage(settings(lineage__on_unavailable="wait"), io=io, clock=clock, meta=meta).store(batch(1))
    assert (meta.calls, contents(meta), queue(io)) == (13, after(1), [])
    assert 100_000 < clock.ms - 1_000_000 < 400_000


def test_failing_is_the_jobs_end_and_a_second_try_is_fine() -> None:
    """``fail``: also when the answer got lost."""
    meta = FaultyMeta(fails=lambda call: call == 1, when=When.AFTER)
    lineage = Lineage(settings(lineage__on_unavailable="fail"), io=MemoryFileIO(), clock=Clock(), meta=meta)
    with pytest.raises(UnavailableError, match="injected fault"):
        lineage.store(batch(1))
    lineage.store(batch(1))
    assert contents(meta) == after(1)


def test_a_strange_error_of_somebody_elses_store_is_one_that_does_not_answer() -> None:
    """LN-65: whatever a plug-in raises must not end a stream."""
    io = MemoryFileIO()
    lineage = Lineage(settings(), io=io, clock=Clock(), meta=FaultyMeta(fails=bool, error=ZeroDivisionError))
    lineage.store(batch(1))
    assert len(queue(io)) == 1
    with pytest.raises(UnavailableError, match="lineage store failed: error=ZeroDivisionError: injected"):
        lineage.replay()


def test_nothing_is_lost_silently_when_the_queue_cannot_be_written_either() -> None:
    io = FaultyFileIO(MemoryFileIO(), fail_at=2)
    lineage = Lineage(settings(), io=io, clock=Clock(), meta=FaultyMeta(fails=bool))
    with pytest.raises(UnavailableError, match="operation=replace"):
        lineage.store(batch(1))


@pytest.mark.sweep
@pytest.mark.parametrize("dialect", ["sqlite", "postgres", "mysql"])
def test_a_locked_database_is_one_that_does_not_answer(
    dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """LN-42: who holds it for too long is not waited for; the rows come in when it lets go."""
    monkeypatch.setattr("engine.lineage.store.connections._WAIT_MS", 50)
    options = {}
    if dialect != "sqlite":
        options = {"jdbc.database": "locked", "jdbc.url": request.getfixturevalue(dialect)}
    catalog = Catalog(str(tmp_path), options)
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(batch(1))
    meta = lineage.meta
    assert isinstance(meta, JdbcLineageMeta)
    with meta.transaction("hold the lock") as connection:
        if dialect == "postgres":
            connection.exec_driver_sql("LOCK TABLE locked.source_job_lineage IN SHARE MODE")
        if dialect == "mysql":
            connection.exec_driver_sql("SELECT * FROM locked.source_job_lineage FOR UPDATE")
        lineage.store(batch(2))
    assert len(list((tmp_path / ".fluvial" / "lineage-queue").iterdir())) == 1
    assert contents(meta) == after(1)
    assert lineage.replay() == 1
    assert contents(meta) == after(1, 2)


def test_only_what_is_on_is_kept() -> None:
    """LN-07, LN-08: table lineage and data lineage are apart."""
    for tables, snapshots in ((True, False), (False, True)):
        meta = MemoryLineageMeta()
        kept = replace(settings(), has_tables=tables, has_snapshots=snapshots)
        Lineage(kept, io=MemoryFileIO(), clock=Clock(), meta=meta).store(batch(1))
        assert {kind for kind, rows in contents(meta).items() if rows} == (
            {"source_tables"} if tables else {"source_snapshots", "sink_snapshots", "startups"}
        )


def test_old_lineage_of_snapshots_goes_while_new_is_stored() -> None:
    """LN-69: once a minute; tables of jobs stay until they are deleted by hand. By default after 90 days (soak 7)."""
    assert settings().catalog_options.lineage_data_time_retained_ms == 90 * 86_400_000
    unlimited = settings(lineage__data__time_retained="unlimited")
    assert unlimited.catalog_options.lineage_data_time_retained_ms is None
    clock, meta = Clock(), MemoryLineageMeta()
    clock.ms = 1_700_000_000_000
    lineage = Lineage(settings(lineage__data__time_retained="1 h"), io=MemoryFileIO(), clock=clock, meta=meta)

    def barriers() -> list[int]:
        return [each.barrier_id for each in meta.sink_data_lineages()]

    for barrier, pause_s in ((1, 3590), (2, 11), (3, 50), (4, 0)):
        at = time_of(clock.ms)
        lineage.store(
            LineageRecords(
                sink_tables=(TableLineage(f"j{barrier}", "db", "k", at),),
                sink_snapshots=(DataLineage("j", barrier, "db", "k", barrier, at),),
            )
        )
        clock.sleep(pause_s)
    assert barriers() == [2, 3, 4]
    assert len(list(meta.sink_table_lineages())) == 4


def test_packages_bring_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-46, LN-53, LN-65: entry points name factories; the tables and views of ``paimon`` read any store."""

    class Entry:
        name = "memory"

        def load(self) -> type[MemoryFactory]:
            return MemoryFactory

    monkeypatch.setattr("engine.lineage.lineage.entry_points", lambda group: [Entry()] * (group == "fluvial.lineage"))
    monkeypatch.setattr(MemoryFactory, "meta", MemoryLineageMeta())
    find_factory.cache_clear()
    catalog = Catalog(str(tmp_path), {"lineage-meta": "memory", "lineage-meta.place": "here"})
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(batch(1))
    (context,) = MemoryFactory.made
    assert (context.warehouse, context.options["lineage-meta.place"]) == (str(tmp_path), "here")
    assert catalog.system_table("paimon.source_snapshot_lineage").to_arrow().num_rows == 1
    (row,) = catalog.system_table("paimon.upstream_snapshots").to_arrow(filter="`table` = 'k'").to_pylist()
    assert (row["upstream_table"], row["upstream_snapshot_id"], row["depth"]) == ("s", 3, 1)
    find_factory.cache_clear()
    monkeypatch.undo()
    with pytest.raises(InvalidInputError, match=r"no such store of lineage: lineage-meta=memory known=\['jdbc'\]"):
        find_factory("memory")


def test_memory_is_a_store(tmp_path: Path) -> None:
    """LN-53 to LN-61: the oracle of these tests has the whole interface."""
    meta: LineageMeta = MemoryLineageMeta()
    meta.store_sink_table_lineage(TableLineage("j", "db", "k", TIME))
    assert [each.table for each in meta.sink_table_lineages(limit=1)] == ["k"]
    assert issubclass(UnavailableError, FluvialError)
