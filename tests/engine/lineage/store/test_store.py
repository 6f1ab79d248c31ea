"""Laws of the store of lineage in SQL databases, against dictionaries."""

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest

from engine.lineage.lineage import find_factory
from engine.lineage.store import connections
from engine.lineage.store.entities import DataLineage, JobStartup, LineageRecords, TableLineage, time_of
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.store import LineageMetaContext
from engine.lineage.tables import LINEAGE_SCHEMAS
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
from filestore.predicate.parser import parse_filter
from filestore.schema.schema_store import new_schema
from lsm.errors import InvalidInputError, UnavailableError
from tests.support.lineage_stores import MemoryLineageMeta, contents

BEGIN = datetime(2023, 6, 5, 13, 29, 1)
JOBS = ("a", "A", "a_", "a%b", "ä'; --", "z" * 255)
FILTERS = (
    "barrier_id > 2 AND snapshot_id <= 5",
    "job LIKE 'a%' OR NOT (`table` = 't1')",
    r"job LIKE 'a\_%' AND barrier_id IN (1, 2, NULL)",
    "NOT (snapshot_id IN (1, NULL)) OR job = 'A'",
    "create_time >= '2023-06-05 13:29:03' AND job > 'A'",
    "create_time < '2023-06-05 13:29:03.5' OR create_time = '2023-06-05 13:29:05.5'",
    "create_time <> '2023-06-05 13:29:05.5' AND job < 'b'",
    "job LIKE '%_' AND `table` IS NOT NULL AND NOT NULL OR database = 'db'",
    "job LIKE '%b' AND true",
)
_numbers = count(1)
NewStore = Callable[[], JdbcLineageMeta]


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Makes empty stores."""

    def made() -> JdbcLineageMeta:
        number = next(_numbers)
        if request.param == "sqlite":
            return JdbcLineageMeta(SqlDatabase.of(f"sqlite:////{tmp_path}/{number}.sqlite"))
        return JdbcLineageMeta(
            SqlDatabase.of(request.getfixturevalue(request.param), dialects=ALL_DIALECTS), f"lineage {number}"
        )

    return made


def some_records(random: Random) -> LineageRecords:
    def tables() -> tuple[TableLineage, ...]:
        return tuple(TableLineage(*names(), at()) for _ in range(random.randrange(3)))

    def snapshots() -> tuple[DataLineage, ...]:
        found = []
        for _ in range(random.randrange(4)):
            job, database, table = names()
            found.append(DataLineage(job, random.randrange(4), database, table, random.randrange(8), at()))
        return tuple(found)

    def names() -> tuple[str, str, str]:
        return random.choice(JOBS), random.choice(("db", "DB")), random.choice(("t1", "t2"))

    def at() -> datetime:
        return BEGIN + timedelta(seconds=random.randrange(9))

    return LineageRecords(
        source_tables=tables(),
        sink_tables=tables(),
        source_snapshots=snapshots(),
        sink_snapshots=snapshots(),
        startups=tuple(
            JobStartup(*names(), random.randrange(2**62), random.choice(("", "run1", "run2")))
            for _ in range(random.randrange(3))
        ),
    )


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_any_history_leaves_what_dictionaries_would_hold(new_store: NewStore) -> None:
    """LN-17, LN-19, LN-21, LN-23, LN-54 to LN-63 (LN-55, LN-58, LN-62): keys, first ones, deletes, filters, limits."""
    schema = new_schema(LINEAGE_SCHEMAS["source_snapshot_lineage"], time_ms=0)
    for seed in range(4 if new_store().database.dialect == "sqlite" else 2):
        random, store, oracle = Random(seed), new_store(), MemoryLineageMeta()
        for _ in range(12):
            records = some_records(random)
            for each in (store, oracle):
                each.store(records)
            job, time = random.choice(JOBS), BEGIN + timedelta(seconds=random.randrange(4))
            action = random.choice(
                ("none", "none", "delete_source_table_lineage", "delete_sink_table_lineage", "delete_data_lineage")
            )
            if action != "none":
                for each in (store, oracle):
                    getattr(each, action)(job)
            elif random.random() < 0.2:
                for each in (store, oracle):
                    each.delete_data_lineage_before(time)
        assert contents(store) == contents(oracle)
        for filter in FILTERS:
            predicate, limit = parse_filter(filter, schema), random.choice((None, 1, 3))
            assert list(store.source_data_lineages(predicate, limit=limit)) == list(
                oracle.source_data_lineages(predicate, limit=limit)
            ), filter
            assert list(store.sink_data_lineages(predicate)) == list(oracle.sink_data_lineages(predicate)), filter


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_single_records_are_stored_once(new_store: NewStore) -> None:
    """LN-54, LN-57, LN-60, LN-61: the calls of the PIP, each made twice; the first time stays."""
    store, later = new_store(), BEGIN + timedelta(days=1)
    for time in (BEGIN, later):
        store.store_source_table_lineage(TableLineage("j", "db", "s", time))
        store.store_sink_table_lineage(TableLineage("j", "db", "k", time))
        store.store_source_data_lineage(DataLineage("j", 1, "db", "s", 3, time))
        store.store_sink_data_lineage(DataLineage("j", 1, "db", "k", 5, time))
        store.store_job_startup(JobStartup("j", "db", "s", 1 if time == BEGIN else 2))
    assert contents(store) == {
        "source_tables": [TableLineage("j", "db", "s", BEGIN)],
        "sink_tables": [TableLineage("j", "db", "k", BEGIN)],
        "source_snapshots": [DataLineage("j", 1, "db", "s", 3, BEGIN)],
        "sink_snapshots": [DataLineage("j", 1, "db", "k", 5, BEGIN)],
        "startups": [JobStartup("j", "db", "s", 2)],
    }
    twice = tuple(JobStartup("j", "db", "s", each) for each in (7, 8))
    store.store(
        LineageRecords(startups=twice, sink_tables=tuple(TableLineage("x", "db", "k", t) for t in (BEGIN, later)))
    )
    assert [each.snapshot_id for each in store.job_startups()] == [8]
    of_runs = tuple(
        JobStartup("j", "db", "s", each, run) for each, run in ((9, "r1"), (10, "r1"), (11, "r2"), (12, "r2"))
    )
    for each, expected in zip(of_runs, (9, 9, 11, 11), strict=True):
        store.store_job_startup(each)
        assert [startup.snapshot_id for startup in store.job_startups()] == [expected], "the first record of a start"
    store.store(LineageRecords(startups=of_runs[:2]))
    assert list(store.job_startups()) == [of_runs[0]]
    assert [each.create_time for each in store.sink_table_lineages()] == [BEGIN, BEGIN]
    store.close()


_WRITERS = """
import os, sys
from datetime import datetime
from engine.lineage.store.entities import DataLineage, LineageRecords, TableLineage
from engine.lineage.store.jdbc import JdbcLineageMeta
from filestore.catalog.sql_database import ALL_DIALECTS, SqlDatabase
sqlite, *servers = (SqlDatabase.of(each, dialects=ALL_DIALECTS) for each in sys.argv[1:])
for number in range(8):
    if os.fork() == 0:
        break
