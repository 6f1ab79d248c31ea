"""Every writer goes through one session: before the batch, the commit, after the commit, close."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import engine.write.session
from engine import Catalog, Table, sink, sql
from engine.compaction.background import BackgroundCompaction
from engine.compaction.dedicated import DedicatedCompaction
from engine.lineage.after_commit import AfterCommit
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.spark.writer.staged_commit import StreamSessions, append_batch, overwrite_batch
from engine.spark.writer.staged_rows import StagedFile, stage_rows
from engine.write.housekeeping import Housekeeping
from engine.write.session import LocalRunner, Upkeep, WriteSession
from engine.write.sink import COMMIT_USER_KEY
from filestore.commit.table_commit import TableCommit
from filestore.scan.table_scan import TableScan
from filestore.write.row_deletion import read_with_places, united_deletes
from lsm.errors import ConflictError, UnavailableError

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = pa.table({"k": [1, 2, 3], "v": [1, 2, 3]}, schema=SCHEMA)
BATCH = ["before batch", "commit", "after commit"]


def new_table(tmp_path: Path, *, key: bool = True, **options: str) -> Table:
    catalog = Catalog(str(tmp_path / "warehouse"))
    return catalog.create_table("db.t", SCHEMA, primary_key=["k"] if key else [], options=options)


class Frame(list[pa.RecordBatch]):
    """What a micro-batch is, as far as the sink looks."""

    sparkSession = None
    schema = from_arrow_schema(ROWS.schema)


def compaction_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("fluvial-compaction")}


def test_a_query_that_starts_again_in_a_process_ends_the_run_that_nobody_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soak, finding 8: each start left a thread and what it holds until Java forgot its callback."""
    monkeypatch.setattr("engine.write.sink._query_id", lambda _: "query")
    monkeypatch.setattr("engine.write.sink.checkpoint_of", lambda _: None)
    monkeypatch.setattr("engine.write.sink.Recorder.of", lambda _: None)
    monkeypatch.setattr("engine.write.sink.runner_of_sink", lambda *_, **__: LocalRunner())
    monkeypatch.setattr("engine.write.sink._hold", lambda _: None)
    before = compaction_threads()  # of tests before this one, which may end meanwhile
    table, other = (new_table(tmp_path / each, **{"num-sorted-run.compaction-trigger": "1"}) for each in "ab")
    sinks = [sink(table) for _ in range(4)]
    started = 0
    for batch, write in enumerate(sinks * 2):
        if batch < len(sinks) or write is sinks[-1]:
            write(Frame(ROWS.to_batches()), batch)  # type: ignore[arg-type]
            started = max(started, len(compaction_threads() - before))
    assert started == 1
    beside = sink(other)
    for batch in range(4):
        beside(Frame(ROWS.to_batches()), batch)  # type: ignore[arg-type]
    assert len(compaction_threads() - before) == 2, "another table's run goes on"
    for each in (sinks[-1], beside):
        each.close()
    assert compaction_threads() <= before


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets named methods say their name before they work."""

    def record(**methods: tuple[Any, str]) -> list[str]:
        steps: list[str] = []
        for label, (owner, name) in methods.items():
            _spy(monkeypatch, owner, name, label.replace("_", " "), steps)
        return steps

    return record


def _spy(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, label: str, steps: list[str]) -> None:
    original = getattr(owner, name)

    def spy(*args: Any, **given: Any) -> Any:
        steps.append(label)
        return original(*args, **given)

    monkeypatch.setattr(owner, name, spy)


@pytest.fixture
def steps(record: Callable[..., list[str]]) -> list[str]:
    return record(
        before_batch=(WriteSession, "before_batch"),
        commit=(TableCommit, "_run"),
        after_commit=(WriteSession, "after_commit"),
        close=(WriteSession, "close"),
    )


def staged(table: Table, batch: int = 0) -> list[StagedFile]:
    file = stage_rows(table.files, ROWS.to_batches(), commit_user="user", batch_id=batch)
    return [] if file is None else [file]


WITHOUT_SPARK: Mapping[str, Callable[[Table], object]] = {
    "Table.write": lambda table: table.write(ROWS),
    "Table.overwrite": lambda table: table.overwrite(ROWS),
    "format, batch": lambda table: append_batch(table.files, NO_OPTIONS, staged(table), commit_user="user"),
    "format, overwrite": lambda table: overwrite_batch(
        table.files, NO_OPTIONS, staged(table), commit_user="user", partition=None
    ),
}


@pytest.mark.parametrize("writer", WITHOUT_SPARK)
def test_a_batch_of_this_process_is_one_session(tmp_path: Path, steps: list[str], writer: str) -> None:
    WITHOUT_SPARK[writer](new_table(tmp_path))
    assert steps == [*BATCH, "close"]


@pytest.mark.sweep
def test_all_batches_of_a_staged_stream_are_one_session(tmp_path: Path, steps: list[str]) -> None:
    """The last one of a run stays open, in case that there is a next; a ninth query closes the eldest."""
    table, sessions = new_table(tmp_path, key=False), StreamSessions()  # without a key no batch waits for compaction

    def commit(query: str, batch: int) -> None:
        sessions.commit(table.files, NO_OPTIONS, staged(table, batch), commit_user=query, run_id="run", batch_id=batch)

    for batch in range(2):
        commit("first", batch)
    assert steps == [*BATCH, *BATCH]
    for number in range(8):
        commit(f"other {number}", 0)
    assert steps == [*BATCH * 10, "close"]


def test_a_staged_batch_that_fails_ends_its_session(
    tmp_path: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, sessions = new_table(tmp_path), StreamSessions()
    with monkeypatch.context() as failing:
        failing.setattr(TableCommit, "commit", _raises(UnavailableError("no disk")))
        with pytest.raises(UnavailableError):
            sessions.commit(table.files, NO_OPTIONS, staged(table), commit_user="q", run_id="run", batch_id=0)
    assert steps == ["before batch", "close"]
    sessions.commit(table.files, NO_OPTIONS, staged(table), commit_user="q", run_id="run", batch_id=0)
    assert table.read().to_arrow().num_rows == 3


def _raises(error: Exception) -> Callable[..., Any]:
    def raises(*args: object, **given: object) -> None:
        raise error

    return raises


@pytest.mark.spark
@pytest.mark.parametrize(
    "writer", ["Table.append", "Table.overwrite", "INSERT INTO", "INSERT OVERWRITE", "DELETE FROM", "UPDATE"]
)
def test_a_batch_of_spark_is_one_session(
    spark: SparkSession, tmp_path: Path, record: Callable[..., list[str]], writer: str
) -> None:
    table = new_table(tmp_path, key=False, **{"deletion-vectors.enabled": "true"})
    table.write(ROWS)
    frame = spark.createDataFrame(ROWS.to_pandas())
    found = record(
        before_batch=(WriteSession, "before_batch"),
        commit=(TableCommit, "_run"),
        after_commit=(WriteSession, "after_commit"),
        close=(WriteSession, "close"),
    )
    if writer == "Table.append":
        table.append(frame)
    elif writer == "Table.overwrite":
        table.overwrite(frame)
    else:
        rest = {"DELETE FROM": "WHERE k = 1", "UPDATE": "SET v = 9 WHERE k = 1"}.get(writer, "VALUES (4, 4)")
        sql(spark, f"{writer} db.t {rest}", str(tmp_path / "warehouse"))
    assert found == [*BATCH, "close"]


@pytest.mark.spark
def test_all_micro_batches_of_a_sink_are_one_session(spark: SparkSession, tmp_path: Path, steps: list[str]) -> None:
    write = sink(new_table(tmp_path), {COMMIT_USER_KEY: "query"})
    for batch in range(2):
        write(spark.createDataFrame(ROWS.to_pandas()), batch)
    write.close()
    assert steps == [*BATCH, *BATCH, "close"]


# ---- what a session does in each of its phases

PHASES: Mapping[str, tuple[Any, str]] = {
    "savepoint": (Housekeeping, "before_batch"),
    "back_pressure": (BackgroundCompaction, "before_batch"),
    "wait_for_the_job": (DedicatedCompaction, "before_batch"),
    "commit": (TableCommit, "_run"),
    "tags": (engine.write.session, "tag_batch"),
    "report": (AfterCommit, "report"),
    "forced_compaction": (engine.write.session, "compact_after_batch"),
    "compaction": (BackgroundCompaction, "after_commit"),
    "expiry": (Housekeeping, "after_commit"),
}


@pytest.mark.parametrize(
    ("upkeep", "options", "expected"),
    [
        (Upkeep.STREAM, {}, ["savepoint", "back pressure", "commit", "report", "compaction", "expiry"]),
        (Upkeep.STREAM_ON_DEMAND, {}, ["savepoint", "back pressure", "commit", "report", "expiry"]),
        (Upkeep.STREAM, {"write-only": "true"}, ["wait for the job", "commit", "report"]),
        (Upkeep.STREAM_ON_DEMAND, {"write-only": "true"}, ["wait for the job", "commit", "report"]),
        (Upkeep.BATCH, {}, ["commit", "tags", "report", "forced compaction"]),
        (Upkeep.BATCH, {"write-only": "true"}, ["wait for the job", "commit", "tags", "report", "forced compaction"]),
        (Upkeep.REPLACE, {}, ["commit", "tags", "report"]),
        (Upkeep.REPLACE, {"write-only": "true"}, ["commit", "tags", "report"]),
    ],
)
def test_the_upkeep_of_a_writer_says_what_is_done_and_never_in_which_order(
    tmp_path: Path, record: Callable[..., list[str]], upkeep: Upkeep, options: dict[str, str], expected: list[str]
) -> None:
    table = new_table(tmp_path)
    steps = record(**PHASES)
    with session_of(table, upkeep, **options) as session:
        if upkeep is Upkeep.REPLACE:
            session.overwrite(ROWS.to_batches(), None)
        elif upkeep.is_stream:
            session.write(ROWS.to_batches(), batch_id=0)
        else:
            session.write(ROWS.to_batches())
        assert steps == expected


def session_of(table: Table, upkeep: Upkeep, user: str = "user", **options: str) -> WriteSession[Any]:
    return WriteSession(
        table.files,
        LocalRunner(),
        commit_user=user,
        options=WriterOptions(options),
        upkeep=upkeep,
        origin=lambda batch_id, rows: None,
    )


def test_readers_that_wait_for_a_compaction_get_it_from_a_stream_on_demand_too(
    tmp_path: Path, record: Callable[..., list[str]]
) -> None:
    table = new_table(tmp_path, **{"changelog-producer": "lookup"})
    steps = record(compaction=PHASES["compaction"])
    with session_of(table, Upkeep.STREAM_ON_DEMAND) as session:
        session.write(ROWS.to_batches(), batch_id=0)
    assert steps == ["compaction"]


def test_deleted_places_and_their_new_rows_pass_the_same_phases(
    tmp_path: Path, record: Callable[..., list[str]]
) -> None:
    """A DELETE or UPDATE of a table without a key; the tag of a batch is made behind it as behind any other batch."""
    options = {"deletion-vectors.enabled": "true", "tag.automatic-creation": "batch"}
    table = new_table(tmp_path, key=False, **options)
    table.write(ROWS)
    plan = TableScan(table.store).plan(filter="k = 2")
    assert plan.snapshot is not None
    places = [each for split in plan.splits for each in read_with_places(table.store, split, (), plan.filter)]
    deletes = united_deletes((each.column(0)[0].as_py(), each.column(1).to_numpy()) for each in places)
    new = pa.table({"k": [2], "v": [9]}, schema=SCHEMA)
    steps = record(**PHASES)
    with session_of(table, Upkeep.REPLACE) as session:
        session.replace_rows(plan.snapshot, plan.splits, deletes, new.to_batches())
        assert steps == ["commit", "tags", "report"]
    with session_of(table, Upkeep.REPLACE, user="other") as session, pytest.raises(ConflictError):
        session.replace_rows(plan.snapshot, plan.splits, deletes, None)
    assert steps == ["commit", "tags", "report", "commit"]
    assert sorted(map(tuple, (row.values() for row in table.read().to_arrow().to_pylist()))) == [(1, 1), (2, 9), (3, 3)]
    [tag] = table.store.snapshots.tag_names()
    assert table.store.snapshots.tag(tag) == table.latest_snapshot()


@pytest.mark.parametrize("key", [(), ("id",)])
def test_rows_that_were_computed_from_an_older_snapshot_replace_nothing(catalog: Catalog, key: tuple[str, ...]) -> None:
    """An overwrite may say which snapshot it is of; 0 is the empty table."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), primary_key=key)
    assert table.overwrite({"id": [1]}, {}, read_snapshot_id=0).snapshot is not None
    table.write({"id": [2]})
    for read_id in (0, 1):
        with pytest.raises(ConflictError, match=f"planned_on={read_id} newest=2"):
            table.overwrite({"id": [3]}, {}, read_snapshot_id=read_id)
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == [1, 2]
    table.overwrite({"id": [3]}, {}, read_snapshot_id=2)
    assert table.read().to_arrow()["id"].to_pylist() == [3]
