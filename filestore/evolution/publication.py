"""A new version of a table's schema, published by a compare and swap: several who change it at once all succeed."""

from collections.abc import Callable, Sequence
from typing import Final

from filestore.evolution.schema_change import SchemaChange, apply_changes
from filestore.scan.row_expiry import check_expiry
from filestore.schema.merge_engine import check_merging
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError

_ATTEMPTS: Final = 10


def publish_changes(store: TableStore, decide: Callable[[TableSchema], Sequence[SchemaChange]]) -> TableSchema:
    """Publish the next version of a schema; one small file, all changes or none.

    Args:
        store: opened; whatever the version that it knows, the newest one is changed.
        decide: the changes of the newest version; asked again when somebody else was faster.

    Returns:
        the version in force: the newest one when there was nothing to change.

    Raises:
        InvalidInputError: the table is gone, or a change is refused; nothing has changed.
        ConflictError: others altered the table again and again: try again.
        OutcomeUnknownError: the version may be there.
    """
    for _ in range(_ATTEMPTS):
        ids = store.schemas.ids()
        if not ids:
            raise InvalidInputError(f"table is gone: table={store.name} path={store.paths.root}")
        newest = store.schemas.read(ids[-1])  # as stored: without what is in force for one object only
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
            store.schemas.create(after)
        except ConflictError:
            continue  # decide anew on what the other one made
        except OutcomeUnknownError:
            if store.schemas.latest() != after:
                raise
        return after
    raise ConflictError(f"others changed the schema again and again: table={store.name} attempts={_ATTEMPTS}")
