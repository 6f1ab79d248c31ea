"""A job's batches over a cluster in memory: tables are made, changed and written from literal Debezium records."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from engine import Catalog, Table
from engine.cdc import writers
from engine.cdc.batch import CdcBatches
from engine.cdc.records import scan
from engine.cdc.report import TableReport
from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.settings import CdcSettings, TableSettings
from engine.cdc.state import CdcTableState, StateFiles
from engine.kafka.offsets import OffsetRange
from engine.lineage.lineage import lineage_of
from engine.lineage.origins import CommitOrigin
from engine.lineage.store.entities import LineageRecords
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.runtime.steps import Step, StepEvent
from engine.write.session import WriteSession
from engine.write.unavailable.filling import Filling
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.offsets import LogRange
from lsm.errors import UnavailableError
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, decimal, int32, int64, send, text, tombstone

ORDERS = SourceTable("orders", [int32("id", optional=False), text("state"), decimal("amount", 10, 2)])
USERS = SourceTable("users", [int64("id", optional=False), text("name")])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def test_tables_are_made_from_the_first_records_and_follow_the_changes(job: MemoryJob) -> None:
    """Two source tables in one job: keys and columns from the records' own schema parts, no list of tables."""
    delete = ORDERS.delete({"id": 2, "state": None, "amount": None})
    job.batch(
        ORDERS.read({"id": 1, "state": "new", "amount": "A+c="}),
        ORDERS.read({"id": 2, "state": "new", "amount": None}),
        USERS.insert({"id": 7, "name": "Ann"}),
    )
    orders = job.catalog.table("shop.orders")
    assert orders.schema.primary_keys == ("id",)
    assert [str(each.type) for each in orders.schema.fields] == ["INT NOT NULL", "STRING", "DECIMAL(10, 2)"]
    report = job.batch(ORDERS.update({"id": 1, "state": "paid", "amount": "A+c="}), delete, tombstone(delete))
    assert [(row["id"], row["state"], str(row["amount"])) for row in job.rows("orders")] == [(1, "paid", "9.99")]
    assert job.rows("users") == [{"id": 7, "name": "Ann"}]
    assert set(report.tables) == {"orders"}  # an idle table costs nothing
    assert job.snapshots("users") == 1


def test_a_column_with_parts_is_the_same_column_in_the_next_batch(job: MemoryJob) -> None:
    """A point of PostgreSQL: the parts of a ROW have other field ids in the table than in the record's schema."""
    parts = [{"type": "double", "optional": False, "field": name} for name in "xy"]
    point = {"type": "struct", "optional": True, "name": "io.debezium.data.geometry.Point", "field": "at"}
    places = SourceTable("places", [int32("id", optional=False), {**point, "version": 1, "fields": parts}])
    job.batch(places.read({"id": 1, "at": {"x": 1.5, "y": 2.5}}))
    job.batch(places.update({"id": 1, "at": {"x": 3.5, "y": 2.5}}), places.insert({"id": 2, "at": None}))
    assert job.rows("places") == [{"id": 1, "at": {"x": 3.5, "y": 2.5}}, {"id": 2, "at": None}]


def orders_of(job: MemoryJob) -> list[tuple[int, str | None]]:
    return [(row["id"], row["state"]) for row in job.rows("orders")]


def test_a_replay_writes_only_the_tables_that_miss_the_batch(job: MemoryJob) -> None:
    """The driver dies between the commits of two tables; the batch is written again, each table once."""
    log = SourceTable("log", [int32("n"), text("what")], key=())
    job.batch(log.insert({"n": 1, "what": "a"}), USERS.insert({"id": 1, "name": "Ann"}))
    steps: list[Step] = []

    def dies(event: StepEvent) -> None:
        if Step.TABLE_COMMITTED in steps:
            raise KeyboardInterrupt  # no error of a table: nothing is parked, and no other table begins
        steps.append(event.step)

    with pytest.raises(KeyboardInterrupt):
        job.batch(log.insert({"n": 2, "what": "b"}), USERS.insert({"id": 2, "name": "Bob"}), observe=dies)
    assert (job.snapshots("log"), job.snapshots("users")) == (2, 1)
    job.restarted()
    job.again()
    job.again()
    assert job.rows("log") == [{"n": 1, "what": "a"}, {"n": 2, "what": "b"}]
    assert [row["id"] for row in job.rows("users")] == [1, 2]
    assert (job.snapshots("log"), job.snapshots("users")) == (2, 2)


