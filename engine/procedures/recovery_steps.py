"""The steps of a recovery, in their order: pure, from the places of the jobs to commands that can be run.

A correction goes to a branch, and so does what is computed from it: branches copy nothing, and the old jobs continue
until the branches become main. New jobs have new names, because their batches are numbered from 0 again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from shlex import join
from typing import Any, Final

from engine.lineage.graph.impact import ImpactedTable, JobPlace
from engine.lineage.store.entities import split_name
from engine.versions.expectations import condition_query
from filestore.layout.branch_names import on_branch_name
from filestore.layout.paths import MAIN_BRANCH
from lsm.errors import InvalidInputError

OLD_CHECKPOINT: Final = "DIRECTORY"
NEW_CHECKPOINT: Final = "NEW"
_FILE: Final = "JOB.yaml"
_PROGRAM: Final = "JOB.py"
_NAME_KEY: Final = "pipeline.name"
_START_KEYS: Final = ("scan.mode", "scan.snapshot-id", "scan.tag-name", "scan.timestamp", "scan.start-from-job")


class StepKind(Enum):
    """What a step does; the order of a recovery."""

    BRANCH = "branch"
    CORRECT = "correct"
    REWIND = "rewind"
    RUN = "run"
    REVIEW = "review"
    CHECK = "check"
    TAG = "tag"
    PUBLISH = "publish"
    SETTLE = "settle"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryStep:
    """One step: what it does, and the command that does it."""

    kind: StepKind
    what: str
    command: str
    table: str | None = None
    job: str | None = None
    snapshot_id: int | None = None
    barrier_id: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)  # JSON values, for carrying it out

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kind": self.kind.value,
            "what": self.what,
            "table": self.table,
            "job": self.job,
            "snapshot": self.snapshot_id,
            "barrier": self.barrier_id,
            "command": self.command,
            "arguments": dict(self.arguments),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "RecoveryStep":
        """The inverse of ``to_json``. Raises: KeyError, ValueError for anything else."""
        return cls(
            kind=StepKind(body["kind"]),
            what=body["what"],
            command=body["command"],
            table=body["table"],
            job=body["job"],
            snapshot_id=body["snapshot"],
            barrier_id=body["barrier"],
            arguments=body["arguments"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """Where a job is defined, and what its definition says."""

    pipeline: str
    key: str = ""  # of the pipeline in its file: its index; empty: its name
    file: str = _FILE
    layers: tuple[str, ...] = ()  # options of the command line that load the file
    checkpoint: str = OLD_CHECKPOINT
    new_checkpoint: str = NEW_CHECKPOINT
    source_options: Mapping[str, str] = field(default_factory=dict)
    source_table: str = ""
    targets: frozenset[str] = frozenset()  # tables that it writes, also those without rows yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What is to be recovered, and how."""

    table: str
    snapshot_id: int  # the newest correct one
    branch: str
    is_incremental: bool
    place: tuple[str, ...] = ()  # options of the command line that find the tables
    logged: frozenset[str] = frozenset()  # tables with a log: their branches get one

    def new_name(self, job: str) -> str:
        """The name of the job that takes the place of another."""
        return f"{job}-{self.branch}"

    def correction(self, number: int) -> str:
        """The name of a correction in the lineage."""
        return f"recover-{self.branch}-{number}"

    @property
    def tag(self) -> str:
        """The tag that the published tables have in common."""
        return f"recovered-{self.branch}"

    def on_branch(self, table: str) -> str:
        """The name of a table on the branch."""
        return on_branch_name(table, self.branch)


def recovered_tables(recovery: Recovery, places: Sequence[JobPlace], files: Mapping[str, JobFile]) -> list[str]:
    """The corrected table, and what is computed from it, in the order of the jobs."""
    found = [recovery.table]
    for place in places:
        known = files[place.job].targets if place.job in files else frozenset()
        found += [*sorted(set(map(".".join, place.targets)) | known)]
    return list(dict.fromkeys(found))


def preparing_steps(
    recovery: Recovery, places: Sequence[JobPlace], files: Mapping[str, JobFile], corrections: Sequence[str]
) -> Iterator[RecoveryStep]:
    """Branches, corrections, checkpoints, and jobs.

    Args:
        recovery: what and how.
        places: of the jobs, those that write a table before those that read it.
        files: of the jobs that are pipelines of a job file, by the name of the job; others get a file that is named
            as an example.
        corrections: statements.

    Raises:
        InvalidInputError: incremental, and a job has no barrier that ends at the snapshot, or one that ends before the
            branch of a source begins.
    """
    yield _branched(recovery, "begin the correction", recovery.table, recovery.snapshot_id, job=None)
    for number, statement in enumerate(corrections, 1):
        yield RecoveryStep(
            kind=StepKind.CORRECT,
            what="correct the rows",
            table=recovery.table,
            job=recovery.correction(number),
            command=_shell(recovery, "sql", statement),
            arguments={"statement": statement},
        )
    tables = recovered_tables(recovery, places, files)
    begins = {".".join(name): (place, at) for place in reversed(places) for name, at in place.targets.items()}
    for target in tables[1:]:
        place, written_id = begins.get(target, (None, 0))
        since = written_id if recovery.is_incremental and written_id else None
        yield _branched(recovery, "begin the new result", target, since, job=None if place is None else place.job)
    begun = {recovery.table: recovery.snapshot_id} | {name: at for name, (_, at) in begins.items()}
    for place in places:
        file = files.get(place.job, JobFile(pipeline=place.job))
        is_resumed = recovery.is_incremental and _goes_back(recovery, place)
        if is_resumed:
            _check_reached(recovery, place, begun)
            yield _rewound(recovery, place, file)
        yield _started(recovery, place, file, frozenset(tables), is_resumed=is_resumed)


