"""A day in the life of one table with a log, in half a minute: everything at once, and at the end all readers agree."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table, sql
from engine.broker.broker import Broker
from engine.procedures import PROCEDURES
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.errors import FluvialError
from lsm.row_kind import RowKind
from tests.peers.agreement import Agreement
from tests.support.clients import quiet_producer
from tests.support.logs import visible_ends, without_notes
from tests.support.retention import ForgetfulBroker
from tests.support.rows import id_rows
from tests.support.streams import Query, content, fold, query, rows
from tests.support.warehouses import ID_SCHEMA

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.interop, pytest.mark.long]
NAME = "shop.orders"
DAY_S, LONGEST_DAY_S = 20.0, 90.0  # a machine with other work has not done enough sooner
WORK = ("stream batch", "batch 2", "batch 3", "statement")
PER_WRITER = 1_000_000  # ids of one writer
WRITERS = 5


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Broker]:
    with ForgetfulBroker(tmp_path / "forgetful") as running:
        yield running


@dataclass
class Day:
    """What its people did, and what they know to be in the table."""

    catalog: Catalog
    began_s: float = field(default_factory=time.monotonic)
    done: dict[int, str | None] = field(default_factory=dict)  # by id the last acknowledged value; None: deleted
    operations: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    is_broken: bool = False  # an admin has spoilt the topic: writers may be refused
    repairs: int = 0
    reading: threading.Lock = field(default_factory=threading.Lock)
    writing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(WRITERS))

    @property
    def is_over(self) -> bool:
        passed_s = time.monotonic() - self.began_s
        return passed_s > LONGEST_DAY_S or (passed_s > DAY_S and self.repairs == 2 and self.has_worked)

    @property
    def has_worked(self) -> bool:
        """Whether each has done a few things."""
        return all(self.operations.get(each, 0) > 2 for each in WORK)

    def table(self) -> Table:
        return self.catalog.table(NAME)

    def repeat(self, name: str, act: Callable[[int], None], pause_s: float) -> None:
        """Do it again and again; who is refused while the topic is spoilt tries the same again."""
        number = 0
        while not self.is_over:
            try:
                act(number)
                number += 1
                self.operations[name] = number
            except FluvialError as error:
                if not (self.is_broken or "CALL sys.reset_log" in str(error)):
                    self.problems.append(f"{name} {number}: {type(error).__name__}: {error}")
                time.sleep(0.2)
            time.sleep(pause_s)

    def write(self, owner: int, number: int) -> None:
        """A batch job: new rows, an update of the last ones, and a delete of those before."""
        first = owner * PER_WRITER + number * 10
        new, value = range(first, first + 10), f"{owner}-{number}"
        changes = rows(list(new), value)
        with self.writing:
            self.table().write(changes)
        self.done.update(dict.fromkeys(new, value))
        if number:
            gone = range(first - 10, first - 5)
            with self.writing:
                self.table().write(rows(list(gone), kind="-D"))
            self.done.update(dict.fromkeys(gone))

    def stream(self, owner: int) -> None:
        """A streaming query: restarted when it fails, with the same batch."""
        batch = 0

        def run(_: int) -> None:
            nonlocal batch
            with WriteSession(
                self.table().files, LocalRunner(), commit_user="stream", options=NO_OPTIONS, upkeep=Upkeep.STREAM,
                origin=lambda *_: None,
            ) as session:  # fmt: skip
                while not self.is_over:
                    ids = list(range(owner * PER_WRITER + batch * 20, owner * PER_WRITER + batch * 20 + 25))
                    with self.writing:
                        session.write(rows(ids, f"s{batch}").to_batches(), batch_id=batch)
                    self.done.update(dict.fromkeys(ids, f"s{batch}"))
                    batch += 1
                    self.operations["stream batch"] = batch
                    time.sleep(0.1)

        self.repeat("stream start", run, 0.1)

    def follow(self, stream: Query, found: list[dict[str, Any]]) -> None:
        """A reading stream, which lives through all of it."""

        def read(_: int) -> None:
            with self.reading:
                found.extend(stream.batch() or [])

        self.repeat("reader", read, 0.05)

    @contextmanager
    def between_batches(self, stream: Query) -> Iterator[None]:
        """While the reader has planned nothing that it has not read."""
        while True:
            with self.reading:
                if len(stream.planned) == stream.committed:
                    yield
                    return
            time.sleep(0.05)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nobody writes."""
        for _ in range(WRITERS):
            self.writing.acquire()
        yield
        self.writing.release(WRITERS)


