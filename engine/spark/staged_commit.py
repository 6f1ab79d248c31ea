"""What the committing process of ``format("fluvial")`` does with staged rows: write them, commit, clean up.

Rows become files, log and snapshot by the same code as everywhere (``batch_writer``, ``batch_part``), here in threads
of one process, each with its own buckets. So a large batch is written by one machine; ``sink`` spreads it over all.

Compaction: this process has no Spark session and should answer soon, so it compacts only when the next batch may not
go on otherwise, at ``num-sorted-run.stop-trigger``, and then by itself. Everything before that is left to
``fluvial compact`` or to a ``sink``.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from engine.checkpoint.saved_checkpoints import CheckpointPlace
from engine.compaction.background import BackgroundCompaction
from engine.compaction.dedicated import DedicatedCompaction, compact_if_forced, is_write_only, waits_for_others
from engine.lineage.batch_origin import batch_origin
from engine.lineage.origins import CommitOrigin
from engine.lineage.stream_job import StreamJob
from engine.log.table_log import TableLog, tracks_changes
from engine.request.writer_options import WriterOptions
from engine.runtime.steps import Observer, ignore
from engine.spark.staged_rows import StagedFile, clear_abandoned, clear_staged, staged_rows
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from engine.write.batch_writer import BatchWriter
from engine.write.housekeeping import Housekeeping
from engine.write.overwrite import overwrite
from engine.write.sink import compacts
from filestore.commit.committable import BATCH_IDENTIFIER, discard
from filestore.commit.table_commit import CommitResult
from filestore.compact.compactor import run_task, waits_for_compaction
from filestore.table import FileTable

_MOST_THREADS: Final = 4  # each has a write buffer of its own
_MOST_KEPT: Final = 8
_BATCH_JOB: Final = "spark"  # of a batch write without pipeline.name: this process does not know the application


class StagedCommits:
    """Commits of one run of a streaming query, or of one batch job. Not for use by several threads."""

    def __init__(
        self,
        table: FileTable,
        options: WriterOptions,
        *,
        commit_user: str,
        compacts: bool,
        expires: bool = False,
        checkpoint: str | None = None,
        job: str | None = None,
        observe: Observer = ignore,
    ) -> None:
        """Nothing happens yet.

        Args:
            table: the table's files.
            options: of this writer, as those of ``sink``.
            commit_user: stable over restarts of a streaming query, fresh for a batch job.
            compacts: whether a batch compacts before it adds to too many sorted runs.
            expires: whether old snapshots go after a batch, and periodic savepoints are made before one.
            checkpoint: location of the query's, to be kept with savepoints.
            job: of a streaming query, in the catalog's lineage; None: a batch job.
            observe: told each step.
        """
        self._writer = BatchWriter(
            table,
            TableLog.of(table, options),
            commit_user=commit_user,
            tracks_changes=tracks_changes(table.store, options),
            observe=observe,
        )
        self._compacts_behind = (
            table.options.commit_force_compact
            or table.options.changelog_producer in ("lookup", "full-compaction")
            or waits_for_compaction(table.store)
        )
        self._table, self._options, self._commit_user = table, options, commit_user
        self._job = None if job is None else StreamJob(name=job, checkpoint=checkpoint)
        self._compaction: BackgroundCompaction | None = None
        if compacts:
            self._compaction = BackgroundCompaction(
                table.store, lambda tasks: [run_task(table.store, task) for task in tasks]
            )
        self._dedicated = DedicatedCompaction(table.store) if waits_for_others(table.store, options) else None
        place = None if checkpoint is None else CheckpointPlace(location=checkpoint, commit_user=commit_user)
        self._housekeeping = Housekeeping(table.store, checkpoint=place) if expires else None

    def commit(self, batch_id: int, files: Sequence[StagedFile]) -> CommitResult:
        """Make staged rows visible in files and log, unless the batch is committed already.

        Raises:
            InvalidInputError: a row that the table cannot hold; nothing is visible.
            FluvialError: see ``BatchWriter.write``.
        """
        if self._housekeeping is not None:
            self._housekeeping.before_batch()
        if self._compaction is not None:
            self._compaction.before_batch(self._writer.live)
        elif self._dedicated is not None:
            self._dedicated.before_batch(self._writer.live)
        result = self._writer.write(batch_id, lambda spec: _write_staged(spec, files), origin=self._origin(batch_id))
        if self._compaction is not None and self._compacts_behind:
            self._compaction.after_commit(self._writer.live)
        if self._housekeeping is not None:
            self._housekeeping.after_commit()
        return result

    def _origin(self, batch_id: int) -> CommitOrigin:
        if self._job is not None:
            return self._job.origin(batch_id)
        return batch_origin(self._table.store, self._options.pipeline_name or _BATCH_JOB, self._commit_user)

    def close(self) -> None:
        """Let go of the threads."""
        if self._compaction is not None:
            self._compaction.close()
        if self._housekeeping is not None:
            self._housekeeping.close()


_kept: OrderedDict[object, StagedCommits] = OrderedDict()
"""Spark asks the same process for the next batch: what it knows of the table then need not be read again."""


def commit_stream_batch(
    table: FileTable,
    options: WriterOptions,
    files: Sequence[StagedFile],
    *,
    commit_user: str,
    run_id: str,
    batch_id: int,
    job: str | None = None,
    checkpoint: str | None = None,
    observe: Observer = ignore,
) -> CommitResult:
    """Commit one micro-batch exactly once, then delete what its attempts and those of earlier batches staged.

    The first one of a run also clears away what others left that died.

    Args:
        table: the table's files.
        options: as those of ``sink``.
        files: in the order of the frame's partitions.
        commit_user: stable over restarts of the query.
        run_id: of this start of the query: the next one looks at the log's end again.
        batch_id: as Spark counts.
        job: in the catalog's lineage; None: the commit user.
        checkpoint: location of the query's.
        observe: told each step.

    Raises:
        FluvialError: see ``StagedCommits.commit``.
    """
    identity = (table.store.paths.branch_root, table.schema.id, commit_user, run_id, options)
    is_first = identity not in _kept
    commits = _kept.pop(identity, None) or StagedCommits(
        table,
        options,
        commit_user=commit_user,
        compacts=compacts(table.store, options),
        expires=not is_write_only(table.store, options),
        checkpoint=checkpoint,
        job=job or commit_user,
        observe=observe,
    )
    result = commits.commit(batch_id, files)  # when it fails, the next batch of this run recovers from the log first
    clear_staged(table.store, commit_user, up_to_batch=batch_id)
    if is_first:
        clear_abandoned(table.store, commit_user)
    _kept[identity] = commits
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)[1].close()
    return result


def append_batch(
    table: FileTable, options: WriterOptions, files: Sequence[StagedFile], *, commit_user: str
) -> CommitResult:
    """Commit the rows of a batch job, as ``Table.append`` does, then delete what it staged.

    Raises:
        FluvialError: see ``StagedCommits.commit``.
    """
    result = StagedCommits(table, options, commit_user=commit_user, compacts=False).commit(BATCH_IDENTIFIER, files)
    compact_if_forced(table.store, options)
    clear_staged(table.store, commit_user)
    clear_abandoned(table.store, commit_user)
    return result


def overwrite_batch(
    table: FileTable,
    options: WriterOptions,
    files: Sequence[StagedFile],
    *,
    commit_user: str,
    partition: Mapping[str, object] | None,
) -> CommitResult:
    """Replace rows by staged ones, see ``filestore.table.FileTable.overwrite``; then delete what was staged.

    Nothing goes to the log: readers of the table as a stream find the difference in the files.

    Args:
        table: the table's files.
        options: as those of ``sink``; ``change-tracking=false``: streams are not told (FL-34).
        files: in the order of the frame's partitions.
        commit_user: a fresh one.
        partition: values of some partition columns; None: the partitions that occur in the rows.

    Raises:
        InvalidInputError: a row that the table cannot hold or that lies outside the partition; nothing is visible.
        ConflictError: other commits were faster too often; nothing is visible.
        OutcomeUnknownError: it may be visible.
    """
    done = overwrite(
        table,
        lambda spec: _write_staged(spec, files),
        partition=partition,
        tracks_changes=tracks_changes(table.store, options),
        commit_user=commit_user,
        origin=batch_origin(table.store, options.pipeline_name or _BATCH_JOB, commit_user),
    )
    clear_staged(table.store, commit_user)
    clear_abandoned(table.store, commit_user)
    return done


def _write_staged(spec: BatchSpec, files: Sequence[StagedFile]) -> Iterable[BucketResult]:
    """``RunParts`` over staged rows: every bucket in one thread."""
    groups = _bucket_groups(files)
    with ThreadPoolExecutor(max(len(groups), 1), thread_name_prefix="fluvial-part") as pool:
        parts = [pool.submit(write_part, spec, staged_rows(spec.table, files, group)) for group in groups]
    errors = [part.exception() for part in parts]
    failed = next((error for error in errors if error is not None), None)
    if failed is None:
        return [result for part in parts for result in part.result()]
    if spec.log is None:  # else the log may name the files
        for part, error in zip(parts, errors, strict=True):
            if error is None:
                discard(spec.table.store, [message for result in part.result() for message in result.messages])
    raise failed


def _bucket_groups(files: Sequence[StagedFile]) -> list[frozenset[int]]:
    buckets = sorted({bucket for file in files for bucket in file.buckets})
    count = min(len(buckets), os.cpu_count() or 1, _MOST_THREADS)
    return [frozenset(buckets[start::count]) for start in range(count)]
