"""Carrying out compactions: what a strategy picked, as tasks that may run anywhere, and the files they leave.

A task reads the files that it names and nothing else, so it can be sent to another machine. Whether its result becomes
visible is decided when it is committed: if another writer removed one of its inputs meanwhile, the result is deleted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult, replace_compacted
from filestore.compact.append import check_may_order, concatenate, pick_appended
from filestore.compact.attempts import attempt, worth_trying
from filestore.compact.changelog import CompactionChangelog, files_to_look_up, known_level
from filestore.compact.old_rows import OldRows, find_old_rows
from filestore.compact.postpone import distribute
from filestore.compact.row_order import RowOrder
from filestore.compact.strategy import compaction_strategy
from filestore.compact.task import CompactionTask, TaskFiles, is_small
from filestore.index.deletion_vector_changes import change_index, deleted_row_counts
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, read_deletion_vectors
from filestore.index.index_manifest import index_files
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.options.table_options import TableOptions
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.scan.row_expiry import RowExpiry, may_expire, not_expired
from filestore.scan.snapshot_files import live_files_of_partitions
from filestore.schema.merge_engine import has_whole_rows, newest_row_is_whole, resets_on_delete
from filestore.snapshot.lost_files import MissingFileError, lost_file
from filestore.table_store import TableStore
from lsm.compaction.compaction import CompactionReason, CompactionUnit, full_compaction, merge_cost
from lsm.levels import Levels, SortedRun
from lsm.retry import retrying
from lsm.undo import undoing

# ---- Compacting tables with a key: sorted files are merged, and a file that nothing overlaps only moves to its new
# level
# Source: Paimon ``MergeTreeCompactTask``.


MergeSection = list[SortedRun]
"""Runs that overlap each other, and no run of another section."""


class LevelMerge:
    """One task on sorted files, section by section in key order.

    A section of one file that is large enough only moves to its new level. All others wait for their neighbours, so
    that they are rewritten together into files of full size.
    """

    def __init__(
        self, files: TaskFiles, changelog: CompactionChangelog | None, *, deleted: Mapping[str, Positions], old: OldRows
    ) -> None:
        """Prepare to merge.

        Args:
            files: of the task.
            changelog: gets what changes; None: there is none.
            deleted: rows of the task's files that are in deletion vectors.
            old: rows of other files that are merged with them.
        """
        self._store = files.store
        self._task = files.task
        self._files = files
        self._changelog = changelog
        self._deleted = deleted
        self._inputs = BucketFiles(
            table=files.store,
            partition=files.task.partition,
            bucket=files.task.bucket,
            files=(*files.task.files, *old.merged),
            deleted=deleted,
            chosen={file.file_name: old.positions[file.file_name] for file in old.merged},
        )
        self._by_name = {file.file_name: file for file in self._inputs.files}
        self._waiting: list[MergeSection] = []

    def run(self) -> None:
        """Merge everything; the files that are removed and added are then in ``TaskFiles``."""
        for section in self._inputs.sections():
            file = self._first_file(section)
            if len(section) == 1 and not is_small(file, self._store.options) and not self._must_rewrite(file):
                self._rewrite_waiting()
                self._move(section)
            else:
                self._waiting.append(section)
        self._rewrite_waiting()

    def _rewrite_waiting(self) -> None:
        sections, self._waiting = self._waiting, []
        inputs = [self._by_name[each.file_name] for section in sections for run in section for each in run.files]
        if len(inputs) == 1 and not self._must_rewrite(inputs[0]):
            self._move(sections[0])
        elif inputs:
            outputs = self._files.write(chain.from_iterable(map(self._merged, sections)))
            self._files.before += [file for file in inputs if file.file_name not in self._inputs.chosen]
            self._files.after += outputs

    def _move(self, section: MergeSection) -> None:
        """Take the only file of a section to the output level as it is."""
        file = self._first_file(section)
        if self._changelog and self._changelog.covers(file):
            self._changelog.read_through(self._merged(section))
        if file.level != self._task.output_level:
            self._files.before.append(file)
            self._files.after.append(replace(file, level=self._task.output_level))

    def _merged(self, section: MergeSection) -> Iterator[pa.Table]:
        """The rows of a section; the changelog has no rows that are too old either."""
        rows = self._inputs.merged(
            section,
            self._store.schema.column_names,
            drop_deletes=self._task.drops_deletes,
            instead=self._changelog.recording if self._changelog else None,
        )
        return (not_expired(self._store, each, self._task.expiry_moment_ms) for each in rows)

    def _must_rewrite(self, file: DataFileMeta) -> bool:
        """Whether all files are rewritten, or this one has deletes, old rows or deleted rows that must not stay."""
        task = self._task
        if task.rewrites_all or (task.cleans_deletes and file.delete_row_count != 0):
            return True
        if may_expire(self._store, [file], task.expiry_moment_ms):
            return True
        threshold = self._store.options.compaction_delete_ratio_threshold
        if task.reason in (CompactionReason.FORCED, CompactionReason.DELETE_RATIO):
            threshold = 0.0
        return bool(len(self._deleted.get(file.file_name, NO_POSITIONS)) > threshold * file.row_count)

    def _first_file(self, section: MergeSection) -> DataFileMeta:
        return self._by_name[section[0].files[0].file_name]


# ---- Carrying out compactions: what a strategy picked, as tasks that may run anywhere, and the files they leave


_MOST_ATTEMPTS: Final = 3


def pick_tasks(
    store: TableStore,
    live: LiveFiles,
    *,
    keys: Iterable[BucketKey] | None = None,
    full: bool = False,
    rewrites_all: bool = False,
    insists: bool = False,
    order: RowOrder | None = None,
) -> list[CompactionTask]:
    """The tasks that pay; the buckets that cost readers most come first, for callers that stop early.

    Args:
        store: to compact.
        live: its files.
        keys: buckets to look at, for example those that changed; None is all.
        full: everything into one run, whether it is worth it or not.
        rewrites_all: with ``full``, also what is one run already.
        insists: also files on which attempts keep dying, see ``attempts``.
        order: all rows of each bucket get it.

    Raises:
        InvalidInputError: rows of this table cannot get another order.
    """
    if order is not None:
        check_may_order(store)
    found = [
        task
        for key in (live.buckets() if keys is None else keys)
        for task in _pick(store, live, key, full=full, rewrites_all=rewrites_all, order=order)
    ]
    return sorted(worth_trying(store, found, insists=insists), key=lambda task: task.read_cost, reverse=True)


def run_task(store: TableStore, task: CompactionTask) -> CommitMessage:
    """Write the files that replace those of a task; nothing but a note is left behind when its process is killed."""
    with attempt(store, task) as allowed:
        return _run_task(allowed, task)


def _run_task(store: TableStore, task: CompactionTask) -> CommitMessage:
    """Run a task without a note; a failure leaves no file."""
    store = store.with_columns_of((*task.files, *task.lookup_files))
    changelog = _changelog(store, task)
    rewrite = TaskFiles(store, task)

    def undo() -> None:
        discard(store, [_message(task, (), rewrite.written)])
        if changelog:
            changelog.abort()

    with undoing(undo), _explained(store, task):
        deleted = read_deletion_vectors(store, vectors_of((*task.files, *task.lookup_files), task.indexes))
        old = OldRows()
        if task.merges_old_rows:
            old = find_old_rows(store, task, deleted, emits_changes=changelog is not None)
        if store.has_key:
            LevelMerge(rewrite, changelog, deleted=deleted, old=old).run()
        else:
            concatenate(rewrite, deleted=deleted)
        changes = changelog.close() if changelog else []
        gone = {file.file_name for file in rewrite.before} - {file.file_name for file in rewrite.after}
        positions = old.positions if task.deletes_old_rows else {}
        index = change_index(store, task.partition, task.bucket, task.indexes, removed=gone, positions=positions)
    return replace(
        _message(task, rewrite.before, rewrite.after),
        changelog_files=tuple(changes),
        index_before=index.before,
        index_after=index.after,
    )


@contextmanager
def _explained(store: TableStore, task: CompactionTask) -> Iterator[None]:
    """A missing file is lost if the newest snapshot still has it; otherwise another compaction was faster."""
    try:
        yield
    except MissingFileError as error:
        latest, path = store.snapshots.latest(), str(error.filename)
        live = live_files_of_partitions(store, latest, [task.partition])
        names = {name for entry in live for name in (entry.file.file_name, *entry.file.extra_files)}
        names |= {entry.file_name for entry in index_files(store, latest)}
        if latest is None or error.role is None or path.rpartition("/")[2] not in names:
            raise
        raise lost_file(path, error.role, table=store.name, needed_by=f"snapshot {latest.id}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """How much one run of ``compact_buckets`` does at most."""

    buckets: int | None = None
    time_ms: int | None = None  # after it no further bucket is begun; one is always compacted


UNLIMITED: Final = CompactionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOutcome:
    """The result of one run of ``compact_buckets``."""

    messages: tuple[CommitMessage, ...] = ()  # one for each bucket that changed
    committed: CommitResult | None = None  # None: nothing was worth it


def compact_table(store: TableStore, *, full: bool = False) -> CommitResult | None:
    """Compact what is worth it and commit; None when nothing was. Raises: as ``compact_buckets``."""
    return compact_buckets(store, full=full).committed


def compact_buckets(
    store: TableStore,
    *,
    full: bool = False,
    keep: Callable[[BucketKey], bool] = lambda _: True,
    limits: CompactionLimits = UNLIMITED,
    order: RowOrder | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> CompactionOutcome:
    """Compact what is worth it among some buckets, and commit it. Postponed rows get their buckets first.

    Args:
        store: to compact.
        full: everything into one run, whether it is worth it or not; with ``compaction.force-rewrite-all-files``
            every file is rewritten.
        keep: whether a bucket is to be looked at.
        limits: how much to do; what costs readers most comes first.
        order: all rows of an append table get it, bucket by bucket; None: their order stays.
        progress: called with the number of buckets that are done, and of all.

    Raises:
        ConflictError: other writers kept changing the same files: run it again. Nothing is visible.
        InvalidInputError: rows of this table cannot get another order.
        UnavailableError: nothing is visible.
        OutcomeUnknownError: it may be visible; its files stay.
    """
    if order is not None:
        check_may_order(store)
    distribution = distribute(store, keep=keep) if store.options.bucket == POSTPONE_BUCKET else None
    outcome = _compact(store, full=full, keep=keep, limits=limits, order=order, progress=progress)
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
    order: RowOrder | None,
    progress: Callable[[int, int], None],
) -> CompactionOutcome:
    live = LiveFiles.latest(store)
    rewrites_all = full and store.options.compaction_force_rewrite_all_files
    stop_ms = None if limits.time_ms is None else store.clock.now_ms() + limits.time_ms

    def attempt() -> CompactionOutcome:
        keys = [key for key in live.buckets() if keep(key)]
        tasks = pick_tasks(store, live, keys=keys, full=full, rewrites_all=rewrites_all, insists=full, order=order)
        tasks = tasks[: limits.buckets]
        with live.reading():
            messages = _run_tasks(store, tasks, stop_ms, progress)
        if not messages:
            return CompactionOutcome()
        committed = replace_compacted(store, messages, live.ref)
        progress(len(tasks), len(tasks))
        return CompactionOutcome(messages=tuple(messages), committed=committed)

    return retrying(attempt, attempts=_MOST_ATTEMPTS, replan=lambda _: live.advance())


def _run_tasks(
    store: TableStore, tasks: Sequence[CompactionTask], stop_ms: int | None, progress: Callable[[int, int], None]
) -> list[CommitMessage]:
    """Run tasks one after another until the deadline; a failure leaves no file. Returns: what they wrote."""
    messages: list[CommitMessage] = []
    with undoing(lambda: discard(store, messages)):
        for done, task in enumerate(tasks):
            if messages and stop_ms is not None and store.clock.now_ms() >= stop_ms:
                break
            progress(done, len(tasks))
            messages.append(run_task(store, task))
    return [message for message in messages if not message.is_empty]


def _pick(
    store: TableStore, live: LiveFiles, key: BucketKey, *, full: bool, rewrites_all: bool, order: RowOrder | None
) -> list[CompactionTask]:
    files = live.files(key)
    if not files or key.bucket < 0:
        return []
    if not store.has_key:
        return pick_appended(store, live, key, full=full, rewrites_all=rewrites_all, order=order)
    levels = live.levels(key)
    indexes = live.indexes(key)
    moment_ms = None if RowExpiry.of(store.schema, store.options) is None else store.clock.now_ms()
    unit = _pick_unit(store, levels, full=full, rewrites_all=rewrites_all)
    if unit is None and full and may_expire(store, files, moment_ms):
        unit = CompactionUnit(runs=levels.runs, output_level=levels.top_level, reason=CompactionReason.FORCED)
    unit = unit or _deleted_rows_unit(store.options, levels, indexes, full=full)
    if unit is None:
        return []
    by_name = {file.file_name: file for file in files}
    known = known_level(store.options, unit, levels)
    # Readers of a table with deletion vectors do not merge: every older row is in one, and no delete above level 0.
    has_vectors = store.options.deletion_vectors_enabled
    merges_old = has_vectors or (has_whole_rows(store.options) and not newest_row_is_whole(store.options))
    drops_deletes = has_vectors or unit.drops_deletes(levels)
    look_up_from = 1 if merges_old else known
    looked_up = () if look_up_from is None else files_to_look_up(unit, levels, look_up_from)
    task = CompactionTask(
        partition=key.partition,
        bucket=key.bucket,
        total_buckets=live.total_buckets(key) or store.options.bucket,
        files=tuple(by_name[file.file_name] for file in unit.files),
        output_level=unit.output_level,
        drops_deletes=drops_deletes,
        cleans_deletes=has_vectors or unit.output_level == levels.top_level,
        reason=unit.reason,
        known_level=known,
        lookup_files=tuple(by_name[file.file_name] for file in looked_up),
        rewrites_all=rewrites_all,
        read_cost=merge_cost(levels),
        indexes=indexes,
        merges_old_rows=merges_old,
        deletes_old_rows=has_vectors,
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


def _deleted_rows_unit(
    options: TableOptions, levels: Levels, indexes: Sequence[IndexManifestEntry], *, full: bool
) -> CompactionUnit | None:
    """Files of one level with too many rows in deletion vectors; with ``full`` any."""
    threshold = 0.0 if full else options.compaction_delete_ratio_threshold
    counts = deleted_row_counts(indexes)
    for run in levels.runs if counts else ():
        files = tuple(file for file in run.files if counts.get(file.file_name, 0) > threshold * file.row_count)
        if files and run.level > 0:
            chosen = SortedRun(level=run.level, files=files)
            return CompactionUnit(runs=(chosen,), output_level=run.level, reason=CompactionReason.DELETE_RATIO)
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
        lookup_files=() if task.merges_old_rows else task.lookup_files,  # else old rows take part in the merge
    )
