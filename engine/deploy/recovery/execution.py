"""Carrying out the plan of a recovery, step by step, from wherever an earlier attempt ended.

prepare   branches are made and corrected, once
compute   the pipelines run until they have read everything, then the branches are compared and checked; each attempt
          does it again, because the sources grow
publish   the branches become main, one after the other. It is written down before, and every later attempt completes it
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.checkpoint.checkpoint_files import METADATA_FILE, checkpoint_root
from engine.cuts.tags import CutRecord, tag_cut
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.operation_config import HealthConfig, MetricsConfig, OnFailureConfig
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import OnProgress
from engine.deploy.recovery.corrections import correct_rows
from engine.deploy.recovery.plan_file import PlanFile, write_whole
from engine.deploy.recovery.recovery_plan import job_catalog
from engine.deploy.recovery.table_lineage import end_lineage, rebuild_lineage
from engine.procedures.recovery_steps import RecoveryStep, StepKind
from engine.procedures.versions.cuts import rewind_checkpoint
from engine.table import Table
from engine.versions.branches import create_branch, replace_main
from engine.versions.expectations import check_expectations, refuse_failures
from filestore.branch.main_replacement import check_can_be_main, is_main
from filestore.layout.branch_state import main_branch
from filestore.layout.paths import MAIN_BRANCH
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError


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
    done = {file.plan.steps[index].table for index in file.state.facts if _is_publication(file.plan.steps[index])}
    found = {}
    for name in file.plan.tables:
        store = catalog.table(name).store
        is_new = name in done or main_branch(store.io, store.paths.root) == file.plan.request.branch
        found[name] = "new" if is_new else "old"
    return found


def _is_publication(step: RecoveryStep) -> bool:
    return step.kind is StepKind.PUBLISH


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


def left_steps(file: PlanFile) -> Iterable[RecoveryStep]:
    """The steps that are not done, also those that every attempt repeats."""
    for index, step in enumerate(file.plan.steps):
        if index not in file.state.facts or (step.kind in _REPEATED and not file.state.is_publishing):
            yield step


def _become_main(store: TableStore, branch: str) -> str:
    if is_main(store, branch):
        return "done before"
    done = replace_main(store, branch)
    return f"dropped_snapshots={done.snapshot_count}"


def _newest(store: TableStore) -> int:
    return store.snapshots.latest_id() or 0
