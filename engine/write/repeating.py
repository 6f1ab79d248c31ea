"""Retries a batch that lost its turn: each attempt begins with the recovery steps of a restart."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from engine.write.ticket_queue import TicketQueue, Turn
from filestore.commit.table_commit import TableCommit
from filestore.scan.snapshot_files import delta_entries
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, OutcomeUnknownError, TakenOverError

logger = logging.getLogger("fluvial.turns")

_Done = TypeVar("_Done")

MOST_ATTEMPTS: Final = 5


class AwaitedWriterError(ConflictError):
    """A queued writer has an unfinished batch in the log: it must finish that batch before this one is written."""


class StaleReadError(ConflictError):
    """Rows were computed from a state that has changed: only the caller can compute them again."""


class LostTraceError(OutcomeUnknownError):
    """Snapshots have expired that would show what other writers published of an attempt: no other attempt is made."""


def write_in_turn(
    queue: TicketQueue,
    attempt: Callable[[Turn], _Done],
    *,
    before_again: Callable[[], object],
    patience_s: float | None,
    attempts: int = MOST_ATTEMPTS,
) -> _Done:
    """Run attempts until one is not interrupted by another writer of the log; return its result.

    Args:
        queue: the writers of the table's log.
        attempt: one attempt; it begins by looking into log and table for what an earlier attempt left.
        before_again: called between two attempts; an error that it raises ends the retries.
        patience_s: most seconds to wait for turns, over all attempts together; None: see ``TicketQueue.turn``.
        attempts: most attempts.

    Raises:
        ConflictError: the last attempt raised it, or the other writers took longer than ``patience_s``.
        OutcomeUnknownError: the last attempt raised it.
    """
    failures, waited_s = 0, 0.0
    while True:
        began_s = time.monotonic()
        with queue.turn(patience_s=None if patience_s is None else max(0.0, patience_s - waited_s)) as turn:
            waited_s += time.monotonic() - began_s
            is_mine = True
            while is_mine:
                try:
                    return attempt(turn)
                except (TakenOverError, StaleReadError, LostTraceError):
                    raise
                except (ConflictError, OutcomeUnknownError) as error:
                    failures += 1
                    if failures >= attempts:
                        raise
                    logger.warning("a batch is tried again: attempt=%d reason=%s", failures, error)
                    is_mine = not isinstance(error, AwaitedWriterError)
                before_again()
                is_mine = is_mine and turn.is_held()


def published_before(store: TableStore, commit: TableCommit, batch_id: int, began_at: int) -> Snapshot | None:
    """The newest snapshot that others published of an earlier attempt of a batch job.

    The fence of the next attempt ends such publications, so call this after it.

    Args:
        store: the table.
        commit: of the job.
        batch_id: of the job.
        began_at: id of the snapshot on which its first attempt was made.

    Raises: LostTraceError: it may have expired.
    """
    found = commit.find_committed(batch_id)
    if found is None and began_at + 1 < store.snapshots.claimed_up_to():
        raise LostTraceError(
            "the snapshots that would show whether a part of the batch was published have expired: table="
            f"{store.name} fix='look whether its rows are there before you write them again'"
        )
    return found


def check_not_stale(store: TableStore, latest: Snapshot | None, read_snapshot_id: int) -> None:
    """Refuse rows that were computed from a state that has changed since; compactions change no rows.

    Raises: StaleReadError.
    """
    for snapshot in store.snapshots.back_from(latest):
        if snapshot.id == read_snapshot_id:
            return
        if snapshot.id < read_snapshot_id or snapshot.commit_kind.changes_rows:
            break
    else:
        if read_snapshot_id == 0:
            return
    raise StaleReadError(
        f"the table changed while the rows were computed: table={store.name} read_snapshot={read_snapshot_id} "
        f"newest={0 if latest is None else latest.id} fix=run it again"
    )


def buckets_of(store: TableStore, snapshot: Snapshot) -> frozenset[int]:
    """The buckets of a batch that another writer committed. Raises: LostTraceError when that snapshot expired."""
    try:
        return frozenset(entry.bucket for entry in delta_entries(store, snapshot))
    except SnapshotExpiredError as error:
        raise LostTraceError(
            "another writer committed what the log held of this batch, and its snapshot has expired: "
            f"table={store.name} snapshot={snapshot.id} fix='look which of its rows are there'"
        ) from error