def test_a_lost_checkpoint_reads_again_and_writes_nothing_twice(job: MemoryJob) -> None:
    """A table's snapshot has the position of the job: a new query from the beginning leaves out what is there."""
    log = SourceTable("log", [int32("n")], key=())
    job.batch(log.insert({"n": 1}), log.insert({"n": 2}))
    job.position, job.batch_id, job.commit_user = {}, -1, "query-2"
    job.restarted()
    job.batch(log.insert({"n": 3}))
    assert job.rows("log") == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_schema_changes_in_one_batch_are_passed_through_in_order_of_offsets(job: MemoryJob) -> None:
    """ADD, DROP, int to bigint, decimal (10,2) to (12,4), int to text, and DROP then ADD of one name: no restart."""
    first = SourceTable("t", [int32("id"), int32("a"), decimal("d", 10, 2), int32("r")])
    wide = first.with_columns(int32("id"), int64("a"), decimal("d", 12, 4), int32("r"), text("e"))
    typed = first.with_columns(int32("id"), int64("a"), decimal("d", 12, 4), text("r"))
    dropped = first.with_columns(int32("id"), text("r"))
    again = first.with_columns(int32("id"), int64("a"), text("r"))
    job.batch(
        first.insert({"id": 1, "a": 1, "d": "A+c=", "r": 5}),
        wide.insert({"id": 2, "a": 1 << 40, "d": "AYaf", "r": 6, "e": "e"}),
        typed.insert({"id": 3, "a": 3, "d": None, "r": "six"}),
        dropped.insert({"id": 4, "r": "four"}),
        again.insert({"id": 5, "a": 55, "r": "five"}),
    )
    table = job.catalog.table("shop.t")
    assert [(each.name, str(each.type)) for each in table.schema.fields] == [
        ("id", "INT NOT NULL"),
        ("a", "BIGINT"),
        ("d", "DECIMAL(12, 4)"),
        ("r", "INT"),
        ("e", "STRING"),
        ("r_2", "STRING"),
        ("a_2", "BIGINT"),
    ]
    rows = [[None if value is None else str(value) for value in row.values()] for row in job.rows("t")]
    assert rows == [
        ["1", "1", "9.9900", "5", None, None, None],
        ["2", str(1 << 40), "9.9999", "6", "e", None, None],
        ["3", "3", None, None, None, "six", None],
        ["4", None, None, None, None, "four", None],
        ["5", None, None, None, None, "five", "55"],
    ]
    job.restarted()
    job.batch(again.update({"id": 5, "a": 56, "r": "six"}))
    assert job.rows("t")[4]["a_2"] == 56  # known from the state, not guessed
    assert len(job.catalog.table("shop.t").schema.fields) == 7


def migrations() -> tuple[list[Record], list[dict[str, object]]]:
    """A script that adds 12 columns, drops 8, and makes one of another type again, with a row behind each change."""
    records: list[Record] = []
    rows: list[dict[str, object]] = []
    columns = [int32("id", optional=False), int32("x")]

    def changed(*now: Field) -> None:
        columns[:] = now
        row: dict[str, object] = {each["field"]: None for each in columns} | {"id": len(rows)}
        if "x" in row:
            row["x"] = "text" if columns[-1] == text("x") else 100 + len(rows)
        records.append(SourceTable("t", list(columns)).insert(row))
        rows.append(row)

    changed(*columns)
    for number in range(12):
        changed(*columns, int32(f"c{number}"))
    for row in rows:
        row.pop("x")
    changed(*(each for each in columns if each["field"] != "x"), text("x"))
    for number in range(8):
        changed(*(each for each in columns if each["field"] != f"c{number}"))
    return records, rows


@pytest.mark.parametrize("size", [1, 5, 100])
def test_any_number_of_schema_parts_comes_in_one_batch(job: MemoryJob, size: int) -> None:
    """A first start on a topic with history, or a job that was down over a script; then a lost checkpoint."""
    records, rows = migrations()
    for begin in range(0, len(records), size):
        job.batch(*records[begin : begin + size])
        job.restarted()
    live = job.live("t")
    expected = [{name: row.get(name) for name in live} for row in rows]

    def found() -> list[dict[str, object]]:
        return sorted(
            ({name: row[column] for name, column in live.items()} for row in job.rows("t")), key=lambda row: row["id"]
        )

    assert found() == expected
    before = job.catalog.table("shop.t").schema.column_names
    job.position, job.batch_id, job.commit_user = {}, -1, "query-2"
    job.restarted()
    job.batch()
    assert (found(), job.catalog.table("shop.t").schema.column_names) == (expected, before)
    assert job.live("t") == live


def test_old_rows_have_the_default_of_an_added_column(job: MemoryJob) -> None:
    """PostgreSQL's ADD COLUMN with a DEFAULT emits no events for the rows that are there."""
    job.batch(USERS.insert({"id": 1, "name": "Ann"}))
    grown = USERS.with_columns(*USERS.columns, {**int32("n", optional=False), "default": 7})
    job.batch(grown.insert({"id": 2, "name": "Bob", "n": 8}))
    assert [(row["id"], row["n"]) for row in job.rows("users")] == [(1, 7), (2, 8)]


def test_a_column_that_loses_something_is_told_when_it_is_made(
    job: MemoryJob, caplog: pytest.LogCaptureFixture
) -> None:
    """G: tables that join while a job runs are in no plan; a column is reported once, another one when it comes."""
    lasts = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroDuration", "field": "lasts"}
    visits = SourceTable("visits", [int32("id", optional=False), lasts])

    def reported() -> list[str]:
        found = [each.getMessage() for each in caplog.records if "loses something" in each.getMessage()]
        caplog.clear()
        return found

    job.batch(visits.insert({"id": 1, "lasts": 1_000_000}))
    (line,) = reported()
    assert "table=visits column=lasts source=public.visits loses='an interval becomes microseconds" in line
    grown = visits.with_columns(*visits.columns, {**lasts, "field": "rests"}, text("note"))
    job.batch(visits.insert({"id": 2, "lasts": 1}), grown.insert({"id": 3, "lasts": 1, "rests": 2, "note": "n"}))
    (line,) = reported()
    assert "column=rests" in line


