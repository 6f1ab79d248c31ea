"""The assignment of a micro-batch's data to tasks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.log.table_log import TableLog
from engine.stream.history import TableHistory
from engine.stream.position.plan import ChangeStep, LogStep, PlanStep, SnapshotStep
from engine.stream.rows import ChangePiece, LogPiece, SnapshotPiece, StreamPiece
from filestore.changelog.untracked import is_untracked
from filestore.schema.table_schema import TableSchema

_TASK_ROWS: Final = 8192
"""Maximum rows of buckets that share a task: starting a task costs more than reading these."""


def partitions_of(
    walked: Iterable[PlanStep],
    history: TableHistory,
    log: TableLog | None,
    base_of: Callable[[int, int], tuple[int, int]] | None,
    tracking: TableSchema,
) -> list[Sequence[StreamPiece]]:
    """The pieces of each task.

    Each split of a whole snapshot is a task. Of the rest, everything of one bucket goes to one task, in order.

    Args:
        walked: the steps between two positions, in order.
        history: source of the splits.
        log: source of the ranges; None: there are none.
        base_of: for normalizing: snapshot and offset before a bucket's range, by snapshot id and bucket.
        tracking: the version of the schema that says of which partitions streams get no changes from files.
    """
    untracked = tracking.table_options
    parts: list[Sequence[StreamPiece]] = []
    by_bucket: defaultdict[int, list[StreamPiece]] = defaultdict(list)
    rows_of: defaultdict[int, int] = defaultdict(int)
    for step in walked:
        match step:
            case SnapshotStep():
                splits = history.planned_snapshot(step.snapshot_id, step.moment_ms)[step.first : step.until]
                parts.extend([SnapshotPiece(split=split)] for split in splits)
            case ChangeStep():
                for change in history.planned_changes(step.before_id, step.after_id)[step.first : step.until]:
                    if is_untracked(history.store, untracked, change.partition):
                        continue
                    by_bucket[change.bucket].append(ChangePiece(split=change))
                    rows_of[change.bucket] += change.row_count
            case LogStep():
                assert log is not None, "ranges of a log are read from it"
                for each in step.ranges:
                    base_id, base_offset = (None, 0) if base_of is None else base_of(step.base_id, each.bucket)
                    by_bucket[each.bucket].append(
                        LogPiece(log=log, log_range=each, base_id=base_id, base_offset=base_offset)
                    )
                    rows_of[each.bucket] += each.end_offset - each.start_offset
    return parts + _shared(by_bucket, rows_of)


def _shared(by_bucket: dict[int, list[StreamPiece]], rows_of: dict[int, int]) -> list[Sequence[StreamPiece]]:
    tasks: list[Sequence[StreamPiece]] = []
    waiting: list[StreamPiece] = []
    waiting_rows = 0
    for bucket in sorted(by_bucket):
        if waiting and waiting_rows + rows_of[bucket] > _TASK_ROWS:
            tasks.append(waiting)
            waiting, waiting_rows = [], 0
        waiting = [*waiting, *by_bucket[bucket]]
        waiting_rows += rows_of[bucket]
    return [*tasks, waiting] if waiting else tasks
