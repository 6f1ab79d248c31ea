"""Carrying out the plan of a recovery, step by step, from wherever an earlier attempt ended.

prepare   branches are made and corrected, once
compute   the pipelines run until they have read everything, then the branches are compared and checked; each attempt
          does it again, because the sources grow
publish   the branches become main, one after the other. It is written down before, and every later attempt completes it
"""

import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.checkpoint.checkpoint_files import METADATA_FILE, checkpoint_root, is_readable
from engine.cuts.tags import CutRecord, tag_cut
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.operation_config import HealthConfig, MetricsConfig, OnFailureConfig
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import OnProgress
from engine.deploy.recovery.corrections import correct_rows
from engine.deploy.recovery.plan_file import PlanFile, write_whole
from engine.deploy.recovery.recovery_plan import RecoveryPlan, job_catalog
from engine.lineage.lineage import lineage_of, merged_lineage
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from engine.lineage.store.entities import LineageRecords
from engine.procedures.lineage import delete_data_lineage, delete_table_lineage
from engine.procedures.recovery_steps import RecoveryStep, StepKind
from engine.procedures.versions.cuts import rewind_checkpoint
from engine.table import Table
from engine.versions.branches import create_branch, delete_branch, replace_main
from engine.versions.expectations import check_expectations, refuse_failures
from filestore.branch.files import branch_entries
from filestore.branch.main_replacement import check_can_be_main, is_main
from filestore.layout.branch_names import on_branch_name, split_branch
from filestore.layout.branch_state import main_branch
from filestore.layout.paths import MAIN_BRANCH
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError

# ---- The lineage of published tables, made from their snapshots: what the branches recorded is true for main now.
#
# The snapshots of a branch name what they were made of as it was called then, with branches that no longer exist.


_STORED_AT_ONCE: Final = 500


def end_lineage(catalog: Catalog, job: str) -> str:
    """Delete what is recorded of a job that has ended. Raises: UnavailableError."""
    delete_table_lineage(catalog, job)
    delete_data_lineage(catalog, job)
    return "deleted"


def rebuild_lineage(catalog: Catalog, name: str, branch: str, ended: Collection[str]) -> str:
    """Record what the snapshots of a table were made of, with main in place of the branch. Idempotent.

    Args:
        catalog: of the table.
        name: of the table.
        branch: that became main.
        ended: jobs that will not run again: which snapshots they wrote is true, but not that they write the table.

    Raises: UnavailableError.
    """
    store, lineage = catalog.table(name).store, lineage_of(catalog)
    recorder = Recorder.of(store)
    assert lineage is not None
    assert recorder is not None
    count = 0
    waiting: list[LineageRecords] = []
    for snapshot_id in store.snapshots.line().ids:
        snapshot = store.snapshots.find(snapshot_id)
        origin = None if snapshot is None else CommitOrigin.of(snapshot)
        if snapshot is None or origin is None:
            continue
        records = recorder.records(snapshot, _on_main(origin, branch))
        waiting.append(replace(records, source_tables=(), sink_tables=()) if origin.job in ended else records)
        count += 1
        if len(waiting) >= _STORED_AT_ONCE:
            lineage.store(merged_lineage(waiting))
            waiting = []
    lineage.store(merged_lineage(waiting))
    return f"snapshots={count}"


def _on_main(origin: CommitOrigin, branch: str) -> CommitOrigin:
    reads = []
    for each in origin.reads:
        table, on = split_branch(each.table)
        reads.append(replace(each, table=table) if on == branch else each)
    return replace(origin, reads=tuple(reads))


# ---- Carrying out the plan of a recovery, step by step, from wherever an earlier attempt ended


class Stage(IntEnum):
    """The parts of a recovery, in their order."""

    PREPARE = 1
    COMPUTE = 2
    PUBLISH = 3


_STAGES: Final[Mapping[StepKind, Stage]] = {
    **dict.fromkeys((StepKind.BRANCH, StepKind.CORRECT), Stage.PREPARE),
    **dict.fromkeys((StepKind.REWIND, StepKind.RUN, StepKind.REVIEW, StepKind.CHECK), Stage.COMPUTE),
    **dict.fromkeys((StepKind.TAG, StepKind.PUBLISH, StepKind.SETTLE, StepKind.RECORD), Stage.PUBLISH),
}
_REPEATED: Final = (StepKind.RUN, StepKind.REVIEW, StepKind.CHECK)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """A step that begins, or has ended."""

    index: int
    step: RecoveryStep
    fact: str | None = None  # None: it begins


