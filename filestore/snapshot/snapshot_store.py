"""The files that publish snapshots, and the hints that avoid listing them.

The hints LATEST and EARLIEST may be missing, stale or wrong: no reader returns another state because of one, and
nothing is deleted because of one. Source: Paimon SnapshotManager, HintFileUtils.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2s
from typing import Final, NamedTuple

from filestore.io.byte_cache import ByteCache
from filestore.io.commit_lock import TableLock
from filestore.io.file_io import FileIO, is_file, write_hint
from filestore.layout.branch_state import is_hidden
from filestore.layout.paths import SNAPSHOT_PREFIX, TAG_PREFIX, TAG_SUCCESS_DIRECTORY, TablePaths
from filestore.snapshot.commit_times import snapshot_as_of
from filestore.snapshot.snapshot import EMPTY_TABLE, FIRST_SNAPSHOT_ID, Snapshot, SnapshotRef, back_from
from filestore.snapshot.snapshot_line import SnapshotLine
from lsm.errors import CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError
from lsm.nearest_names import names_text

# ---- Which snapshots an expiry has claimed for deletion: one empty file for each claim, named by the first snapshot
# kept
# A claim is created before anything is deleted. Several processes may expire at once; the highest claim of an existing
# snapshot holds. So a claim that an expiry left in another history (its table or branch was dropped and created again
# while it was paused) has no effect: no snapshot there has that identity. A claim also proves that the expiry saw the
# snapshot that it names as part of the history. Other readers of the layout do not look into this directory.


_PREFIX: Final = "claim-"


class ExpiryClaims:
    """The claims on one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._directory = paths.expiry_dir

    def refs(self) -> list[SnapshotRef]:
        """The first snapshot kept by each claim, ascending, whether it is there or not."""
        names = self._io.list_names(self._directory)
        parts = (name.removeprefix(_PREFIX).partition("-") for name in names if name.startswith(_PREFIX))
        found = (SnapshotRef(int(number), identity) for number, _, identity in parts if number.isdecimal())
        return sorted(found, key=lambda each: (each.id, each.identity))

    def highest_id(self) -> int:
        """Highest snapshot id of all claims, whether they hold or not; 0: there is none."""
        return max((each.id for each in self.refs()), default=0)

    def add(self, first_kept: SnapshotRef) -> None:
        """Claim every snapshot before this one, and remove the claims of lower ones. Raises: UnavailableError."""
        known = self.refs()
        if first_kept not in known:
            self._io.replace(self._path(first_kept), b"")
        for each in known:
            if each.id < first_kept.id:
                self.remove(each)

    def remove(self, first_kept: SnapshotRef) -> None:
        """Remove one claim. Idempotent. Raises: UnavailableError."""
        self._io.delete(self._path(first_kept))

    def remove_above(self, snapshot_id: int) -> None:
        """Remove the claims of snapshots behind this one. Raises: UnavailableError."""
        for each in self.refs():
            if each.id > snapshot_id:
                self.remove(each)

    def _path(self, first_kept: SnapshotRef) -> str:
        return f"{self._directory}/{_PREFIX}{first_kept.id}-{first_kept.identity}"


# ---- Which snapshots a rollback or a repair removed: an empty file for each, named by the identity of the snapshot
# The file is created before the snapshot is deleted, and stays. A writer that was paused after the creation of its
# snapshot, or that got no answer, finds here that the snapshot was visible and was deleted with its files, and does not
# publish these files again.


