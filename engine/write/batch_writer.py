"""One batch into one table, exactly once: the driver's half of the protocol.

1. A snapshot of (commit user, batch) exists: the batch is committed.
2. First batch of a run, table with a log: every bucket is fenced and its last marker read. A marker that no snapshot
   knows is of the same batch, begun by an earlier run (its files are adopted), of a batch job that died (its files are
   committed for it: no later run will), or of another query (refused).
3. What bypassed the log before, as an overwrite, goes into it, or a record says so: see ``log_sync``.
4. The batch's rows are written, bucket by bucket, by ``write_part`` in one or many processes.
5. One commit makes all files and the log offsets visible.

Each attempt has its turn among the writers of the log, if there is one: see ``ticket_queue``.
Where 4 runs is an argument, so that Spark tasks and a plain Python process share this module.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Final

from engine.log.bucket_log import check_not_repeated, check_not_shorter
from engine.log.table_log import OrphanPolicy, TableLog
from engine.runtime.metrics import record_batch
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.write.batch_part import BatchSpec, BucketResult, committable, warn_of_kept_updates
from engine.write.dead_rows import correct_dead_rows
from engine.write.event_time import watermark_of
from engine.write.log_sync import LogSync, of_lost_snapshot
from engine.write.renumber import headrooms, renumbered, superseded
from engine.write.repeating import AwaitedWriterError, buckets_of, check_not_stale, published_before
from engine.write.ticket_queue import Turn
from filestore.changelog.log_gap import is_sync_user, log_gap
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.guards import published_buckets
from filestore.commit.query_run import QueryRun
from filestore.commit.snapshot_writer import merged_offsets
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.index.index_manifest import bucket_index, changes_index
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import SnapshotRef
from filestore.table_store import TableStore
from filestore.table_view import TableView
from logstore.log.kept_writers import KeptWriters
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError, TakenOverError
from lsm.retry import retrying

logger = logging.getLogger("fluvial.batch")

RunParts = Callable[[BatchSpec], Iterable[BucketResult]]
"""Runs ``write_part`` over the rows of the batch, every bucket in one place, and returns all results."""

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})
_REST: Final = "-rest"
"""Suffix of the commit user for the remaining buckets of a batch of which another writer published some."""


class BatchWriter:
    """Writes the batches of one commit user. One instance per run of a query; not for use by several threads."""

    def __init__(
        self,
        table: TableView,
        log: TableLog | None,
        *,
        commit_user: str,
        tracks_changes: bool = True,
        run: QueryRun | None = None,
        began_at: int | None = None,
        kept: KeptWriters | None = None,
        observe: Observer = ignore,
    ) -> None:
        """Prepare to write.

        Args:
            table: to write to.
            log: the table's log, None without one (or with change tracking switched off).
            commit_user: stable over restarts of a streaming query, fresh for a batch job.
            tracks_changes: False: streams do not get these rows; then there must be no log either.
            run: the run of a streaming query; its commits are refused once a newer run has taken over.
            began_at: ``began_at`` of the previous attempt, for a batch job that is retried.
            kept: Kafka producers to reuse between batches, when the rows are written in this process.
            observe: called with each step.
        """
        self._table, self._store, self._kept = table, table.store, kept
        self._log = log
        self._run = run
        self._began_at = began_at
        self._batch_id: int | None = None  # the newest that was begun
        self._observe = observe
        self._commit_user = commit_user
        self._changes = _changes(table.store, log, tracks_changes=tracks_changes)
        self._live: LiveFiles | None = None
        self._adopted: dict[int, BucketResult] | None = None
        self._corrected: dict[int, int] = {}  # next offsets, behind rows of dead writers; see ``dead_rows``
        self._newest_in_table: int | None = None  # batch of this user, by the log: its snapshot may have expired
        self._turn: Turn | None = None
        self._sync: LogSync | None = None

    @property
    def began_at(self) -> int | None:
        """Snapshot id after which others may have published a part of this batch job; None: the log has no part."""
        return self._began_at

    @cached_property
    def _commit(self) -> TableCommit:
        return TableCommit(self._store, self._commit_user, check=self._check_run)

    @property
    def live(self) -> LiveFiles:
        """The table's files as this writer last saw them."""
        if self._live is None:
            self._live = LiveFiles.latest(self._store)
        return self._live

    def write(
        self,
        batch_id: int,
        run_parts: RunParts,
        *,
        read_snapshot_id: int | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        turn: Turn | None = None,
        done_buckets: frozenset[int] = frozenset(),
    ) -> CommitResult:
        """Write a batch unless it is committed already.

        Args:
            batch_id: ascending number of the batch, for one commit user.
            run_parts: see ``RunParts``; not called when the batch is committed.
            read_snapshot_id: see ``Table.append``.
            properties: properties of the snapshot.
            turn: the writer's turn among the writers of the log; None: it is the only writer.
            done_buckets: buckets whose rows are already in the table; they are not written.

        Raises:
            AwaitedWriterError: a query that waits for its turn has to complete its batch first.
            StaleReadError: the table has changed since ``read_snapshot_id``.
            ConflictError: another writer holds a bucket of the log, or committed to the same buckets of the table:
                nothing of this batch is visible in the table. Run the batch again.
            TakenOverError: another run of the query has taken over: end this one.
            LostTraceError: the snapshots that an earlier attempt may have published have expired.
            OutcomeUnknownError: the commit may be visible: run the same batch again.
        """
        self._batch_id, self._turn = batch_id, turn
        done = self._commit.find_committed(batch_id)
        if done is not None:
            logger.info(
                "batch is committed already: table=%s batch=%d snapshot=%d", self._store.name, batch_id, done.id
            )
            found = CommitResult(snapshot=done, already_committed=True)
            return self._complete(found, run_parts, properties, done_buckets)
        self._report(Step.BATCH_STARTED, batch_id)
        self.live.advance()
        adopted = self._recover(batch_id)
        if self._began_at is not None:  # else its marker would prove the batch of which it is a part
            published = published_before(self._store, self._commit, batch_id, self._began_at)
            if published is not None:
                found = CommitResult(snapshot=published, already_committed=True)
                return self._complete(found, run_parts, properties, done_buckets)
        if self._newest_in_table is not None and batch_id <= self._newest_in_table:
            logger.info("batch is committed already, by its log: table=%s batch=%d", self._store.name, batch_id)
            return CommitResult(snapshot=self.live.snapshot, already_committed=True)
        if not adopted:  # else a part of this batch is in the log already
            self._log_what_bypassed_it()
        spec = self._spec(batch_id, adopted.keys() | done_buckets)
        if read_snapshot_id is not None and not spec.adopted_buckets:
            check_not_stale(self._store, self.live.snapshot, read_snapshot_id)
        if self._began_at is None and batch_id == BATCH_IDENTIFIER and self._log is not None:
            self._began_at = spec.base.id
        began_s = time.perf_counter()
        results = [*run_parts(spec), *adopted.values()]
        self._report(Step.TASKS_DONE, batch_id)
        warn_of_kept_updates(self._store, batch_id, results)
        flushed_s = time.perf_counter()
        # adopted files were numbered by an earlier run, before commits that this run's base may include
        base = None if adopted else spec.base
        is_exclusive = read_snapshot_id is not None and self._log is None
        committed = self._publish(
            self._commit, batch_id, results, base, is_exclusive=is_exclusive, properties=properties
        )
        self._adopted = {}
        self._report(Step.TABLE_COMMITTED, batch_id)
        committed_s = time.perf_counter()
        self._record(results, committed, flush_seconds=flushed_s - began_s, commit_seconds=committed_s - flushed_s)
        return self._complete(committed, run_parts, properties, done_buckets)

    def _complete(
        self, done: CommitResult, run_parts: RunParts, properties: Mapping[str, str], done_buckets: frozenset[int]
    ) -> CommitResult:
        """Write the remaining buckets of a batch job that another writer believed dead and committed in part."""
        if self._turn is None or self._batch_id != BATCH_IDENTIFIER or not done.already_committed:
            return done
        assert done.snapshot is not None
        if done.snapshot.commit_user != self._commit_user:
            return done  # by the log's offsets, which prove every bucket
        buckets = buckets_of(self._store, done.snapshot)
        logger.warning(
            "another writer committed what the log held of this batch: table=%s snapshot=%d buckets=%s",
            self._store.name, done.snapshot.id, sorted(buckets),
        )  # fmt: skip
        rest = BatchWriter(
            self._table, self._log, commit_user=f"{self._commit_user}{_REST}", began_at=done.snapshot.id,
            observe=self._observe,
        )  # fmt: skip
        written = rest.write(
            BATCH_IDENTIFIER, run_parts, properties=properties, turn=self._turn, done_buckets=done_buckets | buckets
        )
        return CommitResult(snapshot=written.snapshot, already_committed=True)

    def _record(
        self, results: Iterable[BucketResult], committed: CommitResult, *, flush_seconds: float, commit_seconds: float
    ) -> None:
        files = [file for result in results for message in result.messages for file in message.new_files]
        record_batch(
            self._store.name,
            rows=sum(file.row_count for file in files),
            size_bytes=sum(file.size_bytes for file in files),
            files=len(files),
            flush_seconds=flush_seconds,
            commit_seconds=commit_seconds,
            snapshot_id=None if committed.snapshot is None else committed.snapshot.id,
        )

    def _spec(self, batch_id: int, done_buckets: Iterable[int]) -> BatchSpec:
        return BatchSpec(
            table=self._table,
            log=self._registered_log(),
            commit_user=self._commit_user,
            batch_id=batch_id,
            base=self.live.ref,
            max_sequence_numbers=self.live.max_sequence_numbers(),
            index=bucket_index(self._store, self.live.snapshot),
            log_offsets=dict(self._log_offsets()),
            adopted_buckets=frozenset(done_buckets),
            run=self._run,
            turn=self._turn,
            kept=self._kept,
            observe=self._observe,
        )

    def _registered_log(self) -> TableLog | None:
        """The log, with the schemas of its records: tasks ask no registry."""
        if self._log is not None:
            self._log = self._log.for_version(self._store, self._table.schema.id)
        return self._log

    def _log_offsets(self) -> Mapping[int, int]:
        """Next offsets by bucket, of the newest snapshot that has offsets; commits of other engines have none."""
        known = {} if self._log is None else self._store.log_offsets_at(self.live.snapshot) or {}
        return merged_offsets(known, self._corrected)

    def _recover(self, batch_id: int) -> Mapping[int, BucketResult]:
        """Slices of this batch that an earlier run committed to the log; empty after the first batch of a run."""
        if self._adopted is None:
            self._adopted = {}
            if self._log is not None:
                self._adopted = self._ahead_of_table(batch_id, self._log)
                self._report(Step.LOG_RECOVERED, batch_id)
        return self._adopted

    def _log_what_bypassed_it(self) -> None:
        """Bring the log up to date with the table before the batch is written; raises if it cannot."""
        if self._log is not None:
            self._sync = self._sync or LogSync(self._table, self._log, check=self._check_writer)
            if self._sync.complete(self.live.snapshot):
                self.live.advance()

    def _check_writer(self) -> None:
        self._check_run()
        if self._turn is not None:
            self._turn.check(f"batch={self._batch_id}")

    def _ahead_of_table(self, batch_id: int, log: TableLog) -> dict[int, BucketResult]:
        """Results of this batch that are in the log and not in the table; those of others are adopted, if allowed."""
        adopted: dict[int, BucketResult] = {}
        orphans: dict[tuple[str, int], list[BucketResult]] = {}
        tails = log.fence_all()
        self._check_run()  # a newer run that has not fenced yet: its batches are not to be adopted here
        self.live.advance()  # what they held may have been committed meanwhile
        known = self._log_offsets()
        for bucket, tail in tails.items():
            marker = tail.marker
            if marker is None or marker.end_offset <= known.get(bucket, 0):
                check_not_shorter(self._store, log, tail, known.get(bucket, 0))
                if marker is not None and marker.is_final and marker.query == self._commit_user:
                    self._newest_in_table = max(marker.batch, self._newest_in_table or 0)
                continue
            if is_sync_user(marker.query):
                if log_gap(self._store, self.live.snapshot) is None:
                    raise of_lost_snapshot(self._store, log, marker)
                continue  # completed next
            if not marker.is_final:
                continue  # eventual: chunks of a batch that never ended, see ``dead_rows``
            check_not_repeated(log, bucket, marker, known.get(bucket, 0))
            result = BucketResult.of_marker(self._store, bucket, marker)
            if (marker.query, marker.batch) == (self._commit_user, batch_id):
                adopted[bucket] = result
            elif log.orphans is OrphanPolicy.FAIL and not (self._turn is not None and marker.batch == BATCH_IDENTIFIER):
                if self._turn is not None and self._turn.is_queued(marker.query):
                    raise AwaitedWriterError(
                        f"a batch in the log awaits its writer's turn: table={self._store.name} bucket={bucket} "
                        f"query={marker.query} batch={marker.batch}"
                    )
                raise CorruptDataError(
                    f"the log holds a batch that the table does not: table={self._store.name} topic={log.topic} "
                    f"bucket={bucket} query={marker.query} batch={marker.batch} end_offset={marker.end_offset} "
                    f"table_offset={known.get(bucket, 0)} fix=restart that query; or, if it will never run again, "
                    f"set log.on-orphan-batch=adopt once"
                )
            else:
                orphans.setdefault((marker.query, marker.batch), []).append(result)
            logger.warning(
                "taking over a batch from the log: table=%s bucket=%d query=%s batch=%d rows=%d",
                self._store.name, bucket, marker.query, marker.batch, marker.row_count,
            )  # fmt: skip
        for (query, batch), results in orphans.items():
            self._adopt(query, batch, results)
        self._corrected = correct_dead_rows(
            self._table, log, tails, known, query=self._commit_user, batch=batch_id, check=self._check_writer
        )
        return adopted

    def _adopt(self, query: str, batch: int, results: Sequence[BucketResult]) -> None:
        """Publish what a dead writer left in the log; what another one has published of it had other buckets."""
        while results:
            done = self._publish(TableCommit(self._store, query, check=self._check_run), batch, results, None)
            self.live.advance()
            found = done.snapshot
            if found is None or not done.already_committed:
                return
            if (found.commit_user, found.commit_identifier) != (query, batch):
                return  # it proves the batch, and its own snapshot has expired
            published = buckets_of(self._store, found)
            query, results = f"{query}{_REST}", [each for each in results if each.bucket not in published]

    def _publish(
        self,
        commit: TableCommit,
        identifier: int,
        results: Sequence[BucketResult],
        base: SnapshotRef | None,
        *,
        is_exclusive: bool = False,
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> CommitResult:
        """Commit; rows of a bucket that another writer committed to first are numbered above its rows, or refused."""

        def publishing(parts: Sequence[BucketResult], follows: SnapshotRef | None) -> Committable:
            made = committable(
                identifier,
                parts,
                base=follows,
                known_offsets=None if self._log is None else self._log_offsets(),
                changes=self._changes,
                properties=properties,
            )
            return replace(made, watermark=watermark_of(self._store, made.messages))

        wanted = publishing(results, base)
        pauses_ms, rooms = self._store.commit_backoff.pauses_ms(), headrooms()

        def replan(conflict: ConflictError) -> None:
            nonlocal commit, results, wanted
            if isinstance(conflict, TakenOverError):
                raise conflict
            published = published_buckets(self._store, self._store.snapshots.latest(), wanted)
            if published:
                results = [each for each in results if each.bucket not in published]
                commit = TableCommit(self._store, f"{commit.commit_user}{_REST}", check=self._check_run)
                wanted = publishing(results, None)
                return
            if is_exclusive or changes_index(wanted.messages):  # with other numbers they are still in the wrong buckets
                discard(self._store, wanted.messages)
                raise conflict
            starts = {each.bucket: each.log_slice.start_offset for each in results if each.log_slice is not None}
            self._store.clock.sleep(next(pauses_ms) / 1000)  # before: behind it the numbers would be old again
            lost = wanted
            wanted = renumbered(self._store, self.live, wanted, starts, conflict, headroom=next(rooms))
            if self._log is None:  # else the log has these files
                discard(self._store, superseded(lost.messages, wanted.messages))

        attempts = self._store.options.commit_max_retries + 1
        try:
            self.live.check_bucket_counts(wanted.messages)
            return retrying(lambda: commit.commit(wanted), attempts=attempts, replan=replan)
        except (ConflictError, InvalidInputError):
            if self._log is None:
                discard(self._store, wanted.messages)
            raise

    def _check_run(self) -> None:
        if self._run is not None:
            self._run.check(f"batch={self._batch_id}")

    def _report(self, step: Step, batch_id: int) -> None:
        self._observe(StepEvent(step=step, batch_id=batch_id))


def _changes(store: TableStore, log: TableLog | None, *, tracks_changes: bool) -> ChangeSource:
    """How streams get what is written."""
    if log is not None:
        return ChangeSource.LOG
    return ChangeSource.FILES if tracks_changes and not store.has_log else ChangeSource.NONE