else:
    sys.exit(max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(8)))
time = datetime(2023, 1, 1)
for store in (JdbcLineageMeta(sqlite), *(JdbcLineageMeta(each, "of many") for each in servers)):
    for barrier in range(5):
        shared = [TableLineage(f"j{each}", "db", "t", time) for each in range(number, number + 8)]
        own = DataLineage(f"j{number}", barrier, "db", "t", barrier, time)
        store.store(LineageRecords(source_tables=tuple(shared), source_snapshots=(own,), sink_snapshots=(own,)))
        assert any(each == own for each in store.sink_data_lineages())
"""


@pytest.mark.soak
def test_eight_processes_write_the_same_tables_at_once(tmp_path: Path, postgres: str, mysql: str) -> None:
    """LN-42, LN-43, LN-44: no committer, no lost row, no deadlock; and each sees its row at once."""
    sqlite = f"sqlite:////{tmp_path}/l.sqlite"
    command = [sys.executable, "-c", _WRITERS, sqlite, postgres, mysql]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    expected = [(f"j{number}", barrier) for number in range(8) for barrier in range(5)]
    servers = [JdbcLineageMeta(SqlDatabase.of(each, dialects=ALL_DIALECTS), "of many") for each in (postgres, mysql)]
    for store in (JdbcLineageMeta(SqlDatabase.of(sqlite)), *servers):
        found = contents(store)
        assert len(found["source_tables"]) == 15
        for kind in ("source_snapshots", "sink_snapshots"):
            assert [(each.job, each.barrier_id) for each in found[kind]] == expected


def test_readers_wait_for_nobody(tmp_path: Path) -> None:
    """LN-44: rows are read while somebody writes, and a write ends while somebody reads."""
    store = JdbcLineageMeta(SqlDatabase.of(f"sqlite:////{tmp_path}/l.sqlite"))
    for number in range(3):
        store.store_source_table_lineage(TableLineage(f"j{number}", "db", "t", BEGIN))
    rows = store.source_table_lineages()
    assert next(rows).job == "j0"
    store.store_source_table_lineage(TableLineage("j9", "db", "t", BEGIN))
    with store.transaction("write"):
        assert len(list(store.source_table_lineages())) == 4
    assert [each.job for each in rows] == ["j1", "j2"], "a read sees one state"


@pytest.mark.sweep
def test_tables_that_were_removed_are_made_again(tmp_path: Path, new_store: NewStore) -> None:
    store = new_store()
    store.store_source_table_lineage(TableLineage("j", "db", "t", BEGIN))
    if store.database.dialect == "sqlite":
        for file in tmp_path.glob("*.sqlite*"):
            file.unlink()
    else:
        with store.transaction("drop the tables") as connection:
            quoted, how = ("`", "") if store.database.dialect == "mysql" else ('"', " CASCADE")
            connection.exec_driver_sql(f"DROP SCHEMA {quoted}{store._prepare.schema}{quoted}{how}")
        with pytest.raises(UnavailableError, match=r"does(n't| not) exist"):
            store.store_source_table_lineage(TableLineage("j", "db", "t", BEGIN))
    assert list(store.source_table_lineages()) == []


def context(tmp_path: Path, options: dict[str, str], catalog_id: str = "one") -> LineageMetaContext:
    return LineageMetaContext(options=options, warehouse=str(tmp_path), catalog_id=catalog_id)


def test_the_factory_takes_the_options_of_the_pip(postgres: str, tmp_path: Path) -> None:
    """LN-47 to LN-53 (LN-50, LN-51), LN-64: identifier, driver, URL as JDBC writes it, user, password, database."""
    factory = find_factory("jdbc")
    assert factory.identifier == "jdbc"
    address = postgres.partition("@")[2]
    options = {
        "lineage-meta": "jdbc",
        "jdbc.driver": "org.postgresql.Driver",
        "jdbc.url": f"jdbc:postgresql://{address}",
        "jdbc.username": "fluvial",
        "jdbc.password": "any",
        "jdbc.database": "paimon_cata1",
    }
    store = factory.create(context(tmp_path, options))
    store.store_source_table_lineage(TableLineage("j", "db", "t", BEGIN))
    with SqlDatabase.of(postgres).transaction("look") as connection:
        found = connection.exec_driver_sql('SELECT "job", "table" FROM paimon_cata1.source_job_lineage')
        assert list(found) == [("j", "t")]
    with pytest.raises(InvalidInputError, match=r"belong to another catalog: jdbc.database=paimon_cata1 .*owner=one"):
        list(factory.create(context(tmp_path, options, "two")).job_startups())
    with pytest.raises(InvalidInputError, match=r"a SQLite file is one database: .*fix='name another file"):
        factory.create(context(tmp_path, {"jdbc.url": "sqlite:////x", "jdbc.database": "y"}))
    with pytest.raises(InvalidInputError, match=r"no catalog in this database|no such driver"):
        factory.create(context(tmp_path, {"jdbc.url": "oracle://h/d"}))


def test_an_address_of_mysql_names_the_driver_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-48, LN-49: as JDBC writes it; no driver of MySQL comes with Fluvial."""
    monkeypatch.setitem(sys.modules, "pymysql", None)
    store = find_factory("jdbc").create(context(tmp_path, {"jdbc.url": "jdbc:mysql://u:p@h:3306/"}))
    assert isinstance(store, JdbcLineageMeta)
    assert store.database.shown == "mysql+pymysql://u:***@h:3306/"
    with pytest.raises(InvalidInputError, match="fix=pip install pymysql"):
        list(store.job_startups())


