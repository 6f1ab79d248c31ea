"""The live files of a plan by bucket, on columns: their order, and which buckets hold nothing to merge."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.manifest.entry_columns import ByteSpans, EntryColumns
from filestore.manifest.live_rows import ChosenEntries
from filestore.table_store import TableStore
from lsm.keys.words import BoolArray, IndexArray


class PlannedBucket(NamedTuple):
    """The bucket of the files of one group."""

    partition: bytes
    bucket: int
    total_buckets: int  # of the first file


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroups:
    """Files by bucket: groups in the order of their first file, each in the order in which it is packed."""

    places: Sequence[PlannedBucket]
    ends: IndexArray  # (g,) behind the last file of each group, in ``order``
    order: IndexArray  # (n,) places of files, counted through all parts
    sizes: NDArray[np.int64]  # (n,) bytes, in this order
    firsts: IndexArray  # (n,) of files that are merged with others, first keys as numbers in key order
    lasts: IndexArray
    is_plain: BoolArray  # (g,) no key is in two files, and none holds deletes


def grouped_files(store: TableStore, parts: Sequence[ChosenEntries], *, merges: bool) -> FileGroups:
    """Group the files of a snapshot.

    Args:
        store: the table.
        parts: at least one file.
        merges: files of a bucket that share keys are merged, so they are in key order; else in that of their numbers.
    """
    places, groups = _groups(parts)
    counts = np.bincount(groups)
    firsts, lasts = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    if merges:
        shared = np.flatnonzero(counts[groups] > 1)
        firsts[shared], lasts[shared] = _ranks(store, parts, shared)
        order = np.lexsort((firsts, groups))  # files with the same first key overlap, in any order
        span = int(lasts.max()) + 1
        reach = np.maximum.accumulate(groups[order] * span + lasts[order])
        overlaps = np.append(False, groups[order][1:] * span + firsts[order][1:] <= reach[:-1])
        has_deletes = ~_numbers(parts, lambda each: each.has_no_deletes)[order]
        is_plain = np.bincount(groups[order], overlaps | has_deletes) == 0
    else:
        ordered = pa.table(
            {
                "group": groups,
                "number": _numbers(parts, lambda each: each.min_sequence_numbers),
                "name": _texts(parts, lambda each: each.names),
            }
        )
        keys = [(name, "ascending") for name in ordered.column_names]
        order = pc.sort_indices(ordered, sort_keys=keys).to_numpy().astype(np.int64)
        is_plain = np.ones(len(places), np.bool_)
    sizes = _numbers(parts, lambda each: each.sizes)[order]
    return FileGroups(
        places=places,
        ends=np.cumsum(counts),
        order=order,
        sizes=sizes,
        firsts=firsts[order],
        lasts=lasts[order],
        is_plain=is_plain,
    )


def _groups(parts: Sequence[ChosenEntries]) -> tuple[list[PlannedBucket], IndexArray]:
    """The buckets in the order of their first files, and the index of each file's."""
    known: dict[bytes, int] = {}
    codes = []
    for each in parts:
        own = np.array([known.setdefault(value, len(known)) for value in each.columns.partitions], np.int64)
        codes.append(own[each.columns.partition_codes[each.rows]])
    buckets = _numbers(parts, lambda each: each.buckets)
    keys = np.concatenate(codes) << 32 | buckets.astype(np.int64) & 0xFFFFFFFF
    _, firsts, groups = np.unique(keys, return_index=True, return_inverse=True)
    by_first = np.argsort(firsts)
    ranks = np.empty(len(firsts), np.int64)
    ranks[by_first] = np.arange(len(firsts))
    partitions = [*known]
    chosen = firsts[by_first]
    totals = _numbers(parts, lambda each: each.total_buckets)[chosen].tolist()
    named = zip((keys[chosen] >> 32).tolist(), buckets[chosen].tolist(), totals, strict=True)
    return [PlannedBucket(partitions[code], bucket, total) for code, bucket, total in named], ranks[groups]


def _ranks(store: TableStore, parts: Sequence[ChosenEntries], rows: IndexArray) -> tuple[IndexArray, IndexArray]:
    """The first and the last keys of some files as numbers in key order."""
    if not len(rows):
        return rows, rows
    firsts = _texts(parts, lambda each: each.first_keys).take(pa.array(rows))
    lasts = _texts(parts, lambda each: each.last_keys).take(pa.array(rows))
    ranks = store.key_ranks(pa.concat_arrays([firsts, lasts]))
    return ranks[: len(rows)], ranks[len(rows) :]


def _numbers(parts: Sequence[ChosenEntries], column: Callable[[EntryColumns], NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([column(each.columns)[each.rows] for each in parts])


def _texts(parts: Sequence[ChosenEntries], column: Callable[[EntryColumns], ByteSpans]) -> pa.LargeBinaryArray:
    return pa.concat_arrays([each.columns.texts(column(each.columns), each.rows) for each in parts])
