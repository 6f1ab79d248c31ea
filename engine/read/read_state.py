"""The state of a table that a batch read gets: a snapshot, with or without the tail of its log, or a difference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable

if TYPE_CHECKING:
    from engine.log.table_log import TableLog
    from filestore.diff.table_diff import TableDiff
    from logstore.offsets import LogRange


class StateSource(StrEnum):
    """What the rows of a read are made of."""

    SNAPSHOT = "snapshot"
    SNAPSHOT_AND_LOG = "snapshot+log"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a read really gives; ``str`` is one line for people."""

    table: str
    source: StateSource
    snapshot_id: int | None  # None: the table has no snapshot
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # next offsets by bucket: earlier records are in it
    as_of_ms: int | None  # the time of the state, epoch milliseconds; None: the table is empty
    staleness_ms: int | None = None  # nothing older than this is missing; None: no limit was set
    reason: str  # why this source

    def __str__(self) -> str:
        from engine.runtime.times import iso_time_text

        facts = [f"{self.source}: table={self.table} snapshot={self.snapshot_id or 'none'}"]
        if self.log_offsets:
            facts.append("log_offsets=" + ",".join(f"{b}={at}" for b, at in sorted(self.log_offsets.items())))
        if self.as_of_ms is not None:
            facts.append(f"as_of={iso_time_text(self.as_of_ms)}")
        if self.staleness_ms is not None:
            facts.append(f"staleness_ms={self.staleness_ms}")
        return " ".join([*facts, f"reason='{self.reason}'"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """A state of a table, ready to be planned."""

    table: FileTable  # with the schema that the rows have
    snapshot: Snapshot | None
    log: "TableLog | None" = None  # when there are ranges
    ranges: "tuple[LogRange, ...]" = ()  # of the log, to be merged over the snapshot; one for each bucket that has any
    diff: "TableDiff | None" = None  # then its rows are read, and nothing else
    served: Served

    @classmethod
    def of_files(
        cls, table: FileTable, snapshot: Snapshot | None, reason: str, *, staleness_ms: int | None = None
    ) -> "ReadState":
        """A snapshot alone; None is the empty table."""
        served = Served(
            table=table.name,
            source=StateSource.SNAPSHOT,
            snapshot_id=None if snapshot is None else snapshot.id,
            log_offsets={} if snapshot is None else dict(snapshot.log_offsets),
            as_of_ms=None if snapshot is None else snapshot.time_ms,
            staleness_ms=staleness_ms,
            reason=reason,
        )
        return cls(table=table, snapshot=snapshot, served=served)
