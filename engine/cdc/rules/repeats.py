"""Finds changes that a connector has published again: pure.

A connector that was killed begins again where it had last noted its position. Its changes come in order of their
commits, and within a transaction in order of their places in the database's log. So a repetition is a jump back, and
lasts until the newest change from before the jump has passed. A jump back to changes that are younger than all before
is none: the database was restored, and counts from the beginning.

The orders in the transaction metadata are no order: a connector that begins within a transaction counts from 1 again.
They tell a change that follows at one place, such as a row of COPY, from the first one there, published again. Nor is
the commit before that of all changes of a transaction: where none was known, it is the place of the last change noted.

Needs ``provide.transaction.metadata`` and places in the log: PostgreSQL's connector has that of the commit before, and
the change's own, in ``source.sequence``; those of MySQL and MariaDB have ``source.file``, ``source.pos`` and
``source.row``. Changes without them are never taken for repeated ones.

Source: Debezium 3.4, ``PgOutputMessageDecoder``: BEGIN and COMMIT are never skipped, other messages are up to the place
that the connector has noted; ``PostgresOffsetContext``: without a commit, that place is taken for one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logstore.json.arrow_bytes import flags

_SEQUENCE: Final = r'^\["(?P<commit>\d+)",\s*"(?P<place>\d+)"'  # of the transaction before; the change's own
_UNKNOWN: Final = -1  # place of a stamp that an older job has left
_MOST_JUMPS: Final = 1000  # in a range
_FILE: Final = r"\.(?P<number>\d+)$"  # of the binary log
_FILE_BYTES: Final = 1 << 40  # more than one has
_OWN_POSITION: Final = r":\d+$"  # each change's id of its transaction is ``xid:lsn``


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The place of a change in the order of its connector."""

    source: str  # name of the connector
    commit: int  # where the transaction before ends in the database's log; of a binary log: the change's event
    transaction: str  # of a binary log: the change's event
    place: int = _UNKNOWN  # the change's own one in the log; of a binary log: its row in the event
    order: int  # within the transaction, among the changes of its table; of a resumed one, from 1 again
    count: int = 1  # changes at this place, up to and with this one

    def shares_place(self, other: "Stamp") -> bool:
        """Whether both changes are of one record of the log."""
        mine, its = ((each.source, each.transaction, each.place) for each in (self, other))
        return mine == its

    def follows(self, other: "Stamp | None") -> bool:
        """Whether this change is at the other's place, and behind it in one run of the connector."""
        return other is not None and self.shares_place(other) and self.order > other.order

    def is_before(self, other: "Stamp") -> bool:
        """Whether the other change equals this one, or is later. Changes of two connectors have no order."""
        if self.source != other.source:
            return False
        if self.transaction == other.transaction:
            return (self.place, self.count) <= (other.place, other.count)
        return self.commit < other.commit

    @classmethod
    def from_json(cls, body: Mapping[str, Any] | None) -> "Stamp | None":
        """The inverse of ``asdict``; an older job knew no places."""
        return None if body is None else cls(**body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The newest change that a table has of a source table, the newest time of all, and the snapshot at its end."""

    stamp: Stamp | None  # None: no change has one
    time_ms: int = 0
    place: str | None = None  # of the snapshot that its last record belongs to; None: not known
    at: Stamp | None = None  # the last change, where a repetition is not over; None: it is the newest one

    def to_json(self) -> dict[str, Any]:
        """The mark as JSON values, for a property of the snapshot."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Mark":
        """The inverse of ``to_json``."""
        stamp, at = Stamp.from_json(body["stamp"]), Stamp.from_json(body.get("at"))
        return cls(stamp=stamp, time_ms=body["time_ms"], place=body.get("place"), at=at)


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
    seen: int = 0  # changes at the place of ``until`` that this run of the connector published before the offset

    def covers(self, offset: int, stamp: Stamp) -> bool:
        """Whether a single change is a repeated one; its count is that of the range."""
        if not self.offset <= offset < self.end:
            return False
        own = replace(stamp, count=stamp.count + self.seen) if stamp.shares_place(self.until) else stamp
        return own.is_before(self.until)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """(n,) of changes, by offset."""

    offsets: NDArray[np.int64]
    commits: NDArray[np.int64]
    places: NDArray[np.int64]
    orders: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    transactions: pa.Array  # string
    sources: pa.Array  # string
    counts: NDArray[np.int64] | None = None  # of changes at one place; None: not counted

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
            place=int(self.places[at]),
            order=int(self.orders[at]),
            count=1 if self.counts is None else int(self.counts[at]),
        )


def stamps_of(meta: pa.StructArray, offsets: NDArray[np.int64]) -> Stamps | None:
    """The stamps of those changes that have one, (n,) of ``META`` each; None: none has."""
    ids = pc.struct_field(meta, ["transaction", "id"])
    if ids.null_count == len(ids):
        return None
    commits, places = _commits_and_places(pc.struct_field(meta, "source"))
    orders, times = (
        pc.struct_field(meta, path) for path in (["transaction", "data_collection_order"], ["source", "ts_ms"])
    )
    sources = pc.struct_field(meta, ["source", "name"])
    known = np.flatnonzero(
        np.logical_and.reduce([flags(each.is_valid()) for each in (ids, commits, places, orders, times, sources)])
    )
    if not len(known):
        return None
    chosen = pa.array(known)
    return Stamps(
        offsets=offsets[known],
        commits=commits.take(chosen).to_numpy(),
        places=places.take(chosen).to_numpy(),
        orders=orders.take(chosen).to_numpy(),
        times_ms=times.take(chosen).to_numpy(),
        transactions=_transactions(ids, pc.struct_field(meta, ["source", "sequence"]), commits).take(chosen),
        sources=sources.take(chosen),
    )


