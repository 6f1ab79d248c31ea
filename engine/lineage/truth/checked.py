"""The store of lineage, compared with the snapshot files before it answers.

A snapshot file says which job, run and barrier wrote it, and from what. The store is an index of that: rows of
snapshots that a rollback removed are false, as are those of a table that was dropped, and of the main branch that
another one replaced; rows are missing where a process died behind its commit, or where the store was lost. For each
table the store keeps up to which snapshot it agrees with the files, by id and identity. If the table still has that
snapshot, only newer ones are read; else its history is another one, and all of it is read.

Snapshots that have expired cannot be compared: their rows stay.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from engine.lineage.lineage import Lineage, merged_lineage
from engine.lineage.origins import CommitOrigin, newest_reads
from engine.lineage.store.entities import DataLineage, LineageRecords
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.store.sql_copy import as_sql, sql_copy
from engine.lineage.truth.commit_records import CommitPlace, commit_records, origin_at
from engine.lineage.truth.corrections import GONE, CheckedTable, Corrections, Counts
from engine.lineage.truth.tables_now import ListedTables, TableNow, TablesNow
from filestore.snapshot.snapshot import CommitKind, Snapshot, SnapshotRef
from lsm.errors import CorruptDataError

logger = logging.getLogger("fluvial.lineage")

_EMPTY = SnapshotRef(0, "empty")


@contextmanager
def checked_meta(lineage: Lineage, catalog: ListedTables) -> Iterator[JdbcLineageMeta]:
    """The store, in agreement with the snapshot files of a catalog; a store of another kind is copied first.

    Tables that cannot be read are logged, and their rows stay as they are.

    Raises:
        UnavailableError: the store does not answer.
    """
    lineage.replay()
    with as_sql(lineage.meta) as meta:
        check_tables(lineage, meta, TablesNow.of(catalog), unreadable=logged_problem)
        yield meta


@contextmanager
def checked_copy(lineage: Lineage, catalog: ListedTables) -> Iterator[JdbcLineageMeta]:
    """As ``checked_meta``, on a copy that lasts for the block: store and queue stay as they are."""
    with sql_copy(lineage.meta) as meta:
        for records in lineage.queued():
            meta.store(records)
        check_tables(lineage, meta, TablesNow.of(catalog), unreadable=logged_problem)
        yield meta


def logged_problem(table: str, error: CorruptDataError) -> None:
    """Log that the lineage of a table is not compared with its snapshots."""
    logger.warning("lineage of a table cannot be checked: table=%s error=%s", table, error)


def raised_problem(table: str, error: CorruptDataError) -> None:
    """End the comparison at a table with snapshots that cannot be read."""
    raise error


def check_tables(
    lineage: Lineage,
    meta: JdbcLineageMeta,
    now: TablesNow,
    wanted: Callable[[str], bool] = lambda _: True,
    *,
    unreadable: Callable[[str, CorruptDataError], None] = raised_problem,
) -> Mapping[str, Counts]:
    """Correct a store where it differs from the snapshot files.

    Args:
        lineage: whose options say what is recorded.
        meta: the store.
        now: the tables of the catalog.
        wanted: whether the snapshots of a table are read, by name.
        unreadable: called for a table with snapshots that cannot be read; its rows stay as they are.

    Returns:
        The corrections, by the names of tables that were read or dropped.
    """
    found: dict[str, Counts] = {}
    corrections = Corrections(meta, has_snapshots=lineage.settings.has_snapshots)
    for each in corrections.checked():
        dropped = _follow_name(corrections, now, each)
        if dropped:
            found[each.table] = Counts(dropped=dropped)
    checked = {(each.table, each.table_id): each for each in corrections.checked()}
    behind = corrections.behind_checks()
    for table in now.tables:
        if not wanted(table.name):
            continue
        before = checked.get((table.name, table.table_id))
        try:
            if before is not None and before.at == _newest(table) and table.name not in behind:
                continue
            counts = _check_history(lineage, corrections, now, table, before)
        except CorruptDataError as error:
            unreadable(table.name, error)
            continue
        known = found.get(table.name, Counts())
        found[table.name] = replace(counts, dropped=counts.dropped + known.dropped)
    return found


def missing_commits(
    meta: JdbcLineageMeta, lineage: Lineage, now: TablesNow
) -> Iterator[tuple[TableNow, Snapshot, CommitOrigin]]:
    """The snapshots with an origin that the store has no row of: their lineage was deleted. Reads what it must."""
    corrections = Corrections(meta, has_snapshots=lineage.settings.has_snapshots)
    for table in now.tables:
        known = {each.snapshot_id for each in corrections.written(table.name, 0) if not each.is_stated}
        for snapshot_id in table.store.snapshots.line().ids:
            snapshot = (
                None
                if snapshot_id in known or snapshot_id < table.first_id
                else table.store.snapshots.find(snapshot_id)
            )
            origin = None if snapshot is None else origin_at(_place(lineage, table), snapshot)
            if snapshot is not None and origin is not None:
                yield table, snapshot, origin


def _follow_name(corrections: Corrections, now: TablesNow, each: CheckedTable) -> int:
    """Move or drop the rows of a table that has no longer the name and id that they say; returns dropped snapshots."""
    name = now.name_of(each.table, each.table_id)
    here = now.by_name.get(each.table)
    if now.is_unreadable(name) or (here is not None and each.table_id in ("", here.table_id)):
        return 0
    target = now.by_name.get(name)
    if target is None:
        dropped = 0 if each.is_gone else corrections.drop(each)
        if name != each.table:
            corrections.move(each, replace(each, table=name, at=GONE))
        return dropped
    corrections.move(each, CheckedTable(table=target.name, table_id=target.table_id, at=SnapshotRef(0, "")))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """The snapshots of a table behind a known one."""

    newest: SnapshotRef
    earliest_id: int  # the oldest that was read
    found: Mapping[int, Snapshot]
    continues: bool  # the known one is among those before


def _check_history(
    lineage: Lineage, corrections: Corrections, now: TablesNow, table: TableNow, before: CheckedTable | None
) -> Counts:
    history = _history(table, before)
    after_id = before.at.id if before is not None and history.continues else 0
    place = _place(lineage, table)
    true = {
        snapshot_id: _records(now, place, snapshot, origin)
        for snapshot_id, snapshot in history.found.items()
        if snapshot_id >= table.first_id and (origin := origin_at(place, snapshot)) is not None
    }
    rows = corrections.written(table.name, after_id)
    expected = {row for records in true.values() for row in records.sink_snapshots}
    false = (
        [row for row in rows if row not in expected and _is_false(row, table, history)]
        if lineage.settings.has_snapshots
        else []
    )
    known = {*rows} - {*false}
    unknown = [records for _, records in sorted(true.items()) if not known.issuperset(records.sink_snapshots)]
    is_all_compared = before is None or not before.at.id
    missing = [*true.values()] if is_all_compared or not lineage.settings.has_snapshots else unknown
    false_jobs: set[str] = set()
    if not lineage.settings.has_snapshots and before is not None and not history.continues:
        jobs = {row.job for records in true.values() for row in records.sink_tables}
        false_jobs = corrections.writing_jobs(table.name) - jobs
    at = CheckedTable(table=table.name, table_id=table.table_id, at=history.newest)
    corrections.correct(at, false, lineage.wanted(merged_lineage(missing)), false_jobs)
    return Counts(added=len(unknown), dropped=len(false))


def _history(table: TableNow, before: CheckedTable | None) -> _History:
    snapshots = table.store.snapshots
    newest = snapshots.latest()
    if newest is None:
        return _History(newest=_EMPTY, earliest_id=1, found={}, continues=False)
    found: dict[int, Snapshot] = {}
    for snapshot_id in sorted((each for each in snapshots.line().ids if each <= newest.id), reverse=True):
        snapshot = newest if snapshot_id == newest.id else snapshots.find(snapshot_id)
        if snapshot is None:
            break  # expired meanwhile, and those before it
        if before is not None and snapshot.ref == before.at:
            return _History(newest=newest.ref, earliest_id=snapshot_id, found=found, continues=True)
        found[snapshot_id] = snapshot
    return _History(newest=newest.ref, earliest_id=min(found, default=newest.id), found=found, continues=False)


def _is_false(row: DataLineage, table: TableNow, history: _History) -> bool:
    """Whether a row that no snapshot file has is wrong: others recorded it, or it cannot be known, where it is not."""
    if row.table_id not in ("", table.table_id) or row.snapshot_id < table.first_id:
        return True
    snapshot = history.found.get(row.snapshot_id)
    if snapshot is None:
        if row.snapshot_id < history.earliest_id:
            return False
        later = table.store.snapshots.find(row.snapshot_id)
        return later is None or bool(row.identity and row.identity != later.identity)
    if row.is_stated:
        return bool(row.identity and row.identity != snapshot.identity)
    is_of_other_job = not row.identity and CommitOrigin.of(snapshot) is None
    return not is_of_other_job or snapshot.commit_kind is CommitKind.COMPACT


def _records(now: TablesNow, place: CommitPlace, snapshot: Snapshot, origin: CommitOrigin) -> LineageRecords:
    """The rows of a commit under the names of today."""
    reads = []
    for each in origin.reads:
        name = now.name_of(each.table, each.table_id) if each.warehouse == place.warehouse else each.table
        target = now.by_name.get(name)
        is_moved = target is not None and each.table_id in target.ids
        reads.append(replace(each, table=name, table_id=target.table_id if target and is_moved else each.table_id))
    return commit_records(place, snapshot, replace(origin, reads=newest_reads(reads)))


def _newest(table: TableNow) -> SnapshotRef:
    newest = table.store.snapshots.latest()
    return _EMPTY if newest is None else newest.ref


def _place(lineage: Lineage, table: TableNow) -> CommitPlace:
    return CommitPlace(warehouse=lineage.settings.warehouse, table=table.name, table_id=table.table_id)
