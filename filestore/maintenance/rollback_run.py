"""The single rollback that runs on a branch: its owner, whether it is decided, and its notes of what to remove.

``rollback/RUN`` is created exclusively, and deleted at the end. While it exists, no other rollback begins: of two that
delete the same names, each could delete snapshots that were published after the other one.

A rollback is decided between its notes and its first deletion. It writes the notes, and then checks for concurrent
changes; commits, tags and expiries write their files, and then check for notes. So one of the two sides sees the other:
a refused rollback has removed nothing, and a decided rollback can no longer be refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from filestore.refs.live_references import LiveReference, ReferenceKind
from filestore.refs.pending_tags import held_snapshots, pending_path
from filestore.refs.unused_files import delete_unused_of
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError

_GONE: Final = "gone-"
_FILE: Final = "RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRun:
    """A rollback that has begun and has not ended."""

    run: str  # names its process
    target: SnapshotRef  # without an identity: begun by an older version
    is_decided: bool = False  # it has begun to remove, and must be completed
    is_running: bool = True  # False: its process ended it with an error, and the next rollback continues it

    def goes_to(self, target: SnapshotRef) -> bool:
        """Whether this is the snapshot that stays as the newest."""
        return self.target.id == target.id and self.target.identity in ("", target.identity)


def find_run(store: TableStore) -> RollbackRun | None:
    """The rollback that has begun on the table's branch and has not ended. Raises: CorruptDataError."""
    path = _run_path(store)
    try:
        body = orjson.loads(store.io.read_bytes(path))
        return RollbackRun(
            run=str(body["run"]),
            target=SnapshotRef(int(body["target"]), str(body.get("identity", ""))),
            is_decided=bool(body["decided"]),
            is_running=bool(body["running"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"a begun rollback cannot be decoded: file={path} error={error!r}") from error


def begin_run(store: TableStore, mine: RollbackRun, *, dead_run: str | None) -> RollbackRun:
    """Begin as the only rollback of a branch, or continue one that has not ended.

    Args:
        store: the table, on the branch.
        mine: of this process, whose run is used by no other.
        dead_run: the run of a process that is known to have ended.

    Raises:
        ConflictError: another rollback is in progress, or one to another snapshot has to be completed first.
    """
    if store.io.create_exclusive(_run_path(store), _body(mine)):
        return mine
    known = find_run(store)
    if known is None or (known.is_running and known.run != dead_run):
        raise ConflictError(
            f"another rollback is in progress: table={store.name} branch={store.paths.branch} run={known} "
            "fix='wait for it; if its process has ended, run repair on the table'"
        )
    if known.is_decided and not known.goes_to(mine.target):
        raise ConflictError(
            f"a rollback was interrupted and has to be completed first: table={store.name} snapshot={mine.target.id} "
            f"interrupted={known.target.id} fix='roll back to snapshot {known.target.id}, or run repair on the table'"
        )
    if not known.is_decided:
        take_back_notes(store)
    return keep_run(store, replace(known, run=mine.run, target=mine.target, is_running=True))


def keep_run(store: TableStore, run: RollbackRun) -> RollbackRun:
    """Write what is known of a rollback. Raises: UnavailableError."""
    store.io.replace(_run_path(store), _body(run))
    return run


def end_run(store: TableStore) -> None:
    """Let go of what is held, and let other rollbacks begin. Raises: UnavailableError."""
    for path, snapshot in [*held_snapshots(store)]:
        store.io.delete(path)
        delete_unused_of(store, snapshot, source=path)
    store.io.delete(_run_path(store))


def abandon_run(store: TableStore, run: RollbackRun) -> None:
    """End a rollback that failed or was refused.

    One that is decided stays, and the next rollback continues it; of any other nothing is left.

    Raises: UnavailableError; then commits are refused until it is repaired.
    """
    known = find_run(store)
    if known is None or known.run != run.run:
        return
    if known.is_decided and store.is_as_opened():
        keep_run(store, replace(known, is_running=False))
        return
    take_back_notes(store)
    end_run(store)


def write_note(store: TableStore, reference: LiveReference, snapshot: Snapshot) -> None:
    """Note that a snapshot or tag is removed; its body stays there until its files are deleted."""
    store.io.replace(note_path(store, reference), snapshot.to_json().encode())
    if reference.kind is ReferenceKind.SNAPSHOT:
        store.snapshots.removed.add(snapshot.identity)


def delete_note(store: TableStore, reference: LiveReference) -> None:
    """The files of what was removed are deleted; that it was removed stays known."""
    store.io.delete(note_path(store, reference))


def take_back_notes(store: TableStore) -> None:
    """Delete the notes of all that is still there, of a rollback that was not decided."""
    for reference in noted_references(store):
        snapshot = reference.snapshot
        if reference.kind is ReferenceKind.SNAPSHOT and snapshot is not None:
            is_there = store.snapshots.find_ref(snapshot.ref) is not None
            if is_there or snapshot.id < store.snapshots.claimed_up_to():  # else an older version removed it
                store.snapshots.removed.remove(snapshot.identity)
                store.io.delete(note_path(store, reference))
        elif store.io.exists(reference_path(store, reference)):
            store.io.delete(note_path(store, reference))


def noted_references(store: TableStore) -> Iterator[LiveReference]:
    """The references in the notes of a rollback."""
    for name, body in _notes(store):
        kind, _, rest = name.removeprefix(_GONE).partition("-")
        snapshot = Snapshot.from_json(body, source=f"{directory_of(store)}/{name}")
        yield LiveReference(
            kind=ReferenceKind(kind), branch=store.paths.branch, name=rest, snapshot_id=snapshot.id, snapshot=snapshot
        )


def removed_snapshots(store: TableStore) -> Iterator[tuple[bytes, Snapshot]]:
    """The files of snapshots that an interrupted rollback removed, and what they say."""
    for name, body in _notes(store):
        if name.startswith(f"{_GONE}{ReferenceKind.SNAPSHOT.value}-"):
            yield body, Snapshot.from_json(body, source=f"{directory_of(store)}/{name}")


def left_over(store: TableStore, later: Sequence[LiveReference]) -> Iterator[LiveReference]:
    """References that an interrupted rollback removed without deleting their files; excludes those that exist."""
    known = {str(reference) for reference in later}
    for reference in noted_references(store):
        if str(reference) not in known and not store.io.exists(reference_path(store, reference)):
            yield reference


def is_tag_leaving(store: TableStore, name: str) -> bool:
    """Whether a rollback has noted that it removes a tag."""
    return store.io.exists(f"{directory_of(store)}/{_GONE}{ReferenceKind.TAG.value}-{name}")


def reference_path(store: TableStore, reference: LiveReference) -> str:
    """Path of the file of a live reference of the table's branch."""
    match reference.kind:
        case ReferenceKind.PENDING:
            return pending_path(store.paths, reference.name)  # its creation fails
        case ReferenceKind.TAG:
            return store.paths.tag(reference.name)
        case ReferenceKind.CHANGELOG:
            return store.paths.changelog(reference.snapshot_id)
        case _:
            return store.paths.snapshot(reference.snapshot_id)


def own_paths(store: TableStore, references: Iterable[LiveReference]) -> list[str]:
    """Paths of all files that a rollback makes for itself."""
    paths = [_run_path(store)]
    for reference in references:
        paths.append(note_path(store, reference))
        if reference.snapshot is not None:
            paths.append(f"{store.paths.removed_dir}/{reference.snapshot.identity}")
    return paths


def directory_of(store: TableStore) -> str:
    """The directory of notes."""
    return f"{store.paths.branch_root}/rollback"


def note_path(store: TableStore, reference: LiveReference) -> str:
    """Path of the note of what is removed."""
    return f"{directory_of(store)}/{_GONE}{reference.kind.value}-{reference.name}"


def _notes(store: TableStore) -> Iterator[tuple[str, bytes]]:
    directory = directory_of(store)
    for name in store.io.list_names(directory):
        if name.startswith(_GONE):
            with suppress(FileNotFoundError):  # its rollback has just ended
                yield name, store.io.read_bytes(f"{directory}/{name}")


def _run_path(store: TableStore) -> str:
    return f"{directory_of(store)}/{_FILE}"


def _body(run: RollbackRun) -> bytes:
    body: dict[str, Any] = {
        "run": run.run,
        "target": run.target.id,
        "identity": run.target.identity,
        "decided": run.is_decided,
        "running": run.is_running,
    }
    return orjson.dumps(body)
