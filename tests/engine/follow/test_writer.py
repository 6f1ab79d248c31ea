"""``Table.writer``: small writes put together, each once by name and number, from threads and asyncio."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.follow.writer import SmallWrite, WriteQueue
from engine.lineage.after_commit import AfterCommit
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, StepEvent
from engine.write.session import LocalRunner, Upkeep, WriteSession
from lsm.errors import CommittedError, InvalidInputError
from tests.support.logs import log_changes
from tests.support.markdown import ROOT
from tests.support.tables import content
from tests.support.warehouses import ID_SCHEMA


def one_row(key: int, v: str = "x", kind: str = "+I") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": [key], "v": [v], "_row_kind": [kind]})


@pytest.fixture(params=[pytest.param("broker", id="log"), "files"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    """Rows without a key, so that a row that is written twice shows."""
    found = {"bucket": "2", "bucket-key": "id"}
    if request.param == "broker":
        broker: Broker = request.getfixturevalue(request.param)
        found["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
    return found


@pytest.fixture
def table(catalog: Catalog, options: dict[str, str]) -> Table:
    return catalog.create_table("db.t", ID_SCHEMA, options=options)


def stored_ids(table: Table) -> list[int]:
    """Ids of all rows; the log has the same."""
    rows = sorted(table.read().to_arrow()["id"].to_pylist())
    if table.log is not None:
        assert sorted(row["id"] for _, row in log_changes(table)) == rows
    return rows


@pytest.mark.sweep
def test_threads_write_together(table: Table) -> None:
    """A handle is there when the rows are; 200 writes are few commits; one more by its time."""
    with table.writer("many", max_delay_s=0.02) as writer, ThreadPoolExecutor(8) as pool:
        handles = [done.result() for done in pool.map(lambda key: writer.write(one_row(key)), range(200))]
        assert stored_ids(table) == list(range(200))
        last = writer.write(one_row(200)).result(20)
        assert last.snapshot_id > max(handle.snapshot_id for handle in handles[:1])
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.id < 60
    assert stored_ids(table) == list(range(201))


@pytest.mark.sweep
def test_a_number_is_written_once(table: Table) -> None:
    """In one run, and by the next one, in other groups; each answer is the handle of a commit that has the rows."""
    with table.writer("w", max_rows=2) as writer:
        first = [writer.write(one_row(number), number=number) for number in range(1, 6)]
        again = [writer.write(one_row(number), number=number) for number in range(1, 6)]
        handles = [done.result(20) for done in first]
        assert [done.result(20) for done in again] == handles
        later = [writer.write(one_row(number), number=number) for number in range(1, 6)]
        for before, done in zip(handles, later, strict=True):
            assert done.result(20).snapshot_id >= before.snapshot_id
    with table.writer("w") as writer:
        assert writer.last_number == 5
        done = [writer.write(one_row(number), number=number) for number in range(1, 9)]
    for before, each in zip(handles, done, strict=False):
        assert each.result().snapshot_id >= before.snapshot_id
    assert stored_ids(table) == list(range(1, 9))


class KilledHalfWay(Exception):
    """What kills a writer of another process."""


@pytest.mark.broker
@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_half_done_commit_is_completed(catalog: Catalog, broker: Broker, is_numbered: bool) -> None:
    """The log of one bucket has the numbers 1 to 4, the other has not: the same four come again, and none twice."""
    options = {"bucket": "2", "bucket-key": "id", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table = catalog.create_table("db.half", ID_SCHEMA, options=options)
    rows = [one_row(number) for number in range(1, 5)]

    def die(event: StepEvent) -> None:
        if event.step is Step.LOG_COMMITTED:
            raise KilledHalfWay

    session: WriteSession[Any] = WriteSession(
        table.files, LocalRunner(), commit_user="w", options=NO_OPTIONS, upkeep=Upkeep.STREAM,
        origin=lambda batch_id, rows: None, observe=die,
    )  # fmt: skip
    with pytest.raises(KilledHalfWay):
        session.write(rows, batch_id=4)
    session.close()
    assert table.latest_snapshot() is None
    with table.writer("w", max_rows=1) as writer:
        assert (writer.last_number, writer.half_done_number) == (0, 4)
        if not is_numbered:
            writer.write(one_row(9)).result(30)
            assert set(stored_ids(table)) - {9} < {1, 2, 3, 4}  # what the dead writer had logged; not acknowledged
            return
        first = [writer.write(one_row(number), number=number) for number in (1, 2, 3)]
        with pytest.raises(InvalidInputError, match="half done"):
            writer.write(one_row(5), number=5)
        done = [*first, writer.write(one_row(4), number=4), writer.write(one_row(5), number=5)]
        assert len({each.result(30).snapshot_id for each in done[:4]}) == 1
        assert done[4].result(30).snapshot_id > done[0].result().snapshot_id
    assert stored_ids(table) == [1, 2, 3, 4, 5]


def test_a_row_that_cannot_be_held_takes_no_other_with_it(catalog: Catalog) -> None:
    """Refused at once where the rows say it, else when they are written; its number is used up."""
    table = catalog.create_table(
        "db.first", ID_SCHEMA, primary_key=["id"], options={"merge-engine": "first-row", "bucket": "1"}
    )
    with table.writer("w", max_delay_s=5) as writer:
        with pytest.raises(InvalidInputError):
            writer.write(pa.RecordBatch.from_pydict({"nope": [1]}), number=1)
        with pytest.raises(InvalidInputError):
            writer.write(pa.RecordBatch.from_pydict({"id": pa.nulls(1, pa.int64())}), number=1)
        done = [writer.write(one_row(key, kind="-D" if key == 2 else "+I"), number=key) for key in (1, 2, 3)]
        with pytest.raises(InvalidInputError):
            writer.flush()
        assert done[0].result(20).snapshot_id < done[2].result(20).snapshot_id
        with pytest.raises(InvalidInputError, match="used up"):
            writer.write(one_row(2), number=2)
        with pytest.raises(InvalidInputError, match="have numbers, or none"):
            writer.write(one_row(4))
        with pytest.raises(InvalidInputError, match="at least one row"):
            writer.write(one_row(4).slice(1), number=4)
    with pytest.raises(InvalidInputError, match="closed"):
        writer.write(one_row(4), number=4)
    assert sorted(content(table.files)) == [1, 3]


@pytest.mark.sweep
def test_a_second_writer_of_the_name_takes_over(catalog: Catalog) -> None:
    table = catalog.create_table("db.two", ID_SCHEMA)
    first = table.writer("w", max_delay_s=0)
    first.write(one_row(1)).result(20)
    with table.writer("w", max_delay_s=0) as second:
        second.write(one_row(2)).result(20)
        with pytest.raises(Exception, match="taken over"):
            first.write(one_row(3)).result(20)
        with pytest.raises(Exception, match="taken over"):
            first.write(one_row(4))
    first.close()
    assert stored_ids(table) == [1, 2]


@pytest.mark.sweep
def test_asyncio_and_back_pressure(catalog: Catalog) -> None:
    """A hundred tasks; no more waits than the limit allows, four times a commit."""
    table = catalog.create_table("db.a", ID_SCHEMA)
    size = one_row(0, "x" * 1000).nbytes
    threads_before = threading.active_count()

    async def write() -> int:
        with table.writer("w", max_bytes=10 * size, max_delay_s=0.001) as writer:
            most = 0

            async def one(key: int) -> None:
                nonlocal most
                await writer.send(one_row(key, "x" * 1000))
                most = max(most, writer._queue.size_bytes)

            await asyncio.gather(*(one(key) for key in range(100)))
            return most

    assert asyncio.run(write()) <= 42 * size
    assert stored_ids(table) == list(range(100))
    assert threading.active_count() < threads_before + 60


@pytest.mark.long
@pytest.mark.broker
def test_a_killed_service_writes_each_number_once(catalog: Catalog, broker: Broker, tmp_path: Path) -> None:
    """kill -9 at any moment of a commit to log and files; the next run continues behind what the table knows."""
    options = {"bucket": "2", "bucket-key": "id", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    table = catalog.create_table("db.killed", ID_SCHEMA, options=options)
    job = Path(__file__).with_name("write_job.py")
    for dies_at in (8, 22, 0):
        command = [sys.executable, str(job), str(tmp_path / "warehouse"), "db.killed", "40", str(dies_at)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in ((0, -9) if dies_at else (0,)), done.stderr
    assert Counter(stored_ids(table)) == Counter(range(2, 82))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 3)), max_size=30), st.integers(0, 6), st.integers(0, 3))
def test_the_queue_gives_each_number_once_and_in_order(calls: list[tuple[int, int]], half_done: int, last: int) -> None:
    """Whatever comes in whatever order; a half done group is exactly that group."""
    half_done = half_done if half_done > last else 0
    queue = WriteQueue(last_number=last, half_done=half_done)
    groups: list[list[int]] = []
    for number, count in calls:
        try:
            if queue.known(number) is None:
                queue.add(
                    SmallWrite(number=number, rows=one_row(number), done=None, since_s=0.0)  # type: ignore[arg-type]
                )
        except InvalidInputError:
            continue
        if queue.due_s(max_rows=count, max_bytes=1 << 30, max_delay_s=1, is_flush=False) == 0:
            taken = queue.take(max_rows=count, max_bytes=1 << 30)
            groups.append([each.number for each in taken])
            queue.committed(taken)
    given_numbers = [number for group in groups for number in group]
    assert given_numbers == sorted(set(given_numbers))
    assert all(number > last for number in given_numbers)
    if half_done and groups:
        assert groups[0][-1] == half_done
    assert queue.row_count == len(queue.waiting)


@pytest.mark.parametrize("end", ["dropped", "replaced", "branch deleted"])
def test_a_writer_whose_table_is_no_longer_there_says_so_at_its_end(
    catalog: Catalog, options: dict[str, str], end: str
) -> None:
    """Who waits for no answer would lose the rows without a word."""
    table = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=options)
    table.write(one_row(1))
    table.branches.create("b", snapshot_id=1, log="log.kafka.bootstrap.servers" in options)
    opened = catalog.table("db.t$branch_b") if end == "branch deleted" else table
    ends = {
        "dropped": lambda: catalog.drop_table("db.t"),
        "replaced": lambda: table.branches.replace_main("b"),
        "branch deleted": lambda: table.branches.delete("b"),
    }

    def write_to_the_end() -> None:
        with opened.writer("w") as writer:
            ends[end]()
            writer.write(one_row(2))

    with pytest.raises(InvalidInputError, match=r"table=db\.t"):
        write_to_the_end()


def test_rows_that_are_visible_are_not_refused_because_their_table_was_renamed_since(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who reads "refused" writes the rows again, and a table without a key has them twice."""
    table = catalog.create_table("db.t", ID_SCHEMA, options={"bucket": "2", "bucket-key": "id"})
    report = AfterCommit.report

    def renamed(after: AfterCommit, *parts: Any, **more: Any) -> None:
        report(after, *parts, **more)
        if catalog.table_exists("db.t"):
            catalog.rename_table("db.t", "db.u")

    monkeypatch.setattr(AfterCommit, "report", renamed)
    writer = table.writer("w", max_delay_s=0.0, timeout_s=5.0)
    future = writer.write(one_row(1), number=1)
    with pytest.raises(CommittedError, match=r"rows are visible: table=db.t snapshot=1 .*table is gone"):
        future.result()
    writer.close()
    assert stored_ids(catalog.table("db.u")) == [1]
