"""The tag over all tables after a batch that splits no transaction: ``cdc-<lsn>``, by ``engine.cuts``."""

import logging
from collections.abc import Mapping

from engine.cuts.tags import CutRecord, read_cut, tag_cut
from filestore.table_store import TableStore

logger = logging.getLogger("fluvial.cdc")


def tag_batch_cut(
    stores: Mapping[str, TableStore], tag: str, *, commit_user: str, batch_id: int, retained_ms: int | None
) -> bool:
    """Tag the newest snapshot of every table; a replay completes what is missing.

    Args:
        stores: the tables by name.
        tag: its name.
        commit_user: of the query.
        batch_id: the batch that all tables have.
        retained_ms: how long the tags live; None: until they are deleted.

    Returns:
        False when a table has no snapshot yet: then there is no tag.

    Raises:
        FluvialError: see ``tag_cut``.
    """
    found = {name: read_cut(store, tag) for name, store in stores.items()}
    record = next((each for each in found.values() if each is not None), None)
    if record is None:
        newest = {name: store.snapshots.latest_id() for name, store in stores.items()}
        tables = {name: snapshot_id for name, snapshot_id in newest.items() if snapshot_id is not None}
        if not tables or len(tables) < len(newest):
            return False
        some = next(iter(stores.values()))
        record = CutRecord(id=some.names.uuid(), tables=tables, batches={commit_user: batch_id})
    missing = {name: store for name, store in stores.items() if name in record.tables and found[name] is None}
    tag_cut(missing, tag, record, retained_ms=retained_ms)
    logger.info("all tables are tagged after a transaction of the source: tag=%s batch=%d", tag, batch_id)
    return True
