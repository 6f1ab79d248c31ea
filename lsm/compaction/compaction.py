"""A compaction as data: strategies pick it, a compactor elsewhere executes it.

Every pick must be legal: nothing older than an input stays above the output, and the output is disjoint from the
files that stay on its level.
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
    LOOKUP = "lookup"
    EARLY_FULL = "early-full"
    DELETE_RATIO = "delete-ratio"
    FORCED = "forced"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionUnit:
    """Runs to merge into one run of the output level."""

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
        """Whether retracts can be dropped: no file outside the unit can hold an older row of one of its keys.

        Args:
            levels: the tree that the unit was picked from.
        """
        inputs = {file.file_name for file in self.files}
        outside = [file for file in levels.files if file.file_name not in inputs]
        return not any(_may_be_older(file, run) for file in outside for run in self.runs)


def _may_be_older(file: SortedFile, run: SortedRun) -> bool:
    """Whether a file may hold an older row of a key of a run.

    Deeper levels are older. Level 0 is newer than the rest, unless a second writer of the bucket assigned its numbers
    independently: then the sequence numbers decide.
    """
    if not file.overlaps(run.min_key, run.max_key):
        return False
    is_older = file.level > run.level or (file.level == 0 and file.min_sequence_number <= run.max_sequence_number)
    return is_older and any(file.overlaps(other.min_key, other.max_key) for other in run.files)


class CompactionStrategy(Protocol):
    """Decides what to compact next. A pure function of the tree: no clock, no state, no side effects."""

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when no compaction is needed."""


def merge_cost(levels: Levels) -> int:
    """Read cost of a tree with more than one run: total bytes times the number of additional runs."""
    return max(len(levels.runs) - 1, 0) * sum(run.size_bytes for run in levels.runs)


def full_compaction(levels: Levels, *, even_if_done: bool = False) -> CompactionUnit | None:
    """Everything into one run of the top level.

    None if the tree is already one run of the top level without retracts; with ``even_if_done`` only for an empty tree.
    """
    if not levels.runs:
        return None
    if len(levels.runs) == 1 and not even_if_done:
        run = levels.runs[0]
        if run.level == levels.top_level > 0 and run.delete_count == 0:
            return None
    return CompactionUnit(runs=levels.runs, output_level=max(levels.top_level, 1), reason=CompactionReason.FORCED)
