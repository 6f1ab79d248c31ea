"""What a compaction is: a decision, as data. Strategies make it, a compactor elsewhere carries it out.

Whatever a strategy picks is legal: nothing older than an input stays above the output, and the output fits between the files that stay on
its level.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from lsm.levels import Levels, SortedFile, SortedRun


class CompactionReason(Enum):
    """Why a unit was picked; for logs and metrics."""

    SIZE_AMPLIFICATION = "size-amplification"
    SIZE_RATIO = "size-ratio"
    RUN_COUNT = "run-count"
    LEVEL0_COUNT = "level0-count"
    LEVEL_SIZE = "level-size"
    FORCED = "forced"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionUnit:
    """Runs to merge into one run of a level."""

    runs: tuple[SortedRun, ...]  # newest first; a run of a level >= 1 may hold only some of the level's files
    output_level: int  # >= 1
    reason: CompactionReason

    @property
    def files(self) -> tuple[SortedFile, ...]:
        """Every input file."""
        return tuple(file for run in self.runs for file in run.files)

    @property
    def size_bytes(self) -> int:
        """Bytes to read."""
        return sum(run.size_bytes for run in self.runs)

    def drops_deletes(self, levels: Levels) -> bool:
        """Whether retracts need not be written: no file outside the unit can hold an older row of a key in it.

        Args:
            levels: the tree that the unit was picked from.
        """
        inputs = {file.file_name for file in self.files}
        min_key = min(run.min_key for run in self.runs)
        max_key = max(run.max_key for run in self.runs)
        newest = max(run.max_sequence_number for run in self.runs)
        return not any(
            file.overlaps(min_key, max_key) and (file.level > self.output_level or file.min_sequence_number <= newest)
            for file in levels.files
            if file.file_name not in inputs
        )


class CompactionStrategy(Protocol):
    """Decides what to compact next. A function of the tree: no clock, no memory, no side effect."""

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when the tree is in shape."""


def full_compaction(levels: Levels) -> CompactionUnit | None:
    """Everything into one run of the top level; None when that is so already and no retract is left."""
    if not levels.runs:
        return None
    if len(levels.runs) == 1:
        run = levels.runs[0]
        if run.level == levels.top_level > 0 and run.delete_count == 0:
            return None
    return CompactionUnit(runs=levels.runs, output_level=max(levels.top_level, 1), reason=CompactionReason.FORCED)