def publishing_steps(recovery: Recovery, tables: Sequence[str]) -> Iterator[RecoveryStep]:
    """The branches get a common tag and become main; then main lies in the directory of the table again."""
    for kind, what, command in (
        (StepKind.TAG, "name the new state", ("create-tag", "--tag", recovery.tag)),
        (StepKind.PUBLISH, "publish, when the old jobs are stopped", _replacing(recovery.branch)),
        (StepKind.SETTLE, "let other engines find it", _replacing(MAIN_BRANCH)),
    ):
        for table in tables:
            name = recovery.on_branch(table) if kind is StepKind.TAG else table
            yield RecoveryStep(
                kind=kind, what=what, table=table, command=_shell(recovery, command[0], name, *command[1:])
            )


def recording_steps(
    recovery: Recovery, tables: Sequence[str], jobs: Sequence[str], ended: Sequence[str]
) -> Iterator[RecoveryStep]:
    """The lineage of old jobs and of the branches ends, and that of the tables is made from their snapshots.

    Args:
        recovery: what and how.
        tables: that are published.
        jobs: all that wrote them or their branches.
        ended: those of them that will not run again.
    """
    for job in jobs:
        command = _shell(recovery, "delete-data-lineage", "--job", job)
        yield RecoveryStep(kind=StepKind.RECORD, what="end the old lineage", job=job, command=command)
    for table in tables:
        command = _shell(recovery, "repair-lineage", table)
        yield RecoveryStep(
            kind=StepKind.RECORD,
            what="complete the lineage",
            table=table,
            command=command,
            arguments={"ended": list(ended)},
        )


def _replacing(branch: str) -> tuple[str, ...]:
    return "replace-main-branch", "--branch", branch


def _shell(recovery: Recovery, *words: str) -> str:
    return join(["fluvial", *words, *recovery.place])


def reviewing_steps(recovery: Recovery, tables: Sequence[str]) -> Iterator[RecoveryStep]:
    """What the branches change."""
    for table in tables:
        yield RecoveryStep(
            kind=StepKind.REVIEW,
            what="look at what has changed",
            table=table,
            command=_shell(recovery, "diff", table, "latest", f"{recovery.branch}.latest"),
        )


def checking_steps(recovery: Recovery, expected: Mapping[str, Sequence[str]]) -> Iterator[RecoveryStep]:
    """Conditions that the branches must meet. ``expected``: by table."""
    for table, conditions in expected.items():
        queries = "; ".join(condition_query(each, recovery.on_branch(table)) for each in conditions)
        yield RecoveryStep(
            kind=StepKind.CHECK,
            what="check the rows",
            table=table,
            command=_shell(recovery, "sql", queries),
            arguments={"expect": list(conditions)},
        )


def lasting_values(recovery: Recovery, job: str, file: JobFile) -> dict[str, str]:
    """Values of a pipeline, by key, that hold from its first run on the branches on: its new name and checkpoint."""
    found = {"checkpoint": file.new_checkpoint, f"options.{_NAME_KEY}": recovery.new_name(job)}
    if _NAME_KEY in file.source_options:
        found[f"source.options.{_NAME_KEY}"] = recovery.new_name(job)
    return found


def overrides_of(
    recovery: Recovery, job: str, file: JobFile, sources: Mapping[str, int], corrected: frozenset[str], *, resumed: bool
) -> dict[str, str]:
    """Values of the job file that a pipeline needs to compute the branches: by key, "" removes one.

    Args:
        recovery: what and how.
        job: its name until now.
        file: where it is defined.
        sources: tables that it reads, with the snapshot that it had read; 0: none.
        corrected: tables that are on branches.
        resumed: whether it continues from a checkpoint, which knows where its sources begin.
    """
    found = lasting_values(recovery, job, file)
    found |= {"trigger": "available-now", "options.branch": recovery.branch}
    for table, read_id in sources.items():
        if table in corrected:
            found["source.options.branch"] = recovery.branch
        if not resumed and table not in corrected and read_id:
            found |= {"source.options.scan.mode": "from-snapshot-full", "source.options.scan.snapshot-id": str(read_id)}
    if not resumed:
        for key in _START_KEYS:
            if key in file.source_options:
                found.setdefault(f"source.options.{key}", "")
    return {f"pipelines.{file.key or file.pipeline}.{key}": value for key, value in found.items()}


