"""Lineage of batch writes: each is a barrier of its own, and the store is completed from the snapshots."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.lineage import after_commit, recording
from engine.lineage.lineage import Lineage
from engine.lineage.origins import CommitOrigin, SourceRead
from engine.lineage.recording import Recorder, lineage_of_table
from engine.lineage.store.entities import LineageRecords
from engine.procedures import repair_lineage
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import CommittedError, InvalidInputError, UnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=SCHEMA)


def lineage_table(path: Path, name: str = "db.t", **options: str) -> Table:
    catalog = Catalog(str(path / "warehouse"), options=options)
    return catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})


def lineage(table: Table) -> Lineage:
    found = lineage_of_table(table.store)
    assert found is not None
    return found


def sinks(table: Table) -> list[tuple[str, int, str, int]]:
    found = lineage(table).meta.sink_data_lineages()
    return [(each.job, each.barrier_id, each.table, each.snapshot_id) for each in found]


WAYS: dict[str, Callable[[Table], Any]] = {
    "write": lambda table: table.write(ROWS, options={"pipeline.name": "load"}),
    "overwrite": lambda table: table.overwrite(ROWS, options={"pipeline.name": "load"}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_write_is_a_barrier_of_its_own(tmp_path: Path, way: Callable[[Table], Any]) -> None:
    """LN-01, LN-02, LN-12, LN-13: later writes of a job have higher barriers, and snapshots say the same."""
    table = lineage_table(tmp_path)
    for _ in range(3):
        way(table)
    found = sinks(table)
    assert [(job, name, snapshot) for job, _, name, snapshot in found] == [("load", "t", each) for each in (1, 2, 3)]
    for job, barrier, _, snapshot_id in found:
        origin = CommitOrigin.of(table.store.snapshots.read(snapshot_id))
        assert origin is not None
        assert (origin.job, origin.barrier_id) == (job, barrier)
    assert table.store.snapshots.ids() == [snapshot_id for *_, snapshot_id in found]
    assert [(each.job, each.table) for each in lineage(table).meta.sink_table_lineages()] == [("load", "t")]


def test_a_write_without_a_name_is_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["jobs/load_orders.py", "--all"])
    table = lineage_table(tmp_path)
    table.write(ROWS)
    assert [job for job, *_ in sinks(table)] == ["load_orders.py:db.t"], "another statement is another job"


def test_nothing_is_told_where_nothing_was_written(tmp_path: Path) -> None:
    """An empty write makes no snapshot, and so no barrier."""
    table = lineage_table(tmp_path)
    table.write(ROWS.slice(0, 0))
    table.overwrite(ROWS.slice(0, 0))
    assert table.latest_snapshot() is None
    assert sinks(table) == []


def test_a_catalog_that_keeps_no_lineage_gets_none(tmp_path: Path) -> None:
    """LN-07, LN-13: and its snapshots do not speak of it."""
    table = lineage_table(tmp_path, **{"table-lineage": "false", "data-lineage": "false"})
    table.write(ROWS)
    assert lineage_of_table(table.store) is None
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert CommitOrigin.of(snapshot) is None
    assert Recorder.of(FileTable.open("db.t", table.store.paths.root).store) is None  # by its path, without a catalog


class Listener:
    """Notes what it gets, and fails at the second commit."""

    reported: ClassVar[list[tuple[str, int, int, str]]] = []

    def __init__(self, table: TableStore) -> None:
        self.table = table.name

    def notify_commit_complete(self, identifier: int, snapshot_id: int, commit_kind: CommitKind) -> None:
        Listener.reported.append((self.table, identifier, snapshot_id, commit_kind.value))
        if snapshot_id == 2:
            raise ValueError("it was injected")


def test_listeners_are_told_of_commits_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-74: with identifier, snapshot and kind; not of compactions; what they raise changes nothing."""
    monkeypatch.setattr(after_commit, "_factory", {"mine": Listener}.__getitem__)
    catalog = Catalog(str(tmp_path / "warehouse"))
    options = {"bucket": "1", "commit.callbacks": "mine"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options=options)
    table.write(ROWS)
    table.overwrite(ROWS)
    table.compact(full=True)
    table.write(ROWS)
    assert [each[2:] for each in Listener.reported] == [(1, "APPEND"), (2, "OVERWRITE"), (3, "APPEND")]
    assert {each[:2] for each in Listener.reported} == {("db.t", BATCH_IDENTIFIER)}
    assert len(sinks(table)) == 3


