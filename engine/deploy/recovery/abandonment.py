"""Abandons a recovery that is not published: deletes its branches, with their topics, checkpoints and lineage.

The plan notes this first, so that a partly deleted recovery is not continued. Each step accepts that its object was
already deleted, because after a crash all steps are run again.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.catalog import Catalog
from engine.checkpoint.checkpoint_files import checkpoint_root, is_readable
from engine.deploy.recovery.plan_file import PlanFile
from engine.deploy.recovery.recovery_plan import RecoveryPlan, job_catalog
from engine.deploy.recovery.table_lineage import end_lineage
from engine.procedures.recovery_steps import StepKind
from engine.versions.branches import delete_branch
from filestore.branch.files import branch_entries
from filestore.layout.branch_names import on_branch_name
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError


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
