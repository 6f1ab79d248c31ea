"""What lineage says after recoveries: new checkpoints, rollbacks, tables made again and renamed, branches made main.

Each is an example of what ``test_truth`` compares for random histories.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table, procedures
from engine.cli.app import run_command
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.origins import CommitOrigin, SourceRead
from engine.lineage.recording import Recorder
from engine.lineage.stream_job import RecordedRun, StreamJob
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": [1]}, schema=SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(str(tmp_path))


def loaded_table(catalog: Catalog, name: str, snapshots: int = 0) -> Table:
    table = catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for _ in range(snapshots):
        table.write(ROWS, options={"pipeline.name": "load"})
    return table


def stream(catalog: Catalog, target: str, source: str, *reads: int, job: str = "clean", run: str = "query-1") -> None:
    """Batches 0, 1, ... of a query, each up to a snapshot of its source."""
    table, of = catalog.table(target), catalog.table(source).store
    for batch_id, snapshot_id in enumerate(reads):
        read = SourceRead.of(of, of.snapshots.read(snapshot_id))
        assert read is not None
        origin = CommitOrigin(job=job, barrier_id=batch_id, reads=(read,), run=run)
        session = WriteSession(
            table.files, LocalRunner(), commit_user=run, options=NO_OPTIONS, upkeep=Upkeep.BATCH,
            origin=lambda batch_id, rows, origin=origin: origin,
        )  # fmt: skip
        with session:
            session.write(ROWS.to_batches(), batch_id=batch_id)


def written(catalog: Catalog, job: str | None = None) -> list[tuple[Any, ...]]:
    rows = catalog.system_table("paimon.sink_snapshot_lineage").to_arrow().to_pylist()
    return [(row["job"], row["table"], row["snapshot_id"]) for row in rows if job in (None, row["job"])]


def made_of(catalog: Catalog, table: str, snapshot_id: int) -> set[tuple[str, str, int]]:
    rows = catalog.system_table("paimon.upstream_snapshots").to_arrow(
        filter=f"`table` = '{table}' AND snapshot_id = {snapshot_id} AND depth = 1"
    )
    return {(row["job"], row["upstream_table"], row["upstream_snapshot_id"]) for row in rows.to_pylist()}


def hit(table: Table, snapshot_id: int) -> set[tuple[str, int]]:
    return {(row["table"], row["snapshot_id"]) for row in procedures.impact(table, snapshot_id).to_pylist()}


@pytest.mark.sweep
def test_a_job_that_begins_with_a_new_checkpoint_keeps_its_lineage(catalog: Catalog) -> None:
    """LN-02, LN-28, LN-29: batches are counted from 0 again, and both runs are known."""
    raw = loaded_table(catalog, "shop.raw", snapshots=4)
    loaded_table(catalog, "shop.orders")
    stream(catalog, "shop.orders", "shop.raw", 1, 2, 3, 4)
    raw.write(ROWS)
    raw.write(ROWS)
    stream(catalog, "shop.orders", "shop.raw", 6, run="query-2")
    assert made_of(catalog, "orders", 5) == {("clean", "raw", 6)}
    assert made_of(catalog, "orders", 1) == {("clean", "raw", 1)}
    assert hit(raw, 5) == {("shop.orders", 5)}
    assert hit(raw, 3) == {("shop.orders", 3)}
    assert written(catalog, "clean") == [("clean", "orders", 5), *(("clean", "orders", each) for each in (2, 3, 4))]
    assert procedures.repair_lineage(catalog.table("shop.orders")).to_pylist() == [
        {"table": "shop.orders", "recorded": 0, "dropped": 0}
    ]


def test_a_rollback_takes_its_snapshots_out_of_lineage(catalog: Catalog) -> None:
    """LN-06: the number of a snapshot is used again, by another job."""
    table = loaded_table(catalog, "shop.t")
    for job in "abc":
        table.write(ROWS, options={"pipeline.name": job})
    procedures.rollback(table, snapshot=1)
    catalog.table("shop.t").write(ROWS, options={"pipeline.name": "z"})
    assert written(catalog) == [("a", "t", 1), ("z", "t", 2)]
    jobs = catalog.system_table("paimon.upstream_jobs").to_arrow(filter="`table` = 't'")["job"].to_pylist()
    assert sorted(jobs) == ["a", "z"]


def test_a_table_that_is_made_again_begins_without_lineage(catalog: Catalog) -> None:
    """LN-06: readers of the former table have not read this one."""
    loaded_table(catalog, "shop.raw", snapshots=2)
    loaded_table(catalog, "shop.orders")
    stream(catalog, "shop.orders", "shop.raw", 2)
    catalog.drop_table("shop.raw")
    raw = loaded_table(catalog, "shop.raw", snapshots=2)
    assert hit(raw, 1) == set()
    ((job, name, snapshot_id),) = made_of(catalog, "orders", 1)
    assert (job, name.partition("$dropped_")[0], snapshot_id) == ("clean", "raw", 2)
    assert "$dropped_" in name
    catalog.drop_table("shop.raw")
    assert made_of(catalog, "orders", 1) == {("clean", "raw", 2)}, "nothing else has the name"


def test_tables_keep_their_lineage_when_they_swap_names(catalog: Catalog) -> None:
    """LN-28: ids of tables count, not names."""
    loaded_table(catalog, "shop.a", snapshots=1)
    loaded_table(catalog, "shop.b", snapshots=2)
    loaded_table(catalog, "shop.c")
    stream(catalog, "shop.c", "shop.a", 1)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        catalog.rename_table(f"shop.{old}", f"shop.{new}")
    assert made_of(catalog, "c", 1) == {("clean", "b", 1)}
    assert hit(catalog.table("shop.a"), 1) == set()
    assert hit(catalog.table("shop.b"), 1) == {("shop.c", 1)}


def test_a_branch_that_becomes_main_brings_its_lineage(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    """LN-35 to LN-41, LN-75: what a recovery published is what the next question is about."""
    table = loaded_table(catalog, "shop.t")
    for job in "abc":
        table.write(ROWS, options={"pipeline.name": job})
    procedures.create_branch(table, "fix", snapshot=1)
    for job in ("fix1", "fix2"):
        catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": job})
    assert ("fix1", "t$branch_fix", 2) in written(catalog)
    procedures.replace_main_branch(table, "fix")
    assert written(catalog) == [("a", "t", 1), ("fix1", "t", 2), ("fix2", "t", 3)]
    assert run_command(["lineage", "shop.t", "--snapshot", "2", "--warehouse", catalog.warehouse]) == 0
    assert "job fix1 batch" in (out := capsys.readouterr().out), out
    assert "job b" not in out


@pytest.mark.sweep
def test_a_branch_that_is_made_again_begins_without_lineage(catalog: Catalog) -> None:
    """LN-28, LN-75: what was read from the former one was not read from this one, whatever became main meanwhile."""
    table = loaded_table(catalog, "shop.t", snapshots=1)
    loaded_table(catalog, "shop.orders")
    for job, run in (("one", "query-1"), ("two", "query-2")):
        procedures.create_branch(table, "fix", snapshot=1)
        catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": job})
        stream(catalog, "shop.orders", "shop.t$branch_fix", 2, job=f"of-{job}", run=run)
        assert written(catalog, job) == [(job, "t$branch_fix", 2)]
        if job == "one":
            procedures.delete_branch(table, "fix")
    assert written(catalog, "one") == []
    branch = catalog.table("shop.t$branch_fix")
    assert hit(branch, 2) == {("shop.orders", 2)}
    assert made_of(catalog, "orders", 2) == {("of-two", "t$branch_fix", 2)}
    ((_, former, _),) = made_of(catalog, "orders", 1)
    assert former.startswith("t$branch_fix$dropped_")
    procedures.replace_main_branch(table, "fix")
    assert hit(catalog.table("shop.t"), 2) == {("shop.orders", 2)}
    table = catalog.table("shop.t")
    procedures.replace_main_branch(table, "main")
    procedures.create_branch(catalog.table("shop.t"), "fix", snapshot=1)
    assert hit(catalog.table("shop.t"), 2) == {("shop.orders", 2)}
    assert made_of(catalog, "orders", 2) == {("of-two", "t", 2)}
    assert made_of(catalog, "orders", 1) == {("of-one", former, 2)}


@pytest.mark.sweep
def test_a_merge_has_read_the_branch_of_then(catalog: Catalog) -> None:
    """LN-75: not the one that has its name by now."""
    table = loaded_table(catalog, "shop.t", snapshots=1)
    procedures.create_branch(table, "fix", snapshot=1)
    catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": "one"})
    table.write(pa.table({"id": [2]}, schema=SCHEMA), options={"pipeline.name": "load"})
    procedures.merge_branch(table, "fix")
    merged = catalog.table("shop.t").latest_snapshot()
    assert merged is not None
    ((job, read, _),) = made_of(catalog, "t", merged.id)
    assert (job, read) == ("merge:shop.t$branch_fix", "t$branch_fix")
    procedures.delete_branch(table, "fix")
    procedures.create_branch(table, "fix", snapshot=1)
    catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": "two"})
    ((_, read, _),) = made_of(catalog, "t", merged.id)
    assert read.startswith("t$branch_fix$dropped_")
    assert hit(catalog.table("shop.t$branch_fix"), 2) == set()


def test_a_branch_keeps_its_lineage_under_another_name(catalog: Catalog) -> None:
    """LN-28: its creation counts, not its name."""
    table = loaded_table(catalog, "shop.t", snapshots=1)
    loaded_table(catalog, "shop.orders")
    procedures.create_branch(table, "fix", snapshot=1)
    catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": "one"})
    stream(catalog, "shop.orders", "shop.t$branch_fix", 2)
    procedures.rename_branch(table, "fix", "other")
    assert written(catalog, "one") == [("one", "t$branch_other", 2)]
    assert hit(catalog.table("shop.t$branch_other"), 2) == {("shop.orders", 1)}


def test_a_merge_is_a_job_that_has_read_the_branch(catalog: Catalog) -> None:
    """LN-75: main takes what the branch has."""
    table = loaded_table(catalog, "shop.t", snapshots=1)
    procedures.create_branch(table, "fix", snapshot=1)
    catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": "repair"})
    table.write(pa.table({"id": [2]}, schema=SCHEMA), options={"pipeline.name": "load"})
    procedures.merge_branch(table, "fix", force=True)
    newest = catalog.table("shop.t").latest_snapshot()
    assert newest is not None
    assert made_of(catalog, "t", newest.id) == {("merge:shop.t$branch_fix", "t$branch_fix", 2)}


@pytest.mark.sweep
def test_a_merge_into_the_parent_of_a_branch_goes_with_that_one(catalog: Catalog) -> None:
    """Issue 16 points 6 and 7: a branch of a branch; the parent becomes main and moves into the table's directory."""
    table = loaded_table(catalog, "shop.t", snapshots=1)
    procedures.create_branch(table, "dev", snapshot=1)
    procedures.create_branch(catalog.table("shop.t$branch_dev"), "fix", snapshot=1)
    catalog.table("shop.t$branch_fix").write(ROWS, options={"pipeline.name": "repair"})
    procedures.merge_branch(table, "fix")
    merge = {("merge:shop.t$branch_fix", "t$branch_fix", 2)}
    assert made_of(catalog, "t$branch_dev", 2) == merge
    assert hit(catalog.table("shop.t$branch_fix"), 2) == {("shop.t$branch_dev", 2)}
    for main in ("dev", "main"):
        procedures.replace_main_branch(table, main)
        assert made_of(catalog, "t", 2) == merge
        assert hit(catalog.table("shop.t$branch_fix"), 2) == {("shop.t", 2)}


