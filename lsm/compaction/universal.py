"""Universal compaction: few large rewrites, for write-heavy workloads.

Three checks in this order: size amplification, adjacent runs of similar size, number of runs. A pick
is always a prefix of the newest runs, so recency order is preserved. Source: RocksDB "Universal Compaction";
Paimon UniversalCompaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionUnit
from lsm.errors import InvalidInputError
from lsm.levels import Levels, SortedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalCompaction:
    """Picks the newest runs on size amplification, similar sizes, or too many runs."""

    run_count_trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio_percent: int = 1
    moves_level0_at_once: bool = False  # compact level 0 without waiting for more runs: readers need its rows

    def __post_init__(self) -> None:
        if self.run_count_trigger < 1 or self.max_size_amplification_percent < 0 or self.size_ratio_percent < 0:
            raise InvalidInputError(
                "universal compaction options are out of range: "
                f"run_count_trigger={self.run_count_trigger} (at least 1) "
                f"max_size_amplification_percent={self.max_size_amplification_percent} (at least 0) "
                f"size_ratio_percent={self.size_ratio_percent} (at least 0)"
            )

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when no compaction is needed."""
        unit = self._pick_triggered(levels)
        if unit is None and self.moves_level0_at_once and levels.runs and levels.runs[0].level == 0:
            return self._pick_level0(levels)
        return unit

    def _pick_level0(self, levels: Levels) -> CompactionUnit:
        """All of level 0, runs of similar size, and level 1 if it comes next. Source: Paimon forcePickL0."""
        runs = levels.runs
        count = self._similar_prefix(runs, at_least=sum(run.level == 0 for run in runs))
        if count < len(runs) and runs[count].level == 1:
            count += 1
        return _unit(levels, count, CompactionReason.LOOKUP)

    def _pick_triggered(self, levels: Levels) -> CompactionUnit | None:
        runs = levels.runs
        if len(runs) < self.run_count_trigger:
            return None
        if self._wastes_space(runs):
            return _unit(levels, len(runs), CompactionReason.SIZE_AMPLIFICATION)
        alike = self._similar_prefix(runs, at_least=1)
        if alike > 1:
            return _unit(levels, alike, CompactionReason.SIZE_RATIO)
        excess = len(runs) - self.run_count_trigger + 1
        if excess > 1:
            return _unit(levels, self._similar_prefix(runs, at_least=excess), CompactionReason.RUN_COUNT)
        return None

    def _wastes_space(self, runs: Sequence[SortedRun]) -> bool:
        """Whether all newer runs together are too large relative to the oldest run."""
        newer = sum(run.size_bytes for run in runs[:-1])
        return newer * 100 > self.max_size_amplification_percent * runs[-1].size_bytes

    def _similar_prefix(self, runs: Sequence[SortedRun], *, at_least: int) -> int:
        """How many of the newest runs to join: stops at a run larger than the joined ones plus the size ratio.

        A larger run of level 0 or 1 does not stop two or more runs: no level above it could take the output.
        """
        joined_bytes = sum(run.size_bytes for run in runs[:at_least])
        for count in range(at_least, len(runs)):
            following = runs[count]
            is_larger = joined_bytes * (100 + self.size_ratio_percent) < following.size_bytes * 100
            if is_larger and (count < 2 or following.level > 1):
                return count
            joined_bytes += following.size_bytes
        return len(runs)


def _unit(levels: Levels, count: int, reason: CompactionReason) -> CompactionUnit:
    """The newest `count` runs into the level just above the next run, or into the top level if there is none."""
    runs = levels.runs
    output_level = runs[count].level - 1 if count < len(runs) else max(levels.top_level, 1)
    assert output_level > 0, "level 0 is for flushes: a pick never stops at a run of level 0 or 1"
    return CompactionUnit(runs=runs[:count], output_level=output_level, reason=reason)
