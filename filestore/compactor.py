"""Carrying out compactions: what a strategy picked, as tasks that may run anywhere, and the files they leave.

A task reads the files it names and nothing else, so it can be sent to another machine. Whether its result becomes
visible is decided when it is committed: if somebody else took one of its inputs meanwhile, the result is thrown away.
Source: paimon-format.md sections 6.7 and 6.8; FL-162, FL-166 to FL-177.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from filestore.append_compaction import concatenate, pick_appended
from filestore.bucket_writer import write_files
from filestore.commit_message import CommitMessage
from filestore.compaction_changelog import CompactionChangelog, files_to_look_up, known_level
from filestore.compaction_output import is_small, rolling_writer
from filestore.compaction_strategy import compaction_strategy
from filestore.compaction_task import CompactionTask
from filestore.live_files import BucketKey, LiveFiles
from filestore.manifests import DataFileMeta
from filestore.options import POSTPONED_BUCKET
from filestore.postponed import distribute
from filestore.split_read import BucketFiles
from filestore.table_commit import CommitResult, TableCommit, discard
from filestore.table_store import TableStore
from lsm.compaction import CompactionUnit, full_compaction, merge_cost
from lsm.errors import ConflictError, OutcomeUnknownError
from lsm.levels import Levels, SortedRun

_MOST_ATTEMPTS: Final = 3


def pick_tasks(
    table: TableStore,
    live: LiveFiles,
    *,
    keys: Iterable[BucketKey] | None = None,
    full: bool = False,
    rewrites_all: bool = False,
) -> list[CompactionTask]:
    """What is worth compacting; first the buckets that cost readers most, so that whoever stops early did the best.

    Args:
        table: whose.
        live: its files.
        keys: buckets to look at, for example those that changed; None is all.
        full: everything into one run, whether it is worth it or not.
        rewrites_all: with ``full``, also what is one run already.
    """
    table = table.stored
    found = (
        _pick(table, live, key, full=full, rewrites_all=rewrites_all)
        for key in (live.buckets() if keys is None else keys)
    )
    return sorted((task for task in found if task is not None), key=lambda task: task.read_cost, reverse=True)


def run_task(table: TableStore, task: CompactionTask) -> CommitMessage:
    """Write the files that replace those of a task; nothing is left behind when it fails."""
    written: list[DataFileMeta] = []
    table = table.stored
    table = _with_columns_of(table, (*task.files, *task.lookup_files))
    changelog = _changelog(table, task)
    try:
        if table.has_key:
            before, after = _merge(table, task, written, changelog)
        else:
            before, after = concatenate(table, task, written)
        changes = changelog.close() if changelog else []
    except BaseException:
        discard(table, [_message(task, (), written)])
        if changelog:
            changelog.abort()
        raise
    return replace(_message(task, before, after), changelog_files=tuple(changes))


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


def compact_table(table: TableStore, *, full: bool = False) -> CommitResult | None:
    """Compact what is worth it and commit; None when nothing was. Raises: as ``compact_buckets``."""
    return compact_buckets(table, full=full).committed


def compact_buckets(
    table: TableStore,
    *,
    full: bool = False,
    keep: Callable[[BucketKey], bool] = lambda _: True,
    limits: CompactionLimits = UNLIMITED,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> CompactionOutcome:
    """Compact what is worth it among some buckets, and commit it. Postponed rows get their buckets first.

    Args:
        table: to compact.
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
    distribution = distribute(table, keep=keep) if table.options.bucket == POSTPONED_BUCKET else None
    outcome = _compact(table, full=full, keep=keep, limits=limits, progress=progress)
    if distribution is None:
        return outcome
    return CompactionOutcome(
        messages=(*distribution.messages, *outcome.messages), committed=outcome.committed or distribution.committed
    )


def _compact(
    table: TableStore,
    *,
    full: bool,
    keep: Callable[[BucketKey], bool],
    limits: CompactionLimits,
    progress: Callable[[int, int], None],
) -> CompactionOutcome:
    live = LiveFiles.latest(table)
    rewrites_all = full and table.options.value("compaction.force-rewrite-all-files")
    stop_ms = None if limits.time_ms is None else table.clock.now_ms() + limits.time_ms
    for attempt in range(_MOST_ATTEMPTS):
        keys = [key for key in live.buckets() if keep(key)]
        tasks = pick_tasks(table, live, keys=keys, full=full, rewrites_all=rewrites_all)[: limits.buckets]
        messages: list[CommitMessage] = []
        try:
            for done, task in enumerate(tasks):
                if messages and stop_ms is not None and table.clock.now_ms() >= stop_ms:
                    break
                progress(done, len(tasks))
                messages.append(run_task(table, task))
            messages = [message for message in messages if not message.is_empty]
            if not messages:
                return CompactionOutcome()
            commit = TableCommit(table, table.names.uuid(), history_start=live.snapshot_id)
            committed = commit.commit_compaction(messages, base_snapshot_id=live.snapshot_id)
        except OutcomeUnknownError:
            raise
        except ConflictError:
            discard(table, messages)
            if attempt + 1 == _MOST_ATTEMPTS:
                raise
            live.advance()
        except BaseException:
            discard(table, messages)
            raise
        else:
            progress(len(tasks), len(tasks))
            return CompactionOutcome(messages=tuple(messages), committed=committed)
    raise AssertionError("the last attempt returns or raises")


