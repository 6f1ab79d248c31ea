"""Dynamic buckets (``bucket=-1`` of a table with a key): a key stays in the bucket that it was first put in.

Buckets are filled one after the other up to ``dynamic-bucket.target-row-num`` keys. The keys of a bucket are in an
index file: the hash of every key, 4 bytes each, big-endian. Two keys with one hash share a bucket. A bucket's hashes
are in memory while they are searched, so memory does not grow with the number of buckets, but with the keys that are
new in a commit. One writer at a time assigns keys of a partition: the commit of a second one is refused.

Source: Paimon HashIndexFile and PartitionIndex.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from filestore.index.index_manifest import HASH
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.live_files import BucketKey
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError

KeyHashes = NDArray[np.int32]
"""Of keys, ascending and each once."""

_CACHE_BYTES: Final = 64 << 20
_HASH_BYTES: Final = 4
_NONE: Final[KeyHashes] = np.zeros(0, np.int32)


@dataclass(slots=True)
class _Bucket:
    entry: IndexManifestEntry | None = None  # of the hashes of earlier commits
    new: KeyHashes = field(default_factory=lambda: _NONE)  # of this one

    @property
    def key_count(self) -> int:
        return len(self.new) + (self.entry.row_count if self.entry else 0)


class BucketAssigner:
    """Assigns keys to buckets, and writes index files of the new ones. Not for use by several threads."""

    def __init__(self, store: TableStore, index: Iterable[IndexManifestEntry]) -> None:
        """``index``: the index files of the snapshot that the rows will follow."""
        self._table = store
        self._buckets: dict[bytes, dict[int, _Bucket]] = {}
        self._cache: OrderedDict[str, KeyHashes] = OrderedDict()  # by index file
        self._written: list[IndexManifestEntry] = []  # not handed over to a committer yet
        for entry in index:
            if entry.index_type == HASH:
                self._buckets.setdefault(entry.partition, {})[entry.bucket] = _Bucket(entry)

    def assign(self, partition: bytes, hashes: NDArray[np.int32]) -> NDArray[np.int64]:
        """(n,) the bucket of each key.

        Args:
            partition: of all of them.
            hashes: (n,) of the keys, in any order.
        """
        keys, places = np.unique(hashes, return_inverse=True)
        found = np.full(len(keys), -1, np.int64)
        buckets = self._buckets.setdefault(partition, {})
        for number, bucket in buckets.items():
            unknown = np.flatnonzero(found < 0)
            if not len(unknown):
                break
            for known in (bucket.new, self._hashes(bucket.entry)):
                found[unknown[_are_in(keys[unknown], known)]] = number
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            counts = {number: bucket.key_count for number, bucket in buckets.items()}
            found[unknown] = self._spread(counts, len(unknown))
            for number in np.unique(found[unknown]).tolist():
                bucket = buckets.setdefault(number, _Bucket())
                bucket.new = np.union1d(bucket.new, keys[unknown[found[unknown] == number]])
        return found[places]

    def with_index(self, message: CommitMessage) -> CommitMessage:
        """The message of a bucket with its new index file, where it got new keys; from now on these are known."""
        bucket = self._buckets.get(message.partition, {}).get(message.bucket)
        if bucket is None or not len(bucket.new):
            return message
        before = bucket.entry
        entry = self._write(BucketKey(message.partition, message.bucket), np.union1d(self._hashes(before), bucket.new))
        self._written.append(entry)
        bucket.entry, bucket.new = entry, _NONE
        return _replaced(message, before, entry)

    def hand_over(self) -> None:
        """From now on the committer deletes the files written so far."""
        self._written.clear()

    def abort(self) -> None:
        """Delete the files that were not handed over."""
        for entry in self._written:
            with suppress(FluvialError, OSError):  # an orphan costs space only
                self._table.io.delete(self._table.paths.index(entry.file_name))
        self._written.clear()

    def _spread(self, counts: Mapping[int, int], key_count: int) -> NDArray[np.int64]:
        options = self._table.options
        return spread(
            counts,
            key_count,
            target=options.dynamic_bucket_target_row_num,
            initial=options.dynamic_bucket_initial_buckets or 1,
            most=options.dynamic_bucket_max_buckets,
        )

    def _hashes(self, entry: IndexManifestEntry | None) -> KeyHashes:
        if entry is None:
            return _NONE
        if entry.file_name in self._cache:
            self._cache.move_to_end(entry.file_name)
            return self._cache[entry.file_name]
        path = self._table.index_path(entry)
        body = self._table.io.read_bytes(path)
        if len(body) != entry.row_count * _HASH_BYTES:
            raise CorruptDataError(
                f"index of a dynamic bucket is broken: path={path} size_bytes={len(body)} keys={entry.row_count}"
            )
        hashes = np.unique(np.frombuffer(body, ">i4").astype(np.int32))
        self._cache[entry.file_name] = hashes
        while len(self._cache) > 1 and sum(each.nbytes for each in self._cache.values()) > _CACHE_BYTES:
            self._cache.popitem(last=False)
        return hashes

    def _write(self, key: BucketKey, hashes: KeyHashes) -> IndexManifestEntry:
        table = self._table
        name = f"index-{table.names.uuid()}-0"
        body = hashes.astype(">i4").tobytes()
        table.io.write_new(table.paths.index(name), body)
        return IndexManifestEntry(
            kind=EntryKind.ADD,
            partition=key.partition,
            bucket=key.bucket,
            index_type=HASH,
            file_name=name,
            size_bytes=len(body),
            row_count=len(hashes),
        )


def spread(counts: Mapping[int, int], key_count: int, *, target: int, initial: int, most: int) -> NDArray[np.int64]:
    """(key_count,) buckets for new keys: those with room first, then further ones.

    Args:
        counts: keys of each bucket.
        key_count: how many need one.
        target: keys at which a bucket is full.
        initial: buckets that an empty partition begins with; they are filled evenly.
        most: buckets there may be, -1: any number; once all are full, keys go to them in turn.
    """
    counts = dict(counts)
    first = initial if most < 0 else min(initial, most)
    parts: list[NDArray[np.int64]] = []
    if not counts and first > 1:
        even = min(key_count, first * target)
        parts.append(np.arange(even, dtype=np.int64) % first)
        counts = dict.fromkeys(range(first), target)
        key_count -= even
    number = 0
    while key_count > 0:
        if 0 <= most <= number:
            parts.append(np.arange(key_count, dtype=np.int64) % most)
            break
        taken = min(max(target - counts.get(number, 0), 0), key_count)
        parts.append(np.full(taken, number, np.int64))
        key_count -= taken
        number += 1
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _are_in(keys: KeyHashes, known: KeyHashes) -> NDArray[np.bool_]:
    """(n,) which of some ascending hashes are among others."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == keys
    return found


def _replaced(message: CommitMessage, before: IndexManifestEntry | None, after: IndexManifestEntry) -> CommitMessage:
    gone: Sequence[IndexManifestEntry] = () if before is None else (before,)
    return replace(message, index_before=(*message.index_before, *gone), index_after=(*message.index_after, after))
