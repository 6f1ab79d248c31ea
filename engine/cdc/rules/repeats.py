"""Finds changes that a connector has published again: pure.

A connector that was killed begins again where it had last noted its position. Its changes come in order of their
commits, so a repetition is a jump back, and lasts until the newest change from before the jump has passed. A jump back
to changes that are younger than all before is none: the database was restored, and counts from the beginning.

Needs ``provide.transaction.metadata`` and positions in order of commits: PostgreSQL's connector has them in
``source.sequence``, those of MySQL and MariaDB in ``source.file`` and ``source.pos``. Changes without them are never
taken for repeated ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logstore.json.arrow_bytes import flags
from lsm.keys.words import BoolArray

_COMMIT: Final = r'^\["(?P<commit>\d+)"'  # of the transaction before; then the change's own position
_MOST_JUMPS: Final = 1000  # in a range
_FILE: Final = r"\.(?P<number>\d+)$"  # of the binary log
_FILE_BYTES: Final = 1 << 40  # more than one has
_OWN_POSITION: Final = r":\d+$"  # each change's id of its transaction is ``xid:lsn``


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The place of a change in the order of its connector."""

    source: str  # name of the connector
    commit: int  # position in the database's log
    transaction: str
    order: int  # within the transaction

    def is_before(self, other: "Stamp") -> bool:
        """Whether the other change equals this one, or is later. Changes of two connectors have no order."""
        if self.source != other.source or self.commit > other.commit:
            return False
        return self.commit < other.commit or (self.transaction == other.transaction and self.order <= other.order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The newest change that a table has of a source table, the newest time of all, and the snapshot at its end."""

    stamp: Stamp | None  # None: no change has one
    time_ms: int = 0
    place: str | None = None  # of the snapshot that its last record belongs to; None: not known

    def to_json(self) -> dict[str, Any]:
        """The mark as JSON values, for a property of the snapshot."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Mark":
        """The inverse of ``to_json``."""
        stamp = None if body["stamp"] is None else Stamp(**body["stamp"])
        return cls(stamp=stamp, time_ms=body["time_ms"], place=body.get("place"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progression:
    """Changes in order, without a jump back."""

    offset: int  # of the first
    end: int  # behind the last
    first: Stamp
    last: Stamp
    first_ms: int
    newest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Offsets in which changes up to a stamp are repeated ones."""

    offset: int
    end: int
    until: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """(n,) of changes, by offset."""

    offsets: NDArray[np.int64]
    commits: NDArray[np.int64]
    orders: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    transactions: pa.Array  # string
    sources: pa.Array  # string

    def at_offset(self, offset: int) -> Stamp | None:
        """That of the change at an offset; None: it has none."""
        at = int(np.searchsorted(self.offsets, offset))
        return self.stamp(at) if at < len(self.offsets) and self.offsets[at] == offset else None

    def stamp(self, at: int) -> Stamp:
        """The stamp of one change."""
        return Stamp(
            source=self.sources[at].as_py(),
            commit=int(self.commits[at]),
            transaction=self.transactions[at].as_py(),
            order=int(self.orders[at]),
        )


def stamps_of(meta: pa.StructArray, offsets: NDArray[np.int64]) -> Stamps | None:
    """The stamps of those changes that have one, (n,) of ``META`` each; None: none has."""
    ids = pc.struct_field(meta, ["transaction", "id"])
    if ids.null_count == len(ids):
        return None
    commits = _commits(pc.struct_field(meta, "source"))
    orders, times = pc.struct_field(meta, ["transaction", "total_order"]), pc.struct_field(meta, ["source", "ts_ms"])
    sources = pc.struct_field(meta, ["source", "name"])
    known = np.flatnonzero(
        np.logical_and.reduce([flags(each.is_valid()) for each in (ids, commits, orders, times, sources)])
    )
    if not len(known):
        return None
    chosen = pa.array(known)
    return Stamps(
        offsets=offsets[known],
        commits=commits.take(chosen).to_numpy(),
        orders=orders.take(chosen).to_numpy(),
        times_ms=times.take(chosen).to_numpy(),
        transactions=pc.replace_substring_regex(ids.take(chosen), _OWN_POSITION, ""),
        sources=sources.take(chosen),
    )


def _commits(source: pa.StructArray) -> pa.Array:
    """(n,) int64; null: the connector has none."""
    texts = pc.struct_field(source, "sequence")
    commits = pc.struct_field(pc.extract_regex(texts, _COMMIT), "commit").cast(pa.int64())
    if commits.null_count == 0:
        return commits
    return pc.coalesce(commits, _binlog_places(source))


def _binlog_places(source: pa.StructArray) -> pa.Array:
    """(n,) int64 of changes of MySQL and MariaDB; null: another connector's."""
    files = pc.struct_field(pc.extract_regex(pc.struct_field(source, "file"), _FILE), "number").cast(pa.int64())
    return pc.add(pc.multiply(files, _FILE_BYTES), pc.struct_field(source, "pos"))


def moments_of(source: pa.StructArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of changes in the source: (n,) its milliseconds, and the place in its log within one; 0: not known."""
    places = pc.struct_field(source, "lsn")
    if places.null_count:
        places = pc.coalesce(places, _binlog_places(source), pa.scalar(0, pa.int64()))
    return pc.fill_null(pc.struct_field(source, "ts_ms"), 0).to_numpy(), places.to_numpy(zero_copy_only=False)


@dataclass(slots=True)
class Progressions:
    """The progressions of a source table in a range, which grow with its records."""

    found: list[Progression] = field(default_factory=list)

    def add(self, stamps: Stamps) -> None:
        """Add changes behind those that are known; none of those that jump again and again, as of two connectors."""
        if len(self.found) > _MOST_JUMPS:
            return
        commits, orders = stamps.commits, stamps.orders
        names, transactions = _codes(stamps.sources), _codes(stamps.transactions)
        is_same = (commits[1:] == commits[:-1]) & (transactions[1:] == transactions[:-1])
        goes_back = (commits[1:] < commits[:-1]) | (is_same & (orders[1:] <= orders[:-1]))
        starts = np.flatnonzero(np.r_[True, goes_back | (names[1:] != names[:-1])])[: _MOST_JUMPS + 2]
        ends = np.append(starts[1:], len(commits))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            own = Progression(
                offset=int(stamps.offsets[start]),
                end=int(stamps.offsets[end - 1]) + 1,
                first=stamps.stamp(start),
                last=stamps.stamp(end - 1),
                first_ms=int(stamps.times_ms[start]),
                newest_ms=int(stamps.times_ms[start:end].max()),
            )
            before = self.found[-1] if self.found else None
            if before is None or own.first.source != before.last.source or own.first.is_before(before.last):
                self.found.append(own)
            else:
                newest = max(before.newest_ms, own.newest_ms)
                self.found[-1] = replace(before, end=own.end, last=own.last, newest_ms=newest)


def _codes(texts: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.dictionary_encode(texts).indices).astype(np.int64)


def find_repeated(
    progressions: Sequence[Progression], mark: Mark | None, *, stood: int
) -> tuple[tuple[Repeated, ...], Mark | None]:
    """Find the ranges of repeated changes, and the mark after all of them.

    Args:
        progressions: of a range, in order.
        mark: of the table at its position.
        stood: that position; what precedes it is in the table, and has led to the mark.
    """
    found: list[Repeated] = []
    newest, time_ms = (None, 0) if mark is None else (mark.stamp, mark.time_ms)
    for each in progressions if len(progressions) <= _MOST_JUMPS else ():
        if each.end <= stood:
            continue
        continues = each.offset < stood
        is_again = newest is not None and each.first.is_before(newest) and each.first_ms <= time_ms
        time_ms = max(time_ms, each.newest_ms)
        if newest is None or not (continues or is_again):
            newest = each.last
            continue
        found.append(Repeated(offset=max(each.offset, stood), end=each.end, until=newest))
        newest = newest if each.last.is_before(newest) else each.last
    if mark is None and newest is None:
        return (), None
    return tuple(found), Mark(stamp=newest, time_ms=time_ms, place=None if mark is None else mark.place)


def is_one_repeated(offset: int, stamp: Stamp | None, spans: Sequence[Repeated]) -> bool:
    """Whether a single change, given by offset and stamp, is a repetition."""
    return stamp is not None and any(each.offset <= offset < each.end and stamp.is_before(each.until) for each in spans)


def is_repeated(stamps: Stamps, spans: Sequence[Repeated]) -> BoolArray:
    """(n,) whether each change is a repeated one; see ``Stamp.is_before``."""
    found = np.zeros(len(stamps.offsets), bool)
    for span in spans:
        until = span.until
        inside = (stamps.offsets >= span.offset) & (stamps.offsets < span.end)
        if not inside.any():
            continue
        same = flags(pc.equal(stamps.transactions, until.transaction)) & (stamps.orders <= until.order)
        before = (stamps.commits < until.commit) | ((stamps.commits == until.commit) & same)
        found |= inside & before & flags(pc.equal(stamps.sources, until.source))
    return found