class RemovedSnapshots:
    """The removed snapshots of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        self._io = io
        self._directory = paths.removed_dir

    def add(self, identity: str) -> None:
        """Note that a snapshot is about to be deleted. Raises: UnavailableError; then it must not be."""
        self._io.replace(f"{self._directory}/{identity}", b"")

    def remove(self, identity: str) -> None:
        """Note that a snapshot is not removed after all. Raises: UnavailableError."""
        self._io.delete(f"{self._directory}/{identity}")

    def identities(self) -> frozenset[str]:
        """All that were removed, or are about to be."""
        return frozenset(self._io.list_names(self._directory))

    @property
    def digest(self) -> str:
        """Changes with every rollback, which removes at least the newest snapshot; "": none is removed."""
        names = sorted(self._io.list_names(self._directory))
        return blake2s("\n".join(names).encode(), digest_size=8).hexdigest() if names else ""

    def has(self, identity: str) -> bool:
        """Whether a snapshot was removed, or is about to be."""
        return is_file(self._io, f"{self._directory}/{identity}")


# ---- The files that publish snapshots, and the hints that avoid listing them


logger = logging.getLogger("fluvial.snapshots")

_MOST_ID_DIGITS: Final = 19  # of a hint
_PARSED_BYTES: Final = 4 << 20
_FACTOR: Final = 4  # a snapshot in memory beside its file, about


class _Parsed(NamedTuple):
    snapshot: Snapshot  # immutable
    file_bytes: int


# The newest snapshots of all tables of the process, by the bytes of their files: a commit reads its parent many times.
_PARSED: Final[ByteCache[_Parsed]] = ByteCache(_PARSED_BYTES, size_of=lambda each: _FACTOR * each.file_bytes)


class SnapshotStore:
    """The snapshot files of one branch of a table.

    A missing file is ``FileNotFoundError``, as in ``FileIO``: a snapshot may expire between two reads. Of a table that
    a user opened it is an ``OpenedSnapshots``, which raises an error if the table was dropped.
    """

    def __init__(
        self,
        io: FileIO,
        paths: TablePaths,
        *,
        lock: TableLock | None = None,
        table_uuid: Callable[[], str | None] = lambda: None,
        extends: Callable[[Snapshot, Snapshot], bool] = lambda snapshot, before: True,
    ) -> None:
        """Open the snapshots of one branch; nothing is read yet.

        Args:
            io: file system.
            paths: of the branch.
            lock: makes publishing safe where ``io`` cannot create a file exclusively; see ``commit.lock``.
            table_uuid: looks up the id of the table that is there now; None: it has none.
            extends: whether a snapshot that names no parent has the files of another one as its base; see
                ``ManifestStore.extends``.
        """
        self._io = io
        self._table_uuid, self._extends = table_uuid, extends
        self._paths = paths
        self._lock = lock
        self.claims = ExpiryClaims(io, paths)
        self.removed = RemovedSnapshots(io, paths)
        self._tags: dict[str, tuple[tuple[int, ...], Snapshot]] = {}  # cached tags with the stamps of their files

    def exists(self, snapshot_id: int) -> bool:
        """Whether a snapshot is published and not expired."""
        return is_file(self._io, self._paths.snapshot(snapshot_id))

    def is_hidden(self) -> bool:
        """Whether their branch is being deleted, renamed or created. Raises: CorruptDataError."""
        return is_hidden(self._io, self._paths)

    def ids(self) -> list[int]:
        """Ids of all snapshots, ascending, by listing the directory."""
        names = self._io.list_names(self._paths.snapshot_dir)
        numbers = (name.removeprefix(SNAPSHOT_PREFIX) for name in names if name.startswith(SNAPSHOT_PREFIX))
        return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())

    def latest_id(self) -> int | None:
        """Id of the newest snapshot; None when nothing was committed."""
        hinted = self._hint(self._paths.latest_hint)
        # A hint may be stale or wrong: it is valid only if its snapshot exists, the next does not, and it has not
        # expired: a paused writer may have published into a number that expiry had freed.
        if hinted is not None and self._is_last(hinted) and self.exists(hinted):
            return hinted
        return self._newest(hinted)

    def _is_last(self, hinted: int) -> bool:
        """Whether no snapshot follows the hinted one, and it has not expired."""
        if self.exists(hinted + 1):
            return False
        earliest = self._hint(self._paths.earliest_hint)
        return earliest is None or earliest <= hinted

    def _newest(self, hinted: int | None) -> int | None:
        """The newest listed id of the history: without forks, but for one that the hint names, which was confirmed."""
        ids = self.ids()
        return next((each for each in reversed(ids) if each == hinted or not self._is_fork(each, ids)), None)

    def _is_fork(self, snapshot_id: int, ids: Sequence[int]) -> bool:
        """Whether a snapshot does not continue the one before: its writer is about to take it back, or has died."""
        snapshot = self.find(snapshot_id)
        if snapshot is None or ids[0] == snapshot_id:
            return snapshot is None or self.is_of_other_table(snapshot)
        if snapshot.parent is None:
            return False
        before = self.find(snapshot_id - 1)
        if before is not None and before.identity == snapshot.parent:
            return self.removed.has(before.identity)  # a commit on top of what a rollback is removing is taken back
        return snapshot.ref not in self.claims.refs()  # what is before the first that stays may be a fork itself

    def is_of_other_table(self, snapshot: Snapshot) -> bool:
        """Whether a handle published it that was opened before the table of this name was dropped and created again."""
        if snapshot.table_uuid is None:
            return False
        return self._table_uuid() not in (None, snapshot.table_uuid)

    def line(self) -> SnapshotLine:
        """The line of history, which alone shows what the branch holds: without forks."""
        ids = self.ids()  # before the newest: what is listed behind that is a fork
        newest, claimed = self.latest_id(), self.claimed_up_to()
        first = claimed if claimed > FIRST_SNAPSHOT_ID else self._first_unclaimed(ids)
        return SnapshotLine(ids, first=first, newest=newest, find=self.find, follows=self.follows)

    def follows(self, snapshot: Snapshot, before: Snapshot) -> bool:
        """Whether a snapshot was made on top of the one with the number before.

        Raises: FileNotFoundError: another engine made it, and its lists or those of the other one were deleted.
        """
        if snapshot.id != before.id + 1:
            return False
        return snapshot.parent == before.identity if snapshot.parent is not None else self._extends(snapshot, before)

    def earliest_id(self) -> int | None:
        """Id of the oldest snapshot that has not expired; None when nothing was committed."""
        claimed = self.claimed_up_to()
        if claimed > FIRST_SNAPSHOT_ID:
            return claimed
        hinted = self._hint(self._paths.earliest_hint)
        # A hint may be wrong: it is valid only if its snapshot exists, and none before it.
        if hinted is not None and self.exists(hinted) and not (hinted > FIRST_SNAPSHOT_ID and self.exists(hinted - 1)):
            return hinted
        return self._first_unclaimed(self.ids())

    def _first_unclaimed(self, ids: Sequence[int]) -> int | None:
        """The oldest listed snapshot that the hint names, or the next one follows; of those that no expiry claimed."""
        hinted = self._hint(self._paths.earliest_hint)
        for at, each in enumerate(ids, 1):
            snapshot = self.find(each)
            if snapshot is None or self.is_of_other_table(snapshot):
                continue
            following = self.find(ids[at]) if at < len(ids) else None
            if each == hinted or following is None or self.leads(following, snapshot):
                return each
        return None

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None when nothing was committed. Raises: CorruptDataError."""
        hinted = self._hint(self._paths.latest_hint)
        if hinted is not None and self._is_last(hinted) and (found := self.find(hinted)) is not None:
            return found
        while (latest_id := self.latest_id()) is not None:
            found = self.find(latest_id)
            if found is not None:
                return found  # else a rollback removed it in between
        return None

    def latest_ref(self) -> SnapshotRef:
        """Names the newest snapshot. Raises: CorruptDataError."""
        latest = self.latest()
        return EMPTY_TABLE if latest is None else latest.ref

    def read(self, snapshot_id: int) -> Snapshot:
        """One snapshot.

        Raises:
            FileNotFoundError: it expired, or was never published.
            CorruptDataError: the file is truncated, corrupt or holds another snapshot.
        """
        path = self._paths.snapshot(snapshot_id)
        body = self._io.read_bytes(path)
        snapshot = _PARSED.get(body, lambda: _Parsed(Snapshot.from_json(body, source=path), len(body))).snapshot
        if snapshot.id != snapshot_id:
            raise CorruptDataError(f"snapshot file holds another snapshot: file={path} id={snapshot.id}")
        return snapshot

    def find(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot, or None when it expired or was never published."""
        try:
            return self.read(snapshot_id)
        except FileNotFoundError:
            return None

    def find_ref(self, ref: SnapshotRef) -> Snapshot | None:
        """The snapshot of this name; None when it expired, or a rollback gave its id to another one."""
        found = self.find(ref.id)
        return found if found is not None and found.ref == ref else None

    def checked(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that a file of another kind holds; raises where a look at snapshots does."""
        return snapshot

    def back_from(self, snapshot: Snapshot | None, *, is_exact: bool = False) -> Iterator[Snapshot]:
        """A snapshot and those before it, newest first, until one has expired; read lazily.

        Args:
            snapshot: the newest one.
            is_exact: also look into the lists where neither is by Fluvial, as forks of other engines count too.
        """
        return back_from(snapshot, self.find, follows=self.leads if is_exact else self._leads_here)

    def leads(self, snapshot: Snapshot, before: Snapshot) -> bool:
        """``follows``, where what has begun to expire is taken for the history."""
        try:
            return self.follows(snapshot, before)
        except FileNotFoundError:
            return True

    def _leads_here(self, snapshot: Snapshot, before: Snapshot) -> bool:
        """``leads``, for forks of writers of Fluvial."""
        is_foreign = snapshot.parent is None and before.is_external
        return snapshot.id == before.id + 1 if is_foreign else self.leads(snapshot, before)

    def find_committed(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot; None when it expired, was never published, or is a fork."""
        found = self.find(snapshot_id)
        return None if found is None or self.line().is_fork(snapshot_id) else found

    def publish(self, snapshot: Snapshot) -> bool:
        """Make a snapshot visible: the atomic step of a commit.

        Returns:
            True when its file exists with these contents, even from an earlier attempt. False when the id is taken by
            another writer: nothing is visible, plan again.

        Raises:
            UnavailableError: nothing is visible.
            OutcomeUnknownError: it may or may not be visible: delete nothing, check for it, retry.
        """
        path, body = self._paths.snapshot(snapshot.id), snapshot.to_json().encode()
        if self._lock is None:
            return self._claim(path, body)
        return self._lock.run(lambda: self._claim(path, body, check_first=True))

    def raise_latest_hint(self, snapshot_id: int) -> None:
        """Move the newest id's hint up to a published snapshot, never down.

        Failures are logged, not raised: the commit is done, and readers can list.
        """
        hinted = self._hint(self._paths.latest_hint)
        if hinted is not None and hinted > snapshot_id and self.exists(hinted):
            return
        self.write_latest_hint(snapshot_id)

    def repair_latest_hint(self) -> None:
        """Let the newest id's hint name the newest listed snapshot that is not a fork."""
        newest = self._newest(self._hint(self._paths.latest_hint))
        if newest is not None:
            self.write_latest_hint(newest)

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Set the newest id's hint, also to a lower one. Failures are logged, not raised: readers can list."""
        self._write_hint(self._paths.latest_hint, snapshot_id)

    def write_earliest_hint(self, snapshot_id: int) -> None:
        """Set the hint of the oldest id; pypaimon assumes 1 without it. Failures are logged, not raised."""
        self._write_hint(self._paths.earliest_hint, snapshot_id)

    def hints(self) -> tuple[int | None, int | None]:
        """The hints EARLIEST and LATEST as they are, right or wrong; None: missing or not a number."""
        return self._hint(self._paths.earliest_hint), self._hint(self._paths.latest_hint)

    def earliest_changelog(self) -> int:
        """The hint of the oldest changelog that outlived its snapshot: those before it are being deleted."""
        return self._hint(self._paths.earliest_changelog_hint) or FIRST_SNAPSHOT_ID

    def claim_up_to(self, snapshot_id: int) -> SnapshotRef | None:
        """Claim the snapshots before this one for deletion: from now on they cannot be tagged.

        Returns:
            That snapshot; None: a concurrent expiry has claimed it, and nothing was claimed here.

        Raises: UnavailableError; then none of them may be deleted.
        """
        first_kept = self.find(snapshot_id)
        if first_kept is None:
            return None
        self.claims.add(first_kept.ref)
        if (self._hint(self._paths.earliest_hint) or FIRST_SNAPSHOT_ID) < snapshot_id:
            self._io.replace(self._paths.earliest_hint, str(snapshot_id).encode())
        return first_kept.ref

    def withdraw_claim(self, first_kept: SnapshotRef) -> None:
        """Take back a claim that came into another table than it was decided on, or none. Raises: UnavailableError."""
        self.claims.remove(first_kept)
        if self._hint(self._paths.earliest_hint) == first_kept.id:  # readers list without it
            self._io.delete(self._paths.earliest_hint)

    def release_claims(self, snapshot_id: int) -> None:
        """Take back the claims from a snapshot on, which a rollback has put back. Raises: UnavailableError."""
        put_back = self.find(snapshot_id)
        if put_back is not None and self.claims.highest_id() > snapshot_id:  # what is before it stays claimed
            self.claims.add(put_back.ref)
        self.claims.remove_above(snapshot_id)
        self._io.replace(self._paths.earliest_hint, str(snapshot_id).encode())

    def claimed_up_to(self) -> int:
        """Snapshots before this id were claimed by an expiry, and are deleted or incomplete; FIRST_SNAPSHOT_ID: none.

        A hint does not claim anything: it may be wrong.
        """
        known = self.claims.refs()
        while True:
            for each in reversed(known):
                if self.find_ref(each) is not None:
                    return each.id
            before, known = known, self.claims.refs()
            if known == before:  # else another expiry has claimed that snapshot, and deleted it
                return FIRST_SNAPSHOT_ID

    def as_of(self, time_ms: int, *, now_ms: int) -> Snapshot | None:
        """The last snapshot committed at or before a time; the newest for now and later. See ``snapshot_as_of``."""
        return snapshot_as_of(self, time_ms, now_ms, line=lambda: self.line().ids)

    def tag(self, name: str) -> Snapshot:
        """The tagged snapshot. Raises: InvalidInputError naming the existing tags; CorruptDataError."""
        found = self.find_tag(name)
        if found is None:
            raise InvalidInputError(f"no such tag: tag={name} {names_text('tags', name, self.tag_names())}")
        return found

    def find_tag(self, name: str) -> Snapshot | None:
        """The tagged snapshot; None when there is no such tag. Raises: CorruptDataError."""
        path = self._paths.tag(name)
        try:
            stamp = self._io.stamp(path)
            known = self._tags.get(name)
            if known is not None and known[0] == stamp:
                return known[1]
            found = Snapshot.from_json(self._io.read_bytes(path), source=path)
        except FileNotFoundError:
            self._tags.pop(name, None)
            return None
        if stamp is not None:
            self._tags[name] = stamp, found
        return found

    def tagged(self) -> Iterator[tuple[str, Snapshot]]:
        """All tags with their snapshots, sorted by name; read lazily, without those deleted meanwhile."""
        found = ((name, self.find_tag(name)) for name in self.tag_names())
        return ((name, snapshot) for name, snapshot in found if snapshot is not None)

    def find_kept(self, snapshot_id: int) -> Snapshot | None:
        """One snapshot, expired or not if a tag keeps it. Raises: CorruptDataError."""
        found = self.find(snapshot_id)
        return found or next((each for _, each in self.tagged() if each.id == snapshot_id), None)

    def tag_names(self) -> list[str]:
        """Names of all tags, sorted."""
        names = self._io.list_names(self._paths.tag_dir)
        found = (name for name in names if name.startswith(TAG_PREFIX) and name != TAG_SUCCESS_DIRECTORY)
        return [name.removeprefix(TAG_PREFIX) for name in found]

    def _claim(self, path: str, body: bytes, *, check_first: bool = False) -> bool:
        try:
            if not (check_first and is_file(self._io, path)):
                self._io.create_exclusive(path, body)
        except OSError as error:
            raise OutcomeUnknownError(f"snapshot may or may not be visible: file={path} error={error}") from error
        # Java publishes by rename under a process-local lock and may have replaced this file; and an existing file
        # may be from an earlier attempt of this writer with a lost response. Only the contents show.
        try:
            return self._io.read_bytes(path) == body
        except (OSError, UnavailableError) as error:
            raise OutcomeUnknownError(f"snapshot cannot be verified: file={path} error={error}") from error

    def _hint(self, path: str) -> int | None:
        try:
            text = self._io.read_bytes(path).strip()
        except (FileNotFoundError, UnavailableError):
            return None
        return int(text) if text.isdigit() and len(text) <= _MOST_ID_DIGITS else None

    def _write_hint(self, path: str, snapshot_id: int) -> None:
        try:
            write_hint(self._io, path, str(snapshot_id).encode())
        except (OSError, UnavailableError) as error:
            logger.warning("hint not written: file=%s snapshot=%d error=%s", path, snapshot_id, error)