@pytest.mark.sweep
def test_a_table_that_fails_is_parked_and_goes_on_where_it_stopped(job: MemoryJob) -> None:
    """One poisoned record: its table waits, the others go on; after skip nothing but that record is missing."""
    job.batch(ORDERS.insert({"id": 1, "state": "a", "amount": None}))
    poisoned = ORDERS.insert({"id": 2, "state": "b", "amount": {"not": "a decimal"}})
    good = ORDERS.insert({"id": 3, "state": "c", "amount": None})
    report = job.batch(poisoned, good, USERS.insert({"id": 1, "name": "Ann"}))
    assert report.tables["orders"].parked is not None
    assert "topic=shop.public.orders partition=0 offset=2 reason=" in report.tables["orders"].parked
    assert "amount" in report.tables["orders"].parked
    assert job.rows("users") == [{"id": 1, "name": "Ann"}]
    assert orders_of(job) == [(1, "a")]

    job.restarted()
    job.batch(ORDERS.insert({"id": 4, "state": "d", "amount": None}), USERS.insert({"id": 2, "name": "Bob"}))
    assert (len(job.rows("users")), orders_of(job)) == (2, [(1, "a")])

    job.state.ask("resume", "orders", at_ms=1)
    still = job.batch()
    assert still.tables["orders"].parked is not None  # the record is still there
    job.state.ask("skip", "orders", at_ms=2, until=3)
    job.restarted()
    report = job.batch()
    assert report.tables["orders"].parked is None
    assert orders_of(job) == [(1, "a"), (3, "c"), (4, "d")]
    job.batch(ORDERS.insert({"id": 5, "state": "e", "amount": None}))
    assert orders_of(job)[-1] == (5, "e")


def test_a_table_whose_key_changed_is_made_again_from_a_snapshot(job: MemoryJob) -> None:
    """By the steps that the reason names: a snapshot of the connector, the table dropped, its records skipped."""
    first = SourceTable("t", [int32("id"), int32("v")])
    second = replace(first, key=("v",))
    job.batch(*(first.insert({"id": id_, "v": 10 * id_}) for id_ in range(1, 4)))
    reason = str(job.batch(second.insert({"id": 4, "v": 40})).tables["t"].parked)
    assert "send the connector the signal execute-snapshot for the source table, drop t, and run: " in reason
    until = int(reason.partition("fluvial cdc skip t --until ")[2].split("'")[0])
    assert until == 4  # behind the mark of the first transaction
    job.send(*(second.read({"id": id_, "v": 10 * id_}) for id_ in range(1, 5)))
    job.catalog.drop_table("shop.t")
    job.state.ask("skip", "t", at_ms=1, until=until)
    assert job.batch(second.update({"id": 5, "v": 10})).tables["t"].parked is None
    assert job.catalog.table("shop.t").schema.primary_keys == ("v",)
    assert [(row["id"], row["v"]) for row in job.rows("t")] == [(2, 20), (3, 30), (4, 40), (5, 10)]


def test_a_key_that_changes_within_a_batch_parks_the_table_as_well(job: MemoryJob) -> None:
    """The columns are the same, only the keys' own schema part tells: no record is written by the old key."""
    first = SourceTable("t", [int32("id"), int32("v")])
    second = replace(first, key=("v",))
    report = job.batch(first.insert({"id": 1, "v": 10}), second.insert({"id": 2, "v": 10}))
    assert "execute-snapshot" in str(report.tables["t"].parked)


def test_truncate_drops_what_came_before_it(job: MemoryJob) -> None:
    job.batch(ORDERS.insert({"id": 1, "state": "a", "amount": None}))
    job.batch(
        ORDERS.insert({"id": 2, "state": "b", "amount": None}),
        ORDERS.truncate(),
        ORDERS.insert({"id": 3, "state": "c", "amount": None}),
    )
    assert orders_of(job) == [(3, "c")]
    job.restarted()
    job.again()
    assert orders_of(job) == [(3, "c")]
    job.batch(ORDERS.truncate())
    assert orders_of(job) == []


def test_a_job_of_one_topic_truncates_a_table_that_was_there_before(job: MemoryJob) -> None:
    """The way out for a table that a single query has written: it is taken over with its options and columns."""
    rows = pa.table({"id": pa.array([1, 9], pa.int32()), "state": ["a", "z"]})
    table = job.catalog.create_table("shop.orders", rows.schema, primary_key=["id"], options={"bucket": "2"})
    table.append(rows)
    events = [ORDERS.insert({"id": number, "state": "abc"[number - 1], "amount": None}) for number in (1, 2, 3)]
    job.batch(*events[:2], ORDERS.truncate(), events[2])
    assert orders_of(job) == [(3, "c")]
    assert job.catalog.table("shop.orders").store.options.bucket == 2
    job.restarted()
    job.again()
    assert orders_of(job) == [(3, "c")]


def test_a_truncate_is_refused_only_where_other_source_tables_have_rows(tmp_path: Path) -> None:
    """A rule with one name for its tables: with one source table it renames, with two it joins."""
    naming = Naming(rules=(NameRule(source=r"public\.(orders|users)", to="all_of_them", add={"from": "{1}"}),))
    with memory_job(tmp_path, naming=naming) as job:
        first = USERS.insert({"id": 1, "name": "Ann"})
        job.batch(first, USERS.truncate(), USERS.insert({"id": 2, "name": "Bob"}))
        assert [row["id"] for row in job.rows("all_of_them")] == [2]
        job.batch(USERS.truncate())
        assert job.rows("all_of_them") == []
        other = replace(USERS, name="orders")
        job.batch(first, other.insert({"id": 3, "name": "Cem"}))
        parked = job.batch(USERS.truncate()).tables["all_of_them"].parked
        assert parked is not None
        assert "one of several source tables was truncated: table=all_of_them source=public.users" in parked
        assert {row["id"] for row in job.rows("all_of_them")} == {1, 3}


