"""The lag of a stream behind its table, in several units."""

from dataclasses import dataclass
from typing import Any, Final

from engine.stream.history import TableHistory
from engine.stream.log_views import LogViews
from engine.stream.options import StreamOptions
from engine.stream.position.plan import ReadTarget, end_of_log
from engine.stream.position.position import Phase, Position
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.offsets import LogOffsets

_SUMMED_SNAPSHOTS: Final = 1000  # at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Committed and not yet delivered rows; estimates where only files are counted."""

    snapshots: int
    records: int  # of the log by offsets, including transaction markers
    size_bytes: int
    age_ms: int  # since the commit of the oldest undelivered snapshot

    def to_json(self) -> dict[str, Any]:
        """The lag as JSON values for progress reports: ``lag_records`` etc., whole numbers."""
        return {
            "lag_snapshots": self.snapshots,
            "lag_records": self.records,
            "lag_bytes": self.size_bytes,
            "lag_seconds": self.age_ms // 1000,
        }


def lag_of(here: Position, target: ReadTarget, history: TableHistory, *, record_bytes: int, now_ms: int) -> Lag:
    """The lag of a position.

    Args:
        here: what is delivered.
        target: the end of the table.
        history: the table's snapshots.
        record_bytes: size of a log record.
        now_ms: epoch milliseconds.
    """
    if here.phase is Phase.SNAPSHOT:
        left = history.splits(here).sizes[here.done :]
        file_rows, file_bytes = sum(each.rows for each in left), sum(each.size_bytes for each in left)
        first_missing = here.snapshot_id
    else:
        file_rows = _pending_in_files(here, target, history)
        file_bytes = file_rows * record_bytes
        first_missing = here.snapshot_id + 1
    ends = end_of_log(target, history)
    log_rows = sum(max(0, offset - here.offsets.get(bucket, 0)) for bucket, offset in ends.items())
    if here.phase is Phase.LOG and file_rows + log_rows == 0:
        return Lag(snapshots=0, records=0, size_bytes=0, age_ms=0)  # what was committed since changed no rows
    snapshots = max(0, target.snapshot_id - first_missing + 1)
    return Lag(
        snapshots=snapshots,
        records=file_rows + log_rows,
        size_bytes=file_bytes + log_rows * record_bytes,
        age_ms=_age_ms(first_missing, now_ms, history) if snapshots else 0,
    )


class LagProbe:
    """The lag of one stream at the moment of asking, whatever its batches do. Not picklable, and for one thread."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._views = LogViews(options)

    def behind(self, here: Position) -> Lag:
        """The lag of a position behind the present commits.

        Raises:
            UnavailableError: brokers or the store do not answer.
            CorruptDataError: the table never had the position's log.
        """
        store = self._options.table.store
        view = self._views.of(here)
        view.history.forget_after_rollback()
        newest = view.history.latest()
        reads_to_end = view.log is not None and view.history.is_eventual
        known = LogOffsets() if newest is None else view.history.facts(newest.id).offsets
        log_end = view.log.ends(known) if view.log is not None and reads_to_end else LogOffsets()
        target = ReadTarget(snapshot_id=0 if newest is None else newest.id, log_end=log_end)
        record_bytes = self._options.limits.record_bytes
        if view.log is not None:
            record_bytes = view.log.record_bytes(here.offsets, end_of_log(target, view.history)) or record_bytes
        return lag_of(here.place, target, view.history, record_bytes=record_bytes, now_ms=store.clock.now_ms())


def _pending_in_files(here: Position, target: ReadTarget, history: TableHistory) -> int:
    rows = 0
    after_id = here.snapshot_id
    try:
        for _ in range(_SUMMED_SNAPSHOTS):
            found = history.next_from_files(after_id, target.snapshot_id)
            if found is None:
                break
            rows += history.facts(found).changed_rows
            after_id = found
    except SnapshotExpiredError:
        return rows  # the plan raises it, with a fix
    return rows


def _age_ms(snapshot_id: int, now_ms: int, history: TableHistory) -> int:
    try:
        return max(0, now_ms - history.facts(snapshot_id).time_ms)
    except SnapshotExpiredError:
        return 0
