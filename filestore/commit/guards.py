"""Guards that end the attempts of a commit: limits that a user may set, and commits or rollbacks of others.

Source: Paimon ``commit.timeout`` and StrictModeChecker.
"""

from filestore.commit.committable import Committable
from filestore.layout.publication import read_publication
from filestore.scan.snapshot_files import delta_entries
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError
from lsm.retry import LostRaceError


def check_time(store: TableStore, began_ms: int, *, attempts: int) -> None:
    """Stop the retries after ``commit.timeout``. Raises: ConflictError; nothing is visible."""
    limit_ms: int | None = store.options.commit_timeout_ms
    passed_ms = store.clock.now_ms() - began_ms
    if limit_ms is not None and passed_ms >= limit_ms:
        raise ConflictError(
            f"commit took too long: table={store.name} lost_races={attempts} passed_ms={passed_ms} "
            f"commit.timeout={limit_ms} ms: commit again"
        )


def check_not_between(store: TableStore, latest: Snapshot) -> None:
    """No commit comes between the snapshots that a fast-forward publishes; asked for behind the look at the newest one.

    Raises: LostRaceError.
    """
    publication = read_publication(store.io, store.paths)
    if publication is None or latest.id < publication.first_id:
        return  # the first of them is created exclusively, as a commit is
    first = store.snapshots.find(publication.first_id)
    if first is None or first.identity == publication.identity:
        raise LostRaceError(
            f"a fast-forward is publishing its snapshots: table={store.name} branch={publication.branch} "
            f"newest={latest.id} fix='commit again; if it was interrupted, which verify says, run it again'"
        )


def published_buckets(store: TableStore, latest: Snapshot | None, committable: Committable) -> frozenset[int]:
    """Buckets of a commit that the table has already, by the offsets of its log; see ``Committable.log_ends``.

    This proves what a writer has adopted from the log also when the snapshots in which it did so have expired.
    """
    if latest is None or not committable.log_ends:
        return frozenset()
    known = store.log_offsets_at(latest) or {}
    return frozenset(bucket for bucket, end in committable.log_ends.items() if end <= known.get(bucket, 0))


def check_safe(store: TableStore, latest: Snapshot | None, *, commit_user: str, kind: CommitKind) -> None:
    """With ``commit.strict-mode.last-safe-snapshot``: refuse to follow commits of others since that snapshot.

    Compactions and overwrites of others always; their appends when this commit replaces rows.

    Raises: InvalidInputError; nothing is visible, and trying again does not help.
    """
    last_safe: int | None = store.options.commit_strict_mode_last_safe_snapshot
    if last_safe is None or latest is None:
        return
    for snapshot in store.snapshots.back_from(latest):
        if snapshot.id <= last_safe:
            return
        if snapshot.commit_user == commit_user:
            continue
        appends = snapshot.commit_kind in (CommitKind.APPEND, CommitKind.ANALYZE)
        if not appends or (kind is CommitKind.OVERWRITE and any(e.bucket >= 0 for e in delta_entries(store, snapshot))):
            raise InvalidInputError(
                f"another writer committed after the last safe snapshot: table={store.name} snapshot={snapshot.id} "
                f"kind={snapshot.commit_kind.value} user={snapshot.commit_user} "
                f"commit.strict-mode.last-safe-snapshot={last_safe} fix='look at it, then set a newer one'"
            )