def _commits_and_places(source: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """(n,) int64 each, see ``Stamp``; null: the connector has none."""
    found = pc.extract_regex(pc.struct_field(source, "sequence"), _SEQUENCE)
    commits, places = (pc.struct_field(found, name).cast(pa.int64()) for name in ("commit", "place"))
    if commits.null_count == 0:
        return commits, places
    return pc.coalesce(commits, _binlog_places(source)), pc.coalesce(
        places, pc.struct_field(source, "row"), pa.scalar(0, pa.int64())
    )


def _transactions(ids: pa.Array, sequences: pa.Array, commits: pa.Array) -> pa.Array:
    """(n,) string, see ``Stamp``: the changes of one are in order of their places."""
    own = pc.replace_substring_regex(ids, _OWN_POSITION, "")
    return own if sequences.null_count == 0 else pc.if_else(sequences.is_valid(), own, commits.cast(pa.string()))


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

    def add(self, stamps: Stamps) -> Stamps:
        """Add changes behind those that are known; none of those that jump again and again, as of two connectors.

        Returns: the changes, with their counts in the range.
        """
        commits, places, orders = stamps.commits, stamps.places, stamps.orders
        names, transactions = _codes(stamps.sources), _codes(stamps.transactions)
        is_same = transactions[1:] == transactions[:-1]
        is_here = is_same & (places[1:] == places[:-1])
        goes_back = np.where(is_same, places[1:] < places[:-1], commits[1:] < commits[:-1])
        begins = np.r_[True, goes_back | (is_here & (orders[1:] <= orders[:-1])) | (names[1:] != names[:-1])]
        arrives = np.flatnonzero(begins | np.r_[True, ~is_here])  # at a place
        sizes = np.diff(np.append(arrives, len(commits)))
        counts = np.arange(len(commits)) - np.repeat(arrives, sizes) + 1
        last = self.found[-1].last if self.found else None
        if last is not None and stamps.stamp(0).follows(last):
            counts[: sizes[0]] += last.count
        stamps = replace(stamps, counts=counts)
        if len(self.found) > _MOST_JUMPS:
            return stamps
        starts = np.flatnonzero(begins)[: _MOST_JUMPS + 2]
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
        return stamps


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
    newest, time_ms, at = (None, 0, None) if mark is None else (mark.stamp, mark.time_ms, mark.at or mark.stamp)
    for each in progressions if len(progressions) <= _MOST_JUMPS else ():
        if each.end <= stood:
            continue
        continues = each.offset < stood
        begins_at = None if at is None or not (continues or each.first.follows(at)) else at
        first, last = (_counted(one, begins_at, in_range=continues) for one in (each.first, each.last))
        is_again = newest is not None and first.is_before(newest) and each.first_ms <= time_ms
        time_ms, at = max(time_ms, each.newest_ms), last
        if newest is None or not (continues or is_again):
            newest = last
            continue
        seen = begins_at.count if begins_at is not None and begins_at.shares_place(newest) else 0
        found.append(Repeated(offset=max(each.offset, stood), end=each.end, until=newest, seen=seen))
        newest = newest if last.is_before(newest) else last
    if mark is None and newest is None:
        return (), None
    place = None if mark is None else mark.place
    return tuple(found), Mark(stamp=newest, time_ms=time_ms, place=place, at=None if at == newest else at)


def _counted(stamp: Stamp, begins_at: Stamp | None, *, in_range: bool) -> Stamp:
    """A stamp of a range with its true count.

    Args:
        stamp: counted from the beginning of the range.
        begins_at: the change before, if it is of the same run of the connector.
        in_range: whether that change, too, is in the range.
    """
    if begins_at is None or not stamp.shares_place(begins_at):
        return stamp
    return replace(stamp, count=max(stamp.count, begins_at.count) if in_range else stamp.count + begins_at.count)


def is_one_repeated(offset: int, stamp: Stamp | None, spans: Sequence[Repeated]) -> bool:
    """Whether a single change, given by offset and stamp, is a repetition."""
    return stamp is not None and any(each.covers(offset, stamp) for each in spans)


class RepeatedChanges:
    """Finds the repeated ones among changes that come in order of their offsets."""

    def __init__(self, spans: Sequence[Repeated]) -> None:
        self._spans = spans
        self._seen = [each.seen for each in spans]

    def offsets(self, stamps: Stamps) -> NDArray[np.int64]:
        """The offsets of the repeated ones, of changes behind those that were asked before; see ``Stamp.is_before``."""
        found = np.zeros(len(stamps.offsets), bool)
        for number, span in enumerate(self._spans):
            until = span.until
            inside = (stamps.offsets >= span.offset) & (stamps.offsets < span.end)
            inside &= flags(pc.equal(stamps.sources, until.source))
            if not inside.any():
                continue
            own = inside & flags(pc.equal(stamps.transactions, until.transaction))
            here = own & (stamps.places == until.place)
            counts = self._seen[number] + np.cumsum(here)
            self._seen[number] = int(counts[-1])
            found |= (inside & ~own & (stamps.commits < until.commit)) | (own & (stamps.places < until.place))
            found |= here & (counts <= until.count)
        return stamps.offsets[found]