def test_a_listener_that_nobody_has_installed_is_refused_before_a_row(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path / "warehouse")).create_table("db.t", SCHEMA, options={"commit.callbacks": "os:system"})
    with pytest.raises(InvalidInputError, match=r"commit.callbacks=os:system known=\[\]"):
        table.write(ROWS)
    assert table.latest_snapshot() is None


def test_a_branch_is_a_table_of_its_own(tmp_path: Path) -> None:
    table = lineage_table(tmp_path)
    table.write(ROWS, options={"pipeline.name": "load"})
    with table.audit_branch("fix", snapshot_id=1, keep=True) as fix:
        fix.write(ROWS, options={"pipeline.name": "repair"})
    assert [(job, name, snapshot) for job, _, name, snapshot in sinks(table)] == [
        ("load", "t", 1),
        ("repair", "t$branch_fix", 2),
    ]


def test_what_was_committed_and_not_told_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-02: processes that died between commit and lineage; asked again, nothing is missing, and little is read."""
    table = lineage_table(tmp_path)
    expected = []
    for number in range(9):
        with monkeypatch.context() as dying:
            if number in (3, 6, 7, 8):
                dying.setattr(Lineage, "store", _dies)
            with suppress(KeyboardInterrupt):
                table.write(ROWS, options={"pipeline.name": f"job{number}"})
        expected.append((f"job{number}", number + 1))
    assert len(sinks(table)) == 5
    repaired = repair_lineage(table)
    assert repaired.to_pylist() == [{"table": "db.t", "recorded": 4, "dropped": 0}]
    assert sorted((job, snapshot) for job, _, _, snapshot in sinks(table)) == expected
    assert repair_lineage(table).to_pylist() == [{"table": "db.t", "recorded": 0, "dropped": 0}]


def test_a_batch_that_is_run_again_is_told_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-02: a stream that died behind its commit; what is committed is found by user and identifier."""
    table = lineage_table(tmp_path)
    reads = (SourceRead(warehouse=str(tmp_path / "warehouse"), table="db.source", snapshot_id=7),)

    def run(batch_id: int) -> None:
        session = WriteSession(
            table.files,
            LocalRunner(),
            commit_user="query",
            options=NO_OPTIONS,
            upkeep=Upkeep.STREAM,
            origin=lambda batch_id, rows: CommitOrigin(job="job", barrier_id=batch_id, reads=reads),
        )
        with session:
            session.write(ROWS.to_batches(), batch_id=batch_id)

    run(0)
    with monkeypatch.context() as dying:
        dying.setattr(Lineage, "store", _dies)
        with pytest.raises(KeyboardInterrupt):
            run(1)
    assert sinks(table) == [("job", 0, "t", 1)]
    for batch_id in (1, 1, 2):
        run(batch_id)
    assert sinks(table) == [("job", each, "t", each + 1) for each in range(3)]
    sources = lineage(table).meta.source_data_lineages()
    assert [(each.barrier_id, each.table, each.snapshot_id) for each in sources] == [
        (each, "source", 7) for each in range(3)
    ]


def _dies(self: Lineage, records: LineageRecords) -> None:
    raise KeyboardInterrupt