def last_in_log(table: Table) -> dict[int, str | None]:
    """By id what the last record says that retention has left; None: a delete."""
    log = table.log
    assert log is not None
    earliest = LogTopics(log.properties).earliest_offsets(log.topic, range(log.bucket_count))
    found: dict[int, str | None] = {}
    for bucket, end in visible_ends(table).items():
        left = LogRange(bucket=bucket, start_offset=min(earliest[bucket], end), end_offset=end)
        for records in map(without_notes, read_range(log.properties, topic=log.topic, log_range=left)):
            decoded = log.codec.decode(records.column("key"), records.column("value"), table.schema.arrow_schema)
            for kind, row in zip(map(RowKind, decoded.kinds.to_pylist()), decoded.rows.to_pylist(), strict=True):
                found[row["id"]] = None if kind.is_retract else row["v"]
    return found


@contextmanager
def people(*all_of_them: Callable[[], None]) -> Iterator[None]:
    threads = [threading.Thread(target=each, daemon=True) for each in all_of_them]
    for each in threads:
        each.start()
    yield
    for each in threads:
        each.join(120)
    assert not any(each.is_alive() for each in threads)


@pytest.mark.timeout(600)
def test_a_day_with_everything_at_once_ends_with_one_truth(
    tmp_path: Path, spark: SparkSession, forgetful: Broker, assert_peers_agree: Agreement
) -> None:
    """FL-87 to FL-91, FL-98 to FL-100."""
    servers = forgetful.bootstrap_servers
    catalog = Catalog(str(tmp_path / "warehouse"), options={"log.kafka.bootstrap.servers": servers})
    options = {"bucket": "2", "log.retention": "15 s", "snapshot.num-retained.min": "400"}
    table = catalog.create_table(NAME, ID_SCHEMA, primary_key=["id"], options=options)
    table.write(id_rows([-1], "first"))
    day = Day(catalog, done={-1: "first"})
    stream = query(table, log_kafka_bootstrap_servers=servers)
    found: list[dict[str, Any]] = []

    def statements(number: int) -> None:
        run(f"INSERT INTO {NAME} VALUES ({9 * PER_WRITER + number}, 'sql')")
        day.done[9 * PER_WRITER + number] = "sql"
        run(f"UPDATE {NAME} SET v = 'changed' WHERE id = {9 * PER_WRITER + number}")
        day.done[9 * PER_WRITER + number] = "changed"
        if number % 2:
            run(f"DELETE FROM {NAME} WHERE id = {9 * PER_WRITER + number - 1}")
            day.done[9 * PER_WRITER + number - 1] = None

    def run(statement: str) -> None:
        with day.writing:
            sql(spark, statement, catalog)

    def upkeep(_: int) -> None:
        with day.writing:
            day.table().compact(full=True)
            PROCEDURES["expire_snapshots"](day.table())

    def admin() -> None:
        """Two mistakes and their repairs: a record by hand, and a topic deleted by hand."""
        topics = LogTopics(KafkaProperties.parse({"bootstrap.servers": servers}))
        for mistake in ("record", "topic"):
            time.sleep(DAY_S / 4)
            topic = str(day.table().options.log_topic)
            day.is_broken = True
            if mistake == "record":
                producer = quiet_producer(servers)
                with (
                    day.alone()
                ):  # a batch with such a record among its own cannot be read, which a writer sees too late
                    producer.produce(topic, b"x", partition=0)
                    assert producer.flush(20) == 0
                time.sleep(1)
                PROCEDURES["reset_log"](day.table())
            else:
                with day.between_batches(stream):  # a batch that is planned is read from its topic, or never
                    topics.delete_topic(topic)
                    time.sleep(1)
                    PROCEDURES["reset_log"](day.table())
            time.sleep(2)
            day.is_broken = False
            day.repairs += 1

    with people(
        lambda: day.stream(1),
        lambda: day.repeat("batch 2", lambda number: day.write(2, number), 0.2),
        lambda: day.repeat("batch 3", lambda number: day.write(3, number), 0.3),
        lambda: day.repeat("statement", statements, 0.5),
        lambda: day.repeat("upkeep", upkeep, 2),
        lambda: day.follow(stream, found),
        admin,
    ):
        pass
    print(day.operations)
    assert day.problems == []
    assert day.has_worked
    found += stream.available()
    table = day.table()
    wanted = {(key,): {"id": key, "v": value} for key, value in day.done.items() if value is not None}
    assert content(table) == wanted
    assert fold(found) == wanted
    assert {
        (row["id"],): row for row in table.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()
    } == wanted
    assert len(assert_peers_agree(table.store.paths.root)) == len(wanted)
    table.write(id_rows([-2], "last"))  # retention may have removed all else by now
    wanted[-2,] = {"id": -2, "v": "last"}
    kept = last_in_log(table)
    assert kept[-2] == "last"
    assert all((value is None and (key,) not in wanted) or wanted[key,]["v"] == value for key, value in kept.items())
    assert PROCEDURES["verify"](table).num_rows == 0
