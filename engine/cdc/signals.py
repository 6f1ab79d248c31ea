"""Signals to connectors: take a snapshot of a table again, while other tables continue.

Of the kinds of snapshots only the blocking one replaces a table exactly: the connector stops reading changes, publishes
all rows, and continues where it stopped. So every record before the first row is older than the snapshot.

Source: Debezium "Sending signals to a connector", Kafka channel; "Blocking snapshots".
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException

from engine.cdc.rules.names import Naming, SourceTable
from engine.cdc.settings import CdcSettings
from engine.cdc.state import RESNAPSHOT, StateFiles
from engine.cdc.status import table_positions
from engine.kafka.offsets import TopicPosition
from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties, error_of_kafka
from logstore.kafka.refusals import topic_right
from lsm.errors import InvalidInputError, UnavailableError

SIGNAL_SETTINGS: Final = "signal.enabled.channels=source,kafka, signal.kafka.topic and signal.kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Silent:
    """Source tables of which no snapshot has a row, for which a job would wait without end."""

    missing: frozenset[SourceTable] = frozenset()
    empty: frozenset[SourceTable] = frozenset()


FindSilent = Callable[[Sequence[SourceTable]], Silent]
"""Finds those of some source tables that the source does not have, or that have no rows."""


def none_is_silent(_: Sequence[SourceTable]) -> Silent:
    """Of a source that cannot be asked, all count as there, with rows."""
    return Silent()


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSignal:
    """Asks one connector for the rows of some tables."""

    prefix: str  # of the connector's topics
    tables: tuple[SourceTable, ...]

    @property
    def text(self) -> str:
        """The value of the record; its key is the prefix."""
        names = [str(each) for each in self.tables]
        data = {"data-collections": names, "type": "BLOCKING"}
        return json.dumps({"type": "execute-snapshot", "data": data})


def prefixes_of(sources: Iterable[SourceTable], positions: Iterable[TopicPosition]) -> dict[SourceTable, str]:
    """The prefix of the topics of each source table's connector, as far as a topic is named after the table."""
    topics = sorted({topic for topic, _ in positions})
    found = {}
    for source in sources:
        prefixes = [each.removesuffix(f".{source}") for each in topics if each.endswith(f".{source}")]
        if prefixes:
            found[source] = prefixes[0]
    return found


def signals_for(sources: Sequence[SourceTable], prefixes: Mapping[SourceTable, str]) -> list[SnapshotSignal]:
    """The signals for source tables, one for each connector: while it takes a snapshot it must not get another.

    Args:
        sources: the tables; one without a prefix is of the connector of all others, if there is only one.
        prefixes: of the topics of tables that are known.

    Raises:
        InvalidInputError: the connector of a table is not known.
    """
    found: dict[str, list[SourceTable]] = {}
    all_prefixes = sorted(set(prefixes.values()))
    for source in sources:
        prefix = prefixes.get(source, all_prefixes[0] if len(all_prefixes) == 1 else None)
        if prefix is None:
            raise InvalidInputError(
                f"the connector of a source table is not known: source={source} "
                f"prefixes={','.join(all_prefixes) or 'none'} "
                "fix='send it the signal execute-snapshot with type BLOCKING, after the same command with --by-hand'"
            )
        found.setdefault(prefix, []).append(source)
    return [SnapshotSignal(prefix=prefix, tables=tuple(dict.fromkeys(tables))) for prefix, tables in found.items()]


def send_signals(properties: KafkaProperties, topic: str, signals: Sequence[SnapshotSignal]) -> None:
    """Send them and wait until they are acknowledged. Raises: FluvialError."""
    notes = ErrorNotes()
    producer = properties.plain_producer(notes)
    failed: list[KafkaException] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(KafkaException(error))

    for each in signals:
        producer.produce(topic, each.text.encode(), each.prefix.encode(), partition=0, on_delivery=delivered)
    left = producer.flush(OPERATION_TIMEOUT_S)
    if failed:
        doing = f"a signal was refused: topic={topic}"
        absent = f"create the topic {topic}, and let the connector read it: {SIGNAL_SETTINGS}"
        needs = [topic_right("Write", topic)]
        raise error_of_kafka(failed[0], doing, notes, needs=needs, absent=absent) from failed[0]
    if left:
        raise UnavailableError(f"a signal was not accepted in time: topic={topic}{notes.text}")


