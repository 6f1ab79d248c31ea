"""The operations of Paimon's TagManager as functions of a table, based on ``filestore.tag.tags``.

A tag is a named snapshot.
"""

from collections.abc import Iterator

from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import DeletedTag, Tag, create_tag, delete_tag


def tag_directory(store: TableStore) -> str:
    """Directory of the tags of the table's branch."""
    return store.paths.tag_dir


def tag_path(store: TableStore, name: str) -> str:
    """Path of a tag, existing or not."""
    return store.paths.tag(name)


def commit_tag(store: TableStore, snapshot: Snapshot, name: str) -> Tag:
    """Tag a snapshot. Raises: see ``create_tag``."""
    return create_tag(store, name, snapshot_id=snapshot.id)


def expire_tag(store: TableStore, name: str) -> DeletedTag:
    """Delete a tag, and the files that nothing else uses. Raises: see ``delete_tag``."""
    return delete_tag(store, name)


def tag_exists(store: TableStore, name: str) -> bool:
    """Whether a tag exists."""
    return store.io.exists(store.paths.tag(name))


def tagged_snapshot(store: TableStore, name: str) -> Snapshot:
    """The tagged snapshot. Raises: InvalidInputError naming the existing tags."""
    return store.snapshots.tag(name)


def tagged_snapshots(store: TableStore) -> Iterator[Snapshot]:
    """The tagged snapshots, once per tag, sorted by tag name."""
    found = (store.snapshots.find_tag(name) for name in store.snapshots.tag_names())
    return (each for each in found if each is not None)  # else deleted since the listing


def previous_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest earlier snapshot; None when there is none. Raises: InvalidInputError."""
    own = tagged_snapshot(store, name)
    earlier = [(each.id, tag) for tag, each in _by_name(store) if each.id < own.id]
    return max(earlier)[1] if earlier else None


def next_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest later snapshot; None when there is none. Raises: InvalidInputError."""
    own = tagged_snapshot(store, name)
    later = [(each.id, tag) for tag, each in _by_name(store) if each.id > own.id]
    return min(later)[1] if later else None


def _by_name(store: TableStore) -> Iterator[tuple[str, Snapshot]]:
    for name in store.snapshots.tag_names():
        snapshot = store.snapshots.find_tag(name)
        if snapshot is not None:
            yield name, snapshot
