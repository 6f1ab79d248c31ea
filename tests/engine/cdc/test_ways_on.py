"""Each kind of table that waits: what its message says is done word by word, and then it is what its source is."""

import ast
import json
import re
import zlib
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
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.topics import LogTopics
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, decimal, int32, int64, text

T = SourceTable("t", [int32("id", optional=False), int32("v")])
_COMMAND = re.compile(r"fluvial cdc (resnapshot|resume|skip) ([\w.,]+)((?: --[a-z-]+(?: \d+)?)*)")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Live:
    """What the database has behind the changes that were published, for a snapshot of a connector."""

    table: SourceTable
    rows: Rows


def reason_of(job: MemoryJob, table: str = "t") -> str:
    """As ``fluvial cdc status`` shows it: why, and what to do."""
    (found,) = [each for each in job_status(job.state, latest=None, now_ms=1) if each.table == table]
    assert found.reason is not None
    return f"{found.reason} {found.fix}"


def do(job: MemoryJob, text: str, command: str, *sources: Live) -> None:
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


def with_rules(job: MemoryJob, **settings: Any) -> MemoryJob:
    """The job started again with other settings."""
    job.restarted()
    job.settings = replace(job.settings, **settings)
    return job


def check_equal(job: MemoryJob, expected: Rows, table: str = "t") -> None:
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
        source = Live(later, [{"id": 1, "v": 1}, {"id": 2, "v": 2}])
        reason = reason_of(job)
        if is_by_hand:
            assert "signal execute-snapshot for the source table, drop t, and run" in reason
            job.catalog.drop_table("shop.t")
            do(job, reason, "skip")
            job.batch(*(source.table.read(row, snapshot="true") for row in source.rows))
        else:
            do(job, reason, "resnapshot", source)
        check_equal(job, source.rows)


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
        do(with_rules(job, schema_changes={kind: word[1]}), reason, "resume")
        check_equal(job, expected)


MILLIS, MICROS = ({**int64("v"), "name": f"io.debezium.time.{name}"} for name in ("Timestamp", "MicroTimestamp"))
FLOAT, DOUBLE = ({**int32("v"), "type": kind} for kind in ("float", "double"))


@pytest.mark.parametrize(
    ("narrow", "wide", "fits", "large"),
    [
        (int32("v"), int64("v"), 1, 1 << 40),
        (decimal("v", 10, 2), decimal("v", 14, 4), None, "AQ=="),
        (MILLIS, MICROS, None, 1),
        (FLOAT, DOUBLE, 0.5, 0.1),
    ],
)
@pytest.mark.parametrize("command", ["resume", "skip"])
def test_a_value_for_a_column_that_a_rule_keeps_narrow(
    tmp_path: Path, narrow: Field, wide: Field, fits: Any, large: Any, command: str
) -> None:
    """1 << 40 became 0, digits were cut, in silence; values that fit are taken, and deletes need none."""
    old, new = (SourceTable("t", [T.columns[0], each]) for each in (narrow, wide))
    with memory_job(tmp_path / "expected") as job:
        job.batch(new.insert({"id": 4, "v": large}))
        expected = job.rows("t") if command == "resume" else []
    with memory_job(tmp_path, schema_changes={"widen": "ignore"}) as job:
        job.batch(old.insert({"id": 1, "v": fits}), old.insert({"id": 2, "v": fits}))
        report = job.batch(new.insert({"id": 3, "v": fits}), new.delete({"id": 2, "v": large}))
        assert report.tables["t"].parked is None
        job.batch(new.insert({"id": 4, "v": large}), new.insert({"id": 5, "v": fits}))
        reason = reason_of(job)
        assert "schema-changes.widen=ignore fix='set it to evolve" in reason
        if command == "resume":
            with_rules(job, schema_changes={})
        do(job, reason, command)
        assert job.state.table("t").parked is None
        rows = {row["id"]: row for row in job.rows("t")}
        assert (sorted(rows.keys() - {4}), [rows[4]] if 4 in rows else []) == ([1, 3, 5], expected)


