"""The commands for job files: ``init``, ``validate``, ``plan``, ``run``, ``package``, ``spark-conf``.

Exit codes of ``run``: 0 every pipeline finished, or an endless one was stopped; 1 a pipeline failed; 2 the request is
invalid; 130 interrupted (Ctrl-C); 143 stopped (SIGTERM) before a finite pipeline finished.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from engine.catalog import Catalog
from engine.cdc.survey import survey_json
from engine.cli.commands.survey import (
    AskedTopics,
    from_topics_options,
    print_survey,
    surveyed,
    surveyed_databases,
    write_job,
)
from engine.cli.exit_codes import EXIT_CHANGES, EXIT_INVALID, EXIT_TERMINATED
from engine.cli.job_output import job_progress, print_results
from engine.cli.output import console, json_option, notes, print_json, print_table, waiting
from engine.cli.place import Command
from engine.cli.signals import stop_on_signals
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import JobConfig, load_job
from engine.deploy.config.json_schema import schema_text
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import PipelineResult
from engine.deploy.pipeline.table_changes import ensure_table
from engine.deploy.plan import DeployPlan, DeployStep, PlannedAction, make_plan, no_spark
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.runtime.logs import Form, configure_logging
from engine.runtime.scratch import private_path
from engine.runtime.spark_log import last_lines, spark_output
from engine.runtime.spark_messages import SparkEndedError
from filestore.options.secrets import without_secrets
from lsm.errors import FluvialError, InvalidInputError
from lsm.secret_names import STARS, shown_line, shown_pairs

# ---- Apply the table changes of a plan: create missing tables and topics, and run the plan's statements
#
# Differences that no statement can change (keys and partitions) are refused before anything is done. Pipelines are
# left to a run.


_TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedStep:
    """One applied change."""

    table: str
    statement: str | None  # None: the table was created, with its topic if it has a log


def steps_to_apply(plan: DeployPlan) -> list[DeployStep]:
    """The changes of tables, in the order of the plan.

    Raises:
        InvalidInputError: a table or topic differs in a way that no statement can change; nothing may be applied.
    """
    about_tables = [each for each in plan.steps if each.kind != "pipeline"]
    stuck = [each for each in about_tables if each.action is PlannedAction.REFUSE and each.statement is None]
    if stuck:
        facts = "; ".join(f"{each.kind} {each.name}: {each.fact}" for each in stuck)
        raise InvalidInputError(
            f"no statement can change this, nothing was done: {facts} fix=change the job file, or create another table "
            "and copy the rows"
        )
    return [
        each
        for each in about_tables
        if each.statement is not None or (each.kind == _TABLE and each.action is PlannedAction.CREATE)
    ]


def apply_steps(config: JobConfig, steps: Sequence[DeployStep]) -> list[AppliedStep]:
    """Apply the steps one after another; each is applied or not.

    Args:
        config: the job.
        steps: result of ``steps_to_apply``.

    Raises:
        InvalidInputError: a statement is refused, for example a narrower type that does not fit a value; the message
            lists the steps applied before.
        UnavailableError: a broker does not answer; earlier steps stay applied.
    """
    catalog = Catalog(config.warehouse, options=config.catalog_options)
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark))
    done: list[AppliedStep] = []
    for step in steps:
        if step.statement is None:
            ensure_table(catalog, step.name, config.tables[step.name])
        else:
            try:
                session.execute(step.statement)
            except InvalidInputError as error:
                before = [shown_pairs(each.statement or "") or f"CREATE TABLE {each.table}" for each in done]
                raise InvalidInputError(f"{error} statement={step.shown_statement} done_before={before}") from error
        done.append(AppliedStep(table=step.name, statement=step.statement))
    return done


# ---- The commands for job files: ``init``, ``validate``, ``plan``, ``run``, ``package``, ``spark-conf``


logger = logging.getLogger("fluvial.run")

SIGNAL_S: Final = 0.2  # a signal that has come may not have been handled yet


LAYER_OPTIONS: Final = (
    click.option(
        "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Replace a value of the job file; repeatable."
    ),
    click.option(
        "--overlay", "overlays", metavar="FILE", multiple=True, help="File with keys to override; repeatable."
    ),
    click.option("--profile", metavar="NAME", help="Profile of the job file to use."),
)
"""What overrides a job file: ``overrides``, ``overlays`` and ``profile``."""
WAIT_OPTION: Final = click.option(
    "--wait", "waits", is_flag=True, help="Wait until another run of the same checkpoint has ended."
)
METRICS_OPTIONS: Final = (
    click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics on this port, for Prometheus."),
    click.option("--metrics-file", metavar="FILE", help="Keep metrics in a file, for node_exporter."),
)
"""Of a run: ``metrics_port`` and ``metrics_file``, see ``with_metrics``."""


def with_layers(command: Command) -> Command:
    """Adds the options that override a job file, and passes a function that loads one as ``load``."""

    def with_loader(overlays: tuple[str, ...], profile: str | None, overrides: tuple[str, ...], **rest: Any) -> Any:
        def load(path: str, *, may_lack: bool = False) -> JobConfig:
            return load_job(
                path, overlays=overlays, profile=profile, overrides=overrides, environment=os.environ, may_lack=may_lack
            )

        return command(load=load, **rest)

    with_loader.__name__, with_loader.__doc__ = command.__name__, command.__doc__
    with_loader.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in LAYER_OPTIONS:
        with_loader = option(with_loader)
    return with_loader


@click.command()
@click.argument("config")
@click.option("--pipeline", "pipelines", metavar="NAME", multiple=True, help="Run only this pipeline; repeatable.")
@click.option("--spark-log", metavar="FILE", help="File for Spark's log messages. [default: a temporary file]")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@WAIT_OPTION
@METRICS_OPTIONS[0]
@METRICS_OPTIONS[1]
@json_option
@with_layers
@click.pass_context
def run(
    context: click.Context,
    load: Callable[[str], JobConfig],
    config: str,
    pipelines: tuple[str, ...],
    spark_log: str | None,
    quiet: bool,
    waits: bool,
    metrics_port: int | None,
    metrics_file: str | None,
    as_json: bool,
) -> int:
    """Run the pipelines of a job file until they finish.

    Pipelines with a processing-time trigger run until they are stopped. SIGTERM lets running micro-batches finish
    (stop-timeout), Ctrl-C cancels them. Committed batches stay, and the next run continues after them.

    Exit codes: 0 finished, or stopped if all pipelines are endless; 1 failed; 2 invalid request; 130 Ctrl-C; 143
    stopped by SIGTERM before the end.
    """
    job = with_metrics(load(config).chosen(pipelines), metrics_port, metrics_file)
    set_up_logging(job, context.find_root().params)
    log_file = spark_log or private_path(f"{job.name}.log")
    import_from_here()
    stop = threading.Event()
    results: list[PipelineResult] | None
    with (
        stop_on_signals(stop, (signal.SIGTERM,)),
        spark_output(log_file),
        job_progress([each.name for each in job.pipelines], quiet=quiet) as on_progress,
    ):
        try:
            results = run_job(job, on_progress=on_progress, stop=stop, waits=waits)
        except Exception as error:
            has_ended = not isinstance(error, FluvialError) or isinstance(error, SparkEndedError)
            if has_ended and stop.wait(SIGNAL_S):
                # a signal to the whole process group has ended the JVM, perhaps before it had started
                logger.info("stopped while Spark started or stopped: reason=%r spark_log=%s", error, log_file)
                results = None
            elif isinstance(error, FluvialError):
                raise type(error)(f"{error} spark_log={log_file}{_end_of(log_file, error)}") from error
            else:
                raise
    if results is None:
        notes().print("stopped by SIGTERM: what was committed stays, the next run continues after it", soft_wrap=True)
        return EXIT_TERMINATED
    if as_json:
        print_json([asdict(each) for each in results])
    else:
        print_results(results)
    return exit_code(job, results)


def _end_of(log_file: str, error: FluvialError) -> str:
    """The last lines of Spark's log, where Spark itself has ended."""
    said = shown_line(" | ".join(last_lines(log_file))) if isinstance(error, SparkEndedError) else ""
    return said and f" last_lines={said!r}"


