"""The start of a merge: the last state that main and a branch had in common, and the commits of each since.

After a merge that is the merged state of the branch, after a fast-forward the newest published one. A tag of the
branch, ``merged-<snapshot>``, keeps it until the next of either; when it is in main, the tag's file says so, for the
time when main's snapshots have expired.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import orjson

from filestore.branch.merge_plan import MergeCommit, SideChanges, side_changes, unknown_changes
from filestore.layout.branch_names import is_merge_tag, merge_tag
from filestore.layout.branch_state import BranchOrigin
from filestore.layout.former_mains import Belonging, belonging
from filestore.refs.live_references import has_manifests
from filestore.refs.pending_tags import remove_leftover
from filestore.scan.snapshot_files import delta_entries, differing_vectors, live_files
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import hold_snapshot, release_tag
from lsm.errors import ConflictError, FluvialError, InvalidInputError

MERGED_BRANCH_KEY: Final = "fluvial.merged-branch"
"""Property of a merge snapshot: name of the branch."""
MERGED_SNAPSHOT_KEY: Final = "fluvial.merged-snapshot"
"""Property of a merge snapshot: the newest merged snapshot of the branch."""
MERGED_IDENTITY_KEY: Final = "fluvial.merged-identity"
"""Property of a merge snapshot: identity of that snapshot; ids come again after a rollback."""
MERGED_ORIGIN_KEY: Final = "fluvial.merged-origin"
"""Property of a merge snapshot: creation time of the branch, epoch milliseconds."""
MERGED_ID_KEY: Final = "fluvial.merged-id"
"""Property of a merge snapshot: id of the branch's creation; absent when the branch has none."""
_MERGED_AS: Final = "fluvialMergedAs"  # in the file of such a tag: identity of main's snapshot, which may be the same
_MERGED_INTO: Final = "fluvialMergedInto"  # which branch was main then
_MERGED_HISTORY: Final = "fluvialMergedHistory"  # see ``history_id``
_MERGED_NUMBER: Final = "fluvialMergedNumber"  # of main's snapshot
_REMOVED_THEN: Final = "fluvialRemovedThen"  # what main had removed then: when it expired, that says if main went back

CommitsSince = list[tuple[Snapshot, MergeCommit]]


