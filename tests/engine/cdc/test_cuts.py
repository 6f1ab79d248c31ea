"""A tag of a job is the database after one transaction: TPC-B's sums agree at every tag, wherever batches ended."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cdc.rules.transactions import (
    ChangeRun,
    CutDecision,
    EndedTransaction,
    LooseTransaction,
    awaited_tables,
    decide_cut,
)
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


@pytest.mark.sampled(1)
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

    assert decided(1000) == ({A: 2, END: 1}, {A: 3, END: 2}, True, "1", {})
    late = LooseTransaction(is_ended=True, missing={"public.accounts": 0, "public.tellers": 1})
    assert decided(-1) == ({}, {}, False, "2", {"2": late})  # it has waited too long: it is taken, without a tag
    assert not awaited_tables(r"shop\.public\..*", "shop.transaction", frozenset())("audit.log")
    message = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@28774f3"
    assert not is_awaited(message)  # what a connector counts for pg_logical_emit_message
    assert awaited_tables("all", "shop.transaction", frozenset({"audit.log"}))("audit.log")


def test_what_was_held_back_for_too_long_is_taken_when_nothing_new_comes(job: MemoryJob) -> None:
    """The source plans a batch for it, once; and until then its records count as not taken."""
    row = HISTORY.insert({"n": 1, "delta": 5}, lsn=1, tx=("7:1", 1, 1))  # the END of its transaction is lost
    held = job.batch(row)
    assert held.positions["shop.public.history", 0] == 0
    job.now_ms += 30_000
    assert job.batch().tables == {}
    job.now_ms += 31_000
    planned = job.position
    taken = job.batch()
    assert job.position != planned
    assert taken.positions["shop.public.history", 0] > 0
    assert job.rows("history") == [{"n": 1, "delta": 5}]
    planned = job.position
    job.now_ms += 3_600_000
    job.batch()
    assert job.position == planned


class Cuts:
    """Batches of changes that arrive one by one, each decided behind the one before it; time is in seconds."""

    def __init__(self) -> None:
        self.before: CutDecision | None = None
        self.took: list[str] = []  # transactions of the changes that batches have taken, in their order
        self._records: dict[tuple[str, int], list[ChangeRun | EndedTransaction]] = {}
        self._stood: dict[tuple[str, int], int] = {}

    def change(self, position: tuple[str, int], transaction: str) -> None:
        table = position[0].removeprefix("shop.")
        queue = self._records.setdefault(position, [])
        queue.append(ChangeRun(offset=len(queue), transaction=transaction, table=table, count=1))

    def end(self, transaction: str, *tables: tuple[str, int]) -> None:
        counts = {table.removeprefix("shop."): 1 for table, _ in tables}
        queue = self._records.setdefault(END, [])
        queue.append(EndedTransaction(position=END, offset=len(queue), id=transaction, counts=counts))

    def batch(self, at_s: int, max_wait_s: int = 60) -> CutDecision:
        here = {each: queue[self._stood.get(each, 0) :] for each, queue in self._records.items()}
        runs = {each: [run for run in of if isinstance(run, ChangeRun)] for each, of in here.items() if each != END}
        ended = [each for each in here.get(END, []) if isinstance(each, EndedTransaction)]
        ends = {each: len(queue) for each, queue in self._records.items()}
        before = None if self.before is None else CutDecision.from_json(self.before.to_json())
        decision = decide_cut(
            0, runs, ended, range_ends=ends, is_awaited=lambda _: True, before=before, now_ms=at_s * 1000,
            max_wait_ms=max_wait_s * 1000,
        )  # fmt: skip
        for position, of_partition in runs.items():
            stop = decision.ends.get(position, ends[position])
            self.took += [str(run.transaction) for run in of_partition if run.offset < stop]
        self._stood, self.before = ends | dict(decision.ends), decision
        return decision


def test_a_change_behind_the_end_of_its_transaction_is_taken() -> None:
    """A topic that is found late, after its transaction was taken without it: nothing else would release its change."""
    cuts = Cuts()
    cuts.end("1", T)
    assert cuts.batch(0).ends == {END: 0}
    assert cuts.batch(61).loose == {"1": LooseTransaction(is_ended=True, missing={"public.tellers": 1})}
    cuts.change(T, "1")
    assert cuts.batch(62).loose == {}
    assert cuts.took == ["1"]
    cuts.change(T, "2")
    cuts.end("2", T)
    assert cuts.batch(63).is_clean


def test_a_change_waits_no_longer_because_others_are_taken() -> None:
    cuts = Cuts()
    cuts.change(T, "1")  # its END never comes
    for second in range(0, 70, 10):
        cuts.change(A, f"a{second}")
        cuts.end(f"a{second}", A)
        cuts.batch(second)
        assert cuts.took == [f"a{each}" for each in range(0, second + 10, 10)]
    cuts.batch(70)
    assert cuts.took[-1] == "1"
    assert cuts.before is not None
    assert cuts.before.loose == {"1": LooseTransaction(missing={"public.tellers": -1})}
    cuts.end("1", T)
    assert cuts.batch(80).loose == {}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_when_all_changes_are_taken_and_a_clean_cut_splits_none(seed: int) -> None:
    """Records of a transaction arrive in any order of their topics, some much later than others wait."""
    rng, cuts = random.Random(seed), Cuts()
    queues: dict[tuple[str, int], list[tuple[str, list[tuple[str, int]]]]] = {A: [], T: [], END: []}
    for number in range(12):
        tables = rng.sample([A, T], rng.randint(1, 2))
        for each in (*tables, END):
            queues[each].append((str(number), tables))
    every = {(each, id) for each in (A, T) for id, _ in queues[each]}
    second = 0
    while any(queues.values()):
        position = rng.choice([each for each, left in queues.items() if left])
        id, tables = queues[position].pop(0)
        if position == END:
            cuts.end(id, *tables)
        else:
            cuts.change(position, id)
        second += rng.choice([1, 1, 1, 50])
        if rng.random() < 0.5:
            decision = cuts.batch(second)
            if decision.is_clean and not decision.loose:
                for id in {*cuts.took}:
                    assert cuts.took.count(id) == sum(owner == id for _, owner in every), f"{id} is split"
    for _ in range(4):
        second += 61
        cuts.batch(second)
    assert sorted(cuts.took) == sorted(id for _, id in every)
    assert cuts.before is not None
    assert cuts.before.loose == {}
