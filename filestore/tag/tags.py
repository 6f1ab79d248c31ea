"""Tags: named snapshots, which are kept until the tag is deleted.

A tag is a copy of its snapshot's file; with a retention it also stores its creation time and lifetime. Creating one
copies no data, deleting one deletes the files that only it used. Source: Paimon Tag, TagManager,
TagTimeExpire.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from filestore.layout.branch_names import is_merge_tag
from filestore.layout.branch_state import main_branch
from filestore.layout.version_names import check_tag_name
from filestore.refs.branch_origins import branch_made_from, record_origin
from filestore.refs.file_references import FileSize
from filestore.refs.keeping import with_pending_tag
from filestore.refs.live_references import LiveReference, ReferenceKind
from filestore.refs.pending_tags import check_gone, check_open, leaving, remove_foreign, remove_leftover
from filestore.refs.savepoint_files import is_savepoint_tag
from filestore.refs.unused_files import delete_unreferenced, delete_unused_of
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, OutcomeUnknownError
from lsm.nearest_names import names_text

logger = logging.getLogger("fluvial.tags")

_CREATED: Final = "tagCreateTime"  # [year, month, day, hour, minute, second, nanosecond] of the local wall clock
_RETAINED: Final = "tagTimeRetained"  # seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A named snapshot."""

    name: str
    snapshot: Snapshot
    created_ms: int | None  # local wall clock as if it were UTC; None: use the file's modification time
    retained_ms: int | None  # None: kept until it is deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTag:
    """A deleted tag, and the files that only it used."""

    tag: Tag
    data: tuple[FileSize, ...] = ()
    metadata: frozenset[str] = frozenset()


def list_tags(store: TableStore) -> list[Tag]:
    """The tags of the table's branch, by name. Raises: CorruptDataError for one that cannot be read."""
    found = (_find(store, name) for name in store.snapshots.tag_names())
    return [tag for tag in found if tag is not None]


def read_tag(store: TableStore, name: str) -> Tag:
    """One tag. Raises: InvalidInputError naming the existing tags."""
    found = _find(store, name)
    if found is None:
        raise _no_tag(store, name)
    return found