class CommitReader:
    """Reads the changes of commits, each once, however often a merge is decided."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], MergeCommit] = {}

    def history(self, store: TableStore, after: Snapshot | None, until: Snapshot | None) -> CommitsSince | None:
        """The commits after one snapshot up to another, oldest first; None when some have expired.

        What has the number of an expired one may be a fork: what follows does not continue it.
        """
        found: CommitsSince = []
        before = after
        for snapshot_id in range(1 if after is None else after.id + 1, 1 if until is None else until.id + 1):
            try:
                snapshot = store.snapshots.read(snapshot_id)
                if before is not None and snapshot.parent not in (None, before.identity):
                    return None
                found.append((snapshot, self._commit(store, before, snapshot)))
            except FileNotFoundError:
                return None
            before = snapshot
        return found

    def _commit(self, store: TableStore, before: Snapshot | None, snapshot: Snapshot) -> MergeCommit:
        key = store.paths.branch, snapshot.identity
        if key not in self._known:
            self._known[key] = MergeCommit(
                kind=snapshot.commit_kind,
                entries=delta_entries(store, snapshot),
                deleted_in=differing_vectors(store, before, snapshot),
            )
        return self._known[key]


def common_snapshot(main: TableStore, branch: TableStore, origin: BranchOrigin) -> Snapshot | None:
    """The newest snapshot that main and a branch share; None: the branch was created empty, and they share none.

    Raises: InvalidInputError when there is none although the branch was created from one.
    """
    return _common(main, branch, origin)[0]


def _common(main: TableStore, branch: TableStore, origin: BranchOrigin) -> tuple[Snapshot | None, bool]:
    """As ``common_snapshot``; and whether that is sure, or a newer one that they share may have expired."""
    floor = origin.snapshot_id or 0
    newest = min(main.snapshots.latest_id() or 0, branch.snapshots.latest_id() or 0)
    published, is_sure = _published(main, branch, floor, newest)
    lowest = floor if published is None else published.id
    for snapshot_id in range(newest, lowest, -1):
        there = branch.snapshots.find(snapshot_id)
        if there is not None and _has(main, there):
            return there, True
    if published is not None:
        return published, True
    if origin.snapshot_id is None:
        return None, is_sure
    tagged = main.snapshots.find_tag(origin.tag or "")
    kept = branch.snapshots.find_tag(origin.tag or "") or branch.snapshots.find(origin.snapshot_id)
    if kept is None and origin.id and tagged is not None and tagged.id == origin.snapshot_id:
        kept = tagged  # the branch has let go of it; main's tag stays as long as the branch
    known = tagged or main.snapshots.find(origin.snapshot_id)
    if kept is None or not _is_same(known, kept):
        raise InvalidInputError(
            f"the branch no longer shares a snapshot with main: table={main.name} branch={branch.paths.branch} "
            f"origin={origin.snapshot_id} fix=read it and write its rows to main, or make it main"
        )
    return kept, is_sure


def _published(main: TableStore, branch: TableStore, floor: int, newest: int) -> tuple[Snapshot | None, bool]:
    """The newest state above a floor, up to a snapshot, that a fast-forward published; and whether that is sure.

    A tag of the branch keeps the last one; main may have gone back to one before. It is in main, or has expired there:
    main holds on to its branch, and neither side has gone back behind it.
    """
    is_sure = True
    for held in sorted(_held(branch), key=lambda each: -each.snapshot.id):
        kept: Snapshot | None = held.snapshot
        belongs = held.belonging(main)
        was_published = held.merged_as == held.snapshot.identity and belongs is not Belonging.ELSEWHERE
        while kept is not None and kept.id > floor:
            if kept.id <= newest and not branch.snapshots.removed.has(kept.identity) and has_manifests(branch, kept):
                is_there = _has(main, kept)
                has_expired = (
                    not is_there
                    and main.snapshots.find(kept.id) is None
                    and was_published
                    and not main.snapshots.removed.has(kept.identity)
                )
                is_reached = belongs is Belonging.HERE and not held.may_be_gone(main)
                if is_there or (has_expired and is_reached):
                    return kept, True
                is_sure = is_sure and not has_expired
            before = _before(kept, branch, main)
            is_sure = is_sure and not (before is None and was_published and kept.id > floor + 1)
            kept = before
    return None, is_sure


def _before(snapshot: Snapshot, *stores: TableStore) -> Snapshot | None:
    """The snapshot that another one follows, where any of these branches has it; None: none has, or it is not named."""
    found = (store.snapshots.find(snapshot.id - 1) for store in stores)
    return next((each for each in found if each is not None and each.identity == snapshot.parent), None)


def data_commits_since(store: TableStore, common: Snapshot | None) -> list[int] | None:
    """Ids of snapshots after a common one that changed rows; None: unknown, because some have expired."""
    history = CommitReader().history(store, common, store.snapshots.latest())
    return None if history is None else [each.id for each, commit in history if side_changes([commit]).changed]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStart:
    """The new changes of both sides."""

    base: Snapshot | None  # the state in common, in the branch; None: the empty table, or not known
    is_known: bool  # whether that state can be read
    is_first: bool  # whether the state in common is a snapshot that both have, as far as they have not expired
    main: SideChanges  # without merges of this branch
    since_merge: SideChanges | None  # of these only the ones after the last merge of this branch; None: not known
    branch: SideChanges


def merge_start(
    reader: CommitReader,
    main: TableStore,
    branch: TableStore,
    origin: BranchOrigin,
    *,
    latest: Snapshot | None,
    newest: Snapshot,
) -> MergeStart | None:
    """The changes of main (at ``latest``) and of the branch (at ``newest``); None: the branch has no new change."""
    common, is_sure = _common(main, branch, origin)
    floor = 0 if common is None else common.id
    history = reader.history(main, common, latest)
    merges = [each for each, _ in history or () if _is_merge_of(each, origin)]
    merged, may_be_gone = _noted_merge(main, branch) if history is None else (None, False)
    merged = _Merged.of(merges[-1]) if merges else merged
    if merged is not None and merged.snapshot_id <= floor:
        merged = None
    elif merged is not None and may_be_gone:
        merged, is_sure = None, False
    base = common if merged is None else merged.find(branch)
    is_known = is_sure if merged is None else base is not None
    if newest.id <= floor or (merged is not None and base is not None and newest.id <= base.id):
        return None
    base = base if is_known else common
    own = None if history is None else [pair for pair in history if not _is_merge_of(pair[0], origin)]
    last = merges[-1].id if merges else floor
    in_main = _changes(main, common, latest, own)
    if own is None and merged is not None and is_known:  # where main is as before the merge it has taken that back
        merged_then = _changes(branch, common, base, None)
        in_main = replace(in_main, changed=in_main.changed | merged_then.changed)
    return MergeStart(
        base=base,
        is_known=is_known,
        is_first=merged is None and is_sure,
        main=in_main,
        since_merge=None if own is None else side_changes(commit for each, commit in own if each.id > last),
        branch=_changes(branch, base, newest, reader.history(branch, base, newest)),
    )


def merge_properties(branch: TableStore, origin: BranchOrigin, merged: Snapshot) -> Mapping[str, str]:
    """Properties of a merge snapshot."""
    return {
        MERGED_BRANCH_KEY: branch.paths.branch,
        MERGED_SNAPSHOT_KEY: str(merged.id),
        MERGED_IDENTITY_KEY: merged.identity,
        MERGED_ORIGIN_KEY: str(origin.created_ms),
        **({MERGED_ID_KEY: origin.id} if origin.id else {}),
    }


# ---- the merged state


def hold_merged(branch: TableStore, merged: Snapshot) -> Callable[[], None]:
    """Keep the state of a branch that is about to be merged. Returns what undoes it. Raises: ConflictError."""
    name = merge_tag(merged.id)
    was_there = branch.snapshots.find_tag(name) is not None
    try:
        hold_snapshot(branch, name, merged.id)
    except InvalidInputError as error:
        if branch.snapshots.exists(merged.id):
            raise
        raise ConflictError(f"the snapshot expired while it was merged: {error}") from error

    def undo() -> None:
        if not was_there:
            with suppress(FluvialError, OSError):
                branch.io.delete(branch.paths.tag(name))

    return undo


def note_merged(branch: TableStore, merged: Snapshot, done: Snapshot, *, main: TableStore, history: str) -> None:
    """Note that a held state was merged, and release those that were merged before; the next merge repeats failures.

    Until main's snapshots expire, these say the same.

    Args:
        branch: the branch.
        merged: its state.
        done: main's snapshot with it; of a fast-forward the same.
        main: the branch that was main.
        history: of main, as it was before ``done`` was published: later another one may be main.
    """
    path = branch.paths.tag(merge_tag(merged.id))
    with suppress(FluvialError, OSError):
        body = orjson.loads(branch.io.read_bytes(path))
        removed = main.snapshots.removed.digest
        note = {
            _MERGED_AS: done.identity,
            _MERGED_INTO: main.paths.branch,
            _MERGED_HISTORY: history,
            _MERGED_NUMBER: done.id,
            _REMOVED_THEN: removed,
        }
        branch.io.replace(path, orjson.dumps({**body, **note}, option=orjson.OPT_INDENT_2))
        if not branch.is_as_opened():  # the table or the branch is gone, and with it what the tag keeps
            remove_leftover(branch, path)
            return
        for name in branch.snapshots.tag_names():
            if is_merge_tag(name) and name != merge_tag(merged.id):
                _let_go(branch, name)


def _let_go(branch: TableStore, name: str) -> None:
    """Delete a tag, also one whose files another engine has expired."""
    kept = branch.snapshots.find_tag(name)
    if kept is not None and not has_manifests(branch, kept):
        branch.io.delete(branch.paths.tag(name))
    else:
        release_tag(branch, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """A state of the branch that was merged."""

    snapshot_id: int
    identity: str | None  # None: of an earlier version of Fluvial

    @classmethod
    def of(cls, merge: Snapshot) -> "_Merged":
        properties = merge.properties
        return cls(snapshot_id=int(properties[MERGED_SNAPSHOT_KEY]), identity=properties.get(MERGED_IDENTITY_KEY))

    def find(self, branch: TableStore) -> Snapshot | None:
        """The state, if it still can be read."""
        kept = branch.snapshots.find_tag(merge_tag(self.snapshot_id)), branch.snapshots.find(self.snapshot_id)
        wanted = (each for each in kept if each is not None and self.identity in (None, each.identity))
        return next((each for each in wanted if has_manifests(branch, each)), None)


@dataclass(frozen=True, slots=True)
class _Held:
    """A state that a tag of the branch keeps, and what is noted of it."""

    snapshot: Snapshot
    merged_as: str | None  # identity of main's snapshot; None: it may never have come into main
    merged_into: str | None  # the branch that was main; None: of an earlier version of Fluvial
    merged_history: str | None  # the same; None: of an earlier version
    merged_number: int  # of main's snapshot
    removed_then: str  # see ``RemovedSnapshots.digest``

    def is_gone(self, main: TableStore) -> bool:
        """Whether main went back behind it."""
        return self.merged_as is not None and main.snapshots.removed.has(self.merged_as)

    def may_be_gone(self, main: TableStore) -> bool:
        """Whether main went back since, so that what has expired there may have been removed before."""
        return main.snapshots.removed.digest != self.removed_then

    def belonging(self, main: TableStore) -> Belonging:
        """Whether it was noted to be in what main is now; a rollback may have taken it back."""
        if self.merged_as is None:
            return Belonging.ELSEWHERE
        if self.merged_history is None:
            return Belonging.HERE if self.merged_into in (None, main.paths.branch) else Belonging.ELSEWHERE
        return belonging(
            main.io, main.paths, main.main_branch, history=self.merged_history, snapshot_id=self.merged_number
        )


def _held(branch: TableStore) -> Iterator[_Held]:
    for name in filter(is_merge_tag, branch.snapshots.tag_names()):
        with suppress(FileNotFoundError):
            body = branch.io.read_bytes(branch.paths.tag(name))
            noted = orjson.loads(body)
            yield _Held(
                Snapshot.from_json(body),
                noted.get(_MERGED_AS),
                noted.get(_MERGED_INTO),
                noted.get(_MERGED_HISTORY),
                noted.get(_MERGED_NUMBER, 0),
                noted.get(_REMOVED_THEN, ""),
            )


def _noted_merge(main: TableStore, branch: TableStore) -> tuple[_Merged | None, bool]:
    """The state that was merged last, by the tags of the branch; and whether main may have lost it."""
    found = [
        each for each in _held(branch) if each.belonging(main) is not Belonging.ELSEWHERE and not each.is_gone(main)
    ]
    newest = max(found, key=lambda each: each.snapshot.id, default=None)
    if newest is None:
        return None, False
    may_be_gone = newest.belonging(main) is Belonging.PERHAPS or newest.may_be_gone(main)
    return _Merged(snapshot_id=newest.snapshot.id, identity=newest.snapshot.identity), may_be_gone


# ---- changes of both sides


def _changes(
    store: TableStore, after: Snapshot | None, until: Snapshot | None, history: CommitsSince | None
) -> SideChanges:
    if history is None:
        deleted_in = differing_vectors(store, after, until)
        return unknown_changes(live_files(store, after), live_files(store, until), deleted_in)
    return side_changes(commit for _, commit in history)


def _is_merge_of(snapshot: Snapshot, origin: BranchOrigin) -> bool:
    return MERGED_BRANCH_KEY in snapshot.properties and snapshot.properties.get(MERGED_ORIGIN_KEY) == str(
        origin.created_ms
    )


def _has(main: TableStore, snapshot: Snapshot) -> bool:
    """Whether the history of main has a snapshot of a branch."""
    found = main.snapshots.find(snapshot.id)
    return found is not None and _is_same(found, snapshot) and main.snapshots.line().has(found.id)


def _is_same(one: Snapshot | None, other: Snapshot) -> bool:
    """Whether two branches have the same snapshot; copies may lack log offsets."""
    return one is not None and (one.id, one.delta_manifest_list, one.base_manifest_list) == (
        other.id, other.delta_manifest_list, other.base_manifest_list
    )  # fmt: skip
