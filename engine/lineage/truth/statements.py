"""Lineage that is stated by hand: what a job outside Fluvial says that it has read and written.

A statement is kept beside what the snapshots say, and is marked as stated: corrections drop of it only the snapshots
that a table no longer has. It comes as names of tables, or as OpenLineage events.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import unquote, urlparse

from engine.lineage.datasets import catalog_uri
from engine.lineage.origins import batch_barrier
from engine.lineage.store.entities import (
    OUTSIDE,
    STATED_RUN,
    DataLineage,
    LineageRecords,
    TableLineage,
    split_name,
    time_of,
)
from engine.lineage.truth.tables_now import ListedTables
from filestore.snapshot.snapshot import Snapshot
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_address

_ENDED: Final = "COMPLETE"
_RUNS: Final = "RUNNING"
_FAILED: Final = frozenset({"FAIL", "ABORT"})
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A table as a statement names it."""

    name: str  # database.table, or the address of something that is not in the catalog, with "://"
    snapshot_id: int | None = None  # None: the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatement:
    """What one run of a job has read and written."""

    job: str
    reads: tuple[Named, ...]
    writes: tuple[Named, ...]
    run_id: str = ""  # of the run; "": what it has read and written distinguishes it
    time_ms: int | None = None  # epoch milliseconds; None: the time of what it wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One table of a statement, as it is recorded."""

    name: str
    table_id: str  # ``OUTSIDE``: not of the catalog
    snapshot: Snapshot | None  # None: not of the catalog, or without a snapshot


def named_tables(text: str | None) -> tuple[Named, ...]:
    """The tables of ``shop.raw, shop.orders@5``: each with the snapshot behind ``@``.

    Raises: InvalidInputError, a part is no name of a table, or no number stands behind ``@``.
    """
    found = []
    for part in filter(None, map(str.strip, (text or "").split(","))):
        name, at, number = part.partition("@") if "://" not in part else (part, "", "")
        if not all(split_name(name)) or (at and not number.isdecimal()):
            raise InvalidInputError(
                f"not a table: value={shown_address(part)!r} fix='database.table, database.table@5 with a snapshot, or "
                "an address with :// of what is not in the catalog; a comma between two'"
            )
        found.append(Named(name=name, snapshot_id=int(number) if at else None))
    return tuple(found)


def stated_records(catalog: ListedTables, statement: JobStatement, *, now_ms: int) -> LineageRecords:
    """The records of a statement; the same statement has the same records.

    Args:
        catalog: with the tables.
        statement: what the job says.
        now_ms: the time where neither a snapshot nor the statement has one.

    Raises:
        InvalidInputError: a table or a snapshot is not there, or nothing was read or written.
    """
    reads = [_stated(catalog, each) for each in statement.reads]
    writes = [_stated(catalog, each) for each in statement.writes]
    if not reads and not writes:
        raise InvalidInputError(
            f"a job that reads and writes nothing: job={statement.job} fix='name tables in reads or writes'"
        )
    moment_ms = statement.time_ms
    if moment_ms is None:
        of_writes = [each.snapshot.time_ms for each in writes if each.snapshot is not None]
        of_reads = [each.snapshot.time_ms for each in reads if each.snapshot is not None]
        moment_ms = max(of_writes or of_reads or [now_ms])
    run = STATED_RUN + (statement.run_id or _content_id(statement.job, reads, writes))
    barrier_id = batch_barrier(moment_ms, run)
    time = time_of(moment_ms)

    def of_tables(found: Iterable[Stated]) -> tuple[TableLineage, ...]:
        return tuple(
            TableLineage(statement.job, *split_name(each.name), time, stated=each.table_id or OUTSIDE) for each in found
        )

    def of_snapshots(found: Iterable[Stated], *, is_written: bool) -> tuple[DataLineage, ...]:
        return tuple(
            DataLineage(
                statement.job,
                barrier_id,
                *split_name(each.name),
                each.snapshot.id,
                time,
                run=run,
                table_id=each.table_id,
                identity=each.snapshot.identity if is_written else "",
                moment_ms=moment_ms,
            )
            for each in found
            if each.snapshot is not None
        )

    return LineageRecords(
        source_tables=of_tables(reads),
        sink_tables=of_tables(writes),
        source_snapshots=of_snapshots(reads, is_written=False),
        sink_snapshots=of_snapshots(writes, is_written=True),
    )


