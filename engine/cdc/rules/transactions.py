"""The end of a batch that splits no transaction of the source: pure.

A connector writes the changes of a transaction into many topics, and behind them one record to its transaction topic:
END, with the number of changes of each table. Transactions come in order of their commits, in every topic. So a batch
takes the longest run of transactions with all their changes at hand, and each topic ends before the first change of
another one. Changes without a transaction are those of a snapshot: they are taken.

Source: Debezium "Transaction metadata".
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
class LooseTransaction:
    """A transaction of which a batch took changes before all were there, because it had waited for too long."""

    is_ended: bool = False  # its END was taken
    missing: Mapping[str, int] | None = field(default_factory=dict)
    """By schema.table: changes that its END counts, without those taken. None: not known, its END is the last of it."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is to come."""
        return self.is_ended and all(count <= 0 for count in (self.missing or {}).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDecision:
    """The end of a batch by partition. It is stored before the batch is written, so that a replay takes the same."""

    batch_id: int
    ends: Mapping[TopicPosition, int] = field(default_factory=dict)  # of partitions that end before their range
    until: Mapping[TopicPosition, int] = field(default_factory=dict)  # where the ranges of these partitions end
    since_ms: Mapping[TopicPosition, int] = field(default_factory=dict)  # since when they end there
    loose: Mapping[str, LooseTransaction] = field(default_factory=dict)  # taken in parts, by their ids
    is_clean: bool = False  # the batch splits no transaction
    newest: str | None = None  # last transaction taken

    def to_json(self) -> dict[str, Any]:
        """The value as JSON values, for the file of the table's state."""
        return {
            "batch": self.batch_id,
            "ends": to_json(self.ends, {}),
            "until": to_json(self.until, {}),
            "since": to_json(self.since_ms, {}),
            "loose": {id: {"ended": each.is_ended, "missing": each.missing} for id, each in self.loose.items()},
            "clean": self.is_clean,
            "newest": self.newest,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "CutDecision":
        """The inverse of ``to_json``; of older versions' too, which had one time and names of loose transactions."""
        ends, since, loose = from_json(body["ends"]), body["since"], body["loose"]
        if isinstance(loose, list):
            loose = {id: {"ended": False, "missing": None} for id in loose}
        return cls(
            batch_id=body["batch"],
            ends=ends,
            until=from_json(body["until"]),
            since_ms=from_json(since) if isinstance(since, dict) else dict.fromkeys(ends, since or 0),
            loose={id: LooseTransaction(is_ended=each["ended"], missing=each["missing"]) for id, each in loose.items()},
            is_clean=body["clean"],
            newest=body["newest"],
        )

    def overdue(self, now_ms: int, max_wait_ms: float) -> list[TopicPosition]:
        """The partitions that have ended at the same change for too long."""
        return [position for position, since in self.since_ms.items() if now_ms - since > max_wait_ms]


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
    """Decide the end of a batch.

    Args:
        batch_id: of the batch.
        runs: the changes of each partition in order, from where the last batch ended.
        ended: END records at hand, in order of their commits.
        range_ends: the next offset after each range.
        is_awaited: see ``awaited_tables``.
        before: of the last batch.
        now_ms: epoch milliseconds.
        max_wait_ms: how long a change is held back; then its transaction is taken in parts.
    """
    asked = _Cut(batch_id, runs, ended, range_ends=range_ends, is_awaited=is_awaited, before=before, now_ms=now_ms)
    decision = asked.decided()
    while overdue := decision.overdue(now_ms, max_wait_ms):
        asked.release(overdue)
        decision = asked.decided()
    return decision


class _Cut:
    """The facts from which a cut is decided, and the transactions that may be taken in parts."""

    def __init__(
        self,
        batch_id: int,
        runs: Mapping[TopicPosition, Sequence[ChangeRun]],
        ended: Sequence[EndedTransaction],
        *,
        range_ends: Mapping[TopicPosition, int],
        is_awaited: Callable[[str], bool],
        before: CutDecision | None,
        now_ms: int,
    ) -> None:
        self._batch_id, self._runs, self._ended, self._range_ends = batch_id, runs, ended, range_ends
        self._is_awaited, self._now_ms = is_awaited, now_ms
        self._before = before or CutDecision(batch_id=batch_id - 1)
        self._loose = dict(self._before.loose)
        self._ends: dict[TopicPosition, int] = {}
        self._known = _counted(run for of_partition in runs.values() for run in of_partition)

    def decided(self) -> CutDecision:
        taken = 0
        while taken < len(self._ended) and self._may_be_taken(self._ended[taken]):
            taken += 1
        while True:
            names = {each.id: index for index, each in enumerate(self._ended[:taken])} | dict.fromkeys(self._loose, -1)
            ends = {position: end for position, each in self._runs.items() if (end := _end(each, names)) is not None}
            late = [
                names[run.transaction]
                for position, end in ends.items()
                for run in self._runs[position]
                if run.offset >= end and run.transaction is not None and names.get(run.transaction, -1) >= 0
            ]
            if not late:
                break
            taken = min(late)  # a change of it lies behind one that is held back
        for each in self._ended[taken:][::-1]:
            ends[each.position] = each.offset
        self._ends = ends
        return CutDecision(
            batch_id=self._batch_id,
            ends=ends,
            until={position: self._range_ends[position] for position in ends},
            since_ms={position: self._since(position, end) for position, end in ends.items()},
            loose=self._still_loose(self._ended[:taken]),
            is_clean=not self._loose,
            newest=self._ended[taken - 1].id if taken else None,
        )

    def release(self, positions: Sequence[TopicPosition]) -> None:
        """Let what holds these partitions back be taken in parts."""
        held = [run for each in positions for run in self._runs.get(each, ()) if run.offset == self._ends[each]]
        ends = [
            each for each in self._ended if each.offset == self._ends.get(each.position) and each.position in positions
        ]
        for id in [*(run.transaction for run in held), *(each.id for each in ends)]:
            self._loose.setdefault(str(id), LooseTransaction())

    def _may_be_taken(self, each: EndedTransaction) -> bool:
        return each.id in self._loose or _is_whole(each, self._known, self._is_awaited)

    def _since(self, position: TopicPosition, end: int) -> int:
        is_same = self._before.ends.get(position) == end
        return self._before.since_ms.get(position, self._now_ms) if is_same else self._now_ms

    def _still_loose(self, ended: Sequence[EndedTransaction]) -> dict[str, LooseTransaction]:
        """The loose transactions of which something is to come behind this batch."""
        taken = _counted(
            run
            for position, runs in self._runs.items()
            for run in runs
            if position not in self._ends or run.offset < self._ends[position]
        )
        after = {}
        for id, each in self._loose.items():
            of_it = [end for end in ended if end.id == id]
            counts = [(table, count) for end in of_it for table, count in end.counts.items() if self._is_awaited(table)]
            missing = None if each.missing is None else dict(each.missing)
            if missing is not None:
                for table, count in [*counts, *((table, -n) for (owner, table), n in taken.items() if owner == id)]:
                    missing[table] = missing.get(table, 0) + count
            found = LooseTransaction(is_ended=each.is_ended or bool(of_it), missing=missing)
            if not found.is_whole:
                after[id] = found
        return after


def _counted(runs: Iterable[ChangeRun]) -> dict[tuple[str, str], int]:
    """Changes by transaction and table."""
    found: dict[tuple[str, str], int] = {}
    for run in runs:
        if run.transaction is not None:
            key = (run.transaction, run.table)
            found[key] = found.get(key, 0) + run.count
    return found


def _is_whole(each: EndedTransaction, known: Mapping[tuple[str, str], int], is_awaited: Callable[[str], bool]) -> bool:
    return all(
        known.get((each.id, table), 0) >= count for table, count in each.counts.items() if count and is_awaited(table)
    )


def _end(runs: Sequence[ChangeRun], names: Mapping[str, int]) -> int | None:
    """The first change of a transaction that is not taken; None: all are."""
    return next((run.offset for run in runs if run.transaction is not None and run.transaction not in names), None)