def test_a_truncate_among_several_partitions_waits_because_its_place_is_not_known(job: MemoryJob) -> None:
    """Rows of other partitions that came before it stayed, silently; what is ignored on purpose is passed over."""
    topics = [f"shop.public.users-{n}" for n in range(2)]  # stand for the partitions of one topic
    one, two = (replace(USERS, topic_name=each) for each in topics)
    job.batch(one.insert({"id": 1, "name": "Ann"}))
    parked = str(job.batch(one.insert({"id": 2, "name": "Bob"}), two.truncate()).tables["users"].parked)
    assert "a source table was truncated whose changes are in several partitions" in parked
    assert "offset=0 partitions=2 fix=" in parked
    assert [row["id"] for row in job.rows("users")] == [1]
    job.settings = replace(job.settings, schema_changes={"truncate": "ignore"})
    job.restarted()
    job.state.ask("resume", "users", at_ms=1)
    assert job.batch().tables["users"].parked is None
    assert [row["id"] for row in job.rows("users")] == [1, 2]


# ---- names, added columns, kinds of deletes, tables without a key


def job_with(tmp_path: Path, **settings: object) -> AbstractContextManager[MemoryJob]:
    return memory_job(tmp_path, **settings)


def test_shards_become_one_table_and_colliding_keys_stay_apart(tmp_path: Path) -> None:
    """F: two shards with the same keys; none is lost, none merged."""
    naming = Naming(
        rules=(NameRule(source=r"public\.orders_(\d+)", to="orders", add={"shard": "{1}"}, key=("shard", "id")),)
    )
    one, two = (SourceTable(f"orders_{n}", [int32("id"), text("state")]) for n in (1, 2))
    with job_with(tmp_path, naming=naming) as job:
        job.batch(one.insert({"id": 1, "state": "a"}), two.insert({"id": 1, "state": "b"}))
        job.batch(two.delete({"id": 1, "state": None}), one.update({"id": 1, "state": "c"}))
        assert job.rows("orders") == [{"shard": "1", "id": 1, "state": "c"}]
        assert job.catalog.table("shop.orders").schema.primary_keys == ("shard", "id")


def test_two_source_tables_with_one_name_are_refused(job: MemoryJob) -> None:
    """The second one waits with the rule to write; the first is not touched."""
    job.batch(USERS.insert({"id": 1, "name": "Ann"}))
    other = SourceTable("users", USERS.columns, schema="sales")
    report = job.batch(other.insert({"id": 1, "name": "Bob"}))
    assert "two source tables have one name: table=users sources=public.users,sales.users" in str(
        report.tables["users"].parked
    )
    assert job.rows("users") == [{"id": 1, "name": "Ann"}]


def test_a_row_that_moves_between_partitions_of_the_source_is_one_row(tmp_path: Path) -> None:
    """F: PostgreSQL's partitions publish by leaf; the delete in one topic may be read after the insert in the other."""
    naming = Naming(rules=(NameRule(source=r"public\.part_\d+", to="part"),))
    one, two = (SourceTable(f"part_{n}", [int32("id"), text("v")]) for n in (1, 2))
    with job_with(tmp_path, naming=naming) as job:
        job.batch(two.insert({"id": 1, "v": "in two"}, lsn=10), two.insert({"id": 2, "v": "b"}, lsn=11))
        moved = two.delete({"id": 1, "v": None}, lsn=20)
        job.batch(moved, one.insert({"id": 1, "v": "in one"}, lsn=21))  # topics in order of names: one, then two
        assert [(row["id"], row["v"]) for row in job.rows("part")] == [(1, "in one"), (2, "b")]


def test_metadata_columns_and_soft_deletes(tmp_path: Path) -> None:
    """A deleted row stays with its values, also where the source logs only its key."""
    added = {"_lsn": "source.lsn", "_op": "op", "_op_ts": "source.ts_ms"}
    with job_with(tmp_path, added=added, deletes="soft") as job:
        job.batch(ORDERS.insert({"id": 1, "state": "new", "amount": "A+c="}, lsn=41))
        job.batch(ORDERS.delete({"id": 1, "state": None, "amount": None}, lsn=42, ts_ms=1_000))
        (row,) = job.rows("orders")
    assert (row["id"], row["state"], str(row["amount"])) == (1, "new", "9.99")
    assert (row["_lsn"], row["_op"], row["_op_ts"].timestamp(), row["_deleted"]) == (42, "d", 1.0, True)


@pytest.mark.parametrize("blank", [None, 0])
def test_a_delete_that_has_its_key_alone_is_refused_where_a_column_orders_rows(
    tmp_path: Path, blank: int | None
) -> None:
    """Null is the oldest, so that it removed nothing, and no one noticed.

    Debezium writes 0 where the column is NOT NULL: that removed nothing either, and softly deleted rows became zeros.
    """
    settings = {"t": TableSettings(options={"sequence.field": "n"})}
    rest = (int32(name, optional=blank is None) for name in ("n", "v"))
    source = SourceTable("t", [int32("id", optional=False), *rest])
    bare = {"id": 1, "n": blank, "v": blank}
    with job_with(tmp_path, tables=settings) as job:
        job.batch(source.insert({"id": 1, "n": 1, "v": 1}), source.insert({"id": 2, "n": 1, "v": 1}))
        assert job.batch(source.delete({"id": 2, "n": 1, "v": 1})).tables["t"].parked is None
        reason = str(job.batch(source.delete(bare)).tables["t"].parked)
        assert "sequence.field=n key={'id': 1} deletes=1 fix='take sequence.field out" in reason
        assert [each["id"] for each in job.rows("t")] == [1]
    with job_with(tmp_path / "soft", tables=settings, deletes="soft") as job:
        job.batch(source.insert({"id": 1, "n": 1, "v": 1}))
        job.batch(source.delete(bare))
        assert [(each["n"], each["v"], each["_deleted"]) for each in job.rows("t")] == [(1, 1, True)]


