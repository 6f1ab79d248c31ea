"""remove_orphan_files, verify, repair and repair_earliest_snapshot, by Python, SQL and the shell."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_FAILED
from engine.procedures import (
    create_branch,
    create_savepoint,
    create_tag,
    expire_snapshots,
    remove_orphan_files,
    repair_earliest_snapshot,
    verify,
)
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import AddColumn
from filestore.layout.branch_state import Operation, Work, begin_work, seal
from filestore.scan.live_files import LiveFiles
from filestore.types.data_types import parse_data_type
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.procedures.conftest import Call
from tests.support.logs import write_batch
from tests.support.warehouses import new_table

Content = Callable[..., set[tuple[str, int, int]]]
ALL = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


def age(root: str, days: float = 2) -> None:
    """Every file of a table is older than it is."""
    then_s = time.time() - days * 86_400
    for path in Path(root).rglob("*"):
        os.utime(path, (then_s, then_s))


def test_orphans_go_and_the_table_stays(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    root = Path(table.store.paths.root)
    left = [root / "manifest" / "manifest-dead-0", root / "staging" / "u" / "1" / "x.arrow", root / "log-payload" / "y"]
    left += [root / "log-turns" / "7", root / "log-turns" / "7.beat"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    assert call("remove_orphan_files") == []
    age(table.store.paths.root)
    would_go = call("remove_orphan_files", dry_run=True)
    assert sorted(each["path"] for each in would_go) == sorted(map(str, left))
    assert {each["size_bytes"] for each in would_go} == {5}
    assert all(path.exists() for path in left)
    assert call("remove_orphan_files") == would_go
    assert not any(path.exists() for path in left)
    assert content(catalog) == ALL
    assert call("verify") == []


def test_young_files_are_not_even_asked_for(new_table: Callable[..., Table]) -> None:
    table = new_table()
    with pytest.raises(InvalidInputError, match=r"may belong to running writers: .*fix=give a time more than an hour"):
        remove_orphan_files(table, older_than=table.store.clock.now_ms() - 60_000)


def test_a_broken_table_ends_the_command_with_code_1(
    new_table: Callable[..., Table], catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table()
    live = LiveFiles.latest(table.store)
    key = next(iter(live.buckets()))
    table.store.io.delete(table.store.file_path(key.partition, key.bucket, live.files(key)[0]))
    assert {each["check"] for each in verify(table).to_pylist()} == {"data files"}
    assert run_command(["verify", "shop.orders", "--warehouse", catalog.warehouse]) == EXIT_FAILED
    assert "data files" in capsys.readouterr().out


def test_the_earliest_snapshot_can_be_said_again(new_table: Callable[..., Table], call: Call) -> None:
    table = new_table()
    table.compact(full=True)
    snapshots = table.store.snapshots
    assert call("repair_earliest_snapshot", snapshot_id=2) == [{"previous_snapshot_id": 1, "current_snapshot_id": 2}]
    assert snapshots.earliest_id() == 2
    assert [each["snapshot_id"] for each in call("expire_snapshots")] == [1]
    with pytest.raises(InvalidInputError, match=r"not the oldest of a whole history: .*snapshot_id=1 there=\[2, 3\]"):
        repair_earliest_snapshot(table, 1)


def test_a_fork_and_a_wrong_hint_are_repaired(new_table: Callable[..., Table], call: Call) -> None:
    table = new_table()
    table.compact(full=True)
    table.compact(full=True)
    paths, io = table.store.paths, table.store.io
    newest = table.store.snapshots.latest_id()
    assert newest is not None
    body = io.read_bytes(paths.snapshot(newest)).replace(f'"id": {newest}'.encode(), f'"id": {newest + 5}'.encode())
    io.write_new(paths.snapshot(newest + 5), body)
    io.replace(paths.earliest_hint, b"2")
    assert {each["check"] for each in verify(table).to_pylist()} == {"fork", "hint"}
    would_do = call("repair", dry_run=True)
    assert [each["action"] for each in would_do] == ["tag fork", "remove fork", "set hint"]
    assert call("repair") == would_do
    assert (call("repair"), verify(table).num_rows) == ([], 0)


def test_a_savepoint_without_its_tag_gets_it_again(new_table: Callable[..., Table], call: Call) -> None:
    """The table was renamed, or the process died, behind the one and before the other."""
    table = new_table()
    create_savepoint(table, compact=False)
    io, path = table.store.io, table.store.paths.tag("savepoint-1")
    body = io.read_bytes(path)
    io.delete(path)
    (found,) = verify(table).to_pylist()
    assert (found["check"], found["subject"]) == ("savepoint", "tag savepoint-1")
    assert "fix=run repair" in found["problem"]
    (would_do,) = call("repair", dry_run=True)
    assert (would_do["action"], would_do["subject"]) == ("create tag of savepoint", "savepoint 1")
    assert not io.exists(path)
    assert call("repair") == [would_do]
    assert io.read_bytes(path) == body
    assert (call("repair"), verify(table).num_rows) == ([], 0)


def test_an_interrupted_replacement_of_main_is_completed(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """BR-16: main is sealed until then."""
    table = new_table()
    create_branch(table, "dev", snapshot=2)
    paths, io = table.store.paths, table.store.io
    begin_work(io, paths.with_branch("dev"), Work(operation=Operation.REPLACE_MAIN, arguments={"was": "main"}))
    seal(io, paths, Work(operation=Operation.REPLACE_MAIN, arguments={"to": "dev"}))
    with pytest.raises(ConflictError, match=r"is sealed for that, so nothing was tagged: .*run repair"):
        create_tag(table, "late")
    assert [each["subject"] for each in verify(table).to_pylist()] == ["main", "dev"]
    would_do = call("repair", dry_run=True)[0]
    assert (would_do["action"], would_do["subject"]) == ("complete replacement of main", "branch dev")
    done = call("repair")[0]
    assert done["detail"] == "operation=replace-main was=main main=dev dropped=main"
    assert (call("repair"), call("verify")) == ([], [])
    create_tag(catalog.table("shop.orders"), "late")
    assert content(catalog) == ALL


def test_an_interrupted_merge_is_completed(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """It has published the branch's schema, and died before its commit."""
    table = new_table()
    create_branch(table, "dev", snapshot=2)
    paths, io = table.store.paths, table.store.io
    publish_changes(
        catalog.table("shop.orders$branch_dev").store, lambda _: [AddColumn(path=("w",), type=parse_data_type("INT"))]
    )
    there = catalog.table("shop.orders$branch_dev")
    there.write(there.read().to_arrow().slice(0, 1).set_column(1, "id", pa.array([77], pa.int64())))
    begin_work(io, paths.with_branch("dev"), Work(operation=Operation.MERGE))
    io.write_new(paths.schema(1), io.read_bytes(paths.with_branch("dev").schema(1)))
    newest = table.latest_snapshot()
    assert newest is not None
    would_do = call("repair", dry_run=True)
    assert [(each["action"], each["subject"]) for each in would_do] == [("complete merge", "branch dev")]
    assert call("repair")[0]["detail"] == f"snapshot={newest.id + 1}"
    assert (call("repair"), call("verify")) == ([], [])
    assert 77 in {row[1] for row in content(catalog)}


