"""Tags: snapshots with a name, which stay until the tag is deleted.

A tag is a copy of its snapshot's file; with a retention it also says when it was made and how long it lives. Making one
copies no data, deleting one deletes what only it used. Source: Paimon Tag, TagManager, TagTimeExpire.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from filestore.layout.paths import SAVEPOINT_PREFIX, TAG_PREFIX, TAG_SUCCESS_DIRECTORY
from filestore.refs.file_references import FileSize
from filestore.refs.live_references import LiveReference, ReferenceKind, branch_names, on_branch
from filestore.refs.savepoint_files import is_savepoint_tag
from filestore.refs.unused_files import delete_files, delete_unreferenced, unused_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

logger = logging.getLogger("fluvial.tags")

_CREATED: Final = "tagCreateTime"  # [year, month, day, hour, minute, second, nanosecond] of the local wall clock
_RETAINED: Final = "tagTimeRetained"  # seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A named snapshot."""

    name: str
    snapshot: Snapshot
    created_ms: int | None  # local wall clock as if it were UTC; None: only the age of the file is known
    retained_ms: int | None  # None: until it is deleted


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
    """One tag. Raises: InvalidInputError naming the tags there are."""
    found = _find(store, name)
    if found is None:
        raise InvalidInputError(f"no such tag: table={store.name} tag={name} tags={store.snapshots.tag_names()}")
    return found


def previous_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest earlier snapshot; None: there is none. Raises: InvalidInputError, as ``read_tag``."""
    own = store.snapshots.tag(name)
    found = ((each, store.snapshots.find_tag(each)) for each in store.snapshots.tag_names())
    earlier = [(snapshot.id, each) for each, snapshot in found if snapshot is not None and snapshot.id < own.id]
    return max(earlier)[1] if earlier else None


def create_tag(
    store: TableStore,
    name: str,
    *,
    snapshot_id: int | None = None,
    retained_ms: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Tag:
    """Give a snapshot a name.

    Args:
        store: opened on the branch that gets the tag.
        name: not blank, and not a number, because that would be a snapshot id.
        snapshot_id: None is the newest.
        retained_ms: how long it lives; None: ``tag.default-time-retained``, else until it is deleted.
        notes: more keys of the tag's file, which other engines skip.

    Raises:
        InvalidInputError: a name that no tag can have or that is taken, or no such snapshot.
        ConflictError: the snapshot expired at this moment; there is no tag.
    """
    check_tag_name(name)
    _check_not_reserved(name)
    tag, body = _new_tag(store, name, snapshot_id, retained_ms)
    if notes:
        body = orjson.dumps({**orjson.loads(body), **notes}, option=orjson.OPT_INDENT_2)
    path = store.paths.tag(name)
    if not store.io.create_exclusive(path, body):
        raise InvalidInputError(
            f"tag exists already: table={store.name} tag={name} snapshot={read_tag(store, name).snapshot.id} "
            "fix=choose another name, or replace it"
        )
    _check_still_there(store, tag, undo=lambda: store.io.delete(path))
    _leave_success_file(store, name)
    return tag


def hold_snapshot(store: TableStore, name: str, snapshot_id: int) -> Tag:
    """Give a snapshot a name that no retention removes; one that it has already is fine. See ``create_tag``."""
    there = _find(store, name)
    if there is None:
        tag, _ = _new_tag(store, name, snapshot_id, None)
        tag, path = replace(tag, created_ms=None, retained_ms=None), store.paths.tag(name)
        if store.io.create_exclusive(path, store.io.read_bytes(store.paths.snapshot(snapshot_id))):
            _check_still_there(store, tag, undo=lambda: store.io.delete(path))
            return tag
        there = read_tag(store, name)
    if there.snapshot.id != snapshot_id:
        raise InvalidInputError(
            f"tag exists already: table={store.name} tag={name} snapshot={there.snapshot.id} wanted={snapshot_id} "
            "fix=delete that tag first"
        )
    return there


def replace_tag(
    store: TableStore, name: str, *, snapshot_id: int | None = None, retained_ms: int | None = None
) -> DeletedTag:
    """Give a name to another snapshot, and delete what only the old one used; see ``create_tag``.

    Returns:
        The old tag.
    """
    old, path = read_tag(store, name), store.paths.tag(name)
    check_not_of_savepoint(store, name)
    check_no_branch(store, old.name, old.snapshot)
    old_body = store.io.read_bytes(path)
    tag, body = _new_tag(store, name, snapshot_id, retained_ms)
    store.io.replace(path, body)
    _check_still_there(store, tag, undo=lambda: store.io.replace(path, old_body))
    _leave_success_file(store, name)
    unused = unused_files(store, old.snapshot, goes=_root_of(store, old), source=path)
    delete_files(store, unused)
    return DeletedTag(tag=old, data=unused.data, metadata=unused.metadata)


def rename_tag(store: TableStore, name: str, target: str) -> Tag:
    """Give a tag another name; for a moment it has both.

    Raises:
        InvalidInputError: there is no such tag, or the other name cannot be one or is taken.
    """
    check_tag_name(target)
    _check_not_reserved(target)
    old = read_tag(store, name)
    check_not_of_savepoint(store, name)
    check_no_branch(store, old.name, old.snapshot)
    if not store.io.create_exclusive(store.paths.tag(target), store.io.read_bytes(store.paths.tag(name))):
        raise InvalidInputError(f"tag exists already: table={store.name} tag={target} fix=choose another name")
    store.io.delete(store.paths.tag(name))
    return replace(old, name=target)


def delete_tag(store: TableStore, name: str, *, dry_run: bool = False) -> DeletedTag:
    """Delete a tag and the files that nothing else uses.

    The tag goes first: when this is interrupted, what is left over is found by the search for orphans.

    Raises:
        InvalidInputError: there is no such tag, a branch was made from it, or it belongs to a savepoint.
        CorruptDataError: another root refers to files that are missing, so what it uses is not known; nothing is gone.
    """
    tag = read_tag(store, name)
    check_not_of_savepoint(store, name)
    check_no_branch(store, tag.name, tag.snapshot)
    path = store.paths.tag(name)
    unused = delete_unreferenced(
        store,
        tag.snapshot,
        goes=_root_of(store, tag),
        source=path,
        remove=lambda: _remove(store, name),
        dry_run=dry_run,
    )
    return DeletedTag(tag=tag, data=unused.data, metadata=unused.metadata)


def expired_tags(store: TableStore, *, older_than_ms: int | None = None) -> list[Tag]:
    """The tags that have outlived their retention, by name; not those that a branch was made from, or a savepoint's.

    Args:
        store: opened on the branch.
        older_than_ms: epoch milliseconds; those made before this time too, whatever their retention.
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
        is_over = tag.retained_ms is not None and created_ms + tag.retained_ms < now_ms
        is_over = is_over or (older_than_ms is not None and created_ms - zone_ms < older_than_ms)
        if (
            is_over
            and branch_made_from(store, tag.name, tag.snapshot) is None
            and not is_savepoint_tag(store, tag.name)
        ):
            found.append(tag)
    return found