@pytest.mark.parametrize("op", ["delete", "update"])
def test_a_row_without_a_key_that_has_values_of_its_change_is_not_taken_back(tmp_path: Path, op: str) -> None:
    """It was not found, so that it stayed beside the row that was to take its place."""
    source, old = SourceTable("t", [int32("id"), int32("n")], key=()), {"id": 1, "n": 1}
    change = source.delete(old, lsn=2) if op == "delete" else source.update({"id": 1, "n": 2}, before=old, lsn=2)
    with job_with(tmp_path, added={"_at": "lsn", "_db": "source.db"}) as job:
        assert job.batch(source.insert(old)).tables["t"].parked is None
        reason = str(job.batch(change).tables["t"].parked)
        assert "columns.add=_at fix='take them out of columns.add, or set without-key" in reason
    with job_with(tmp_path / "of_table", added={"_db": "source.db"}) as job:
        job.batch(source.insert(old))
        assert job.batch(change).tables["t"].parked is None
        assert [each["n"] for each in job.rows("t")] == ([] if op == "delete" else [2])


def test_a_deleted_row_without_a_key_stays_once_and_marked(tmp_path: Path) -> None:
    """It was added, marked, beside the row that it was, which stayed as one that the source has."""
    source = SourceTable("t", [int32("id"), int32("n")], key=())
    one, two = {"id": 1, "n": 1}, {"id": 2, "n": None}
    with job_with(tmp_path, deletes="soft") as job:
        job.batch(source.insert(one), source.insert(one), source.insert(two))
        job.batch(source.delete(one), source.update({"id": 2, "n": 3}, before=two), source.insert(two))
        job.batch(source.delete(two))
        assert sorted((each["id"], each["n"] or 0, each["_deleted"]) for each in job.rows("t")) == [
            (1, 1, False), (1, 1, True), (2, 0, True), (2, 3, False),
        ]  # fmt: skip


def test_values_that_the_source_left_out_are_those_of_the_table(job: MemoryJob) -> None:
    """TOAST: an update without the large value keeps it, in the batch and over batches."""
    left_out = "__debezium_unavailable_value"
    docs = SourceTable("docs", [int32("id"), int32("v"), text("body")])
    job.batch(docs.insert({"id": 1, "v": 1, "body": "long"}), docs.update({"id": 1, "v": 2, "body": left_out}))
    assert job.rows("docs") == [{"id": 1, "v": 2, "body": "long"}]
    job.restarted()
    job.batch(docs.update({"id": 1, "v": 3, "body": left_out}))
    assert job.rows("docs") == [{"id": 1, "v": 3, "body": "long"}]


UUID_OF_PLACEHOLDER = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"  # as a connector has published it


@pytest.mark.parametrize(("placeholder", "published"), [
    ("__debezium_unavailable_value", UUID_OF_PLACEHOLDER), ("gone", "50c1f58b-e7f5-347e-8f53-d64c094783c2"),
])  # fmt: skip
@pytest.mark.parametrize("meaning", [{}, {"name": "io.debezium.data.Uuid"}])
def test_a_large_array_of_uuids_that_is_left_out_keeps_its_values(
    tmp_path: Path, meaning: Field, placeholder: str, published: str
) -> None:
    """Its placeholder is the UUID of the placeholder's bytes: in the batch, over batches, and as a key moves."""
    items = {"type": "string", "optional": True, **meaning}
    sets = SourceTable("sets", [int32("id"), {"type": "array", "items": items, "optional": True, "field": "members"}])
    many = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(700)]
    left_out = [published]
    with job_with(tmp_path, placeholder=placeholder) as job:
        job.batch(sets.insert({"id": 1, "members": many}), sets.update({"id": 1, "members": left_out}))
        assert job.rows("sets") == [{"id": 1, "members": many}]
        job.batch(sets.update({"id": 1, "members": left_out}), sets.insert({"id": 2, "members": left_out}))
        job.batch(sets.update({"id": 3, "members": [*left_out, *left_out]}), sets.update({"id": 4, "members": None}))
        create = sets.insert({"id": 5, "members": left_out})
        job.batch(sets.delete({"id": 1, "members": None}), (*create, {"__debezium.oldkey": b'{"id":1}'}))
        assert {row["id"]: row["members"] for row in job.rows("sets")} == {
            2: left_out, 3: [*left_out, *left_out], 4: None, 5: many,
        }  # fmt: skip


def test_columns_that_a_connector_leaves_out_are_reported(job: MemoryJob, caplog: pytest.LogCaptureFixture) -> None:
    """What a DROP COLUMN took is not in the changes; a generated one waits, see test_generated_columns."""
    first = SourceTable("t", [int32("id", optional=False), int32("a"), int32("twice")])
    job.batch(first.insert({"id": 1, "a": 1, "twice": 2}))
    later = first.with_columns(int32("id", optional=False), int32("a"))
    job.batch(later.update({"id": 1, "a": 3}), later.insert({"id": 2, "a": 1}))
    (line,) = [each.getMessage() for each in caplog.records if "not in the changes any more" in each.getMessage()]
    assert "table=t columns=twice source=public.t at=shop.public.t/0 offset=2" in line
    assert job.rows("t") == [{"id": 1, "a": 3, "twice": None}, {"id": 2, "a": 1, "twice": None}]