def _pick(
    table: TableStore, live: LiveFiles, key: BucketKey, *, full: bool, rewrites_all: bool
) -> CompactionTask | None:
    files = live.files(key)
    if not files or key.bucket < 0:
        return None
    if not table.has_key:
        return pick_appended(table, live, key, full=full, rewrites_all=rewrites_all)
    levels = live.levels(key)
    unit = _pick_unit(table, levels, full=full, rewrites_all=rewrites_all)
    if unit is None:
        return None
    by_name = {file.file_name: file for file in files}
    known = known_level(table.options, unit, levels)
    looked_up = () if known is None else files_to_look_up(unit, levels, known)
    return CompactionTask(
        partition=key.partition,
        bucket=key.bucket,
        total_buckets=live.total_buckets(key) or table.options.bucket,
        files=tuple(by_name[file.file_name] for file in unit.files),
        output_level=unit.output_level,
        drops_deletes=unit.drops_deletes(levels),
        cleans_deletes=unit.output_level == levels.top_level,
        reason=unit.reason,
        known_level=known,
        lookup_files=tuple(by_name[file.file_name] for file in looked_up),
        rewrites_all=rewrites_all,
        read_cost=merge_cost(levels),
    )


def _pick_unit(table: TableStore, levels: Levels, *, full: bool, rewrites_all: bool) -> CompactionUnit | None:
    if full:
        return full_compaction(levels, even_if_done=rewrites_all)
    if table.options.merge_engine == "first-row":
        # Readers of such a table take every row above level 0 for the first of its key, so all levels are merged at
        # once.
        return full_compaction(levels) if levels.runs[0].level == 0 else None
    return compaction_strategy(table.options, local_ms=table.clock.local_ms()).pick(levels)


def _message(task: CompactionTask, before: Iterable[DataFileMeta], after: Iterable[DataFileMeta]) -> CommitMessage:
    return CommitMessage(
        partition=task.partition,
        bucket=task.bucket,
        total_buckets=task.total_buckets,
        compact_before=tuple(before),
        compact_after=tuple(after),
    )


def _changelog(table: TableStore, task: CompactionTask) -> CompactionChangelog | None:
    if task.known_level is None:
        return None
    return CompactionChangelog(
        table,
        partition=task.partition,
        bucket=task.bucket,
        level=task.output_level,
        known_level=task.known_level,
        lookup_files=task.lookup_files,
    )


def _with_columns_of(table: TableStore, files: Sequence[DataFileMeta]) -> TableStore:
    """The table as it is at the newest schema of some files: merged at an older one they would lose new columns."""
    newest = max(file.schema_id for file in files)
    return table if newest <= table.schema.id else table.at_version(newest)


def _merge(
    table: TableStore, task: CompactionTask, written: list[DataFileMeta], changelog: CompactionChangelog | None
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """Merge sorted files.

    A file that nothing overlaps only moves to its new level, if it is worth a file of its own.
    """
    files = BucketFiles(table=table, partition=task.partition, bucket=task.bucket, files=task.files)
    by_name = {file.file_name: file for file in task.files}
    before: list[DataFileMeta] = []
    after: list[DataFileMeta] = []
    pending: list[list[SortedRun]] = []

    def merged(runs: list[SortedRun]) -> Iterator[pa.Table]:
        recording = changelog.recording if changelog else None
        return files.merged(runs, table.schema.column_names, drop_deletes=task.drops_deletes, recording=recording)

    def settle() -> None:
        inputs = [by_name[each.file_name] for runs in pending for run in runs for each in run.files]
        if len(inputs) == 1 and not _must_rewrite(inputs[0], task):
            upgrade(pending[0])
        elif inputs:
            outputs = write_files(rolling_writer(table, task), chain.from_iterable(map(merged, pending)))
            written.extend(outputs)
            before.extend(inputs)
            after.extend(outputs)
        pending.clear()

    def upgrade(runs: list[SortedRun]) -> None:
        file = by_name[runs[0].files[0].file_name]
        if changelog and changelog.tells_of(file):
            changelog.read_through(merged(runs))
        if file.level != task.output_level:
            before.append(file)
            after.append(replace(file, level=task.output_level))

    for runs in files.sections():
        file = by_name[runs[0].files[0].file_name]
        if len(runs) == 1 and not is_small(file, table.options) and not _must_rewrite(file, task):
            settle()
            upgrade(runs)
        else:
            pending.append(runs)
    settle()
    return before, after


def _must_rewrite(file: DataFileMeta, task: CompactionTask) -> bool:
    """Whether everything is written anew, or the file has deletes that must not stay on the last level."""
    return task.rewrites_all or (task.cleans_deletes and file.delete_row_count != 0)
