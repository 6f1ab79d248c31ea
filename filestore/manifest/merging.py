"""Merging of manifests, so that planning a scan does not read one manifest per commit.

``plan_merge`` decides, ``merge_manifests`` executes it with a given reader and writer. Rewritten entries are copied
verbatim. The result is chronological: an ADD never follows its DELETE, as old readers require. Source:
Paimon ManifestFileMerger, with one change: see ``_newest_tier``.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import ManifestFileMeta


class Mergeable(Protocol):
    """An entry, or what stands for one."""

    @property
    def kind(self) -> EntryKind:
        """Whether it adds or deletes a file."""

    @property
    def identity(self) -> Hashable:
        """The key that matches a DELETE with its ADD."""


AnyEntry = TypeVar("AnyEntry", bound=Mergeable)
Read = Callable[[ManifestFileMeta], Sequence[AnyEntry]]
Write = Callable[[Sequence[AnyEntry]], ManifestFileMeta]

_TIER_RATIO = 2  # an older manifest joins a merge when it is at most this many times the bytes of the newer ones


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Merge triggers; the defaults are Paimon's."""

    target_bytes: int = 8 << 20
    min_count: int = 30
    full_threshold_bytes: int = 16 << 20

    def is_small(self, manifest: ManifestFileMeta) -> bool:
        """Whether the manifest is worth merging.

        Half the target, because outputs are split by an estimate and one of 7.9 MB must not be rewritten with every
        commit.
        """
        return manifest.size_bytes < self.target_bytes // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The kept manifests, and the rewritten ones that follow them, both chronological."""

    kept: tuple[ManifestFileMeta, ...]
    rewritten: tuple[ManifestFileMeta, ...] = ()
    drops_deletes: bool = False  # full merge: no DELETE remains


def plan_merge(manifests: Sequence[ManifestFileMeta], limits: MergeLimits) -> MergePlan:
    """Decide which manifests to rewrite before they become a base list.

    Args:
        manifests: chronological: the previous base list, then the previous delta list.
        limits: target size and triggers.
    """
    wasteful_bytes = sum(each.size_bytes for each in manifests if _is_wasteful(each, limits))
    if wasteful_bytes >= limits.full_threshold_bytes:
        return MergePlan(kept=(), rewritten=tuple(manifests), drops_deletes=True)
    tail = len(manifests)
    while tail > 0 and limits.is_small(manifests[tail - 1]):
        tail -= 1
    if len(manifests) - tail < max(2, limits.min_count):
        return MergePlan(kept=tuple(manifests))
    first = tail + _newest_tier([each.size_bytes for each in manifests[tail:]])
    return MergePlan(kept=tuple(manifests[:first]), rewritten=tuple(manifests[first:]))


def _newest_tier(sizes: Sequence[int]) -> int:
    """Index of the first manifest to merge, at least two from the end.

    Paimon merges the whole tail every time, so that a manifest of 7 MB is rewritten with every thirtieth commit. Taking
    only older ones not much larger than the newer ones rewrites each entry a logarithmic number of times, which
    keeps commit latency even.
    """
    first = len(sizes) - 1
    taken_bytes = sizes[first]
    while first > 0 and (first == len(sizes) - 1 or sizes[first - 1] <= _TIER_RATIO * taken_bytes):
        first -= 1
        taken_bytes += sizes[first]
    return first


def cancel_pairs(entries: Iterable[AnyEntry]) -> list[AnyEntry]:
    """The entries without ADDs cancelled by a later DELETE; other DELETEs remain."""
    left: dict[tuple[EntryKind, object], AnyEntry] = {}
    for entry in entries:
        added = (EntryKind.ADD, entry.identity)
        if entry.kind is EntryKind.DELETE and added in left:
            del left[added]
        else:
            left[entry.kind, entry.identity] = entry
    return list(left.values())


def merge_manifests(
    manifests: Sequence[ManifestFileMeta], limits: MergeLimits, *, read: Read[AnyEntry], write: Write[AnyEntry]
) -> list[ManifestFileMeta]:
    """Merge manifests into a base list with the same live files.

    Args:
        manifests: chronological.
        limits: target size and triggers.
        read: reads the entries of a manifest, in file order.
        write: writes one new manifest file.
    """
    plan = plan_merge(manifests, limits)
    if plan.drops_deletes:
        return _merge_fully(plan.rewritten, limits, read=read, write=write)
    entries = cancel_pairs(entry for each in plan.rewritten for entry in read(each))
    written = [write(chunk) for chunk in _chunks(entries, _entries_per_file(plan.rewritten, limits))]
    return [*plan.kept, *written]


def _merge_fully(
    manifests: Sequence[ManifestFileMeta], limits: MergeLimits, *, read: Read[AnyEntry], write: Write[AnyEntry]
) -> list[ManifestFileMeta]:
    """Rewrite manifests that are small, have deletes or a deleted file; holds one manifest at a time in memory."""
    deleted = {
        entry.identity
        for each in manifests
        if each.deleted_count
        for entry in read(each)
        if entry.kind is EntryKind.DELETE
    }
    kept: list[ManifestFileMeta] = []

    def survivors() -> Iterator[AnyEntry]:
        for each in manifests:
            wasteful = _is_wasteful(each, limits)
            entries = read(each) if deleted or wasteful else ()
            if wasteful or any(entry.identity in deleted for entry in entries):
                yield from (e for e in entries if e.kind is EntryKind.ADD and e.identity not in deleted)
            else:
                kept.append(each)

    written = [write(chunk) for chunk in _chunks(survivors(), _entries_per_file(manifests, limits))]
    return [*kept, *written]


def _is_wasteful(manifest: ManifestFileMeta, limits: MergeLimits) -> bool:
    return manifest.deleted_count > 0 or limits.is_small(manifest)


def _entries_per_file(manifests: Sequence[ManifestFileMeta], limits: MergeLimits) -> int:
    entries = sum(each.added_count + each.deleted_count for each in manifests)
    size_bytes = sum(each.size_bytes for each in manifests)
    return max(1, entries * limits.target_bytes // max(1, size_bytes))


def _chunks(entries: Iterable[AnyEntry], length: int) -> Iterator[list[AnyEntry]]:
    chunk: list[AnyEntry] = []
    for entry in entries:
        chunk.append(entry)
        if len(chunk) >= length:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
