"""The steps of one micro-batch, reported to an observer: progress, metrics, and tests that stop at a step.

driver   BATCH_GIVEN → BATCH_STARTED → LOG_RECOVERED → (ROWS_COLLECTED, tasks) → TASKS_DONE → TABLE_COMMITTED →
         BATCH_DONE
task     PART_STARTED → per bucket BUCKET_FENCED → ROWS_WRITTEN … → FILES_FLUSHED → per bucket LOG_COMMITTED → PART_DONE
         (where the log gets exact changes: FILES_FLUSHED → per bucket CHANGES_EMITTED → LOG_COMMITTED)

beside   COMPACTION_STARTED → COMPACTION_DONE, in a thread of its own

With ``format("fluvial")`` tasks reach ROWS_STAGED, and before it the task's steps if they write files themselves; all
other steps happen in the committing process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar


class Step(Enum):
    """Where a micro-batch is; the value is shown in logs."""

    BATCH_GIVEN = "batch-given"  # driver: nothing is looked at or waited for yet
    BATCH_STARTED = "batch-started"  # driver: not committed before, nothing written yet
    # driver: first batch of a run with a log: every bucket is fenced and its marker read
    LOG_RECOVERED = "log-recovered"
    ROWS_STAGED = "rows-staged"  # task of format("fluvial"): its rows or files wait for the committing process
    ROWS_COLLECTED = "rows-collected"  # driver that writes the batch itself: it has all rows
    PART_STARTED = "part-started"  # task: before its first row
    BUCKET_FENCED = "bucket-fenced"  # task: older writers of the bucket cannot write any more
    ROWS_WRITTEN = "rows-written"  # task: some rows are in the memtable and in the open Kafka transaction
    FILES_FLUSHED = "files-flushed"  # task: all data files are on disk, no transaction has ended
    CHANGES_EMITTED = "changes-emitted"  # task: the bucket's changes are looked up and in the open Kafka transaction
    LOG_COMMITTED = "log-committed"  # task: the bucket's transaction has ended, the point of no return
    PART_DONE = "part-done"  # task: about to hand its result to the driver
    TASKS_DONE = "tasks-done"  # driver: has every result
    TABLE_COMMITTED = "table-committed"  # driver: the snapshot is visible; Spark has not recorded the batch yet
    BATCH_DONE = "batch-done"  # driver: lineage, compaction and expiry are done, or run beside the next batch
    COMPACTION_STARTED = "compaction-started"  # beside the batches; the batch is the newest
    COMPACTION_DONE = "compaction-done"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """A step that was just reached."""

    step: Step
    batch_id: int
    bucket: int | None = None
    facts: Mapping[str, int] = field(default_factory=dict)  # counts, byte sizes, milliseconds by name


Observer = Callable[[StepEvent], None]
"""Called in the process of the step; must be picklable and must not raise."""


def ignore(event: StepEvent) -> None:
    """The observer that does nothing."""


TaskT = TypeVar("TaskT")
MessagesT = TypeVar("MessagesT")


class BatchSteps:
    """The steps around the batches of one writer."""

    def __init__(self, observe: Observer) -> None:
        """Nothing is reported yet."""
        self._observe = observe
        self._newest = 0

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[None]:
        """Around a batch: from the moment it is given until nothing is left to do."""
        self._newest = batch_id
        self._observe(StepEvent(step=Step.BATCH_GIVEN, batch_id=batch_id))
        yield
        self._observe(StepEvent(step=Step.BATCH_DONE, batch_id=batch_id))

    def compacting(self, run: Callable[[Sequence[TaskT]], MessagesT]) -> Callable[[Sequence[TaskT]], MessagesT]:
        """A function that also reports when it begins, and when it has ended without an error."""

        def observed(tasks: Sequence[TaskT]) -> MessagesT:
            newest = self._newest
            self._observe(StepEvent(step=Step.COMPACTION_STARTED, batch_id=newest, facts={"tasks": len(tasks)}))
            done = run(tasks)
            self._observe(StepEvent(step=Step.COMPACTION_DONE, batch_id=newest))
            return done

        return observed