@pytest.mark.broker
def test_a_batch_that_is_in_the_log_keeps_its_files(tmp_path: Path, broker: Broker) -> None:
    """design.md 3.5: log slice and files belong together, however long the query stands still."""
    table = new_table(tmp_path, pa.schema([("id", pa.int64())]), broker=broker, options={"bucket": "2"})
    table.write(pa.table({"id": [1, 2, 3]}))
    assert verify(table).num_rows == 0
    writer = BatchWriter(table.files, table.log, commit_user="query")

    def die(spec: BatchSpec) -> list[BucketResult]:
        write_part(spec, pa.table({"id": list(range(4, 40))}).to_batches())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.write(7, die)
    dead = Path(table.store.paths.root) / "manifest" / "manifest-dead-0"
    dead.write_bytes(b"")
    age(table.store.paths.root)
    assert remove_orphan_files(table).column("path").to_pylist() == [str(dead)]
    problems = verify(table).to_pylist()
    assert [each["check"] for each in problems] == ["log", "log"]
    assert "query=query batch=7" in problems[0]["problem"]
    again = BatchWriter(table.files, table.log, commit_user="query")
    again.write(7, lambda spec: [])
    assert sorted(table.read().to_arrow().column("id").to_pylist()) == list(range(1, 40))
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert verify(table).num_rows == 0


@pytest.mark.broker
def test_a_batch_whose_snapshot_expired_is_known_by_the_log(tmp_path: Path, broker: Broker) -> None:
    """FL-72: a query that was away for longer than snapshots are kept does not write its last batch again."""
    table = new_table(tmp_path, pa.schema([("id", pa.int64())]), broker=broker, options={"bucket": "2"})
    rows = pa.table({"id": list(range(20))})
    write_batch(BatchWriter(table.files, table.log, commit_user="query"), 7, rows)
    for _ in range(2):
        table.compact(full=True)
        drop = table.files.with_options({"log.system": "none"})
        drop.write(pa.table({"id": [100]}))
    expire_snapshots(table, retain_max=1, retain_min=1)
    offsets = table.log_end_offsets()
    again = BatchWriter(table.files, table.log, commit_user="query")
    done = write_batch(again, 7, rows)
    assert done.already_committed
    assert table.log_end_offsets() == offsets
    assert sorted(table.read().to_arrow().column("id").to_pylist()) == [*range(20), 100]
    assert not write_batch(again, 8, pa.table({"id": [20]})).already_committed
    assert verify(table).num_rows == 0
