"""What a merge of two histories makes of each bucket: pure functions over manifest entries.

Two sides went on from one common snapshot. A bucket whose rows only one side changed is as that side left it.
Compactions change no rows, so they do not count. BR-15; users-ask.md idea 11.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.snapshot.snapshot import CommitKind

BucketPlace = tuple[bytes, int]
"""Partition, and bucket."""

_DATA_KINDS = frozenset({CommitKind.APPEND, CommitKind.OVERWRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCommit:
    """What one snapshot did."""

    kind: CommitKind
    entries: Sequence[ManifestEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class SideChanges:
    """What one side did since the common snapshot, or since the last merge."""

    changed: frozenset[BucketPlace]  # whose rows may differ
    only_added: frozenset[BucketPlace]  # of these: all that happened is that files were added
    added: tuple[ManifestEntry, ...]  # files of data commits, as they were added
    bucket_counts: frozenset[tuple[bytes, int]]  # partitions, and the numbers of buckets that their files were made for


class MergeOutcome(Enum):
    """What becomes of a bucket of main."""

    KEEP = "keep"  # as main has it
    TAKE = "take"  # as the branch has it
    UNITE = "unite"  # both sides' new files
    CONFLICT = "conflict"


def side_changes(commits: Iterable[MergeCommit]) -> SideChanges:
    """What a gapless history of commits changed."""
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
    """What may have changed when commits between two states have expired: all buckets whose files differ."""
    old, new = list(before), list(after)
    one, two = _by_place(old), _by_place(new)
    changed = {place for place in {*one, *two} if _identities(one.get(place)) != _identities(two.get(place))}
    return SideChanges(
        changed=frozenset(changed), only_added=frozenset(), added=(), bucket_counts=bucket_counts([*old, *new])
    )


def bucket_counts(entries: Iterable[ManifestEntry]) -> frozenset[tuple[bytes, int]]:
    """The partitions of files, each with the numbers of buckets that its files were made for."""
    return frozenset((each.partition, each.total_buckets) for each in entries)


def outcomes(
    main: SideChanges, branch: SideChanges, *, can_unite: bool, force: bool
) -> Mapping[BucketPlace, MergeOutcome]:
    """What becomes of each bucket that the branch changed; all others are kept.

    Args:
        main: what main did.
        branch: what the branch did.
        can_unite: rows do not replace each other, so that new files of both sides can be in one bucket.
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
    """Files to take out of a bucket of main and to put in."""

    gone: tuple[ManifestEntry, ...]
    come: tuple[ManifestEntry, ...]


def place_changes(
    decided: Mapping[BucketPlace, MergeOutcome],
    *,
    main: Collection[ManifestEntry],
    branch: Collection[ManifestEntry],
    added: Iterable[ManifestEntry],
) -> Mapping[BucketPlace, PlaceChange]:
    """The files that go and come; buckets for which there is nothing to do are left out.

    Args:
        decided: see ``outcomes``.
        main: live files of main, at least of these buckets.
        branch: live files of the branch, likewise.
        added: what the branch's commits added, to unite.
    """
    ours, theirs, new = _by_place(main), _by_place(branch), _by_place(added)
    found = {}
    for place, outcome in decided.items():
        here, there = ours.get(place, []), theirs.get(place, [])
        if outcome is MergeOutcome.TAKE:
            kept = _identities(here) & _identities(there)
            gone = tuple(each for each in here if each.identity not in kept)
            come = tuple(each for each in there if each.identity not in kept)
        elif outcome is MergeOutcome.UNITE:
            gone, come = (), tuple(new.get(place, []))
        else:
            continue
        if gone or come:
            found[place] = PlaceChange(gone=gone, come=come)
    return found


def _by_place(entries: Iterable[ManifestEntry]) -> dict[BucketPlace, list[ManifestEntry]]:
    found: defaultdict[BucketPlace, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        found[entry.partition, entry.bucket].append(entry)
    return found


def _identities(entries: Sequence[ManifestEntry] | None) -> set[object]:
    return {entry.identity for entry in entries or ()}