def test_rows_that_have_the_values_may_have_come_in_another_range(job: MemoryJob) -> None:
    """The newest value is that of the batch, also where no record beside it has a placeholder."""
    docs = SourceTable("docs", [int32("id"), int32("v"), text("body")], topic_name="shop.a")
    job.batch(docs.insert({"id": 1, "v": 1, "body": "old"}))
    later = replace(docs, topic_name="shop.b")
    job.batch(
        docs.update({"id": 1, "v": 2, "body": "new"}),
        later.update({"id": 1, "v": 3, "body": "__debezium_unavailable_value"}),
    )
    assert job.rows("docs") == [{"id": 1, "v": 3, "body": "new"}]


def test_rows_are_remembered_only_for_updates_of_the_same_batch(
    job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first snapshot of a large table has none: its rows are not held besides those of the files."""
    held: list[int] = []
    remember = Filling._remember

    def counted(filling: Filling, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        held.append(rows.num_rows)
        remember(filling, rows, kinds)

    monkeypatch.setattr(Filling, "_remember", counted)
    docs = SourceTable("docs", [int32("id"), text("body")])
    job.batch(*(docs.read({"id": id_, "body": "x"}) for id_ in range(5)), docs.insert({"id": 9, "body": "y"}))
    assert held == []
    job.batch(docs.insert({"id": 6, "body": "z"}), docs.update({"id": 6, "body": "__debezium_unavailable_value"}))
    assert sum(held) == 2
    assert job.rows("docs")[5] == {"id": 6, "body": "z"}


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_an_update_of_a_key_takes_large_values_along(tmp_path: Path, deletes: str) -> None:
    """It comes as a delete and a create with a placeholder; a create without the header has that text as its value."""
    docs = SourceTable("docs", [int32("id"), int32("v"), text("body")])
    left_out = "__debezium_unavailable_value"
    with job_with(tmp_path, deletes=deletes) as job:
        job.batch(docs.insert({"id": 1, "v": 1, "body": "long"}), docs.insert({"id": 2, "v": 1, "body": left_out}))
        delete, create = (
            docs.delete({"id": 1, "v": None, "body": None}),
            docs.insert({"id": 5, "v": 2, "body": left_out}),
        )
        job.batch(delete, tombstone(delete), (*create, {"__debezium.oldkey": b'{"id":1}'}))
        living = [row for row in job.rows("docs") if not row.get("_deleted")]
    assert [(row["id"], row["v"], row["body"]) for row in living] == [(2, 1, left_out), (5, 2, "long")]


def test_a_moved_row_whose_values_are_gone_parks_its_table(job: MemoryJob) -> None:
    docs = SourceTable("docs", [int32("id"), text("body")])
    job.batch(docs.insert({"id": 1, "body": "long"}))
    create = docs.insert({"id": 5, "body": "__debezium_unavailable_value"})
    report = job.batch((*create, {"__debezium.oldkey": b'{"id":1}'}))
    assert "another key" in str(report.tables["docs"].parked)
    assert job.rows("docs") == [{"id": 1, "body": "long"}]


def test_updates_that_cannot_be_completed_go_to_the_dead_letters(
    kafka: KafkaProperties, catalog: Catalog, new_topic: Callable[..., str], topics: LogTopics
) -> None:
    """A key that no row is known of, and a moved row whose values are gone; the other rows are written."""
    source, dead = new_topic(), new_topic()
    docs = SourceTable("docs", [int32("id"), int32("v"), text("body")], topic_name=source)
    left_out = "__debezium_unavailable_value"
    settings = CdcSettings(
        name="shop", database="shop", pattern=source, properties=kafka, dead_letters=dead, max_bad=2,
        options={"bucket": "1"},
    )  # fmt: skip
    state = StateFiles(catalog.file_io, catalog.warehouse, "shop")
    batches = CdcBatches(catalog, settings, state, commit_user="query", run_id="run")
    create = docs.insert({"id": 5, "v": 1, "body": left_out})
    send(
        kafka,
        docs.insert({"id": 1, "v": 1, "body": "long"}),
        docs.update({"id": 9, "v": 1, "body": left_out}),
        (*create, {"__debezium.oldkey": b'{"id":1}'}),
    )
    end = topics.written_offsets(source, [0])[0]
    planned = OffsetRange(topic=source, partition=0, start_offset=0, end_offset=end)
    report = batches.write([planned], 1).tables["docs"]
    assert (report.bad, report.parked) == (2, None)
    assert catalog.table("shop.docs").read().to_arrow().to_pylist() == [{"id": 1, "v": 1, "body": "long"}]
    letters = headers_in(kafka, dead)
    assert {each["fluvial.table"] for each in letters} == {"shop.docs"}
    reasons = sorted(each["fluvial.reason"] for each in letters)
    assert [each[:30] for each in reasons] == ["no row of the key is known, fr", "the row had another key, whose"]
    send(kafka, docs.update({"id": 9, "v": 2, "body": left_out}))
    more = OffsetRange(topic=source, partition=0, start_offset=end, end_offset=topics.written_offsets(source, [0])[0])
    assert str(batches.write([more], 2).tables["docs"].parked).startswith("too many records")
    batches.close()


def test_tables_without_a_key_and_columns_that_are_left_out(tmp_path: Path) -> None:
    log = SourceTable("log", [int32("n"), text("secret"), text("_row_kind")], key=())
    naming = Naming(exclude=(r"public\.tmp_.*",))
    scratch = SourceTable("tmp_1", [int32("id")])
    row = {"n": 1, "secret": "x", "_row_kind": "rk"}
    with job_with(tmp_path, excluded=(r"public\.log\.secret",), naming=naming) as job:
        job.batch(log.insert(row), log.insert(row), scratch.insert({"id": 1}))
        job.batch(log.update({**row, "n": 2}, before=row))
        assert job.rows("log") == [{"n": 1, "src__row_kind": "rk"}, {"n": 2, "src__row_kind": "rk"}]
        assert job.catalog.list_tables("shop") == ["log"]


def test_records_that_cannot_be_read_go_to_the_dead_letters_up_to_a_limit(
    kafka: KafkaProperties, catalog: Catalog, new_topic: Callable[..., str], topics: LogTopics
) -> None:
    source, dead = new_topic(), new_topic()
    numbers = SourceTable("numbers", [int32("id"), int32("n")], topic_name=source)
    settings = CdcSettings(
        name="shop", database="shop", pattern=source, properties=kafka, dead_letters=dead, max_bad=2,
        options={"bucket": "1"},
    )  # fmt: skip
    state = StateFiles(catalog.file_io, catalog.warehouse, "shop")
    batches = CdcBatches(catalog, settings, state, commit_user="query", run_id="run")
    at = 0

    def batch(*rows: dict[str, object]) -> TableReport:
        nonlocal at
        send(kafka, *(numbers.insert(row) for row in rows))
        start, at = at, topics.written_offsets(source, [0])[0]
        planned = OffsetRange(topic=source, partition=0, start_offset=start, end_offset=at)
        return batches.write([planned], at).tables["numbers"]

    assert batch({"id": 1, "n": "one"}, {"id": 2, "n": 2}).bad == 1
    assert catalog.table("shop.numbers").read().to_arrow()["id"].to_pylist() == [2]
    (letter,) = headers_in(kafka, dead)
    assert (letter["fluvial.topic"], letter["fluvial.offset"]) == (source, "0")
    assert letter["fluvial.reason"].startswith("table=numbers after: n: expected=int32")
    parked = batch({"id": 3, "n": "x"}, {"id": 4, "n": "x"}).parked
    assert str(parked).startswith("too many records cannot be decoded: table=numbers bad=2 max-bad=2")
    batches.close()


def test_records_without_types_park_their_table_with_both_ways_out(job: MemoryJob) -> None:
    topic, _, value = ORDERS.insert({"id": 1, "state": "a", "amount": None})
    bare = orjson.dumps(orjson.loads(value or b"")["payload"])
    report = job.batch((topic, b'{"id":1}', bare), USERS.insert({"id": 1, "name": "Ann"}))
    assert "schemas.enable=true" in str(report.tables["orders"].parked)
    assert job.rows("users") == [{"id": 1, "name": "Ann"}]


def headers_in(properties: KafkaProperties, topic: str) -> list[dict[str, str]]:
    """Headers of the records of a topic."""
    consumer = properties.consumer(ErrorNotes())
    consumer.assign([TopicPartition(topic, 0, 0)])
    first = consumer.poll(30)
    found = [each for each in (first, *consumer.consume(10, 0.2)) if each is not None and each.error() is None]
    consumer.close()
    return [{name: value.decode() for name, value in each.headers()} for each in found]


def test_a_batch_is_one_barrier_of_its_job_in_all_its_tables(job: MemoryJob) -> None:
    """The lineage names job, batch and query; the snapshot has the offsets beside it. A replay records nothing more."""
    job.batch(USERS.insert({"id": 1, "name": "Ann"}), ORDERS.insert({"id": 1, "state": "a", "amount": None}))
    job.batch(USERS.insert({"id": 2, "name": "Bob"}))
    job.restarted()
    job.again()
    meta = lineage_of(job.catalog).meta  # type: ignore[union-attr]
    written = {(each.job, each.barrier_id, each.table, each.snapshot_id) for each in meta.sink_data_lineages()}
    assert written == {("shop", 0, "users", 1), ("shop", 0, "orders", 1), ("shop", 1, "users", 2)}
    assert {each.table for each in meta.sink_table_lineages()} == {"users", "orders"}
    snapshot = job.catalog.table("shop.users").latest_snapshot()
    assert snapshot is not None
    origin = CommitOrigin.of(snapshot)
    assert origin == CommitOrigin(job="shop", barrier_id=1, run="query-1")
    assert orjson.loads(snapshot.properties["fluvial.cdc-offsets"]) == {"shop.public.users": {"0": 4}}


@pytest.mark.sweep
def test_the_lineage_of_a_batch_is_stored_in_one_transaction(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be stored, the batch ends and no table is parked; its repetition stores it."""
    tables = [SourceTable(f"t{n}", [int32("id")]) for n in range(5)]
    stored: list[int] = []
    store = JdbcLineageMeta.store

    def counted(meta: JdbcLineageMeta, records: LineageRecords) -> None:
        stored.append(len(records.sink_snapshots))
        if len(stored) == 3:
            raise UnavailableError("the store is away")
        store(meta, records)

    monkeypatch.setattr(JdbcLineageMeta, "store", counted)
    job.batch(*(each.insert({"id": 1}) for each in tables))
    job.batch(*(each.insert({"id": 2}) for each in tables[:4]))
    assert stored == [5, 4]
    lineage = lineage_of(job.catalog)
    assert lineage is not None
    job.catalog = Catalog(job.catalog.warehouse, options={"lineage.on-unavailable": "fail"})
    job.restarted()
    with pytest.raises(UnavailableError, match="away"):
        job.batch(*(each.insert({"id": 3}) for each in tables[:3]))
    assert [job.snapshots(each.name) for each in tables] == [3, 3, 3, 2, 1]
    job.restarted()
    job.again()
    assert stored == [5, 4, 3, 3]
    barriers = {(each.barrier_id, each.table) for each in lineage.meta.sink_data_lineages()}
    assert barriers == {(batch, f"t{n}") for batch in range(3) for n in range(5 - batch)}


@pytest.mark.sweep
def test_records_beyond_the_memory_of_a_job_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are the same for any memory; only what does not fit is read twice, bad records as they were."""
    reads: list[LogRange] = []

    def by_two(properties: KafkaProperties, **more: Any) -> Iterator[pa.RecordBatch]:
        reads.append(more["log_range"])
        return read_range(properties, **more, batch_rows=2)

    monkeypatch.setattr(scan, "read_range", by_two)
    records = [USERS.insert({"id": id_, "name": "x" * 50}) for id_ in range(6)]
    again = {}
    for memory in (0, 2000, 10**6):
        reads.clear()
        with job_with(tmp_path / str(memory), memory_bytes=memory) as job:
            job.batch(*records)
            assert [row["id"] for row in job.rows("users")] == [*range(6)], memory
        again[memory] = [each.start_offset for each in reads]
    assert again == {0: [0, 0], 2000: [0, 2], 10**6: [0]}


@pytest.mark.sweep
def test_all_topics_are_read_by_as_many_consumers_as_threads(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """C: with one thread one consumer, in all batches of a run."""
    tables = [SourceTable(f"t{n}", [int32("id")]) for n in range(5)]
    made, new_consumer = list[Any](), KafkaProperties.consumer
    monkeypatch.setattr(
        KafkaProperties, "consumer", lambda *given, **more: made.append(new_consumer(*given, **more)) or made[-1]
    )
    for id_ in (1, 2):
        job.batch(*(each.insert({"id": id_}) for each in tables))
    assert [job.rows(each.name) for each in tables] == [[{"id": 1}, {"id": 2}]] * 5
    assert len(made) == 1


@pytest.mark.sweep
def test_a_batch_opens_active_tables_only(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """C: of 40 tables 2 have records; the others are neither opened nor looked at."""
    tables = [SourceTable(f"t{n}", [int32("id")]) for n in range(40)]
    job.batch(*(each.insert({"id": 1}) for each in tables))
    opened: list[str] = []
    open_table, read = Catalog.table, StateFiles.table
    looked: list[str] = []

    def counted(catalog: Catalog, name: str, **more: str | None) -> Table:
        opened.append(name)
        return open_table(catalog, name, **more)

    def seen(state: StateFiles, name: str) -> CdcTableState:
        looked.append(name)
        return read(state, name)

    monkeypatch.setattr(Catalog, "table", counted)
    monkeypatch.setattr(StateFiles, "table", seen)
    job.batch(tables[3].insert({"id": 2}), tables[7].insert({"id": 2}))
    assert sorted(opened) == ["shop.t3", "shop.t7"]
    assert set(looked) == {"t3", "t7"}


@pytest.mark.sweep
def test_sessions_of_idle_tables_are_closed(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """C: memory goes by a bound, not by the number of tables; one that was closed continues where it was."""
    monkeypatch.setattr(writers, "_MOST_OPEN", 3)
    closed, close = list[str](), WriteSession.close

    def noted(session: WriteSession[Any]) -> None:
        closed.append(session._table.name)
        close(session)

    monkeypatch.setattr(WriteSession, "close", noted)
    tables = [SourceTable(f"t{n}", [int32("id")]) for n in range(7)]
    job.batch(*(each.insert({"id": 1}) for each in tables))
    assert sorted(closed) == [f"shop.t{n}" for n in range(4)]  # in the order of their use, which is that of names
    closed.clear()
    job.batch(tables[0].insert({"id": 2}), tables[6].insert({"id": 2}))
    assert closed == ["shop.t4"]
    assert [len(job.rows(f"t{n}")) for n in range(7)] == [2, 1, 1, 1, 1, 1, 2]


@pytest.mark.sweep
def test_a_record_widens_a_table_beyond_any_count_that_a_reader_once_took(job: MemoryJob) -> None:
    """What readers took of a manifest entry was 4,096 columns: the batch was acknowledged, and the table unreadable."""
    columns = [int32(f"c{index}") for index in range(4_200)]
    narrow = SourceTable("wide", [int32("id", optional=False), *columns[:10]])
    wide = narrow.with_columns(narrow.columns[0], *columns)
    job.batch(narrow.insert({"id": 1, **{f"c{index}": index for index in range(10)}}))
    for key in (2, 3):
        job.batch(wide.insert({"id": key, **{f"c{index}": index for index in range(len(columns))}}))
    assert [(row["id"], row["c9"], row["c4199"]) for row in job.rows("wide")] == [
        (1, 9, None),
        (2, 9, 4199),
        (3, 9, 4199),
    ]