OnStep = Callable[[StepReport], None]


class Execution:
    """One attempt to carry out a plan, by the process that has its file."""

    def __init__(
        self,
        file: PlanFile,
        open_spark: Callable[[JobConfig], SparkSession],
        *,
        on_step: OnStep = lambda _: None,
        on_progress: OnProgress = lambda _: None,
        stop: threading.Event | None = None,
        drops_later: bool = False,
    ) -> None:
        """Nothing is done yet.

        Args:
            file: the plan.
            open_spark: gives the session, when a step needs it first.
            on_step: called before and after each step.
            on_progress: called after every micro-batch.
            stop: set by another thread: the attempt ends after the running micro-batch.
            drops_later: publish even if main of the corrected table was written since the plan was made.
        """
        self._file, self._plan = file, file.plan
        self._open_spark = open_spark
        self._on_step, self._on_progress = on_step, on_progress
        self._stop = stop or threading.Event()
        self._drops_later = drops_later
        self._catalog: Catalog = job_catalog(self._plan.request.files)
        self._spark: SparkSession | None = None
        self._branch = self._plan.request.branch

    def run(self, until: Stage) -> bool:
        """Carry out what is left up to the end of a stage. A publication that was begun is completed in any case.

        Returns:
            False when it was stopped; then the next attempt continues.

        Raises:
            InvalidInputError: the recovery was given up.
            ExpectationError: the branches are not as expected; nothing is published.
            ConflictError: main of the corrected table was written since the plan was made, or a branch since it was
                checked; nothing is published.
            FluvialError: a step failed; the next attempt begins with it. Once the publication has begun, the message
                says what readers see of each table.
        """
        if self._file.state.is_abandoned:
            raise InvalidInputError(
                f"the recovery was given up: plan={self._file.path} "
                f"fix='fluvial recover --plan {self._file.path} --abandon completes that'"
            )
        if not self._file.state.is_publishing:
            for stage in (Stage.PREPARE, Stage.COMPUTE):
                if stage <= until and not self._run_stage(stage):
                    return False
            if until < Stage.PUBLISH:
                return True
            self._begin_publication()
        try:
            return self._run_stage(Stage.PUBLISH)
        except FluvialError as error:
            seen = " ".join(f"{table}={state}" for table, state in seen_tables(self._catalog, self._file).items())
            raise type(error)(
                f"{error} readers_see=({seen}) next='run it again to complete the publication'"
            ) from error

    def _run_stage(self, stage: Stage) -> bool:
        for index, step in enumerate(self._plan.steps):
            if _STAGES[step.kind] is not stage:
                continue
            if index in self._file.state.facts and step.kind not in _REPEATED:
                continue
            if self._stop.is_set():
                return False
            self._on_step(StepReport(index=index, step=step))
            fact = _ACTIONS[step.kind](self, step)
            if fact is None:
                return False
            self._file.save(self._file.state.with_fact(index, fact))
            self._on_step(StepReport(index=index, step=step, fact=fact))
        return True

    # ---- prepare and compute

    def _make_branch(self, step: RecoveryStep) -> str:
        made = create_branch(
            self._main(step).store,
            self._branch,
            snapshot_id=step.snapshot_id,
            log=step.arguments["log"],
            ignore_if_exists=True,
        )
        return "empty" if made.snapshot_id is None else f"snapshot={made.snapshot_id}"

    def _correct(self, step: RecoveryStep) -> str:
        return correct_rows(
            self._catalog, self._session(), step.arguments["statement"], self._there(step).store, str(step.job)
        )

    def _rewind(self, step: RecoveryStep) -> str:
        directory = step.arguments["to"]
        if (checkpoint_root(directory) / METADATA_FILE).exists():  # it appears as a whole
            return "done before"
        done = rewind_checkpoint(self._main(step), step.arguments["tag"], step.arguments["checkpoint"], directory)
        return f"batch={done['batch_id'][0].as_py()}"

    def _run_pipeline(self, step: RecoveryStep) -> str | None:
        arguments = step.arguments
        config = self._plan.request.files.load(arguments["file"], arguments["set"]).chosen([arguments["pipeline"]])
        quiet = {"health": HealthConfig(), "metrics": MetricsConfig(), "on_failure": OnFailureConfig()}
        config = config.model_copy(update=quiet)  # the old job serves its probes
        [result] = run_job(config, spark=self._session(), on_progress=self._on_progress, stop=self._stop)
        if not result.is_complete:
            return None
        snapshots = ",".join(str(each.snapshot_id) for each in result.targets)
        return f"batches={result.batch_count} changes={result.row_count} snapshot={snapshots}"

    def _review(self, step: RecoveryStep) -> str:
        self._note_checked()
        table = self._main(step)
        if not self._file.state.checked[str(step.table)]:
            return "the branch is empty"
        if table.latest_snapshot() is None:
            return "main is empty"
        found = table.diff("latest", f"{self._branch}.latest").summary()
        return f"inserted={found.inserted} deleted={found.deleted} updated={found.updated}"

    def _check(self, step: RecoveryStep) -> str:
        there, expected = self._there(step), step.arguments["expect"]
        snapshot_id = self._file.state.checked[str(step.table)] or None
        try:
            outcomes = check_expectations(there, expected, snapshot_id=snapshot_id, spark=self._spark)
        except InvalidInputError:
            if self._spark is not None:
                raise
            outcomes = check_expectations(there, expected, snapshot_id=snapshot_id, spark=self._session())
        refuse_failures(there.name, outcomes)
        return f"passed={len(outcomes)}"

    def _note_checked(self) -> None:
        """The state of the branches from which on nothing may be written."""
        newest = {name: _newest(self._catalog.table(name, branch=self._branch).store) for name in self._plan.tables}
        if newest != self._file.state.checked:
            self._file.save(replace(self._file.state, checked=newest))

    # ---- publish

    def _begin_publication(self) -> None:
        """Find out whether all tables can be published, then write down that they will be."""
        state = self._file.state
        for name in self._plan.tables:
            store = self._catalog.table(name).store
            check_can_be_main(store, self._branch)
            there = _newest(self._catalog.table(name, branch=self._branch).store)
            if there != state.checked.get(name):
                raise ConflictError(
                    f"the branch was written after it was checked: table={name} branch={self._branch} "
                    f"checked={state.checked.get(name)} newest={there} fix=run it again"
                )
            before, now = self._plan.main_at.get(name), _newest(store)
            if before is not None and before != now and not self._drops_later:
                raise ConflictError(
                    f"main was written since the recovery began, and these rows are not on the branch: table={name} "
                    f"then={before} now={now} branch={self._branch} fix='stop its writers and bring the rows to the "
                    "branch, then publish with --drop-later, which drops them from main'"
                )
        self._file.save(replace(state, is_publishing=True))

    def _tag(self, step: RecoveryStep) -> str:
        checked = {name: at for name, at in self._file.state.checked.items() if at}
        name = str(step.table)
        if name not in checked:
            return "the branch is empty"
        record = CutRecord(id=f"recovery-{self._branch}", tables=checked, batches={})
        tag_cut({name: self._there(step).store}, self._plan.tag, record)
        return f"snapshot={checked[name]}"

    def _publish(self, step: RecoveryStep) -> str:
        return _become_main(self._main(step).store, self._branch)

    def _settle(self, step: RecoveryStep) -> str:
        return _become_main(self._main(step).store, MAIN_BRANCH)

    def _record(self, step: RecoveryStep) -> str:
        if step.table is not None:
            return rebuild_lineage(self._catalog, step.table, self._branch, step.arguments["ended"])
        return end_lineage(self._catalog, str(step.job))

    # ---- what steps are about

    def _main(self, step: RecoveryStep) -> Table:
        return self._catalog.table(str(step.table))

    def _there(self, step: RecoveryStep) -> Table:
        return self._catalog.table(str(step.table), branch=self._branch)

    def _session(self) -> SparkSession:
        if self._spark is None:
            files = self._plan.request.files
            self._spark = self._open_spark(files.load(files.paths[0]))
        return self._spark