def request_snapshots(
    state: StateFiles,
    settings: CdcSettings,
    names: Sequence[str],
    latest: Mapping[TopicPosition, int],
    *,
    topic: str | None,
    at_ms: int,
    drops: bool = False,
    are_writers_stopped: bool = False,
    silent: FindSilent = none_is_silent,
) -> None:
    """Ask the connectors for snapshots of tables, and the job to replace their rows when the first ones come.

    Args:
        state: of the job.
        settings: of the job.
        names: tables, or source tables as ``SCHEMA.NAME``; one that the job does not know yet joins with its snapshot.
        latest: ends of the job's topics: the snapshots begin behind them.
        topic: of the connectors' signals; None: a user sends them, after this.
        at_ms: epoch milliseconds.
        drops: make the tables again.
        are_writers_stopped: whether the source tables have no writers until the snapshots are there.
        silent: finds source tables that the source does not have, or that have no rows.

    Raises:
        InvalidInputError: a table is not known, is not in the source, has no rows there, cannot be replaced
            exactly, or another one waits for its snapshot.
        FluvialError: a signal was not accepted.
    """
    known = state.tables()
    tables, new = _chosen(names, known, settings.naming, state.job)
    wanted = {name: state.table(name).known_sources for name in tables}
    check_there({**wanted, **{str(each): (each,) for each in new}}, silent)
    waiting = [each for each in known if each not in tables and _waits(state, each)]
    if waiting and topic is not None:
        raise InvalidInputError(
            f"a connector stands still that gets a signal while it takes another snapshot: tables={','.join(names)} "
            f"waiting={','.join(waiting)} fix='wait until fluvial cdc status shows them running; if the connector has "
            f"never taken their signal, ask for all: fluvial cdc resnapshot {','.join([*waiting, *names])}'"
        )
    ends = {name: {each: latest[each] for each in table_positions(state, name) if each in latest} for name in tables}
    for name in tables:
        check_resnapshot(name, state.table(name).key, ends[name], are_writers_stopped=are_writers_stopped)
    if topic is not None:
        places = [each for name in known for each in table_positions(state, name)]
        sources = [each for name in tables for each in state.table(name).known_sources]
        prefixes = prefixes_of(
            [*sources, *(each for name in known for each in state.table(name).known_sources)], places
        )
        send_signals(settings.properties, topic, signals_for([*sources, *new], prefixes))
    for name in tables:
        state.ask(RESNAPSHOT, name, at_ms=at_ms, offsets=ends[name], drops=drops)


def check_there(wanted: Mapping[str, Sequence[SourceTable]], silent: FindSilent) -> None:
    """Refuse tables of which no connector can publish a row, so that they would wait for one and never get it.

    Args:
        wanted: the source tables of each table; a table of several needs one of them.
        silent: finds source tables that the source does not have, or that have no rows.

    Raises:
        InvalidInputError: names the table and its source tables.
    """
    found = silent([each for sources in wanted.values() for each in sources])
    for name, sources in wanted.items():
        shown = ",".join(map(str, sources))
        if sources and found.missing.issuperset(sources):
            patterns = ", ".join(f"'{re.escape(str(each))}'" for each in sources)
            raise InvalidInputError(
                f"the source table is not there, it was renamed or dropped, so no snapshot of it comes: table={name} "
                f"source={shown} fix='if it was renamed: fluvial cdc resnapshot SCHEMA.NEW-NAME; to forget the table, "
                f"write tables: {{exclude: [{patterns}]}} into the job, and drop it; if it waits, and is to keep its "
                f"rows: fluvial cdc skip {name} --until end'"
            )
        if sources and (found.missing | found.empty).issuperset(sources):
            raise InvalidInputError(
                f"the source table has no rows, so no row of a snapshot comes: table={name} source={shown} "
                "fix='delete the rows of the table, by DELETE FROM or TRUNCATE TABLE of fluvial sql; if it waits, then "
                f"fluvial cdc skip {name} --until end; one that the job does not know yet comes with its first row'"
            )


def _chosen(
    names: Sequence[str], known: Sequence[str], naming: Naming, job: str
) -> tuple[list[str], list[SourceTable]]:
    """The tables that the job knows, and source tables that it does not know yet. Raises: InvalidInputError."""
    tables: list[str] = []
    new: list[SourceTable] = []
    for name in names:
        source = SourceTable.parse(name) if "." in name else None
        target = None if source is None else naming.target_of(source)
        if name in known:
            tables.append(name)
        elif target is not None and target.table in known:
            tables.append(target.table)
        elif source is not None and target is not None:
            new.append(source)
        else:
            raise InvalidInputError(
                f"the job has no such table: job={job} table={name} known={','.join(known)} "
                "fix='a table that it does not know yet has the name of its source: SCHEMA.NAME'"
            )
    return list(dict.fromkeys(tables)), new


def _waits(state: StateFiles, name: str) -> bool:
    parked = state.table(name).parked
    return parked is not None and parked.awaits is not None and not parked.awaits.is_met


def check_resnapshot(
    table: str, key: Sequence[str], latest: Mapping[TopicPosition, int], *, are_writers_stopped: bool = False
) -> None:
    """Refuse what a snapshot cannot replace exactly.

    Without a key it can while the source table has no writer.

    Raises:
        InvalidInputError: the table has no key, or no partition that is known.
    """
    if not key and not are_writers_stopped:
        several = "" if len(latest) == 1 else ", wait until the connector has published all"
        raise InvalidInputError(
            f"a table without a key counts rows twice that change during a snapshot: table={table} fix='stop the "
            f"writers of the source table until the snapshot is there{several}, and add --writers-stopped'"
        )
    if not latest:
        raise InvalidInputError(
            f"no topic of the table is known: table={table} fix='wait for its first batch; it is still to come'"
        )
