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

    Each split of a whole snapshot is a task. Of the rest, everything of one bucket goes to one task, in order. Where
    the number of buckets changes in between, a key has been in several: one task gets all.

    Args:
        walked: the steps between two positions, in order.
        history: source of the splits.
        log: source of the ranges; None: there are none.
        base_of: for normalizing: snapshot and offset before a bucket's range, by snapshot id and bucket.
        tracking: the version of the schema that says of which partitions streams get no changes from files.
    """
    untracked, walked = tracking.table_options, list(walked)
    is_rescaled = _is_rescaled(walked, history)
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
                    group = 0 if is_rescaled else change.bucket
                    by_bucket[group].append(ChangePiece(split=change))
                    rows_of[group] += change.row_count
            case LogStep():
                assert log is not None, "ranges of a log are read from it"
                for each in step.ranges:
                    base_id, base_offset = (None, 0) if base_of is None else base_of(step.base_id, each.bucket)
                    group = 0 if is_rescaled else each.bucket
                    by_bucket[group].append(LogPiece(log=log, log_range=each, base_id=base_id, base_offset=base_offset))
                    rows_of[group] += each.end_offset - each.start_offset
    return parts + _shared(by_bucket, rows_of)


def _is_rescaled(walked: Sequence[PlanStep], history: TableHistory) -> bool:
    """Whether rows of one key may be in several buckets of a batch, as the number of buckets is not one throughout."""
    if len(walked) < 2:
        return False  # no key is in two splits of one plan
    changes = [step for step in walked if isinstance(step, ChangeStep)]
    schemas = {history.facts(step.after_id).schema_id for step in changes}
    if len(schemas) > 1 and len({history.store.schemas.read(each).table_options.bucket for each in schemas}) > 1:
        return True
    splits = (each for step in changes for each in history.planned_changes(step.before_id, step.after_id))
    return any(len({state.total_buckets for state in (*each.before, *each.after)}) > 1 for each in splits)


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
