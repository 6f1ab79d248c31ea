"""What the committing process of ``format("fluvial")`` does with what tasks left: write rows, commit, clean up.

Staged rows become files, log and snapshot by the session that every writer uses, here in threads of one process, each
with its own buckets. Files that tasks wrote are only published: rows of partition i are numbered below those of
partition i + 1 and above what the table holds, or they get other numbers here, when others have committed meanwhile.

Compaction: this process has no Spark session and should answer soon, so it compacts only when the next batch must wait
for it, at ``num-sorted-run.stop-trigger``, and then by itself. Everything before that is left to ``fluvial compact`` or
to a ``sink``.
"""

import logging
import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from engine.lineage.batch_origin import batch_origin, unnamed_job
from engine.lineage.recording import Recorder
from engine.lineage.stream_job import RecordedRun, StreamJob
from engine.request.writer_options import WriterOptions
from engine.runtime.steps import Observer, ignore
from engine.spark.writer.staged_rows import StagedFile, clear_abandoned, clear_staged, staged_rows
from engine.spark.writer.task_files import FilesOfTask
from engine.write.batch_part import BatchSpec, BucketResult
from engine.write.driver.bucket_threads import compact_in_threads, write_parts
from engine.write.renumber import rewrite_with_higher_numbers, superseded
from engine.write.session import Upkeep, WriteSession
from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import ConflictError
from lsm.undo import undoing

StagedBatch = Sequence[StagedFile | FilesOfTask]
"""Of the tasks that had rows, in the order of the frame's partitions."""

_MOST_THREADS: Final = 4  # each has a write buffer of its own, or the rows of a bucket that it compacts
_MOST_SESSIONS: Final = 8
_BATCH_JOB: Final = "spark"  # of a batch write without pipeline.name: this process does not know the application

logger = logging.getLogger("fluvial.batch")


class ThreadRunner:
    """Threads of this process, every bucket in one of them; files that tasks wrote are taken as they are."""

    def write(self, spec: BatchSpec, rows: StagedBatch) -> Iterable[BucketResult]:
        """See ``Runner``.

        Raises:
            ConflictError: tasks wrote files, and the table got a log meanwhile.
            CorruptDataError: staged files of a task are missing.
        """
        store, written = spec.table.store, [task for task in rows if isinstance(task, FilesOfTask)]
        if not written:
            return self._write_staged(spec, [task for task in rows if isinstance(task, StagedFile)])
        if spec.log is not None:
            raise ConflictError(
                f"the table got a log while tasks wrote files of a batch: table={store.name} batch={spec.batch_id} "
                "fix=start the query or job again"
            )
        logger.info(
            "files of a batch were written by tasks: table=%s batch=%d tasks=%d of=%d files=%d",
            store.name, spec.batch_id, len(written), len(rows), sum(_file_count(task) for task in written),
        )  # fmt: skip
        owned: list[BucketResult] = []  # whose files are to be published, or discarded by this process
        highest = dict(spec.max_sequence_numbers)
        with undoing(lambda: discard(store, [message for result in owned for message in result.messages])):
            for task in written:
                task.attempt.claim(store)
                owned += task.results
            made: list[BucketResult] = []
            for done, files in _in_order(rows):
                if done is None:
                    results = self._write_staged(replace(spec, max_sequence_numbers=dict(highest)), files)
                else:
                    results = [_following(store, each, highest) for each in done.results]
                _raise_to(highest, results)
                made += results
                owned += results
        return one_of_each_bucket(made)

    def compact(self, store: TableStore, tasks: Sequence[CompactionTask]) -> list[CommitMessage]:
        """See ``Runner``. The next batch waits for it, so every bucket in a thread."""
        return compact_in_threads(store, tasks, most_threads=_most_threads())

    def _write_staged(self, spec: BatchSpec, rows: Sequence[StagedFile]) -> list[BucketResult]:
        return write_parts(spec, [staged_rows(spec.table, rows, group) for group in _bucket_groups(rows)])


class StreamSessions:
    """The write sessions of the streaming queries that one process commits for.

    Spark asks the same process for the next batch of a query: what its session knows of the table need not be read
    again. Not for use by several threads.
    """

    def __init__(self) -> None:
        """Without any session."""
        self._sessions: OrderedDict[object, WriteSession[StagedBatch]] = OrderedDict()

    def commit(
        self,
        table: FileTable,
        options: WriterOptions,
        files: StagedBatch,
        *,
        commit_user: str,
        run_id: str,
        batch_id: int,
        job: str | None = None,
        query_id: str | None = None,
        checkpoint: str | None = None,
        observe: Observer = ignore,
    ) -> CommitResult:
        """Commit one micro-batch exactly once, then delete what its attempts and those of earlier batches staged.

        The first one of a run also deletes what dead jobs staged.

        Args:
            table: the table's files.
            options: as those of ``sink``.
            files: of the batch.
            commit_user: stable over restarts of the query.
            run_id: of this start of the query: the next one looks at the log's end again.
            batch_id: as Spark counts.
            job: in the catalog's lineage; None: the commit user.
            query_id: of the query, which a new checkpoint changes; None: the commit user.
            checkpoint: location of the query's.
            observe: called with each step.

        Raises:
            InvalidInputError: a row that the table cannot hold; nothing is visible.
            FluvialError: see ``WriteSession.write``.
        """
        identity = (table.store.paths.branch_root, table.schema.id, commit_user, run_id, options)
        is_first = identity not in self._sessions
        session = self._sessions.pop(identity, None)
        if session is None:
            stream = StreamJob(
                name=job or commit_user, checkpoint=checkpoint, run=query_id or commit_user, run_id=run_id
            )
            recorder = Recorder.of(table.store)
            run = stream if recorder is None else RecordedRun(recorder, stream)
            run.origin(batch_id)
            session = WriteSession(
                table,
                ThreadRunner(),
                commit_user=commit_user,
                options=options,
                upkeep=Upkeep.STREAM_ON_DEMAND,
                origin=lambda batch_id, rows: run.origin(batch_id),
                checkpoint=checkpoint,
                run_id=run_id,
                observe=observe,
            )
        with undoing(session.close):  # the next batch of this run begins with the log's end, as a new run does
            result = session.write(files, batch_id=batch_id)
            clear_staged(table.store, commit_user, up_to_batch=batch_id)
            if is_first:
                clear_abandoned(table.store, commit_user)
        self._sessions[identity] = session
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)[1].close()
        return result


