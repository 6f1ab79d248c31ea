"""``fluvial cdc``: status, resume and skip over the state of a job; its section in a job file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from engine.cdc.state import RESNAPSHOT
from engine.deploy.cdc_job import LagCollector, cdc_of, cdc_settings, measuring
from engine.deploy.config.job_config import JobConfig, parse_job
from engine.kafka.options import SourceValues
from engine.runtime.metrics import metrics_text
from lsm.errors import InvalidInputError, UnavailableError
from tests.support.cdc_job import SERVERS, MemoryJob, memory_job
from tests.support.change_events import SourceTable, int32

FILE = r"""
name: shop
warehouse: /data
log: {kafka.bootstrap.servers: "localhost:9092"}
cdc:
- {name: shop, database: shop, source: {options: {subscribePattern: 'shop\..*'}}}
"""
NUMBERS = SourceTable("numbers", [int32("id"), int32("n")])
OTHERS = SourceTable("others", [int32("id")])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def test_a_database_is_five_lines_and_each_word_is_checked() -> None:
    """Seven tables took 164 lines (finding 12)."""
    found = parse_job(FILE, name="job.yaml", environment={})
    settings = cdc_settings(found, cdc_of(found, None))
    assert (settings.pattern, settings.database, settings.on_table_failure) == (r"shop\..*", "shop", "isolate")
    for wrong, message in (
        ("deletes: sofd", "did_you_mean=soft"),
        ("schema-changes: evolv", "known=evolve, lenient, ignore, fail"),
        ("schema-changes: {retype: keep}", "known=fail, ignore, new-column"),
        ("columns: {add: {_x: source.nothing}}", "the envelope has no such place"),
        ("tables: {include: ['(']}", "not a regular expression"),
        ("commit: {every: often}", "not a duration"),
    ):
        text = FILE.replace("name: shop, database", f"{wrong}, name: shop, database")
        with pytest.raises(InvalidInputError) as caught:
            parse_job(text, name="job.yaml", environment={})
        assert message in str(caught.value), str(caught.value)


def test_options_of_the_source_are_used_or_refused() -> None:
    """A placeholder of the connector's own was dropped silently: its text would have become the values."""

    def given(*options: str) -> JobConfig:
        text = FILE.replace("subscribePattern:", f"{', '.join(options)}, subscribePattern:")
        return parse_job(text, name="job.yaml", environment={})

    used = {
        "value.format": "debezium-avro", "schema.registry.url": "http://localhost:8081",
        "schema.registry.basic.auth.user.info": "me:secret", "maxOffsetsPerTrigger": "7",
        "unavailable.value.placeholder": "gone",
    }  # fmt: skip
    job = given(*(f"{name}: '{value}'" for name, value in used.items()))
    settings = cdc_settings(job, cdc_of(job, None))
    assert (settings.placeholder, settings.max_records) == ("gone", 7)
    assert settings.registry is not None
    for option in SourceValues.declared.keys() - used.keys():
        with pytest.raises(InvalidInputError, match=f"option={option} fix="):
            given(f"{option.upper()}: x")


def test_status_resume_and_skip(job: MemoryJob, fluvial: Callable[..., tuple[int, str, str]]) -> None:
    """Lag in records and in seconds of the source, why a table waits; skip lets it go on behind the bad record."""
    flags = ("--brokers", SERVERS, "--topics", r"shop\..*", "--database", "shop", "--warehouse", job.catalog.warehouse)
    job.batch(NUMBERS.insert({"id": 1, "n": 1}, lsn=41))
    job.batch(NUMBERS.insert({"id": 2, "n": "two"}, lsn=42), NUMBERS.insert({"id": 3, "n": 3}, lsn=43))
    code, out, _ = fluvial("cdc", "status", "--json", *flags)
    (table,) = json.loads(out)["tables"]
    assert code == 0
    assert (table["table"], table["state"], table["records"]) == ("numbers", "parked", 1)
    assert table["records_behind"] == 3  # with the transaction's marker
    assert table["lsn"] == 41
    assert table["seconds_behind"] > 0
    assert "topic=shop.public.numbers partition=0 offset=2" in table["reason"]
    assert table["fix"].endswith("fluvial cdc resume numbers")

    assert fluvial("cdc", "resume", "orders", *flags)[0] == 2
    assert fluvial("cdc", "skip", "numbers", "--until", "3", *flags)[0] == 0
    job.batch()
    assert [row["id"] for row in job.rows("numbers")] == [1, 3]
    _, out, _ = fluvial("cdc", "status", "--json", *flags)
    (table,) = json.loads(out)["tables"]
    assert (table["state"], table["records_behind"], table["seconds_behind"]) == ("running", 0, 0.0)
    assert table["lsn"] == 43
    assert fluvial("cdc", "status", *flags)[0] == 0
    code, _, error = fluvial("cdc", "resume", "numbers", *flags)
    assert (code, "is not parked" in error) == (2, True)


