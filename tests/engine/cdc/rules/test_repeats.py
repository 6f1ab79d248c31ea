"""Changes that a connector published again are found; nothing else is taken for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cdc.records.metadata import META
from engine.cdc.rules.repeats import Mark, Progressions, Stamps, find_repeated, is_repeated, stamps_of


@dataclass(frozen=True)
class Change:
    """One change of a source table."""

    commit: int
    order: int
    time_ms: int
    transaction: int | None
    source: str = "shop"


def events_of(changes: Sequence[Change]) -> pa.StructArray:
    rows = [
        {
            "op": "c",
            "source": {
                "name": each.source,
                "ts_ms": each.time_ms,
                "sequence": f'["{each.commit}","{each.commit + 1}"]',
            },
            "transaction": None
            if each.transaction is None
            else {"id": f"{each.transaction}:{each.commit + each.order}", "total_order": each.order},
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
        own = stamps_at(published[start:end], start)
        again = set() if own is None else set(own.offsets[is_repeated(own, spans)].tolist())
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
            "source": {"name": "shop", "ts_ms": 5, "file": f"binlog.{file:06}", "pos": position},
            "transaction": {"id": f"file=binlog.{file:06},pos={position // 100}", "total_order": order},
        }
        for file, position, order in ((9, 900, 1), (9, 950, 2), (10, 4, 1), (9, 950, 2), (10, 4, 1), (10, 70, 1))
    ]
    stamps = stamps_of(pa.array(rows, pa.struct(META)), np.arange(len(rows)))
    assert stamps is not None
    found = Progressions()
    found.add(stamps)
    spans, _ = find_repeated(found.found, None, stood=0)
    assert is_repeated(stamps, spans).tolist() == [False, False, False, True, True, False]
