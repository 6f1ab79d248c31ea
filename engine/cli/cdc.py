"""The command ``fluvial cdc``: a whole database from its change topics, and what its tables are doing."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import click

from engine.cdc.report import BatchReport
from engine.cdc.signals import SIGNAL_SETTINGS, request_snapshots
from engine.cdc.state import StateFiles
from engine.cdc.status import ask_resume, ask_skip, job_status, latest_offsets, missing_topics, until_of
from engine.cdc.topics import PatternTopics
from engine.cli.commands.deploy import (
    LAYER_OPTIONS,
    METRICS_OPTIONS,
    SIGNAL_S,
    WAIT_OPTION,
    import_from_here,
    set_up_logging,
    with_metrics,
)
from engine.cli.commands.verify import verify
from engine.cli.exit_codes import EXIT_PARKED, EXIT_TERMINATED
from engine.cli.output import console, json_option, print_json, print_table, shown_again, waiting, watch_option
from engine.cli.signals import stop_on_signals
from engine.deploy.cdc_job import cdc_of, cdc_settings, cdc_state, run_cdc, silent_sources
from engine.deploy.config.cdc_config import PATTERN, CdcConfig
from engine.deploy.config.job_config import JobConfig, load_job, parse_job
from engine.kafka.offsets import TopicPosition
from engine.runtime.spark_messages import SparkEndedError
from engine.runtime.times import time_text
from lsm.errors import InvalidInputError, UnavailableError

Chosen = tuple[JobConfig, CdcConfig]


@click.group()
def cdc() -> None:
    """Keep all tables of a database equal, from topics of its changes."""


def _with_job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the job file and the flags that replace it, and passes the chosen database as ``chosen``."""

    def chosen(
        config: str | None,
        name: str | None,
        brokers: str | None,
        topics: str | None,
        database: str | None,
        warehouse: str | None,
        overlays: tuple[str, ...],
        profile: str | None,
        overrides: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        layers: dict[str, Any] = {
            "overlays": overlays,
            "profile": profile,
            "overrides": overrides,
            "environment": os.environ,
        }
        if config is not None:
            job = load_job(config, **layers)
        else:
            text = _text_of_flags(name, brokers, topics, database, warehouse)
            job = parse_job(text, name="the flags", **layers)
        return command(chosen=(job, cdc_of(job, name)), **rest)

    chosen.__name__, chosen.__doc__ = command.__name__, command.__doc__
    chosen.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        *LAYER_OPTIONS,
        click.option("--warehouse", metavar="DIR", help="Where the tables are."),
        click.option("--database", metavar="NAME", help="Database of the tables."),
        click.option("--topics", metavar="REGEX", help=r"Topics of changes: 'shop\..*'."),
        click.option("--brokers", metavar="HOST:PORT", help="Brokers of the topics."),
        click.option("--name", metavar="NAME", help="Which database of the job file; without a file, the job's name."),
        click.argument("config", required=False, metavar="[FILE]"),
    ):
        chosen = option(chosen)
    return chosen


def _text_of_flags(
    name: str | None, brokers: str | None, topics: str | None, database: str | None, warehouse: str | None
) -> str:
    """The job file that the flags stand for."""
    given = {"--brokers": brokers, "--topics": topics, "--database": database, "--warehouse": warehouse}
    missing = [flag for flag, value in given.items() if not value]
    if missing:
        raise InvalidInputError(
            f"a job file or all flags are needed: missing={','.join(missing)} fix='name a job file'"
        )
    source = {"options": {PATTERN: topics, "kafka.bootstrap.servers": brokers}}
    only = {"name": name or database, "database": database, "source": source}
    return json.dumps({"name": name or database, "warehouse": warehouse, "cdc": [only]})