def create_tag(
    store: TableStore,
    name: str,
    *,
    snapshot_id: int | None = None,
    retained_ms: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Tag:
    """Tag a snapshot.

    Args:
        store: the table, on the branch of the tag.
        name: see ``check_tag_name``.
        snapshot_id: None is the newest.
        retained_ms: lifetime; None: ``tag.default-time-retained``, else until it is deleted.
        notes: additional keys of the tag file, ignored by other engines.

    Raises:
        InvalidInputError: the name is invalid or taken, or there is no such snapshot.
        ConflictError: the snapshot expired concurrently, or main is being replaced; there is no tag.
        OutcomeUnknownError: the table or branch was dropped, renamed or replaced meanwhile: look there.
    """
    check_tag_name(name)
    tag, body = _new_tag(store, name, snapshot_id, retained_ms)
    if notes:
        body = orjson.dumps({**orjson.loads(body), **notes}, option=orjson.OPT_INDENT_2)
    path = store.paths.tag(name)

    def create(store: TableStore) -> None:
        while not store.io.create_exclusive(path, body):
            if remove_foreign(store, name):
                continue
            raise InvalidInputError(
                f"tag exists already: table={store.name} tag={name} snapshot={read_tag(store, name).snapshot.id} "
                "fix=choose another name, or replace it"
            )

    record_origin(store)
    with_pending_tag(store, name, tag.snapshot, create, undo=lambda store: store.io.delete(path))
    _write_success_file(store, name)
    store.refs_changed()
    return tag


def hold_snapshot(store: TableStore, name: str, snapshot_id: int) -> Tag:
    """Tag a snapshot without expiry, unless it has this tag already. See ``create_tag``."""
    existing = None if remove_foreign(store, name) else _find(store, name)
    if existing is None:
        body, path = _snapshot_file(store, snapshot_id), store.paths.tag(name)
        snapshot, created = Snapshot.from_json(body, source=store.paths.snapshot(snapshot_id)), []

        def create(store: TableStore) -> None:
            created.append(store.io.create_exclusive(path, body))

        record_origin(store)
        with_pending_tag(store, name, snapshot, create, undo=lambda store: store.io.delete(path))
        if created == [True]:
            return Tag(name=name, snapshot=snapshot, created_ms=None, retained_ms=None)
        existing = read_tag(store, name)
    if existing.snapshot.id != snapshot_id:
        raise InvalidInputError(
            f"tag exists already: table={store.name} tag={name} snapshot={existing.snapshot.id} wanted={snapshot_id} "
            "fix=delete that tag first"
        )
    return existing


def replace_tag(store: TableStore, name: str, *, snapshot_id: int | None = None, retained_ms: int | None = None) -> Tag:
    """Move a tag to another snapshot, and delete the files that only the old one used; see ``create_tag``.

    A tag that another process deletes or renames meanwhile is refused, or that process learns of this one.

    Returns:
        The tag as it is now.
    """
    old, path = read_tag(store, name), store.paths.tag(name)
    check_not_of_savepoint(store, name)
    check_not_of_merge(store, name)
    check_no_branch(store, old.name, old.snapshot)
    record_origin(store)
    old_body = b""
    was_removed = store.snapshots.removed.has(old.snapshot.identity)  # as the tag of a fork
    tag, body = _new_tag(store, name, snapshot_id, retained_ms)

    def move(store: TableStore) -> None:
        nonlocal old, old_body
        old, old_body = read_tag(store, name), _tag_file(store, name)  # behind the pending tag: see ``pending_tags``
        check_no_branch(store, old.name, old.snapshot)
        store.io.replace(path, body)

    def undo(store: TableStore) -> None:
        if _find(store, name) is not None:  # else it was deleted meanwhile
            store.io.replace(path, old_body)
            if store.snapshots.removed.has(old.snapshot.identity) and not was_removed:
                store.io.delete(path)  # a rollback took the old one with its files
        if not store.is_as_opened():  # what drops a table or a branch deletes its schemas before its tags
            remove_leftover(store, path)

    with_pending_tag(store, name, tag.snapshot, move, undo=undo, replaces=True)
    _write_success_file(store, name)
    delete_unused_of(store, old.snapshot, source=path)
    store.refs_changed()
    return tag


def rename_tag(store: TableStore, name: str, target: str) -> Tag:
    """Rename a tag; not atomic, for a moment both names exist.

    Raises:
        InvalidInputError: there is no such tag, or the new name is invalid or taken.
        ConflictError: main is being replaced, or a rollback removes the tag; nothing was renamed.
        OutcomeUnknownError: the table or branch was dropped, renamed or replaced meanwhile: look there. Or another
            process replaces the tag, whose old name may be there again.
    """
    check_tag_name(target)
    old = read_tag(store, name)
    check_not_of_savepoint(store, name)
    check_not_of_merge(store, name)
    check_no_branch(store, old.name, old.snapshot)
    check_open(store, name, "renamed")
    record_origin(store)
    path = store.paths.tag(target)
    was_removed = store.snapshots.removed.has(old.snapshot.identity)  # as the tag of a fork
    with leaving(store, name, old.snapshot):
        check_no_branch(store, old.name, old.snapshot)
        if not store.io.create_exclusive(path, _tag_file(store, name)):
            raise InvalidInputError(f"tag exists already: table={store.name} tag={target} fix=choose another name")
        if store.snapshots.removed.has(old.snapshot.identity) and not was_removed:
            store.io.delete(path)
            raise ConflictError(
                f"a rollback removes the tag that was renamed: table={store.name} tag={name} "
                f"snapshot={old.snapshot.id} fix='look whether it is there; if it is, do it again'"
            )
        store.io.delete(store.paths.tag(name))
        try:
            check_gone(store, name, "renamed")
        except OutcomeUnknownError:
            if not store.is_as_opened():
                remove_leftover(store, path)
            raise
    store.refs_changed()
    return replace(old, name=target)


def delete_tag(store: TableStore, name: str, *, dry_run: bool = False) -> DeletedTag:
    """Delete a tag, and the files that nothing else uses.

    The tag is deleted first: after an interruption, the remaining files are found as orphans.

    Raises:
        InvalidInputError: there is no such tag, a branch was created from it, or it belongs to a savepoint or a merge.
        ConflictError: main is being replaced; nothing is deleted.
        OutcomeUnknownError: the table or branch was dropped, renamed or replaced meanwhile: look there. Or another
            process replaces the tag, which may be there again.
        CorruptDataError: another live reference lacks files, so the files it uses are unknown; nothing is deleted.
    """
    check_not_of_merge(store, name)
    return release_tag(store, name, dry_run=dry_run)


def release_tag(store: TableStore, name: str, *, body: bytes | None = None, dry_run: bool = False) -> DeletedTag:
    """Delete a tag, be it one that kept what was merged: see ``delete_tag``. ``body``: of its file; None: any."""
    tag = read_tag(store, name)
    check_not_of_savepoint(store, name)
    check_no_branch(store, tag.name, tag.snapshot)
    if not dry_run:
        record_origin(store)
    path = store.paths.tag(name)

    def remove(store: TableStore) -> None:
        check_no_branch(store, tag.name, tag.snapshot)
        if body is None:
            store.delete_as_opened(path)
        elif not store.delete_own(path, body):
            raise InvalidInputError(f"the tag was deleted or moved by another process: table={store.name} tag={name}")

    unused = delete_unreferenced(
        store, name, tag.snapshot, is_deleted=_is_reference_of(store, tag), source=path, remove=remove, dry_run=dry_run
    )
    if not dry_run:
        if store.options.tag_create_success_file:
            store.io.delete(store.paths.tag_success_file(name))
        store.refs_changed()
    return DeletedTag(tag=tag, data=unused.data, metadata=unused.metadata)


def expired_tags(store: TableStore, *, older_than_ms: int | None = None) -> list[Tag]:
    """The expired tags, by name; without tags of branches and savepoints.

    Args:
        store: the table.
        older_than_ms: epoch milliseconds; also return tags created before, whatever their retention.
    """
    now_ms = store.clock.local_ms()
    zone_ms = now_ms - store.clock.now_ms()
    found = []
    for tag in list_tags(store):
        created_ms = tag.created_ms
        if created_ms is None:
            try:
                created_ms = store.io.modified_ms(store.paths.tag(tag.name)) + zone_ms
            except FileNotFoundError:
                continue
        is_expired = tag.retained_ms is not None and created_ms + tag.retained_ms < now_ms
        is_expired = is_expired or (older_than_ms is not None and created_ms - zone_ms < older_than_ms)
        if (
            is_expired
            and branch_made_from(store, tag.name, tag.snapshot) is None
            and not is_savepoint_tag(store, tag.name)
            and not keeps_merge(store, tag.name)
        ):
            found.append(tag)
    return found


def expire_tags(store: TableStore, *, older_than_ms: int | None = None, dry_run: bool = False) -> list[DeletedTag]:
    """Delete the expired tags, see ``expired_tags``, but for those that others delete, rename or move meanwhile."""
    gone = []
    for tag in expired_tags(store, older_than_ms=older_than_ms):
        with suppress(InvalidInputError):
            body = _tag_file(store, tag.name)  # before the look: what it has then is older or the same
            if _find(store, tag.name) == tag:
                gone.append(release_tag(store, tag.name, body=body, dry_run=dry_run))
    return gone


def check_not_of_savepoint(store: TableStore, name: str) -> None:
    """Raises: InvalidInputError for the tag of a savepoint, which other engines need to keep its files."""
    if is_savepoint_tag(store, name):
        raise InvalidInputError(
            f"the tag belongs to a savepoint, which other engines know by it only: table={store.name} tag={name} "
            "fix=delete the savepoint"
        )


def keeps_merge(store: TableStore, name: str) -> bool:
    """Whether a tag of a branch keeps what was merged from it last; main has been merged into nothing."""
    return is_merge_tag(name) and main_branch(store.io, store.paths.root) != store.paths.branch


def check_not_of_merge(store: TableStore, name: str) -> None:
    """Raises: InvalidInputError for the tag without which the next merge would not know what both sides changed."""
    if keeps_merge(store, name):
        raise InvalidInputError(
            f"the tag keeps what was merged last from this branch: table={store.name} branch={store.paths.branch} "
            f"tag={name} fix='merge again or delete the branch, which lets go of it'"
        )


def check_no_branch(store: TableStore, name: str, snapshot: Snapshot) -> None:
    """Raises: InvalidInputError for a tag from which a branch was created."""
    branch = branch_made_from(store, name, snapshot)
    if branch is not None:
        raise InvalidInputError(
            f"a branch was created from this tag, and expiry by other engines respects only the tag: "
            f"table={store.name} tag={name} branch={branch} fix=delete the branch first"
        )


def is_tag_reference(reference: LiveReference, branch: str, name: str, snapshot: Snapshot) -> bool:
    """Whether a reference is this tag; a moved tag has the same name, but another snapshot."""
    is_named = (reference.branch, reference.name) == (branch, name)
    return reference.kind is ReferenceKind.TAG and is_named and reference.snapshot == snapshot


def _write_success_file(store: TableStore, name: str) -> None:
    """Write the success file, if enabled, for jobs that wait for a tag. Source: Paimon SuccessFileTagCallback."""
    if store.options.tag_create_success_file:
        now_ms = store.clock.now_ms()
        body = orjson.dumps({"creationTime": now_ms, "modificationTime": now_ms})
        store.io.replace(store.paths.tag_success_file(name), body)


def _find(store: TableStore, name: str) -> Tag | None:
    path = store.paths.tag(name)
    try:
        body = store.io.read_bytes(path)
    except FileNotFoundError:
        return None
    snapshot = store.snapshots.checked(Snapshot.from_json(body, source=path))
    try:
        more: dict[str, Any] = orjson.loads(body)
        created_ms, retained_ms = _moment_ms(more.get(_CREATED)), _seconds_ms(more.get(_RETAINED))
    except (TypeError, ValueError) as error:
        raise CorruptDataError(f"tag cannot be decoded: file={path} error={error}") from error
    return Tag(name=name, snapshot=snapshot, created_ms=created_ms, retained_ms=retained_ms)


def _new_tag(store: TableStore, name: str, snapshot_id: int | None, retained_ms: int | None) -> tuple[Tag, bytes]:
    wanted = store.snapshots.latest_id() if snapshot_id is None else snapshot_id
    body = _snapshot_file(store, wanted or 0)
    if retained_ms is not None and retained_ms <= 0:
        raise InvalidInputError(
            f"a tag lives for some time: table={store.name} tag={name} time_retained={retained_ms} ms "
            "fix=give it more, or leave it out"
        )
    lifetime_ms = store.options.tag_default_time_retained_ms if retained_ms is None else retained_ms
    created_ms = None if lifetime_ms is None else store.clock.local_ms()
    snapshot = Snapshot.from_json(body, source=store.paths.snapshot(wanted or 0))
    if lifetime_ms is not None and created_ms is not None:
        more = {_CREATED: _parts(created_ms), _RETAINED: lifetime_ms / 1000}
        body = orjson.dumps({**orjson.loads(body), **more}, option=orjson.OPT_INDENT_2)
    return Tag(name=name, snapshot=snapshot, created_ms=created_ms, retained_ms=lifetime_ms), body


def _tag_file(store: TableStore, name: str) -> bytes:
    try:
        return store.io.read_bytes(store.paths.tag(name))
    except FileNotFoundError as error:
        raise _no_tag(store, name) from error


def _no_tag(store: TableStore, name: str) -> InvalidInputError:
    known = names_text("tags", name, store.snapshots.tag_names())
    return InvalidInputError(f"no such tag: table={store.name} tag={name} {known}")


def _snapshot_file(store: TableStore, snapshot_id: int) -> bytes:
    try:
        return store.io.read_bytes(store.paths.snapshot(snapshot_id))
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"no such snapshot to tag: table={store.name} snapshot={snapshot_id or None} "
            f"earliest={store.snapshots.earliest_id()} latest={store.snapshots.latest_id()}"
        ) from error


def _is_reference_of(store: TableStore, tag: Tag) -> Callable[[LiveReference], bool]:
    return lambda reference: is_tag_reference(reference, store.paths.branch, tag.name, tag.snapshot)


def _parts(created_ms: int) -> list[int]:
    seconds, fraction = divmod(created_ms, 1000)
    moment = _EPOCH + timedelta(seconds=seconds)
    parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second]
    return [*parts, fraction * 1_000_000]


def _moment_ms(parts: Sequence[int] | None) -> int | None:
    """Milliseconds of a Java date-time array; trailing zeros of seconds and nanoseconds may be missing."""
    if parts is None:
        return None
    year, month, day, hour, minute, second, nanos = [*parts, 0, 0, 0, 0][:7]
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return round((moment - _EPOCH).total_seconds()) * 1000 + nanos // 1_000_000


def _seconds_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(float(seconds) * 1000)