def test_a_store_that_is_down_costs_no_row(tmp_path: Path) -> None:
    """LN-02: with lineage.on-unavailable=fail a write fails before its rows, or says that they are there."""
    place = tmp_path / "place"
    place.mkdir()
    options = {"jdbc.url": f"sqlite:///{place}/lineage.sqlite", "lineage.on-unavailable": "fail"}
    table = lineage_table(tmp_path, **options)
    (place / "lineage.sqlite").unlink()
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(CommittedError, match=r"rows are visible, .* table=db.t snapshot=1 .*do not write these rows"):
        table.write(ROWS, options={"pipeline.name": "load"})
    assert table.read().to_arrow().num_rows == 2
    recording._kept.clear()  # as another process
    with pytest.raises(UnavailableError, match="nothing is written"):
        table.write(ROWS, options={"pipeline.name": "load"})
    assert table.read().to_arrow().num_rows == 2
    place.mkdir()
    assert repair_lineage(table).to_pylist() == [{"table": "db.t", "recorded": 1, "dropped": 0}]
    assert [(job, snapshot) for job, _, _, snapshot in sinks(table)] == [("load", 1)]


def test_a_store_of_another_catalog_is_refused_before_a_row(tmp_path: Path) -> None:
    """LN-02: what is refused behind a commit is written twice by those who mend their options and write again."""
    shared = {"jdbc.url": f"sqlite:///{tmp_path}/shared.sqlite"}
    lineage_table(tmp_path / "a", **shared).write(ROWS)
    with pytest.raises(InvalidInputError, match=r"belong to another catalog: .*fix="):
        lineage_table(tmp_path / "b", **shared)
    assert Catalog(str(tmp_path / "b" / "warehouse")).list_databases() == []


def test_a_writer_with_the_store_of_another_catalog_writes_nothing(tmp_path: Path) -> None:
    """LN-02: the table is there, the catalog is opened with another store."""
    mine, theirs = (f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("mine", "theirs"))
    lineage_table(tmp_path / "a", **{"jdbc.url": theirs}).write(ROWS)
    lineage_table(tmp_path / "b", **{"jdbc.url": mine}).write(ROWS)
    table = Catalog(str(tmp_path / "b" / "warehouse"), options={"jdbc.url": theirs}).table("db.t")
    with pytest.raises(InvalidInputError, match="belong to another catalog"):
        table.write(ROWS)
    assert table.store.snapshots.latest_id() == 1


def test_a_store_that_changes_hands_under_a_writer_costs_no_row(tmp_path: Path) -> None:
    """LN-02: the records wait in the queue; with another policy the error says that the rows are in."""
    place = tmp_path / "shared.sqlite"
    options = {"jdbc.url": f"sqlite:///{place}"}
    table = lineage_table(tmp_path / "a", **options)
    table.write(ROWS)
    place.unlink()
    lineage_table(tmp_path / "b", **options).write(ROWS)
    table.write(ROWS)
    assert len([*(tmp_path / "a" / "warehouse" / ".fluvial" / "lineage-queue").iterdir()]) == 1
    strict = Catalog(str(tmp_path / "a" / "warehouse"), options={**options, "lineage.on-unavailable": "wait"})
    kept = recording._opened_at(strict.table("db.t").store.catalog, strict.file_io)
    assert kept is not None
    kept[0]._is_checked = True
    with pytest.raises(CommittedError, match=r"rows are visible, .*snapshot=3 .*belong to another catalog"):
        strict.table("db.t").write(ROWS)


@pytest.mark.parametrize("is_named", [False, True])
def test_a_catalog_that_is_made_again_in_one_process_has_its_own_lineage(tmp_path: Path, is_named: bool) -> None:
    """LN-02: its id is another one, and its store an empty one."""
    options = {"jdbc.url": f"sqlite:///{tmp_path}/warehouse/own.sqlite"} if is_named else {}
    for _ in range(3):
        table = lineage_table(tmp_path, **options)
        table.write(ROWS, options={"pipeline.name": "load"})
        assert [(job, snapshot) for job, _, _, snapshot in sinks(table)] == [("load", 1)]
        shutil.rmtree(tmp_path / "warehouse")