def test_a_truncate_in_a_topic_of_several_partitions(tmp_path: Path) -> None:
    """Which of the changes came before is not known: a snapshot is what the source has."""
    with memory_job(tmp_path) as job:
        LogTopics(job.settings.properties).create_topic(T.topic, bucket_count=3)
        job.batch(*(T.insert({"id": number, "v": 1}) for number in range(9)))
        job.batch(T.truncate(), T.insert({"id": 20, "v": 1}), T.insert({"id": 21, "v": 1}))
        source = Live(T, [{"id": 20, "v": 1}, {"id": 21, "v": 2}, {"id": 22, "v": 3}])
        job.send(T.update({"id": 21, "v": 2}), T.insert({"id": 22, "v": 3}), T.insert({"id": 23, "v": 3}))
        job.send(T.delete({"id": 23, "v": None}))
        do(job, reason_of(job), "resnapshot", source)
        check_equal(job, source.rows)
        job.batch(*(T.update({"id": number, "v": 9}) for number in range(20, 30)))
        check_equal(job, [{"id": number, "v": 9} for number in range(20, 30)])


def test_two_source_tables_with_one_name(tmp_path: Path) -> None:
    """The rule names both otherwise: their earlier records are behind the job, so a snapshot brings the rows."""
    one, two = SourceTable("t", T.columns), SourceTable("t", T.columns, schema="sales")
    with memory_job(tmp_path) as job:
        job.batch(one.insert({"id": 1, "v": 1}))
        job.batch(two.insert({"id": 1, "v": 2}))
        reason = reason_of(job)
        rule = re.search(r'\{from: (\S+), to: "(\S+)"\}', reason)
        assert rule is not None, reason
        with_rules(job, naming=Naming(rules=(NameRule(source=rule[1], to=rule[2]),)))
        do(job, reason, "resnapshot", Live(one, [{"id": 1, "v": 1}]), Live(two, [{"id": 1, "v": 2}]))
        check_equal(job, [{"id": 1, "v": 1}], "public_t")
        check_equal(job, [{"id": 1, "v": 2}], "sales_t")


def test_a_table_name_with_a_dot(tmp_path: Path) -> None:
    source = SourceTable("tab.dot", T.columns, schema="sch", topic_name="shop.dotted")
    with memory_job(tmp_path) as job:
        job.batch(source.insert({"id": 1, "v": 1}))
        reason = reason_of(job, "tab.dot")
        rule = re.search(r'\{from: (\S+), to: "(\S+)"\}', reason)
        assert rule is not None, reason
        with_rules(job, naming=Naming(rules=(NameRule(source=rule[1], to=rule[2]),)))
        do(job, reason, "resnapshot", Live(source, [{"id": 1, "v": 1}]))
        check_equal(job, [{"id": 1, "v": 1}], "sch_tab_dot")


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
        do(with_rules(job, tables={"t": TableSettings(columns=columns, key=("id",))}), reason, "resume")
        check_equal(job, [{"id": 1, "v": 1}])


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
            do(with_rules(job, excluded=(found[1],)), reason, "resume")
        else:
            assert "types: {lossy: say}" in reason
            do(with_rules(job, types=TypeRules()), reason, "resume")
        check_equal(job, [{"id": 1} if way == "exclude" else {"id": 1, "i": 5}])


@pytest.mark.parametrize("has_topic_ids", [True, False])
@pytest.mark.parametrize("command", ["resnapshot", "resume"])
def test_a_topic_that_was_made_again(tmp_path: Path, has_topic_ids: bool, command: str) -> None:
    """Brokers before Kafka 2.8 give topics no ids: then only a shorter topic is known for another one."""
    with memory_job(tmp_path) as job:
        job.has_topic_ids = has_topic_ids
        job.batch(*(T.insert({"id": number, "v": 1}) for number in range(5)))
        recreate_topic(job, T.topic)
        job.batch(T.insert({"id": 1, "v": 2}))
        reason = reason_of(job)
        rows = [{"id": 1, "v": 2}, {"id": 7, "v": 7}]
        do(job, reason, command, Live(T, rows))
        if command == "resume":
            rows = [{"id": number, "v": 2 if number == 1 else 1} for number in range(5)]
        check_equal(job, rows)


COUNTED = replace(T, key=())


