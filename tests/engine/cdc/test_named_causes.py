"""What a job cannot take has the name of its cause: flattened records, names, restarts, the exit code of a run."""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.samples import TopicSample
from engine.cdc.status import job_status
from engine.cdc.survey import survey
from engine.cdc.verify.database import LiveTable, SourceDatabase
from engine.cdc.verify.verification import Followed, known_sources, verified
from engine.cli.cdc import ended_code
from engine.deploy.config.operation_config import OnFailureConfig
from engine.deploy.pipeline.supervision import Attempts
from engine.kafka.dead_letters import DeadLetters
from engine.kafka.offsets import TopicPosition
from logstore.format.schema_parts import split_payloads
from logstore.kafka.clients import KafkaProperties
from lsm.errors import FluvialError, InvalidInputError, OverloadedError, UnavailableError
from tests.support.cdc_job import SERVERS, MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32

T = SourceTable("t", [int32("id", optional=False)])
DOTTED = SourceTable("tab.dot", [int32("id", optional=False)], schema="sch", topic_name="shop.dotted")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def flattened(number: int) -> Record:
    part = {"type": "struct", "name": "shop.public.flat.Value", "fields": [int32("id"), int32("__deleted")]}
    value = {"schema": part, "payload": {"id": number, "__deleted": None}}
    return "shop.public.flat", None, json.dumps(value).encode()


def test_flattened_records_are_refused_by_name(job: MemoryJob) -> None:
    """Such a job ended well and had an empty database; the other tables go on, with dead letters as well."""
    report = job.batch(flattened(1), T.insert({"id": 1}))
    assert "ExtractNewRecordState" in str(report.tables["flat"].parked)
    assert job.rows("t") == [{"id": 1}]
    columns = {"offset": pa.array([0]), "key": pa.array([None], pa.binary()), "value": pa.array([flattened(1)[2]])}
    sample = TopicSample(
        topic="shop.public.flat", partition=0, size=1, records=(pa.RecordBatch.from_pydict(columns),), is_whole=True
    )
    found = survey([sample], job.settings, split_payloads)
    assert not found.is_possible
    assert "unwrap" in found.problems["shop.public.flat"]


@pytest.mark.parametrize(
    ("key", "value", "is_row"),
    [
        ({"id": 1}, {"id": 1, "status": None}, True),
        ({"id": 1, "s": "a"}, {"s": "a", "v": [1], "id": 1}, True),
        ({"serverName": "shop"}, {"ts_ms": 1}, False),
        ({"id": "5"}, {"status": "END", "id": "5", "event_count": 1, "data_collections": []}, False),
        ({"databaseName": "shop"}, {"source": {}, "databaseName": "shop", "ddl": "DROP TABLE t"}, False),
        ("5", {"id": "5"}, False),
        ({}, {"id": 1}, False),
    ],
)
def test_rows_alone_without_schema_parts_are_known_by_their_keys(
    job: MemoryJob, key: object, value: object, is_row: bool
) -> None:
    """Beside other tables such a topic was left out with a warning, and the run ended well."""
    record = ("shop.public.flat", json.dumps(key).encode(), json.dumps(value).encode())
    report = job.batch(record, T.insert({"id": 1}))
    assert report.tables.keys() == ({"flat", "t"} if is_row else {"t"})
    if is_row:
        assert "ExtractNewRecordState" in str(report.tables["flat"].parked)


def test_a_run_that_ends_with_tables_that_wait_says_so(job: MemoryJob, capsys: pytest.CaptureFixture[str]) -> None:
    """A scheduler saw success, each time."""
    job.batch(T.insert({"id": 1}))
    assert ended(job) == 0
    job.batch((T.topic, b"k", b"garbage"))
    for _ in range(2):
        assert ended(job) == 3
        assert "tables=t" in capsys.readouterr().err
        job.batch()
    job.state.ask("skip", "t", at_ms=1, until=100)
    job.batch()
    assert ended(job) == 0


def ended(job: MemoryJob, topics: Collection[TopicPosition] = (("shop.public.t", 0),)) -> int:
    return ended_code(job.state, topics=topics, pattern=job.settings.pattern)


