"""The pages of jobs: pipelines and databases of job files, as ``fluvial lag``, ``trace`` and ``cdc status`` do."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final
from urllib.parse import urlencode

from engine.cdc.settings import CdcSettings
from engine.cdc.status import (
    PARKED,
    TableStatus,
    job_status,
    latest_offsets,
)
from engine.checkpoint.checkpoint_files import is_readable, read_checkpoint
from engine.deploy.cdc_job import cdc_of, cdc_settings, cdc_state
from engine.deploy.config.cdc_config import CdcConfig
from engine.deploy.config.job_config import JobConfig, load_job
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.health import published_health
from engine.deploy.pipeline.job_watch import ClusterWatch
from engine.deploy.pipeline.sources import kafka_options, source_table
from engine.drawing.svg import without_style
from engine.drawing.timeline import bars_svg, ms_text, timeline_svg, totals_of
from engine.kafka.dead_letters import newest_letters
from engine.kafka.offsets import Offsets, TopicPosition, from_json
from engine.monitor.lag_report import stream_lags
from engine.request.writer_options import WriterOptions
from engine.runtime.batch_trace import BatchTrace, newest_traces
from engine.runtime.step_file import read_steps
from engine.runtime.units import count_text, many_text
from engine.ui.console import Console
from engine.ui.parts import (
    Cell,
    Page,
    PagePart,
    count_cell,
    heads,
    size_cell,
    table_address,
    text_cell,
    time_cell,
)
from filestore.layout.locations import absolute_path
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

FRESH_S: Final = 4
_BROKERS_S: Final = 3.0  # a page waits for brokers
_LETTERS: Final = 20
_BATCHES: Final = 20
_TRACE_BYTES: Final = 1 << 20  # of each file of a trace
_TRACE: Final = WriterOptions.trace_directory.key


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJob:
    """A job file that was read."""

    number: int  # among those of the console, from 0
    path: str
    config: JobConfig
    health: Mapping[str, Any]  # by pipeline or database, as the running job publishes it; empty: it does not


def jobs_page(console: Console) -> Page:
    """What the given job files do. A file or cluster that cannot be read takes nothing from the others."""
    parts = [part for number in range(len(console.job_files)) for part in _job_parts(console, number)]
    if not console.job_files:
        why = "no job file was given: fluvial ui --job FILE"
        parts = [PagePart(name="none", facts=[("", Cell(text=why))])]
    return Page(title="jobs", path=[(console.catalog.warehouse, "/")], sections=parts)


def job_page(console: Console, asked: Mapping[str, str]) -> Page:
    """One pipeline or database: its batches with their traces, and its newest dead letters.

    Args:
        console: has the job files.
        asked: ``file``, the number of a job file, from 0; ``name`` of the pipeline or database; ``batch`` and ``of``,
            its table: whose trace is drawn.

    Raises: InvalidInputError: there is no such job; FluvialError; OSError.
    """
    job, name = loaded_job(console, asked.get("file", "")), asked.get("name", "")
    batch = asked.get("of", ""), asked.get("batch", "")
    key, now = ("job page", job.number, name, batch), int(time.monotonic()) // FRESH_S
    parts = console.kept.get(key, now, lambda: [*_one(console, job, name, batch)])
    return Page(title=f"{job.config.name}: {name}", path=jobs_path(console), sections=parts)


def _one(console: Console, job: LoadedJob, name: str, batch: tuple[str, str]) -> Iterator[PagePart]:
    """Raises: FluvialError; OSError."""
    for pipeline in job.config.pipelines:
        if pipeline.name == name:
            rows = [_pipeline(console, job, pipeline)]
            yield PagePart(name="state", columns=_PIPELINE, rows=rows, numbers=_PIPELINE_NUMBERS)
            yield from _batches(job, pipeline, batch)
            source = kafka_options(job.config, pipeline)
            yield _letters(None, None) if source is None else _letters(source.properties, source.dead_letter_topic)
            return
    database = cdc_of(job.config, name)
    yield _database(job, database, "tables")
    settings = cdc_settings(job.config, database)
    yield _letters(settings.properties, settings.dead_letters)


def jobs_path(console: Console) -> list[tuple[str, str]]:
    """The pages above that of a job."""
    return [(console.catalog.warehouse, "/"), ("jobs", "/jobs")]


def job_address(page: str, number: int, name: str, **more: str) -> str:
    """The address of a page about a pipeline or database of a job file."""
    return f"{page}?{urlencode({'file': number, 'name': name, **more})}"


def epoch_ms() -> int:
    """Milliseconds, by the clock of this machine."""
    return int(time.time() * 1000)


def loaded_job(console: Console, given: str) -> LoadedJob:
    """The job file of a number. Raises: InvalidInputError; UnavailableError; CorruptDataError; OSError."""
    known = {str(number): number for number in range(len(console.job_files))}
    if given not in known:
        raise InvalidInputError(f"no such job file: file={given[:20]} fix='begin at the page of jobs'")
    number = known[given]
    path = console.job_files[number]

    def load() -> LoadedJob:
        config = load_job(path, environment=os.environ)
        health = published_health(config.health) or {"pipelines": {}}
        return LoadedJob(number=number, path=path, config=config, health=health["pipelines"])

    found: LoadedJob = console.kept.get(("job file", number), int(time.monotonic()) // FRESH_S, load)
    return found


def _job_parts(console: Console, number: int) -> list[PagePart]:
    now = int(time.monotonic()) // FRESH_S
    found: list[PagePart] = console.kept.get(("job", number), now, lambda: [*_parts(console, number)])
    return found


def _parts(console: Console, number: int) -> Iterator[PagePart]:
    name = f"job-{number}"
    try:
        job = loaded_job(console, str(number))
    except (FluvialError, OSError) as error:
        yield PagePart(name=name, title=console.job_files[number], facts=[("", text_cell(error, "bad"))])
        return
    if job.config.pipelines:
        rows = [_pipeline(console, job, each) for each in job.config.pipelines]
        title = f"{job.config.name}: {many_text(len(rows), 'pipeline')}"
        yield PagePart(name=name, title=title, columns=_PIPELINE, rows=rows, numbers=_PIPELINE_NUMBERS)
    for at, database in enumerate(job.config.cdc):
        try:
            yield _database(job, database, f"{name}-{at}")
        except (FluvialError, OSError) as error:
            yield PagePart(name=f"{name}-{at}", title=database.name, facts=[("", text_cell(error, "bad"))])


# ---- Pipelines


_PIPELINE: Final = heads(
    "pipeline", "writes", "state", "rows a minute", "records behind", "seconds behind", "restarts", "dead letters", ""
)
_PIPELINE_NUMBERS: Final = frozenset(range(3, 8))


def _pipeline(console: Console, job: LoadedJob, pipeline: PipelineConfig) -> list[Cell]:
    tables = [each.table for each in pipeline.outputs]
    health = job.health.get(pipeline.name, {})
    restarts = health.get("restart_count")
    batch, lag = "", {}
    problem: object = None
    try:
        location = absolute_path(pipeline.checkpoint)
        if not is_readable(location):
            batch = "its checkpoint is not on this machine"
        else:
            state = read_checkpoint(location)
            done = None if state is None else state.batch_id
            batch = "has not finished a batch" if state is None or done is None else f"after batch {done}"
            if state is not None and done is not None:
                lag = _lag(console, job.config, pipeline, state.offsets, location)
    except (FluvialError, OSError) as error:
        problem = error
    behind = lag.get("lag_records")
    states = [str(each) for each in (health.get("state"), batch) if each]
    return [
        Cell(text=pipeline.name, href=job_address("/job", job.number, pipeline.name)),
        Cell(text=", ".join(tables), href=table_address(tables[0])),
        text_cell(", ".join(states), "" if lag or health else "soft"),
        _rate(console, tables),
        count_cell(None if behind is None else int(behind), "warn" if behind else ""),
        text_cell(lag.get("lag_seconds")),
        count_cell(restarts if isinstance(restarts, int) else None, "warn" if restarts else ""),
        count_cell(lag.get("letters"), "warn" if lag.get("letters") else ""),
        text_cell(problem or lag.get("problem"), "bad"),
    ]


def _rate(console: Console, tables: list[str]) -> Cell:
    """Rows a minute of the tables together, as far as they are known by now."""
    facts = console.facts(tables)
    found = [facts[each].rate() for each in tables if each in facts]
    return count_cell(round(60 * sum(found))) if found else Cell(text="")


def _lag(
    console: Console, job: JobConfig, pipeline: PipelineConfig, offsets: tuple[Any, ...], location: str
) -> dict[str, Any]:
    """How far a pipeline is behind its topics or its table, and its dead letters; empty for other sources."""
    source = kafka_options(job, pipeline)
    if source is not None:

        def delivered() -> Offsets | None:
            return next((from_json(each) for each in offsets if each is not None), None)

        watch = ClusterWatch(source.properties, {pipeline.name: (source, delivered)})
        watch.look()
        if watch.unreachable_s is not None:
            return {"problem": f"brokers do not answer: {watch.servers}"}
        found = watch.lags[pipeline.name].to_json() if pipeline.name in watch.lags else {}
        return {**found, "letters": watch.dead_letters.get(source.dead_letter_topic or "")}
    table = source_table(job, pipeline)
    if table is None:
        return {}
    streams = [each for each in stream_lags(console.table(table), [location]) if each["stream"] == location]
    return streams[0] if streams else {}


def _batches(job: LoadedJob, pipeline: PipelineConfig, wanted: tuple[str, str]) -> Iterator[PagePart]:
    """The newest batches of a pipeline, each as a bar; and the wanted one, else the newest, whole."""
    places = dict.fromkeys(each.options[_TRACE] for each in pipeline.outputs if _TRACE in each.options)
    if not places:
        why = f"no batch is traced: give the pipeline the option {_TRACE}"
        yield PagePart(name="batches", title="batches", facts=[("", Cell(text=why, kind="soft"))])
    for number, directory in enumerate(places):
        name = f"batches-{number}"
        try:
            traces = newest_traces(read_steps(directory, last_bytes=_TRACE_BYTES), _BATCHES)
        except (FluvialError, OSError) as error:
            yield PagePart(name=name, title="batches", facts=[("", text_cell(error, "soft"))])
            continue
        longest_us = max((each.us for each in traces), default=0)
        order = [*totals_of([span for each in traces for span in each.spans])]
        title = f"newest {many_text(len(traces), 'batch', 'batches')}"
        columns = heads("batch", "table", "rows", "took", "")
        rows = [_batch(each, bars_svg(each, longest_us, order), job.number, pipeline.name) for each in traces]
        yield PagePart(name=name, title=title, columns=columns, rows=rows, numbers=frozenset({0, 2, 3}))
        chosen = [each for each in traces if (each.table, str(each.batch)) == wanted]
        for each in (chosen or traces)[:1]:
            svg = without_style(timeline_svg(each, order))
            yield PagePart(name=f"{name}-trace", title="where its time went", svg=svg)


def _batch(trace: BatchTrace, bars: str, number: int, pipeline: str) -> list[Cell]:
    own = job_address("/job", number, pipeline, of=trace.table, batch=str(trace.batch))
    return [
        Cell(text=str(trace.batch), href=own),
        text_cell(trace.table),
        count_cell(trace.rows),
        Cell(text=ms_text(trace.us)),
        Cell(text="", svg=without_style(bars)),
    ]


def _letters(properties: KafkaProperties | None, topic: str | None) -> PagePart:
    """The newest dead letters of a topic, with their reasons."""
    if properties is None or topic is None:
        why = Cell(text="no topic of dead letters is set", kind="soft")
        return PagePart(name="letters", title="dead letters", facts=[("", why)])
    title = f"newest dead letters: topic {topic}"
    try:
        LogTopics(properties, timeout_s=_BROKERS_S).check_reachable()
        found = newest_letters(properties, topic, last=_LETTERS, timeout_s=_BROKERS_S)
    except FluvialError as error:
        return PagePart(name="letters", title=title, facts=[("", text_cell(error, "soft"))])
    rows = [
        [
            time_cell(each.time_ms),
            text_cell(each.source),
            text_cell(each.reason, "bad"),
            text_cell(each.key),
            text_cell(each.value),
            size_cell(each.size_bytes),
        ]
        for each in found
    ]
    columns = heads("time", "of", "reason", "key", "value", "size")
    return PagePart(name="letters", title=title, columns=columns, rows=rows, numbers=frozenset({5}))


# ---- Databases


def reached_ends(settings: CdcSettings) -> dict[TopicPosition, int]:
    """Ends of a database's topics. Raises: UnavailableError: no answer within seconds; InvalidInputError."""
    LogTopics(settings.properties, timeout_s=_BROKERS_S).check_reachable()  # the next waits a minute
    return latest_offsets(settings.properties, settings.pattern)


