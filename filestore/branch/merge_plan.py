"""Decides how a merge of two histories treats each bucket: pure functions over manifest entries.

Both sides start from one state. A bucket with rows changed by one side gets that side's state. One that both changed is
merged by key, or by file when the table has no key. Compactions change no rows, so they are ignored.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.snapshot.snapshot import CommitKind

BucketPlace = tuple[bytes, int]
"""Partition and bucket."""

_DATA_KINDS = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCommit:
    """The changes of one snapshot."""

    kind: CommitKind
    entries: Sequence[ManifestEntry]
    deleted_in: frozenset[BucketPlace] = frozenset()  # buckets whose deletion vectors it changed


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChanges:
    """The changes of one side since a common state."""

    changed: frozenset[BucketPlace]  # buckets with possibly changed rows
    only_added: frozenset[BucketPlace]  # of these: buckets where files were only added
    added: tuple[ManifestEntry, ...]  # files added by data commits, oldest first
    as_committed: frozenset[BucketPlace]  # of these: buckets that no compaction touched
    bucket_counts: frozenset[tuple[bytes, int]]  # partitions with the bucket counts of their files


class MergeOutcome(Enum):
    """How a merge treats a bucket of main."""

    TAKE = "take"  # take the branch's state
    ADD = "add"  # add the new files of the branch
    FILES = "files"  # remove and add the files that the branch removed and added
    KEYS = "keys"  # merge by key
    CONFLICT = "conflict"


def side_changes(commits: Iterable[MergeCommit]) -> SideChanges:
    """The changes of a gapless history of commits."""
    changed: set[BucketPlace] = set()
    removed: set[BucketPlace] = set()
    compacted: set[BucketPlace] = set()
    added: list[ManifestEntry] = []
    counts: set[tuple[bytes, int]] = set()
    for commit in commits:
        counts |= bucket_counts(commit.entries)
        if commit.kind in _DATA_KINDS:
            changed |= {(each.partition, each.bucket) for each in commit.entries} | commit.deleted_in
            removed |= {(each.partition, each.bucket) for each in commit.entries if each.kind is EntryKind.DELETE}
            removed |= commit.deleted_in
            added += [each for each in commit.entries if each.kind is EntryKind.ADD]
        else:
            compacted |= {(each.partition, each.bucket) for each in commit.entries}
    return SideChanges(
        changed=frozenset(changed),
        only_added=frozenset(changed - removed),
        added=tuple(added),
        as_committed=frozenset(changed - compacted),
        bucket_counts=frozenset(counts),
    )


def unknown_changes(
    before: Iterable[ManifestEntry], after: Iterable[ManifestEntry], deleted_in: Collection[BucketPlace] = ()
) -> SideChanges:
    """Possible changes when commits between two states have expired: all buckets with different files or vectors."""
    old, new = list(before), list(after)
    one, two = by_place(old), by_place(new)
    changed = {place for place in {*one, *two} if _identities(one.get(place)) != _identities(two.get(place))}
    nothing: frozenset[BucketPlace] = frozenset()
    return SideChanges(
        changed=frozenset({*changed, *deleted_in}),
        only_added=nothing,
        added=(),
        as_committed=nothing,
        bucket_counts=bucket_counts([*old, *new]),
    )


def bucket_counts(entries: Iterable[ManifestEntry]) -> frozenset[tuple[bytes, int]]:
    """The partitions of files with the bucket counts of their files."""
    return frozenset((each.partition, each.total_buckets) for each in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """The ways of merging that a table's options allow."""

    has_key: bool  # rows replace each other
    adds: bool  # rows of added files are visible at once
    is_first: bool  # main has the branch's files of the common state under the same names
    force: bool  # where nothing else is possible, the branch's state wins


def outcomes(main: SideChanges, branch: SideChanges, rules: TableRules) -> Mapping[BucketPlace, MergeOutcome]:
    """The outcome for each bucket that the branch changed; all others are kept."""
    return {place: _outcome(place, main, branch, rules) for place in branch.changed}


def _outcome(place: BucketPlace, main: SideChanges, branch: SideChanges, rules: TableRules) -> MergeOutcome:
    can_add = rules.adds and place in branch.only_added
    if place not in main.changed:
        return MergeOutcome.ADD if can_add else MergeOutcome.TAKE
    if rules.has_key and place[1] >= 0:
        return MergeOutcome.KEYS
    if not rules.has_key and can_add and place in main.only_added:
        return MergeOutcome.ADD
    if not rules.has_key and rules.is_first and place in main.as_committed and place in branch.as_committed:
        return MergeOutcome.FILES
    return MergeOutcome.TAKE if rules.force and not rules.has_key else MergeOutcome.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChange:
    """Removed and added files of a bucket of main."""

    removed: tuple[ManifestEntry, ...] = ()
    added: tuple[ManifestEntry, ...] = ()
    deletes_rows: bool = False  # rows of files of both sides were deleted on the branch
    total_buckets: int

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.removed or self.added or self.deletes_rows)


def place_change(
    outcome: MergeOutcome,
    *,
    base: Sequence[ManifestEntry],
    main: Sequence[ManifestEntry],
    branch: Sequence[ManifestEntry],
    added: Sequence[ManifestEntry],
    deletes_rows: bool,
) -> PlaceChange:
    """Removed and added files of a bucket.

    Args:
        outcome: by files: not ``KEYS``.
        base: files of the bucket in the common state.
        main: live files of main.
        branch: live files of the branch.
        added: files added by the branch's commits, for ``ADD``.
        deletes_rows: whether deletion vectors of the branch differ from those of main.
    """
    total = next(each.total_buckets for each in (*branch, *main, *base))
    if outcome is MergeOutcome.ADD:
        return PlaceChange(added=tuple(added), total_buckets=total)
    if outcome is MergeOutcome.TAKE:
        kept = _identities(main) & _identities(branch)
        return PlaceChange(
            removed=tuple(each for each in main if each.identity not in kept),
            added=tuple(each for each in branch if each.identity not in kept),
            deletes_rows=deletes_rows,
            total_buckets=total,
        )
    before, after = _identities(base), _identities(branch)
    return PlaceChange(
        removed=tuple(each for each in main if each.identity in before - after),
        added=tuple(each for each in branch if each.identity not in before),
        deletes_rows=deletes_rows,
        total_buckets=total,
    )


def by_place(entries: Iterable[ManifestEntry]) -> dict[BucketPlace, list[ManifestEntry]]:
    """Entries by bucket."""
    found: defaultdict[BucketPlace, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket].append(entry)
    return dict(found)


def _identities(entries: Sequence[ManifestEntry] | None) -> set[object]:
    return {entry.identity for entry in entries or ()}
