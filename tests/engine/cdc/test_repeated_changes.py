"""A connector that was killed publishes changes again: the tables have each of them once."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, text

LOG = SourceTable("log", [int32("n")], key=())
ORDERS = SourceTable("orders", [int32("id"), text("state")])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def placed(transaction: int, order: int = 1, *, at: int | None = None) -> dict[str, Any]:
    """The place of a change: the order in a transaction, and in the log, if that is another one."""
    lsn = 100 * transaction + (order if at is None else at)
    return {
        "lsn": lsn,
        "commit": 100 * transaction,
        "ts_ms": 1_763_859_600_000 + transaction,
        "tx": (f"{transaction}:{lsn}", order, order),
    }


def log_row(transaction: int, order: int = 1) -> Record:
    return LOG.insert({"n": 10 * transaction + order}, **placed(transaction, order))


def numbers_in(job: MemoryJob) -> list[int]:
    return sorted(row["n"] for row in job.rows("log"))


@pytest.mark.sweep
def test_a_row_without_a_key_is_counted_once(job: MemoryJob) -> None:
    """Repeated within a batch, in a later one, by a new driver, by a job that lost its checkpoint."""
    job.batch(log_row(1), log_row(2, 1), log_row(2, 2), log_row(1), log_row(2, 1), log_row(2, 2), log_row(3))
    assert numbers_in(job) == [11, 21, 22, 31]
    job.batch(log_row(2, 2), log_row(3), log_row(4, 1))
    assert numbers_in(job) == [11, 21, 22, 31, 41]
    job.restarted()
    job.batch(log_row(3), log_row(4, 1), log_row(4, 2))
    assert numbers_in(job) == [11, 21, 22, 31, 41, 42]
    job.again()
    job.position, job.batch_id, job.commit_user = {}, -1, "query-2"
    job.restarted()
    job.batch(log_row(4, 1), log_row(4, 2), log_row(5))
    assert numbers_in(job) == [11, 21, 22, 31, 41, 42, 51]


def test_deletes_of_a_transaction_that_a_killed_connector_resumes_are_not_lost(job: MemoryJob) -> None:
    """It counts from 1 again: its changes are behind those before in the log, whatever their orders are."""
    rows = [ORDERS.insert({"id": number, "state": "a"}, **placed(1, number)) for number in (1, 2, 3, 4)]
    first = [ORDERS.delete({"id": number, "state": "a"}, **placed(2, number)) for number in (1, 2)]
    resumed = [
        ORDERS.delete({"id": number, "state": "a"}, **placed(2, order, at=number)) for order, number in ((1, 3), (2, 4))
    ]
    job.batch(*rows, *first, *resumed[:1])
    job.batch(resumed[1])
    assert job.rows("orders") == []


@pytest.mark.sweep
@pytest.mark.parametrize("ends", [(), (7,), (5, 6), (2, 6, 9)])
def test_rows_of_a_copy_are_counted_once(job: MemoryJob, ends: tuple[int, ...]) -> None:
    """PostgreSQL logs many rows of a COPY at one place: a killed connector publishes all of that place again."""
    copied = [LOG.insert({"n": order}, **placed(2, order + 1, at=1)) for order in (1, 2, 3, 4, 5)]
    again = [LOG.insert({"n": order}, **placed(2, order, at=1)) for order in (1, 2, 3, 4, 5)]
    published = [log_row(1), *copied[:3], *again[:2], *again, log_row(3)]
    for start, end in pairwise((0, *ends, len(published))):
        job.batch(*published[start:end])
    assert numbers_in(job) == [1, 2, 3, 4, 5, 11, 31]


def test_equal_rows_are_not_repeated_changes(job: MemoryJob) -> None:
    """Two inserts of equal values are two changes; without transaction metadata, every record counts."""
    job.batch(
        LOG.insert({"n": 1}, **placed(1, 1)), LOG.insert({"n": 1}, **placed(1, 2)), LOG.insert({"n": 1}, **placed(2))
    )
    assert numbers_in(job) == [1, 1, 1]
    job.batch(LOG.insert({"n": 2}), LOG.insert({"n": 2}))
    assert numbers_in(job) == [1, 1, 1, 2, 2]


def test_a_schema_part_that_is_published_again_is_no_change_of_columns(job: MemoryJob) -> None:
    """ADD COLUMN, then the connector is killed, and begins before it: neither dropped nor added once more."""
    grown = ORDERS.with_columns(int32("id"), text("state"), int32("n"))
    before = ORDERS.insert({"id": 1, "state": "a"}, **placed(1))
    after = grown.insert({"id": 2, "state": "b", "n": 7}, **placed(2))
    job.batch(before, after)
    job.batch(before, after, grown.insert({"id": 3, "state": "c", "n": 8}, **placed(3)))
    assert [each.name for each in job.catalog.table("shop.orders").schema.fields] == ["id", "state", "n"]
    assert [tuple(row.values()) for row in job.rows("orders")] == [(1, "a", None), (2, "b", 7), (3, "c", 8)]


def test_a_truncate_that_is_published_again_removes_nothing(job: MemoryJob) -> None:
    """Rows behind the truncate are repeated as well, and stay."""
    truncate, row = LOG.truncate(**placed(2)), log_row(3)
    job.batch(log_row(1), truncate, row)
    job.batch(truncate, row, log_row(4))
    assert numbers_in(job) == [31, 41]
