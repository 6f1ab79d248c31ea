"""Commit times of snapshots when a clock was wrong.

Times rise with ids, with one exception: a commit that finds its predecessor far ahead of its own clock writes the true
time, and the property ``fluvial.clock-corrected`` names the last snapshot with a time ahead; later ones carry it. So
history is a few stretches of rising times. A time that a later snapshot undercuts counts as that one's, and no time
counts as later than now: one commit by a clock that is years ahead stops neither expiry nor time travel.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from filestore.snapshot.snapshot import Snapshot

logger = logging.getLogger("fluvial.clock")

CLOCK_KEY: Final = "fluvial.clock-corrected"
"""Snapshot property: id of the newest snapshot whose time is ahead of the times after it."""
AHEAD_MS: Final = 300_000
"""Clocks of machines that differ by less are taken for equal."""


class ReadsSnapshots(Protocol):
    """Reads snapshots of a table."""

    def latest(self) -> Snapshot | None:
        """The newest one."""

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One; None: it expired."""

    def ids(self) -> list[int]:
        """All, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTime:
    """The time of a new snapshot."""

    time_ms: int
    properties: Mapping[str, str] = field(default_factory=dict)  # of the new snapshot


def commit_time(latest: Snapshot | None, now_ms: int) -> CommitTime:
    """The time of the snapshot after ``latest``, by the clock of this machine.

    A clock that is a little behind does not make times fall. One that is far behind, or a predecessor that is far
    ahead, starts a new stretch of times.
    """
    if latest is None:
        return CommitTime(time_ms=now_ms)
    if latest.time_ms - now_ms > AHEAD_MS:
        return CommitTime(time_ms=now_ms, properties={CLOCK_KEY: str(latest.id)})
    carried = {key: text for key, text in latest.properties.items() if key == CLOCK_KEY}
    return CommitTime(time_ms=max(now_ms, latest.time_ms), properties=carried)


def time_ahead_ms(latest: Snapshot | None, now_ms: int) -> int | None:
    """How far the newest snapshot is ahead of this machine's clock; None: not more than clocks differ."""
    ahead_ms = 0 if latest is None else latest.time_ms - now_ms
    return ahead_ms if ahead_ms > AHEAD_MS else None


def warn_if_ahead(table: str, latest: Snapshot | None, now_ms: int) -> None:
    """Log a warning, once per process and table, if the newest snapshot is ahead of this machine's clock."""
    ahead_ms = time_ahead_ms(latest, now_ms)
    if latest is None or ahead_ms is None or table in _WARNED:
        return
    _WARNED.add(table)
    logger.warning(
        "the newest snapshot is ahead of this machine's clock: table=%s snapshot=%d commit_user=%s ahead_seconds=%d "
        "fix='correct the clock of this machine, or of the one that committed it'",
        table, latest.id, latest.commit_user, ahead_ms // 1000,
    )  # fmt: skip


_WARNED: Final[set[str]] = set()


class CommitTimes:
    """The times of a table's snapshots as they count."""

    def __init__(self, snapshots: ReadsSnapshots, latest: Snapshot, now_ms: int) -> None:
        """Read the first snapshot of each stretch of times; most tables have only one, which needs no read."""
        self._now_ms = now_ms
        self.starts: Sequence[Snapshot] = _starts(snapshots, latest)  # of all stretches but the oldest, newest first

    def of(self, snapshot: Snapshot) -> int:
        """The time of a snapshot: its own, but no later than those after it, and than now."""
        return min(snapshot.time_ms, self._now_ms, *(each.time_ms for each in self.starts if each.id > snapshot.id))

    def age_time_of(self, snapshot: Snapshot, modified_ms: Callable[[], int]) -> int:
        """The time that a snapshot's age is counted from.

        A snapshot that a later one undercuts may also be right, and the later one by a clock far behind. So it counts
        from the time of its file if that lies between both: nothing expires early for a wrong clock.

        Args:
            snapshot: the snapshot.
            modified_ms: gives the time of its file; called only when it matters.
        """
        least_ms = self.of(snapshot)
        if least_ms == snapshot.time_ms:
            return least_ms
        file_ms = modified_ms()
        return max(least_ms, min(file_ms, snapshot.time_ms)) if file_ms <= self._now_ms else least_ms


def snapshot_as_of(
    snapshots: ReadsSnapshots, time_ms: int, now_ms: int, *, line: Callable[[], Sequence[int]] | None = None
) -> Snapshot | None:
    """The last snapshot committed at or before a time; the newest for now and later.

    Args:
        snapshots: of the table.
        time_ms: the time, epoch milliseconds.
        now_ms: by this machine's clock.
        line: lists those that are no forks, ascending; None: none is.

    Returns:
        None when there is none or all have expired.
    """
    latest = snapshots.latest()
    if latest is None:
        return None
    if time_ms >= now_ms or (time_ahead_ms(latest, now_ms) is not None and time_ms >= now_ms - AHEAD_MS):
        return latest
    ids = (line or snapshots.ids)()
    end = len(ids)
    for start in CommitTimes(snapshots, latest, now_ms).starts:
        first = bisect_left(ids, start.id)
        if start.time_ms <= time_ms:
            found = _last_until(snapshots, ids[first:end], time_ms)
            if found is not None:
                return found
        end = first
    return _last_until(snapshots, ids[:end], time_ms)


def _last_until(snapshots: ReadsSnapshots, ids: Sequence[int], time_ms: int) -> Snapshot | None:
    """The last of some snapshots with rising times that is not later than a time."""
    found: Snapshot | None = None
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        snapshot = snapshots.find(ids[middle])
        # One that expired since the listing is older than all remaining ones.
        if snapshot is None or snapshot.time_ms <= time_ms:
            found, low = snapshot or found, middle + 1
        else:
            high = middle
    return found


def _starts(snapshots: ReadsSnapshots, latest: Snapshot) -> list[Snapshot]:
    starts: list[Snapshot] = []
    at: Snapshot | None = latest
    while at is not None:
        text = at.properties.get(CLOCK_KEY, "")
        if not (text.isascii() and text.isdigit()) or int(text) >= at.id:
            break
        start = snapshots.find(int(text) + 1)
        if start is None:
            break  # so the ones before it have expired as well
        starts.append(start)
        at = snapshots.find(int(text))
    return starts