def check_tag_name(name: str) -> None:
    """Refuse what cannot name a tag. Raises: InvalidInputError."""
    if name.strip().isdigit():
        raise InvalidInputError(
            f"a tag cannot be named by a number, that is a snapshot id: tag={name!r} fix=add a word"
        )
    is_file_name = name.strip() and name == name.strip() and "/" not in name and name.isprintable()
    if not is_file_name or name.startswith(".") or f"{TAG_PREFIX}{name}" == TAG_SUCCESS_DIRECTORY:
        raise InvalidInputError(f"not a name of a tag: tag={name!r} fix=use a name that a file can have")


def check_not_of_savepoint(store: TableStore, name: str) -> None:
    """Refuse to touch the tag by which other engines know of a savepoint. Raises: InvalidInputError."""
    if is_savepoint_tag(store, name):
        raise InvalidInputError(
            f"the tag belongs to a savepoint, which other engines know by it only: table={store.name} tag={name} "
            "fix=delete the savepoint"
        )


def check_no_branch(store: TableStore, name: str, snapshot: Snapshot) -> None:
    """Refuse to touch a tag from which a branch was made. Raises: InvalidInputError."""
    branch = branch_made_from(store, name, snapshot)
    if branch is not None:
        raise InvalidInputError(
            f"a branch was made from this tag, and expiry by other engines looks at the tag only: "
            f"table={store.name} tag={name} branch={branch} fix=delete the branch first"
        )


def is_tag_reference(root: LiveReference, branch: str, name: str, snapshot: Snapshot) -> bool:
    """Whether a root is this tag; one that was replaced has the name, but not the snapshot."""
    return root.kind is ReferenceKind.TAG and (root.branch, root.name) == (branch, name) and root.snapshot == snapshot


