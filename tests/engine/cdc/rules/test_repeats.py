"""Changes that a connector published again are found; nothing else is taken for one."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cdc.records.metadata import META
from engine.cdc.rules.repeats import Mark, Progressions, RepeatedChanges, Stamps, find_repeated, stamps_of


@dataclass(frozen=True)
class Change:
    """One change of a source table, as a connector publishes it."""

    commit: int | None  # of the transaction before; None: the connector has seen none
    order: int  # among the changes of its transaction that this run of the connector has published
    time_ms: int
    transaction: int | None
    source: str = "shop"
    place: int | None = None  # in the database's log; None: behind the commit, by the order
    row: int = 0  # of those at one place

    @property
    def lsn(self) -> int:
        return (self.commit or 0) + self.order if self.place is None else self.place

    @property
    def identity(self) -> tuple[int | None, int, int]:
        """What it is, whichever run has published it."""
        return self.transaction, self.lsn, self.row


def events_of(changes: Sequence[Change]) -> pa.StructArray:
    rows = [
        {
            "op": "c",
            "source": {
                "name": each.source,
                "ts_ms": each.time_ms,
                "sequence": json.dumps([None if each.commit is None else str(each.commit), str(each.lsn)]),
            },
            "transaction": None
            if each.transaction is None
            else {
                "id": f"{each.transaction}:{each.lsn}",
                "total_order": 2 * each.order,
                "data_collection_order": each.order,
            },
        }
        for each in changes
    ]
    return pa.array(rows, pa.struct(META))


def stamps_at(changes: Sequence[Change], first: int) -> Stamps | None:
    return stamps_of(events_of(changes), np.arange(first, first + len(changes)))


def kept(published: Sequence[Change], cuts: Sequence[int]) -> list[Change]:
    """What a job writes that takes these changes in batches, each of chunks of three records."""
    mark: Mark | None = None
    found: list[Change] = []
    bounds = [0, *sorted({each % (len(published) + 1) for each in cuts}), len(published)]
    for start, end in pairwise(bounds):
        progressions = Progressions()
        for at in range(start, end, 3):
            stamps = stamps_at(published[at : min(at + 3, end)], at)
            if stamps is not None:
                progressions.add(stamps)
        spans, mark = find_repeated(progressions.found, mark, stood=start)
        mark = None if mark is None else Mark.from_json(json.loads(json.dumps(mark.to_json())))
        repeated, again = RepeatedChanges(spans), set[int]()
        for at in range(start, end, 2):
            own = stamps_at(published[at : min(at + 2, end)], at)
            again |= set() if own is None else set(repeated.offsets(own).tolist())
        found += [each for at, each in enumerate(published[start:end], start) if at not in again]
    return found


def transactions_of(sizes: Sequence[int]) -> list[Change]:
    """Transactions of so many changes, one after another."""
    return [
        Change(commit=100 * number, order=order, time_ms=1000 + number, transaction=500 + number)
        for number, size in enumerate(sizes)
        for order in range(1, size + 1)
    ]


@pytest.mark.sweep
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    stops=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4),
    cuts=st.lists(st.integers(0, 60), max_size=5),
)
def test_each_change_is_kept_once_however_often_a_connector_is_killed(
    sizes: list[int], stops: list[tuple[int, int]], cuts: list[int]
) -> None:
    """It stops anywhere, also in a transaction, begins again anywhere before; batches end anywhere."""
    changes, published, at = transactions_of(sizes), list[Change](), 0
    for length, back in stops:
        published += changes[at : at + length]
        at = max(0, min(at + length, len(changes)) - back)
    published += changes[at:]
    assert kept(published, cuts) == changes


@dataclass(frozen=True)
class LogRecord:
    """One record of a database's log: changes of the table that share a place, and one of another table."""

    place: int
    count: int  # 0: of the other table only


Transactions = Sequence[tuple[int, int, Sequence[LogRecord]]]
"""In order of their commits: id, place of the commit, records."""


def interleaved(chance: random.Random) -> Transactions:
    """Transactions whose records are interleaved in the log."""
    open_ones, ended, place = dict[int, list[LogRecord]](), list[tuple[int, int, Sequence[LogRecord]]](), 10
    for number in range(500, 500 + chance.randint(1, 6)):
        open_ones[number] = []
        while open_ones and (len(open_ones) > 2 or chance.random() < 0.7):
            place += chance.randint(1, 5)
            own = chance.choice(sorted(open_ones))
            if open_ones[own] and chance.random() < 0.3:
                ended.append((own, place, open_ones.pop(own)))
            else:
                open_ones[own].append(LogRecord(place, chance.choice((0, 1, 1, 1, 2, 4))))
    for own, records in open_ones.items():
        place += 1
        ended.append((own, place, records))
    return ended


