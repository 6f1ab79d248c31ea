"""Checks whether a published snapshot continues the history that its commit was based on.

Creating ``snapshot-<n>`` exclusively proves only that no file of that name exists at that moment. A process that was
paused before the creation (a closed lid, a migrated machine, a store that hangs) may find the number free again,
because that snapshot expired or a rollback removed it, or may find another table under the name. So a commit checks
again after the creation: the table, the parent snapshot, and, if the parent is missing, the traces of the operation
that removed it. Each operation that ends a history makes itself visible before it deletes anything: expiry by a claim,
rollback by notes, drop by deleting the newest first. So one of the two sides always sees the other. A rollback reads
the history again after its notes and before its first deletion: a snapshot that is created later finds the notes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table_store import TableStore


class Standing(Enum):
    """The state of a created snapshot in the history."""

    PUBLISHED = "published"  # part of the table's history, even if it has expired since
    FORKED = "forked"  # its file is there, but the history that it continues is not
    REMOVED = "removed"  # it was in the table, and was removed: by a rollback, a rename or a drop


class Parent(Enum):
    """The state of the snapshot id before a created snapshot."""

    SAME = "same"  # the snapshot that it names
    LEAVING = "leaving"  # the snapshot that it names, and a rollback has noted that it removes it
    OTHER = "other"  # another one
    MISSING = "missing"  # none; always so for the first id


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The facts read after a snapshot was created, in this order."""

    is_noted: bool = False  # a rollback or a repair has noted that it removes it
    is_same_table: bool  # the schema that its writer opened is still there
    parent: Parent
    is_followed: bool = False  # the next snapshot continues it
    is_there: bool  # its own file, with its contents
    is_first_kept: bool = False  # an expiry named it as the first that stays
    has_older: bool = False  # snapshots with lower ids
    has_newer: bool = False  # snapshots with higher ids


def standing(found: Surroundings) -> Standing:
    """Decide; see ``Standing``."""
    if not found.is_same_table:
        return Standing.FORKED if found.is_there else Standing.REMOVED
    if found.is_noted:
        return Standing.REMOVED
    if not found.is_there:
        # snapshots expire oldest first, and a rollback keeps older ones
        return Standing.PUBLISHED if found.has_newer and not found.has_older else Standing.REMOVED
    if found.parent is Parent.SAME or found.is_followed or found.is_first_kept:
        return Standing.PUBLISHED
    if found.parent is Parent.MISSING and not found.has_older and not found.has_newer:
        return Standing.PUBLISHED  # the only one: another engine expired those before it, or it is the first
    return Standing.FORKED


def surroundings(store: TableStore, snapshot: Snapshot, parent: SnapshotRef, *, with_own: bool = False) -> Surroundings:
    """Look around a snapshot that was created.

    The parent decides nearly always; the rest is looked up only without it.

    Args:
        store: table, on its branch.
        snapshot: the created one.
        parent: the snapshot that it follows; EMPTY_TABLE: it is the first.
        with_own: look it up even if its parent is there.
    """
    snapshots, is_same_table = store.snapshots, store.is_as_opened()
    before = snapshots.find(parent.id) if parent.id else None
    kind = Parent.MISSING if before is None else Parent.SAME if before.ref == parent else Parent.OTHER
    if kind is Parent.SAME and snapshots.removed.has(parent.identity):
        kind = Parent.LEAVING
    if is_same_table and kind is Parent.SAME and not with_own:
        return Surroundings(is_same_table=True, parent=kind, is_there=True)
    # Others may go on between two looks. What is newer continues it, or never did: the next one is looked up behind the
    # listing. It is looked up before the own one, because an expiry deletes them in the other order, and so what is
    # older is looked up once more where the own one is gone.
    ids = snapshots.ids()
    following = snapshots.find(snapshot.id + 1)
    is_followed = following is not None and snapshots.leads(following, snapshot)
    is_there = snapshots.find_ref(snapshot.ref) is not None
    if not is_there:
        ids = snapshots.ids()
    return Surroundings(
        is_noted=snapshots.removed.has(snapshot.identity),
        is_same_table=is_same_table,
        parent=kind,
        is_followed=is_followed,
        is_there=is_there,
        is_first_kept=snapshot.ref in snapshots.claims.refs(),
        has_older=any(each < snapshot.id for each in ids),
        has_newer=any(each > snapshot.id for each in ids),
    )


def check_is_same_table(store: TableStore) -> None:
    """Check the table. Raises: InvalidInputError: it was dropped, renamed or created again since it was opened."""
    if not store.is_as_opened():
        raise store.as_opened.gone(store.io, ", nothing was committed")


def remove_strays(store: TableStore, ids: Iterable[int]) -> int:
    """Delete snapshots that writers of a former table of this name put into the table that replaced it.

    Such a writer never acknowledges them, because after the creation it finds another table. A snapshot that is found
    here belongs to the former table: the present table is checked again after the search.

    Args:
        store: the table.
        ids: ids of the snapshots to check.

    Returns:
        The number of deleted snapshots.
    """
    found = [each for each in map(store.snapshots.find, ids) if each is not None and each.table_uuid is not None]
    strays = [each for each in found if each.table_uuid != store.table_uuid]
    if not strays or store.table_uuid is None or not store.is_as_opened():
        return 0
    for each in strays:
        store.delete_snapshot(each)
    return len(strays)
