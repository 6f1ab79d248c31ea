"""Compactions without which readers do not get what was committed: the writer of the rows does them.

With deletion vectors rows of level 0 are not read. With ``changelog-producer`` ``lookup`` or ``full-compaction`` who
follows the table gets the changes of a commit from the compaction behind it.
"""

import logging
from collections.abc import Callable

from filestore.compact.compactor import compact_buckets
from filestore.compact.strategy import commits_until_full
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.scan.live_files import BucketKey
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, CommitKind
from filestore.table_store import TableStore
from lsm.errors import ConflictError
from lsm.retry import retrying

logger = logging.getLogger("fluvial.compaction")


def waits_for_compaction(store: TableStore) -> bool:
    """Whether new rows are not visible before a compaction, which their writers do: with deletion vectors."""
    options = store.options
    return (
        store.has_key
        and options.deletion_vectors_enabled
        and not options.write_only
        and options.bucket != POSTPONE_BUCKET  # its rows wait for a separate job
        and not options.deletion_vectors_merge_on_read
    )


def emits_by_compaction(store: TableStore) -> bool:
    """Whether who follows the files of a table gets changes from compactions."""
    return store.has_key and store.options.changelog_producer in ("lookup", "full-compaction")


def is_awaited(store: TableStore) -> bool:
    """Whether readers wait for the compaction of new rows, which their writers do.

    Who follows a table with a log has the changes from there, unless ``streaming-read-mode`` says that it reads files.
    """
    options = store.options
    does_it = not options.write_only and options.bucket != POSTPONE_BUCKET
    follows_files = not store.has_log or options.streaming_read_mode == "file"
    return waits_for_compaction(store) or (does_it and follows_files and emits_by_compaction(store))


def compact_written(
    store: TableStore, *, keep: Callable[[BucketKey], bool] = lambda _: True, forced: bool = False
) -> None:
    """Compact after the commit of a batch what readers wait for. Never raises: the rows are in the table.

    A caller who got an error would write them again. What fails is done by the next compaction.

    Args:
        store: the table that was written.
        keep: whether a bucket is to be looked at.
        forced: also what is worth it, whether readers wait or not.
    """
    awaited = is_awaited(store)
    try:
        is_full = awaited and store.options.changelog_producer == "full-compaction"
        is_due = is_full and _is_due(store)
        if forced or is_due or (awaited and not is_full):
            retrying(
                lambda: compact_buckets(store, keep=keep, full=is_due),
                attempts=store.options.commit_max_retries + 1 if awaited else 1,
                backoff=store.commit_backoff,
            )
    except ConflictError as error:
        logger.log(
            logging.WARNING if awaited else logging.INFO, "compaction abandoned: table=%s reason=%s", store.name, error
        )
    except Exception:
        logger.warning("compaction failed, the rows are committed: table=%s", store.name, exc_info=True)


def _is_due(store: TableStore) -> bool:
    """Whether as many commits as ``full-compaction.delta-commits`` follow the last compaction with a changelog.

    Those that have expired count: nothing says whether they were compacted.
    """
    left = commits_until_full(store.options) or 1
    oldest = FIRST_SNAPSHOT_ID
    for snapshot in store.snapshots.back_from(store.snapshots.latest()):
        if snapshot.commit_kind is CommitKind.COMPACT and snapshot.changelog_manifest_list is not None:
            return False
        left -= snapshot.commit_kind is CommitKind.APPEND
        if left <= 0:
            return True
        oldest = snapshot.id
    return oldest > FIRST_SNAPSHOT_ID