def published_by(log: Transactions, *, behind: tuple[int, int]) -> Iterator[tuple[tuple[int, int], list[Change]]]:
    """What one run of the connector publishes of each record, with the position that it notes after it.

    It reads every transaction that ends behind the noted record, again from its beginning, and counts its changes from
    there on which it publishes: so the orders of a transaction that was cut begin again with 1. Before it has seen the
    end of a transaction, it has no commit; and takes the noted place for one when it begins in the first transaction.

    Args:
        log: all of it.
        behind: the transaction, by its number in the log, and the place that were noted last.
    """
    commit = None if behind[0] < 0 else behind[1] if behind[0] == 0 else 0
    for number, (own, end, records) in enumerate(log):
        order = 0
        for each in records:
            if (number, each.place) > behind:
                changes = [
                    Change(commit, order + row + 1, 1000 + number, own, place=each.place, row=row)
                    for row in range(each.count)
                ]
                order += len(changes)
                yield (number, each.place), changes
        commit = end


@pytest.mark.sweep
@given(chance=st.randoms(use_true_random=False), cuts=st.lists(st.integers(0, 200), max_size=5))
def test_transactions_that_were_cut_are_resumed_without_loss(chance: random.Random, cuts: list[int]) -> None:
    """The connector is killed anywhere, also within a record, and begins behind any record that it had published."""
    log = interleaved(chance)
    wanted = [change for _, changes in published_by(log, behind=(-1, 0)) for change in changes]
    noted, published = [(-1, 0)], list[Change]()
    for _ in range(chance.randint(0, 4)):
        run = list(published_by(log, behind=chance.choice(noted)))
        length = chance.randint(0, len(run))
        published += [change for _, changes in run[:length] for change in changes]
        noted += [position for position, _ in run[:length]]
        if length < len(run):
            published += run[length][1][: chance.randint(0, len(run[length][1]))]
    newest = max(noted)
    for start in (newest, chance.choice(noted)):
        published += [change for _, changes in published_by(log, behind=start) for change in changes]
    found = [each.identity for each in kept(published, cuts)]
    first = {each.identity for each in wanted if each.transaction == log[0][0]}  # without a commit there is no order
    assert first <= set(found)
    assert [each for each in found if each not in first] == [
        each.identity for each in wanted if each.identity not in first
    ]


def test_the_first_transaction_of_a_connector_is_resumed_without_loss() -> None:
    """Each run takes the place that was noted for the commit before; a transaction keeps its order all the same."""
    runs = [(None, (10, 12, 14)), (14, (16,)), (12, (14, 16, 18, 20))]
    published = [Change(commit, at + 1, 10, 500, place=lsn) for commit, own in runs for at, lsn in enumerate(own)]
    for cuts in ([], [4], [5], [6], [4, 5, 6, 7]):
        assert [each.lsn for each in kept(published, cuts)] == [10, 12, 14, 16, 18, 20]


def test_a_mark_of_an_older_job_leaves_out_what_preceded_its_transaction() -> None:
    """It has no place in the log: of its own transaction, nothing is known to be in the table."""
    old = {"stamp": {"source": "shop", "commit": 100, "transaction": "501", "order": 2}, "time_ms": 2000, "place": None}
    mark, found = Mark.from_json(old), Progressions()
    stamps = stamps_at(transactions_of([2, 3]), 0)
    assert stamps is not None
    found.add(stamps)
    spans, _ = find_repeated(found.found, mark, stood=0)
    assert RepeatedChanges(spans).offsets(stamps).tolist() == [0, 1]


@pytest.mark.sweep
@given(cuts=st.lists(st.integers(0, 60), max_size=5))
def test_a_restored_database_counts_from_the_beginning(cuts: list[int]) -> None:
    """Its positions are lower, but its changes are younger than all before: none is a repeated one."""
    before = transactions_of([2, 3, 1, 2])
    after = [Change(each.commit // 2 + 1, each.order, each.time_ms + 9000, each.transaction) for each in before]
    assert kept([*before, *after], cuts) == [*before, *after]
    assert kept([*before, *after, *after[2:]], cuts) == [*before, *after]


@pytest.mark.sweep
def test_what_has_no_order_is_never_repeated() -> None:
    """Rows of a snapshot, connectors without metadata of transactions, two connectors in one topic."""
    rows = [Change(5, 1, 10, None)] * 4
    assert kept(rows, [2]) == rows
    two = [Change(100, 1, 10, 7), Change(5, 1, 10, 7, "other"), Change(101, 1, 10, 8), Change(6, 1, 10, 8, "other")]
    assert kept(two, []) == two
    assert kept(two, [1, 2, 3]) == two
    many = two[:2] * 1500
    assert kept(many, [1000]) == many


def test_mariadb_has_its_order_from_its_binary_log() -> None:
    """The next file begins at a low position, which is later all the same."""
    rows = [
        {
            "op": "c",
            "source": {"name": "shop", "ts_ms": 5, "file": f"binlog.{file:06}", "pos": position, "row": 0},
            "transaction": {
                "id": f"file=binlog.{file:06},pos={position // 100}",
                "total_order": order,
                "data_collection_order": order,
            },
        }
        for file, position, order in ((9, 900, 1), (9, 950, 2), (10, 4, 1), (9, 950, 2), (10, 4, 1), (10, 70, 1))
    ]
    stamps = stamps_of(pa.array(rows, pa.struct(META)), np.arange(len(rows)))
    assert stamps is not None
    found = Progressions()
    found.add(stamps)
    spans, _ = find_repeated(found.found, None, stood=0)
    assert RepeatedChanges(spans).offsets(stamps).tolist() == [3, 4]
