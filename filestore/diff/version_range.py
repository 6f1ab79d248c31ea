"""The versions between two bounds, as steps from each kept state to the next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from filestore.changelog.version_changes import VersionStep
from filestore.refs.versions import as_of, find_version, parse_version
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

_DATA: frozenset[CommitKind] = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})
_MICROS = 1000  # in a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of a range: a version, see ``filestore.refs.versions``, or a time."""

    version: str | None = None  # 0 is the empty table
    time_us: int | None = None  # epoch microseconds
    is_inclusive: bool = True

    def __str__(self) -> str:
        at = f"version {self.version}" if self.version is not None else f"timestamp {self.time_us} us"
        return at if self.is_inclusive else f"{at} exclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions in their order."""

    table: FileTable  # on the branch of the versions, with the schema of the last one; without an end, with its own
    steps: tuple[VersionStep, ...]  # of commits of rows; compactions change none


def find_range(
    table: FileTable, start: Bound | None, end: Bound | None, *, folds_expired: bool = False
) -> VersionRange:
    """Resolve bounds.

    Args:
        table: versions without a branch are of its branch; the range is on the branch of ``end``.
        start: inclusive: the changes of that version's commit are the first ones. None: the oldest kept state, and
            what follows.
        end: None: the newest version.
        folds_expired: expired versions come together with the next kept one; else they are an error.

    Raises:
        InvalidInputError: no such version; the end is before the start; the start is not in the history of the end.
        SnapshotExpiredError: versions of the range have expired.
    """
    here = _on_branch_of(table, end)
    history = _History(here.store)
    last = history.last(end)
    last_id = 0 if last is None else last.id
    before_id = 0 if start is None else history.before(table, start, end)
    if before_id > last_id:
        raise InvalidInputError(
            f"the end is before the start: table={here.name} start={start} end={end or 'newest'} "
            f"newest={here.store.snapshots.latest_id()}"
        )
    if last is None:
        return VersionRange(table=here, steps=())
    all_or_behind = history.all_steps if start is None else partial(history.steps, before_id)
    return VersionRange(
        table=here if end is None else here.at_schema(last.schema_id),
        steps=tuple(all_or_behind(last, folds_expired=folds_expired)),
    )


def state_before(table: FileTable, start: Bound) -> int:
    """Id of the state before the first version of a range to the newest one; 0: the empty table. Raises: as above."""
    return _History(table.store).before(table, start, None)


