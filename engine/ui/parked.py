"""The page of a parked table, and the one thing that pages change.

``act`` asks the job of the table what ``fluvial cdc resume`` and ``skip`` ask it, by the same functions.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from engine.cdc.settings import CdcSettings
from engine.cdc.state import Request
from engine.cdc.status import ask_resume, ask_skip, check_known, job_status, until_of
from engine.deploy.cdc_job import cdc_of, cdc_settings, cdc_state
from engine.kafka.offsets import TopicPosition
from engine.ui.console import Console
from engine.ui.jobs import FRESH_S, LoadedJob, epoch_ms, job_address, jobs_path, loaded_job, reached_ends
from engine.ui.parts import ACT_PATH, Cell, Input, Page, PageForm, PagePart, count_cell, heads, text_cell, time_cell
from lsm.errors import InvalidInputError, UnavailableError

logger = logging.getLogger("fluvial.ui")


def parked_page(console: Console, asked: Mapping[str, str]) -> Page:
    """One table of a captured database: why it waits, from where on, what was asked; and how it continues.

    Args:
        console: has the job files.
        asked: ``file``, ``name`` of the database, ``table``.

    Raises: InvalidInputError: there is no such job or table; FluvialError; OSError.
    """
    job, table = loaded_job(console, asked.get("file", "")), asked.get("table", "")
    database = cdc_of(job.config, asked.get("name", ""))
    state, settings = cdc_state(job.config, database), cdc_settings(job.config, database)
    parked = check_known(state, table, parked=False).parked
    ends = _ends(console, job, settings)
    [status] = [each for each in job_status(state, latest=ends, now_ms=epoch_ms()) if each.table == table]
    facts = [
        ("state", Cell(text=status.state, kind="bad" if parked is not None else "good")),
        ("records", count_cell(status.records)),
        ("records behind", count_cell(status.records_behind)),
        ("bad records", count_cell(status.bad, "warn" if status.bad else "")),
    ]
    parts = [PagePart(name="state", facts=facts)]
    if parked is not None:
        why = [("reason", text_cell(status.reason, "bad")), ("do", text_cell(status.fix))]
        parts.append(PagePart(name="why", title="waits", facts=[("since", time_cell(parked.since_ms)), *why]))
        rows = [
            [
                Cell(text=f"{topic}/{partition}"),
                count_cell(offset),
                count_cell(parked.at[2] if parked.at is not None and parked.at[:2] == (topic, partition) else None),
                count_cell(None if ends is None else ends.get((topic, partition))),
            ]
            for (topic, partition), offset in sorted(parked.offsets.items())
        ]
        columns, numbers = heads("partition", "waits from", "cannot be read", "end"), frozenset({1, 2, 3})
        parts.append(PagePart(name="offsets", title="offsets", columns=columns, rows=rows, numbers=numbers))
    requests = [[*_request(each)] for each in state.requests() if each.table == table]
    if requests:
        parts.append(PagePart(name="asked", title="asked", rows=requests, columns=heads("", "until", "")))
    forms: list[PageForm] = []
    if parked is not None and console.allows_actions:
        forms = _forms(job, database.name, table, None if parked.at is None else parked.at[2] + 1)
    elif parked is not None:
        why_not = Cell(text="to resume or skip it here, start the console with --allow-actions", kind="soft")
        parts.append(PagePart(name="no-actions", facts=[("", why_not)]))
    return Page(title=f"{database.database}.{table}", path=jobs_path(console), sections=parts, forms=forms)


def act(console: Console, given: Mapping[str, str]) -> str:
    """Ask the job of a parked table to resume it, or to skip what it cannot read, as the commands do.

    Args:
        console: that allows actions.
        given: ``file``, ``name`` of the database, ``table``; ``do``: resume or skip; for that ``until``.

    Returns:
        The address of the page that shows the request.

    Raises:
        InvalidInputError: there is no such table, or it is not parked; an unknown action; no offset.
        UnavailableError: the brokers do not answer.
    """
    job, table, do = loaded_job(console, given.get("file", "")), given.get("table", ""), given.get("do", "")
    database = cdc_of(job.config, given.get("name", ""))
    state = cdc_state(job.config, database)
    if do == "resume":
        ask_resume(state, table, at_ms=epoch_ms())
    elif do == "skip":
        until = until_of(given.get("until", "").strip())
        settings = cdc_settings(job.config, database)
        ask_skip(state, table, until, ends=lambda: reached_ends(settings), at_ms=epoch_ms())
    else:
        raise InvalidInputError(f"no such action: do={do[:40]} known=resume,skip")
    logger.info("a page asked a job: job=%s table=%s action=%s", state.job, table, do)
    return job_address("/parked", job.number, database.name, table=table)


def _ends(console: Console, job: LoadedJob, settings: CdcSettings) -> Mapping[TopicPosition, int] | None:
    """Ends of a database's topics; None: the brokers do not answer. Raises: FluvialError."""

    def ask() -> Mapping[TopicPosition, int] | None:
        with suppress(UnavailableError):
            return reached_ends(settings)
        return None

    found: Mapping[TopicPosition, int] | None = console.kept.get(
        ("ends", job.number, settings.name), int(time.monotonic()) // FRESH_S, ask
    )
    return found


def _request(request: Request) -> Iterator[Cell]:
    yield Cell(text=request.action)
    yield count_cell(request.until)
    yield Cell(text="the job takes it with its next batch", kind="soft")


def _forms(job: LoadedJob, database: str, table: str, behind: int | None) -> list[PageForm]:
    """``behind``: the offset behind the record that cannot be read; None: none is known."""
    place = {"file": str(job.number), "name": database, "table": table}

    def of(do: str) -> list[Input]:
        return [Input(name=name, value=value, kind="hidden") for name, value in {**place, "do": do}.items()]

    resumes = "the job reads it again from where it waits"
    skips = "the records up to this offset are left out permanently; end: all that are there"
    until = Input(name="until", value="" if behind is None else str(behind), label="until", hint="an offset, or end")
    return [
        PageForm(inputs=of("resume"), button="resume", action=ACT_PATH, note=resumes),
        PageForm(inputs=[*of("skip"), until], button="skip", action=ACT_PATH, note=skips),
    ]