def _database(job: LoadedJob, database: CdcConfig, name: str) -> PagePart:
    """Raises: FluvialError; OSError."""
    state, settings, latest = cdc_state(job.config, database), cdc_settings(job.config, database), None
    with suppress(UnavailableError):
        latest = reached_ends(settings)
    tables = job_status(state, latest=latest, now_ms=epoch_ms())
    note = many_text(len(tables), "table") + ("" if latest is not None else "; the brokers do not answer")
    columns = heads("table", "state", "records", "records behind", "seconds behind", "bad", "waits", "do")
    rows = [_table(each, job, database) for each in tables]
    title = f"{job.config.name}: database {database.name}"
    own = Cell(text=settings.dead_letters or "no topic", href=job_address("/job", job.number, database.name))
    facts = [*_of_health(job.health.get(database.name, {})), ("dead letters", own)]
    numbers = frozenset({2, 3, 4, 5})
    return PagePart(name=name, title=title, note=note, facts=facts, columns=columns, rows=rows, numbers=numbers)


def _of_health(health: Mapping[str, Any]) -> Iterator[tuple[str, Cell]]:
    for key, words in (("state", "state"), ("batch_count", "batches"), ("restart_count", "restarts")):
        if health.get(key) is not None:
            value = health[key]
            yield words, Cell(text=count_text(value)) if isinstance(value, int) else text_cell(value)


def _table(each: TableStatus, job: LoadedJob, database: CdcConfig) -> list[Cell]:
    whole = each.table if "." in each.table else f"{database.database}.{each.table}"
    fix = None if each.fix is None else f"{each.fix} ({quote(job.path)})"
    own = job_address("/parked", job.number, database.name, table=each.table)
    return [
        Cell(text=each.table, href=table_address(whole)),
        Cell(text=each.state, href=own, kind="bad" if each.state == PARKED else ""),
        count_cell(each.records),
        count_cell(each.records_behind, "warn" if each.records_behind else ""),
        text_cell(None if each.seconds_behind is None else round(each.seconds_behind)),
        count_cell(each.bad, "warn" if each.bad else ""),
        text_cell(each.reason) if each.parked_since_ms is None else text_cell(each.reason, "bad"),
        text_cell(fix),
    ]