_ACTIONS: Final[Mapping[StepKind, Callable[[Execution, RecoveryStep], str | None]]] = {
    StepKind.BRANCH: Execution._make_branch,
    StepKind.CORRECT: Execution._correct,
    StepKind.REWIND: Execution._rewind,
    StepKind.RUN: Execution._run_pipeline,
    StepKind.REVIEW: Execution._review,
    StepKind.CHECK: Execution._check,
    StepKind.TAG: Execution._tag,
    StepKind.PUBLISH: Execution._publish,
    StepKind.SETTLE: Execution._settle,
    StepKind.RECORD: Execution._record,
}
"""None: the step was stopped."""


def seen_tables(catalog: Catalog, file: PlanFile) -> dict[str, str]:
    """The state that readers of each table see: ``old``, or ``new`` after its main branch was replaced."""
    steps = (file.plan.steps[index] for index in file.state.facts)
    done = {step.table for step in steps if step.kind is StepKind.PUBLISH}
    found = {}
    for name in file.plan.tables:
        store = catalog.table(name).store
        is_new = name in done or main_branch(store.io, store.paths.root) == file.plan.request.branch
        found[name] = "new" if is_new else "old"
    return found


def write_overlays(file: PlanFile) -> dict[str, str]:
    """Write, beside the plan, what the job files need from the publication on. Returns: overlay by job file."""
    written: dict[str, str] = {}
    for path, text in file.plan.overlays.items():
        name = f"{file.path.stem}.{Path(path).stem}.yaml"
        taken = [Path(each).name for each in written.values()]
        target = file.path.with_name(f"{len(written)}-{name}" if name in taken else name)
        write_whole(target, f"# from `fluvial recover`: names and checkpoints of the jobs since then\n{text}")
        written[path] = str(target)
    return written


