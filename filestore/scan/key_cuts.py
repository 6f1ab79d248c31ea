"""Divides the key range of overlapping files, so that several tasks merge them.

Any cut is right: all versions of a key are on one side of it. Good ones make ranges of equal bytes and lie where row
groups of large files begin, since a task decodes whole row groups. A cut is a prefix of a key: statistics of a row
group say of its first key only the columns up to the first that changes in it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Final

import pyarrow as pa

from filestore.format.parquet import group_ranges
from filestore.format.statistics import ColumnRange
from filestore.manifest.entries import DataFileMeta
from filestore.scan.key_span import KeySpan, key_bytes
from filestore.table_store import TableStore
from lsm.keys.keys import KeyTuple, comparable
from lsm.row_kind import KEY_PREFIX

_FOOTERS_AT_ONCE: Final = 8
_SMALL_SHARE: Final = 16  # files that are together less than this part of the bytes are not opened
_SLACK: Final = 0.125  # part of a range by which a cut may be off if fewer row groups are around it
_LEAST_RANGE: Final = 4  # times the bytes that the tasks on both sides of a cut decode


@dataclass(frozen=True, slots=True)
class KeyStretch:
    """Rows that follow each other in a file: from where they begin, to where they end, prefixes of keys."""

    low: KeyTuple  # internal values
    high: KeyTuple
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOfFiles:
    """Some keys, and the files that may hold them."""

    files: tuple[DataFileMeta, ...]
    span: KeySpan


def section_ranges(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], *, target_bytes: int
) -> list[RangeOfFiles]:
    """Ranges of keys of files that overlap, in key order; [] when they are better read by one task.

    A range is about as large as the target, or larger where row groups are large: a section of less than one and a
    half is left whole. A file in another format than Parquet is a single row group here.

    Args:
        store: the table.
        partition: BinaryRow bytes.
        bucket: bucket number.
        files: of one section, see ``lsm.levels.sections``.
        target_bytes: of a range.
    """
    total = sum(file.size_bytes for file in files)
    count = round(total / target_bytes)
    if count < 2:
        return []
    stretches = _stretches(store, partition, bucket, files, _large(files, total // _SMALL_SHARE))
    cuts = chosen_cuts(stretches, count)
    return _ranges(store, files, stretches, cuts)


def chosen_cuts(stretches: Sequence[KeyStretch], count: int) -> list[KeyTuple]:
    """At most ``count - 1`` keys, ascending, that cut the stretches into ranges of about equal bytes.

    Each is where a stretch begins; of those near enough the one inside of the fewest bytes of others, which the tasks
    on both sides of it decode. Ranges are at least four times as large as that usually is.
    """
    sums = _Sums(stretches)
    starts = {_order(each.low): each.low for each in stretches}
    keys = sorted(starts)[1:]
    if not keys:
        return []
    before, twice = [sums.before(key) for key in keys], [sums.around(key) for key in keys]
    size = max(sums.total / count, _LEAST_RANGE * median(twice))
    cuts: list[KeyTuple] = []
    first = 0
    for number in range(1, int(sums.total / size + _SLACK)):
        wanted = number * size
        low = bisect_left(before, wanted - size * _SLACK, first)
        high = max(bisect_right(before, wanted + size * _SLACK, low), low + 1)
        near = range(low, min(high, len(keys)))
        if not near:
            break
        place = min(near, key=lambda each: (twice[each], abs(before[each] - wanted)))
        cuts.append(starts[keys[place]])
        first = place + 1
    return cuts


class _Sums:
    """Bytes of stretches on the sides of a key."""

    def __init__(self, stretches: Sequence[KeyStretch]) -> None:
        self._starts = sorted((_order(each.low), each.size_bytes) for each in stretches)
        self._ends = sorted((_order(each.high), each.size_bytes) for each in stretches)
        self._started = [0.0, *accumulate(size for _, size in self._starts)]
        self._ended = [0.0, *accumulate(size for _, size in self._ends)]
        self.total = self._ended[-1]

    def before(self, key: KeyTuple) -> float:
        """Bytes before a key: half of what it is inside of."""
        started, ended = self._counts(key)
        return (started + ended) / 2

    def around(self, key: KeyTuple) -> float:
        """Bytes of the stretches that a key is inside of."""
        started, ended = self._counts(key)
        return started - ended

    def _counts(self, key: KeyTuple) -> tuple[float, float]:
        started = self._started[bisect_left(self._starts, key, key=lambda each: each[0])]
        return started, self._ended[bisect_left(self._ends, key, key=lambda each: each[0])]


def _order(key: KeyTuple) -> KeyTuple:
    return tuple(map(comparable, key))


def _large(files: Sequence[DataFileMeta], spared: int) -> list[DataFileMeta]:
    """The Parquet files without the smallest ones, which are together no larger than ``spared``."""
    ordered = sorted((file for file in files if file.file_name.endswith(".parquet")), key=lambda file: file.size_bytes)
    sums = accumulate(file.size_bytes for file in ordered)
    return [file for file, size in zip(ordered, sums, strict=True) if size > spared]


def _stretches(
    store: TableStore, partition: bytes, bucket: int, files: Sequence[DataFileMeta], large: Sequence[DataFileMeta]
) -> list[KeyStretch]:
    """The row groups of the large files; every other file as a whole."""

    def groups_of(file: DataFileMeta) -> tuple[str, list[KeyStretch]]:
        return file.file_name, _groups(store, store.file_path(partition, bucket, file), file)

    with ThreadPoolExecutor(max(min(_FOOTERS_AT_ONCE, len(large)), 1), thread_name_prefix="fluvial-footers") as pool:
        known: Mapping[str, list[KeyStretch]] = dict(pool.map(groups_of, large))
    return [each for file in files for each in known.get(file.file_name) or [_whole(store, file)]]


def _whole(store: TableStore, file: DataFileMeta) -> KeyStretch:
    low, high = (tuple(store.values_of_key(key)) for key in (file.min_key, file.max_key))
    return KeyStretch(low, high, file.size_bytes)


def _groups(store: TableStore, path: str, file: DataFileMeta) -> list[KeyStretch]:
    """[] where the footer does not say enough: a reader of the rows reports what is wrong with a file."""
    fields = store.schema_of(file.schema_id).key_fields
    if tuple(field.type for field in fields) != store.key_types:
        return []
    with suppress(OSError, pa.ArrowException), store.io.open_input(path) as source:
        # bounds of floats are only of key columns, which thin files do not have
        groups = group_ranges(source, [*fields, *(replace(each, name=KEY_PREFIX + each.name) for each in fields)])
        rows = sum(count for _, count in groups) or 1
        found = [
            KeyStretch(
                _prefix([_key_range(ranges, field.name) for field in fields], is_low=True),
                _prefix([_key_range(ranges, field.name) for field in fields], is_low=False),
                file.size_bytes * count / rows,
            )
            for ranges, count in groups
        ]
        return found if all(each.low for each in found) else []
    return []


def _key_range(ranges: Mapping[str, ColumnRange], name: str) -> ColumnRange | None:
    return ranges.get(KEY_PREFIX + name, ranges.get(name))


def _prefix(ranges: Sequence[ColumnRange | None], *, is_low: bool) -> KeyTuple:
    """The known columns of a row group's first or last key."""
    values: list[object] = []
    for each in ranges:
        if each is None or each.min is None or each.max is None:
            break
        values.append(each.min if is_low else each.max)
        if each.min != each.max:
            break
    return tuple(values)


def _ranges(
    store: TableStore, files: Sequence[DataFileMeta], stretches: Sequence[KeyStretch], cuts: Sequence[KeyTuple]
) -> list[RangeOfFiles]:
    sums = _Sums(stretches)
    found = []
    for low, high in pairwise([None, *cuts, None]):
        inside = [file for file in files if _overlaps(store, file, low, high)]
        if not inside:
            continue
        upto = sums.total if high is None else sums.before(_order(high))
        size = upto - (0.0 if low is None else sums.before(_order(low)))
        span = KeySpan(
            low=None if low is None else key_bytes(store, low),
            high=None if high is None else key_bytes(store, high),
            share=min(size / max(sum(file.size_bytes for file in inside), 1), 1.0),
        )
        found.append(RangeOfFiles(files=tuple(inside), span=span))
    return found if len(found) > 1 else []


def _overlaps(store: TableStore, file: DataFileMeta, low: KeyTuple | None, high: KeyTuple | None) -> bool:
    is_before = low is not None and store.key_of(file.max_key) < _order(low)
    return not is_before and (high is None or store.key_of(file.min_key) < _order(high))
