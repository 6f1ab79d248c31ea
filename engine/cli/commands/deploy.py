"""The commands about job files: ``init``, ``validate``, ``plan``, ``run``, ``package``, ``spark-conf``.

Exit codes of ``run``: 0 every pipeline has come to its end, or an endless one was asked to stop; 1 one failed; 2 the
request is wrong; 130 interrupted (Ctrl-C); 143 asked to stop (SIGTERM) before a pipeline that ends by itself had ended.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from engine.broker.broker import Broker
from engine.cli.job_output import job_progress, print_results
from engine.cli.output import console, grid, json_option, print_json
from engine.cli.signals import asks_for_an_end
from engine.deploy.application import AppliedStep, apply_steps, steps_to_apply
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import JobConfig, load_job
from engine.deploy.config.json_schema import schema_text
from engine.deploy.config.operation_config import LoggingConfig
from engine.deploy.config.scaffold import next_commands, write_example
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import PipelineResult
from engine.deploy.plan import DeployPlan, make_plan
from engine.deploy.shipping import write_shipment
from engine.runtime.logs import Form, configure_logging
from engine.runtime.spark_messages import spark_output
from engine.spark.session import submit_settings
from filestore.options.secrets import without_secrets
from lsm.errors import FluvialError, InvalidInputError

EXIT_INVALID: Final = 2
EXIT_CHANGES: Final = 3
EXIT_TERMINATED: Final = 143
_STARS: Final = "******"
_DEFAULT_BROKERS: Final = "localhost:9092"
_BROKER_DIR: Final = "FLUVIAL_BROKER_DIR"

Command = Callable[..., Any]


def with_layers(command: Command) -> Command:
    """Adds the options that lie upon a job file, and hands over a function that loads one as ``load``."""

    def with_loader(overlays: tuple[str, ...], profile: str | None, overrides: tuple[str, ...], **rest: Any) -> Any:
        def load(path: str) -> JobConfig:
            return load_job(path, overlays=overlays, profile=profile, overrides=overrides, environment=os.environ)

        return command(load=load, **rest)

    with_loader.__name__, with_loader.__doc__ = command.__name__, command.__doc__
    with_loader.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="Replace a value of the job file; repeatable.",
        ),
        click.option(
            "--overlay", "overlays", metavar="FILE", multiple=True, help="File with keys that differ; repeatable."
        ),
        click.option("--profile", metavar="NAME", help="Profile of the job file to take."),
    ):
        with_loader = option(with_loader)
    return with_loader


@click.command()
@click.argument("config")
@click.option("--pipeline", "pipelines", metavar="NAME", multiple=True, help="Run only this one; repeatable.")
@click.option("--spark-log", metavar="FILE", help="Where Spark's own messages go. [default: a temporary file]")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics there, for Prometheus.")
@click.option("--metrics-file", metavar="FILE", help="Keep the same in a file, for node_exporter.")
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
    metrics_port: int | None,
    metrics_file: str | None,
    as_json: bool,
) -> int:
    """Run the pipelines of a job file until they end.

    Pipelines with a processing-time trigger run until they are asked to stop. SIGTERM lets the running micro-batches
    end (stop-timeout), Ctrl-C cancels them. What was committed stays, and the next run goes on from there.

    Exit codes: 0 done, or stopped where nothing ends by itself; 1 failed; 2 the request is wrong; 130 Ctrl-C; 143
    stopped by SIGTERM before the end.
    """
    job = _with_metrics(load(config).chosen(pipelines), metrics_port, metrics_file)
    _set_up_logging(job.logging, context.find_root().params)
    log_file = spark_log or str(Path(tempfile.gettempdir()) / f"fluvial-{job.name}-{os.getuid()}.log")
    _import_from_here()
    stop = threading.Event()
    with (
        asks_for_an_end(stop, (signal.SIGTERM,)),
        spark_output(log_file),
        job_progress([each.name for each in job.pipelines], quiet=quiet) as on_progress,
    ):
        try:
            results = run_job(job, on_progress=on_progress, stop=stop)
        except FluvialError as error:
            raise type(error)(f"{error} spark_log={log_file}") from error
    if as_json:
        print_json([asdict(each) for each in results])
    else:
        print_results(results)
    return exit_code(job, results)


def _set_up_logging(wanted: LoggingConfig, given: Mapping[str, Any]) -> None:
    """As the job file says, unless the command line asked for something else."""
    is_debug = bool(given.get("debug"))
    form: Form = "json" if "json" in (wanted.format, given.get("log_format")) else "text"
    configure_logging(
        logging.INFO if is_debug else wanted.level, form, wanted.file, levels=wanted.levels, all_loggers=is_debug
    )


@click.command()
@click.argument("configs", metavar="CONFIG...", nargs=-1)
@click.option("--online", is_flag=True, help="Look at warehouse, brokers, topics and checkpoints, too.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of job files, for editors.")
@json_option
@with_layers
def validate(
    load: Callable[[str], JobConfig], configs: tuple[str, ...], online: bool, schema: bool, as_json: bool
) -> None:
    """Check job files without running them."""
    if schema:
        sys.stdout.write(schema_text())
        return
    if not configs:
        raise InvalidInputError("no job file: fix=fluvial validate FILE, or fluvial validate --schema")
    _import_from_here()
    jobs = [load(config) for config in configs]
    for job in jobs:
        check_job(job, with_sql=True)
        if online:
            _refuse(make_plan(job))
    if as_json:
        shown = [_hidden(_without_secrets(job.model_dump(by_alias=True)), job.secrets) for job in jobs]
        print_json(shown[0] if len(shown) == 1 else shown)
        return
    for config, job in zip(configs, jobs, strict=True):
        console().print(f"{config}: {len(job.tables)} tables, {len(job.pipelines)} pipelines: no problem found")


@click.command()
@click.argument("config")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 3 when there is something to change.")
@click.option(
    "--apply", "is_applied", is_flag=True, help="Make tables that are missing, and run the SQL that is shown."
)
@click.option("--yes", "-y", "is_sure", is_flag=True, help="With --apply: do not ask.")
@json_option
@with_layers
def plan(
    load: Callable[[str], JobConfig],
    config: str,
    detailed_exitcode: bool,
    is_applied: bool,
    is_sure: bool,
    as_json: bool,
) -> int:
    """Show what a run of a job file would make, begin and go on with, without doing it.

    With --apply tables are brought in line with the file; pipelines are left to a run. What no statement can change,
    keys and partitions, is refused before anything is done.

    Exit codes: 0; 2 a run would be refused; 3 (with --detailed-exitcode) there is something to change.
    """
    _import_from_here()
    job = load(config)
    made = make_plan(job)
    applied: list[AppliedStep] = []
    if is_applied:
        steps = steps_to_apply(made)
        if steps and not is_sure:
            _print_plan(made)
            _ask(f"{len(steps)} changes of tables: do them?")
        applied = apply_steps(job, steps)
        made = make_plan(job) if applied else made
    if as_json:
        print_json(made.as_json() | ({"applied": [asdict(each) for each in applied]} if is_applied else {}))
    else:
        for each in applied:
            console().print(f"done: {each.statement or f'made table {each.table}'}", soft_wrap=True, markup=False)
        _print_plan(made)
    if not made.is_possible:
        return EXIT_INVALID
    return EXIT_CHANGES if detailed_exitcode and made.has_changes else 0


@click.command("spark-conf")
@click.option("--local", "is_local", is_flag=True, help="For a local master, with checkpoints on a local disk.")
@click.option(
    "--properties", is_flag=True, help="As a file for spark-submit --properties-file, or spark-defaults.conf."
)
@json_option
def spark_conf(is_local: bool, properties: bool, as_json: bool) -> None:
    """Print the settings that sessions of Fluvial have, for sessions that are made by others.

    For example: spark-submit $(fluvial spark-conf) my_script.py
    """
    settings = submit_settings(is_local=is_local)
    if as_json:
        print_json(settings)
        return
    line = "{} {}\n" if properties else "--conf {}={}\n"
    sys.stdout.write("".join(line.format(*each) for each in settings.items()))


@click.command()
@click.argument("directory")
@click.option(
    "--kafka", metavar="HOST:PORT", help="Brokers. [default: that of `fluvial broker start`, else localhost:9092]"
)
@json_option
def init(directory: str, kafka: str | None, as_json: bool) -> None:
    """Make a directory with a job file that works, and a script that sends it changes.

    What is there already is never overwritten.
    """
    files = write_example(Path(directory), bootstrap_servers=kafka or _local_broker() or _DEFAULT_BROKERS)
    if as_json:
        print_json([str(each) for each in files])
        return
    for line in (
        "made:",
        *(f"  {each}" for each in files),
        "next:",
        *(f"  {each}" for each in next_commands(directory)),
    ):
        console().print(line, soft_wrap=True, markup=False)


@click.command()
@click.argument("directory")
@json_option
def package(directory: str, as_json: bool) -> None:
    """Write what spark-submit ships to a cluster that has no Fluvial: an archive, and the script to submit.

    Then: PYTHONPATH=DIRECTORY/fluvial.zip spark-submit --master ... --py-files DIRECTORY/fluvial.zip
    DIRECTORY/fluvial_job.py JOB.yaml
    """
    archive, script = write_shipment(Path(directory))
    if as_json:
        print_json({"archive": str(archive), "script": str(script)})
    else:
        console().print(f"PYTHONPATH={archive} spark-submit --py-files {archive} {script} JOB.yaml", soft_wrap=True)


def _print_plan(made: DeployPlan) -> None:
    rows = [(each.action.value, each.kind, each.name, each.fact, each.statement) for each in made.steps]
    console().print(grid(made.job, ("action", "what", "name", "", "SQL that changes it"), rows))


def _ask(question: str) -> None:
    """Raises: InvalidInputError when there is nobody to ask; click.Abort when the answer is no."""
    if not sys.stdin.isatty():
        raise InvalidInputError("nobody is there to ask, nothing was done: fix=give --yes")
    click.confirm(question, abort=True, err=True)


def _with_metrics(job: JobConfig, port: int | None, file: str | None) -> JobConfig:
    """The job with what the command line says of metrics; the rest is as its file says."""
    given = {name: value for name, value in (("port", port), ("file", file)) if value is not None}
    return job.model_copy(update={"metrics": job.metrics.model_copy(update=given)}) if given else job


def exit_code(job: JobConfig, results: Sequence[PipelineResult]) -> int:
    """Of a run in which nothing failed: 143 when a pipeline that ends by itself was stopped before its end.

    Else a scheduler would take a job that was evicted for one that is done.
    """
    ends = {each.name: each.trigger.ends for each in job.pipelines}
    is_cut = any(ends[each.pipeline] and not each.is_complete for each in results)
    return EXIT_TERMINATED if is_cut else 0


def _local_broker() -> str | None:
    status = Broker(os.environ.get(_BROKER_DIR, ".fluvial/broker")).status()
    return status.bootstrap_servers if status.running else None


def _refuse(made: DeployPlan) -> None:
    problems = [f"{each.kind} {each.name}: {each.fact}" for each in made.steps if each.action.value == "refuse"]
    if problems:
        raise InvalidInputError("; ".join(problems))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        plain = {key: each for key, each in value.items() if isinstance(each, str)}
        return {key: _without_secrets(each) for key, each in value.items()} | without_secrets(plain)
    return [_without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def _hidden(value: Any, secrets: frozenset[str]) -> Any:
    """Texts out of files of secrets are hidden wherever they stand."""
    if isinstance(value, dict):
        return {key: _hidden(each, secrets) for key, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, secrets) for each in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, _STARS)
    return value


def _import_from_here() -> None:
    """Functions of a job file are found in the directory where the command is run, here and in Spark's workers."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *paths])
