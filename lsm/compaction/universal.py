"""Universal compaction: few large rewrites, for tables where writes dominate.

Three checks in this order: space wasted by old versions, neighbouring runs of similar size, number of runs. What is
picked is always the newest runs, so no rule about recency can be broken. Source: RocksDB "Universal Compaction";
Paimon format notes 6.7.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionUnit
from lsm.errors import InvalidInputError
from lsm.levels import Levels, SortedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class UniversalCompaction:
    """Picks the newest runs when they waste space, are alike in size, or are too many."""

    run_count_trigger: int = 5
    max_size_amplification_percent: int = 200
    size_ratio_percent: int = 1
    moves_level0_at_once: bool = False  # level 0 does not wait for more runs: somebody waits for its rows

    def __post_init__(self) -> None:
        if self.run_count_trigger < 1 or self.max_size_amplification_percent < 0 or self.size_ratio_percent < 0:
            raise InvalidInputError(
                "universal compaction cannot work with these numbers: "
                f"run_count_trigger={self.run_count_trigger} (at least 1) "
                f"max_size_amplification_percent={self.max_size_amplification_percent} (at least 0) "
                f"size_ratio_percent={self.size_ratio_percent} (at least 0)"
            )

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when the tree is in shape."""
        unit = self._pick_worthwhile(levels)
        if unit is None and self.moves_level0_at_once and levels.runs and levels.runs[0].level == 0:
            return self._pick_level0(levels)
        return unit

    def _pick_level0(self, levels: Levels) -> CompactionUnit:
        """All of level 0, what is alike in size, and level 1 if that is next. Source: Paimon's forcePickL0."""
        runs = levels.runs
        count = self._similar_prefix(runs, at_least=sum(run.level == 0 for run in runs))
        if count < len(runs) and runs[count].level == 1:
            count += 1
        return _unit(levels, count, CompactionReason.LOOKUP)

    def _pick_worthwhile(self, levels: Levels) -> CompactionUnit | None:
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
        """Whether everything newer than the oldest run is large, measured by that run."""
        newer = sum(run.size_bytes for run in runs[:-1])
        return newer * 100 > self.max_size_amplification_percent * runs[-1].size_bytes

    def _similar_prefix(self, runs: Sequence[SortedRun], *, at_least: int) -> int:
        """How many of the newest runs to join: on, until a run is larger than all that were joined, with some slack.

        A larger run of level 0 or 1 does not stop two or more: there is no level above it for the output to go to.
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
    """The newest `count` runs into the level just above the next run, or to the top if there is none."""
    runs = levels.runs
    output_level = runs[count].level - 1 if count < len(runs) else max(levels.top_level, 1)
    assert output_level > 0, "level 0 is for flushes: joining never stops at a run of level 0 or 1"
    return CompactionUnit(runs=runs[:count], output_level=output_level, reason=reason)