def set_up_logging(job: JobConfig, given: Mapping[str, Any]) -> None:
    """Apply the job file's logging options; those of the command line take precedence."""
    wanted = job.logging
    is_debug = bool(given.get("debug"))
    form: Form = "json" if "json" in (wanted.format, given.get("log_format")) else "text"
    level = logging.INFO if is_debug else wanted.level
    ids = {"job": job.name}
    configure_logging(level, form, wanted.file, levels=wanted.levels, all_loggers=is_debug, ids=ids)


@click.command()
@click.argument("configs", metavar="CONFIG...", nargs=-1)
@click.option("--online", is_flag=True, help="Also check warehouse, brokers, topics and checkpoints.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of job files, for editors.")
@json_option
@with_layers
def validate(
    load: Callable[..., JobConfig], configs: tuple[str, ...], online: bool, schema: bool, as_json: bool
) -> None:
    """Check job files without running them.

    Variables that are not set and files of secrets need not be here, except with --online.
    """
    if schema:
        sys.stdout.write(schema_text())
        return
    if not configs:
        raise InvalidInputError("no job file: fix=fluvial validate FILE, or fluvial validate --schema")
    import_from_here()
    jobs = [load(config, may_lack=not online) for config in configs]
    for config, job in zip(configs, jobs, strict=True):
        if job.absent:
            notes().print(f"{config}: not here, not checked: {', '.join(job.absent)}", soft_wrap=True, markup=False)
        check_job(job, with_sql=True, with_functions=True, with_targets=not online)
        if online:
            _refuse(make_plan(job))
    if as_json:
        shown = [_hidden(_without_secrets(job.model_dump(by_alias=True)), job.secrets) for job in jobs]
        print_json(shown[0] if len(shown) == 1 else shown)
        return
    for config, job in zip(configs, jobs, strict=True):
        console().print(f"{config}: {len(job.tables)} tables, {len(job.pipelines)} pipelines: no problem found")