def test_statements_of_one_program_have_no_common_ancestors(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-01, LN-26: a batch write without a name is a job of its own for each table."""
    monkeypatch.setattr("sys.argv", ["notebook"])
    for name in "ab":
        loaded_table(catalog, f"shop.{name}").write(ROWS)
    assert written(catalog) == [("notebook:shop.a", "a", 1), ("notebook:shop.b", "b", 1)]


def test_impact_does_not_leave_out_commits_whose_lineage_was_deleted(catalog: Catalog) -> None:
    """LN-29: it names them and the command, which brings them back."""
    raw = loaded_table(catalog, "shop.raw", snapshots=2)
    loaded_table(catalog, "shop.orders")
    stream(catalog, "shop.orders", "shop.raw", 1, 2)
    procedures.delete_data_lineage(catalog, "clean")
    with pytest.raises(InvalidInputError, match=r"commits=2 first=\['shop.orders@1', .*repair-lineage --all"):
        procedures.impact(raw, 2)
    assert run_command(["repair-lineage", "--all", "--warehouse", catalog.warehouse]) == 0
    assert hit(raw, 2) == {("shop.orders", 2)}


def test_impact_knows_commits_that_were_never_recorded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """LN-29: their writer died behind the commit, or the store was lost."""
    raw = loaded_table(catalog, "shop.raw", snapshots=1)
    loaded_table(catalog, "shop.orders")
    with monkeypatch.context() as dying:
        dying.setattr(Lineage, "store", _dies)
        with pytest.raises(KeyboardInterrupt):
            stream(catalog, "shop.orders", "shop.raw", 1)
    assert hit(raw, 1) == {("shop.orders", 1)}
    for path in (Path(catalog.warehouse) / ".fluvial").glob("lineage.sqlite*"):
        path.unlink()
    assert hit(raw, 1) == {("shop.orders", 1)}


def test_how_far_jobs_are_behind_their_tables(catalog: Catalog) -> None:
    """LN-04: in snapshots and in time, of each upstream."""
    raw = loaded_table(catalog, "shop.raw", snapshots=2)
    loaded_table(catalog, "shop.orders")
    stream(catalog, "shop.orders", "shop.raw", 1, 2)
    view = catalog.system_table("paimon.upstream_lateness")
    (row,) = view.to_arrow(filter="`table` = 'orders'").to_pylist()
    assert (row["job"], row["upstream_table"], row["snapshots_behind"], row["behind_ms"]) == ("clean", "raw", 0, 0)
    for _ in range(3):
        raw.write(ROWS)
    (row,) = view.to_arrow(limit=1).to_pylist()
    assert (row["read_snapshot_id"], row["newest_snapshot_id"], row["snapshots_behind"]) == (2, 5, 3)
    store = raw.store.snapshots
    assert row["behind_ms"] == store.read(5).time_ms - store.read(2).time_ms > 0


def test_the_database_of_lineage_cannot_be_dropped(catalog: Catalog) -> None:
    """LN-10."""
    catalog.create_database("shop")
    for arguments in ({}, {"if_exists": True}, {"cascade": True}):
        with pytest.raises(InvalidInputError, match="tables of this database cannot be dropped"):
            catalog.drop_database("paimon", **arguments)


def test_a_batch_job_starts_where_it_reads(catalog: Catalog) -> None:
    """LN-14, LN-24: of the streams, see ``test_spark_jobs`` and ``test_alignment``."""
    raw = loaded_table(catalog, "shop.raw", snapshots=2)
    read = SourceRead.of(raw.store, raw.latest_snapshot())
    assert read is not None
    origin = CommitOrigin(job="report", barrier_id=1 << 62, reads=(read,), run="user")
    table = loaded_table(catalog, "shop.daily")
    session = WriteSession(
        table.files, LocalRunner(), commit_user="user", options=NO_OPTIONS, upkeep=Upkeep.BATCH,
        origin=lambda batch_id, rows: origin,
    )  # fmt: skip
    with session:
        session.write(ROWS.to_batches())
    assert startups(catalog) == [("report", "raw", 2)]


def startups(catalog: Catalog) -> list[tuple[str, str, int]]:
    found = lineage_of(catalog)
    assert found is not None
    return [(each.job, each.table, each.snapshot_id) for each in found.meta.job_startups()]


def checkpointed_batch(root: Path, batch_id: int, *reads: SourceRead | None, begins: SourceRead | None = None) -> None:
    """What Spark's checkpoint has of a batch: where each source ended; None: its table was empty."""
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    ends = [{"read": None if each is None else each.to_json()} for each in reads]
    if begins is not None:
        ends[0]["begin"] = {"read": begins.to_json()}
    (root / f"offsets/{batch_id}").write_text("\n".join(["v1", "{}", *map(json.dumps, ends)]))


def test_a_table_that_was_empty_starts_with_the_first_batch_that_reads_it(catalog: Catalog, tmp_path: Path) -> None:
    """LN-14, LN-24: in the run that finds it so, not only after a restart; later batches are no starts."""
    raw, late = loaded_table(catalog, "shop.raw", snapshots=4), loaded_table(catalog, "shop.late", snapshots=3)
    root, target = tmp_path / "checkpoint", loaded_table(catalog, "shop.daily")

    def read(table: Table, snapshot_id: int) -> SourceRead | None:
        return SourceRead.of(table.store, table.store.snapshots.read(snapshot_id))

    def started(run_id: str) -> RecordedRun:
        recorder = Recorder.of(target.store)
        assert recorder is not None
        return RecordedRun(recorder, StreamJob(name="daily", checkpoint=str(root), run="query", run_id=run_id))

    checkpointed_batch(root, 0, read(raw, 2), None, begins=read(raw, 1))
    checkpointed_batch(root, 1, read(raw, 3), read(late, 1))
    checkpointed_batch(root, 2, read(raw, 4), read(late, 2))
    run = started("run-1")
    assert run.origin(0).reads == (read(raw, 2),)
    assert startups(catalog) == [("daily", "raw", 1)]
    for batch_id in (0, 1, 2):
        run.origin(batch_id)
        if batch_id:
            assert startups(catalog) == [("daily", "late", 1), ("daily", "raw", 1)]
    started("run-1").origin(2)  # another process of the same run, which did not see its first batches
    assert startups(catalog) == [("daily", "late", 1), ("daily", "raw", 1)]
    checkpointed_batch(root, 3, read(raw, 4), read(late, 3))
    started("run-2").origin(3)
    assert startups(catalog) == [("daily", "late", 2), ("daily", "raw", 4)]
    assert {
        (each["job"], each["table"])
        for each in catalog.system_table("paimon.source_job_lineage").to_arrow().to_pylist()
    } == {("daily", "raw"), ("daily", "late")}


def test_what_tasks_report_of_a_start_stays_for_its_run(catalog: Catalog) -> None:
    """LN-24: a table read beside a stream into something else; each batch may load it again, and no task knows which
    batch is the first of the run."""
    raw = loaded_table(catalog, "shop.raw", snapshots=4)
    recorder = Recorder.of(raw.store)
    assert recorder is not None
    expected = {("run-1", 1): 1, ("run-1", 2): 1, ("run-2", 3): 3, ("run-2", 4): 3}
    for (run_id, batch_id), start in expected.items():
        read = recorder.read_here(batch_id)
        recorder.has_read(CommitOrigin(job="foreign", barrier_id=batch_id, reads=(read,)), (read,), run_id=run_id)
        assert startups(catalog) == [("foreign", "raw", start)]


def _dies(self: Lineage, records: object) -> Iterator[None]:
    raise KeyboardInterrupt