def test_a_run_without_a_topic_or_a_table_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ended well, with an empty database; a topic without records yet is no mistake."""
    with memory_job(tmp_path, naming=Naming(include=(r"publik\..*",))) as job:
        assert ended(job, topics=()) == 3
        assert r"no topic matches: pattern=shop\..*" in capsys.readouterr().err
        assert ended(job) == 0
        job.batch(T.insert({"id": 1}))
        assert ended(job) == 3
        assert "no record is of a table" in capsys.readouterr().err


def test_topics_that_are_missing_are_named(job: MemoryJob, capsys: pytest.CaptureFixture[str]) -> None:
    """Deleted, or a pattern that matches a part of them: the table was running, and 0 records behind."""
    job.batch(T.insert({"id": 1}), replace(T, name="u").insert({"id": 1}))
    assert ended(job, topics=[("shop.public.u", 0)]) == 0
    assert "t: topics of the table are not there" in capsys.readouterr().err
    first, second = job_status(job.state, latest={("shop.public.u", 0): 3}, now_ms=1)
    assert (first.table, second.table, second.reason) == ("t", "u", None)
    assert "topics=shop.public.t fix=" in str(first.reason)
    assert [each.reason for each in job_status(job.state, latest=None, now_ms=1)] == [None, None]


def test_a_name_that_no_table_can_have_waits_with_the_rule_to_write(tmp_path: Path) -> None:
    with memory_job(tmp_path) as job:
        for _ in range(2):
            reason = str(job.batch(DOTTED.insert({"id": 1}), T.insert({"id": 1})).tables["tab.dot"].parked)
            job.restarted()
        assert job.rows("t") == [{"id": 1}]
        rule = re.search(r'\{from: (.*), to: "(.*)"\}', reason)
        assert rule is not None
        naming = Naming(rules=(NameRule(source=rule[1], to=rule[2]),))
    with memory_job(tmp_path / "again", naming=naming) as job:
        job.batch(DOTTED.insert({"id": 1}))
        assert job.rows("sch_tab_dot") == [{"id": 1}]


def test_verify_goes_on_behind_tables_that_it_cannot_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no table can have, a refused query, and a source table that is gone; a partition is not."""

    class Database:
        """Three tables without rows, of which it shows two."""

        dialect = "postgresql"

        def __enter__(self) -> "Database":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def tables(self) -> list[LiveTable]:
            return [LiveTable(schema="public", name=each, columns=(), key=()) for each in ("tab.dot", "secret", "t")]

        def partitions(self) -> frozenset[str]:
            return frozenset({"public.part"})

        def name_of(self, source: LiveTable) -> str:
            return source.name

        def part(self) -> AbstractContextManager[None]:
            return nullcontext()

        def count(self, name: str) -> int:
            if name == "secret":
                raise InvalidInputError("the database refuses a query: reason='permission denied'")
            return 0

    monkeypatch.setattr(SourceDatabase, "reading", lambda _: Database())

    def followed(source: LiveTable) -> Followed:
        return Followed(name=f"shop.{source.name}")

    with memory_job(tmp_path) as job:
        job.batch(replace(T, name="old").insert({"id": 1}), replace(T, name="part").insert({"id": 1}))
        first, second, third, fourth = verified("url", job.catalog, followed, known=known_sources(job.state))
        assert "a table cannot have a dot in its name: table=tab.dot fix=" in first.problem
        assert "permission denied" in second.problem
        assert [each.is_equal for each in (first, second, third, fourth)] == [False, False, True, False]
        assert (str(fourth.source), fourth.table) == ("public.old", "shop.old")
        assert "renamed or dropped" in fourth.problem
        job.catalog.drop_table("shop.old")
        assert len(list(verified("url", job.catalog, followed, known=known_sources(job.state)))) == 3


def test_restarts_of_an_overloaded_machine_wait_longer_and_end() -> None:
    """One way of counting for pipelines and databases: they were 2 seconds each, without end."""
    policy, attempts = OnFailureConfig(policy="stop-all"), Attempts()
    error: FluvialError = OverloadedError("busy")
    found = [attempts.after(policy, error, has_end=True, name="shop") for _ in range(11)]
    assert [None if each is None else each.after_s for each in found] == [2, 4, 8, 16, 32, 60, 60, 60, 60, 60, None]
    attempts.progressed()
    again = attempts.after(policy, error, has_end=False, name="shop")
    assert again is not None
    assert again.after_s == 2
    restart = OnFailureConfig(policy="restart")
    counted = [attempts.after(restart, UnavailableError("away"), has_end=True, name="shop") for _ in range(2)]
    assert attempts.failed == sum(each is not None for each in counted)


def test_a_topic_for_dead_letters_that_does_not_exist_is_to_be_created() -> None:
    """The advice was about the log of a table: restore it, or CALL sys.reset_log."""
    letters = DeadLetters(KafkaProperties.parse({"bootstrap.servers": SERVERS}), "nowhere")
    for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        found = letters._error(KafkaError(code))
        assert isinstance(found, InvalidInputError)
        assert str(found).endswith("fix=create the topic nowhere")
        assert "reset_log" not in str(found)


@pytest.mark.parametrize(
    ("connector", "needed"),
    [("postgresql", "REPLICA IDENTITY FULL"), ("mariadb", "binlog_row_image=FULL"), ("mysql", "binlog_row_image=FULL")],
)
def test_plan_names_the_setting_of_the_source_that_a_table_without_a_key_needs(
    job: MemoryJob, connector: str, needed: str
) -> None:
    topic, _, value, *_ = SourceTable("nk", [int32("id")], key=()).insert({"id": 1})
    assert value is not None
    columns = {
        "offset": pa.array([0]),
        "key": pa.array([None], pa.binary()),
        "value": pa.array([value.replace(b"postgresql", connector.encode())]),
    }
    sample = TopicSample(
        topic=topic, partition=0, size=1, records=(pa.RecordBatch.from_pydict(columns),), is_whole=True
    )
    (found,) = survey([sample], job.settings, split_payloads).tables
    assert found.key_from == f"none: without-key=count-rows, needs {needed}"
