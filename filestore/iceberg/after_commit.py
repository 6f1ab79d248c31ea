"""What follows a commit of a table with Iceberg metadata. pyiceberg is imported here, once it is needed."""

import logging

from filestore.iceberg.places import publishes
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.iceberg")


def publish_after_commit(store: TableStore, snapshot: Snapshot) -> None:
    """Bring the Iceberg metadata up to the newest snapshot.

    The commit is done: whatever fails here is logged, shown by ``doctor``, and made up for by the next commit.
    """
    try:
        if not publishes(store):
            return
        from filestore.iceberg.publication import publish_iceberg

        publish_iceberg(store)
    except ImportError as error:
        logger.warning(
            "Iceberg metadata needs pyiceberg: table=%s snapshot=%d error=%s fix='pip install fluvial[iceberg]'",
            store.name,
            snapshot.id,
            error,
        )
    except (FluvialError, OSError) as error:
        logger.warning("Iceberg metadata is behind: table=%s snapshot=%d error=%s", store.name, snapshot.id, error)
    except Exception:
        logger.exception("Iceberg metadata is behind: table=%s snapshot=%d", store.name, snapshot.id)
