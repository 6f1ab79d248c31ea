"""Early full compactions: at intervals, of small buckets, or after a given amount of new data.

They keep the top level, the only one some readers read, close to the newest state. Source: Paimon EarlyFullCompaction.
"""

from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionStrategy, CompactionUnit
from lsm.levels import Levels


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
