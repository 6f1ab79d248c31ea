import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.format.simple_stats import EMPTY_STATS
from filestore.manifest.entries import EntryKind, ManifestEntry, live_entries
from filestore.manifest.lists import ManifestFileMeta
from filestore.manifest.merging import MergeLimits, cancel_pairs, merge_manifests, plan_merge
from tests.support.entries import add, delete, file

ENTRY_BYTES = 10
LIMITS = MergeLimits(target_bytes=1000, min_count=4, full_threshold_bytes=2000)


class Manifests:
    """Manifests in memory, ten bytes per entry."""

    def __init__(self) -> None:
        self.entries: dict[str, list[ManifestEntry]] = {}
        self.written_entries = 0

    def write(self, entries: Sequence[ManifestEntry]) -> ManifestFileMeta:
        name = f"m{len(self.entries)}"
        self.entries[name] = list(entries)
        self.written_entries += len(entries)
        added = sum(entry.kind is EntryKind.ADD for entry in entries)
        return ManifestFileMeta(
            file_name=name,
            size_bytes=ENTRY_BYTES * len(entries),
            added_count=added,
            deleted_count=len(entries) - added,
            partition_stats=EMPTY_STATS,
            schema_id=0,
        )

    def read(self, manifest: ManifestFileMeta) -> list[ManifestEntry]:
        return self.entries[manifest.file_name]

    def all(self, manifests: Sequence[ManifestFileMeta]) -> list[ManifestEntry]:
        return [entry for each in manifests for entry in self.read(each)]


def sized(*sizes: int) -> list[ManifestFileMeta]:
    manifests = Manifests()
    return [
        manifests.write([add(file(f"{index}-{n}")) for n in range(size // ENTRY_BYTES)])
        for index, size in enumerate(sizes)
    ]


def test_few_small_manifests_stay() -> None:
    plan = plan_merge(sized(20, 20, 20), LIMITS)
    assert (len(plan.kept), plan.rewritten) == (3, ())


def test_many_small_manifests_become_one() -> None:
    plan = plan_merge(sized(900, 20, 20, 20, 20), LIMITS)
    assert [each.size_bytes for each in plan.kept] == [900]
    assert len(plan.rewritten) == 4


def test_an_old_larger_manifest_is_left_alone_until_the_newer_ones_outweigh_it() -> None:
    assert [m.size_bytes for m in plan_merge(sized(400, 20, 20, 20), LIMITS).kept] == [400]
    assert plan_merge(sized(400, 80, 80, 80), LIMITS).kept == ()


def test_much_waste_is_cleaned_up_at_once() -> None:
    plan = plan_merge(sized(*[490] * 5), LIMITS)
    assert plan.drops_deletes


def test_manifests_of_about_the_target_size_are_not_rewritten_with_every_commit() -> None:
    plan = plan_merge(sized(990, 980, 970, 950), LIMITS)
    assert (len(plan.kept), plan.rewritten, plan.drops_deletes) == (4, (), False)


def test_a_delete_whose_add_is_older_stays() -> None:
    a, b = file("a"), file("b")
    assert cancel_pairs([delete(a), add(b), delete(b)]) == [delete(a)]
    moved = file("a", level=5)
    assert cancel_pairs([add(a), delete(a), add(moved)]) == [add(moved)]


def history(seed: int, commits: int) -> list[list[ManifestEntry]]:
    """What commits add and delete: appends of a few files and compactions of some live ones."""
    rng = random.Random(seed)
    live: list[ManifestEntry] = []
    changes = []
    for commit in range(commits):
        if live and rng.random() < 0.3:
            gone = rng.sample(live, rng.randint(1, len(live)))
            added = [add(file(f"c{commit}", level=rng.choice([0, 5])))]
            changes.append([*(delete(each.file) for each in gone), *added])
            live = [each for each in live if each not in gone] + added
        else:
            added = [add(file(f"f{commit}-{n}")) for n in range(rng.randint(1, 6))]
            changes.append(list(added))
            live += added
    return changes


@pytest.mark.sweep
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), min_count=st.integers(1, 6), full=st.sampled_from([100, 400, 10_000]))
def test_merging_never_changes_the_live_files_and_keeps_time_order(seed: int, min_count: int, full: int) -> None:
    limits = MergeLimits(target_bytes=200, min_count=min_count, full_threshold_bytes=full)
    store = Manifests()
    manifests: list[ManifestFileMeta] = []
    plain: list[ManifestEntry] = []
    for change in history(seed, 40):
        manifests = merge_manifests(manifests, limits, read=store.read, write=store.write)
        manifests.append(store.write(change))
        plain += change
        found = store.all(manifests)
        assert {e.identity for e in live_entries(found)} == {e.identity for e in live_entries(plain)}
        seen: set[object] = set()
        for entry in found:
            if entry.kind is EntryKind.DELETE:
                assert entry.identity in seen, "a DELETE stands before its ADD"
            seen.add(entry.identity)
        assert len(manifests) <= max(2, min_count) + 2 + sum(m.size_bytes for m in manifests) // 80


@pytest.mark.sweep
@pytest.mark.parametrize("commits", [300, 1200])
def test_an_entry_is_rewritten_a_few_times_however_long_the_history(commits: int) -> None:
    limits = MergeLimits(target_bytes=100_000, min_count=30, full_threshold_bytes=10**9)
    store = Manifests()
    manifests: list[ManifestFileMeta] = []
    for commit in range(commits):
        manifests = merge_manifests(manifests, limits, read=store.read, write=store.write)
        manifests.append(store.write([add(file(f"f{commit}-{n}")) for n in range(5)]))
    assert store.written_entries <= 5 * commits * 5
    assert len(manifests) <= 45
