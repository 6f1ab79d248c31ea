"""Progress of a running job, and its results."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from engine.cli.output import console, notes, print_table
from engine.deploy.pipeline.pipeline import OnProgress, PipelineProgress, PipelineResult

_LINE_EVERY_S: Final = 5.0


def print_results(results: Sequence[PipelineResult]) -> None:
    """Print the result of each pipeline, and failed compactions."""
    rows = [
        (
            each.pipeline,
            ", ".join(f"{target.table}" for target in each.targets),
            each.batch_count,
            each.row_count,
            f"{each.seconds:.1f}",
            f"{each.row_count / each.seconds:,.0f}" if each.seconds else "",
            ", ".join("" if target.snapshot_id is None else str(target.snapshot_id) for target in each.targets),
        )
        for each in results
    ]
    columns = ("pipeline", "table", "batches", "changes", "seconds", "changes/s", "snapshot")
    print_table("", columns, rows, numbers=columns[2:])
    for target in (target for each in results for target in each.targets):
        for rule, count in target.broken_rows.items():
            if count:
                console().print(f"rows broke a rule: table={target.table} rule={rule} rows={count}", markup=False)
        if target.compaction_failure_count:
            count, last = target.compaction_failure_count, target.last_compaction_failure
            facts = f"table={target.table} failures={count} last={last}"
            console().print(f"compaction failed, no row is lost: {facts}", soft_wrap=True, markup=False)


@contextmanager
def job_progress(pipelines: Sequence[str], *, quiet: bool) -> Iterator[OnProgress]:
    """Shows a job's progress: bars on a terminal, else a line every few seconds; nothing when quiet."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bars() as bars:
            yield _Bars(bars, pipelines)
    else:
        yield _Lines()


def _bars() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        console=notes(),
    )


class _Bars:
    def __init__(self, bars: Progress, pipelines: Sequence[str]) -> None:
        self._bars = bars
        self._tasks: Mapping[str, TaskID] = {
            name: bars.add_task(name, total=None, facts="starting Spark") for name in pipelines
        }

    def __call__(self, progress: PipelineProgress) -> None:
        total = None if progress.waiting_count is None else progress.row_count + progress.waiting_count
        facts = f"{progress.row_count:,} changes  {progress.rows_per_second:,.0f}/s  batch {progress.batch_count}"
        self._bars.update(self._tasks[progress.pipeline], completed=progress.row_count, total=total, facts=facts)


class _Lines:
    def __init__(self) -> None:
        self._printed_s: dict[str, float] = {}

    def __call__(self, progress: PipelineProgress) -> None:
        now = time.monotonic()
        if now - self._printed_s.get(progress.pipeline, float("-inf")) < _LINE_EVERY_S:
            return
        self._printed_s[progress.pipeline] = now
        facts: dict[str, Any] = {
            "batches": progress.batch_count,
            "changes": progress.row_count,
            "changes_per_s": _rate_text(progress.rows_per_second),
            "waiting": progress.waiting_count,
        }
        words = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        sys.stderr.write(f"{progress.pipeline}: {words}\n")


def _rate_text(rate: float) -> str | None:
    """``0.3``, ``1200``; None when nothing was measured."""
    return None if not rate else f"{rate:.2g}" if rate < 10 else f"{rate:.0f}"