def _leave_success_file(store: TableStore, name: str) -> None:
    """For jobs that wait for a tag, as Paimon leaves it. A listing of tags passes over its directory."""
    if store.options.tag_create_success_file:
        now_ms = store.clock.now_ms()
        body = orjson.dumps({"creationTime": now_ms, "modificationTime": now_ms})
        store.io.replace(store.paths.tag_success_file(name), body)


def _remove(store: TableStore, name: str) -> None:
    store.io.delete(store.paths.tag(name))
    if store.options.tag_create_success_file:
        store.io.delete(store.paths.tag_success_file(name))


def _find(store: TableStore, name: str) -> Tag | None:
    path = store.paths.tag(name)
    try:
        body = store.io.read_bytes(path)
    except FileNotFoundError:
        return None
    snapshot = Snapshot.from_json(body, source=path)
    try:
        more: dict[str, Any] = orjson.loads(body)
        created_ms, retained_ms = _moment_ms(more.get(_CREATED)), _seconds_ms(more.get(_RETAINED))
    except (TypeError, ValueError) as error:
        raise CorruptDataError(f"tag cannot be decoded: file={path} error={error}") from error
    return Tag(name=name, snapshot=snapshot, created_ms=created_ms, retained_ms=retained_ms)


def _new_tag(store: TableStore, name: str, snapshot_id: int | None, retained_ms: int | None) -> tuple[Tag, bytes]:
    wanted = store.snapshots.latest_id() if snapshot_id is None else snapshot_id
    try:
        body = store.io.read_bytes(store.paths.snapshot(wanted or 0))
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"no such snapshot to tag: table={store.name} snapshot={wanted} "
            f"earliest={store.snapshots.earliest_id()} latest={store.snapshots.latest_id()}"
        ) from error
    lives_ms = store.options.tag_default_time_retained_ms if retained_ms is None else retained_ms
    created_ms = None if lives_ms is None else store.clock.local_ms()
    snapshot = Snapshot.from_json(body, source=store.paths.snapshot(wanted or 0))
    if lives_ms is not None and created_ms is not None:
        more = {_CREATED: _parts(created_ms), _RETAINED: lives_ms / 1000}
        body = orjson.dumps({**orjson.loads(body), **more}, option=orjson.OPT_INDENT_2)
    return Tag(name=name, snapshot=snapshot, created_ms=created_ms, retained_ms=lives_ms), body


def _check_still_there(store: TableStore, tag: Tag, *, undo: Callable[[], None]) -> None:
    """Whether the tag was made before an expiry claimed its snapshot; else it is undone."""
    snapshots = store.snapshots
    if snapshots.claimed_up_to() <= tag.snapshot.id and snapshots.exists(tag.snapshot.id):
        return
    undo()
    raise ConflictError(
        f"the snapshot expired while it was tagged: table={store.name} tag={tag.name} snapshot={tag.snapshot.id} "
        f"earliest={snapshots.earliest_id()} fix=tag a newer one"
    )


def branch_made_from(store: TableStore, name: str, snapshot: Snapshot) -> str | None:
    """A branch that was made from a tag of main; such a branch begins with a copy of it."""
    if store.paths.branch != store.main_branch:
        return None
    for branch in branch_names(store):
        if branch != store.main_branch:
            theirs = on_branch(store, branch).snapshots.find_tag(name)
            if theirs is not None and theirs.id == snapshot.id:
                return branch
    return None


def _check_not_reserved(name: str) -> None:
    if re.fullmatch(rf"{SAVEPOINT_PREFIX}\d+", name):
        raise InvalidInputError(
            f"the name is that of a savepoint's tag: tag={name} fix=choose another name, or create a savepoint"
        )


def _root_of(store: TableStore, tag: Tag) -> Callable[[LiveReference], bool]:
    return lambda root: is_tag_reference(root, store.paths.branch, tag.name, tag.snapshot)


def _parts(created_ms: int) -> list[int]:
    seconds, fraction = divmod(created_ms, 1000)
    moment = _EPOCH + timedelta(seconds=seconds)
    parts = [moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second]
    return [*parts, fraction * 1_000_000]


def _moment_ms(parts: Sequence[int] | None) -> int | None:
    """Trailing zeros of seconds and nanoseconds may be missing."""
    if parts is None:
        return None
    year, month, day, hour, minute, second, nanos = [*parts, 0, 0, 0, 0][:7]
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return round((moment - _EPOCH).total_seconds()) * 1000 + nanos // 1_000_000


def _seconds_ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(float(seconds) * 1000)
