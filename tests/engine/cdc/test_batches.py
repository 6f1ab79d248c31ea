"""A job's batches over a cluster in memory: tables are made, changed and written from literal Debezium records."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runtime.steps import Step, StepEvent
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import SourceTable, decimal, int32, int64, text, tombstone

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
