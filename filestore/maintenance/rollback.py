"""Rollback: a table goes back to a snapshot or tag, and what was committed after it goes for good.

``plan_rollback`` says what would go, ``roll_back`` does it: newest first, so that every state on the way is one that
the table once had. Bodies of what goes are kept in ``rollback/`` until their files are gone: so a rollback that dies is
finished by the next one. Numbers of snapshots are used again afterwards; whoever remembers one compares what it was.
Source: TAG-02, TAG-03; paimon-format.md section 9 (Paimon RollbackHelper); SP-14.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import ExpiredCommits
from filestore.refs.file_references import (
    FileReferences,
    FileSize,
    MetadataFiles,
    added_files,
    changelog_files,
    data_files,
    metadata_files,
)
from filestore.refs.live_references import (
    DecidingReferences,
    LiveReference,
    ReferenceKind,
    all_references,
    tag_references,
)
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import branch_made_from
from lsm.errors import ConflictError, InvalidInputError

_GONE: Final = "gone-"
_ACTIVE_MS: Final = 600_000  # a stream that committed since is taken to be running
_OF_TAGS: Final = ("tagCreateTime", "tagTimeRetained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A snapshot or tag that goes, and the files that nothing else uses."""

    root: LiveReference
    snapshot: Snapshot
    data: tuple[FileSize, ...] = ()
    metadata: MetadataFiles = field(default_factory=MetadataFiles)

    @property
    def size_bytes(self) -> int:
        """Of data and changelog files."""
        return sum(each.size_bytes for each in self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What a rollback does."""

    target: Snapshot
    target_tag: str | None  # the tag that keeps it, when the snapshot itself has expired
    previous_id: int | None  # the newest snapshot before
    removals: tuple[Removal, ...]  # newest first; of one number, its tags first
    objections: tuple[str, ...]  # what speaks against it, unless it is forced


def plan_rollback(store: TableStore, target: Snapshot, *, with_files: bool = True) -> RollbackPlan:
    """What going back to a snapshot would do; nothing is done.

    Args:
        store: whose; its branch counts.
        target: of that branch, of a snapshot or of a tag.
        with_files: find the files that go too.

    Raises:
        InvalidInputError: it cannot be done: the table has a log, or something that is needed began after the target.
        CorruptDataError: another root refers to files that are missing, so what it uses is not known.
    """
    if store.has_log:
        raise InvalidInputError(
            f"what was written to a log cannot be taken back: table={store.name} snapshot={target.id} "
            "fix=use rollback_to_as_latest, which makes the older rows the newest ones by a new commit"
        )
    roots = all_references(store)
    later = [root for root in roots if root.branch == store.paths.branch and root.snapshot_id > target.id]
    for root in later:
        branch = _branch_of(store, root)
        if branch is not None or root.kind not in (ReferenceKind.SNAPSHOT, ReferenceKind.TAG, ReferenceKind.CHANGELOG):
            fix = f"delete the branch {branch}" if branch is not None else f"delete the {root.kind.value}"
            raise InvalidInputError(
                f"something that is needed is later than where to go back to: table={store.name} "
                f"snapshot={target.id} later={root} fix='{fix} first, or use rollback_to_as_latest'"
            )
    if target.id < store.snapshots.claimed_up_to() and _tag_of(store, target) is None:
        raise ConflictError(
            f"the snapshot is about to expire: table={store.name} snapshot={target.id} "
            f"earliest={store.snapshots.claimed_up_to()} fix='go back to a newer one, or to a tag'"
        )
    removed = _newest_first(store, [*later, *_left_over(store, later)])
    removals = tuple(Removal(root=root, snapshot=snapshot) for root, snapshot in removed)
    if with_files:
        kept = [root for root in roots if root not in later]
        if not store.snapshots.exists(target.id):
            kept.append(_root_of(store, target))
        removals = _with_files(store, target, removals, kept)
    return RollbackPlan(
        target=target,
        target_tag=None if store.snapshots.exists(target.id) else _tag_of(store, target),
        previous_id=store.snapshots.latest_id(),
        removals=removals,
        objections=tuple(_objections(store, target, [each.snapshot for each in removals])),
    )


def roll_back(store: TableStore, plan: RollbackPlan) -> None:
    """Do what a plan says, whoever objects. When it is interrupted, plan again and go on.

    Raises:
        ConflictError: somebody committed meanwhile: plan again.
        UnavailableError: the file system refused; plan again.
    """
    io, paths, snapshots = store.io, store.paths, store.snapshots
    target = plan.target
    if not snapshots.exists(target.id):
        body = orjson.loads(io.read_bytes(paths.tag(plan.target_tag or "")))
        kept = {key: value for key, value in body.items() if key not in _OF_TAGS}
        io.create_exclusive(paths.snapshot(target.id), orjson.dumps(kept, option=orjson.OPT_INDENT_2))
    for removal in plan.removals:
        io.replace(_note(store, removal.root), removal.snapshot.to_json().encode())
    # a hint must never be ahead: readers trust it when there is no next snapshot
    io.replace(paths.latest_hint, str(target.id).encode())
    for consumer, next_id in store.consumers.next_snapshots().items():
        if next_id > target.id + 1:
            store.consumers.write(consumer, target.id + 1, may_go_back=True)
    for removal in plan.removals:
        if removal.root.kind is ReferenceKind.SNAPSHOT and snapshots.exists(removal.root.snapshot_id + 1):
            raise _is_superseded(store, removal.root.snapshot_id + 1)
        io.delete(_path(store, removal.root))
    left = [each for each in snapshots.ids() if each > target.id]
    if left and left[0] != target.id + 1:
        raise _is_superseded(store, left[0])
    if snapshots.claimed_up_to() > target.id:
        ExpiredCommits(io, paths).forget_after(target.id)
        io.replace(paths.earliest_hint, str(target.id).encode())
    # from here on nothing new can refer to what went
    for done in _with_files(store, target, plan.removals, all_references(store)):
        files = (file.path for file in done.data)
        for path in (*files, *sorted(done.metadata.leaves), *sorted(done.metadata.lists)):
            io.delete(path)
        io.delete(_note(store, done.root))


def _is_superseded(store: TableStore, snapshot_id: int) -> ConflictError:
    return ConflictError(
        f"somebody committed while the table was rolled back: table={store.name} snapshot={snapshot_id} "
        "fix='stop its writers and run it again'"
    )


def _objections(store: TableStore, target: Snapshot, removed: Sequence[Snapshot]) -> Iterator[str]:
    since_ms = store.clock.now_ms() - _ACTIVE_MS
    writers = sorted(
        {each.commit_user for each in removed if each.commit_identifier != BATCH_IDENTIFIER and each.time_ms > since_ms}
    )
    if writers:
        minutes = _ACTIVE_MS // 60_000
        yield f"a stream committed in the last {minutes} minutes and may be running: commit_user={writers[0]}"
    for consumer, next_id in store.consumers.next_snapshots().items():
        if next_id > target.id + 1:
            yield f"a reader is further: consumer={consumer} next_snapshot={next_id}"
    earliest = store.snapshots.earliest_id() or 0
    if target.id < earliest and ExpiredCommits(store.io, store.paths).after(target.id):
        yield "streams whose commits have expired wrote after it, and would not know that these are gone"


def _newest_first(store: TableStore, roots: Sequence[LiveReference]) -> list[tuple[LiveReference, Snapshot]]:
    found = []
    for root in sorted(roots, key=lambda each: (each.snapshot_id, each.kind is ReferenceKind.TAG), reverse=True):
        snapshot = root.snapshot or store.snapshots.find(root.snapshot_id)
        if snapshot is not None:
            found.append((replace(root, snapshot=snapshot), snapshot))
    return found


def _left_over(store: TableStore, later: Sequence[LiveReference]) -> Iterator[LiveReference]:
    """What an interrupted rollback has removed without its files. Notes of what is there again are no use."""
    directory = _directory(store)
    known = {str(root) for root in later}
    for name in store.io.list_names(directory):
        snapshot = Snapshot.from_json(store.io.read_bytes(f"{directory}/{name}"), source=f"{directory}/{name}")
        kind, _, rest = name.removeprefix(_GONE).partition("-")
        root = LiveReference(
            kind=ReferenceKind(kind),
            branch=store.paths.branch,
            name=rest,
            snapshot_id=snapshot.id,
            snapshot=snapshot,
        )
        if str(root) not in known:
            yield root


def _with_files(
    store: TableStore, target: Snapshot, removals: Sequence[Removal], roots: Sequence[LiveReference]
) -> tuple[Removal, ...]:
    """The removals with the files that no root uses; each file is in the oldest one that has it, which made it."""
    known = {target.id, *(each.snapshot.id for each in removals if each.root.kind is ReferenceKind.SNAPSHOT)}
    candidates = [_candidates(store, each, known) for each in removals]
    partitions = {file.partition for data, _ in candidates for file in data}
    references, asked = (
        FileReferences(store, partitions=partitions),
        DecidingReferences(roots, branch=store.paths.branch),
    )
    told: set[str] = set()
    found: list[Removal] = []
    for removal, (data, metadata) in zip(reversed(removals), reversed(candidates), strict=True):
        near = asked.about(removal.snapshot.id, is_last=False)
        used = (references.data(near) if data else set()) | references.metadata(near) | told
        gone = {file.path: file for file in data if file.path not in used}
        own = MetadataFiles(leaves=metadata.leaves - used, lists=metadata.lists - used)
        found.append(replace(removal, data=tuple(gone.values()), metadata=own))
        told |= gone.keys() | own.all
    return tuple(reversed(found))


def _candidates(store: TableStore, removal: Removal, known: Collection[int]) -> tuple[list[FileSize], MetadataFiles]:
    """What a snapshot or tag refers to, as far as it is there; ``known`` snapshots are looked at themselves."""
    snapshot, is_tag = removal.snapshot, removal.root.kind is ReferenceKind.TAG
    if is_tag and snapshot.id in known:
        return [], MetadataFiles()
    metadata = metadata_files(store, snapshot, is_partial=True, with_changelog=not is_tag)
    try:
        data = added_files(store, snapshot) if snapshot.id - 1 in known else data_files(store, snapshot)
    except FileNotFoundError:  # an interrupted rollback has deleted its lists, after its files
        data = []
    return [*data, *([] if is_tag else changelog_files(store, snapshot))], metadata


def _root_of(store: TableStore, target: Snapshot) -> LiveReference:
    name = str(target.id)
    return LiveReference(
        kind=ReferenceKind.SNAPSHOT, branch=store.paths.branch, name=name, snapshot_id=target.id, snapshot=target
    )


def _branch_of(store: TableStore, root: LiveReference) -> str | None:
    """The branch that was made from a tag."""
    if root.kind is not ReferenceKind.TAG or root.snapshot is None:
        return None
    return branch_made_from(store, root.name, root.snapshot)


def _tag_of(store: TableStore, target: Snapshot) -> str | None:
    return next((root.name for root in tag_references(store) if root.snapshot_id == target.id), None)


def _path(store: TableStore, root: LiveReference) -> str:
    match root.kind:
        case ReferenceKind.TAG:
            return store.paths.tag(root.name)
        case ReferenceKind.CHANGELOG:
            return store.paths.changelog(root.snapshot_id)
        case _:
            return store.paths.snapshot(root.snapshot_id)


def _directory(store: TableStore) -> str:
    return f"{store.paths.branch_root}/rollback"


def _note(store: TableStore, root: LiveReference) -> str:
    return f"{_directory(store)}/{_GONE}{root.kind.value}-{root.name}"
