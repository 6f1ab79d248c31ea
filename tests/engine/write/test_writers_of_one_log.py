"""Writers beside a running stream: all live, none starves, and table and log hold the same rows, each once."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.types.rows import bucket_places
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.session import LocalRunner, Upkeep, WriteSession
from engine.write.ticket_queue import TURNS_DIRECTORY, TicketQueue
from filestore.commit.committable import BATCH_IDENTIFIER
from lsm.errors import ConflictError, CorruptDataError
from lsm.row_kind import RowKind
from tests.engine.write import dying_writer
from tests.support.logs import log_changes
from tests.support.warehouses import new_table

SCHEMA = pa.schema([pa.field("p", pa.string(), nullable=False), pa.field("id", pa.string(), nullable=False)])
NEW = frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER})
Session = WriteSession[Iterable[pa.RecordBatch]]


def part_rows(*ids: str, part: str = "w") -> pa.Table:
    return pa.table({"p": [part] * len(ids), "id": list(ids)}, schema=SCHEMA)


def logged_table(home: Path, broker: Broker, **options: str) -> Table:
    given = {"bucket": "2", "log.turn-lease": "2 s", **options}
    return new_table(home, SCHEMA, key=["p", "id"], broker=broker, options=given, partition_by=["p"])


class BucketByBucket(LocalRunner):
    """A bucket is begun when the one before is committed, as by tasks of one core."""

    def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        results = []
        for batch in rows:
            for _, places in bucket_places(batch, spec.table):
                results += write_part(spec, [batch if places is None else batch.take(places)])
        return results


def session_of(
    table: Table,
    user: str,
    upkeep: Upkeep = Upkeep.STREAM,
    *,
    observe: Observer = ignore,
    runner: LocalRunner | None = None,
    **options: str,
) -> Session:
    return WriteSession(
        table.files,
        runner or LocalRunner(),
        commit_user=user,
        options=WriterOptions(options) if options else NO_OPTIONS,
        upkeep=upkeep,
        origin=lambda batch_id, rows: None,
        observe=observe,
    )


class Race:
    """Writers in threads, and how often others were served while one of them waited."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.most_waits: Counter[str] = Counter()
        self.rows: list[str] = []
        self._stop = threading.Event()

    def once(self, name: str, write: Callable[[], object], *ids: str) -> None:
        before = len(self.served)
        write()
        waited = len([each for each in self.served[before:] if each != name])
        self.most_waits[name] = max(self.most_waits[name], waited)
        self.served.append(name)
        self.rows.extend(ids)

    def stream(self, table: Table, user: str) -> int:
        """Write batches until the others are done; returns how many."""
        batch = 0
        with session_of(table, user) as session:
            while not self._stop.is_set():
                ids = [f"{user}-{batch}-{each}" for each in range(4)]
                self.once(user, lambda b=batch, i=ids: session.write(part_rows(*i).to_batches(), batch_id=b), *ids)  # type: ignore[misc]
                batch += 1
        return batch

    def run(self, streams: list[Callable[[], int]], others: list[Callable[[], object]]) -> list[int]:
        with ThreadPoolExecutor(16) as pool:
            streaming = [pool.submit(each) for each in streams]
            beside = [pool.submit(each) for each in others]
            try:
                for each in beside:
                    each.result(300)
            finally:
                self._stop.set()
            return [each.result(60) for each in streaming]


def assert_same(table: Table, expected: Iterable[str], part: str = "w") -> None:
    """Each row is once in the table and once in the log."""
    wanted = Counter(expected)
    assert max(wanted.values(), default=1) == 1
    assert Counter(each["id"] for each in table.read().to_arrow().to_pylist() if each["p"] == part) == wanted
    logged = Counter(row["id"] for kind, row in log_changes(table) if kind in NEW and row["p"] == part)
    assert logged == wanted
    assert table.store.io.list_names(f"{table.store.paths.root}/{TURNS_DIRECTORY}") == []


