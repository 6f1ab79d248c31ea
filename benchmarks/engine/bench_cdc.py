"""A first snapshot by ``fluvial cdc``: change records of one JSON topic into a table without a log, against orjson.

    python -m benchmarks cdc [--quick | --tiny]

Records are as Debezium's PostgreSQL connector writes them, with schema parts. Measured is what the job does with a
batch, from the brokers to the commit; Spark is not in it, as no record goes through Spark. The floor is
``orjson.loads`` of the same bytes in memory. Budget: 60,000 records in a second of processor time. What is beyond the
memory of the job is read twice; the peak of a process of its own is in the line.
"""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.harness import measure, run_in_child, sized
from benchmarks.logstore.json_rows import flat_rows, snapshot_records
from engine import Catalog
from engine.broker.broker import Broker
from engine.cdc.batch import CdcBatches
from engine.cdc.settings import CdcSettings
from engine.cdc.state import StateFiles
from engine.kafka.offsets import OffsetRange
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

TOPIC = "shop.public.orders"
BUDGET = 60_000
PEER = "orjson per record"
_CHUNK = 20_000


def records_of(rows: int) -> Iterator[tuple[bytes, bytes]]:
    for start in range(0, rows, _CHUNK):
        yield from snapshot_records(flat_rows(rows).slice(start, min(_CHUNK, rows - start)))


def send(properties: KafkaProperties, rows: int) -> None:
    LogTopics(properties).create_topic(TOPIC, bucket_count=1)
    producer = properties.producer(ErrorNotes(), transactional_id="bench")
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records_of(rows):
        while True:
            try:
                producer.produce(TOPIC, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.commit_transaction(60)


def settings_of(brokers: str) -> CdcSettings:
    return CdcSettings(
        name="bench", database="shop", pattern=TOPIC, properties=KafkaProperties.parse({"bootstrap.servers": brokers}),
        options={"bucket": "1", "write-only": "true"},
    )  # fmt: skip


def written(brokers: str, rows: int, root: str) -> None:
    """One batch into a new warehouse."""
    settings = settings_of(brokers)
    with tempfile.TemporaryDirectory(dir=root) as warehouse:
        catalog = Catalog(warehouse)
        state = StateFiles(catalog.file_io, catalog.warehouse, settings.name)
        batches = CdcBatches(catalog, settings, state, commit_user="bench", run_id="bench")
        report = batches.write([OffsetRange(topic=TOPIC, partition=0, start_offset=0, end_offset=rows)], 0)
        batches.close()
        assert report.tables["orders"].parked is None, report
        assert report.tables["orders"].records == rows, report


def parsed(records: list[bytes]) -> None:
    for record in records:
        orjson.loads(record)


def main() -> None:
    rows = sized(200_000, quick=50_000, tiny=500)
    facts: dict[str, Any] = {"budget": BUDGET}
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        brokers = broker.bootstrap_servers
        send(settings_of(brokers).properties, rows)
        floor = [value for _, value in records_of(min(rows, _CHUNK))]

        def peer() -> None:
            for _ in range(max(1, rows // _CHUNK)):
                parsed(floor)

        found = measure("cdc", {"fluvial": partial(written, brokers, rows, root), PEER: peer}, rows=rows, repeats=3)
        child = run_in_child(written, brokers, rows, root)
        facts |= {"memory_bytes": child.peak_memory_bytes - child.idle_memory_bytes}
        facts |= {"record_bytes": round(sum(map(len, floor)) / len(floor)), "pyarrow": pa.__version__}
        facts |= {"met": found.rows_per_cpu_s("fluvial") >= BUDGET}
        print(found.line(peer=PEER, **facts), flush=True)


if __name__ == "__main__":
    main()
