"""Each kind of table that waits: what its message says is done word by word, and then it is what its source is."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.settings import TableSettings
from engine.cdc.signals import request_snapshots
from engine.cdc.status import job_status, latest_offsets
from filestore.types.data_types import parse_data_type
from logstore.format.connect_types import TypeRules
from logstore.kafka.topics import LogTopics
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, int64, text

T = SourceTable("t", [int32("id", optional=False), int32("v")])
_COMMAND = re.compile(r"fluvial cdc (resnapshot|resume|skip) ([\w.,]+)((?: --[a-z-]+(?: \d+)?)*)")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Source:
    """What the database has behind the changes that were published, for a snapshot of a connector."""

    table: SourceTable
    rows: Rows


def reason_of(job: MemoryJob, table: str = "t") -> str:
    """As ``fluvial cdc status`` shows it: why, and what to do."""
    (found,) = [each for each in job_status(job.state, latest=None, now_ms=1) if each.table == table]
    assert found.reason is not None
    return f"{found.reason} {found.fix}"


def do(job: MemoryJob, text: str, command: str, *sources: Source) -> None:
    """Run the command of this word that a text names, and publish the snapshot that the connector then takes."""
    found = next((each for each in _COMMAND.finditer(text) if each[1] == command), None)
    assert found is not None, text
    table, options = found[2].rstrip(".,"), found[3]
    job.restarted()
    if command == "resnapshot":
        latest = latest_offsets(job.settings.properties, job.settings.pattern)
        request_snapshots(
            job.state, job.settings, table.split(","), latest, topic=None, at_ms=1, drops="--drop" in options,
            are_writers_stopped="--writers-stopped" in options,
        )  # fmt: skip
        job.batch()
        job.restarted()
        job.batch(*(each.table.read(row, snapshot="true") for each in sources for row in each.rows))
        return
    until = int(options.rpartition(" ")[2]) if command == "skip" else None
    job.state.ask(command, table, at_ms=1, until=until)
    job.batch()


def changed(job: MemoryJob, **settings: Any) -> MemoryJob:
    """The job started again with other settings."""
    job.restarted()
    job.settings = replace(job.settings, **settings)
    return job


def check(job: MemoryJob, expected: Rows, table: str = "t") -> None:
    """Nothing waits, and the table is its source, also behind another change."""
    waiting = [name for name in job.state.tables() if job.state.table(name).parked is not None]
    assert waiting == [], [job.state.table(name).parked for name in waiting]
    assert job.rows(table) == sorted(map(dict, expected), key=repr)


LATER = SourceTable("t", [int64("id", optional=False), int32("v")])
OTHER_KEY = SourceTable("t", [int32("id", optional=False), int32("v")], key=("id", "v"))


@pytest.mark.parametrize("later", [LATER, OTHER_KEY])
@pytest.mark.parametrize("is_by_hand", [False, True])
def test_a_key_that_has_changed(tmp_path: Path, later: SourceTable, is_by_hand: bool) -> None:
    """Its type or its columns; by the command, or by hand: signal, drop, skip."""
    with memory_job(tmp_path) as job:
        job.batch(T.insert({"id": 1, "v": 1}))
        job.batch(later.insert({"id": 2, "v": 2}))
        source = Source(later, [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        reason = reason_of(job)
        if is_by_hand:
            assert "signal execute-snapshot for the source table, drop t, and run" in reason
            job.catalog.drop_table("shop.t")
            do(job, reason, "skip")
            job.batch(*(source.table.read(row, snapshot="true") for row in source.rows))
        else:
            do(job, reason, "resnapshot", source)
        check(job, source.rows)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("add", [SourceTable("t", [*T.columns, int32("w")]).insert({"id": 2, "v": 2, "w": 3})],
         [{"id": 1, "v": 1, "w": None}, {"id": 2, "v": 2, "w": 3}]),
        ("widen", [SourceTable("t", [T.columns[0], int64("v")]).insert({"id": 2, "v": 1 << 40})],
         [{"id": 1, "v": 1}, {"id": 2, "v": 1 << 40}]),
        ("retype", [SourceTable("t", [T.columns[0], text("v")]).update({"id": 1, "v": "x"})],
         [{"id": 1, "v": None, "v_2": "x"}]),
        ("drop", [SourceTable("t", [T.columns[0]]).insert({"id": 2})], [{"id": 1, "v": 1}, {"id": 2, "v": None}]),
        ("truncate", [T.truncate(), T.insert({"id": 2, "v": 2})], [{"id": 2, "v": 2}]),
    ],
)  # fmt: skip
def test_a_change_that_the_rules_refuse(tmp_path: Path, kind: str, changes: list[Record], expected: Rows) -> None:
    with memory_job(tmp_path, schema_changes={kind: "fail"}) as job:
        job.batch(T.insert({"id": 1, "v": 1}))
        job.batch(*changes)
        reason = reason_of(job)
        word = re.search(rf"schema-changes.{kind}=fail fix='set it to ([\w-]+)", reason)
        assert word is not None, reason
        do(changed(job, schema_changes={kind: word[1]}), reason, "resume")
        check(job, expected)


def test_a_truncate_in_a_topic_of_several_partitions(tmp_path: Path) -> None:
    """Which of the changes came before is not known: a snapshot is what the source has."""
    with memory_job(tmp_path) as job:
        LogTopics(job.settings.properties).create_topic(T.topic, bucket_count=3)
        job.batch(*(T.insert({"id": number, "v": 1}) for number in range(9)))
        job.batch(T.truncate(), T.insert({"id": 20, "v": 1}), T.insert({"id": 21, "v": 1}))
        source = Source(T, [{"id": 20, "v": 1}, {"id": 21, "v": 2}, {"id": 22, "v": 3}])
        job.send(T.update({"id": 21, "v": 2}), T.insert({"id": 22, "v": 3}), T.insert({"id": 23, "v": 3}))
        job.send(T.delete({"id": 23, "v": None}))
        do(job, reason_of(job), "resnapshot", source)
        check(job, source.rows)
        job.batch(*(T.update({"id": number, "v": 9}) for number in range(20, 30)))
        check(job, [{"id": number, "v": 9} for number in range(20, 30)])


def test_two_source_tables_with_one_name(tmp_path: Path) -> None:
    """The rule names both otherwise: their earlier records are behind the job, so a snapshot brings the rows."""
    one, two = SourceTable("t", T.columns), SourceTable("t", T.columns, schema="sales")
    with memory_job(tmp_path) as job:
        job.batch(one.insert({"id": 1, "v": 1}))
        job.batch(two.insert({"id": 1, "v": 2}))
        reason = reason_of(job)
        rule = re.search(r'\{from: (\S+), to: "(\S+)"\}', reason)
        assert rule is not None, reason
        changed(job, naming=Naming(rules=(NameRule(source=rule[1], to=rule[2]),)))
        do(job, reason, "resnapshot", Source(one, [{"id": 1, "v": 1}]), Source(two, [{"id": 1, "v": 2}]))
        check(job, [{"id": 1, "v": 1}], "public_t")
        check(job, [{"id": 1, "v": 2}], "sales_t")


def test_a_table_name_with_a_dot(tmp_path: Path) -> None:
    source = SourceTable("tab.dot", T.columns, schema="sch", topic_name="shop.dotted")
    with memory_job(tmp_path) as job:
        job.batch(source.insert({"id": 1, "v": 1}))
        reason = reason_of(job, "tab.dot")
        rule = re.search(r'\{from: (\S+), to: "(\S+)"\}', reason)
        assert rule is not None, reason
        changed(job, naming=Naming(rules=(NameRule(source=rule[1], to=rule[2]),)))
        do(job, reason, "resnapshot", Source(source, [{"id": 1, "v": 1}]))
        check(job, [{"id": 1, "v": 1}], "sch_tab_dot")


def bare(record: Record) -> Record:
    """Without schema parts."""
    return record[0], *(
        None if each is None else json.dumps(json.loads(each)["payload"]).encode() for each in record[1:3]
    )


def test_records_without_schema_parts(tmp_path: Path) -> None:
    columns = tuple((name, parse_data_type("INT")) for name in ("id", "v"))
    with memory_job(tmp_path) as job:
        job.batch(bare(T.insert({"id": 1, "v": 1})))
        reason = reason_of(job)
        assert "declare the columns of the table" in reason
        do(changed(job, tables={"t": TableSettings(columns=columns, key=("id",))}), reason, "resume")
        check(job, [{"id": 1, "v": 1}])


@pytest.mark.parametrize("way", ["exclude", "say"])
def test_a_column_that_loses_something(tmp_path: Path, way: str) -> None:
    loses = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroDuration", "field": "i"}
    source = SourceTable("t", [int32("id", optional=False), loses])
    with memory_job(tmp_path, types=TypeRules(lossy="refuse")) as job:
        job.batch(source.insert({"id": 1, "i": 5}))
        reason = reason_of(job)
        if way == "exclude":
            found = re.search(r"columns: \{exclude: \['(.*?)'\]\}", reason)
            assert found is not None, reason
            do(changed(job, excluded=(found[1],)), reason, "resume")
        else:
            assert "types: {lossy: say}" in reason
            do(changed(job, types=TypeRules()), reason, "resume")
        check(job, [{"id": 1} if way == "exclude" else {"id": 1, "i": 5}])


@pytest.mark.parametrize("has_topic_ids", [True, False])
@pytest.mark.parametrize("command", ["resnapshot", "resume"])
def test_a_topic_that_was_made_again(tmp_path: Path, has_topic_ids: bool, command: str) -> None:
    """Brokers before Kafka 2.8 give topics no ids: then only a shorter topic is known for another one."""
    with memory_job(tmp_path) as job:
        job.has_topic_ids = has_topic_ids
        job.batch(*(T.insert({"id": number, "v": 1}) for number in range(5)))
        made_again(job, T.topic)
        job.batch(T.insert({"id": 1, "v": 2}))
        reason = reason_of(job)
        rows = [{"id": 1, "v": 2}, {"id": 7, "v": 7}]
        do(job, reason, command, Source(T, rows))
        if command == "resume":
            rows = [{"id": number, "v": 2 if number == 1 else 1} for number in range(5)]
        check(job, rows)


def made_again(job: MemoryJob, topic: str) -> None:
    topics = LogTopics(job.settings.properties)
    topics.delete_topic(topic)
    topics.create_topic(topic, bucket_count=1)


def test_a_snapshot_that_begins_again_of_source_tables_without_keys_in_one_table(tmp_path: Path) -> None:
    """Which of the rows it replaces is not known; all are replaced, those of the other source table as well."""
    one, two = (SourceTable(name, T.columns, key=()) for name in ("t1", "t2"))
    row = {"id": 1, "v": 1}
    with memory_job(tmp_path, naming=Naming(rules=(NameRule(source=r"public\.t\d", to="t"),))) as job:
        job.batch(one.insert(row), one.insert(row), two.insert(row))
        job.batch(one.read(row, snapshot="first"), one.read(row, snapshot="last"))
        reason = reason_of(job)
        assert "would be counted twice" in reason
        do(job, reason, "resnapshot", Source(one, [row, row]), Source(two, [row]))
        check(job, [row, row, row])
