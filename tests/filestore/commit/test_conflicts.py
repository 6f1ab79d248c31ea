import re

import pytest

from filestore.commit.conflicts import bucket_count_conflict, find_conflict, sequence_conflict
from filestore.manifest.entries import ManifestEntry
from filestore.snapshot.snapshot import CommitKind
from filestore.types.binary_row import decode_row
from lsm.keys.keys import KeyTuple
from tests.support.entries import INT, add, delete, file


def key_of(data: bytes) -> KeyTuple:
    return tuple(decode_row(data, (INT,)))


def conflict(
    base: list[ManifestEntry], delta: list[ManifestEntry], kind: CommitKind = CommitKind.COMPACT
) -> str | None:
    return find_conflict(base, delta, kind=kind, key_of=key_of)


A, B, C = file("a"), file("b"), file("c", level=1)


@pytest.mark.parametrize(
    ("base", "delta"),
    [
        ([], [add(A)]),
        ([add(A), add(B)], [delete(A), delete(B), add(C)]),
        ([add(A)], [delete(A), add(file("a", level=5))]),
        ([add(A), delete(A), add(B)], [delete(B), add(C)]),
        ([add(file("x", level=1, keys=(0, 4)))], [add(file("y", level=1, keys=(5, 9)))]),
        ([add(file("x", level=1, keys=(0, 4)))], [add(file("y", level=2, keys=(0, 9)))]),
        ([add(file("x", level=1)), add(A)], [add(file("y", level=1), bucket=1)]),
        ([add(file("x", level=1))], [delete(file("x", level=1)), add(file("y", level=1))]),
    ],
)
def test_what_fits_is_no_conflict(base: list[ManifestEntry], delta: list[ManifestEntry]) -> None:
    assert conflict(base, delta) is None


@pytest.mark.parametrize(
    ("base", "delta", "text"),
    [
        ([add(B)], [delete(A), add(C)], "not live any more: file=a"),
        ([add(A), delete(A)], [delete(A), add(C)], "not live any more: file=a"),
        ([add(A), delete(A), add(file("a", level=5))], [delete(A), add(C)], "not live any more: file=a"),
        ([add(A)], [add(A)], "added twice: file=a"),
        ([], [add(A), add(A)], "added twice: file=a"),
        ([add(file("x", level=1, keys=(0, 5)))], [add(file("y", level=1, keys=(5, 9)))], "overlap: level=1"),
        ([], [add(file("x", level=1)), add(file("y", level=1))], "overlap: level=1"),
        ([add(A, total_buckets=4)], [add(B, total_buckets=2)], "number of buckets .*live=4 commit=2"),
    ],
)
def test_what_does_not_fit_is_named(base: list[ManifestEntry], delta: list[ManifestEntry], text: str) -> None:
    """FL-90, FL-91."""
    reason = conflict(base, delta)
    assert reason is not None
    assert re.search(text, reason)


def test_a_partition_is_rescaled_whole() -> None:
    """FL-84 and paimon-format.md 7.1.1: by an overwrite, or by a compaction that replaces every file of it."""
    delta = [delete(A, total_buckets=4), add(B, total_buckets=2)]
    for kind in (CommitKind.OVERWRITE, CommitKind.COMPACT):
        assert conflict([add(A, total_buckets=4)], delta, kind) is None
    reason = conflict([add(A, total_buckets=4), add(C, total_buckets=4)], delta, CommitKind.COMPACT)
    assert reason is not None
    assert "live=4 commit=2" in reason
    other = [add(A, total_buckets=4, partition=b"\0\0\0\1other")]
    assert bucket_count_conflict(other, [add(B, total_buckets=2)]) is None


@pytest.mark.parametrize(
    ("theirs", "is_conflict"),
    [((0, 9), False), ((5, 10), True), ((10, 20), True), ((30, 40), True)],
)
def test_numbers_at_or_above_ours_are_a_conflict(theirs: tuple[int, int], is_conflict: bool) -> None:
    """Rows numbered higher would win over ours although they were not there when ours were numbered."""
    reason = sequence_conflict([add(file("x", sequence=theirs))], [add(file("y", sequence=(10, 12)))], has_key=True)
    assert (reason is not None) is is_conflict


def test_other_buckets_deletes_and_unbucketed_files_do_not_count() -> None:
    mine = [add(file("y", sequence=(0, 9)))]
    assert sequence_conflict([add(A, bucket=1), delete(B)], mine, has_key=True) is None
    unbucketed = [add(file("y", sequence=(0, 9)), total_buckets=-1)]
    assert sequence_conflict([add(A, total_buckets=-1)], unbucketed, has_key=False) is None
