"""The LSM tree of one bucket: files, sorted runs, levels.

Level 0 holds flushed files, one run per file, with overlapping ranges. Every level from 1 on is one run of
key-disjoint files.
Source: Paimon Levels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from lsm.errors import CorruptDataError
from lsm.keys.keys import KeyTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedFile:
    """The metadata of one data file that the tree needs."""

    file_name: str
    level: int
    size_bytes: int
    row_count: int  # deletes included
    delete_count: int  # rows of kind -U and -D
    min_key: KeyTuple
    max_key: KeyTuple
    min_sequence_number: int
    max_sequence_number: int
    creation_time_ms: int

    def overlaps(self, min_key: KeyTuple, max_key: KeyTuple) -> bool:
        """Whether the file may hold a key of this closed range."""
        return self.min_key <= max_key and min_key <= self.max_key


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedRun:
    """Files in key order with disjoint ranges: together one sorted sequence of unique keys."""

    level: int
    files: tuple[SortedFile, ...]  # at least one

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def row_count(self) -> int:
        """Rows of all files, deletes included."""
        return sum(file.row_count for file in self.files)

    @property
    def delete_count(self) -> int:
        """Retracts of all files."""
        return sum(file.delete_count for file in self.files)

    @property
    def min_key(self) -> KeyTuple:
        """The smallest key."""
        return self.files[0].min_key

    @property
    def max_key(self) -> KeyTuple:
        """The greatest key."""
        return self.files[-1].max_key

    @property
    def max_sequence_number(self) -> int:
        """The sequence number of the newest row."""
        return max(file.max_sequence_number for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """All runs of one bucket."""

    runs: tuple[SortedRun, ...]  # newest first: level 0 by recency, then the levels from 1 on
    level_count: int

    @classmethod
    def of(cls, files: Iterable[SortedFile], *, level_count: int) -> Self:
        """The tree of the given live files.

        Args:
            files: in any order.
            level_count: levels that the table is configured for, level 0 included.

        Raises:
            CorruptDataError: two files of one level >= 1 overlap.
        """
        by_level: dict[int, list[SortedFile]] = {}
        for file in files:
            by_level.setdefault(file.level, []).append(file)
        runs = [SortedRun(level=0, files=(file,)) for file in sorted(by_level.pop(0, []), key=_newest_first)]
        for level in sorted(by_level):
            runs.append(SortedRun(level=level, files=_disjoint(by_level[level])))
        return cls(runs=tuple(runs), level_count=level_count)

    @property
    def files(self) -> tuple[SortedFile, ...]:
        """Every file, newest run first."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def highest_non_empty_level(self) -> int:
        """The highest level that holds files; -1 for an empty tree."""
        return self.runs[-1].level if self.runs else -1

    @property
    def top_level(self) -> int:
        """The level with nothing older below it: the last configured one, or a higher one that holds files."""
        return max(self.level_count - 1, self.highest_non_empty_level)

    def replaced(self, removed: Iterable[SortedRun], added: Iterable[SortedFile]) -> Self:
        """The tree after a compaction replaced the files of some runs.

        Raises:
            CorruptDataError: an added file overlaps a file that stays on its level.
        """
        removed_names = {file.file_name for run in removed for file in run.files}
        kept = [file for file in self.files if file.file_name not in removed_names]
        return type(self).of([*kept, *added], level_count=self.level_count)


def sections(files: Iterable[SortedFile]) -> list[list[SortedRun]]:
    """Partition files into the groups that must be merged together.

    Returns:
        Sections in key order with disjoint key ranges. The runs of a section are as few as possible, oldest first, and
        may chain files of several levels (then ``level`` is the highest of them).

    Source: Paimon's IntervalPartition.
    """
    found: list[list[SortedRun]] = []
    section: list[SortedFile] = []
    reach: KeyTuple = ()
    for file in sorted(files, key=lambda file: (file.min_key, file.max_key)):
        if section and file.min_key > reach:
            found.append(_chained(section))
            section = []
        reach = max(reach, file.max_key) if section else file.max_key
        section.append(file)
    if section:
        found.append(_chained(section))
    return found


def _chained(section: Sequence[SortedFile]) -> list[SortedRun]:
    """The fewest runs of disjoint files; `section` is sorted by smallest key."""
    chains: list[list[SortedFile]] = []
    for file in section:
        free = [chain for chain in chains if chain[-1].max_key < file.min_key]
        if free:
            # Any free chain keeps the number minimal; prefer one of the same level, which holds rows of similar age.
            min(free, key=lambda chain: (chain[-1].level != file.level, chain[-1].max_key)).append(file)
        else:
            chains.append([file])
    runs = [SortedRun(level=max(file.level for file in chain), files=tuple(chain)) for chain in chains]
    return sorted(runs, key=lambda run: (run.max_sequence_number, -run.level))


def _newest_first(file: SortedFile) -> tuple[int, int, int, str]:
    return (-file.max_sequence_number, file.min_sequence_number, file.creation_time_ms, file.file_name)


def _disjoint(files: Sequence[SortedFile]) -> tuple[SortedFile, ...]:
    ordered = tuple(sorted(files, key=lambda file: (file.min_key, file.max_key)))
    for left, right in pairwise(ordered):
        if right.min_key <= left.max_key:
            raise CorruptDataError(
                f"files of one level overlap: level={left.level} left={left.file_name} right={right.file_name} "
                f"left_max_key={left.max_key!r} right_min_key={right.min_key!r}"
            )
    return ordered
