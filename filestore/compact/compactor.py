"""Carrying out compactions: what a strategy picked, as tasks that may run anywhere, and the files they leave.

A task reads the files it names and nothing else, so it can be sent to another machine. Whether its result becomes
visible is decided when it is committed: if somebody else took one of its inputs meanwhile, the result is thrown away.
Source: paimon-format.md sections 6.7 and 6.8; FL-162, FL-166 to FL-177.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.compact.append import concatenate, pick_appended
from filestore.compact.changelog import CompactionChangelog, files_to_look_up, known_level
from filestore.compact.merge_tree import merge_files
from filestore.compact.old_rows import OldRows, find_old_rows
from filestore.compact.postpone import distribute
from filestore.compact.strategy import compaction_strategy
from filestore.compact.task import CompactionTask
from filestore.index.deletion_vector_changes import change_index, deleted_row_counts
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.options.table_options import POSTPONE_BUCKET, TableOptions
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.row_expiry import RowExpiry, may_expire
from filestore.schema.merge_engine import resets_on_delete
from filestore.table_store import TableStore
from lsm.compaction.compaction import CompactionReason, CompactionUnit, full_compaction, merge_cost
from lsm.errors import ConflictError, OutcomeUnknownError, UnavailableError
from lsm.levels import Levels, SortedRun

_MOST_ATTEMPTS: Final = 3


def pick_tasks(
    store: TableStore,
    live: LiveFiles,
    *,
    keys: Iterable[BucketKey] | None = None,
    full: bool = False,
    rewrites_all: bool = False,
) -> list[CompactionTask]:
    """What is worth compacting; first the buckets that cost readers most, so that whoever stops early did the best.

    Args:
        store: whose.
        live: its files.
        keys: buckets to look at, for example those that changed; None is all.
        full: everything into one run, whether it is worth it or not.
        rewrites_all: with ``full``, also what is one run already.
    """
    store = store.stored
    found = [
        task
        for key in (live.buckets() if keys is None else keys)
        for task in _pick(store, live, key, full=full, rewrites_all=rewrites_all)
    ]
    return sorted(found, key=lambda task: task.read_cost, reverse=True)


def run_task(store: TableStore, task: CompactionTask) -> CommitMessage:
    """Write the files that replace those of a task; nothing is left behind when it fails."""
    written: list[DataFileMeta] = []
    store = store.stored
    store = store.with_columns_of((*task.files, *task.lookup_files))
    changelog = _changelog(store, task)
    try:
        deleted = read_deletion_vectors(store, vectors_of((*task.files, *task.lookup_files), task.indexes))
        old = OldRows()
        if task.deletes_old_rows:
            old = find_old_rows(store, task, deleted, emits_changes=changelog is not None)
        if store.has_key:
            before, after = merge_files(store, task, written, changelog, deleted=deleted, old=old)
        else:
            before, after = concatenate(store, task, written, deleted=deleted)
        changes = changelog.close() if changelog else []
        gone = {file.file_name for file in before} - {file.file_name for file in after}
        index = change_index(store, task.partition, task.bucket, task.indexes, removed=gone, positions=old.marks)
    except BaseException:
        discard(store, [_message(task, (), written)])
        if changelog:
            changelog.abort()
        raise
    return replace(
        _message(task, before, after),
        changelog_files=tuple(changes),
        index_before=index.before,
        index_after=index.after,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """How much one run of ``compact_buckets`` does at most."""

    buckets: int | None = None
    time_ms: int | None = None  # after it no further bucket is begun; one is always done


UNLIMITED: Final = CompactionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """What one run of ``compact_buckets`` did."""

    messages: tuple[CommitMessage, ...] = ()  # one for each bucket that changed
    committed: CommitResult | None = None  # None: nothing was worth it


def compact_table(store: TableStore, *, full: bool = False) -> CommitResult | None:
    """Compact what is worth it and commit; None when nothing was. Raises: as ``compact_buckets``."""
    return compact_buckets(store, full=full).committed


def waits_for_compaction(store: TableStore) -> bool:
    """Whether nobody sees new rows before a compaction, which their writers therefore do: with deletion vectors."""
    options = store.options
    return (
        store.has_key
        and options.deletion_vectors_enabled
        and not options.write_only
        and options.bucket != POSTPONE_BUCKET  # whose rows wait for a job of their own
        and not options.value("deletion-vectors.merge-on-read")
    )


def make_visible(store: TableStore, messages: Sequence[CommitMessage]) -> None:
    """Compact the buckets of rows that were just committed, if nobody sees them before.

    When others are in the way, or it fails, the next compaction makes them visible: the rows are in the table.
    """
    if waits_for_compaction(store):
        keys = {BucketKey(message.partition, message.bucket) for message in messages}
        with suppress(ConflictError, UnavailableError, OutcomeUnknownError):
            compact_buckets(store, keep=keys.__contains__)


def compact_buckets(
    store: TableStore,
    *,
    full: bool = False,
    keep: Callable[[BucketKey], bool] = lambda _: True,
    limits: CompactionLimits = UNLIMITED,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> CompactionOutcome:
    """Compact what is worth it among some buckets, and commit it. Postponed rows get their buckets first.

    Args:
        store: to compact.
        full: everything into one run, whether it is worth it or not; with ``compaction.force-rewrite-all-files``
            every file is written anew.
        keep: whether a bucket is to be looked at.
        limits: how much to do; what costs readers most comes first.
        progress: told how many buckets are done, of how many.

    Raises:
        ConflictError: others kept changing the same files: run it again. Nothing of it is visible.
        UnavailableError: nothing of it is visible either.
        OutcomeUnknownError: it may be visible; its files stay.
    """
    distribution = distribute(store, keep=keep) if store.options.bucket == POSTPONE_BUCKET else None
    outcome = _compact(store, full=full, keep=keep, limits=limits, progress=progress)
    if distribution is None:
        return outcome
    return CompactionOutcome(
        messages=(*distribution.messages, *outcome.messages), committed=outcome.committed or distribution.committed
    )


def _compact(
    store: TableStore,
    *,
    full: bool,
    keep: Callable[[BucketKey], bool],
    limits: CompactionLimits,
    progress: Callable[[int, int], None],
) -> CompactionOutcome:
    live = LiveFiles.latest(store)
    rewrites_all = full and store.options.value("compaction.force-rewrite-all-files")
    stop_ms = None if limits.time_ms is None else store.clock.now_ms() + limits.time_ms
    for attempt in range(_MOST_ATTEMPTS):
        keys = [key for key in live.buckets() if keep(key)]
        tasks = pick_tasks(store, live, keys=keys, full=full, rewrites_all=rewrites_all)[: limits.buckets]
        messages: list[CommitMessage] = []
        try:
            for done, task in enumerate(tasks):
                if messages and stop_ms is not None and store.clock.now_ms() >= stop_ms:
                    break
                progress(done, len(tasks))
                messages.append(run_task(store, task))
            messages = [message for message in messages if not message.is_empty]
            if not messages:
                return CompactionOutcome()
            commit = TableCommit(store, store.new_commit_user(), history_start=live.snapshot_id)
            committed = commit.commit_compaction(messages, base_snapshot_id=live.snapshot_id)
        except OutcomeUnknownError:
            raise
        except ConflictError:
            discard(store, messages)
            if attempt + 1 == _MOST_ATTEMPTS:
                raise
            live.advance()
        except BaseException:
            discard(store, messages)
            raise
        else:
            progress(len(tasks), len(tasks))
            return CompactionOutcome(messages=tuple(messages), committed=committed)
    raise AssertionError("the last attempt returns or raises")


def _pick(
    store: TableStore, live: LiveFiles, key: BucketKey, *, full: bool, rewrites_all: bool
) -> list[CompactionTask]:
    files = live.files(key)
    if not files or key.bucket < 0:
        return []
    if not store.has_key:
        return pick_appended(store, live, key, full=full, rewrites_all=rewrites_all)
    levels = live.levels(key)
    indexes = live.indexes(key)
    moment_ms = None if RowExpiry.of(store.schema, store.options) is None else store.clock.now_ms()
    unit = _pick_unit(store, levels, full=full, rewrites_all=rewrites_all)
    if unit is None and full and may_expire(store, files, moment_ms):
        unit = CompactionUnit(runs=levels.runs, output_level=levels.top_level, reason=CompactionReason.FORCED)
    unit = unit or _marked_unit(store.options, levels, indexes, full=full)
    if unit is None:
        return []
    by_name = {file.file_name: file for file in files}
    known = known_level(store.options, unit, levels)
    # Readers of such a table do not merge: no older row stays without a mark, and no delete above level 0.
    marks = store.options.deletion_vectors_enabled
    drops_deletes = marks or unit.drops_deletes(levels)
    look_up_from = 1 if marks else known
    looked_up = () if look_up_from is None else files_to_look_up(unit, levels, look_up_from)
    task = CompactionTask(
        partition=key.partition,
        bucket=key.bucket,
        total_buckets=live.total_buckets(key) or store.options.bucket,
        files=tuple(by_name[file.file_name] for file in unit.files),
        output_level=unit.output_level,
        drops_deletes=drops_deletes,
        cleans_deletes=marks or unit.output_level == levels.top_level,
        reason=unit.reason,
        known_level=known,
        lookup_files=tuple(by_name[file.file_name] for file in looked_up),
        rewrites_all=rewrites_all,
        read_cost=merge_cost(levels),
        indexes=indexes,
        deletes_old_rows=marks,
        expiry_moment_ms=moment_ms if drops_deletes else None,
    )
    return [task]


def _pick_unit(store: TableStore, levels: Levels, *, full: bool, rewrites_all: bool) -> CompactionUnit | None:
    if full:
        return full_compaction(levels, even_if_done=rewrites_all)
    if store.options.merge_engine == "first-row":
        # Readers of such a table take every row above level 0 for the first of its key, so all levels are merged at
        # once.
        return full_compaction(levels) if levels.runs[0].level == 0 else None
    unit = compaction_strategy(store.options, local_ms=store.clock.local_ms()).pick(levels)
    if unit is not None and resets_on_delete(store.options) and not unit.drops_deletes(levels):
        has_deletes = any(run.delete_count for run in unit.runs)
        return full_compaction(levels) if has_deletes else unit
    return unit


def _marked_unit(
    options: TableOptions, levels: Levels, indexes: Sequence[IndexManifestEntry], *, full: bool
) -> CompactionUnit | None:
    """Files of one level of which too many rows are marked as deleted; with ``full`` any."""
    threshold = 0.0 if full else options.value("compaction.delete-ratio-threshold")
    counts = deleted_row_counts(indexes)
    for run in levels.runs if counts else ():
        files = tuple(file for file in run.files if counts.get(file.file_name, 0) > threshold * file.row_count)
        if files and run.level > 0:
            marked = SortedRun(level=run.level, files=files)
            return CompactionUnit(runs=(marked,), output_level=run.level, reason=CompactionReason.DELETE_RATIO)
    return None


def _message(task: CompactionTask, before: Iterable[DataFileMeta], after: Iterable[DataFileMeta]) -> CommitMessage:
    return CommitMessage(
        partition=task.partition,
        bucket=task.bucket,
        total_buckets=task.total_buckets,
        compact_before=tuple(before),
        compact_after=tuple(after),
    )


def _changelog(store: TableStore, task: CompactionTask) -> CompactionChangelog | None:
    if task.known_level is None:
        return None
    return CompactionChangelog(
        store,
        partition=task.partition,
        bucket=task.bucket,
        level=task.output_level,
        known_level=task.known_level,
        lookup_files=() if task.deletes_old_rows else task.lookup_files,  # else old rows take part in the merge
    )
