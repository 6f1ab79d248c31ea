"""The order of tags: that of their snapshots. Source: Paimon TagManager."""

from collections.abc import Iterator

from filestore.table_store import TableStore


def previous_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest earlier snapshot, the last by name of several; None: there is none.

    Raises: InvalidInputError naming the existing tags.
    """
    own_id = store.snapshots.tag(name).id
    return max((each for each in _places(store) if each[0] < own_id), default=(0, None))[1]


def next_tag(store: TableStore, name: str) -> str | None:
    """The tag of the nearest later snapshot, the first by name of several; None, raises: as ``previous_tag``."""
    own_id = store.snapshots.tag(name).id
    return min((each for each in _places(store) if each[0] > own_id), default=(0, None))[1]


def _places(store: TableStore) -> Iterator[tuple[int, str]]:
    return ((snapshot.id, name) for name, snapshot in store.snapshots.tagged())
