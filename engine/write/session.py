"""One writer of one table: what happens before, during and after each of its batches, in one order.

before_batch   a periodic savepoint; then the batch waits while readers would have to merge too many sorted runs
write          rows into files and log, by the runner, and one commit
after_commit   tags of a batch job, commit listeners and lineage, compaction, expiry; close waits for what runs beside

The sink, ``format("fluvial")``, statements and ``Table.write`` use it; they differ in their ``Upkeep`` and ``Runner``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from engine.checkpoint.saved_checkpoints import CheckpointPlace
from engine.compaction.background import BackgroundCompaction, CompactionFailures
from engine.compaction.dedicated import DedicatedCompaction, compact_after_batch, is_write_only, waits_for_others
from engine.lineage.after_commit import AfterCommit
from engine.lineage.origins import CommitOrigin
from engine.log.table_log import TableLog, at_newest_log, tracks_changes
from engine.request.writer_options import WriterOptions
from engine.runtime.logs import with_ids
from engine.runtime.metrics import counting_failed_batch
from engine.runtime.steps import BatchSteps, Observer, ignore
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import NO_PROPERTIES, BatchWriter, RunParts
from engine.write.housekeeping import Housekeeping, tag_batch
from engine.write.log_sync import follow_overwrite
from engine.write.repeating import MOST_ATTEMPTS, write_in_turn
from engine.write.ticket_queue import TicketQueue, Turn, turn_of_job
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.query_run import QueryRun
from filestore.commit.table_commit import CommitResult
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.data_split import DataSplit
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import Snapshot, SnapshotRef
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.write.row_deletion import DeletedPositions, replace_rows
from logstore.log.kept_writers import KeptWriters
from lsm.errors import ConflictError, TakenOverError
from lsm.retry import retrying
from lsm.undo import following_a_commit, undoing_unless_visible

RowsT = TypeVar("RowsT")
RowsOfRunner = TypeVar("RowsOfRunner", contravariant=True)


class Runner(Protocol[RowsOfRunner]):
    """Runs the work of a session: in Spark tasks, in threads, or in this process."""

    def write(self, spec: BatchSpec, rows: RowsOfRunner) -> Iterable[BucketResult]:
        """Run ``write_part`` over the rows of a batch, every bucket in one place."""

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Carry out compaction tasks and return what each wrote, in any order. Called from a thread of its own."""


class LocalRunner:
    """This process, one bucket after the other."""

    def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        """Implements ``Runner.write``."""
        return write_part(spec, rows)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """Implements ``Runner.compact``."""
        return compact_here(store, tasks)


class KeepingRunner(LocalRunner):
    """The same, for many batches: writers of the log stay open for the next batch of the session."""

    def write(self, spec: BatchSpec, rows: Iterable[pa.RecordBatch]) -> list[BucketResult]:
        """Implements ``Runner.write``."""
        return super().write(replace(spec, keeps_writers=True), rows)


