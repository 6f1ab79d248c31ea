"""The job files of a recovery: which pipeline a job of the lineage is, and how it is loaded with other values."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from engine.checkpoint.checkpoint_files import checkpoint_root, is_readable
from engine.deploy.config.job_config import JobConfig, load_job
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.sources import source_options, source_table
from engine.procedures.recovery_steps import JobFile
from engine.request.branch_choice import BRANCH_KEY
from filestore.layout.branch_names import split_branch
from filestore.layout.locations import absolute_path
from lsm.errors import InvalidInputError

_JOB_KEY: Final = "pipeline.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """Job files, each with the overlays of the recovery."""

    paths: tuple[str, ...]
    overlays: tuple[str, ...] = ()
    profile: str | None = None
    overrides: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "JobFiles":
        """The inverse of ``to_json``. Raises: KeyError, TypeError for anything else."""
        return cls(
            paths=tuple(body["paths"]),
            overlays=tuple(body["overlays"]),
            profile=body["profile"],
            overrides=tuple(body["overrides"]),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The options of the command line that load a file like this."""
        profile = () if self.profile is None else ("--profile", self.profile)
        overlays = (word for each in self.overlays for word in ("--overlay", each))
        return (*profile, *overlays, *(word for each in self.overrides for word in ("--set", each)))

    def load(self, path: str, values: Mapping[str, str] | None = None) -> JobConfig:
        """A job, with other values over all layers. Raises: InvalidInputError."""
        more = tuple(f"{key}={value}" for key, value in (values or {}).items())
        return load_job(
            path,
            overlays=self.overlays,
            profile=self.profile,
            overrides=(*self.overrides, *more),
            environment=os.environ,
        )

    def load_all(self) -> dict[str, JobConfig]:
        """The jobs by path. Raises: InvalidInputError; also when they are about different warehouses."""
        jobs = {path: self.load(path) for path in self.paths}
        places = {path: os.path.abspath(job.warehouse) for path, job in jobs.items()}
        if len(set(places.values())) > 1:
            raise InvalidInputError(
                f"the job files are about different warehouses: {places} fix=recover each by itself"
            )
        return jobs


def job_files_by_job(files: JobFiles, jobs: Mapping[str, JobConfig], branch: str) -> dict[str, JobFile]:
    """The pipelines that read a table, by the names of their jobs in the lineage.

    Raises:
        InvalidInputError: a target names a job of its own, a pipeline works on a branch already, two pipelines are the
            same job, or the checkpoint of a new one exists.
    """
    found: dict[str, JobFile] = {}
    for path, config in jobs.items():
        for index, pipeline in enumerate(config.pipelines):
            table = source_table(config, pipeline)
            if table is None:
                continue
            job = pipeline.options.get(_JOB_KEY, pipeline.name)
            if job in found:
                raise InvalidInputError(f"two pipelines are the same job: job={job} files={found[job].file},{path}")
            found[job] = _job_file(files, path, config, pipeline, index, branch)
    return found


def _job_file(
    files: JobFiles, path: str, config: JobConfig, pipeline: PipelineConfig, index: int, branch: str
) -> JobFile:
    for target in pipeline.targets:
        if _JOB_KEY in target.options:
            raise InvalidInputError(
                f"a target names a job of its own: pipeline={pipeline.name} table={target.table} "
                f"fix='set {_JOB_KEY} under options of the pipeline'"
            )
    options = source_options(config, pipeline)
    names = [str(options["table"]), *(each.table for each in pipeline.outputs)]
    on_branches = [each for each in names if split_branch(each)[1] is not None]
    if on_branches or BRANCH_KEY in options:
        raise InvalidInputError(
            f"the pipeline works on a branch already: pipeline={pipeline.name} tables={','.join(on_branches or names)} "
            "fix=recover from the table that main is made of"
        )
    checkpoint = absolute_path(pipeline.checkpoint).rstrip("/")
    return JobFile(
        pipeline=pipeline.name,
        key=str(index) if "." in pipeline.name or pipeline.name.isdecimal() else "",
        file=path,
        layers=files.words,
        checkpoint=checkpoint,
        new_checkpoint=f"{checkpoint}-{branch}",
        source_options=dict(pipeline.source.options),
        source_table=str(options["table"]),
        targets=frozenset(each.table for each in pipeline.outputs),
    )


def check_new(files: Sequence[JobFile]) -> None:
    """Refuse checkpoints that exist: their jobs would continue another recovery. Raises: InvalidInputError."""
    for each in files:
        if is_readable(each.new_checkpoint) and checkpoint_root(each.new_checkpoint).exists():
            raise InvalidInputError(
                f"the checkpoint of the new job exists already: pipeline={each.pipeline} checkpoint="
                f"{each.new_checkpoint} fix=choose another --branch, or delete what an abandoned recovery left"
            )