def test_skip_until_the_end_leaves_out_all_that_is_there(
    job: MemoryJob, fluvial: Callable[..., tuple[int, str, str]]
) -> None:
    """Of a topic of which nothing can be read; what comes after is taken. The message names the command."""
    flags = ("--brokers", SERVERS, "--topics", r"shop\..*", "--database", "shop", "--warehouse", job.catalog.warehouse)
    bare = [
        (topic, key, json.dumps(json.loads(value or b"")["payload"]).encode())
        for topic, key, value in (NUMBERS.insert({"id": number, "n": 1}) for number in (1, 2, 3))
    ]
    reason = str(job.batch(*bare[:2]).tables["numbers"].parked)
    assert reason.endswith("leave out what is there: fluvial cdc skip numbers --until end")
    job.batch(bare[2])
    _, out, _ = fluvial("cdc", "status", "--json", *flags)
    assert json.loads(out)["tables"][0]["fix"].endswith("then: fluvial cdc resume numbers")
    code, out, _ = fluvial("cdc", "skip", "numbers", "--until", "end", *flags)
    assert (code, "partition=0 offsets=0.." in out) == (0, True)
    job.batch(NUMBERS.insert({"id": 4, "n": 4}))
    assert [row["id"] for row in job.rows("numbers")] == [4]
    code, _, error = fluvial("cdc", "skip", "numbers", "--until", "soon", *flags)
    assert (code, "'soon' is no offset, nor: end" in error) == (2, True)


def test_lags_are_measured_at_each_scrape_also_of_tables_that_wait(job: MemoryJob) -> None:
    """Records and seconds of the source, by table; a batch that never comes lets them grow."""
    job.batch(NUMBERS.insert({"id": 1, "n": 1}), OTHERS.insert({"id": 1}))
    job.batch(NUMBERS.insert({"id": 2, "n": "two"}))
    ends, now_ms = {("shop.public.numbers", 0): 4, ("shop.public.others", 0): 2}, job.now_ms
    collector = LagCollector(job.settings, lambda: job.state, latest=lambda: ends, now_ms=lambda: now_ms)

    def lags(registry: CollectorRegistry) -> dict[str, float]:
        lines = metrics_text(registry).splitlines()
        return {name: float(value) for name, value in (line.split(" ") for line in lines if line[0] != "#")}

    registry = CollectorRegistry()
    with measuring(collector, registry):
        first = lags(registry)
        assert first['fluvial_cdc_lag_records{table="shop.numbers"}'] == 2
        assert first['fluvial_cdc_lag_records{table="shop.others"}'] == 0
        assert first['fluvial_cdc_lag_seconds{table="shop.others"}'] == 0
        ends["shop.public.others", 0], now_ms = 12, now_ms + 60_000
        second = lags(registry)
        assert second['fluvial_cdc_lag_records{table="shop.others"}'] == 10
        assert second['fluvial_cdc_lag_seconds{table="shop.others"}'] >= 60
        waits = 'fluvial_cdc_lag_seconds{table="shop.numbers"}'
        assert second[waits] == pytest.approx(first[waits] + 60)
    assert metrics_text(registry) == ""


def test_a_parked_table_is_seen_from_the_start_and_without_brokers(job: MemoryJob) -> None:
    """A process that starts again shows it before any record of it comes; only lags need the brokers."""
    job.batch(NUMBERS.insert({"id": 1, "n": "one"}), OTHERS.insert({"id": 1}))

    def away() -> dict[tuple[str, int], int]:
        raise UnavailableError("brokers do not answer")

    def parked() -> list[str]:
        registry = CollectorRegistry()
        with measuring(LagCollector(job.settings, lambda: job.state, latest=away), registry):
            lines = metrics_text(registry).splitlines()
        return [line for line in lines if line[0] != "#"]

    others = 'fluvial_cdc_parked{table="shop.others"} 0.0'
    assert sorted(parked()) == ['fluvial_cdc_parked{table="shop.numbers"} 1.0', others]
    job.state.ask("skip", "numbers", at_ms=1, until=1)
    job.batch()
    assert sorted(parked()) == ['fluvial_cdc_parked{table="shop.numbers"} 0.0', others]


def test_resnapshot_asks_the_job_to_await_a_snapshot(
    job: MemoryJob, fluvial: Callable[..., tuple[int, str, str]]
) -> None:
    """Without a topic of signals it says what is missing; a table that a snapshot cannot replace is refused."""
    flags = ("--brokers", SERVERS, "--topics", r"shop\..*", "--database", "shop", "--warehouse", job.catalog.warehouse)
    job.batch(NUMBERS.insert({"id": 1, "n": 1}), SourceTable("events", [int32("n")], key=()).insert({"n": 1}))
    code, _, error = fluvial("cdc", "resnapshot", "numbers", *flags)
    assert (code, "source.signals to that topic; or use --by-hand" in error) == (2, True)
    assert fluvial("cdc", "resnapshot", "numbers", "--by-hand", "--drop", *flags)[0] == 0
    (request,) = job.state.requests()
    assert (request.action, request.table, request.drops) == (RESNAPSHOT, "numbers", True)
    assert request.offsets == {("shop.public.numbers", 0): 2}
    code, _, error = fluvial("cdc", "resnapshot", "events", "--by-hand", *flags)
    assert (code, "a table without a key counts rows twice" in error) == (2, True)
    assert len(job.state.requests()) == 1