def _become_main(store: TableStore, branch: str) -> str:
    if is_main(store, branch):
        return "done before"
    done = replace_main(store, branch)
    return f"dropped_snapshots={done.snapshot_count}"


def _newest(store: TableStore) -> int:
    return store.snapshots.latest_id() or 0


# ---- Abandons a recovery that is not published: deletes its branches, with their topics, checkpoints and lineage
#
# The plan notes this first, so that a partly deleted recovery is not continued. Each step accepts that its object was
# already deleted, because after a crash all steps are run again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """One thing that is given up."""

    what: str  # branch, checkpoint, lineage or plan
    name: str  # a table on its branch, a directory, a job, or a file
    fact: str


def abandon(file: PlanFile, *, dry_run: bool = False) -> Iterator[Abandoned]:
    """Remove all that a recovery has created, and its plan. Tables and checkpoints of the old jobs are not changed.

    Args:
        file: the plan, which this process alone works on.
        dry_run: only say what would be removed.

    Yields: each object, after it was removed.

    Raises:
        InvalidInputError: the publication has begun, so readers may see the branches; or other branches were made
            from one. The former has no effect.
        UnavailableError: the brokers or the lineage store do not answer; run it again.
    """
    if file.state.is_publishing:
        raise InvalidInputError(
            f"the recovery is being published, or was: plan={file.path} fix='fluvial recover --plan {file.path} "
            "--publish completes it; then rollback-to-as-latest takes a table back'"
        )
    if not dry_run:
        file.save(replace(file.state, is_abandoned=True))
    catalog, branch = job_catalog(file.plan.request.files), file.plan.request.branch
    for name in reversed(file.plan.tables):
        store = catalog.table(name).store
        if branch_entries(store.io, store.paths.with_branch(branch)):
            fact = _end_branch(store, branch, dry_run=dry_run)
            yield Abandoned(what="branch", name=on_branch_name(name, branch), fact=fact)
    for directory in _checkpoints(file.plan):
        if not is_readable(directory):
            yield Abandoned(what="checkpoint", name=directory, fact="left: it is not on this machine")
        elif checkpoint_root(directory).exists():
            if not dry_run:
                shutil.rmtree(checkpoint_root(directory))
            yield Abandoned(what="checkpoint", name=directory, fact="deleted")
    yield from _end_lineage(catalog, file.plan, dry_run=dry_run)
    if not dry_run:
        file.path.unlink(missing_ok=True)
    yield Abandoned(what="plan", name=str(file.path), fact="deleted")


def _end_branch(store: TableStore, branch: str, *, dry_run: bool) -> str:
    deleted = delete_branch(store, branch, dry_run=dry_run)
    return f"deleted files={len(deleted.data)} size_bytes={deleted.size_bytes}"


def _checkpoints(plan: RecoveryPlan) -> list[str]:
    """The directories of the new jobs, none of which existed when the plan was made."""
    values = (step.arguments["set"].items() for step in plan.steps if step.kind is StepKind.RUN)
    return [value for each in values for key, value in each if key.endswith(".checkpoint")]


def _end_lineage(catalog: Catalog, plan: RecoveryPlan, *, dry_run: bool) -> Iterator[Abandoned]:
    new = [f"{step.job}-{plan.request.branch}" for step in plan.steps if step.kind is StepKind.RUN]
    for job in [*new, *(str(step.job) for step in plan.steps if step.kind is StepKind.CORRECT)]:
        if not dry_run:
            end_lineage(catalog, job)
        yield Abandoned(what="lineage", name=job, fact="deleted")