def without_a_key(job: MemoryJob, cause: str) -> SourceTable:
    """A table that waits for this cause, with two rows in the source; gives the source table then."""
    later = {"a key is added": T}.get(cause, COUNTED)
    job.has_topic_ids = True
    if cause == "truncated":
        LogTopics(job.settings.properties).create_topic(T.topic, bucket_count=2)
    job.batch((T if cause == "the key is dropped" else COUNTED).insert({"id": 1, "v": 1}))
    if cause == "another topic":
        recreate_topic(job, T.topic)
    if cause == "truncated":
        job.batch((T.topic, b"a", COUNTED.insert({"id": 2, "v": 1})[2]), (T.topic, b"b", COUNTED.truncate()[2]))
    if cause == "expired":
        job.send(COUNTED.insert({"id": 2, "v": 1}))
        cluster: MemoryCluster = job.settings.properties.environment.cluster  # type: ignore[attr-defined]
        cluster.delete_records(T.topic, 0, cluster.partition(T.topic, 0).end)
    job.batch(later.insert({"id": 2, "v": 2}))
    return later


@pytest.mark.parametrize("cause", ["another topic", "expired", "truncated", "a key is added", "the key is dropped"])
def test_each_command_for_a_table_without_a_key_says_that_the_source_has_no_writer(tmp_path: Path, cause: str) -> None:
    """The command that the message named was refused, because it lacked ``--writers-stopped``."""
    with memory_job(tmp_path) as job:
        later = without_a_key(job, cause)
        rows = [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
        reason = reason_of(job)
        assert "--writers-stopped" in reason
        do(job, reason, "resnapshot", Live(later, rows))
        check_equal(job, rows)


def recreate_topic(job: MemoryJob, topic: str) -> None:
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
        do(job, reason, "resnapshot", Live(one, [row, row]), Live(two, [row]))
        check_equal(job, [row, row, row])


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("command", ["resnapshot", "skip"])
def test_records_that_expired_before_the_table_had_them(tmp_path: Path, command: str, partitions: int) -> None:
    """The message was that of a table's log; to resume it waited again."""
    with memory_job(tmp_path) as job:
        LogTopics(job.settings.properties).create_topic(T.topic, bucket_count=partitions)
        first = [{"id": number, "v": 1} for number in range(9)]
        job.batch(*map(T.insert, first))
        job.send(T.insert({"id": 9, "v": 1}), T.insert({"id": 9, "v": 2}))
        cluster: MemoryCluster = job.settings.properties.environment.cluster  # type: ignore[attr-defined]
        number = zlib.crc32(T.insert({"id": 9})[1] or b"") % partitions
        cluster.delete_records(T.topic, number, cluster.partition(T.topic, number).end)
        job.batch(*(T.update({"id": each["id"], "v": 4}) for each in first))
        rows = [{"id": number, "v": 2} for number in range(12)]
        do(job, reason_of(job), command, Live(T, rows))
        check_equal(job, rows if command == "resnapshot" else [{"id": number, "v": 4} for number in range(9)])


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("count", [1, 2])
def test_an_awaited_snapshot_without_keys_that_comes_in_several_batches(
    tmp_path: Path, partitions: int, count: int
) -> None:
    """Rows of the second source table, or partition, were taken for a snapshot that begins again: it waited again."""
    tables = [SourceTable(f"t{number}", T.columns, key=()) for number in range(count)]
    rows = [{"id": number, "v": 1} for number in range(6)]
    with memory_job(tmp_path, naming=Naming(rules=(NameRule(source=r"public\.t\d", to="t"),))) as job:
        job.has_topic_ids = True
        for table in tables:
            LogTopics(job.settings.properties).create_topic(table.topic, bucket_count=partitions)
        # rows without a key are in any partition
        events = [(each.topic, str(row).encode(), each.insert(row)[2]) for each in tables for row in rows]
        job.batch(*events)
        latest = latest_offsets(job.settings.properties, job.settings.pattern)
        request_snapshots(job.state, job.settings, ["t"], latest, topic=None, at_ms=1, are_writers_stopped=True)
        job.batch()
        last = len(rows) - 1
        for table in tables:
            for at, row in enumerate(rows):
                mark = "first" if at == 0 else "last" if at == last else "true"
                job.batch((table.topic, str(row).encode(), table.read(row, snapshot=mark, lsn=7)[2]))
                job.restarted()
        check_equal(job, rows * count)
        changes = [(each.topic, b"k", each.delete(rows[0])[2]) for each in tables]
        job.batch(*changes)
        check_equal(job, rows[1:] * count)


def test_a_snapshot_that_begins_again_behind_an_awaited_one_is_not_counted_twice(tmp_path: Path) -> None:
    table, row = SourceTable("t", T.columns, key=()), {"id": 1, "v": 1}
    with memory_job(tmp_path) as job:
        job.batch(table.insert(row))
        latest = latest_offsets(job.settings.properties, job.settings.pattern)
        request_snapshots(job.state, job.settings, ["t"], latest, topic=None, at_ms=1, are_writers_stopped=True)
        job.batch()
        for lsn in (7, 8):
            job.batch(table.read(row, snapshot="first", lsn=lsn))
        job.batch(table.read(row, snapshot="last", lsn=8))
        check_equal(job, [row, row])


def test_a_column_with_the_name_of_one_that_the_job_adds(tmp_path: Path) -> None:
    with memory_job(tmp_path, added={"v": "source.lsn"}) as job:
        job.batch(T.insert({"id": 1, "v": 1}))
        reason = reason_of(job)
        rule = re.search(r"columns: \{rename: \{(\w+): (\w+)\}\}", reason)
        assert rule is not None, reason
        do(with_rules(job, renamed={rule[1]: rule[2]}), reason, "resume")
        assert [(row["id"], row["src_v"]) for row in job.rows("t")] == [(1, 1)]


def test_a_key_column_that_a_rule_leaves_out(tmp_path: Path) -> None:
    with memory_job(tmp_path, excluded=(r"public\.t\.id",)) as job:
        job.batch(T.insert({"id": 1, "v": 1}))
        reason = reason_of(job)
        assert "a key column is not in the rows" in reason
        assert "do not exclude it" in reason
        do(with_rules(job, excluded=()), reason, "resume")
        check_equal(job, [{"id": 1, "v": 1}])


def test_a_delete_that_has_its_key_only_where_another_column_orders_rows(tmp_path: Path) -> None:
    with memory_job(tmp_path, tables={"t": TableSettings(options={"sequence.field": "v"})}) as job:
        job.batch(T.insert({"id": 1, "v": 1}), T.insert({"id": 2, "v": 1}))
        job.batch(T.delete({"id": 1, "v": None}))
        reason = reason_of(job)
        do(with_rules(job, tables={}), reason, "resnapshot", Live(T, [{"id": 2, "v": 1}]))
        check_equal(job, [{"id": 2, "v": 1}])


@pytest.mark.parametrize("settings", [{"added": {}}, {"without_key": "append"}])
def test_a_row_without_a_key_that_has_values_of_its_change(tmp_path: Path, settings: dict[str, Any]) -> None:
    source = replace(T, key=())
    with memory_job(tmp_path, added={"_at": "source.lsn"}) as job:
        job.batch(source.insert({"id": 1, "v": 1}), source.insert({"id": 2, "v": 1}))
        job.batch(source.delete({"id": 1, "v": 1}))
        reason = reason_of(job)
        do(with_rules(job, **settings), reason, "resnapshot", Live(source, [{"id": 2, "v": 1}]))
        job.batch(source.insert({"id": 3, "v": 1}))
        assert [each["id"] for each in job.rows("t")] == [2, 3]


UNEQUAL = {
    "rowkind.field": "s", "merge-engine": "partial-update", "ignore-delete": "true", "bucket": "-2",
    "sequence.field.sort-order": "descending", "changelog-producer": "input", "log.changelog-mode": "all",
}  # fmt: skip
BESIDE = {
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "all": {"log.system": "kafka", "log.kafka.bootstrap.servers": "cdc.memory:9092", "bucket": "1"},
}


@pytest.mark.parametrize("key", UNEQUAL)
def test_an_option_with_which_the_table_does_not_equal_its_source(tmp_path: Path, key: str) -> None:
    """Rows, kinds or changes were others in silence, or the table waited without a way on; of the job, or stored."""
    source = SourceTable("t", [*T.columns, text("s")])
    options = {key: UNEQUAL[key], **BESIDE.get(UNEQUAL[key], {})}
    with memory_job(tmp_path, tables={"t": TableSettings(options=options)}) as job:
        job.batch(source.insert({"id": 1, "v": 1, "s": "x"}), source.insert({"id": 2, "v": 1, "s": "-D"}))
        reason = reason_of(job)
        assert f"option={key} value={UNEQUAL[key]}" in reason
        do(with_rules(job, tables={}), reason, "resnapshot", Live(source, [{"id": 1, "v": 1, "s": "x"}]))
        check_equal(job, [{"id": 1, "v": 1, "s": "x"}])


ENGINE = Path(__file__).parents[3] / "engine" / "cdc"
TESTS = Path(__file__).parent
THIS, SEVERAL = "test_ways_on", "test_topics_of_several_partitions"
WAYS = {
    "a snapshot of a table without a key has begun again, its rows would be counted twice":
        (THIS, "test_a_snapshot_that_begins_again_of_source_tables_without_keys_in_one_table"),
    "the source table was truncated": (THIS, "test_a_change_that_the_rules_refuse"),
    "one of several source tables was truncated":
        ("test_refused_records", "test_a_truncate_of_a_shard_is_skipped_with_what_it_removed"),
    "a source table was truncated whose changes are in several partitions, so which of them came before is not known":
        (THIS, "test_a_truncate_in_a_topic_of_several_partitions"),
    "the topic was deleted and made again since it was read": (THIS, "test_a_topic_that_was_made_again"),
    "records are not in the topic, because retention removed them before the table had them":
        (THIS, "test_records_that_expired_before_the_table_had_them"),
    "too many records cannot be decoded":
        ("test_refused_records", "test_a_table_with_more_bad_records_than_are_allowed_continues_when_more_are"),
    "record cannot be decoded":
        ("test_refused_records", "test_a_skip_leaves_out_exactly_the_record_that_is_named"),
    "record cannot be read": ("test_refused_records", "test_what_cannot_be_read_goes_to_the_dead_letters"),
    "a table cannot have a dot in its name": (THIS, "test_a_table_name_with_a_dot"),
    "two source tables have one name": (THIS, "test_two_source_tables_with_one_name"),
    "a column is in the rows of a snapshot and not in the changes":
        ("test_generated_columns", "test_a_column_that_only_rows_of_a_snapshot_have_is_asked_about"),
    "rows without a key are known by all their values, and those of old rows have changed in the source":
        ("test_rows_before_a_column", "test_a_table_without_a_key_waits_for_them"),
    "the schema of the source has changed": (THIS, "test_a_change_that_the_rules_refuse"),
    "columns have changed in a topic of several partitions, and which records came before is not known":
        (SEVERAL, "test_a_column_that_was_dropped_and_comes_back"),
    "the columns of a record are not known any more":
        ("rules/test_part_sequence", "test_a_record_before_all_known_runs_is_no_record_of_the_first"),
    "the type of a key column has changed": (THIS, "test_a_key_that_has_changed"),
    "the key of the source table has changed": (THIS, "test_a_key_that_has_changed"),
    "a column of the source has the name of one that the job adds":
        (THIS, "test_a_column_with_the_name_of_one_that_the_job_adds"),
    "a table with this option does not equal its source":
        (THIS, "test_an_option_with_which_the_table_does_not_equal_its_source"),
    "a delete has its key only, and would remove nothing where another column orders rows":
        (THIS, "test_a_delete_that_has_its_key_only_where_another_column_orders_rows"),
    "a row of a table without a key is found by all its values, and these differ from change to change":
        (THIS, "test_a_row_without_a_key_that_has_values_of_its_change"),
    "a key column is not in the rows": (THIS, "test_a_key_column_that_a_rule_leaves_out"),
    "a column loses something of the source": (THIS, "test_a_column_that_loses_something"),
    "an update cannot be completed":
        ("test_changes_of_types", "test_an_update_without_its_values_names_the_command_that_brings_them"),
    "rows from before a new column or type have values that no record says":
        ("test_rows_before_a_column", "test_by_rule_a_table_waits_for_them"),
}  # fmt: skip
"""The beginning of each message that parks a table, and the test that does what it says."""
NO_TABLE_WAITS = {
    "a connector stands still that gets a signal while it takes another snapshot",
    "a computed column cannot have this name",
    "rows that the source has deleted meanwhile stay",
}
"""Commands and starts that are refused, and warnings."""


def messages() -> set[str]:
    """The beginnings of texts with a fix, in what runs while a batch is planned and written."""
    found = set()
    places = [ENGINE / f"{name}.py" for name in ("batch", "planning", "tables", "writers")]
    for path in [*places, *sorted((ENGINE / "rules").glob("*.py")), ENGINE / "records" / "table_rows.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values)
                if re.match(r"[a-z ,]+: ", text) and ("fix=" in text or "record cannot be" in text):
                    found.add(text.partition(":")[0])
    return found


def test_each_message_of_a_table_that_waits_has_a_test_that_does_what_it_says() -> None:
    assert messages() - NO_TABLE_WAITS == WAYS.keys()
    for file, name in WAYS.values():
        assert f"def {name}(" in (TESTS / f"{file}.py").read_text(encoding="utf-8"), (file, name)
