"""Universal compaction: few large rewrites, for write-heavy workloads.

Three checks in this order: size amplification, adjacent runs of similar size, number of runs. A pick
is always a prefix of the newest runs, so recency order is preserved. Source: RocksDB "Universal Compaction";
Paimon UniversalCompaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionStrategy, CompactionUnit
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


# ---- Early full compactions: at intervals, of small buckets, or after a given amount of new data
#
# They keep the top level, the only one some readers read, close to the newest state. Source: Paimon
# EarlyFullCompaction.


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFullCompaction:
    """A full compaction when one of the limits is reached, else the pick of another strategy."""

    otherwise: CompactionStrategy
    now_ms: int  # same clock as file creation times
    interval_ms: int | None = None  # longest time without a full compaction
    total_size_bytes: int | None = None  # smaller buckets are always compacted fully
    incremental_size_bytes: int | None = None  # maximum bytes outside the top level

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when no compaction is needed."""
        if len(levels.runs) > 1 and self._is_due(levels):
            return CompactionUnit(
                runs=levels.runs, output_level=max(levels.top_level, 1), reason=CompactionReason.EARLY_FULL
            )
        return self.otherwise.pick(levels)

    def _is_due(self, levels: Levels) -> bool:
        top = [run for run in levels.runs if run.level == levels.top_level]
        top_bytes = sum(run.size_bytes for run in top)
        all_bytes = sum(run.size_bytes for run in levels.runs)
        if self.interval_ms is not None:
            # The newest file of the top level dates the previous full compaction, so no extra state is needed.
            last_ms = max((file.creation_time_ms for run in top for file in run.files), default=None)
            if last_ms is None or self.now_ms - last_ms >= self.interval_ms:
                return True
        if self.total_size_bytes is not None and all_bytes < self.total_size_bytes:
            return True
        return self.incremental_size_bytes is not None and all_bytes - top_bytes > self.incremental_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPeakHours:
    """Hours of the day in which a larger size ratio applies."""

    start_hour: int  # 0 to 23
    end_hour: int  # 0 to 23, exclusive; before start_hour: wraps midnight; equal: no hours
    ratio_percent: int

    def ratio_at(self, hour: int) -> int:
        """The percentage to add to the size ratio in this hour of the day."""
        if self.start_hour <= self.end_hour:
            is_off_peak = self.start_hour <= hour < self.end_hour
        else:
            is_off_peak = hour >= self.start_hour or hour < self.end_hour
        return self.ratio_percent if is_off_peak else 0
