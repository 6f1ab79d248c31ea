"""Procedures that find and fix problems of a table's files."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa

from engine.log.bucket_log import PAYLOAD_DIRECTORY, payload_path, read_payload
from engine.log.log_faults import log_faults, strange_records
from engine.log.table_log import TableLog
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import MomentText, moment_ms
from engine.runtime.times import sql_time_text
from engine.spark.writer.staged_rows import STAGING_DIRECTORY
from engine.table import Table
from engine.versions.branches import replace_main
from engine.write.ticket_queue import TURNS_DIRECTORY
from filestore.branch.branches import opened_on_main
from filestore.branch.main_replacement import interrupted_replacements
from filestore.branch.merge import interrupted_merges, merge_branch
from filestore.compact.attempts import ATTEMPT_DIRECTORY
from filestore.layout.branch_state import Work
from filestore.maintenance.history_repair import Repair, repair_history
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.row_verification import verify_rows
from filestore.maintenance.verification import Finding, verify_files
from filestore.options.table.common import DAY_MS
from filestore.refs.savepoint_files import Savepoint
from filestore.table_store import TableStore
from filestore.tag.savepoints import renew_tags
from filestore.types.data_types import parse_columns
from logstore.log.marker import read_tail
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

_LEAST_AGE_MS: Final = 3_600_000
_PRIVATE_DIRECTORIES: Final = (STAGING_DIRECTORY, PAYLOAD_DIRECTORY, ATTEMPT_DIRECTORY, TURNS_DIRECTORY)

_FILES: Final = parse_columns("path string, size_bytes int64, modified string")
_FINDINGS: Final = parse_columns("check string, subject string, problem string")
_REPAIRS: Final = parse_columns("action string, subject string, detail string")
_EARLIEST: Final = parse_columns("previous_snapshot_id int64?, current_snapshot_id int64")


@procedure(_FILES)
def remove_orphan_files(
    table: Table, older_than: MomentText | None = None, dry_run: bool = False, progress: Progress = silent
) -> pa.Table:
    """Delete files that no snapshot, tag or branch refers to: leftovers of dead writers.

    Files of a batch that is in the log and not yet in the table are kept, whatever their age.

    Args:
        table: the table.
        older_than: only files last changed before this time, as "2024-01-31 12:30:00" in UTC. Default: a day ago.
            Running writers would lose older files.
        dry_run: only show what would be deleted.
        progress: called with the progress.

    Returns:
        One row for each file, by path.

    Raises:
        InvalidInputError: the time is less than an hour ago.
        UnavailableError: the brokers do not answer, so uncommitted files are unknown; nothing is deleted.
        CorruptDataError: a snapshot or tag refers to missing files, or the topic has records of another table, so used
            files are unknown; nothing is deleted.
    """
    store = table.store
    now_ms = store.clock.now_ms()
    before_ms = now_ms - DAY_MS if older_than is None else moment_ms("older_than", older_than)
    if before_ms > now_ms - _LEAST_AGE_MS:
        raise InvalidInputError(
            f"files so young may belong to running writers: table={table.name} older_than={older_than} "
            "fix=give a time more than an hour ago"
        )
    log = table.log
    orphans = find_orphans(
        store,
        before_ms=before_ms,
        private_directories=[f"{store.paths.root}/{name}" for name in _PRIVATE_DIRECTORIES],
        spared=lambda: () if log is None else _to_be_committed(store, log),
    )
    if not dry_run:
        delete_orphans(store, orphans, progress=progress)
    return rows_table(
        _FILES,
        [
            {"path": each.path, "size_bytes": each.size_bytes, "modified": sql_time_text(each.modified_ms)}
            for each in orphans
        ],
    )


@procedure(_FINDINGS, fails_with_rows=True)
def verify(table: Table, rows: bool = False, progress: Progress = silent) -> pa.Table:
    """Cross-check files, manifests, snapshots, hints and the log; changes nothing, and does not stop at what is broken.

    Args:
        table: the table.
        rows: also read every row of every live file, with its checksums, and compare counts, keys, their order and
            value ranges with the manifests, and of the log that no record of another program is among the table's.
        progress: called with the progress.

    Returns:
        One row for each problem; none if there are none.
    """
    found = list(verify_files(table.store, progress=progress))
    if rows:
        found += verify_rows(table.store, progress=progress)
    if table.log is not None:
        found += _verify_log(table.store, table.log, rows=rows)
    return rows_table(
        _FINDINGS, [{"check": each.check, "subject": each.subject, "problem": each.problem} for each in found]
    )


@procedure(_REPAIRS)
def repair(table: Table, dry_run: bool = False) -> pa.Table:
    """Repair the history of a branch: hints, forks, and a rollback whose process died.

    A fork is the snapshot of a writer that was paused while the snapshots before it expired or were rolled back. It
    becomes a tag when its files are there, and it is not of a former table of this name; tags and savepoints without
    files that were created behind the end of their snapshot, branch or table go. No process may be paused in a commit
    to the branch. A replacement of main that was interrupted is completed first, or taken back when main has a
    savepoint by now; none may be running. A rollback that had begun to remove is completed, and one that had not is
    taken back; none may be running. So is a merge of a branch, which is taken back where it would be refused now. An
    expiry that was interrupted is completed. A savepoint without its tag, by which other engines keep its files, gets
    it again.

    Args:
        table: the table, on the branch.
        dry_run: change nothing, only show what would be done.

    Returns:
        One row for each thing that was done; none if the history is whole.

    Raises:
        CorruptDataError: a snapshot cannot be decoded; see verify.
        UnavailableError: a replacement of main was interrupted, and the brokers of main's log do not answer.
    """
    store = table.store
    done = [_completed(store, work, branch, dry_run=dry_run) for work, branch in interrupted_replacements(store)]
    if store.paths.branch == store.main_branch:
        store = opened_on_main(store)
    done += repair_history(store, dry_run=dry_run)
    done += [_merged(store, branch, dry_run=dry_run) for branch in interrupted_merges(store)]
    done += [_tagged(savepoint) for savepoint in renew_tags(store, dry_run=dry_run)]
    return rows_table(
        _REPAIRS, [{"action": each.action, "subject": each.subject, "detail": each.detail} for each in done]
    )


def _tagged(savepoint: Savepoint) -> Repair:
    """A savepoint has its tag again."""
    detail = f"tag={savepoint.tag_name} snapshot={savepoint.saved_snapshot_id}"
    return Repair(action="create tag of savepoint", subject=f"savepoint {savepoint.id}", detail=detail)


def _completed(store: TableStore, work: Work, branch: str, *, dry_run: bool) -> Repair:
    """Complete a replacement of main."""
    detail = f"operation={work}"
    if not dry_run:
        try:
            done = replace_main(store, branch)
            detail = f"{detail} main={done.main} dropped={done.dropped}"
        except (InvalidInputError, ConflictError) as error:
            detail = f"{detail} taken_back='{error}'"
    return Repair(action="complete replacement of main", subject=f"branch {branch}", detail=detail)


def _merged(store: TableStore, branch: str, *, dry_run: bool) -> Repair:
    """Complete a merge, or take back what it left."""
    detail = ""
    if not dry_run:
        try:
            done = merge_branch(store, branch)
            detail = f"snapshot={None if done.snapshot is None else done.snapshot.id}"
        except (InvalidInputError, ConflictError) as error:
            detail = f"taken_back='{error}'"
    return Repair(action="complete merge", subject=f"branch {branch}", detail=detail)


@procedure(_EARLIEST)
def repair_earliest_snapshot(table: Table, snapshot_id: int) -> pa.Table:
    """Set the oldest snapshot when its hint is wrong; older ones are deleted by the next expiry.

    Args:
        table: the table of the hint.
        snapshot_id: the oldest readable snapshot.

    Returns:
        One row.

    Raises:
        InvalidInputError: the snapshot, or one after it, is missing.
    """
    snapshots = table.store.snapshots
    ids = [each for each in snapshots.ids() if each >= snapshot_id]
    if not ids or ids != list(range(snapshot_id, ids[-1] + 1)):
        raise InvalidInputError(
            f"not the oldest of a whole history: table={table.name} snapshot_id={snapshot_id} there={ids[:10]}"
        )
    previous = snapshots.earliest_id()
    snapshots.release_claims(snapshot_id)
    snapshots.claim_up_to(snapshot_id)
    return rows_table(_EARLIEST, [{"previous_snapshot_id": previous, "current_snapshot_id": snapshot_id}])


def _to_be_committed(store: TableStore, log: TableLog) -> Collection[str]:
    """The files of the last batch of each bucket's log, committed or not."""
    paths: set[str] = set()
    for bucket in range(log.bucket_count):
        marker = read_tail(log.properties, topic=log.topic, bucket=bucket, table_id=log.table_id).marker
        if marker is None or not marker.is_final:
            continue
        if marker.is_pointer:
            with suppress(ValueError):
                paths.add(payload_path(store, marker))
        try:
            messages = read_payload(store, marker).messages
        except CorruptDataError:
            known = store.log_offsets_at(store.snapshots.latest()) or {}
            if marker.end_offset > known.get(bucket, 0):
                raise
            continue  # the table has the batch and no longer needs its payload
        for message in messages:
            for file in (*message.new_files, *message.compact_after, *message.changelog_files):
                paths.update(store.file_paths(message.partition, message.bucket, file))
    return paths


def _verify_log(store: TableStore, log: TableLog, *, rows: bool) -> Iterator[Finding]:
    try:
        faults = list(log_faults(store, log))
        if rows and not any(each.subject == log.topic for each in faults):  # else it is not the table's
            faults += strange_records(store, log)
        for each in faults:
            yield Finding(check="log", subject=each.subject, problem=each.problem)
    except InvalidInputError as error:
        yield Finding(check="log", subject=log.topic, problem=str(error))
