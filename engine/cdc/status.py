"""The status of a job's tables: lag in records and in seconds of the source, bad records, parked tables."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.cdc.report import BatchReport, TableReport
from engine.cdc.state import CdcTableState, Parked, StateFiles
from engine.cdc.topics import PatternTopics
from engine.kafka.offsets import OffsetRange, TopicPosition
from logstore.kafka.clients import KafkaProperties
from lsm.errors import InvalidInputError

END: Final = "end"
"""What ``fluvial cdc skip --until`` calls the end of a topic."""
PARKED: Final = "parked"
"""State of a table that waits for a user."""
_NAMES_ALL: Final = re.compile(r"fluvial cdc (resume|resnapshot)|then:? fluvial cdc")  # that is to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table of a job."""

    table: str
    sources: tuple[str, ...]
    state: str  # running, parked
    records: int
    bad: int
    records_behind: int | None  # None: the brokers were not asked
    seconds_behind: float | None  # of the source's clock; 0 when no record waits
    lsn: int | None  # of the newest change, where the source is PostgreSQL
    snapshot: int | None
    schema: int | None
    parked_since_ms: int | None
    reason: str | None  # why it waits, or which topics are missing
    fix: str | None

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, as ``fluvial cdc status --json`` prints them."""
        return {name: getattr(self, name) for name in self.__slots__}


def job_status(state: StateFiles, *, latest: Mapping[TopicPosition, int] | None, now_ms: int) -> list[TableStatus]:
    """The tables of a job, parked ones first.

    Args:
        state: its files.
        latest: ends of its topics; None: not known.
        now_ms: epoch milliseconds.
    """
    progress = BatchReport.from_json(state.progress())
    found = [
        _status(
            name,
            state.table(name),
            None if progress is None else progress.tables.get(name),
            progress,
            latest,
            now_ms,
            missing="" if latest is None else missing_topics(state, name, latest),
        )
        for name in state.tables()
    ]
    return sorted(found, key=lambda each: (each.state != PARKED, each.table))


def latest_offsets(properties: KafkaProperties, pattern: str) -> dict[TopicPosition, int]:
    """Ends of the topics of a job. Raises: UnavailableError."""
    topics = PatternTopics(properties, pattern)
    return topics.latest(topics.positions())


def check_known(state: StateFiles, table: str, *, parked: bool) -> CdcTableState:
    """The state of a table that a user names. Raises: InvalidInputError: no such table, or it is not parked."""
    known = state.tables()
    if table not in known:
        raise InvalidInputError(f"the job has no such table: job={state.job} table={table} known={','.join(known)}")
    found = state.table(table)
    if parked and found.parked is None:
        raise InvalidInputError(
            f"the table is not parked: job={state.job} table={table} fix='nothing needs to be done'"
        )
    return found


def table_positions(state: StateFiles, table: str) -> set[TopicPosition]:
    """The topic partitions of a table, as far as its job has read them."""
    progress = BatchReport.from_json(state.progress())
    last = None if progress is None else progress.tables.get(table)
    parked = state.table(table).parked
    return {*({} if last is None else last.offsets), *({} if parked is None else parked.offsets)}


def missing_topics(state: StateFiles, table: str, found: Collection[TopicPosition]) -> str:
    """Which topics of a table are not among those that were found, in words; "": none."""
    topics = {topic for topic, _ in found}
    gone = sorted({topic for topic, _ in table_positions(state, table)} - topics)
    if not gone:
        return ""
    return (
        f"topics of the table are not there, or the pattern does not match them: topics={','.join(gone)} "
        f"fix='correct the pattern; if the source table was renamed or dropped, exclude it and drop {table}'"
    )


def skipped(
    table: str, found: CdcTableState, until: int | None, ends: Mapping[TopicPosition, int] | None = None
) -> OffsetRange:
    """The range that a skip to an offset leaves out, from the record that the table cannot take, else from the first.

    Args:
        table: a parked one.
        found: its state.
        until: the offset; None: the end of the topic.
        ends: of the topics, for that.

    Raises:
        InvalidInputError: the record is not among them; or none is known, and records of several partitions wait.
    """
    parked = found.parked
    topic, partition = _skip_position(table, found)
    if until is None:
        until = (ends or {}).get((topic, partition), 0)
    start = 0 if parked is None else parked.offsets.get((topic, partition), 0)
    if parked is not None and parked.at is not None:
        start = max(start, parked.at[2])
        if until <= start:
            raise InvalidInputError(
                f"the table would wait at the same record: table={table} at={topic}/{partition} offset={start} "
                f"until={until} fix='--until {start + 1}'"
            )
    return OffsetRange(topic=topic, partition=partition, start_offset=start, end_offset=max(start, until))


def until_of(text: str) -> int | None:
    """The first offset that a skip reads again; None: nothing that is there now. Raises: InvalidInputError."""
    if text == END:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInputError(f"'{text[:80]}' is no offset, nor: {END}")
    return int(text)


def ask_resume(state: StateFiles, table: str, *, at_ms: int) -> None:
    """Ask a job to resume a parked table at its saved offset, with the next batch. Raises: InvalidInputError."""
    check_known(state, table, parked=True)
    state.ask("resume", table, at_ms=at_ms)


def ask_skip(
    state: StateFiles,
    table: str,
    until: int | None,
    *,
    ends: Callable[[], Mapping[TopicPosition, int]],
    at_ms: int,
) -> OffsetRange:
    """Ask a job to resume a parked table without the records up to an offset.

    Args:
        state: of the job.
        table: a parked one.
        until: as of ``until_of``.
        ends: of the topics; called where there is no offset.
        at_ms: epoch milliseconds.

    Returns:
        What is left out.

    Raises:
        InvalidInputError: no such table, it is not parked, or the offset leaves it where it is.
        UnavailableError: the brokers do not answer.
    """
    found = check_known(state, table, parked=True)
    gone = skipped(table, found, until, ends() if until is None else {})
    state.ask("skip", table, at_ms=at_ms, until=gone.end_offset)
    return gone


def _skip_position(table: str, found: CdcTableState) -> TopicPosition:
    positions = [] if found.parked is None else sorted(found.parked.offsets)
    if found.parked is not None and found.parked.at is not None:
        return found.parked.at[:2]
    if len(positions) != 1:
        shown = ", ".join(f"{topic}/{partition}" for topic, partition in positions)
        raise InvalidInputError(
            f"--until needs one partition, and the table waits in several: table={table} partitions={shown} "
            "fix='correct the records, then resume the table'"
        )
    return positions[0]


def _status(
    name: str,
    known: CdcTableState,
    last: TableReport | None,
    progress: BatchReport | None,
    latest: Mapping[TopicPosition, int] | None,
    now_ms: int,
    missing: str,
) -> TableStatus:
    parked = known.parked
    behind = None
    if latest is not None:
        own = dict(parked.offsets) if parked is not None else {} if last is None else dict(last.offsets)
        job = {} if progress is None or parked is not None else progress.positions
        at = {each: job.get(each, offset) for each, offset in own.items()}
        behind = sum(max(0, latest.get(each, offset) - offset) for each, offset in at.items())
    newest_ms = None if last is None else last.newest_ms
    seconds = None if newest_ms is None or behind is None else max(0.0, (now_ms - newest_ms) / 1000) if behind else 0.0
    return TableStatus(
        table=name,
        sources=tuple(str(each) for each in known.known_sources),
        state="running" if parked is None else PARKED,
        records=0 if last is None else last.records,
        bad=0 if last is None else last.bad,
        records_behind=behind,
        seconds_behind=seconds,
        lsn=None if last is None else last.newest_lsn,
        snapshot=None if last is None else last.snapshot_id,
        schema=None if last is None else last.schema_id,
        parked_since_ms=None if parked is None else parked.since_ms,
        reason=missing or None if parked is None else parked.reason,
        fix=None if parked is None else _fix(name, known, parked),
    )


def _fix(name: str, known: CdcTableState, parked: Parked) -> str:
    if parked.awaits is None or parked.awaits.is_met:
        if _NAMES_ALL.search(parked.reason):
            return "do what the reason says"
        first = "do what the reason says" if "fix=" in parked.reason else "remove the cause"
        return f"{first}, then: fluvial cdc resume {name}"
    options = f"{' --drop' if parked.awaits.drops else ''}{'' if known.key else ' --writers-stopped'}"
    return (
        f"if the connector publishes nothing, restart it; if its log does not name a snapshot of the table, again: "
        f"fluvial cdc resnapshot {name}{options}; to do without: fluvial cdc resume {name}"
    )
