"""Decides how a merge of two histories treats each bucket: pure functions over manifest entries.

Both sides start from one common snapshot. A bucket with rows changed by one side gets that side's state.
Compactions change no rows, so they are ignored.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChanges:
    """The changes of one side since the common snapshot, or since the last merge."""

    changed: frozenset[BucketPlace]  # buckets with possibly changed rows
    only_added: frozenset[BucketPlace]  # of these: buckets where files were only added
    added: tuple[ManifestEntry, ...]  # files added by data commits
    bucket_counts: frozenset[tuple[bytes, int]]  # partitions with the bucket counts of their files


class MergeOutcome(Enum):
    """How a merge treats a bucket of main."""

    KEEP = "keep"  # keep main's state
    TAKE = "take"  # take the branch's state
    UNITE = "unite"  # add the new files of both sides
    CONFLICT = "conflict"


def side_changes(commits: Iterable[MergeCommit]) -> SideChanges:
    """The changes of a gapless history of commits."""
    changed: set[BucketPlace] = set()
    removed: set[BucketPlace] = set()
    added: list[ManifestEntry] = []
    counts: set[tuple[bytes, int]] = set()
    for commit in commits:
        counts |= bucket_counts(commit.entries)
        if commit.kind in _DATA_KINDS:
            changed |= {(each.partition, each.bucket) for each in commit.entries}
            removed |= {(each.partition, each.bucket) for each in commit.entries if each.kind is EntryKind.DELETE}
            added += [each for each in commit.entries if each.kind is EntryKind.ADD]
    return SideChanges(
        changed=frozenset(changed),
        only_added=frozenset(changed - removed),
        added=tuple(added),
        bucket_counts=frozenset(counts),
    )


def unknown_changes(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> SideChanges:
    """Possible changes when commits between two states have expired: all buckets with different files."""
    old, new = list(before), list(after)
    one, two = _by_place(old), _by_place(new)
    changed = {place for place in {*one, *two} if _identities(one.get(place)) != _identities(two.get(place))}
    return SideChanges(
        changed=frozenset(changed), only_added=frozenset(), added=(), bucket_counts=bucket_counts([*old, *new])
    )


def bucket_counts(entries: Iterable[ManifestEntry]) -> frozenset[tuple[bytes, int]]:
    """The partitions of files with the bucket counts of their files."""
    return frozenset((each.partition, each.total_buckets) for each in entries)


def outcomes(
    main: SideChanges, branch: SideChanges, *, can_unite: bool, force: bool
) -> Mapping[BucketPlace, MergeOutcome]:
    """The outcome for each bucket that the branch changed; all others are kept.

    Args:
        main: changes of main.
        branch: changes of the branch.
        can_unite: rows do not replace each other, so that a bucket can hold new files of both sides.
        force: where both changed, the branch wins.
    """
    found = {}
    for place in branch.changed:
        if place not in main.changed:
            found[place] = MergeOutcome.TAKE
        elif can_unite and place in main.only_added and place in branch.only_added:
            found[place] = MergeOutcome.UNITE
        else:
            found[place] = MergeOutcome.TAKE if force else MergeOutcome.CONFLICT
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceChange:
    """Removed and added files of a bucket of main."""

    removed: tuple[ManifestEntry, ...]
    added: tuple[ManifestEntry, ...]


def place_changes(
    decided: Mapping[BucketPlace, MergeOutcome],
    *,
    main: Collection[ManifestEntry],
    branch: Collection[ManifestEntry],
    added: Iterable[ManifestEntry],
) -> Mapping[BucketPlace, PlaceChange]:
    """Removed and added files by bucket; unchanged buckets are omitted.

    Args:
        decided: result of ``outcomes``.
        main: live files of main, at least of these buckets.
        branch: live files of the branch, at least of these buckets.
        added: files added by the branch's commits, for ``UNITE``.
    """
    main_files, branch_files, new = _by_place(main), _by_place(branch), _by_place(added)
    found = {}
    for place, outcome in decided.items():
        here, there = main_files.get(place, []), branch_files.get(place, [])
        if outcome is MergeOutcome.TAKE:
            kept = _identities(here) & _identities(there)
            removed = tuple(each for each in here if each.identity not in kept)
            come = tuple(each for each in there if each.identity not in kept)
        elif outcome is MergeOutcome.UNITE:
            removed, come = (), tuple(new.get(place, []))
        else:
            continue
        if removed or come:
            found[place] = PlaceChange(removed=removed, added=come)
    return found


def _by_place(entries: Iterable[ManifestEntry]) -> dict[BucketPlace, list[ManifestEntry]]:
    found: defaultdict[BucketPlace, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket].append(entry)
    return found


def _identities(entries: Sequence[ManifestEntry] | None) -> set[object]:
    return {entry.identity for entry in entries or ()}
