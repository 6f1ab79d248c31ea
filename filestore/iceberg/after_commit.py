"""What follows a change of a table with Iceberg metadata. pyiceberg is imported here, once it is needed."""

import logging

from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.iceberg")


def publish_after_commit(store: TableStore, snapshot: Snapshot) -> None:
    """Bring the Iceberg metadata up to the newest snapshot of the branch.

    The commit is done: whatever fails here is logged, shown by ``doctor``, and made up for by the next commit.
    """
    _publish(store, f"snapshot={snapshot.id}")


def publish_refs(store: TableStore) -> None:
    """Bring the Iceberg metadata up to tags and branches, or back to a snapshot; see ``publish_after_commit``."""
    _publish(store, "change='tags, branches or a rollback'")


def _publish(store: TableStore, change: str) -> None:
    from filestore.iceberg.places import publishing_store

    try:
        main = publishing_store(store)
        if main is None:
            return
        from filestore.iceberg.publication import publish_iceberg

        publish_iceberg(main)
    except ImportError as error:
        logger.warning(
            "Iceberg metadata needs pyiceberg: table=%s %s error=%s fix='pip install fluvial[iceberg]'",
            store.name,
            change,
            error,
        )
    except (FluvialError, OSError) as error:
        logger.warning("Iceberg metadata is behind: table=%s %s error=%s", store.name, change, error)
    except Exception:
        logger.exception("Iceberg metadata is behind: table=%s %s", store.name, change)
