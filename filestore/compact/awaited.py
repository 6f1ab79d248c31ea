"""Compactions without which readers do not get what was committed: the writer of the rows does them.

With deletion vectors rows of level 0 are not read.
"""

import logging
from collections.abc import Callable

from filestore.compact.compactor import compact_buckets
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.scan.live_files import BucketKey
from filestore.table_store import TableStore
from lsm.errors import ConflictError

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


def compact_written(store: TableStore, *, keep: Callable[[BucketKey], bool] = lambda _: True) -> None:
    """Compact after a commit what is worth it among some buckets. Never raises: the rows are in the table.

    A caller who got an error would write them again. What fails is done by the next compaction.
    """
    try:
        compact_buckets(store, keep=keep)
    except ConflictError as error:
        logger.info("compaction abandoned: table=%s reason=%s", store.name, error)
    except Exception:
        logger.warning("compaction failed, the rows are committed: table=%s", store.name, exc_info=True)
