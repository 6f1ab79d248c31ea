"""Full compactions before waste or run counts ask for one: at intervals, of what is small, after so much new data.

They keep the top level, which some readers read alone, close to the newest state. Source: Paimon EarlyFullCompaction.
"""

from dataclasses import dataclass

from lsm.compaction.compaction import CompactionReason, CompactionStrategy, CompactionUnit
from lsm.levels import Levels


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyFullCompaction:
    """Everything into one run when one of the limits says so, else what another strategy picks."""

    otherwise: CompactionStrategy
    now_ms: int  # by the clock that files are stamped with
    interval_ms: int | None = None  # longest time without a full compaction
    total_size_bytes: int | None = None  # a bucket smaller than this is always worth it
    incremental_size_bytes: int | None = None  # most bytes that are not on the top level

    def pick(self, levels: Levels) -> CompactionUnit | None:
        """The next unit, or None when the tree is in shape."""
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
            # What the top level got last is the full compaction before this one: no memory is needed beside the tree.
            last_ms = max((file.creation_time_ms for run in top for file in run.files), default=None)
            if last_ms is None or self.now_ms - last_ms >= self.interval_ms:
                return True
        if self.total_size_bytes is not None and all_bytes < self.total_size_bytes:
            return True
        return self.incremental_size_bytes is not None and all_bytes - top_bytes > self.incremental_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OffPeakHours:
    """Hours in which joining larger runs is cheap."""

    start_hour: int  # 0 to 23
    end_hour: int  # 0 to 23, not itself one of them; before the start: over midnight; the same: none
    ratio_percent: int

    def ratio_at(self, hour: int) -> int:
        """The slack to add to the size ratio in an hour of the day."""
        if self.start_hour <= self.end_hour:
            is_off_peak = self.start_hour <= hour < self.end_hour
        else:
            is_off_peak = hour >= self.start_hour or hour < self.end_hour
        return self.ratio_percent if is_off_peak else 0
