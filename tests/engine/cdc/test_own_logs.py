"""A pattern that matches the logs of the job's own tables: they are no changes of the source."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine.cdc.samples import TopicSample
from engine.cdc.settings import CdcSettings
from engine.cdc.survey import survey
from engine.cli.commands.survey import job_text
from engine.deploy.cdc_job import cdc_of, cdc_settings
from engine.deploy.config.job_config import parse_job
from logstore.format.schema_parts import split_payloads
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support.cdc_job import SERVERS, MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, text, transaction_end

ORDERS = SourceTable("orders", [int32("id", optional=False), text("s")])
LOG = {"bucket": "1", "log.system": "kafka", "log.kafka.bootstrap.servers": SERVERS}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path, options=LOG) as made:
        yield made


def order(number: int) -> Record:
    return ORDERS.insert({"id": number, "s": "x"})


def test_a_truncate_of_a_table_with_a_log_parks_nothing(job: MemoryJob, caplog: pytest.LogCaptureFixture) -> None:
    """Its log is shop.orders, which the pattern of the topics matches; it got a record without a value."""
    caplog.set_level(logging.WARNING, "fluvial.cdc")
    job.batch(order(1), order(2))
    assert LogTopics(job.settings.properties).find_topic("shop.orders") is not None
    for number in range(3):
        assert job.batch(ORDERS.truncate(), order(10 + number)).tables["orders"].parked is None
        assert [row["id"] for row in job.rows("orders")] == [10 + number]
        job.restarted()
    report = job.batch()
    assert (report.tables, job.state.tables()) == ({}, ["orders"])
    said = [each.getMessage() for each in caplog.records]
    assert any("a topic is the log of a table, and left out: topic=shop.orders" in each for each in said)


def test_a_table_that_an_earlier_version_parked_by_its_log_goes_on(job: MemoryJob) -> None:
    job.batch(order(1))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engine.cdc.tables.CdcTables.without_logs", lambda _, ranges, __: list(ranges))
        patched.setattr("engine.cdc.records.scan._is_log", lambda _, __: False)
        for number in range(2):
            job.batch(ORDERS.truncate(), order(2 + number))
        job.batch()
        assert "offset" in str(job.state.table("orders").parked)
    job.restarted()
    job.state.ask("resume", "orders", at_ms=1)
    job.batch()
    assert job.state.table("orders").parked is None
    assert [row["id"] for row in job.rows("orders")] == [3]


def test_a_topic_of_changes_that_is_named_like_a_table_without_a_log_is_read(tmp_path: Path) -> None:
    """Routed to shop.orders, as the table is called: only the log of a table is left out."""
    routed = SourceTable("orders", ORDERS.columns, topic_name="shop.orders")
    with memory_job(tmp_path) as job:
        for number in range(3):
            job.batch(routed.insert({"id": number, "s": "x"}))
            job.restarted()
        assert [row["id"] for row in job.rows("orders")] == [0, 1, 2]


def test_a_log_whose_name_was_that_of_a_topic_of_changes_is_no_source(job: MemoryJob) -> None:
    """Changes that are routed to shop.orders: the log of shop.orders has another name, which the pattern matches."""
    routed = SourceTable("orders", ORDERS.columns, topic_name="shop.orders")
    for number in range(3):
        report = job.batch(routed.truncate(), routed.insert({"id": number, "s": "x"}))
        assert [each.parked for each in report.tables.values()] == [None]
        job.restarted()
    job.batch()
    assert ([row["id"] for row in job.rows("orders")], job.state.tables()) == ([2], ["orders"])


def test_the_log_of_another_warehouse_is_no_source(job: MemoryJob) -> None:
    """The last record of each commit has the header of a log; records in Avro parked a table named after the topic."""
    for number in range(3):
        log: list[Record] = [("shop.theirs", b"k", b"\x00\x00\x00\x00\x01\x02")] * 3
        report = job.batch(order(number), *log, ("shop.theirs", b"k", b"\x00\x00", {"fluvial": b"7"}))
        assert (list(report.tables), report.tables["orders"].parked) == (["orders"], None)
    report = job.batch((ORDERS.topic, b"k", b"garbage"), ("shop.mine", b"k", b"garbage"))
    assert [("not one JSON" in str(each.parked)) for each in report.tables.values()] == [True, True]


@pytest.mark.parametrize(
    ("pattern", "database"), [(r"shop\..*", "shop"), (r"shop\..*|hr\..*", "shop"), (r"shop\..*", "dwh")]
)
def test_the_pattern_of_init_does_not_match_the_logs(pattern: str, database: str) -> None:
    samples = []
    for topic, key, value, *_ in (order(1), transaction_end("shop", "1:1", {"public.orders": 1})):
        columns = {
            "offset": pa.array([0]),
            "key": pa.array([key], pa.binary()),
            "value": pa.array([value], pa.binary()),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        samples.append(TopicSample(topic=topic, partition=0, size=1, is_whole=True, records=(batch,)))
    properties = KafkaProperties.parse({"bootstrap.servers": SERVERS})
    settings = CdcSettings(name="shop", database=database, pattern=pattern, properties=properties)
    written = job_text(survey(samples, settings, split_payloads), settings, brokers=SERVERS)
    config = parse_job(written, name="job.yaml", environment={})
    found = cdc_settings(config, cdc_of(config, None)).pattern
    assert re.fullmatch(found, "shop.public.orders")
    assert re.fullmatch(found, "shop.transaction")
    assert not re.fullmatch(found, f"{database}.customers")