@click.command()
@click.argument("config", required=False)
@from_topics_options
@click.option("--write", "written", metavar="FILE", help="With --from-topics: write the job file.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 3 if there are changes.")
@click.option("--apply", "is_applied", is_flag=True, help="Create missing tables, and run the SQL shown.")
@click.option("--yes", "-y", "is_sure", is_flag=True, help="With --apply: do not ask for confirmation.")
@json_option
@with_layers
def plan(
    load: Callable[[str], JobConfig],
    config: str | None,
    asked: AskedTopics | None,
    written: str | None,
    detailed_exitcode: bool,
    is_applied: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Show what a run of a job file would create, start and resume.

    With --apply, tables are changed to match the file; pipelines are left to a run. Differences that no statement can
    change (keys and partitions) are refused before anything is done.

    Of each database in the section cdc it shows the same as with --from-topics, by the rules of the file.

    With --from-topics and without a job file: show what the change topics of a database would become, from records
    that are there: every table, its key, its columns, what they lose and what is refused.

    Exit codes: 0; 2 what is wanted cannot be; 3 (with --detailed-exitcode) there are changes.
    """
    if asked is not None:
        return _plan_topics(asked, written, as_json)
    if config is None:
        raise InvalidInputError("no job file: fix=fluvial plan FILE, or fluvial plan --from-topics PATTERN")
    import_from_here()
    job = load(config)
    with waiting("comparing the job with its tables"):
        made = make_plan(job)
    applied: list[AppliedStep] = []
    if is_applied:
        steps = steps_to_apply(made)
        if steps and not is_sure:
            _print_plan(made)
            _confirm(f"{len(steps)} table changes: apply them?")
        applied = apply_steps(job, steps)
        made = make_plan(job) if applied else made
    with waiting("reading the topics of databases"):
        databases = surveyed_databases(job)
    if as_json:
        shown = made.as_json() | ({"applied": [_shown_step(each) for each in applied]} if is_applied else {})
        print_json(
            shown | ({"databases": {n: survey_json(each) for n, each in databases.items()}} if databases else {})
        )
    else:
        for each in applied:
            console().print(
                f"done: {shown_pairs(each.statement or '') or f'created table {each.table}'}",
                soft_wrap=True,
                markup=False,
            )
        if made.steps or not databases:
            _print_plan(made)
        for name, found in databases.items():
            print_survey(found, is_json=False, database=name)
    if not made.is_possible or not all(each.is_possible for each in databases.values()):
        return EXIT_INVALID
    return EXIT_CHANGES if detailed_exitcode and made.has_changes else 0


def _plan_topics(asked: AskedTopics, written: str | None, as_json: bool) -> int:
    found, text = surveyed(asked)
    print_survey(found, is_json=as_json)
    if written is not None:
        write_job(text, Path(written))
    return 0 if found.is_possible else EXIT_INVALID


def _print_plan(made: DeployPlan) -> None:
    rows = [(each.action.value, each.kind, each.name, each.fact, each.shown_statement) for each in made.steps]
    print_table(made.job, ("action", "what", "name", "", "SQL"), rows)


def _confirm(question: str) -> None:
    """Raises: InvalidInputError without a terminal; click.Abort when the answer is no."""
    if not sys.stdin.isatty():
        raise InvalidInputError("confirmation needs a terminal, nothing was done: fix=give --yes")
    click.confirm(question, abort=True, err=True)


def with_metrics(job: JobConfig, port: int | None, file: str | None) -> JobConfig:
    """The job with the command line's metrics options; its own values for the rest."""
    given = {name: value for name, value in (("port", port), ("file", file)) if value is not None}
    return job.model_copy(update={"metrics": job.metrics.model_copy(update=given)}) if given else job


def exit_code(job: JobConfig, results: Sequence[PipelineResult]) -> int:
    """Exit code of a run without failures: 143 when a finite pipeline was stopped before its end, else 0.

    With 0, a scheduler would consider an evicted job complete.
    """
    ends = {each.name: each.trigger.ends for each in job.pipelines}
    is_cut = any(ends[each.pipeline] and not each.is_complete for each in results)
    is_cut |= not results and any(ends.values())  # it waited for another run
    return EXIT_TERMINATED if is_cut else 0


def _shown_step(step: AppliedStep) -> dict[str, Any]:
    return asdict(step) | {"statement": None if step.statement is None else shown_pairs(step.statement)}


def _refuse(made: DeployPlan) -> None:
    problems = [
        f"{each.kind} {each.name}: {each.fact}"
        for each in made.steps
        if each.action is PlannedAction.REFUSE or each.is_before_run
    ]
    if problems:
        raise InvalidInputError("; ".join(problems))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {key: each for key, each in value.items() if isinstance(each, str)}
        return {key: _without_secrets(each) for key, each in value.items()} | without_secrets(plain)
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def _hidden(value: Any, secrets: frozenset[str]) -> Any:
    """Secrets read from files are hidden wherever they occur."""
    if isinstance(value, dict):
        return {key: _hidden(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, secrets) for each in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, STARS)
    return value


def import_from_here() -> None:
    """Make functions of a job file importable from the current directory, here and in Spark's workers."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
