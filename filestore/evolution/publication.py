"""Publishes new schema versions by compare-and-swap, so that concurrent changes all succeed."""

from collections.abc import Callable, Sequence
from typing import Final

from filestore.evolution.schema_change import SchemaChange, apply_changes
from filestore.layout.branch_state import is_hidden
from filestore.layout.paths import MAIN_BRANCH
from filestore.scan.live_files import LiveFiles
from filestore.scan.row_expiry import check_expiry
from filestore.schema.merge_engine import check_merging, has_whole_rows, newest_row_is_whole
from filestore.schema.schema_store import SchemaStore
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


def check_changes(store: TableStore, changes: Sequence[SchemaChange]) -> None:
    """Ask whether ``publish_changes`` would take changes. Raises: InvalidInputError: it would refuse them."""
    _next_version(store, lambda _: changes)


def _publish(store: TableStore, decide: Callable[[TableSchema], Sequence[SchemaChange]]) -> TableSchema:
    newest, after = _next_version(store, decide)
    if after is newest:
        return newest
    try:
        store.schemas.create(after, after=newest)
    except ConflictError as error:
        raise LostRaceError(
            f"lost too many schema change races: table={store.name} attempts={_ATTEMPTS} reason={error}"
        ) from error
    except OutcomeUnknownError:
        if store.schemas.latest() != after:
            raise
    if store.registry is not None:
        store.registry.schema_changed(store, newest, after)
    return after


def _next_version(
    store: TableStore, decide: Callable[[TableSchema], Sequence[SchemaChange]]
) -> tuple[TableSchema, TableSchema]:
    """The newest version of a schema, and the one behind it; the same where nothing changes."""
    ids = store.schemas.ids()
    if not ids:
        raise InvalidInputError(f"table does not exist: table={store.name} path={store.paths.root}")
    newest = store.schemas.read(ids[-1])  # as stored: without dynamic options of this instance
    changes = decide(newest)
    if not changes:
        return newest, newest
    after = apply_changes(
        newest,
        changes,
        has_rows=store.snapshots.latest_id() is not None,
        history=[store.schema_of(each) for each in ids[:-1]],
        time_ms=store.clock.now_ms(),
    )
    if after is not newest:
        check_merging(after, after.table_options)
        check_expiry(after, after.table_options)
        _check_branches(store, newest, after)
        _check_levels(store, newest, after)
    return newest, after


def _check_levels(store: TableStore, before: TableSchema, after: TableSchema) -> None:
    """Raises: InvalidInputError when rows that lie on several levels would be folded otherwise."""
    old, new = before.table_options, after.table_options
    folds_alike = has_whole_rows(old) == has_whole_rows(new) or (newest_row_is_whole(old) and newest_row_is_whole(new))
    if folds_alike or not before.primary_keys:
        return
    live = LiveFiles.latest(store)
    for key in live.buckets():
        levels = {run.level for run in live.levels(key).runs if run.level}
        if len(levels) > 1:
            keys = ("changelog-producer", "force-lookup", "deletion-vectors.enabled")
            now = " ".join(f"{each}={new.texts_by_key().get(each)}" for each in keys)
            raise InvalidInputError(
                "rows above level 0 would count otherwise, as compactions look up the older ones either before this "
                f"change or after it: table={store.name} bucket={key.bucket} levels={sorted(levels)} {now} "
                "fix='compact the table fully first'"
            )


def _check_branches(store: TableStore, before: TableSchema, after: TableSchema) -> None:
    """Raises: InvalidInputError when batch reads would take partitions from a branch that does not exist."""
    old, new = before.table_options.read_branches, after.table_options.read_branches
    for key, name in new.items():
        if name in (MAIN_BRANCH, store.paths.branch, old.get(key)):
            continue
        there = store.paths.with_branch(name)
        if is_hidden(store.io, there) or not SchemaStore(store.io, there).ids():
            raise InvalidInputError(f"no such branch: table={store.name} {key}={name} fix=create the branch first")
