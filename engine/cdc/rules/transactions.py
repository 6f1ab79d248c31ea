"""Where a batch is cut so that it splits no transaction of the source: pure.

A connector writes the changes of a transaction into many topics, and behind them one record to its transaction topic:
END, with the number of changes of each table. Transactions come in order of their commits, in every topic. So a batch
takes the longest run of transactions with all their changes at hand, and each topic ends before the first change of
another one. Changes without a transaction are those of a snapshot: they are taken.

Source: Debezium "Transaction metadata".
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.kafka.offsets import TopicPosition, from_json, to_json

TRANSACTION_TOPIC: Final = ".transaction"
_NO_TABLE: Final = "io.debezium.connector."  # a logical message counts as a change of the class that read it
_XID_AND_LSN: Final = re.compile(r"(\d+):\d+")


def transaction_key(given: str) -> str:
    """The id that all changes of a transaction share: PostgreSQL's are ``xid:lsn``, each with an lsn of its own."""
    found = _XID_AND_LSN.fullmatch(given)
    return given if found is None else found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """An END record."""

    position: TopicPosition
    offset: int
    id: str
    counts: Mapping[str, int]  # changes by schema.table


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRun:
    """Neighbouring changes of one table and transaction in a partition."""

    offset: int  # of the first
    transaction: str | None  # None: of a snapshot
    table: str  # schema.table
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDecision:
    """What a batch takes; stored before it is written, so that a replay takes the same."""

    batch_id: int
    ends: Mapping[TopicPosition, int] = field(default_factory=dict)  # of partitions that end before their range
    until: Mapping[TopicPosition, int] = field(default_factory=dict)  # where the ranges of these partitions end
    loose: tuple[str, ...] = ()  # transactions that were taken without their END
    waits_since_ms: int | None = None  # the oldest that is held back
    is_clean: bool = False  # the batch splits no transaction
    newest: str | None = None  # last transaction taken

    def to_json(self) -> dict[str, Any]:
        """For the state's file."""
        return {
            "batch": self.batch_id,
            "ends": to_json(self.ends, {}),
            "until": to_json(self.until, {}),
            "loose": list(self.loose),
            "since": self.waits_since_ms,
            "clean": self.is_clean,
            "newest": self.newest,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "CutDecision":
        """The inverse of ``to_json``."""
        return cls(
            batch_id=body["batch"],
            ends=from_json(body["ends"]),
            until=from_json(body["until"]),
            loose=tuple(body["loose"]),
            waits_since_ms=body["since"],
            is_clean=body["clean"],
            newest=body["newest"],
        )


def awaited_tables(pattern: str, transaction_topic: str, seen: frozenset[str]) -> Callable[[str], bool]:
    """Whether changes of a source table will come: those of topics that the job does not read never do.

    Args:
        pattern: of the job's topics.
        transaction_topic: the connector's; its prefix is that of the other topics.
        seen: tables that records have named, for topics that are named in other ways.
    """
    prefix = transaction_topic.removesuffix(TRANSACTION_TOPIC)

    def is_awaited(table: str) -> bool:
        if table.startswith(_NO_TABLE):
            return False
        return table in seen or re.fullmatch(pattern, f"{prefix}.{table}") is not None

    return is_awaited


def decide_cut(
    batch_id: int,
    runs: Mapping[TopicPosition, Sequence[ChangeRun]],
    ended: Sequence[EndedTransaction],
    *,
    range_ends: Mapping[TopicPosition, int],
    is_awaited: Callable[[str], bool],
    before: CutDecision | None,
    now_ms: int,
    max_wait_ms: float,
) -> CutDecision:
    """Where a batch ends.

    Args:
        batch_id: of the batch.
        runs: the changes of each partition in order, from where the last batch ended.
        ended: END records at hand, in order of their commits.
        range_ends: the next offset after each range.
        is_awaited: see ``awaited_tables``.
        before: of the last batch.
        now_ms: epoch milliseconds.
        max_wait_ms: how long others are held back.
    """
    known: dict[tuple[str, str], int] = {}
    for of_partition in runs.values():
        for run in of_partition:
            if run.transaction is not None:
                key = (run.transaction, run.table)
                known[key] = known.get(key, 0) + run.count
    loose = () if before is None else before.loose
    left = tuple(each for each in loose if each not in {done.id for done in ended})
    taken = 0
    while taken < len(ended) and (ended[taken].id in loose or _is_whole(ended[taken], known, is_awaited)):
        taken += 1
    while True:
        names = {each.id: index for index, each in enumerate(ended[:taken])} | dict.fromkeys(left, -1)
        ends = {position: end for position, each in runs.items() if (end := _end(each, names)) is not None}
        late = [
            names[run.transaction]
            for position, end in ends.items()
            for run in runs[position]
            if run.offset >= end and run.transaction is not None and names.get(run.transaction, -1) >= 0
        ]
        if not late:
            break
        taken = min(late)  # a change of it lies behind one that is held back
    for each in ended[taken:][::-1]:
        ends[each.position] = each.offset
    newest = ended[taken - 1].id if taken else None
    if not ends:
        return CutDecision(batch_id=batch_id, is_clean=not loose, newest=newest, loose=left)
    waits_since = None if before is None or taken else before.waits_since_ms
    since = now_ms if waits_since is None else waits_since
    if now_ms - since > max_wait_ms:
        unended = {run.transaction for each in runs.values() for run in each} - {each.id for each in ended} - {None}
        return CutDecision(batch_id=batch_id, loose=(*left, *sorted(map(str, unended - set(left)))))
    return CutDecision(
        batch_id=batch_id,
        ends=ends,
        until={position: range_ends[position] for position in ends},
        waits_since_ms=since,
        is_clean=not loose,
        newest=newest,
        loose=left,
    )


def _is_whole(each: EndedTransaction, known: Mapping[tuple[str, str], int], is_awaited: Callable[[str], bool]) -> bool:
    return all(
        known.get((each.id, table), 0) >= count for table, count in each.counts.items() if count and is_awaited(table)
    )


def _end(runs: Sequence[ChangeRun], names: Mapping[str, int]) -> int | None:
    """The first change of a transaction that is not taken; None: all are."""
    return next((run.offset for run in runs if run.transaction is not None and run.transaction not in names), None)
