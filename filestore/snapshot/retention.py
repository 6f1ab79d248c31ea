"""How many snapshots and changelogs are kept, and how long."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many snapshots to keep and how long. The newest one is always kept."""

    min_count: int  # at least this many are kept, whatever their age
    max_count: int  # at most this many are kept, whatever their age
    age_ms: int  # minimum age of deleted ones, between these counts
    limit: int  # maximum deletions at once

    def __post_init__(self) -> None:
        if not 1 <= self.min_count <= self.max_count:
            raise InvalidInputError(
                f"invalid snapshot retention: retain_min={self.min_count} retain_max={self.max_count} "
                "fix=set retain_min to 1 or more, and retain_max not below it"
            )

    @classmethod
    def of(cls, options: TableOptions) -> Self:
        """The retention of a table's options: snapshots stay as long as their changes, so streams may begin there."""
        least, most = options.snapshot_num_retained_min, options.snapshot_num_retained_max
        own = cls(
            min_count=least, max_count=most, age_ms=options.snapshot_time_retained_ms,
            limit=options.snapshot_expire_limit,
        )  # fmt: skip
        return own.of_changes(options)

    def of_changes(self, options: TableOptions) -> Self:
        """The retention of changes where this is asked for snapshots: longer if the ``changelog.*`` options say so.

        Counts include the snapshots that are there. What of these options is not given is as that of snapshots.
        Source: Paimon CoreOptions, ExpireConfig.
        """
        if not options.keeps_changelogs:
            return self
        least, most, age_ms = (
            options.changelog_num_retained_min, options.changelog_num_retained_max, options.changelog_time_retained_ms
        )  # fmt: skip
        most = max(self.max_count, most or options.snapshot_num_retained_max)
        return replace(
            self,
            min_count=min(most, max(self.min_count, least or options.snapshot_num_retained_min)),
            max_count=most,
            age_ms=max(self.age_ms, options.snapshot_time_retained_ms if age_ms is None else age_ms),
        )


def expiry_end(
    *,
    earliest: int,
    latest: int,
    retention: Retention,
    before_ms: int,
    held_from: int | None,
    time_ms_of: Callable[[int], int],
) -> int:
    """The id of the first snapshot to keep.

    The age of a snapshot is the age of its successor: until then it was the current one.

    Args:
        earliest: id of the oldest snapshot.
        latest: id of the newest snapshot.
        retention: what to keep.
        before_ms: snapshots with a successor committed before this time may be deleted.
        held_from: this snapshot and all after it are needed.
        time_ms_of: commit time by snapshot id.
    """
    end = min(latest - retention.min_count + 1, earliest + retention.limit)
    if held_from is not None:
        end = min(end, held_from)
    first_by_count = latest - retention.max_count + 1
    first_kept = earliest
    while first_kept < end and (first_kept < first_by_count or time_ms_of(first_kept + 1) < before_ms):
        first_kept += 1
    return first_kept