@cdc.command("run")
@click.option("--once", is_flag=True, help="Take what is there, and end.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@WAIT_OPTION
@METRICS_OPTIONS[0]
@METRICS_OPTIONS[1]
@_with_job
@click.pass_context
def run_database(
    context: click.Context,
    chosen: Chosen,
    once: bool,
    quiet: bool,
    waits: bool,
    metrics_port: int | None,
    metrics_file: str | None,
) -> int:
    """Follow the changes, by a job file or by flags, until it is stopped; SIGTERM lets the running batch end.

    Exit codes: 0 stopped, or with --once all is taken; 1 failed; 2 invalid request; 3, with --once: tables are parked,
    no topic matches, or no record is of a table; 130 Ctrl-C; 143, with --once: stopped by SIGTERM before the end.
    """
    job, database = chosen
    job = with_metrics(job, metrics_port, metrics_file)
    if once:
        commit = database.commit.model_copy(update={"every": "available-now"})
        database = database.model_copy(update={"commit": commit})
    set_up_logging(job, context.find_root().params)
    import_from_here()
    stop = threading.Event()

    def show(report: BatchReport) -> None:
        parked = [each.table for each in report.tables.values() if each.parked is not None]
        counts = f"{len(report.tables)} tables, {sum(each.records for each in report.tables.values())} records"
        console().print(f"batch {report.batch_id}: {counts}" + (f", parked: {', '.join(parked)}" if parked else ""))

    ends = database.commit.trigger.processing_time is None
    with stop_on_signals(stop, (signal.SIGTERM,)):
        try:
            run_cdc(job, database, on_batch=(lambda _: None) if quiet else show, stop=stop, waits=waits)
        except SparkEndedError:  # by a signal to the whole process group
            if not stop.wait(SIGNAL_S):
                raise
    if ends and stop.is_set():
        return EXIT_TERMINATED
    if ends:
        settings = cdc_settings(job, database)
        topics = PatternTopics(settings.properties, settings.pattern).positions()
        return ended_code(cdc_state(job, database), topics=topics, pattern=settings.pattern)
    return 0


def ended_code(state: StateFiles, *, topics: Collection[TopicPosition], pattern: str) -> int:
    """The exit code of a run that took what was there; where it is not 0, a scheduler must not see success.

    That is where tables wait, no topic matches, or none of the records is of a table.

    Args:
        state: of the job, after the run.
        topics: the partitions that match.
        pattern: of the topics.
    """
    names = state.tables()
    waiting = [name for name in names if state.table(name).parked is not None]
    progress = BatchReport.from_json(state.progress())
    for name in names if topics else ():
        if missing := missing_topics(state, name, topics):
            click.echo(f"{name}: {missing}", err=True)
    if waiting:
        said = f"tables wait, see fluvial cdc status: tables={','.join(waiting)}"
    elif not topics:
        said = f"no topic matches: pattern={pattern} fix='compare it with the topics: whole names match'"
    elif not names and progress is not None and any(progress.positions.values()):
        said = f"no record is of a table: pattern={pattern} fix='see what the topics have: fluvial plan'"
    else:
        return 0
    click.echo(said, err=True)
    return EXIT_PARKED


@cdc.command()
@watch_option
@json_option
@_with_job
def status(chosen: Chosen, watch_s: float | None, as_json: bool) -> None:
    """Show the tables of a job: records behind, seconds behind the source, bad records, and why a table waits."""
    shown_again(watch_s, lambda: _show_status(chosen, as_json=as_json))


def _show_status(chosen: Chosen, *, as_json: bool) -> None:
    state = cdc_state(*chosen)
    settings = cdc_settings(*chosen)
    latest = None
    with waiting("asking the brokers"), suppress(UnavailableError):
        latest = latest_offsets(settings.properties, settings.pattern)
    tables = job_status(state, latest=latest, now_ms=int(time.time() * 1000))
    if as_json:
        print_json({"job": state.job, "tables": [each.to_json() for each in tables]})
        return
    headings = ("table", "state", "records", "records behind", "seconds behind", "bad", "snapshot")
    rows = [
        (each.table, each.state, each.records, each.records_behind, each.seconds_behind, each.bad, each.snapshot)
        for each in tables
    ]
    print_table(state.job, headings, rows, numbers=headings[2:])
    for each in tables:
        if each.parked_since_ms is not None:
            since = time_text(each.parked_since_ms)
            console().print(f"{each.table} waits since {since}: {each.reason} fix='{each.fix}'", soft_wrap=True)
        elif each.reason is not None:
            console().print(f"{each.table}: {each.reason}", soft_wrap=True)


@cdc.command()
@click.argument("table")
@_with_job
def resume(chosen: Chosen, table: str) -> None:
    """Resume a parked table at its saved offset, with the job's next batch."""
    ask_resume(cdc_state(*chosen), table, at_ms=int(time.time() * 1000))


@cdc.command()
@click.argument("table")
@click.option(
    "--until",
    metavar="OFFSET|end",
    callback=lambda _, __, value: until_of(value),
    required=True,
    help="First offset to read; end: nothing that is there now.",
)
@_with_job
def skip(chosen: Chosen, table: str, until: int | None) -> None:
    """Resume a parked table without the record that it cannot read.

    Records from that one up to the offset are skipped permanently. Waiting records before it are written.
    """
    state, settings = cdc_state(*chosen), cdc_settings(*chosen)
    gone = ask_skip(
        state,
        table,
        until,
        ends=lambda: latest_offsets(settings.properties, settings.pattern),
        at_ms=int(time.time() * 1000),
    )
    console().print(
        f"left out: topic={gone.topic} partition={gone.partition} "
        f"offsets={gone.start_offset}..{gone.end_offset - 1}", soft_wrap=True,
    )  # fmt: skip


@cdc.command()
@click.argument("tables", metavar="TABLE[,TABLE...]")
@click.option("--drop", "drops", is_flag=True, help="Make the tables again: of a key that has changed.")
@click.option(
    "--writers-stopped", is_flag=True, help="The source tables have no writers now: without a key they need that."
)
@click.option("--by-hand", is_flag=True, help="Send no signal: you do, after this command.")
@_with_job
def resnapshot(chosen: Chosen, tables: str, drops: bool, writers_stopped: bool, by_hand: bool) -> None:
    """Replace the rows of tables by a snapshot that their connector takes again; other tables continue.

    A table is named as in the job, or as its source: SCHEMA.NAME, also one that the job does not know yet. It keeps its
    rows until the first row of the snapshot comes. The connector needs the settings
    signal.enabled.channels=source,kafka, signal.kafka.topic and signal.kafka.bootstrap.servers.
    """
    job, database = chosen
    settings, topic = cdc_settings(job, database), database.source.signals
    if topic is None and not by_hand:
        raise InvalidInputError(
            f"where the connector takes signals is not known: table={tables} source.signals=None "
            f"fix='set {SIGNAL_SETTINGS} at the connector, and source.signals to that topic; or use --by-hand'"
        )
    request_snapshots(
        cdc_state(job, database),
        settings,
        tables.split(","),
        latest_offsets(settings.properties, settings.pattern),
        topic=None if by_hand else topic,
        at_ms=int(time.time() * 1000),
        drops=drops,
        are_writers_stopped=writers_stopped,
        silent=silent_sources(database.source.dsn),
    )


cdc.add_command(verify)