@pytest.mark.sweep
def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    """Down, full and locked are one answer, without the password: nothing was stored."""
    down = JdbcLineageMeta(SqlDatabase.of("postgresql://u:secret@127.0.0.1:1/d"))
    with pytest.raises(UnavailableError, match=r"database refused") as refused:
        down.store_job_startup(JobStartup("j", "db", "t", 1))
    assert "secret" not in str(refused.value)
    store = JdbcLineageMeta(SqlDatabase.of(f"sqlite:////{tmp_path}/l.sqlite"))
    store.store_job_startup(JobStartup("j", "db", "t", 1))
    large = LineageRecords(
        source_tables=tuple(TableLineage(f"{each}" * 40, "db", "t", BEGIN) for each in range(9000)),
        sink_tables=(TableLineage("j", "db", "t", BEGIN),),
    )
    with pytest.MonkeyPatch.context() as patch:
        _limit_pages(patch)
        with pytest.raises(UnavailableError, match=r"database or disk is full"):
            store.store(large)
    assert contents(store)["sink_tables"] == []


def _limit_pages(patch: pytest.MonkeyPatch) -> None:
    from engine.lineage.store import jdbc

    whole = jdbc.JdbcLineageMeta._add

    def add(self: JdbcLineageMeta, connection: object, *rest: object) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 30")  # type: ignore[attr-defined]
        whole(self, connection, *rest)  # type: ignore[arg-type]

    patch.setattr(jdbc.JdbcLineageMeta, "_add", add)