def compact_here(store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
    """Carry out compaction tasks in this process, one after the other."""
    return [run_task(store, task) for task in tasks]


class Upkeep(Enum):
    """The upkeep of a table by its writer: compaction, expiry, tags. With ``write-only`` another job does it."""

    STREAM = "stream"
    """Compacts in the background after every commit, makes periodic savepoints, expires old snapshots."""
    STREAM_ON_DEMAND = "stream-on-demand"
    """The same, but compacts only when the next batch would have to wait for it or readers wait for its result."""
    BATCH = "batch"
    """Compacts after its commit at ``num-sorted-run.stop-trigger``, or where an option or readers want it earlier."""
    REPLACE = "replace"
    """A commit that replaces rows adds no sorted runs that anyone waits for; its changes go to the log, if wanted."""

    @property
    def is_stream(self) -> bool:
        """Whether further batches follow."""
        return self in (Upkeep.STREAM, Upkeep.STREAM_ON_DEMAND)


OriginOf = Callable[[int, RowsT | None], CommitOrigin | None]
"""Where the rows of a batch come from, by its id, for the catalog's lineage; None: nothing is recorded."""


class WriteSession(Generic[RowsT], AbstractContextManager["WriteSession[RowsT]"]):
    """The batches of one commit user into one table. Not for use by several threads."""

    def __init__(
        self,
        table: FileTable,
        runner: Runner[RowsT],
        *,
        commit_user: str,
        options: WriterOptions,
        upkeep: Upkeep,
        origin: OriginOf[RowsT],
        checkpoint: str | None = None,
        run_id: str | None = None,
        observe: Observer = ignore,
    ) -> None:
        """Start what runs beside the batches; the table is not read.

        Args:
            table: to write to.
            runner: where rows are written and files compacted.
            commit_user: stable over restarts of a streaming query, fresh for a batch job.
            options: of this writer, as those of ``sink``.
            upkeep: besides writing.
            origin: asked once for each batch, before its rows are written.
            checkpoint: location of the query's, to be kept with savepoints.
            run_id: of this start of a streaming query, if several processes commit for it; else it gets a fresh one.
            observe: called with each step; picklable.

        Raises:
            InvalidInputError: an option has no such value.
        """
        table = options.applied(table)
        self._table, self._store = table, table.store
        self._runner, self._commit_user = runner, commit_user
        self._options, self._upkeep, self._origin, self._observe = options, upkeep, origin, observe
        self._steps, self._kept = BatchSteps(observe), KeptWriters()
        self._log = None if upkeep is Upkeep.REPLACE else TableLog.of(table, options)
        self._tracks_changes = tracks_changes(self._store, options)
        self._run: QueryRun | None = None
        if upkeep.is_stream:
            self._run = QueryRun(store=self._store, commit_user=commit_user, run_id=run_id or self._store.names.uuid())
        self._has_taken_over = False
        self._known_schema_id = self._store.schema.id  # the newest whose log is followed
        self._writer = self._new_writer(table)
        self._after = AfterCommit(self._store)
        is_kept = upkeep.is_stream and not is_write_only(self._store, options)
        waits = upkeep is not Upkeep.REPLACE and waits_for_others(self._store, options)
        place = None if checkpoint is None else CheckpointPlace(location=checkpoint, commit_user=commit_user)
        self._dedicated = DedicatedCompaction(self._store) if waits else None
        self._compaction: BackgroundCompaction | None = None
        self._housekeeping: Housekeeping | None = None
        if is_kept:
            run_tasks = self._steps.compacting(partial(runner.compact, self._store))
            self._compaction = BackgroundCompaction(self._store, run_tasks, check=partial(self.check_run, "compaction"))
            self._housekeeping = Housekeeping(self._store, checkpoint=place, check=partial(self.check_run, "expiry"))

    @property
    def compaction_failures(self) -> CompactionFailures:
        """Compactions in the background that failed until now."""
        return CompactionFailures() if self._compaction is None else self._compaction.failures

    def continue_at(self, table: FileTable) -> None:
        """Write further batches at another version of the table's schema; compaction takes it from the files."""
        table = self._options.applied(table)
        self._table, self._store = table, table.store
        self._writer = self._new_writer(table, self._writer.began_at)
        self._after = AfterCommit(table.store)

    # ---- one batch

    def write(
        self, rows: RowsT, *, batch_id: int = BATCH_IDENTIFIER, read_snapshot_id: int | None = None,
        notes: Mapping[str, str] = NO_PROPERTIES,
    ) -> CommitResult:  # fmt: skip
        """Write a batch, in files and log, unless it is committed already.

        Args:
            rows: for the runner.
            batch_id: rises from batch to batch of a streaming query.
            read_snapshot_id: see ``Table.append``.
            notes: properties of the snapshot, besides those of lineage.

        Raises:
            FluvialError: see ``BatchWriter.write``.
            CommittedError: the rows are visible, and their lineage is not recorded: ``lineage.on-unavailable=fail``.
            TakenOverError: another run of the query has the batch now, or has begun since this one committed it.
        """

        def commit(run_parts: RunParts, properties: Mapping[str, str]) -> CommitResult:
            def attempt(turn: Turn | None) -> CommitResult:
                if turn is not None:
                    self._follow_log()  # it may have been replaced while the writer waited
                given = {**properties, **notes}
                return self._writer.write(
                    batch_id, run_parts, read_snapshot_id=read_snapshot_id, properties=given, turn=turn
                )

            if self._log is None and self._follow_log() is None:
                is_only_try = isinstance(rows, Iterator) or read_snapshot_id is not None
                return retrying(
                    partial(attempt, None),
                    attempts=1 if is_only_try else self._store.options.commit_max_retries + 1,
                    replan=partial(self._begin_again_unless, batch_id),
                    backoff=self._store.commit_backoff,
                )
            return write_in_turn(
                TicketQueue(self._store, self._commit_user),
                attempt,
                before_again=partial(self._begin_again, batch_id),
                patience_s=None if self._upkeep.is_stream else self._options.turn_timeout_s(self._store.options),
                attempts=1 if isinstance(rows, Iterator) else MOST_ATTEMPTS,  # an iterator cannot be read again
            )

        return self._batch(rows, batch_id, commit)

    def overwrite(
        self, rows: RowsT, partition: Mapping[str, object] | None, *, only_after: int | None = None
    ) -> CommitResult:
        """Replace rows by others in one commit, which streams read from files; the log gets it by ``log.overwrite``.

        What others commit while the rows are written is replaced as well, if it lies in the same partitions.

        Args:
            rows: for the runner.
            partition: see ``filestore.table.Table.overwrite``.
            only_after: the snapshot that must be the newest still; 0: there was none.

        Raises:
            InvalidInputError: a row that the table cannot hold, or one outside the partition; nothing is visible.
            ConflictError: the commit lost too many races, or came too late; nothing is visible: try again.
            OutcomeUnknownError: it may be visible; look at the newest snapshot before trying again.
        """
        table, store = self._table, self._store
        table.check_partition(partition or {})

        def commit(run_parts: RunParts, properties: Mapping[str, str]) -> CommitResult:
            base = store.snapshots.latest_ref()
            messages = self._messages(run_parts, base, {})  # no row stays that the new ones would have to follow
            wanted = Committable(
                identifier=BATCH_IDENTIFIER,
                messages=messages,
                base=base,
                changes=self._changes_of_files,
                properties=properties if messages else {},
            )
            with undoing_unless_visible(lambda: discard(store, messages)), turn_of_job(store, self._options):
                return table.commit_overwrite(
                    table.new_commit(self._commit_user, history_start=base.id), wanted, partition, only_after=only_after
                )

        return self._batch(rows, BATCH_IDENTIFIER, commit)

    def replace_rows(
        self, snapshot: Snapshot, splits: Iterable[DataSplit], deletes: DeletedPositions, rows: RowsT | None
    ) -> CommitResult:
        """Delete rows of a table without a key, and add others, in one commit.

        Args:
            snapshot: in which the rows were found.
            splits: those that were read.
            deletes: rows to delete.
            rows: to add, for the runner; None: none.

        Raises:
            ConflictError: files with these rows were rewritten meanwhile, or rows of them deleted; nothing is visible.
            OutcomeUnknownError: it may be visible.
        """
        store = self._store

        def commit(run_parts: RunParts, properties: Mapping[str, str]) -> CommitResult:
            added: list[CommitMessage] = []
            if rows is not None:
                added = self._messages(run_parts, snapshot.ref, LiveFiles(store, snapshot).max_sequence_numbers())
            wanted = Committable(identifier=BATCH_IDENTIFIER, changes=self._changes_of_files, properties=properties)
            return replace_rows(
                store, snapshot, splits, deletes, added=added, commit_user=self._commit_user, committable=wanted
            )

        return self._batch(rows, BATCH_IDENTIFIER, commit)

    def _batch(
        self, rows: RowsT | None, batch_id: int, commit: Callable[[RunParts, Mapping[str, str]], CommitResult]
    ) -> CommitResult:
        """The order of every batch."""

        def run_parts(spec: BatchSpec) -> Iterable[BucketResult]:
            assert rows is not None
            return self._runner.write(spec, rows)

        number = batch_id if self._upkeep.is_stream else None
        ids = with_ids(table=self._store.name, commit_user=self._commit_user, batch=number)
        with ids, self._as_newest_run(batch_id), self._steps.batch(batch_id):
            self.before_batch()
            origin = self._origin(batch_id, rows)
            with self._after.emitting(origin, batch_id, rows), counting_failed_batch(self._store.name):
                done = commit(run_parts, self._after.properties(origin))
            snapshot_id = done.snapshot and done.snapshot.id
            with following_a_commit(f"rows are visible: table={self._store.name} snapshot={snapshot_id}"):
                self.after_commit(done, batch_id, origin)
        return done

    @contextmanager
    def _as_newest_run(self, batch_id: int) -> Iterator[None]:
        """Around a batch of a stream: the first one takes over from earlier runs, and a newer run ends this one."""
        run, doing = self._run, f"batch={batch_id}"
        if run is None:
            yield
            return
        with run.naming_the_cause(doing):
            if self._has_taken_over:
                run.check(doing)
            else:
                run.take_over(batch_id)
                self._has_taken_over = True
            yield
            run.check(doing)  # the next batch would only find Spark's checkpoint in use

    def _begin_again(self, batch_id: int) -> None:  # as a restart: the next attempt looks into the log first
        if self._run is not None:
            self._run.check(f"batch={batch_id}")
        self._writer = self._new_writer(self._table, self._writer.began_at)

    def _begin_again_unless(self, batch_id: int, conflict: ConflictError) -> None:
        """After a conflict of a table without a log, of which nothing is visible. Raises: TakenOverError."""
        if isinstance(conflict, TakenOverError):
            raise conflict
        self._begin_again(batch_id)

    def check_run(self, what: str) -> None:
        """Refuse to work for a query that another run has taken over. Raises: TakenOverError."""
        if self._run is not None:
            self._run.check(f"what={what}")

    def before_batch(self) -> None:
        """Make a savepoint if one is due, and wait while compaction is too far behind."""
        if self._housekeeping is not None:
            self._housekeeping.before_batch()
        if self._compaction is not None:
            self._compaction.before_batch(self._writer.live)
        elif self._dedicated is not None:
            self._dedicated.before_batch(self._writer.live)

    def after_commit(self, done: CommitResult, batch_id: int, origin: CommitOrigin | None) -> None:
        """Report the commit, then run the upkeep of the table."""
        if batch_id == BATCH_IDENTIFIER:
            tag_batch(self._store, done)
        self._after.report(done.snapshot, origin, commit_user=self._commit_user, identifier=batch_id)
        if self._upkeep is Upkeep.REPLACE:
            follow_overwrite(self._table, self._options)
        elif self._upkeep is Upkeep.BATCH:
            compact_after_batch(self._store, self._options, self._writer.live)
        elif self._compaction is not None and (self._upkeep is Upkeep.STREAM or self._compaction.is_awaited):
            self._compaction.after_commit(self._writer.live)
        if self._housekeeping is not None:
            self._housekeeping.after_commit()

    def close(self) -> None:
        """Wait for the compaction that is running, and start no other."""
        self._kept.close()
        if self._compaction is not None:
            self._compaction.close()
        if self._housekeeping is not None:
            self._housekeeping.close()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _follow_log(self) -> TableLog | None:
        """Switch to the table's present log: since the last batch a log may have been added, replaced or removed."""
        store, self._known_schema_id = at_newest_log(self._store, self._known_schema_id)
        if store is not self._store:
            table = replace(self._table, store=store)
            self._log, self._tracks_changes = TableLog.of(table, self._options), tracks_changes(store, self._options)
            self.continue_at(table)
        return self._log

    def _new_writer(self, table: FileTable, began_at: int | None = None) -> BatchWriter:
        self._kept.close()  # the new one begins with a fence
        return BatchWriter(
            table, self._log, commit_user=self._commit_user, tracks_changes=self._tracks_changes, run=self._run,
            began_at=began_at, kept=self._kept, observe=self._observe,
        )  # fmt: skip

    @property
    def _changes_of_files(self) -> ChangeSource:
        """How streams get a commit that the log does not get."""
        return ChangeSource.FILES if self._tracks_changes else ChangeSource.NONE

    def _messages(
        self, run_parts: RunParts, base: SnapshotRef, max_sequence_numbers: Mapping[BucketKey, int]
    ) -> list[CommitMessage]:
        """The files of rows that do not go to the log."""
        spec = BatchSpec(
            table=self._table,
            log=None,
            commit_user=self._commit_user,
            batch_id=BATCH_IDENTIFIER,
            base=base,
            max_sequence_numbers=max_sequence_numbers,
            log_offsets={},
        )
        return [message for result in run_parts(spec) for message in result.messages]