@pytest.mark.soak
def test_a_stream_lives_beside_everything_that_writes(tmp_path: Path, broker: Broker) -> None:
    """FL-87 to FL-91: batches, changes of what was read, overwrites, compactions, a hundred in some seconds."""
    table = logged_table(tmp_path, broker)
    catalog, race = Catalog(str(tmp_path)), Race()

    def batches(name: str) -> None:
        for each in range(12):
            row = f"{name}-{each}"
            race.once(name, lambda r=row: catalog.table(table.name).write(part_rows(r)), row)  # type: ignore[misc]

    def changes() -> None:
        """What UPDATE and MERGE do: read, compute, write, if nothing changed between."""
        store = table.store
        for each in range(12):

            def change(row: str = f"changed-{each}") -> None:
                with TicketQueue(store, f"statement-{row}").turn(patience_s=60):
                    base = store.snapshots.latest()
                    table.files.compact()  # changes no rows
                    with session_of(table, f"u-{row}", Upkeep.BATCH) as session:
                        read = 0 if base is None else base.id
                        session.write(part_rows(row).to_batches(), read_snapshot_id=read)

            race.once("changes", change, f"changed-{each}")

    def overwrites() -> None:
        for each in range(24):
            table.overwrite(part_rows(f"o-{each}", part="o"), {"p": "o"})

    def compactions() -> None:
        for each in range(24):
            table.compact(full=each % 2 == 0)

    writers = [lambda name=name: batches(name) for name in ("b1", "b2", "b3")]  # type: ignore[misc]
    (count,) = race.run([lambda: race.stream(table, "stream")], [*writers, changes, overwrites, compactions])
    assert count >= 12, "the stream goes on as often as each of the others"
    assert_same(table, race.rows)
    assert [each["id"] for each in table.read().to_arrow().to_pylist() if each["p"] == "o"] == ["o-23"]
    assert max(race.most_waits.values()) <= 2 * 5, race.most_waits


WRITES = """
import sys
import pyarrow as pa
from engine import Catalog
home, name, writer = sys.argv[1:]
table = Catalog(home).table(name)
for each in range(6):
    table.write(pa.table({"p": ["w"] * 2, "id": [f"{writer}-{each}-{row}" for row in range(2)]}))
"""


@pytest.mark.long
def test_processes_write_beside_a_stream(tmp_path: Path, broker: Broker) -> None:
    """Issue 22 point 9: none takes another for dead that is milliseconds from its snapshot."""
    table, race = logged_table(tmp_path, broker), Race()

    def process(writer: str) -> None:
        command = [sys.executable, "-c", WRITES, str(tmp_path), table.name, writer]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        race.rows.extend(f"{writer}-{each}-{row}" for each in range(6) for row in range(2))

    race.run([lambda: race.stream(table, "stream")], [partial(process, name) for name in ("one", "two")])
    assert_same(table, race.rows)


def test_two_streams_and_a_batch_write_one_table(tmp_path: Path, broker: Broker) -> None:
    """FL-91."""
    table, race = logged_table(tmp_path, broker), Race()

    def batches() -> None:
        for each in range(8):
            race.once("batch", partial(table.write, part_rows(f"b-{each}")), f"b-{each}")

    counts = race.run([lambda: race.stream(table, "one"), lambda: race.stream(table, "two")], [batches])
    assert min(counts) >= 6
    assert_same(table, race.rows)


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> dict[Step, Table]:
    """Tables of which a batch writer died, one at each step."""
    home = tmp_path_factory.mktemp("deaths")
    tables = {step: logged_table(home, broker) for step in dying_writer.STEPS}
    pairs = [f"{step.value}={table.name}" for step, table in tables.items()]
    subprocess.run([sys.executable, dying_writer.__file__, str(home), *pairs], check=True, timeout=300)
    return tables