def test_names_that_no_database_can_hold_are_refused() -> None:
    """LN-16, LN-25: 255 characters in a key; times are UTC without parts of seconds."""
    for name in ("", "x" * 256, "a\0b"):
        with pytest.raises(InvalidInputError, match="the name is too long or invalid for lineage"):
            TableLineage(name, "db", "t", BEGIN)
    assert time_of(1_685_971_741_999) == BEGIN
    exact = TableLineage("j", "db", "t", BEGIN.replace(microsecond=5))
    assert exact.create_time == BEGIN


def test_a_process_that_opens_many_catalogs_keeps_few_of_their_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each keeps its write-ahead log between transactions; the oldest ones work on without it."""
    monkeypatch.setattr(connections, "_MOST_OPEN", 3)
    monkeypatch.setattr(connections, "_open_files", {})
    stores = [JdbcLineageMeta(SqlDatabase.of(f"sqlite:///{tmp_path}/{number}.sqlite")) for number in range(6)]
    for store in stores:
        store.store_source_table_lineage(TableLineage("j", "d", "t", BEGIN))
    logs = sorted(path.name for path in tmp_path.glob("*-wal"))
    assert logs == [f"{number}.sqlite-wal" for number in (3, 4, 5)]
    stores[0].store_source_table_lineage(TableLineage("j", "d", "u", BEGIN))
    assert len(connections._open_files) == 3
    assert [each.table for each in stores[0].source_table_lineages()] == ["t", "u"]
