"""Which files of a bucket are read together: pure functions over file metadata.

Source: paimon-format.md section 6.4 (Paimon ``MergeTreeSplitGenerator``), FL-80.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from filestore.manifest.entries import DataFileMeta
from lsm.levels import SortedFile, sections


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits:
    """How large a split should be."""

    target_bytes: int
    open_cost_bytes: int  # what opening a file costs, in bytes that could have been read meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Files of one split."""

    files: tuple[DataFileMeta, ...]
    is_raw: bool  # every row of every file is a row of the table: no other file holds its key, and none is a delete


def pack_plain(files: Iterable[DataFileMeta], limits: PackLimits) -> list[Pack]:
    """Splits of files that never need merging, in the given order."""
    return [Pack(files=tuple(group), is_raw=True) for group in _packed([[file] for file in files], limits)]


def pack_sorted(
    files: Iterable[DataFileMeta],
    *,
    sorted_file: Callable[[DataFileMeta], SortedFile],
    keep: Callable[[DataFileMeta], bool],
    limits: PackLimits,
) -> list[Pack]:
    """Splits of one bucket of a table with a key.

    A key is in one section only, so sections are read apart. Where no other file overlaps a section, it needs no
    merging unless a file holds deletes; what is little is merged along with the rest, because a split costs more than a
    merge.

    Args:
        files: of one bucket, in any order.
        sorted_file: how the LSM tree sees a file.
        keep: False when no row of the file, taken alone, is wanted; asked only where no newer version can be elsewhere.
        limits: size of the splits.
    """
    by_name = {file.file_name: file for file in files}
    plain: list[list[DataFileMeta]] = []
    merged: list[list[DataFileMeta]] = []
    for runs in sections(sorted_file(file) for file in by_name.values()):
        section = [by_name[each.file_name] for run in runs for each in run.files]
        if len(runs) > 1:
            merged.append(section)
            continue
        section = [file for file in section if keep(file)]
        # A missing count comes from an old writer that did not count.
        plain.extend([file] for file in section if file.delete_row_count == 0)
        merged.extend([file] for file in section if file.delete_row_count != 0)
    if merged and sum(_weight(group, limits) for group in plain) <= limits.open_cost_bytes:
        plain, merged = [], [*merged, *plain]
    raw = [Pack(files=tuple(group), is_raw=True) for group in _packed(plain, limits)]
    return [*raw, *(Pack(files=tuple(group), is_raw=False) for group in _packed(merged, limits))]


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
