"""Which strategy the options of a table ask for, at a time of the day."""

from typing import Any, Final

from filestore.options.table_options import TableOptions
from lsm.compaction.compaction import CompactionStrategy
from lsm.compaction.leveled import LeveledCompaction
from lsm.compaction.universal import EarlyFullCompaction, OffPeakHours, UniversalCompaction

_HOUR_MS: Final = 3_600_000


def compaction_strategy(options: TableOptions, *, local_ms: int) -> CompactionStrategy:
    """The strategy that the options ask for.

    Args:
        options: of the table.
        local_ms: the local wall clock, as files are stamped with it.
    """
    strategy = _style(options, hour=local_ms // _HOUR_MS % 24)
    limits: dict[str, Any] = {
        "interval_ms": options.compaction_optimization_interval_ms,
        "total_size_bytes": options.compaction_total_size_threshold_bytes,
        "incremental_size_bytes": options.compaction_incremental_size_threshold_bytes,
    }
    if all(limit is None for limit in limits.values()):
        return strategy
    return EarlyFullCompaction(otherwise=strategy, now_ms=local_ms, **limits)


def _style(options: TableOptions, *, hour: int) -> CompactionStrategy:
    moves_level0 = moves_level0_at_once(options)
    if options.compaction_style == "leveled":
        return LeveledCompaction(
            level0_run_count_trigger=1 if moves_level0 else options.level0_trigger,
            max_bytes_for_level_base=options.level_base_bytes,
            max_bytes_for_level_multiplier=options.level_multiplier,
        )
    return UniversalCompaction(
        run_count_trigger=options.run_count_trigger,
        max_size_amplification_percent=options.max_size_amplification_percent,
        size_ratio_percent=options.size_ratio_percent + _off_peak_ratio(options, hour),
        moves_level0_at_once=moves_level0,
    )


def moves_level0_at_once(options: TableOptions) -> bool:
    """Whether level 0 does not wait for more runs."""
    return (
        options.changelog_producer == "lookup"
        or options.deletion_vectors_enabled
        or options.compaction_force_up_level_0
        or options.force_lookup
    )


def watches_the_clock(options: TableOptions) -> bool:
    """Whether a bucket may become worth a compaction although nothing is written into it."""
    return options.compaction_optimization_interval_ms is not None or bool(options.compaction_offpeak_ratio)


def commits_until_full(options: TableOptions) -> int | None:
    """How many commits a stream makes until it merges everything into one run; None: that is left to the strategy."""
    commits: int | None = options.full_compaction_delta_commits
    return max(commits or 1, 1) if options.changelog_producer == "full-compaction" else commits


def _off_peak_ratio(options: TableOptions, hour: int) -> int:
    start, end = options.compaction_offpeak_start_hour, options.compaction_offpeak_end_hour
    if start < 0 or end < 0:
        return 0
    ratio = options.compaction_offpeak_ratio
    return OffPeakHours(start_hour=start, end_hour=end, ratio_percent=ratio).ratio_at(hour)
