"""A first snapshot by ``fluvial cdc``: change records of one JSON topic into a table without a log, against orjson.

    python -m benchmarks cdc [--quick | --tiny]

Two lines: records with schema parts, as Debezium's PostgreSQL connector writes them by default, and without, where the
job declares the columns. Measured is what the job does with a batch, from the brokers to the commit; Spark is not in
it, as no record goes through Spark. The floor is ``orjson.loads`` of the same bytes in memory. Budgets: 60,000 and
150,000 records a second on 2 cores, so 30,000 and 75,000 in a second of processor time. What is beyond the memory of
the job is read twice; the peak of a process of its own is in the line.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from benchmarks.harness import measure, run_in_child, sized
from benchmarks.logstore.json_rows import flat_rows, snapshot_records
from engine import Catalog
from engine.broker.broker import Broker
from engine.cdc.batch import CdcBatches
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.state import StateFiles
from engine.dialect.grammar.type_grammar import parse_type
from engine.kafka.offsets import OffsetRange
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

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


def main() -> None:
    rows = sized(200_000, quick=50_000, tiny=500)
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        for with_parts in (True, False):
            print(measured(broker.bootstrap_servers, rows, root, with_parts), flush=True)


if __name__ == "__main__":
    main()
