"""What the seed's ``TagManager`` offers, as functions of a table; ``filestore.tag.tags`` makes and deletes them.

There is no tag of its own kind: a tag is a snapshot under a name. Source: TAG-25, TAG-28 to TAG-36.
"""

from collections.abc import Iterator

from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import DeletedTag, Tag, create_tag, delete_tag


def tag_directory(store: TableStore) -> str:
    """Where the tags of the table's branch are. Source: TAG-28."""
    return store.paths.tag_dir


def tag_path(store: TableStore, name: str) -> str:
    """Where a tag is, or would be. Source: TAG-24, TAG-29."""
    return store.paths.tag(name)


def commit_tag(store: TableStore, snapshot: Snapshot, name: str) -> Tag:
    """Give a snapshot a name, which is stored. Raises: as ``create_tag``. Source: TAG-30."""
    return create_tag(store, name, snapshot_id=snapshot.id)


def expire_tag(store: TableStore, name: str) -> DeletedTag:
    """Take a name away, and the files that nothing else uses. Raises: as ``delete_tag``. Source: TAG-31."""
    return delete_tag(store, name)


def tag_exists(store: TableStore, name: str) -> bool:
    """Whether there is a tag of this name. Source: TAG-32."""
    return store.io.exists(store.paths.tag(name))


def tagged_snapshot(store: TableStore, name: str) -> Snapshot:
    """The snapshot that a tag keeps. Raises: InvalidInputError naming the tags there are. Source: TAG-33."""
    return store.snapshots.tag(name)


def tagged_snapshots(store: TableStore) -> Iterator[Snapshot]:
    """The snapshots that tags keep, each once for each of its tags, by name. Source: TAG-34."""
    found = (store.snapshots.find_tag(name) for name in store.snapshots.tag_names())
    return (each for each in found if each is not None)  # else it was deleted since the listing


def previous_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest earlier commit; None when there is none. Raises: InvalidInputError. Source: TAG-35."""
    own = tagged_snapshot(store, name)
    earlier = [(each.id, tag) for tag, each in _by_name(store) if each.id < own.id]
    return max(earlier)[1] if earlier else None


def next_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest later commit; None when there is none. Raises: InvalidInputError. Source: TAG-36."""
    own = tagged_snapshot(store, name)
    later = [(each.id, tag) for tag, each in _by_name(store) if each.id > own.id]
    return min(later)[1] if later else None


def _by_name(store: TableStore) -> Iterator[tuple[str, Snapshot]]:
    for name in store.snapshots.tag_names():
        snapshot = store.snapshots.find_tag(name)
        if snapshot is not None:
            yield name, snapshot