class _History:
    """The snapshots of a branch, with those that tags keep."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    @cached_property
    def _tagged(self) -> Mapping[int, Snapshot]:
        return {snapshot.id: snapshot for _, snapshot in self._store.snapshots.tagged()}

    def find(self, snapshot_id: int) -> Snapshot | None:
        return self._store.snapshots.find(snapshot_id) or self._tagged.get(snapshot_id)

    def last(self, end: Bound | None) -> Snapshot | None:
        """The last version of a range; None: there is none."""
        if end is None:
            return self._store.snapshots.latest()
        if end.version is None:
            assert end.time_us is not None
            return self._at(end.time_us, is_included=end.is_inclusive)
        if end.version == "0":
            return None
        snapshot = find_version(self._store, parse_version(self._store, end.version)).snapshot
        if end.is_inclusive:
            return snapshot
        return None if snapshot.id == FIRST_SNAPSHOT_ID else self._kept(snapshot.id - 1)

    def before(self, table: FileTable, start: Bound, end: Bound | None) -> int:
        """Id of the state before the first version; 0: the empty table."""
        if start.version is None:
            assert start.time_us is not None
            found = self._at(start.time_us, is_included=not start.is_inclusive)
            return 0 if found is None else found.id
        if start.version == "0":
            return 0
        if start.version.isdecimal():  # the state before it is needed, and maybe kept by a tag; not itself
            asked_id, newest_id = int(start.version), self._store.snapshots.latest_id() or 0
            if asked_id > newest_id:
                find_version(self._store, parse_version(self._store, start.version))  # raises
            return asked_id - start.is_inclusive
        found_version = find_version(table.store, parse_version(table.store, start.version))
        asked = found_version.snapshot
        own = self.find(asked.id)
        if own is not None and own.identity != asked.identity:
            raise InvalidInputError(
                f"the start is not in the history of the end: table={self._store.name} start={start} "
                f"end={end or 'newest'} snapshot={asked.id} "
                "cause='it was rolled back, or is of another branch' fix='read their difference: Table.diff'"
            )
        return asked.id - start.is_inclusive

    def steps(self, before_id: int, last: Snapshot, *, folds_expired: bool) -> Iterator[VersionStep]:
        """From the state before to each kept version."""
        before = self.find(before_id) if before_id else None
        at_id = before_id
        for snapshot_id in range(before_id + 1, last.id + 1):
            after = last if snapshot_id == last.id else self.find(snapshot_id)
            if after is None:
                if not folds_expired:
                    raise self._expired(before_id, snapshot_id, last)
                continue
            if (
                before is None
                and before_id
                and not (at_id == before_id and snapshot_id == before_id + 1 and not self._store.has_key)
            ):
                raise self._expired(before_id, before_id, last)
            self._check_follows(before, after)
            if after.commit_kind in _DATA or after.id > at_id + 1:
                yield VersionStep(before_id=at_id, before=before, after=after)
            before, at_id = after, after.id

    def all_steps(self, last: Snapshot, *, folds_expired: bool) -> Iterator[VersionStep]:
        """The oldest kept state as a whole, and then the versions behind it."""
        earliest_id = min(self._store.snapshots.earliest_id() or FIRST_SNAPSHOT_ID, last.id)
        first = self.find(earliest_id) or last
        yield VersionStep(before_id=0, before=None, after=first)
        yield from self.steps(first.id, last, folds_expired=folds_expired)

    def _check_follows(self, before: Snapshot | None, after: Snapshot) -> None:
        """A snapshot that a tag keeps may have been rolled back."""
        if before is None or after.id != before.id + 1:
            return
        if after.parent is not None and after.parent != before.identity:
            raise InvalidInputError(
                f"versions do not follow each other: table={self._store.name} before={before.id} after={after.id} "
                "cause='the former was rolled back and only a tag keeps it' fix='start at a later version'"
            )

    def _at(self, time_us: int, *, is_included: bool) -> Snapshot | None:
        """The last version at or before a time; None: there is none. Raises: SnapshotExpiredError."""
        time_ms = time_us // _MICROS if is_included else -(-time_us // _MICROS) - 1
        found = as_of(self._store, time_ms)
        if found is not None:
            return found[0]
        earliest_id = self._store.snapshots.earliest_id()
        if earliest_id in (None, FIRST_SNAPSHOT_ID):
            return None
        raise SnapshotExpiredError(
            f"versions of that time have expired: table={self._store.name} time_ms={time_ms} "
            f"earliest_snapshot={earliest_id} fix='start at a later time'"
        )

    def _kept(self, snapshot_id: int) -> Snapshot:
        found = self.find(snapshot_id)
        if found is None:
            raise self._expired(snapshot_id, snapshot_id, None)
        return found

    def _expired(self, before_id: int, missing_id: int, last: Snapshot | None) -> SnapshotExpiredError:
        earliest_id = self._store.snapshots.earliest_id()
        return SnapshotExpiredError(
            f"versions that the changes need have expired: table={self._store.name} missing={missing_id} "
            f"earliest={earliest_id} start_after={before_id} end={'newest' if last is None else last.id} "
            f"fix='start at version {earliest_id} EXCLUSIVE; between two kept states, a tag among them, "
            "deduplicationMode=netChanges gives the exact difference'"
        )


def _on_branch_of(table: FileTable, end: Bound | None) -> FileTable:
    if end is None or end.version is None or end.version == "0":
        return table
    branch = parse_version(table.store, end.version).branch
    return table if branch in (None, table.store.paths.branch) else table.on_branch(branch)
