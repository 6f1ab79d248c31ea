"""Publishes new schema versions by compare-and-swap, so that concurrent changes all succeed."""

from collections.abc import Callable, Sequence
from typing import Final

from filestore.evolution.schema_change import SchemaChange, apply_changes
from filestore.scan.row_expiry import check_expiry
from filestore.schema.merge_engine import check_merging
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError
from lsm.retry import LostRaceError, retrying

_ATTEMPTS: Final = 10


def publish_changes(store: TableStore, decide: Callable[[TableSchema], Sequence[SchemaChange]]) -> TableSchema:
    """Publish the next version of a schema atomically.

    Args:
        store: the table; its newest schema is changed, whatever version it was opened with.
        decide: returns the changes of the newest version; called again after a conflict.

    Returns:
        the published version, or the newest one if there was nothing to change.

    Raises:
        InvalidInputError: the table does not exist, or a change is refused; nothing has changed.
        ConflictError: too many concurrent schema changes: try again.
        OutcomeUnknownError: the version may have been published.
    """
    return retrying(lambda: _publish(store, decide), attempts=_ATTEMPTS, on=LostRaceError)


def _publish(store: TableStore, decide: Callable[[TableSchema], Sequence[SchemaChange]]) -> TableSchema:
    ids = store.schemas.ids()
    if not ids:
        raise InvalidInputError(f"table does not exist: table={store.name} path={store.paths.root}")
    newest = store.schemas.read(ids[-1])  # as stored: without dynamic options of this instance
    changes = decide(newest)
    if not changes:
        return newest
    after = apply_changes(
        newest,
        changes,
        has_rows=store.snapshots.latest_id() is not None,
        history=[store.schema_of(each) for each in ids[:-1]],
        time_ms=store.clock.now_ms(),
    )
    if after is newest:
        return newest
    check_merging(after, after.table_options)
    check_expiry(after, after.table_options)
    try:
        store.schemas.create(after, after=newest)
    except ConflictError as error:
        raise LostRaceError(f"lost too many schema change races: table={store.name} attempts={_ATTEMPTS}") from error
    except OutcomeUnknownError:
        if store.schemas.latest() != after:
            raise
    return after