def statements_of_events(text: str, warehouse: str) -> list[JobStatement]:
    """The runs that OpenLineage events say are complete; those that failed, or have not ended, state nothing.

    A stream states it with each event that it runs. A run has read and written what all of its events name. A table of
    the warehouse is known by its directory, or by the catalog's name for it; any other dataset is recorded under its
    namespace and name.

    Args:
        text: an event as JSON, a list of events, or one event a line.
        warehouse: of the catalog.

    Raises:
        InvalidInputError: it is no JSON, or no run event.
    """
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for event in _events(text):
        try:
            runs.setdefault(str(event["run"]["runId"]), []).append(event)
            str(event["job"]["name"]), datetime.fromisoformat(event["eventTime"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"not a run event of OpenLineage: event={json.dumps(event)[:200]} reason={error!r} "
                "fix='give events with run.runId, job.name, eventTime and eventType'"
            ) from error
    found = []
    for run_id, events in runs.items():
        states = {str(each.get("eventType")) for each in events}
        is_batch = not any(map(_is_stream, events))
        if not states & ({_ENDED} if is_batch else {_ENDED, _RUNS}) or (is_batch and states & _FAILED):
            continue
        last = max(events, key=lambda each: datetime.fromisoformat(each["eventTime"]))
        tables = {
            side: tuple(
                {
                    named.name: named
                    for event in events
                    for named in (_dataset(each, warehouse) for each in event.get(side) or ())
                }.values()
            )
            for side in ("inputs", "outputs")
        }
        if not any(tables.values()):
            continue
        time = datetime.fromisoformat(last["eventTime"])
        found.append(
            JobStatement(
                job=str(last["job"]["name"]),
                reads=tables["inputs"],
                writes=tables["outputs"],
                run_id=run_id,
                time_ms=int(time.timestamp() * 1000),
            )
        )
    return found


def _events(text: str) -> Iterator[Mapping[str, Any]]:
    stripped = text.strip()
    try:
        whole = json.loads(stripped)
    except ValueError:
        try:
            whole = [json.loads(line) for line in stripped.splitlines() if line.strip()]
        except ValueError as error:
            raise InvalidInputError(
                f"events are no JSON: reason={error} fix='give one event, a list, or one event a line'"
            ) from error
    yield from whole if isinstance(whole, list) else [whole]


def _is_stream(event: Mapping[str, Any]) -> bool:
    facets = event["job"].get("facets") or {}
    return (facets.get("jobType") or {}).get("processingType") == "STREAMING"


def _dataset(dataset: Mapping[str, Any], warehouse: str) -> Named:
    """A dataset of an event: a table of the catalog by its directory or its name there, else an address."""
    facets = dataset.get("facets") or {}
    version = str((facets.get("version") or {}).get("datasetVersion", ""))
    snapshot_id = int(version) if version.isdecimal() else None
    namespace, name = str(dataset.get("namespace", "")), str(dataset.get("name", ""))
    for each in (facets.get("symlinks") or {}).get("identifiers") or ():
        if each.get("namespace") == catalog_uri(warehouse):
            return Named(name=str(each["name"]), snapshot_id=snapshot_id)
    place = name if namespace == "file" else f"{namespace.rstrip('/')}/{name.lstrip('/')}"
    table = _table_in(warehouse, place)
    if table is not None:
        return Named(name=table, snapshot_id=snapshot_id)
    return Named(name=place if "://" in place else f"{namespace}://{name.lstrip('/')}")


def _table_in(warehouse: str, place: str) -> str | None:
    """``database.table`` of a directory; None when it is not one of a table in the warehouse."""
    root, there = (
        unquote(urlparse(each).path) if urlparse(each).scheme == "file" else each for each in (warehouse, place)
    )
    if "://" not in root:
        root, there = os.path.abspath(root), os.path.abspath(there) if "://" not in there else there
    database, is_database, table = there.removeprefix(root.rstrip("/") + "/").partition(".db/")
    is_inside = there.startswith(root.rstrip("/") + "/")
    return f"{database}.{table}" if is_inside and is_database and table and "/" not in database + table else None


def _stated(catalog: ListedTables, named: Named) -> Stated:
    """A table as it is now. Raises: InvalidInputError, it is not there, or has not got the snapshot."""
    if "://" in named.name:
        return Stated(name=_outside_name(shown_address(named.name)), table_id=OUTSIDE, snapshot=None)
    store = catalog.table(named.name).store
    snapshots = store.snapshots
    snapshot = snapshots.latest() if named.snapshot_id is None else snapshots.find(named.snapshot_id)
    if snapshot is None and named.snapshot_id is not None:
        ids = snapshots.line().ids
        raise InvalidInputError(
            f"no such snapshot: table={named.name} snapshot={named.snapshot_id} earliest={min(ids, default=None)} "
            f"latest={max(ids, default=None)} fix='name one that is there, or leave it out for the newest'"
        )
    return Stated(name=store.name, table_id=store.table_id(), snapshot=snapshot)


def _outside_name(address: str) -> str:
    """An address as a name with a database: what is before its first dot, or its scheme."""
    database, table = split_name(address)
    scheme, _, rest = address.partition("://")
    return address if database and table else f"{scheme}://.{rest}"


def _content_id(job: str, reads: Sequence[Stated], writes: Sequence[Stated]) -> str:
    """An id that is equal for equal statements about the same snapshots."""
    parts = [job]
    for found in (reads, writes):
        parts += [f"{each.name} {each.table_id} {'' if each.snapshot is None else each.snapshot.ref}" for each in found]
        parts.append("")
    return blake2b("\0".join(parts).encode(), digest_size=_ID_BYTES).hexdigest()
