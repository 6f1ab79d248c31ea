"""Packs the files of a bucket into splits: pure functions over file metadata.

Source: Paimon MergeTreeSplitGenerator.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from filestore.manifest.entries import DataFileMeta
from filestore.scan.key_cuts import RangeOfFiles
from filestore.scan.key_span import KeySpan
from lsm.keys.keys import KeyTuple
from lsm.levels import SortedFile, sections

KeyRange: TypeAlias = tuple[KeyTuple, KeyTuple]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits:
    """Size limits of splits."""

    target_bytes: int
    open_cost_bytes: int  # cost of opening a file, in bytes read in the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The files of one split."""

    files: tuple[DataFileMeta, ...]
    is_raw: bool  # files need no merge: no duplicate keys, no deletes
    span: KeySpan | None = None  # only these keys


def pack_plain(files: Iterable[DataFileMeta], limits: PackLimits) -> list[Pack]:
    """Pack files that never need merging, in the given order."""
    return [Pack(files=tuple(group), is_raw=True) for group in _packed([[file] for file in files], limits)]


def pack_parts(groups: Iterable[Sequence[DataFileMeta]], limits: PackLimits) -> list[Pack]:
    """Pack groups of files that are read together, in the given order."""
    return [Pack(files=tuple(pack), is_raw=True) for pack in _packed([[*each] for each in groups], limits)]


def packed_ranges(weights: Sequence[int], first: int, stop: int, limits: PackLimits) -> Iterator[tuple[int, int]]:
    """``pack_plain`` of files by place: the first place of each pack, and the one behind its last."""
    weight = 0
    for place in range(first, stop):
        if place > first and weight + weights[place] > limits.target_bytes:
            yield first, place
            first, weight = place, 0
        weight += weights[place]
    if first < stop:
        yield first, stop


def pack_sorted(
    files: Iterable[DataFileMeta],
    *,
    key_range: Callable[[DataFileMeta], KeyRange],
    sorted_file: Callable[[DataFileMeta], SortedFile],
    keep: Callable[[DataFileMeta], bool],
    limits: PackLimits,
    cut: Callable[[Sequence[DataFileMeta]], Sequence[RangeOfFiles]] = lambda _: (),
) -> list[Pack]:
    """Pack the files of one bucket of a table with a primary key.

    A key is in one section only, so sections are read separately. A section with a single run needs no
    merging unless a file has deletes; a few small ones are merged with the others, since a split costs more than a
    merge.

    Args:
        files: files of one bucket, in any order.
        key_range: first and last key of a file.
        sorted_file: converts file metadata for the LSM tree; called only for files that share keys with others.
        keep: whether the file, considered alone, may hold wanted rows; called only where no other file has its keys.
        limits: size limits of the splits.
        cut: ranges of keys of a section that is merged, each a pack of its own; () leaves it whole.
    """
    plain: list[list[DataFileMeta]] = []
    merged: list[list[DataFileMeta]] = []
    for section in _sections(files, key_range, sorted_file):
        if isinstance(section, list):
            merged.append(section)
        elif not keep(section):
            continue
        elif section.delete_row_count == 0:  # the count is missing in files of old writers
            plain.append([section])
        else:
            merged.append([section])
    if merged and sum(_weight(group, limits) for group in plain) <= limits.open_cost_bytes:
        plain, merged = [], [*merged, *plain]
    raw = [Pack(files=tuple(group), is_raw=True) for group in _packed(plain, limits)]
    return [*raw, *_packed_or_cut(merged, limits, cut)]


def _packed_or_cut(
    merged: Iterable[list[DataFileMeta]],
    limits: PackLimits,
    cut: Callable[[Sequence[DataFileMeta]], Sequence[RangeOfFiles]],
) -> Iterator[Pack]:
    whole: list[list[DataFileMeta]] = []
    for group in merged:
        found = cut(group)
        if not found:
            whole.append(group)
            continue
        yield from (Pack(files=tuple(files), is_raw=False) for files in _packed(whole, limits))
        whole = []
        yield from (Pack(files=each.files, is_raw=False, span=each.span) for each in found)
    yield from (Pack(files=tuple(files), is_raw=False) for files in _packed(whole, limits))


def _sections(
    files: Iterable[DataFileMeta],
    key_range: Callable[[DataFileMeta], KeyRange],
    sorted_file: Callable[[DataFileMeta], SortedFile],
) -> Iterator[DataFileMeta | list[DataFileMeta]]:
    """See ``lsm.levels.sections``: most consist of one file."""
    ranges = sorted((*key_range(file), place, file) for place, file in enumerate(files))
    first = 0
    while first < len(ranges):
        reach, end = ranges[first][1], first + 1
        while end < len(ranges) and ranges[end][0] <= reach:
            reach = max(reach, ranges[end][1])
            end += 1
        if end == first + 1:
            yield ranges[first][3]
        else:
            by_name = {file.file_name: file for _, _, _, file in ranges[first:end]}
            (runs,) = sections(map(sorted_file, by_name.values()))
            yield [by_name[each.file_name] for run in runs for each in run.files]
        first = end


def _packed(groups: Sequence[Sequence[DataFileMeta]], limits: PackLimits) -> Iterator[list[DataFileMeta]]:
    pack: list[DataFileMeta] = []
    weight = 0
    for group in groups:
        added = _weight(group, limits)
        if pack and weight + added > limits.target_bytes:
            yield pack
            pack, weight = [], 0
        pack.extend(group)
        weight += added
    if pack:
        yield pack


def _weight(group: Sequence[DataFileMeta], limits: PackLimits) -> int:
    return sum(max(file.size_bytes, limits.open_cost_bytes) for file in group)