def append_batch(table: FileTable, options: WriterOptions, files: StagedBatch, *, commit_user: str) -> CommitResult:
    """Commit the rows of a batch job, as ``Table.append`` does, then delete what it staged.

    Raises:
        InvalidInputError: a row that the table cannot hold; nothing is visible.
        FluvialError: see ``WriteSession.write``.
    """
    with _batch_session(table, options, commit_user, Upkeep.BATCH) as session:
        result = session.write(files, read_snapshot_id=options.read_snapshot_id)
    clear_staged(table.store, commit_user)
    clear_abandoned(table.store, commit_user)
    return result


def overwrite_batch(
    table: FileTable,
    options: WriterOptions,
    files: StagedBatch,
    *,
    commit_user: str,
    partition: Mapping[str, object] | None,
) -> CommitResult:
    """Replace rows by staged ones, see ``WriteSession.overwrite``; then delete what was staged.

    Args:
        table: the table's files.
        options: as those of ``sink``; ``change-tracking=false``: streams do not get the difference.
        files: of the job.
        commit_user: a fresh one.
        partition: values of some partition columns; None: the partitions that occur in the rows.

    Raises:
        InvalidInputError: a row that the table cannot hold or that lies outside the partition; nothing is visible.
        ConflictError: other commits were faster too often, or came since the snapshot that the rows were computed from;
            nothing is visible.
        OutcomeUnknownError: it may be visible.
    """
    with _batch_session(table, options, commit_user, Upkeep.REPLACE) as session:
        result = session.overwrite(files, partition, only_after=options.read_snapshot_id)
    clear_staged(table.store, commit_user)
    clear_abandoned(table.store, commit_user)
    return result


def _batch_session(
    table: FileTable, options: WriterOptions, commit_user: str, upkeep: Upkeep
) -> WriteSession[StagedBatch]:
    job = options.pipeline_name or unnamed_job(_BATCH_JOB, table.store.name)
    return WriteSession(
        table,
        ThreadRunner(),
        commit_user=commit_user,
        options=options,
        upkeep=upkeep,
        origin=lambda batch_id, rows: batch_origin(table.store, job, commit_user),
    )


def _bucket_groups(files: Sequence[StagedFile]) -> list[frozenset[int]]:
    buckets = sorted({bucket for file in files for bucket in file.buckets})
    count = min(len(buckets), _most_threads())
    return [frozenset(buckets[start::count]) for start in range(count)]


def _most_threads() -> int:
    return min(os.cpu_count() or 1, _MOST_THREADS)


def _file_count(task: FilesOfTask) -> int:
    return sum(len(message.new_files) for result in task.results for message in result.messages)


def _in_order(rows: StagedBatch) -> Iterator[tuple[FilesOfTask | None, list[StagedFile]]]:
    """Each task that wrote files, and those between two of them together."""
    waiting: list[StagedFile] = []
    for task in rows:
        if isinstance(task, StagedFile):
            waiting.append(task)
            continue
        if waiting:
            yield None, waiting
            waiting = []
        yield task, []
    if waiting:
        yield None, waiting


def _following(store: TableStore, result: BucketResult, highest: Mapping[BucketKey, int]) -> BucketResult:
    """What a task wrote in a bucket, numbered above the highest number."""
    if not store.has_key and store.options.bucket <= 0:
        return result  # rows without buckets have no order
    messages = []
    for each in result.messages:
        above = highest.get(BucketKey(each.partition, each.bucket), NO_SEQUENCE_NUMBER)
        moved = rewrite_with_higher_numbers(store, each, above=above)
        messages.append(moved)
    discard(store, superseded(result.messages, messages))
    return replace(result, messages=tuple(messages))


def _raise_to(highest: dict[BucketKey, int], results: Iterable[BucketResult]) -> None:
    for message in (each for result in results for each in result.messages):
        key = BucketKey(message.partition, message.bucket)
        numbers = (file.max_sequence_number for file in message.new_files)
        highest[key] = max(numbers, default=highest.get(key, NO_SEQUENCE_NUMBER))


def one_of_each_bucket(results: Iterable[BucketResult]) -> list[BucketResult]:
    """The results of several tasks as those of one: a message for each bucket, whose files move together if at all."""
    messages: dict[BucketKey, CommitMessage] = {}
    facts: dict[int, Counter[str]] = {}
    for result in results:
        facts.setdefault(result.bucket, Counter()).update(result.facts)
        for each in result.messages:
            key = BucketKey(each.partition, each.bucket)
            known = messages.get(key)
            messages[key] = each if known is None else _joined(known, each)
    return [
        BucketResult(
            bucket=bucket,
            messages=tuple(message for key, message in messages.items() if key.bucket == bucket),
            facts=dict(counts),
        )
        for bucket, counts in facts.items()
    ]


def _joined(first: CommitMessage, second: CommitMessage) -> CommitMessage:
    return replace(
        first,
        new_files=(*first.new_files, *second.new_files),
        changelog_files=(*first.changelog_files, *second.changelog_files),
    )
