"""Which entries of several manifests are live, decided on columns: ``entries.live_entries`` for many entries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filestore.manifest.entries import EntryKind, ManifestEntry
from filestore.manifest.entry_building import entries_at
from filestore.manifest.entry_columns import EntryColumns
from lsm.errors import CorruptDataError
from lsm.keys.words import BoolArray, IndexArray


@dataclass(frozen=True, slots=True)
class ChosenEntries:
    """Some entries of one manifest, in file order."""

    columns: EntryColumns
    rows: IndexArray

    def __len__(self) -> int:
        return len(self.rows)

    def entries(self) -> list[ManifestEntry]:
        """They as objects."""
        return entries_at(self.columns, self.rows)

    def where(self, is_kept: BoolArray) -> "ChosenEntries":
        """Those with a mark, (n,)."""
        return self if is_kept.all() else ChosenEntries(self.columns, self.rows[is_kept])


def chosen_rows(
    columns: EntryColumns,
    *,
    keep_partition: Callable[[bytes], bool],
    keep_bucket: Callable[[int, int], bool] | None,
    min_level: int,
) -> ChosenEntries:
    """The entries of some partitions, buckets and levels; each function is asked once for a value."""
    kept = np.fromiter(map(keep_partition, columns.partitions), np.bool_, len(columns.partitions))
    if not kept.any():
        return ChosenEntries(columns, np.zeros(0, np.int64))
    mask = np.ones(len(columns), np.bool_) if kept.all() else kept[columns.partition_codes]
    if min_level > 0:
        mask &= columns.levels >= min_level
    if keep_bucket is not None:
        places = columns.buckets.astype(np.int64) << 32 | columns.total_buckets.astype(np.int64) & 0xFFFFFFFF
        distinct, codes = np.unique(places, return_inverse=True)
        buckets = zip((distinct >> 32).tolist(), distinct.astype(np.int32).tolist(), strict=True)
        mask &= np.array([keep_bucket(*each) for each in buckets], np.bool_)[codes]
    return ChosenEntries(columns, np.flatnonzero(mask))


def live_rows(given: Sequence[ChosenEntries]) -> list[ChosenEntries]:
    """The ADDs without a matching DELETE, in order; see ``entries.live_entries``.

    Raises: CorruptDataError when a live file was added twice: its rows would be read twice.
    """
    parts = [each for each in given if len(each)]
    if not parts:
        return []
    kinds = np.concatenate([each.columns.kinds[each.rows] for each in parts])
    is_added = kinds == EntryKind.ADD
    is_live = is_added.copy()
    names = pa.chunked_array([each.columns.texts(each.columns.names, each.rows) for each in parts])
    codes = _codes(names)
    repeated = (np.bincount(codes) > 1)[codes]
    if repeated.any():
        groups = _identities(parts, codes, np.flatnonzero(repeated))
        added = np.bincount(groups, is_added[repeated])
        deleted = np.bincount(groups, ~is_added[repeated])
        twice = np.flatnonzero(((added > 1) & (deleted == 0))[groups])
        if len(twice):
            name = min(names.take(np.flatnonzero(repeated)[twice]).to_pylist())
            raise CorruptDataError(f"data file was added twice: file={name.decode()}")
        # an ADD repeated before its DELETE is not live either: live ones are alone
        is_live[repeated] &= (deleted == 0)[groups]
    ends = np.cumsum([len(each) for each in parts])
    return [each.where(is_live[end - len(each) : end]) for each, end in zip(parts, ends, strict=True)]


def _codes(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """A number for each distinct value."""
    indices = values.combine_chunks().dictionary_encode().indices
    return np.asarray(indices, np.int64)


def _identities(parts: Sequence[ChosenEntries], names: NDArray[np.int64], chosen: IndexArray) -> NDArray[np.int64]:
    """A number for each distinct ``ManifestEntry.identity`` among the chosen entries, (k,)."""
    known: dict[bytes, int] = {}
    partitions = []
    for each in parts:
        codes = np.array([known.setdefault(value, len(known)) for value in each.columns.partitions], np.int64)
        partitions.append(codes[each.columns.partition_codes[each.rows]])
    keys = [
        names,
        np.concatenate(partitions),
        np.concatenate([each.columns.buckets[each.rows] for each in parts]),
        np.concatenate([each.columns.levels[each.rows] for each in parts]),
        _rest(parts, chosen, len(names)),
    ]
    groups = np.zeros(len(chosen), np.int64)
    for key in keys:
        _, codes = np.unique(key[chosen], return_inverse=True)
        _, groups = np.unique(groups * (int(codes.max()) + 1) + codes, return_inverse=True)
    return groups


def _rest(parts: Sequence[ChosenEntries], chosen: IndexArray, count: int) -> NDArray[np.int64]:
    """(n,) numbers of what else may differ between the chosen entries; 0 for most."""
    is_chosen = np.zeros(count, np.bool_)
    is_chosen[chosen] = True
    rest = np.zeros(count, np.int64)
    known: dict[object, int] = {((), None, None): 0}
    first = 0
    for each in parts:
        odd = np.flatnonzero(is_chosen[first : first + len(each)] & ~each.columns.is_plain[each.rows])
        for place, entry in zip(odd.tolist(), entries_at(each.columns, each.rows[odd]), strict=True):
            file = entry.file
            rest[first + place] = known.setdefault(
                (file.extra_files, file.embedded_index, file.external_path), len(known)
            )
        first += len(each)
    return rest
