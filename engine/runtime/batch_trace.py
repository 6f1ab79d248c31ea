"""Where the time of one micro-batch went: its steps as spans, on lanes.

A step ends the span that began with the step before it, in the same thread. Spark's own phases of the trigger are a
lane of their own; parts of tasks or threads are lanes, and so is compaction, which runs beside the batches.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from engine.runtime.step_file import TRIGGER, TimedStep
from engine.runtime.steps import Step
from lsm.errors import InvalidInputError

SPARK: Final = "Spark"
DRIVER: Final = "driver"
PART: Final = "part"
COMPACTION: Final = "compaction"

# Source: Spark's MicroBatchExecution, in the order of a trigger
_PHASES: Final = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
_SPANS: Final[Mapping[str, Mapping[Step, str]]] = {
    DRIVER: {
        Step.BATCH_STARTED: "wait",
        Step.LOG_RECOVERED: "recover log",
        Step.ROWS_COLLECTED: "rows by Spark",
        Step.TASKS_DONE: "write",
        Step.TABLE_COMMITTED: "commit",
        Step.BATCH_DONE: "after commit",
    },
    PART: {
        Step.BUCKET_FENCED: "open log",
        Step.ROWS_WRITTEN: "memtable",
        Step.FILES_FLUSHED: "flush",
        Step.CHANGES_EMITTED: "look up changes",
        Step.LOG_COMMITTED: "log transaction",
        Step.ROWS_STAGED: "stage",
        Step.PART_DONE: "close",
    },
    COMPACTION: {Step.COMPACTION_DONE: "compaction"},
}
"""By lane: the span that a step ends. In log mode ``memtable`` has the encoding of records, too."""
_FIRST: Final = {DRIVER: Step.BATCH_GIVEN, PART: Step.PART_STARTED, COMPACTION: Step.COMPACTION_STARTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of work."""

    lane: str
    name: str
    start_us: int  # since the batch began
    us: int
    bucket: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTrace:
    """One micro-batch."""

    table: str
    batch: int
    rows: int | None  # None: tasks wrote it, which report none
    spans: tuple[Span, ...]  # by lane, then by start

    @property
    def us(self) -> int:
        """From the beginning to the end of the batch; what runs beside it may last longer."""
        return max((span.start_us + span.us for span in self.spans if span.lane in (SPARK, DRIVER)), default=0)

    @property
    def lanes(self) -> Sequence[str]:
        """In the order of the picture."""
        return list(dict.fromkeys(span.lane for span in self.spans))

    def as_json(self) -> Mapping[str, Any]:
        """The trace as JSON values; all times in milliseconds since the start of the batch."""
        spans = [
            {
                "lane": each.lane, "name": each.name, "bucket": each.bucket,
                "start_ms": each.start_us / 1000, "ms": each.us / 1000,
            }
            for each in self.spans
        ]  # fmt: skip
        return {"table": self.table, "batch": self.batch, "rows": self.rows, "ms": self.us / 1000, "spans": spans}


def batch_trace(steps: Iterable[TimedStep], *, table: str | None = None, batch: int | None = None) -> BatchTrace:
    """One micro-batch of a trace.

    Args:
        steps: of ``read_steps``; an attempt of the batch that a later one follows is left out.
        table: None: that of the newest batch.
        batch: its number; None: the newest that is done.

    Raises:
        InvalidInputError: there is no such batch; names those that there are.
    """
    by_batch = _by_batch(steps)
    wanted = {key: found for key, found in by_batch.items() if table in (None, key[0]) and batch in (None, key[1])}
    done = {key: end for key, found in wanted.items() if (end := _end_us(found)) is not None}
    if not done:
        raise InvalidInputError(
            f"no such batch in the trace, or it is not done: table={table} batch={batch} known='{_known(by_batch)}'"
        )
    chosen = max(done, key=lambda key: done[key])
    return _traced(*chosen, sorted(wanted[chosen], key=lambda each: each.at_us))


def newest_traces(steps: Iterable[TimedStep], last: int) -> list[BatchTrace]:
    """The newest micro-batches of a trace that are done, newest first, at most ``last``; () where none is done."""
    by_batch = _by_batch(steps)
    done = {key: end for key, found in by_batch.items() if (end := _end_us(found)) is not None}
    newest = sorted(done, key=lambda key: -done[key])[:last]
    return [_traced(*key, sorted(by_batch[key], key=lambda each: each.at_us)) for key in newest]


def _by_batch(steps: Iterable[TimedStep]) -> dict[tuple[str, int], list[TimedStep]]:
    found: dict[tuple[str, int], list[TimedStep]] = defaultdict(list)
    for each in steps:
        found[each.table, each.batch].append(each)
    return found


def _known(batches: Iterable[tuple[str, int]]) -> str:
    numbers: dict[str, list[int]] = defaultdict(list)
    for table, batch in batches:
        numbers[table].append(batch)
    return ", ".join(f"{table} {min(found)} to {max(found)}" for table, found in sorted(numbers.items()))


def _end_us(steps: Sequence[TimedStep]) -> int | None:
    return max((each.at_us for each in steps if each.step == Step.BATCH_DONE.value), default=None)


def _traced(table: str, batch: int, steps: Sequence[TimedStep]) -> BatchTrace:
    given = max((each.at_us for each in steps if each.step == Step.BATCH_GIVEN.value), default=steps[0].at_us)
    triggers = [each for each in steps if each.step == TRIGGER and each.at_us <= given]
    begin = triggers[-1].at_us if triggers else given
    attempt = [each for each in steps if each.at_us >= given and each.step != TRIGGER]
    rows = [each.facts["rows"] for each in attempt if each.step == Step.ROWS_COLLECTED.value]
    spans = [] if not triggers else _phases(triggers[-1])
    for lane in _SPANS:
        spans += _on_lane(lane, attempt, begin)
    return BatchTrace(table=table, batch=batch, rows=rows[0] if rows else None, spans=tuple(spans))


def _phases(trigger: TimedStep) -> list[Span]:
    spans, start = [], 0
    for name in _PHASES:
        us = 1000 * trigger.facts.get(name, 0)
        spans += [Span(lane=SPARK, name=name, start_us=start, us=us)] if us else []
        start += us
    return spans


def _on_lane(lane: str, steps: Sequence[TimedStep], begin: int) -> list[Span]:
    """Steps in their order; each thread that has some has a lane."""
    names = {step.value: name for step, name in _SPANS[lane].items()}
    known = {*names, _FIRST[lane].value}
    by_thread: dict[tuple[str, int], list[TimedStep]] = defaultdict(list)
    for each in steps:
        if each.step in known:
            by_thread[each.process, each.thread].append(each)
    if lane == DRIVER:
        return _spans(lane, [each for found in by_thread.values() for each in found], names, begin)
    return [
        span
        for number, found in enumerate(by_thread.values(), start=1)
        for span in _spans(lane if len(by_thread) == 1 else f"{lane} {number}", found, names, begin)
    ]


def _spans(lane: str, steps: Sequence[TimedStep], names: Mapping[str, str], begin: int) -> list[Span]:
    found: list[Span] = []
    for before, after in pairwise(sorted(steps, key=lambda each: each.at_us)):
        name = names.get(after.step)
        if name is None:
            continue
        span = Span(
            lane=lane, name=name, start_us=before.at_us - begin, us=after.at_us - before.at_us, bucket=after.bucket
        )
        found.append(span)
    return found