LOGGED = (Step.LOG_COMMITTED, Step.PART_DONE, Step.TASKS_DONE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", dying_writer.STEPS)
def test_after_a_killed_batch_the_next_writer_goes_on(deaths: dict[Step, Table], step: Step) -> None:
    """FL-91: what the log holds of the batch is committed, for nobody else will do it; nothing else of it is."""
    table = deaths[step]
    assert "1" in table.store.io.list_names(f"{table.store.paths.root}/{TURNS_DIRECTORY}")
    table.write(part_rows("next"))
    found = {each["id"] for each in table.read().to_arrow().to_pylist()}
    given = set(dying_writer.IDS)
    if step in LOGGED[:1]:
        assert set() < found - {"next"} < given, "one of two buckets"
    else:
        assert found - {"next"} == (given if step in (*LOGGED, Step.TABLE_COMMITTED) else set())
    assert_same(table, found)


PAUSES = (
    Step.BATCH_STARTED, Step.LOG_RECOVERED, Step.BUCKET_FENCED, Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.PART_DONE,
    Step.TASKS_DONE,
)  # fmt: skip
MANY = [f"paused-{each}" for each in range(8)]


@contextmanager
def paused(table: Table, user: str, upkeep: Upkeep, at: Step) -> Any:
    """A writer that stopped at a step, and lost its ticket to one who took it for dead. Gives what lets it go on."""
    reached, go = threading.Event(), threading.Event()

    def pause(event: StepEvent) -> None:
        if event.step is at and not reached.is_set():
            reached.set()
            assert go.wait(60)

    def write() -> None:
        batch = 0 if upkeep is Upkeep.STREAM else BATCH_IDENTIFIER
        runner = BucketByBucket()
        with session_of(table, user, upkeep, observe=pause, runner=runner) as session:
            session.write(part_rows(*MANY).to_batches(), batch_id=batch)

    with ThreadPoolExecutor(1) as pool:
        done: Future[None] = pool.submit(write)
        try:
            assert reached.wait(60)
            store = table.store
            for name in store.io.list_names(f"{store.paths.root}/{TURNS_DIRECTORY}"):
                store.io.delete(f"{store.paths.root}/{TURNS_DIRECTORY}/{name}")

            def continued() -> None:
                go.set()
                done.result(120)

            yield continued
        finally:
            go.set()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", PAUSES)
def test_a_batch_job_that_comes_back_after_its_lease_loses_no_row(tmp_path: Path, broker: Broker, step: Step) -> None:
    """Others committed for it what the log held; it finds that out, and adds the rest."""
    table = logged_table(tmp_path, broker)
    with paused(table, "job", Upkeep.BATCH, step) as go_on:
        table.write(part_rows("other", "another"))
        go_on()
    assert_same(table, ["other", "another", *MANY])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", PAUSES)
def test_a_stream_that_comes_back_after_its_lease_writes_its_batch(tmp_path: Path, broker: Broker, step: Step) -> None:
    table, expected = logged_table(tmp_path, broker), [*MANY, "last"]
    with paused(table, "query", Upkeep.STREAM, step) as go_on:
        if step in LOGGED:  # its writer is not in the queue: known to be dead, as far as anyone can know
            with pytest.raises(CorruptDataError, match=r"query=query batch=0 .*fix=restart that query"):
                table.write(part_rows("other", "another"))
        else:
            table.write(part_rows("other", "another"))
            expected += ["other", "another"]
        go_on()
    table.write(part_rows("last"))
    assert_same(table, expected)


def test_a_batch_in_the_log_whose_query_waits_is_left_to_it(tmp_path: Path, broker: Broker) -> None:
    """Nobody is advised to adopt a batch of a query that is about to complete it."""
    table = logged_table(tmp_path, broker)

    class DiedError(Exception):
        pass

    def die(event: StepEvent) -> None:
        if event.step is Step.TASKS_DONE:
            raise DiedError

    with pytest.raises(DiedError), session_of(table, "query", observe=die) as session:
        session.write(part_rows(*MANY).to_batches(), batch_id=0)
    started: list[Future[Any]] = []
    directory = f"{table.store.paths.root}/{TURNS_DIRECTORY}"

    def restart(event: StepEvent) -> None:
        if event.step is Step.BATCH_STARTED and not started:
            again = session_of(table, "query")
            started.append(pool.submit(again.write, part_rows(*MANY).to_batches(), batch_id=0))
            while len(table.store.io.list_names(directory)) < 2:
                time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool, session_of(table, "job", Upkeep.BATCH, observe=restart) as job:
        job.write(part_rows("other").to_batches())
        started[0].result(60)
    assert_same(table, ["other", *MANY])


def test_a_batch_waits_as_long_as_its_option_says(tmp_path: Path, broker: Broker) -> None:
    """FL-89: a conflict that names who has the turn; nothing is written, and the holder is not disturbed."""
    table = logged_table(tmp_path, broker)
    with ThreadPoolExecutor(1) as pool:

        def write_later() -> None:
            with pytest.raises(ConflictError, match=r"holder=statement .*log.turn-timeout=0.1 s"):
                table.write(part_rows("late"), options={"log.turn-timeout": "100 ms"})

        with TicketQueue(table.store, "statement").turn(patience_s=0):
            pool.submit(write_later).result(60)
            table.write(part_rows("own"))
    assert_same(table, ["own"])