def _branched(recovery: Recovery, what: str, table: str, snapshot_id: int | None, *, job: str | None) -> RecoveryStep:
    words = ["create-branch", table, "--branch", recovery.branch]
    words += [] if snapshot_id is None else ["--snapshot", str(snapshot_id)]
    words += ["--log"] if table in recovery.logged else []
    return RecoveryStep(
        kind=StepKind.BRANCH,
        what=what,
        job=job,
        table=table,
        snapshot_id=snapshot_id,
        command=_shell(recovery, *words),
        arguments={"log": table in recovery.logged},
    )


def _goes_back(recovery: Recovery, place: JobPlace) -> bool:
    """Whether an incremental job continues from its checkpoint; False: it had written nothing yet and starts over.

    Raises: InvalidInputError when it has no barrier that ends at the snapshot.
    """
    reached = place.sources.get(split_name(recovery.table), recovery.snapshot_id)
    if place.barrier_id is None or reached != recovery.snapshot_id:
        raise InvalidInputError(
            f"the job has no barrier that ends at the snapshot: job={place.job} table={recovery.table} "
            f"snapshot={recovery.snapshot_id} nearest={reached or None} fix='recover fully, name a snapshot of "
            "paimon.source_snapshot_lineage, or run jobs with source.checkpoint-align.enabled=true'"
        )
    return any(place.targets.values())


def _check_reached(recovery: Recovery, place: JobPlace, begun: Mapping[str, int]) -> None:
    """A branch has no snapshots from before its beginning, and its log no records.

    Raises: InvalidInputError when a job that continues from its checkpoint would need some.
    """
    for source, reached in sorted((".".join(name), at) for name, at in place.sources.items()):
        beginning = begun.get(source, 0)
        if reached < (beginning if source in recovery.logged else beginning - 1):
            raise InvalidInputError(
                f"the job had read less than the branch of its source begins with: job={place.job} table={source} "
                f"read={reached} branch_begins={beginning} fix='recover fully, name a snapshot of {recovery.table} "
                "at which the job had caught up, or leave it out'"
            )


def _rewound(recovery: Recovery, place: JobPlace, file: JobFile) -> RecoveryStep:
    written: dict[ImpactedTable, int] = {name: at for name, at in place.targets.items() if at}
    target = ".".join(min(written))
    tag = f"branch-{recovery.branch}"
    places = ["--checkpoint", file.checkpoint, "--to", file.new_checkpoint]
    return RecoveryStep(
        kind=StepKind.REWIND,
        what="take the job back in a new checkpoint",
        job=place.job,
        table=target,
        barrier_id=place.barrier_id,
        command=_shell(recovery, "rewind-checkpoint", target, "--tag", tag, *places),
        arguments={"tag": tag, "checkpoint": file.checkpoint, "to": file.new_checkpoint},
    )


def _started(
    recovery: Recovery, place: JobPlace, file: JobFile, corrected: frozenset[str], *, is_resumed: bool
) -> RecoveryStep:
    sources = {".".join(name): at for name, at in sorted(place.sources.items())}
    values = overrides_of(recovery, place.job, file, sources, corrected, resumed=is_resumed)
    command = _run_command(file, values)
    if len(sources) > 1:  # a pipeline of a job file has one source
        command = _program_command(recovery, place, file, sources, corrected, is_resumed=is_resumed)
    return RecoveryStep(
        kind=StepKind.RUN,
        what="start the job in the new checkpoint" if is_resumed else "start the job",
        job=place.job,
        barrier_id=place.barrier_id if is_resumed else None,
        command=command,
        arguments={"file": file.file, "pipeline": file.pipeline, "set": values},
    )


def _run_command(file: JobFile, values: Mapping[str, str]) -> str:
    words = ["fluvial", "run", file.file, *file.layers, "--pipeline", file.pipeline]
    for key, value in values.items():
        words += ["--set", f"{key}={value}"]
    return join(words)


def _program_command(
    recovery: Recovery,
    place: JobPlace,
    file: JobFile,
    sources: Mapping[str, int],
    corrected: frozenset[str],
    *,
    is_resumed: bool,
) -> str:
    """The options that a program's streams need, as a comment: a program has no keys to set."""
    facts = [f"{_NAME_KEY}={recovery.new_name(place.job)} checkpointLocation={file.new_checkpoint}"]
    for table, read_id in sources.items():
        options = [f"branch={recovery.branch}"] if table in corrected else []
        if not is_resumed and table not in corrected and read_id:
            options += ["scan.mode=from-snapshot-full", f"scan.snapshot-id={read_id}"]
        facts += [f"{table}: {' '.join(options)}"] if options else []
    facts += [f"{'.'.join(name)}: branch={recovery.branch}" for name in sorted(place.targets)]
    return f"spark-submit {_PROGRAM}  # {'; '.join(facts)}"
