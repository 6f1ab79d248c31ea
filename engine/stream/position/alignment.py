"""Aligned batches, which end at snapshots: where they end, and which snapshot holds what was delivered.

Jobs that read one table aligned end their batches at the same snapshots, whenever they started and however fast they
are, because the ends depend on snapshot ids only.
"""

from engine.stream.position.plan import History
from engine.stream.position.position import Phase, Position
from filestore.snapshot.lost_files import SnapshotExpiredError


def next_aligned_id(after_id: int, newest_id: int, *, earliest_id: int, every: int) -> int | None:
    """The snapshot at which an aligned batch ends.

    Args:
        after_id: the delivered snapshot; 0: none.
        newest_id: newest snapshot of the table; 0: none.
        earliest_id: oldest snapshot of the table: an expired one cannot be an end.
        every: batches end at multiples of this.

    Returns:
        The smallest multiple of ``every`` after ``after_id`` that has not expired; None when it does not exist yet.
    """
    first_id = max(after_id + 1, earliest_id)
    end_id = -(-first_id // every) * every
    return end_id if end_id <= newest_id else None


def snapshot_read(here: Position, newest_id: int, history: History) -> int:
    """The oldest snapshot that holds everything delivered; 0: nothing is delivered.

    For a partly delivered snapshot, or partly delivered changes between two, it is the one that will be complete.
    Records that left the log before a snapshot had them (eventual consistency) count for the newest snapshot.

    Args:
        here: what is delivered.
        newest_id: newest snapshot of the table.
        history: the table's snapshots.
    """
    if here.phase is not Phase.LOG:
        return here.newest_id
    if not any(here.offsets.values()):
        return here.snapshot_id
    first, last = here.snapshot_id, max(here.snapshot_id, newest_id)
    while first < last:  # offsets never decrease from one snapshot to the next
        middle = (first + last) // 2
        if holds(middle, here, history):
            last = middle
        else:
            first = middle + 1
    return last


def holds(snapshot_id: int, here: Position, history: History) -> bool:
    """Whether a snapshot has everything that was delivered of the log; an expired one has not."""
    if snapshot_id == 0:
        return False
    try:
        then = history.facts(snapshot_id).offsets
    except SnapshotExpiredError:
        return False
    return all(offset <= then.get(bucket, 0) for bucket, offset in here.offsets.items())
