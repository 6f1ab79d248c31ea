"""Batches that end where a snapshot ends: which snapshot holds what was delivered, and where aligned batches end.

Jobs that read one table aligned have the same snapshots at the ends of their batches, whenever they started and however
fast they are: which snapshots those are depends on their numbers alone. LN-70, LN-72, LN-73.
"""

from engine.stream.position.plan import History, SnapshotExpiredError
from engine.stream.position.position import Phase, Position


def next_cut(after_id: int, newest_id: int, *, earliest_id: int, every: int) -> int | None:
    """The snapshot at which an aligned batch ends.

    Args:
        after_id: the snapshot that is delivered; 0: none.
        newest_id: of the table; 0: none.
        earliest_id: of the table: an expired snapshot cannot be an end.
        every: batches end at multiples of this.

    Returns:
        The smallest multiple of ``every`` behind ``after_id`` that is still there; None when it is not there yet.
    """
    first_id = max(after_id + 1, earliest_id)
    cut = -(-first_id // every) * every
    return cut if cut <= newest_id else None


def snapshot_read(here: Position, newest_id: int, history: History) -> int:
    """The oldest snapshot that holds everything delivered; 0: nothing is.

    Of a snapshot, or of the changes between two, that are delivered in part, it is the one that will be whole. What
    left the log before a snapshot has it (eventual consistency) is counted to the newest snapshot.

    Args:
        here: what is delivered.
        newest_id: of the table.
        history: its snapshots.
    """
    if here.phase is not Phase.LOG:
        return here.newest_id
    if not any(here.offsets.values()):
        return here.snapshot_id
    first, last = here.snapshot_id, max(here.snapshot_id, newest_id)
    while first < last:  # offsets never go back from one snapshot to the next
        middle = (first + last) // 2
        if _holds(middle, here, history):
            last = middle
        else:
            first = middle + 1
    return last


def _holds(snapshot_id: int, here: Position, history: History) -> bool:
    if snapshot_id == 0:
        return False
    try:
        then = history.facts(snapshot_id).offsets
    except SnapshotExpiredError:
        return False
    return all(offset <= then.get(bucket, 0) for bucket, offset in here.offsets.items())
