"""One batch into one table, exactly once: the driver's half of the protocol.

1. A snapshot of (commit user, batch) exists: done already.
2. First batch of a run, table with a log: every bucket is fenced and its last marker read. One that no
   snapshot knows is of this very batch, begun by an earlier run (its files are taken over), or foreign (refused).
3. The batch's rows are written, bucket by bucket, by ``write_part`` in one or many processes.
4. One commit makes all files and the log offsets visible.

What 3 runs on is an argument, so that Spark tasks and a plain Python process share this module.
Source: design.md section 3, reports/kafka.md section 4.2.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from engine.lineage.after_commit import AfterCommit
from engine.lineage.origins import CommitOrigin
from engine.log.bucket_log import check_not_shorter
from engine.log.table_log import OrphanPolicy, TableLog
from engine.runtime.metrics import record_batch
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.write.batch_part import REPLACED, UPDATES, BatchSpec, BucketResult
from engine.write.event_time import watermark_of
from engine.write.housekeeping import tag_batch
from engine.write.renumber import rewrite_with_higher_numbers
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.index.index_manifest import bucket_index, changes_index
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.snapshot.change_tracking import ChangeSource, skipping
from filestore.snapshot.snapshot import carried_offsets
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError

logger = logging.getLogger("fluvial.batch")

RunParts = Callable[[BatchSpec], Iterable[BucketResult]]
"""Runs ``write_part`` over the rows of the batch, every bucket in one place, and returns all results."""

_RENUMBER_ATTEMPTS: Final = 5


class BatchWriter:
    """Writes the batches of one commit user. One instance per run of a query; not for use by several threads."""

    def __init__(
        self,
        store: TableStore,
        log: TableLog | None,
        *,
        commit_user: str,
        tracks_changes: bool = True,
        observe: Observer = ignore,
    ) -> None:
        """Prepare to write.

        Args:
            store: the table's files.
            log: the table's log, None without one (or with change tracking switched off).
            commit_user: stable over restarts of a streaming query, fresh for a batch job.
            tracks_changes: False: streams shall not get these rows; then there must be no log either.
            observe: told each step.
        """
        self._store = store
        self._log = log
        self._observe = observe
        self._commit_user = commit_user
        self._changes = _changes(store, log, tracks_changes=tracks_changes)
        self._commit = TableCommit(store, commit_user)
        self._after = AfterCommit(store)
        self._live: LiveFiles | None = None
        self._adopted: dict[int, BucketResult] | None = None
        self._newest_in_table: int | None = None  # of our batches, as the log tells it: their snapshots may be gone

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
        origin: CommitOrigin | None = None,
    ) -> CommitResult:
        """Write a batch unless it is there already; then tell the catalog's lineage, and who listens.

        Args:
            batch_id: rises from batch to batch of one commit user.
            run_parts: see ``RunParts``; not called when the batch is committed.
            read_snapshot_id: see ``Table.append``.
            origin: where the rows come from. None: nothing is told.

        Raises:
            ConflictError: another writer holds a bucket of the log, or took its place in the table: nothing of this
                batch is visible
                in the table. Run the batch again.
            OutcomeUnknownError: the commit may be visible: run the same batch again.
            UnavailableError: also when the rows are visible, and ``lineage.on-unavailable=fail``.
        """
        committed = self._write(batch_id, run_parts, read_snapshot_id, origin)
        self._after.notify(committed.snapshot, origin, commit_user=self._commit_user, identifier=batch_id)
        return committed

    def _write(
        self, batch_id: int, run_parts: RunParts, read_snapshot_id: int | None, origin: CommitOrigin | None
    ) -> CommitResult:
        done = self._commit.find_committed(batch_id)
        if done is not None:
            logger.info(
                "batch is committed already: table=%s batch=%d snapshot=%d", self._store.name, batch_id, done.id
            )
            return CommitResult(snapshot=done, already_committed=True)
        self._tell(Step.BATCH_STARTED, batch_id)
        self.live.advance()
        adopted = self._recover(batch_id)
        if self._newest_in_table is not None and batch_id <= self._newest_in_table:
            logger.info("batch is committed already, by its log: table=%s batch=%d", self._store.name, batch_id)
            return CommitResult(snapshot=self.live.snapshot, already_committed=True)
        spec = self._spec(batch_id, adopted)
        if read_snapshot_id is not None and spec.base_snapshot_id != read_snapshot_id:
            raise ConflictError(
                f"the table changed while the rows were computed: table={self._store.name} "
                f"read_snapshot={read_snapshot_id} newest={spec.base_snapshot_id} fix=run it again"
            )
        began_s = time.perf_counter()
        results = [*run_parts(spec), *adopted.values()]
        self._tell(Step.TASKS_DONE, batch_id)
        self._check_updates(batch_id, results)
        flushed_s = time.perf_counter()
        # what is adopted was numbered by an earlier run, before commits that this run's base may have
        base_id = None if adopted else spec.base_snapshot_id
        is_exclusive = read_snapshot_id is not None and self._log is None
        committed = self._publish(
            self._commit,
            batch_id,
            results,
            base_id,
            is_exclusive=is_exclusive,
            origin=origin,
        )
        self._adopted = {}
        self._tell(Step.TABLE_COMMITTED, batch_id)
        files = [file for result in results for message in result.messages for file in message.new_files]
        record_batch(
            self._store.name,
            rows=sum(file.row_count for file in files),
            size_bytes=sum(file.size_bytes for file in files),
            files=len(files),
            flush_seconds=flushed_s - began_s,
            commit_seconds=time.perf_counter() - flushed_s,
            snapshot_id=None if committed.snapshot is None else committed.snapshot.id,
        )
        if batch_id == BATCH_IDENTIFIER:
            tag_batch(self._store, committed)
        return committed

    def _check_updates(self, batch_id: int, results: Iterable[BucketResult]) -> None:
        """Say when rows are counted that updates should have taken away. Between two batches one pair may be cut."""
        updates, replaced = (sum(each.facts.get(name, 0) for each in results) for name in (UPDATES, REPLACED))
        if updates > 1 and not replaced:
            logger.warning(
                "updates came without the rows that they replace, which stay in a table that counts rows: table=%s "
                "batch=%d updates=%d fix='send -U, too (update-before=true of fluvial-kafka), or give the table a key'",
                self._store.name, batch_id, updates,
            )  # fmt: skip

    def _spec(self, batch_id: int, adopted: Mapping[int, BucketResult]) -> BatchSpec:
        return BatchSpec(
            store=self._store,
            log=self._log,
            commit_user=self._commit_user,
            batch_id=batch_id,
            base_snapshot_id=self.live.snapshot_id,
            max_sequence_numbers=self.live.max_sequence_numbers(),
            index=bucket_index(self._store, self.live.snapshot),
            log_offsets=dict(self._log_offsets()),
            adopted_buckets=frozenset(adopted),
            observe=self._observe,
        )

    def _log_offsets(self) -> Mapping[int, int]:
        """Next offsets that the newest snapshot with offsets knows: commits of engines without a log drop them."""
        if self._log is None:
            return {}
        return carried_offsets(self._store.snapshots.back_from(self.live.snapshot)) or {}

    def _recover(self, batch_id: int) -> Mapping[int, BucketResult]:
        """Slices of this batch that an earlier run had committed to the log; empty but for the first batch of a run."""
        if self._adopted is None:
            self._adopted = {}
            if self._log is not None:
                self._adopted = self._ahead_of_table(batch_id, self._log)
                self._tell(Step.LOG_RECOVERED, batch_id)
        return self._adopted

    def _ahead_of_table(self, batch_id: int, log: TableLog) -> dict[int, BucketResult]:
        """What the log holds and the table does not: our own batch; another's is committed here, if that is allowed."""
        known = self._log_offsets()
        ours: dict[int, BucketResult] = {}
        orphans: dict[tuple[str, int], list[BucketResult]] = {}
        for bucket, tail in log.fence_all().items():
            marker = tail.marker
            if marker is None or marker.end_offset <= known.get(bucket, 0):
                check_not_shorter(self._store, log, tail, known.get(bucket, 0))
                if marker is not None and marker.is_final and marker.query == self._commit_user:
                    self._newest_in_table = max(marker.batch, self._newest_in_table or 0)
                continue
            if not marker.is_final:
                continue  # eventual: chunks of a batch that never ended; it is written again, readers fold by key
            result = BucketResult.of_marker(self._store, bucket, marker)
            if (marker.query, marker.batch) == (self._commit_user, batch_id):
                ours[bucket] = result
            elif log.orphans is OrphanPolicy.FAIL:
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
            self._publish(TableCommit(self._store, query), batch, results, None)
            self.live.advance()
        return ours

    def _publish(
        self,
        commit: TableCommit,
        identifier: int,
        results: list[BucketResult],
        base_snapshot_id: int | None,
        *,
        is_exclusive: bool = False,
        origin: CommitOrigin | None = None,
    ) -> CommitResult:
        """Commit; rows of a bucket that somebody wrote meanwhile get numbers above theirs first, or are refused.

        Changes that were looked up and are not true any more are not taken from the log, but from the files.
        """
        messages = [message for result in results for message in result.messages]
        offsets = {result.bucket: result.log_slice.end_offset for result in results if result.log_slice is not None}
        starts = {result.bucket: result.log_slice.start_offset for result in results if result.log_slice is not None}
        changelog_base_snapshot = {
            (message.partition, message.bucket): result.changelog_base_snapshot
            for result in results
            for message in result.messages
            if result.changelog_base_snapshot is not None
        }
        known = self._log_offsets()
        properties = self._after.properties(origin) if messages or identifier != BATCH_IDENTIFIER else {}
        changes = self._changes
        self.live.check_bucket_counts(messages)
        for attempt in range(_RENUMBER_ATTEMPTS + 1):
            committable = Committable(
                identifier=identifier,
                messages=messages,
                log_offsets={**known, **offsets} if self._log is not None else {},
                base_snapshot_id=base_snapshot_id,
                changes=changes,
                properties=properties,
                changelog_base_snapshot=changelog_base_snapshot,
                watermark=watermark_of(self._store, messages),
            )
            try:
                return commit.commit(committable)
            except ConflictError:
                if is_exclusive or changes_index(messages):  # renumbered rows would still be in buckets of their own
                    discard(self._store, messages)
                    raise
                self.live.advance()
                moved = [
                    rewrite_with_higher_numbers(
                        self._store, message, above=self._highest(message.partition, message.bucket)
                    )
                    for message in messages
                ]
                if attempt == _RENUMBER_ATTEMPTS or (moved == messages and not changelog_base_snapshot):
                    raise
                messages, base_snapshot_id = moved, self.live.snapshot_id
                if changelog_base_snapshot:
                    changelog_base_snapshot, changes, properties = (
                        {},
                        ChangeSource.FILES,
                        {**properties, **skipping(starts)},
                    )
                    logger.warning(
                        "streams get a batch from files, its changes in the log were overtaken: table=%s batch=%d",
                        self._store.name, identifier,
                    )  # fmt: skip
        raise AssertionError("unreachable")

    def _highest(self, partition: bytes, bucket: int) -> int:
        return self.live.max_sequence_number(BucketKey(partition, bucket))

    def _tell(self, step: Step, batch_id: int) -> None:
        self._observe(StepEvent(step=step, batch_id=batch_id))


def _changes(store: TableStore, log: TableLog | None, *, tracks_changes: bool) -> ChangeSource:
    """How streams get what is written."""
    if log is not None:
        return ChangeSource.LOG
    return ChangeSource.FILES if tracks_changes and not store.has_log else ChangeSource.NONE
