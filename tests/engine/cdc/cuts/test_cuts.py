"""A tag of a job is the database after one transaction: TPC-B's sums agree at every tag, wherever batches ended."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cdc.rules.transactions import ChangeRun, EndedTransaction, awaited_tables, decide_cut
from engine.runtime.steps import StepEvent
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, transaction_end

ACCOUNTS = SourceTable("accounts", [int32("id"), int32("abalance")])
TELLERS = SourceTable("tellers", [int32("id"), int32("tbalance")])
HISTORY = SourceTable("history", [int32("n"), int32("delta")], key=("n",))
A, T, END = ("shop.public.accounts", 0), ("shop.public.tellers", 0), ("shop.transaction", 0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path, cut="transaction", tag_every_s=0) as made:
        yield made


def transactions(seed: int, count: int) -> list[list[Record]]:
    """TPC-B: each moves one amount in an account, a teller and the history."""
    rng, accounts, tellers = random.Random(seed), [0] * 5, [0] * 2
    found = []
    for number in range(count):
        account, teller, delta = rng.randrange(5), rng.randrange(2), rng.randint(-50, 50)
        accounts[account] += delta
        tellers[teller] += delta
        tx, lsn = f"{700 + number}:{number}", 1000 + 10 * number
        found.append(
            [
                ACCOUNTS.update({"id": account, "abalance": accounts[account]}, lsn=lsn, tx=(f"{tx}0", 1, 1)),
                TELLERS.update({"id": teller, "tbalance": tellers[teller]}, lsn=lsn + 1, tx=(f"{tx}1", 2, 1)),
                HISTORY.insert({"n": number, "delta": delta}, lsn=lsn + 2, tx=(f"{tx}2", 3, 1)),
                transaction_end("shop", tx, {"public.accounts": 1, "public.tellers": 1, "public.history": 1}),
            ]
        )
    return found


def sums_at(job: MemoryJob, tag: str) -> set[int]:
    columns = {"accounts": "abalance", "tellers": "tbalance", "history": "delta"}
    return {
        sum(job.catalog.table(f"shop.{table}").read(tag=tag).to_arrow()[column].to_pylist())
        for table, column in columns.items()
    }


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(2))
def test_every_tag_has_the_sums_of_one_transaction(job: MemoryJob, seed: int) -> None:
    """Records of each topic arrive at their own pace, drivers die at any step: each tag is still consistent."""
    rng = random.Random(seed)
    queues: dict[str, list[Record]] = {}
    for each in transactions(seed, 30):
        for record in each:
            queues.setdefault(record[0], []).append(record)
    steps = 0

    def may_die(event: StepEvent) -> None:
        if rng.random() < 0.03:
            raise KeyboardInterrupt

    while any(queues.values()):
        records = [queue.pop(0) for queue in queues.values() for _ in range(rng.randint(0, 4)) if queue]
        try:
            job.batch(*records, observe=may_die)
        except KeyboardInterrupt:
            steps += 1
            job.restarted()
            job.again()
            job.position = job.planned[1]
        job.now_ms += 1000
    store = job.catalog.table("shop.accounts").store
    tags = [tag for tag in store.snapshots.tag_names() if tag.startswith("cdc-")]
    assert len(tags) > 3
    for tag in tags:
        assert len(sums_at(job, tag)) == 1, tag
    assert tags[-1] == "cdc-1292"  # of the last transaction
    newest = [row["delta"] for row in job.rows("history")]
    assert len(newest) == 30
    assert sums_at(job, tags[-1]) == {sum(newest)}


def test_a_batch_takes_the_transactions_that_are_whole() -> None:
    runs = {
        A: [ChangeRun(offset=0, transaction="1", table="public.accounts", count=2),
            ChangeRun(offset=2, transaction="2", table="public.accounts", count=1)],
        T: [ChangeRun(offset=7, transaction="1", table="public.tellers", count=1)],
    }  # fmt: skip
    ended = [
        EndedTransaction(position=END, offset=0, id="1", counts={"public.accounts": 2, "public.tellers": 1}),
        EndedTransaction(position=END, offset=1, id="2", counts={"public.accounts": 1, "public.tellers": 1}),
    ]
    is_awaited = awaited_tables(r"shop\..*", "shop.transaction", frozenset())

    def decided(max_wait_ms: float, now_ms: int = 0) -> tuple[object, ...]:
        found = decide_cut(
            5, runs, ended, range_ends={A: 3, T: 8, END: 2}, is_awaited=is_awaited, before=None, now_ms=now_ms,
            max_wait_ms=max_wait_ms,
        )  # fmt: skip
        return dict(found.ends), dict(found.until), found.is_clean, found.newest, found.loose

    assert decided(1000) == ({A: 2, END: 1}, {A: 3, END: 2}, True, "1", ())
    assert decided(-1) == ({}, {}, False, None, ())  # it has waited too long: all is taken, without a tag
    assert not awaited_tables(r"shop\.public\..*", "shop.transaction", frozenset())("audit.log")
    message = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@28774f3"
    assert not is_awaited(message)  # what a connector counts for pg_logical_emit_message
    assert awaited_tables("all", "shop.transaction", frozenset({"audit.log"}))("audit.log")
