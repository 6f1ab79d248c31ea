"""The command ``fluvial recover``: the plan of ``recovery-plan``, carried out on the pipelines of job files."""

import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import SparkSession

from engine.cli.commands.deploy import LAYER_OPTIONS, import_from_here, set_up_logging
from engine.cli.exit_codes import EXIT_TERMINATED
from engine.cli.job_output import job_progress
from engine.cli.output import console, json_option, notes, print_json, print_table
from engine.cli.signals import stop_on_signals
from engine.deploy.config.job_config import JobConfig
from engine.deploy.job import job_session
from engine.deploy.recovery.corrections import statements_of
from engine.deploy.recovery.execution import Execution, Stage, StepReport, seen_tables, write_overlays
from engine.deploy.recovery.execution import abandon as abandon_recovery
from engine.deploy.recovery.job_files import JobFiles
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState, alone_with, read_plan
from engine.deploy.recovery.recovery_plan import RecoveryRequest, job_catalog, plan_recovery
from engine.runtime.scratch import private_path
from engine.runtime.spark_log import spark_output
from lsm.errors import InvalidInputError

_PREPARE: Final = "prepare"
_CHECK: Final = "check"
_BRANCH: Final = "fix"


@click.command()
@click.argument("configs", metavar="[CONFIG]...", nargs=-1)
@click.option("--table", metavar="D.T", help="Table to correct.")
@click.option("--snapshot", type=click.IntRange(1), help="Its newest correct snapshot; what came later is dropped.")
@click.option("--branch", default=None, help=f"Name of the new branches. [default: {_BRANCH}]")
@click.option("--incremental", is_flag=True, help="Jobs continue from their checkpoints instead of starting over.")
@click.option(
    "--correct", "texts", metavar="SQL", multiple=True, help="Statement on the branch of --table; repeatable."
)
@click.option("--correct-file", metavar="FILE", help="Statements on the branch of --table, separated by ;")
@click.option(
    "--expect", metavar="D.T=CONDITION", multiple=True, help="Condition to publish, besides expect of the job file."
)
@click.option("--without", metavar="JOB", multiple=True, help="Leave this job out: its output is not computed again.")
@click.option("--plan", "plan_path", metavar="FILE", help="Plan file. [default: recover-BRANCH.json]")
@click.option(
    "--until",
    type=click.Choice([_PREPARE, _CHECK]),
    default=_CHECK,
    show_default=True,
    help="Where to end without --publish: when the branches are corrected, or when they are computed and checked.",
)
@click.option("--publish", is_flag=True, help="Make the branches main, when all checks have passed.")
@click.option("--drop-later", is_flag=True, help="Publish even if main of --table was written since the plan was made.")
@click.option("--abandon", is_flag=True, help="Give the recovery up: remove its branches, checkpoints and plan.")
@click.option("--dry-run", is_flag=True, help="Print the steps, and what is done, without doing anything.")
@click.option("--spark-log", metavar="FILE", help="File for Spark's log messages. [default: a temporary file]")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
@click.pass_context
def recover(
    context: click.Context,
    /,
    configs: tuple[str, ...],
    plan_path: str | None,
    until: str,
    publish: bool,
    abandon: bool,
    drop_later: bool,
    dry_run: bool,
    spark_log: str | None,
    quiet: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Correct a table after a snapshot, and compute everything downstream again by the pipelines of job files.

    Corrections and new results go to branches. With --publish they become main, all of them. The plan is kept in a
    file: run the command again to continue, with the same arguments or with --plan alone. Until it is published,
    --abandon takes back all that it has made.

    Exit codes: 0 done, up to where it was asked for; 1 a step failed, run it again; 2 the request is wrong, or a check
    failed; 143 stopped by SIGTERM.
    """
    path = Path(plan_path or f"recover-{given['branch'] or _BRANCH}.json")
    import_from_here()
    if abandon:
        _abandon(path, given, dry_run=dry_run, publish=publish, as_json=as_json)
        return 0
    if dry_run:
        _print_all(_file(path, _request(configs, **given)), as_json=as_json)
        return 0
    log_file = spark_log or private_path("recover.log")
    stop = threading.Event()
    with alone_with(path), ExitStack() as open_things:
        file = _file(path, _request(configs, **given))
        file.save(file.state)
        first = file.plan.request.files
        set_up_logging(first.load(first.paths[0]), context.find_root().params)
        open_things.enter_context(stop_on_signals(stop, (signal.SIGTERM,)))
        names = [each.arguments["pipeline"] for each in file.plan.steps if "pipeline" in each.arguments]
        on_progress = open_things.enter_context(job_progress(names, quiet=quiet or sys.stderr.isatty()))
        execution = Execution(
            file,
            lambda config: _started(open_things, config, log_file),
            on_step=_silent if quiet else _show_step,
            on_progress=on_progress,
            stop=stop,
            drops_later=drop_later,
        )
        stage = Stage.PUBLISH if publish else Stage.PREPARE if until == _PREPARE else Stage.COMPUTE
        is_complete = execution.run(stage)
        overlays = write_overlays(file) if _is_published(file) else {}
    _print_end(file, overlays, as_json=as_json)
    return 0 if is_complete else EXIT_TERMINATED


for _option in LAYER_OPTIONS:
    recover = _option(recover)


def _abandon(path: Path, given: dict[str, Any], *, dry_run: bool, publish: bool, as_json: bool) -> None:
    others = [key for key, value in given.items() if value and key != "branch"]
    if publish or others:
        raise InvalidInputError(
            f"a recovery that is given up is named by its plan alone: given={','.join(others) or 'publish'} "
            f"fix='fluvial recover --abandon --plan {path}'"
        )
    done: list[dict[str, str]] = []
    with alone_with(path):
        for each in abandon_recovery(_file(path, None), dry_run=dry_run):
            done.append({"what": each.what, "name": each.name, "fact": each.fact})
            if not as_json:
                console().print(f"{each.what} {each.name}: {each.fact}", soft_wrap=True, markup=False)
    if as_json:
        print_json({"plan": str(path), "abandoned": not dry_run, "removed": done})


def _request(configs: tuple[str, ...], **given: Any) -> RecoveryRequest | None:
    """What the command line asks for; None: to continue what a plan file says."""
    if not configs:
        others = [key for key, value in given.items() if value and key != "branch"]
        if others:
            raise InvalidInputError(f"no job file: given={','.join(others)} fix=fluvial recover JOB.yaml --table ...")
        return None
    if given["table"] is None or given["snapshot"] is None:
        raise InvalidInputError("nothing to recover: fix='give --table D.T and --snapshot, its newest correct one'")
    texts = list(given["texts"])
    if given["correct_file"] is not None:
        texts.append(_text_of(given["correct_file"]))
    expected: dict[str, tuple[str, ...]] = {}
    for each in given["expect"]:
        table, equals, condition = each.partition("=")
        if not equals or "." not in table:
            raise InvalidInputError(f"a condition is written database.table=condition: given={each}")
        expected[table] = (*expected.get(table, ()), condition)
    return RecoveryRequest(
        files=JobFiles(
            paths=configs, overlays=given["overlays"], profile=given["profile"], overrides=given["overrides"]
        ),
        table=given["table"],
        snapshot_id=given["snapshot"],
        branch=given["branch"] or _BRANCH,
        is_incremental=given["incremental"],
        corrections=tuple(statement for text in texts for statement in statements_of(text)),
        expected=expected,
        without=frozenset(given["without"]),
    )


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"file of statements cannot be read: file={path} error={error}") from error


def _file(path: Path, request: RecoveryRequest | None) -> PlanFile:
    """The plan of a file, or a new one.

    Raises: InvalidInputError when the file is of another recovery.
    """
    found = read_plan(path)
    if found is None:
        if request is None:
            raise InvalidInputError(f"no plan file: file={path} fix=fluvial recover JOB.yaml --table T --snapshot N")
        return PlanFile(path, plan_recovery(request), RecoveryState())
    if request is not None and found.plan.request.to_json() != request.to_json():
        before, now = found.plan.request.to_json(), request.to_json()
        other = ",".join(key for key in before if before[key] != now[key])
        raise InvalidInputError(
            f"the plan file is of another recovery: file={path} differs={other} "
            "fix='continue it with --plan alone, or give --plan another file'"
        )
    return found


def _started(open_things: ExitStack, config: JobConfig, log_file: str) -> SparkSession:
    open_things.enter_context(spark_output(log_file))
    spark = job_session(config)
    open_things.callback(spark.stop)
    return spark


def _silent(_: StepReport) -> None:
    """Shows nothing."""


def _show_step(report: StepReport) -> None:
    begins = report.fact is None
    text = report.step.command if begins else f"  {report.fact}"
    notes().print(f"{report.index + 1}. {text}" if begins else text, soft_wrap=True, markup=False)


def _is_published(file: PlanFile) -> bool:
    return file.state.is_publishing and len(file.state.facts) == len(file.plan.steps)


def _print_all(file: PlanFile, *, as_json: bool) -> None:
    """The plan, with what is done of it."""
    if as_json:
        print_json(_as_json(file, {}))
        return
    rows = [
        (index + 1, "done" if index in file.state.facts else "", each.what, each.command)
        for index, each in enumerate(file.plan.steps)
    ]
    print_table(f"recover {file.plan.request.table}", ("", "", "step", "command"), rows, numbers=("",))


def _print_end(file: PlanFile, overlays: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(file, overlays))
        return
    for line in _ending(file, overlays):
        console().print(line, soft_wrap=True, markup=False)


def _ending(file: PlanFile, overlays: dict[str, str]) -> Iterator[str]:
    for index, step in enumerate(file.plan.steps):
        if step.kind.value in ("review", "check") and index in file.state.facts:
            yield f"{step.table}: {file.state.facts[index]}"
    if not _is_published(file):
        yield f"not published; to publish: {shlex.join(['fluvial', 'recover', '--plan', str(file.path), '--publish'])}"
        return
    yield f"published: {', '.join(file.plan.tables)}, as VERSION AS OF '{file.plan.tag}'"
    for path, overlay in overlays.items():
        words = [*file.plan.request.files.words]
        yield f"continue with: {shlex.join(['fluvial', 'run', path, *words, '--overlay', overlay])}"


def _as_json(file: PlanFile, overlays: dict[str, str]) -> dict[str, Any]:
    steps: Sequence[dict[str, Any]] = [
        {"step": index + 1, **each.to_json(), "fact": file.state.facts.get(index)}
        for index, each in enumerate(file.plan.steps)
    ]
    return {
        "plan": str(file.path),
        "published": _is_published(file),
        "tables": seen_tables(job_catalog(file.plan.request.files), file),
        "tag": file.plan.tag,
        "steps": steps,
        "overlays": overlays,
    }
