"""``fluvial cdc``: a first snapshot of one table, and batches of many tables.

    python -m benchmarks cdc [--quick | --tiny]

Two lines of change records of one JSON topic that go into a table without a log, against orjson: with schema parts, as
Debezium's PostgreSQL connector writes them by default, and without, where the job declares the columns. Measured is
what the job does with a batch, from the brokers to the commit; Spark is not in it, as no record goes through Spark. The
floor is ``orjson.loads`` of the same bytes in memory. Budgets: 60,000 and 150,000 records a second on 2 cores, so
30,000 and 75,000 in a second of processor time. What is beyond the memory of the job is read twice; the peak of a
process of its own is in the line.

A third line: of a job over 200 topics, batches of 1,000 rows in five tables against those of 1,000 rows in one, by
processor time of all processes but the broker, over as many batches as a few compactions take. Budget: 2 times, of a
micro-batch of the query. Beside it the same without Spark, where next to nothing but the tables' own commits is left.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import psutil
from pyspark.sql.streaming.datasource import ReadAllAvailable

from benchmarks.harness import commit, machine, measure, run_in_child, sized
from benchmarks.logstore.json_rows import flat_rows, snapshot_records
from engine import Catalog, session
from engine.broker.broker import Broker
from engine.cdc.batch import CdcBatches
from engine.cdc.query import CdcQuery
from engine.cdc.report import BatchReport
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.source import CdcStreamReader, SourcePlan, planned_ranges
from engine.cdc.state import StateFiles
from engine.dialect.grammar.type_grammar import parse_type
from engine.kafka.offsets import OffsetRange, from_json
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support import change_events

TOPICS = {True: "shop.public.orders", False: "shop.public.bare"}  # by whether records have schema parts
BUDGETS = {True: 30_000, False: 75_000}
COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "ts": "TIMESTAMP(6)",
    "price": "DECIMAL(18, 4)",
    "score": "DOUBLE",
    "active": "SMALLINT",
}
PEER = "orjson per record"
TABLES, ROWS = sized((200, 1000), quick=(200, 1000), tiny=(12, 20))
WARM_UPS, ROUNDS = sized((5, 20), quick=(5, 10), tiny=(0, 1))
_CHUNK = 20_000


def records_of(rows: int, with_parts: bool) -> Iterator[tuple[bytes, bytes]]:
    for start in range(0, rows, _CHUNK):
        part = flat_rows(rows).slice(start, min(_CHUNK, rows - start))
        yield from snapshot_records(part, with_schema=with_parts)


def send(properties: KafkaProperties, rows: int, with_parts: bool) -> None:
    topic = TOPICS[with_parts]
    LogTopics(properties).create_topic(topic, bucket_count=1)
    producer = properties.producer(ErrorNotes(), transactional_id="bench")
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records_of(rows, with_parts):
        while True:
            try:
                producer.produce(topic, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.commit_transaction(60)


def settings_of(brokers: str) -> CdcSettings:
    declared = TableSettings(columns=tuple((name, parse_type(kind)) for name, kind in COLUMNS.items()), key=("id",))
    return CdcSettings(
        name="bench",
        database="shop",
        pattern=r"shop\..*",
        properties=KafkaProperties.parse({"bootstrap.servers": brokers}),
        options={"bucket": "1", "write-only": "true"},
        tables={"orders": declared},
        connector={"decimal.handling.mode": "precise"},
    )


def written(brokers: str, rows: int, root: str, with_parts: bool) -> None:
    """One batch into a new warehouse."""
    settings = settings_of(brokers)
    with tempfile.TemporaryDirectory(dir=root) as warehouse:
        catalog = Catalog(warehouse)
        state = StateFiles(catalog.file_io, catalog.warehouse, settings.name)
        batches = CdcBatches(catalog, settings, state, commit_user="bench", run_id="bench")
        source = OffsetRange(topic=TOPICS[with_parts], partition=0, start_offset=0, end_offset=rows)
        report = batches.write([source], 0).tables["orders"]
        batches.close()
        assert (report.parked, report.records) == (None, rows), report


def parsed(records: list[bytes]) -> None:
    for record in records:
        orjson.loads(record)


def measured(brokers: str, rows: int, root: str, with_parts: bool) -> str:
    """The line of one kind of records."""
    send(settings_of(brokers).properties, rows, with_parts)
    floor = [value for _, value in records_of(min(rows, _CHUNK), with_parts)]

    def peer() -> None:
        for _ in range(max(1, rows // _CHUNK)):
            parsed(floor)

    name = "cdc" if with_parts else "cdc_without_parts"
    found = measure(name, {"fluvial": partial(written, brokers, rows, root, with_parts), PEER: peer}, rows=rows)
    child = run_in_child(written, brokers, rows, root, with_parts)
    facts: dict[str, Any] = {"memory_bytes": child.peak_memory_bytes - child.idle_memory_bytes}
    facts |= {"record_bytes": round(sum(map(len, floor)) / len(floor)), "budget": BUDGETS[with_parts]}
    facts |= {"met": found.rows_per_cpu_s("fluvial") >= BUDGETS[with_parts]}
    return found.line(peer=PEER, **facts)


class ManyTables:
    """A job over many topics, and what its batches cost."""

    def __init__(self, brokers: str, root: str, name: str) -> None:
        """Make the topics, with a row in each."""
        self.properties = KafkaProperties.parse({"bootstrap.servers": brokers})
        columns = [change_events.int32("id"), change_events.text("s")]
        self.tables = [
            change_events.SourceTable(f"t{number}", columns, topic_name=f"{name}-{number}") for number in range(TABLES)
        ]
        for each in self.tables:
            LogTopics(self.properties).create_topic(each.topic, bucket_count=1)
        self.catalog = Catalog(f"{root}/{name}")
        self.settings = CdcSettings(
            name=name, database=name, pattern=f"{name}-.*", properties=self.properties, options={"bucket": "1"}
        )
        self.root, self._sent = root, 0
        self._others = {each.pid for each in psutil.Process().children(recursive=True)}
        self.send(self.tables, TABLES)

    def send(self, active: Sequence[change_events.SourceTable], rows: int) -> None:
        """Insert so many rows, of each table in turn."""
        events = (active[each % len(active)].insert({"id": self._sent + each, "s": "x"}) for each in range(rows))
        change_events.send(self.properties, *events)
        self._sent += rows

    def processor_s(self) -> float:
        """Of this process, Spark and its workers."""
        own, found = psutil.Process(), 0.0
        for each in (own, *own.children(recursive=True)):
            if each.pid not in self._others:
                with contextlib.suppress(psutil.NoSuchProcess):
                    found += sum(each.cpu_times()[:4])
        return found

    def ratio(self, batch: Callable[[int], BatchReport]) -> dict[str, float]:
        """Five active tables against one; ``batch`` waits for a batch with so many tables."""
        costs: dict[int, list[float]] = {1: [], 5: []}
        for number in range(WARM_UPS + ROUNDS):
            for count, found in costs.items():
                self.send(self.tables[count : 2 * count], ROWS)
                before = self.processor_s()
                done = batch(count)
                assert len(done.tables) == count, done
                if number >= WARM_UPS:
                    found.append(self.processor_s() - before)
        facts = {f"of_{count}_ms": round(sum(found) / len(found) * 1000, 1) for count, found in costs.items()}
        return facts | {"ratio": round(sum(costs[5]) / sum(costs[1]), 2)}

    def by_query(self) -> dict[str, float]:
        """With Spark."""
        spark = session(conf={"spark.ui.enabled": "false"})
        query = CdcQuery(self.catalog, self.settings, checkpoint=f"{self.root}/checkpoint", interval="1 second")
        running, seen = query.start(spark), list[BatchReport]()

        def newest(_: int) -> BatchReport:
            while query.newest is None or query.newest in seen[-1:]:
                assert running.isActive, running.exception()
                time.sleep(0.01)
            seen.append(query.newest)
            return query.newest

        try:
            newest(TABLES)
            return self.ratio(newest)
        finally:
            running.stop()
            query.close()
            spark.stop()

    def by_hand(self) -> dict[str, float]:
        """Without Spark."""
        state = StateFiles(self.catalog.file_io, self.catalog.warehouse, self.settings.name)
        batches = CdcBatches(self.catalog, self.settings, state, commit_user="bench", run_id="bench")
        source, position, number = CdcStreamReader(SourcePlan(settings=self.settings)), dict[str, Any](), -1

        def written(count: int) -> BatchReport:
            nonlocal position, number
            before, number = position, number + 1
            known = from_json({key: value for key, value in before.items() if not key.startswith("@")})
            while True:
                end = source.latestOffset(before, ReadAllAvailable())
                found = from_json({key: value for key, value in end.items() if not key.startswith("@")})
                if sum(known.get(each, 0) < offset for each, offset in found.items()) == count:
                    break
                time.sleep(0.02)
            position = end
            return batches.write(planned_ranges(before, end), number)

        try:
            written(TABLES)
            return self.ratio(written)
        finally:
            batches.close()


def many_tables(brokers: str, root: str) -> str:
    """The line of many tables."""
    whole = ManyTables(brokers, root, "whole").by_query()
    facts = {"benchmark": "cdc_tables", "commit": commit(), "machine": machine(), "rows": ROWS, "tables": TABLES}
    facts |= {"peer": "as many rows in one table", "batches": ROUNDS, **whole, "budget": 2, "met": whole["ratio"] <= 2}
    return json.dumps(facts | {"without_spark": ManyTables(brokers, root, "bare").by_hand()})


def main() -> None:
    rows = sized(200_000, quick=50_000, tiny=500)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        for with_parts in (True, False):
            print(measured(broker.bootstrap_servers, rows, root, with_parts), flush=True)
        print(many_tables(broker.bootstrap_servers, root), flush=True)


if __name__ == "__main__":
    main()
