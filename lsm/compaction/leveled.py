"""Leveled compaction: many small rewrites, for workloads dominated by reads and space.

Every level but 0 is one run, a fixed factor larger than the level above. Level 0 is compacted when it has too many
files, another level when it exceeds its limit; only files with overlapping ranges are rewritten. Source: RocksDB
"Leveled Compaction".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionUnit
from lsm.errors import InvalidInputError
from lsm.keys.keys import KeyTuple
from lsm.levels import Levels, SortedFile, SortedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class LeveledCompaction:
    """Picks all of level 0, or adjacent files of the level most over its limit, with the overlapping files below."""

    level0_run_count_trigger: int = 4
    max_bytes_for_level_base: int = 1 << 30  # size limit of level 1
    max_bytes_for_level_multiplier: int = 5  # ratio of a level's limit to that of the level above

    def __post_init__(self) -> None:
        if min(self.level0_run_count_trigger, self.max_bytes_for_level_base, self.max_bytes_for_level_multiplier) < 1:
            raise InvalidInputError(
                "leveled compaction options must be at least 1: "
                f"level0_run_count_trigger={self.level0_run_count_trigger} "
                f"max_bytes_for_level_base={self.max_bytes_for_level_base} "
                f"max_bytes_for_level_multiplier={self.max_bytes_for_level_multiplier}"
            )

    def limit_bytes(self, level: int) -> int:
        """Size limit of a level >= 1; not enforced for the top level."""
        return self.max_bytes_for_level_base * int(self.max_bytes_for_level_multiplier ** (level - 1))

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when no compaction is needed."""
        level0 = [run for run in levels.runs if run.level == 0]
        if len(level0) >= self.level0_run_count_trigger:
            # All of level 0: its ranges overlap, and an older row must not stay above a newer one.
            return _unit(levels, level0, 1, CompactionReason.LEVEL0_COUNT)
        movable = [run for run in levels.runs if 0 < run.level < levels.top_level]
        fullest = max(movable, key=lambda run: run.size_bytes / self.limit_bytes(run.level), default=None)
        if fullest is None or fullest.size_bytes <= self.limit_bytes(fullest.level):
            return None
        excess_bytes = fullest.size_bytes - self.limit_bytes(fullest.level)
        below = _files_of(levels, fullest.level + 1)
        stretch = _cheapest_stretch(fullest.files, below, excess_bytes)
        moved = SortedRun(level=fullest.level, files=stretch)
        return _unit(levels, [moved], fullest.level + 1, CompactionReason.LEVEL_SIZE)


def _unit(levels: Levels, runs: Sequence[SortedRun], output_level: int, reason: CompactionReason) -> CompactionUnit:
    """A unit of the runs and the files of the output level that overlap their combined key range."""
    overlapped = _overlapping(
        _files_of(levels, output_level), min(run.min_key for run in runs), max(run.max_key for run in runs)
    )
    below = (SortedRun(level=output_level, files=overlapped),) if overlapped else ()
    return CompactionUnit(runs=(*runs, *below), output_level=output_level, reason=reason)


def _cheapest_stretch(
    files: Sequence[SortedFile], below: Sequence[SortedFile], excess_bytes: int
) -> tuple[SortedFile, ...]:
    """Adjacent files of at least `excess_bytes` with the fewest overlapping bytes below per byte moved."""
    best: tuple[float, tuple[SortedFile, ...]] | None = None
    stop, held_bytes = 0, 0
    for start, first in enumerate(files):
        while stop < len(files) and (held_bytes < excess_bytes or stop <= start):
            held_bytes += files[stop].size_bytes
            stop += 1
        if held_bytes < excess_bytes and best is not None:
            break
        stretch = tuple(files[start:stop])
        dragged = _overlapping(below, stretch[0].min_key, stretch[-1].max_key)
        cost = sum(file.size_bytes for file in dragged) / max(held_bytes, 1)
        if best is None or cost < best[0]:
            best = (cost, stretch)
        held_bytes -= first.size_bytes
    assert best is not None, "a level above its limit has files"
    return best[1]


def _files_of(levels: Levels, level: int) -> tuple[SortedFile, ...]:
    return next((run.files for run in levels.runs if run.level == level and level > 0), ())


def _overlapping(files: Sequence[SortedFile], min_key: KeyTuple, max_key: KeyTuple) -> tuple[SortedFile, ...]:
    return tuple(file for file in files if file.overlaps(min_key, max_key))
